//! `plimsoll probe suite`: a fixed list of scenarios, each measured once, to hold the engine against a machine.

pub mod budget;
mod entries;
mod fits;
pub mod plan;
mod table;

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_core::Error;
use plimsoll_core::scenario::nearest;

use super::bench::{Bench as _, Machine};
use super::entry::{self, Entry};
use super::{Where, survey};
use crate::estimate::Format;
use crate::exit::{self, Failure};
use crate::records::{Store, data_directory};
use crate::view::{Paint, wrapped};

use entries::{EntryEnd, Suite};

/// The scenarios.
pub const ENTRIES: &str = include_str!("entries.toml");
/// Those of `--fits`.
const FITS: &str = include_str!("fits.toml");

const EXAMPLES: &str = "\
Examples:
  plimsoll probe suite --list
  plimsoll probe suite --time-budget 30m
  plimsoll probe suite --only gpt2 --only llama
  plimsoll probe suite --fits
  plimsoll probe suite --device cpu
  plimsoll probe suite --out data/measurements/rtx-5070-ti-laptop

What has been measured with the same PyTorch on the same device is not measured
again: begin, stop with Ctrl-C, go on. What the card cannot hold by the estimate,
and what this Python lacks a package for, is left out with the reason. Without a
card every entry runs in small: that shows that it runs, not what it takes.

Exit codes: 0 everything that could be measured was, 1 an entry failed, 2 wrong
usage, 3 no Python or PyTorch, 130 stopped by Ctrl-C.";

/// Measure a fixed list of scenarios, and sum up how far off the estimates are
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only the entries whose name contains this; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Tell what is in the list, and end
    #[arg(long)]
    list: bool,

    /// Look for the largest micro-batch of ten scenarios under a cap of 12 GiB
    #[arg(long)]
    fits: bool,

    /// Begin no entry that would end later than this: 30m
    #[arg(long, value_name = "TIME", value_parser = budget::parse)]
    time_budget: Option<Duration>,

    #[command(flatten)]
    place: Where,

    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    format: Format,

    /// Where the records are kept and looked for [default: with your other data]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// An entry could not be measured.
const FAILED: u8 = 1;

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let entries = chosen(entry::read(if args.fits { FITS } else { ENTRIES })?, &args.only)?;
    if args.list {
        return answer(&list(&entries, Paint::for_stdout()), exit::OK);
    }
    let entries = entries.into_iter().map(|entry| entry.with_steps(&args.place)).collect::<Result<Vec<_>, _>>()?;
    let store = match &args.out {
        Some(folder) => Store::at(folder),
        None => Store::at(data_directory()?.join("suite")),
    };
    survey::announce();
    let Some(survey) = survey::survey(&args.place)? else {
        return Err(Failure::Environment {
            problem: "this Python does not say what PyTorch it has".to_owned(),
            hint: "plimsoll probe run says why".to_owned(),
        });
    };
    let suite = Suite { entries: &entries, survey: &survey, limit: args.place.limit, budget: args.time_budget };
    let mut bench = Machine::new(&args.place);
    let paint = Paint::for_stdout();
    let (value, mut text, failed) = if args.fits {
        let results = fits::fit_all(&suite, &mut bench, &store)?;
        let failed = results.iter().any(|c| c.fit.as_ref().is_err_and(|why| why.starts_with("failed")));
        (fits::value(&results), fits::table(&results, paint), failed)
    } else {
        let results = entries::measure(&suite, &mut bench, &store)?;
        let failed = results.iter().any(|one| matches!(one.end, EntryEnd::Failed(_)));
        (table::value(&results), table::table(&results, paint), failed)
    };
    let code = if bench.stopped() {
        exit::INTERRUPTED
    } else if failed {
        FAILED
    } else {
        exit::OK
    };
    if args.format == Format::Json {
        return answer(&format!("{value:#}\n"), code);
    }
    for line in wrapped(&format!("The records are in {}", store.folder().display()), 78) {
        let _ = writeln!(text, "  {}", paint.quiet(&line));
    }
    answer(&text, code)
}

fn answer(text: &str, code: u8) -> Result<u8, Failure> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::from) {
        Ok(()) | Err(Failure::Closed) => Ok(code),
        Err(failure) => Err(failure),
    }
}

/// The entries that were asked for; all, when none was.
pub fn chosen(entries: Vec<Entry>, only: &[String]) -> Result<Vec<Entry>, Error> {
    for word in only {
        if !entries.iter().any(|entry| entry.name.contains(word.as_str())) {
            let names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
            let near = nearest(word, &names).map(|name| format!("did you mean {name:?}; ")).unwrap_or_default();
            let hint = format!("{near}--list shows all");
            return Err(Error::new("--only", format!("no entry's name contains {word:?}"), hint));
        }
    }
    let wanted = |entry: &Entry| only.is_empty() || only.iter().any(|word| entry.name.contains(word.as_str()));
    Ok(entries.into_iter().filter(wanted).collect())
}

pub fn list(entries: &[Entry], paint: Paint) -> String {
    let mut out = String::new();
    for entry in entries {
        let lines = wrapped(&entry.why, 40).join(&format!("\n{:40}", ""));
        let _ = writeln!(out, "{} {lines}", paint.strong(&format!("{:<39}", entry.name)));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_lists_can_be_read_whole_and_small() {
        for (list, count) in [(ENTRIES, 36), (FITS, 10)] {
            let entries = entry::read(list).unwrap();
            assert_eq!(entries.len(), count);
            let mut names: Vec<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count, "names are unique");
            for entry in &entries {
                for small in [false, true] {
                    entry.scenario(small).unwrap_or_else(|error| panic!("{}: {error}", entry.name));
                }
            }
        }
    }

    #[test]
    fn entries_are_chosen_by_a_part_of_their_name() {
        let all = || entry::read(ENTRIES).unwrap();
        assert_eq!(chosen(all(), &[]).unwrap().len(), 36);
        let two = chosen(all(), &["t5-".to_owned(), "gat".to_owned()]).unwrap();
        assert_eq!(
            two.iter().map(|entry| entry.name.as_str()).collect::<Vec<_>>(),
            ["gat-fp32-adamw", "t5-fp32-adafactor"]
        );
        assert!(chosen(all(), &["vti".to_owned()]).is_err());
    }
}
