//! `plimsoll probe contact`: the day a card is at hand. Every entry of the suite on the card, on its hollow twin and by the
//! estimate, side by side.

mod beside;
mod libraries;
mod meet;
mod text;
mod twin;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use plimsoll_core::catalog;
use plimsoll_core::measurement::DeviceKind;
use serde_json::{Value, json};
use time::OffsetDateTime;

use super::bench::{Bench as _, Machine};
use super::entry::{self, Entry};
use super::suite::{self, budget};
use super::survey::{self, Seen, Survey};
use super::{Kind, Where};
use crate::estimate::Format;
use crate::exit::{self, Failure};
use crate::records::replace;
use crate::view::Paint;

use libraries::Libraries;
use meet::{End, Meeting, Met};
use twin::Rehearsal;

const EXAMPLES: &str = "\
Examples:
  plimsoll probe contact
  plimsoll probe contact --only gpt2 --only llama --time-budget 30m
  plimsoll probe contact --out first-day
  plimsoll probe contact --twin=--truth=false

Each entry runs three times: on the card, with PyTorch's allocator writing its
history; on a hollow twin of the card, on this machine and with the same PyTorch
(plimsoll rehearse); and by the estimate. `=` stands where a figure is the card's
to the byte. What the CUDA context and libraries take is measured by steps first.
Records, snapshots and contact.json go to one folder; Ctrl-C keeps what is there.

Exit codes: 0 everything agreed, 1 something differs or failed, 2 wrong usage,
3 no Python, PyTorch or card, 130 stopped by Ctrl-C.";

/// Measure a card for the first time: the suite's entries on it, on its hollow
/// twin and by the estimate, side by side
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// Only the entries whose name contains this; may be repeated
    #[arg(long, value_name = "NAME")]
    only: Vec<String>,

    /// Tell what is in the list, and end
    #[arg(long)]
    list: bool,

    /// Begin no entry that would end later than this: 30m
    #[arg(long, value_name = "TIME", value_parser = budget::parse)]
    time_budget: Option<Duration>,

    /// An option for the twin's `plimsoll rehearse`, after those that describe
    /// the card: --twin=--truth=false; may be repeated
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    twin: Vec<String>,

    #[command(flatten)]
    place: Where,

    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    format: Format,

    /// The folder to make and fill [default: contact-CARD-DATE, here]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Something differs, or could not be measured.
const DIFFERS: u8 = 1;

/// What is written last and read first.
const REPORT: &str = "contact.json";

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let entries = suite::chosen(entry::read(suite::ENTRIES)?, &args.only)?;
    if args.list {
        return answer(&suite::list(&entries, Paint::for_stdout())).map(|()| exit::OK);
    }
    let entries: Vec<Entry> =
        entries.into_iter().map(|entry| entry.with_steps(&args.place)).collect::<Result<_, _>>()?;
    if args.place.device.is_some_and(|device| device != Kind::Cuda) {
        return Err(no_card());
    }
    survey::announce();
    let Some(survey) = survey::survey(&args.place)? else {
        return Err(Failure::Environment {
            problem: "this Python does not say what PyTorch it has".to_owned(),
            hint: "plimsoll probe run says why".to_owned(),
        });
    };
    let Some(card) = survey.card.clone().filter(|_| survey.device.kind == DeviceKind::Cuda) else {
        return Err(no_card());
    };
    let folder = folder(args.out.as_deref(), &survey, &card)?;
    crate::interrupt::install()?;

    let mut bench = Machine::new(&args.place);
    bench.say(&format!("{}, {}: context and libraries by steps ...", card.name, survey.torch));
    let libraries = libraries::measure(&args.place)?;
    let text = args.format == Format::Text;
    if text {
        answer(&text::opening(&survey, &card, &libraries, Paint::for_stdout()))?;
    }
    let mut rehearsal = Rehearsal::new(&args.place, &survey, &card, libraries.total(), &args.twin);
    let meeting =
        Meeting { entries: &entries, survey: &survey, place: &args.place, budget: args.time_budget, folder: &folder };
    let mut told = Vec::new();
    meet::meet(&meeting, &mut bench, &mut rehearsal, &mut |met| {
        if text {
            answer(&text::entry(&met, Paint::for_stdout()))?;
        }
        told.push(met);
        keep(&folder, &value(&survey, &card, &libraries, &told))
    })?;

    let code = if bench.stopped() {
        exit::INTERRUPTED
    } else if told.iter().all(|met| met.agrees() || matches!(met.end, End::Skipped(_))) && told.iter().any(Met::agrees)
    {
        exit::OK
    } else {
        DIFFERS
    };
    let value = value(&survey, &card, &libraries, &told);
    keep(&folder, &value)?;
    let closing = if text {
        text::closing(&told, &folder, survey.device.hollow, Paint::for_stdout())
    } else {
        format!("{value:#}\n")
    };
    answer(&closing).map(|()| code)
}

