//! `plimsoll export`: the measurements of a database as plain files, which a planner on any file host reads.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use plimsoll_server::store::{Filter, Store, salvage};
use serde_json::json;

use crate::database::{self, block_on};
use crate::exit::{self, Failure};
use crate::records::replace;

const ABOUT: &str = "\
Writes DIR/measurements/index.json, a list of all records with what is thought of each, and a file for each record. \
Put `measurements` beside a planner's index.html, and the planner shows them without any server.";

/// Records read at a time.
const PAGE: usize = 500;

/// Write all measurements as files for a planner without a server
#[derive(Debug, clap::Args)]
#[command(after_help = ABOUT)]
pub struct Args {
    /// Where to write `measurements`
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Save what can be read of a damaged SQLite database: DIR/measurements gets every record that is what was given,
    /// DIR/unverified what reads as a record and may have been changed
    #[arg(long)]
    salvage: bool,
    #[command(flatten)]
    database: database::Which,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    if args.salvage {
        return block_on(2, save(args));
    }
    block_on(2, async {
        let store = args.database.open().await?;
        let done = export(&store, &args.out.join("measurements")).await;
        store.close().await;
        let (count, folder) = done?;
        writeln!(io::stdout(), "{count} measurements are in {}", folder.display())?;
        Ok(exit::OK)
    })
}

async fn save(args: &Args) -> Result<u8, Failure> {
    let target = args.database.target()?;
    let (good, unsure) = (args.out.join("measurements"), args.out.join("unverified"));
    let (mut verified, mut unverified) = (0_u64, 0_u64);
    let lost = salvage(&target, |one| {
        let (folder, count) = if one.verified { (&good, &mut verified) } else { (&unsure, &mut unverified) };
        fs::create_dir_all(folder).map_err(|error| cannot(folder, &error))?;
        let path = folder.join(format!("{}.json", one.id));
        replace(&path, one.content.as_bytes()).map_err(|error| cannot(&path, &error))?;
        *count += 1;
        Ok::<_, Failure>(())
    });
    let lost = lost.await?;
    let mut out = io::stdout();
    writeln!(out, "{verified} measurements are in {}, as they were given", good.display())?;
    if unverified > 0 {
        writeln!(out, "{unverified} read as measurements but may have been changed: {}", unsure.display())?;
    }
    writeln!(out, "{lost} could not be read")?;
    Ok(exit::OK)
}

fn cannot(path: &Path, error: &io::Error) -> Failure {
    Failure::Environment {
        problem: format!("cannot write {}: {error}", path.display()),
        hint: "check that --out names a folder that may be written to".to_owned(),
    }
}

async fn export(store: &Store, folder: &Path) -> Result<(usize, PathBuf), Failure> {
    fs::create_dir_all(folder).map_err(|error| cannot(folder, &error))?;
    let mut items = Vec::new();
    let mut before = None;
    loop {
        // Quarantined ones too: each says what it is.
        let page = store.list(&Filter::default(), before, PAGE).await?;
        for item in &page.items {
            let Some(id) = item.get("id").and_then(serde_json::Value::as_str) else { continue };
            let path = folder.join(format!("{id}.json"));
            let Some(content) = store.record(id).await? else { continue };
            // What is named by its content never changes.
            if fs::metadata(&path).is_ok_and(|found| found.len() == content.len() as u64) {
                continue;
            }
            replace(&path, content.as_bytes()).map_err(|error| cannot(&path, &error))?;
        }
        items.extend(page.items);
        before = page.next;
        if before.is_none() {
            break;
        }
    }
    let count = items.len();
    let index = json!({"schema": 1, "items": items, "next": null, "total": count});
    // Last: whoever reads meanwhile finds every record that the list names.
    let path = folder.join("index.json");
    replace(&path, index.to_string().as_bytes()).map_err(|error| cannot(&path, &error))?;
    Ok((count, folder.to_owned()))
}
