//! The measurements themselves.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use plimsoll_bench::{CASES, MARK};

use crate::process::output;
use crate::root;

/// Starts of the server that are timed.
const STARTS: usize = 21;

/// One result line of the bench crate.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// Which case.
    pub id: String,
    /// Runs timed.
    pub runs: usize,
    /// Milliseconds.
    pub median: f64,
    /// Milliseconds.
    pub fastest: f64,
    /// Milliseconds of processor time; 0 where it is not known.
    pub processor: f64,
    /// What was found: the estimated peak in bytes, the largest batch, the cells that fit.
    pub answer: u64,
    /// Memory of the whole process, in bytes; 0 where it is not known.
    pub memory: u64,
}

impl Timing {
    fn read(line: &str) -> Option<Self> {
        let rest = line.get(line.find(MARK)? + MARK.len()..)?;
        let mut words = rest.split_whitespace();
        let mut next = || words.next();
        Some(Self {
            id: next()?.to_owned(),
            runs: next()?.parse().ok()?,
            median: next()?.parse().ok()?,
            fastest: next()?.parse().ok()?,
            processor: next()?.parse().ok()?,
            answer: next()?.parse().ok()?,
            memory: next()?.parse().ok()?,
        })
    }
}

/// Each case in a process of its own.
///
/// # Errors
/// One cannot be timed.
pub fn native() -> Result<Vec<Timing>> {
    let this = std::env::current_exe().context("cannot find this program")?;
    let mut timings = Vec::new();
    for case in CASES {
        timings.extend(results(&output(Command::new(&this).args(["case", case.id]))?));
    }
    complete(timings)
}

/// All cases in the profile the planner is given away in, in Node.
///
/// # Errors
/// One cannot be timed.
pub fn wasm(program: &Path) -> Result<Vec<Timing>> {
    let said = output(Command::new("node").arg(root().join("tests/kit/run.mjs")).arg(program))?;
    complete(results(&said).collect())
}

/// The result lines among whatever else is printed; each is shown.
fn results(text: &str) -> impl Iterator<Item = Timing> {
    text.lines().filter_map(|line| {
        eprintln!("{line}");
        Timing::read(line)
    })
}

fn complete(timings: Vec<Timing>) -> Result<Vec<Timing>> {
    let all = timings.iter().map(|timing| timing.id.as_str()).eq(CASES.iter().map(|case| case.id));
    ensure!(all, "expected one result for each of {} cases and got {timings:?}", CASES.len());
    Ok(timings)
}

/// How long it takes from starting `plimsoll serve` to the first complete answer, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct StartUp {
    /// Starts timed.
    pub runs: usize,
    /// The middle one.
    pub median: f64,
    /// The slowest.
    pub slowest: f64,
}

/// Starts the server again and again and asks it for the page.
///
/// # Errors
/// It does not start, or does not answer.
pub fn start_up(plimsoll: &Path) -> Result<StartUp> {
    let mut times = Vec::with_capacity(STARTS);
    // Not the user's own; the first start makes it.
    let folder = plimsoll.parent().context("plimsoll is in no folder")?;
    let database = format!("sqlite://{}", folder.join("bench-start.db").display());
    // The first start reads the binary from disk; it is thrown away.
    for run in 0..=STARTS {
        let start = Instant::now();
        let child = Command::new(plimsoll)
            .args(["serve", "--listen", "127.0.0.1:0", "--database", &database])
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start plimsoll")?;
        first_answer(&mut Server(child))?;
        if run > 0 {
            times.push(start.elapsed().as_secs_f64() * 1e3);
        }
    }
    times.sort_by(f64::total_cmp);
    let at = |index: usize| times.get(index).copied().unwrap_or(f64::NAN);
    Ok(StartUp { runs: STARTS, median: at(STARTS / 2), slowest: at(STARTS - 1) })
}

/// A server that does not outlive its use.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn first_answer(server: &mut Server) -> Result<()> {
    let stdout = server.0.stdout.take().context("the server has no output")?;
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line)?;
    let address = line.split_once("http://").and_then(|(_, rest)| rest.split('/').next());
    let address = address.with_context(|| format!("the server said no address: {line:?}"))?;
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    if !answer.starts_with(b"HTTP/1.1 200 ") {
        bail!("the server answered {}", String::from_utf8_lossy(answer.get(..40).unwrap_or(&answer)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_lines_are_found_among_others() {
        let case = CASES.first().unwrap();
        let timing =
            plimsoll_bench::Timing { runs: 31, median: 1.5, fastest: 1.25, processor: 1.4, answer: 134_768_346_624 };
        let line = format!("    log: {}", plimsoll_bench::line(case, &timing, 4096));
        let read = Timing::read(&line).unwrap();
        assert_eq!((read.id.as_str(), read.runs, read.median, read.fastest), (case.id, 31, 1.5, 1.25));
        assert_eq!((read.processor, read.answer, read.memory), (1.4, 134_768_346_624, 4096));
        for line in ["test times ... ok", "plimsoll-bench llama", "plimsoll-bench a b c d e f"] {
            assert_eq!(Timing::read(line), None);
        }
    }

    #[test]
    fn a_missing_result_is_an_error() {
        assert!(complete(Vec::new()).is_err());
    }
}
