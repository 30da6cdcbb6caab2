//! `cargo xtask accuracy`: writes the scoreboard and the fingerprints, or checks that they are up to date.

use std::fs;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use plimsoll_tests::accuracy;

use crate::workspace;

/// How many differing lines are shown of a stale file.
const SHOWN: usize = 12;

/// Writes `docs/accuracy.md` and `tests/corpus/estimates.hashes`; with `check` writes nothing and fails when one differs.
///
/// # Errors
/// A row of the corpus or a record that cannot be read or is not valid, a file that cannot be written.
pub fn run(check: bool) -> Result<ExitCode> {
    let root = workspace::root();
    let cards = accuracy::cards(&root.join("data/measurements"))?;
    println!("running the reference corpus; {} records of real cards ...", cards.len());
    let files = [
        ("docs/accuracy.md", accuracy::report(&accuracy::evaluate()?, &accuracy::published()?, &cards)?),
        ("tests/corpus/estimates.hashes", accuracy::fingerprints()?),
    ];
    let mut stale = false;
    for (name, fresh) in &files {
        let path = root.join(name);
        let committed = fs::read_to_string(&path).unwrap_or_default();
        if committed == *fresh {
            println!("{name} is up to date");
        } else if check {
            stale = true;
            println!("{name} and the code disagree:\n{}", difference(&committed, fresh));
        } else {
            fs::create_dir_all(path.parent().unwrap_or(root))
                .and_then(|()| fs::write(&path, fresh))
                .with_context(|| format!("cannot write {name}"))?;
            println!("wrote {name}");
        }
    }
    if stale {
        println!("run `cargo xtask accuracy`, look at the difference, and commit it if it is meant");
        return Ok(ExitCode::FAILURE);
    }
    summary(&files[0].1);
    Ok(ExitCode::SUCCESS)
}

/// Prints the scoreboard's summary section.
fn summary(report: &str) {
    let lines = report.lines().skip_while(|l| *l != "## Summary").skip(1).take_while(|l| !l.starts_with("## "));
    for line in lines.filter(|l| !l.is_empty()) {
        println!("{line}");
    }
}

/// The first lines that differ, line by line.
fn difference(old: &str, new: &str) -> String {
    let (mut old, mut new) = (old.lines(), new.lines());
    let mut shown = String::new();
    let mut count = 0;
    for number in 1.. {
        let (was, is) = (old.next(), new.next());
        if was.is_none() && is.is_none() {
            break;
        }
        if was == is {
            continue;
        }
        count += 1;
        if count <= SHOWN {
            for (sign, line) in [('-', was), ('+', is)] {
                if let Some(line) = line {
                    shown.push_str(&format!("{number:>5} {sign} {line}\n"));
                }
            }
        }
    }
    if count > SHOWN {
        shown.push_str(&format!("      ... and {} more lines\n", count - SHOWN));
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_shows_where_it_starts() {
        assert_eq!(difference("a\nb\nc\n", "a\nx\nc\n"), "    2 - b\n    2 + x\n");
        assert_eq!(difference("a\n", "a\nb\n"), "    2 + b\n");
        assert_eq!(difference("a\n", "a\n"), "");
        let long = "x\n".repeat(40);
        assert!(difference(&long, "").ends_with("      ... and 28 more lines\n"));
    }
}
