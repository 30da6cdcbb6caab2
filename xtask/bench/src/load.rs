//! `cargo xtask bench load`: the server under load, on both databases, and with a hundred thousand records.

use std::fmt::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use plimsoll_testkit::postgres::{Postgres, Waits};
use plimsoll_testkit::server::Server;
use plimsoll_testkit::storm::{Log, Storm, lost, percentile};

use crate::{fill, machine};

/// As the server is to stand it: 64 clients for a minute.
const STORM: Storm = Storm { clients: 64, time: Duration::from_secs(60), reads: 3, first: 0 };

/// Records of the large database.
const RECORDS: u64 = 100_000;

/// How often each question is asked of the large database.
const ASKED: usize = 100;

/// What is asked of it: everything, a facet, many facets at once, and the last pages.
const QUESTIONS: [(&str, &str); 10] = [
    ("list, newest 100", "/api/v1/measurements"),
    ("list, newest 500", "/api/v1/measurements?limit=500"),
    ("list, oldest 100", "/api/v1/measurements?cursor=c101"),
    ("list, one card of 40", "/api/v1/measurements?gpu=synthetic%20gpu%207"),
    (
        "list, four filters",
        "/api/v1/measurements?family=synthetic%20family%203&precision=synthetic%20precision%201&torch=synthetic%20torch%202\
         &status=all",
    ),
    ("list, nothing found", "/api/v1/measurements?model=none&gpu=none"),
    ("compare by family", "/api/v1/compare?by=family"),
    ("compare by card", "/api/v1/compare?by=gpu"),
    ("compare by precision", "/api/v1/compare?by=precision&status=all"),
    ("compare by optimizer, filtered", "/api/v1/compare?by=optimizer&gpu=synthetic%20gpu%207"),
];

/// What was seen, as the part of docs/performance.md that tells it.
///
/// # Errors
/// Something went wrong under it, or was lost.
pub fn run(plimsoll: &Path) -> Result<String> {
    let mut text = String::new();
    writeln!(
        text,
        "### Under load\n\n\
         Measured by `cargo xtask bench load` on {}; {}. Server, database and clients share that machine and talk over\n\
         loopback. {} clients for {} seconds, each uploading a synthetic record of 14 KB and then reading {} times (lists,\n\
         the record, a comparison); every upload is checked, estimated and on the disk before it is acknowledged. Then the\n\
         server is killed (SIGKILL), started again, and asked for every acknowledged record.\n",
        machine::date(),
        machine::describe(),
        STORM.clients,
        STORM.time.as_secs(),
        STORM.reads,
    )?;
    writeln!(text, "| database | uploads/s | p50 | p99 | reads/s | p50 | p99 | errors | 429 | acknowledged | lost |")?;
    writeln!(text, "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")?;
    // On the disk of the project rather than among temporary files, which may lie in memory.
    let folder = plimsoll.parent().context("plimsoll is in no folder")?.join("bench-load");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder)?;

    eprintln!("SQLite under load");
    let database = format!("sqlite://{}", folder.join("load.db").display());
    writeln!(text, "| SQLite | {} |", storm(plimsoll, &database)?)?;
    let postgres = Postgres::start(Waits::ForTheDisk)?;
    eprintln!("{} under load", postgres.version());
    writeln!(text, "| {} | {} |", postgres.version(), storm(plimsoll, &postgres.database()?)?)?;
    drop(postgres);

    eprintln!("SQLite with {RECORDS} records");
    let database = format!("sqlite://{}", folder.join("large.db").display());
    fill::run(&database, RECORDS)?;
    text.push_str(&large(plimsoll, &database)?);
    std::fs::remove_dir_all(&folder)?;
    Ok(text)
}