fn no_card() -> Failure {
    Failure::Environment {
        problem: "PyTorch sees no card of NVIDIA's here, and there is none to measure".to_owned(),
        hint:
            "run it where the card is, with PyTorch's CUDA build (--python names another Python); `plimsoll rehearse \
            --gpu rtx-4090 -- plimsoll probe contact` tries it on a card that is not there"
                .to_owned(),
    }
}

/// Makes the folder. What was measured once is not written over.
fn folder(asked: Option<&Path>, survey: &Survey, card: &Seen) -> Result<PathBuf, Failure> {
    let name = || {
        let id = survey.device.gpu.clone().unwrap_or_else(|| slug(&card.name));
        let hollow = if survey.device.hollow { "hollow-" } else { "" };
        PathBuf::from(format!("contact-{hollow}{id}-{}", OffsetDateTime::now_utc().date()))
    };
    let folder = asked.map_or_else(name, Path::to_owned);
    let unusable = |problem: String| Failure::Environment {
        problem,
        hint: "name a folder that is not there yet with --out".to_owned(),
    };
    if folder.join(REPORT).exists() {
        return Err(unusable(format!("{} holds what was measured before", folder.display())));
    }
    fs::create_dir_all(&folder).map_err(|error| unusable(format!("cannot make {}: {error}", folder.display())))?;
    Ok(folder)
}

/// `nvidia-geforce-rtx-3060`.
fn slug(name: &str) -> String {
    let plain = name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' });
    plain.collect::<String>().split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}

fn keep(folder: &Path, value: &Value) -> Result<(), Failure> {
    let path = folder.join(REPORT);
    replace(&path, format!("{value:#}\n").as_bytes()).map_err(|error| Failure::Environment {
        problem: format!("cannot write {}: {error}", path.display()),
        hint: "see that the disk has room; what is in the folder stays".to_owned(),
    })
}

/// Everything, for programs.
fn value(survey: &Survey, card: &Seen, libraries: &Libraries, told: &[Met]) -> Value {
    let count = |is: fn(&Met) -> bool| told.iter().filter(|met| is(met)).count();
    json!({
        "schema": 1, "kind": "contact", "plimsoll": env!("CARGO_PKG_VERSION"), "torch": survey.torch,
        // Where there was no such card nothing was measured.
        "hollow": survey.device.hollow, "device": survey.device,
        "card": {
            "found": { "name": card.name, "memory": card.memory, "multiprocessors": card.multiprocessors, "capability": card.capability },
            "catalog": survey.device.gpu.as_deref().and_then(catalog::gpu).map(libraries::listed),
        },
        "libraries": libraries,
        "entries": told,
        "summary": {
            "agree": count(Met::agrees),
            "lie_elsewhere": count(Met::lies_elsewhere),
            "differ": count(|met| matches!(met.end, End::Met(_)) && !met.agrees() && !met.lies_elsewhere()),
            "failed": count(|met| matches!(met.end, End::Failed(_))),
            "skipped": count(|met| matches!(met.end, End::Skipped(_))),
            "not_reached": count(|met| matches!(met.end, End::NotReached(_))),
        },
    })
}

fn answer(text: &str) -> Result<(), Failure> {
    let mut out = anstream::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::from) {
        // Whoever closed it has what he wants, and the folder is filled all the same.
        Ok(()) | Err(Failure::Closed) => Ok(()),
        Err(failure) => Err(failure),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_called_after_the_card() {
        assert_eq!(slug("NVIDIA GeForce RTX 5070 Ti (Laptop)"), "nvidia-geforce-rtx-5070-ti-laptop");
    }
}
