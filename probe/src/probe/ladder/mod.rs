//! `plimsoll probe ladder`: the same training with one lever after the other, each measured.

mod climb;
mod rungs;
mod table;

use std::io::Write as _;
use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use plimsoll_core::measurement::DeviceKind;
use plimsoll_core::scenario::{Mode, Precision};
use plimsoll_core::{Error, Scenario};

use super::bench::Machine;
use super::{Where, check_mode, check_one_card, entry, survey};
use crate::estimate::Format;
use crate::exit::{self, Failure};
use crate::records::Store;
use crate::scenario::{Input, Overlay};
use crate::view::Paint;

use climb::climb;

/// The scenarios of `--preset`.
const PRESETS: &str = include_str!("presets.toml");

const EXAMPLES: &str = "\
Examples:
  plimsoll probe ladder --preset gpt2
  plimsoll probe ladder run.toml --mixed fp16-amp --limit 11GiB
  plimsoll probe ladder --preset nbeats --device cpu

The rungs: fp32, + mixed precision, + accumulation (a quarter of the
micro-batch), + checkpointing, + fused optimizer, and + LoRA for Hugging Face
models. The effective batch is the same on all. A rung that does not fit is
shown as such. Without a card a preset runs in small.

Exit codes: 0 it was climbed, whatever did not fit; 2 wrong usage or a bad
scenario; 3 no Python or PyTorch, a busy card; 130 stopped by Ctrl-C.";

/// Measure the same training with one lever after the other
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    input: Input,

    /// A scenario that comes with the program, made for 12 GB cards; minutes.
    /// Flags override what it says
    #[arg(long, value_name = "NAME", conflicts_with = "source",
        value_parser = PossibleValuesParser::new(["nbeats", "gpt2", "llama-1b"]))]
    preset: Option<String>,

    /// The mixed precision [default: bf16-amp, on cards before Ampere fp16-amp]
    #[arg(long, value_name = "PRECISION", value_parser = PossibleValuesParser::new(["bf16-amp", "fp16-amp"]))]
    mixed: Option<String>,

    #[command(flatten)]
    place: Where,

    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    format: Format,

    /// Where to keep the record of each rung [default: with your other data]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let asked = match &args.preset {
        Some(name) => {
            let overlay = Overlay::new(&args.input.flags)?;
            let mut value = preset(name, is_small(&args.place)?)?.to_value();
            overlay.apply(&mut value);
            Scenario::from_value_to_measure(&value)?
        }
        None => args.input.to_measure().map_err(or_a_preset)?.scenario,
    };
    let asked = args.place.with_steps(asked);
    check_one_card(&asked, "probe ladder")?;
    check_mode(&asked)?;
    if asked.training.mode == Mode::Inference {
        let hint = "measure it with plimsoll probe run, its largest batch with plimsoll probe fit";
        return Err(Error::new("training.mode", "a ladder is of levers of training", hint).into());
    }
    let mixed = args.mixed.as_deref().and_then(|word| Precision::ALL.iter().copied().find(|p| p.as_str() == word));
    let store = args.out.as_ref().map_or_else(Store::local, |folder| Ok(Store::at(folder)))?;
    let mut bench = Machine::new(&args.place);
    let climb = climb(&asked, mixed, args.place.limit, &mut bench, &store)?;
    let answer = match args.format {
        Format::Json => format!("{:#}\n", table::value(&asked, args.place.limit, &climb)),
        Format::Text => table::table(&asked, args.place.limit, &climb, store.folder(), Paint::for_stdout()),
    };
    let code = if climb.stopped { exit::INTERRUPTED } else { exit::OK };
    let mut out = anstream::stdout().lock();
    match out.write_all(answer.as_bytes()).and_then(|()| out.flush()).map_err(Failure::from) {
        Ok(()) | Err(Failure::Closed) => Ok(code),
        Err(failure) => Err(failure),
    }
}

/// Here a scenario may also be one that comes with the program.
fn or_a_preset(failure: Failure) -> Failure {
    match failure {
        Failure::Scenario { place: None, mut error } if error.key == "scenario" => {
            error.hint = format!("--preset gpt2 names one that comes with the program; or {}", error.hint);
            Failure::Scenario { place: None, error }
        }
        other => other,
    }
}

/// Whether there is no card to fill.
fn is_small(place: &Where) -> Result<bool, Failure> {
    survey::announce();
    Ok(survey::survey(place)?.is_some_and(|survey| survey.device.kind == DeviceKind::Cpu))
}

fn preset(name: &str, small: bool) -> Result<Scenario, Error> {
    let found = entry::read(PRESETS)?.into_iter().find(|entry| entry.name == name);
    let entry = found.ok_or_else(|| Error::new("--preset", format!("no preset {name:?}"), "see --help"))?;
    entry.scenario(small)
}

#[cfg(test)]
mod tests {
    use plimsoll_core::Bytes;
    use plimsoll_core::estimate::{Run, Verdict};

    use super::*;

    /// The sizes the presets' file speaks of, on a 12 GB laptop card with a load line of 11 GiB.
    #[test]
    fn presets_fit_a_12_gb_card_as_they_say() {
        for (name, fp32, top) in [("nbeats", true, true), ("gpt2", true, true), ("llama-1b", false, true)] {
            let asked = preset(name, false).unwrap();
            let verdict = |scenario: &Scenario| {
                let mut scenario = scenario.clone();
                scenario.device.gpu = "rtx-5070-ti-laptop".to_owned();
                scenario.device.load_line = Some(Bytes::from_gib(11));
                Run::new(&scenario).unwrap().estimate().verdict
            };
            assert_eq!(verdict(&rungs::lowest(&asked)) == Verdict::Fits, fp32, "{name} in fp32");
            let rungs = rungs::above(&asked, Precision::Bf16Amp);
            let last = rungs.iter().rev().find_map(|rung| rung.scenario.as_ref().ok()).unwrap();
            assert_eq!(verdict(last) == Verdict::Fits, top, "{name} on the last rung");
            let small = preset(name, true).unwrap();
            let parameters = Run::new(&small).unwrap().estimate().parameters.total;
            assert!(parameters < 5_000_000, "{name} in small has {parameters}");
        }
    }
}
