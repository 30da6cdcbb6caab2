//! `plimsoll import`: records from files into a database, checked as uploads are.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use plimsoll_core::measurement::Standing;
use plimsoll_core::shown;
use plimsoll_server::store::{Entry, Kept, Store};
use tokio::task::JoinSet;

use crate::database::{self, block_on};
use crate::exit::{self, Failure};
use crate::records;

const ABOUT: &str = "\
Records are checked as a server checks uploads; one that is there already is left as it is. What an export wrote can be \
read back: its index.json is passed over.";

/// Records on their way at a time.
const TOGETHER: usize = 32;

/// Deepest folder that is looked into.
const DEPTH: usize = 16;

/// Add records from files to a database
#[derive(Debug, clap::Args)]
#[command(after_help = ABOUT)]
pub struct Args {
    /// Records, or folders whose .json files are records
    #[arg(value_name = "FILE|DIR", required = true)]
    from: Vec<PathBuf>,
    #[command(flatten)]
    database: database::Which,
}

/// What became of the files.
#[derive(Debug, Default)]
struct Tally {
    new: usize,
    known: usize,
    quarantined: usize,
    refused: usize,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let mut paths = Vec::new();
    for from in &args.from {
        gather(from, 0, &mut paths)?;
    }
    block_on(2, async {
        let store = args.database.open().await?;
        let done = import(&store, paths).await;
        store.close().await;
        let Tally { new, known, quarantined, refused } = done?;
        let quarantined = if quarantined > 0 { format!(" ({quarantined} quarantined)") } else { String::new() };
        writeln!(std::io::stdout(), "{new} added{quarantined}, {known} were there, {refused} refused")?;
        Ok(if refused > 0 { exit::BAD_SCENARIO } else { exit::OK })
    })
}

/// The files below a path, in the order of their names. Links to folders are not followed: they may lead in circles.
fn gather(path: &Path, depth: usize, into: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let cannot = |error: &std::io::Error| Failure::Environment {
        problem: format!("cannot read {}: {error}", path.display()),
        hint: "check the path".to_owned(),
    };
    if !fs::metadata(path).map_err(|error| cannot(&error))?.is_dir() {
        into.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<_> = fs::read_dir(path).map_err(|error| cannot(&error))?.flatten().collect();
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let (path, kind) = (entry.path(), entry.file_type());
        if kind.is_ok_and(|kind| kind.is_dir()) && depth < DEPTH {
            gather(&path, depth + 1, into)?;
        } else if path.extension().is_some_and(|extension| extension == "json")
            && path.file_name().is_some_and(|name| name != "index.json")
            // Through links too: what is no file, as a FIFO, may be waited for as long as its owner likes.
            && fs::metadata(&path).is_ok_and(|found| found.is_file())
        {
            into.push(path);
        }
    }
    Ok(())
}

fn name(path: &Path) -> String {
    shown(&path.display().to_string())
}

async fn import(store: &Store, paths: Vec<PathBuf>) -> Result<Tally, Failure> {
    let mut tally = Tally::default();
    let mut paths = paths.into_iter();
    let mut under_way: JoinSet<(PathBuf, Result<Kept, Failure>)> = JoinSet::new();
    loop {
        while under_way.len() < TOGETHER
            && let Some(path) = paths.next()
        {
            let store = store.clone();
            under_way.spawn(async move {
                let kept = one(&store, &path).await;
                (path, kept)
            });
        }
        let Some(done) = under_way.join_next().await else { return Ok(tally) };
        let Ok((path, kept)) = done else { continue };
        match kept {
            Ok(kept) => {
                *(if kept.new { &mut tally.new } else { &mut tally.known }) += 1;
                if kept.standing == Standing::Quarantined && kept.new {
                    tally.quarantined += 1;
                    eprintln!("{}: quarantined: {}", name(&path), shown(&kept.reasons.join("; ")));
                }
            }
            Err(Failure::Scenario { error, .. }) => {
                tally.refused += 1;
                eprintln!("{}: {}", name(&path), shown(&error.to_string()));
            }
            // The database, or a file that cannot be read: the rest would fare no better.
            Err(failure) => return Err(failure),
        }
    }
}

async fn one(store: &Store, path: &Path) -> Result<Kept, Failure> {
    let from = path.to_owned();
    let entry = tokio::task::spawn_blocking(move || {
        let record = records::read(&from)?;
        let problem = |errors: Vec<plimsoll_core::Error>| errors.into_iter().next();
        Entry::new(&record).map_err(|errors| match problem(errors) {
            Some(error) => Failure::from(error),
            None => Failure::from(plimsoll_core::Error::new("record", "it cannot be read", "take it anew")),
        })
    });
    let entry = entry.await.map_err(|error| Failure::Environment {
        problem: format!("cannot check {}: {error}", path.display()),
        hint: "please report it with the record".to_owned(),
    })??;
    Ok(store.put(entry, None).await?)
}