/// A storm, a kill, and a look at what is left: the cells of one row.
fn storm(plimsoll: &Path, database: &str) -> Result<String> {
    let arguments = ["--database", database, "--uploads-per-minute", "0"];
    let server = Server::start(plimsoll, &arguments)?;
    let mut log = STORM.at(&server.address)?;
    server.kill()?;
    for error in log.errors.iter().take(5) {
        eprintln!("{error}");
    }
    let server = Server::start(plimsoll, &arguments)?;
    let gone = lost(&server.address, &log.acknowledged)?;
    server.end()?;
    let cells = row(&mut log, gone.len());
    eprintln!("{cells}");
    ensure!(log.errors.is_empty() && gone.is_empty(), "there were errors, or something was lost");
    Ok(cells)
}

fn row(log: &mut Log, lost: usize) -> String {
    let seconds = log.time.as_secs_f64();
    let of = |times: &mut Vec<Duration>| {
        let rate = times.len() as f64 / seconds;
        format!("{rate:.0} | {} | {}", millis(percentile(times, 50)), millis(percentile(times, 99)))
    };
    let (uploads, reads) = (of(&mut log.uploads), of(&mut log.reads));
    let (errors, too_many, acknowledged) = (log.errors.len(), log.too_many, log.acknowledged.len());
    format!("{uploads} | {reads} | {errors} | {too_many} | {acknowledged} | {lost}")
}

/// How fast the large database answers.
fn large(plimsoll: &Path, database: &str) -> Result<String> {
    let start = Instant::now();
    let server = Server::start(plimsoll, &["--database", database])?;
    let mut client = server.client()?;
    ensure!(client.get("/api/v1/measurements?limit=1")?.status == 200);
    let ready = start.elapsed();
    let memory = memory(server.id());

    let mut text = String::new();
    writeln!(
        text,
        "\n### With {RECORDS} records\n\n\
         Synthetic records in SQLite, each question asked {ASKED} times by one client, and as often by each of 8 at once.\n\
         From starting the server to its first list {}; it then takes {memory} of memory.\n",
        millis(ready),
    )?;
    writeln!(text, "| question | p50 | p95 | p95 of 8 at once |")?;
    writeln!(text, "| --- | ---: | ---: | ---: |")?;
    for (title, path) in QUESTIONS {
        let mut alone = ask(&server, path)?;
        let crowd: Vec<Result<Vec<Duration>>> = std::thread::scope(|threads| {
            let server = &server;
            let handles: Vec<_> = (0..8).map(|_| threads.spawn(move || ask(server, path))).collect();
            handles.into_iter().map(|one| one.join().unwrap_or_else(|_| anyhow::bail!("a client panicked"))).collect()
        });
        let mut together = Vec::new();
        for times in crowd {
            together.extend(times?);
        }
        let (median, most) = (percentile(&mut alone, 50), percentile(&mut alone, 95));
        let together = percentile(&mut together, 95);
        writeln!(text, "| {title} | {} | {} | {} |", millis(median), millis(most), millis(together))?;
        eprintln!("{title}: p95 {}, of 8 at once {}", millis(most), millis(together));
    }
    server.end()?;
    Ok(text)
}

fn ask(server: &Server, path: &str) -> Result<Vec<Duration>> {
    let mut client = server.client()?;
    let mut times = Vec::with_capacity(ASKED);
    for _ in 0..ASKED {
        let start = Instant::now();
        let reply = client.get(path)?;
        times.push(start.elapsed());
        ensure!(reply.status == 200, "{path}: {} {}", reply.status, reply.body);
    }
    Ok(times)
}

/// What a process has resident, in words; Linux tells.
fn memory(process: u32) -> String {
    let resident = || -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        Ok(line.trim().trim_end_matches("kB").trim().parse::<f64>()? / 1024.0)
    };
    resident().map_or_else(|_| "an unknown amount".to_owned(), |mib| format!("{mib:.0} MiB"))
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_tells_rates_and_times() {
        let mut log = Log {
            acknowledged: vec![String::new(); 100],
            uploads: (1..=100).map(Duration::from_millis).collect(),
            reads: vec![Duration::from_micros(1500); 300],
            too_many: 2,
            errors: Vec::new(),
            time: Duration::from_secs(10),
        };
        assert_eq!(row(&mut log, 0), "10 | 51.0 ms | 100.0 ms | 30 | 1.5 ms | 1.5 ms | 0 | 2 | 100 | 0");
    }
}
