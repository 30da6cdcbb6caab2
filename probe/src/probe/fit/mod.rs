//! `plimsoll probe fit`: the largest micro-batch that trains, or batch that is answered, by real trials.

mod search;
mod table;
pub mod trials;

use std::io::Write as _;
use std::path::PathBuf;

use serde_json::json;

use super::bench::{Bench as _, Machine};
use super::{Where, check_mode, check_one_card, survey};
use crate::estimate::Format;
use crate::exit::{self, Failure};
use crate::records::Store;
use crate::scenario::Input;
use crate::view::Paint;

pub use table::table;
pub use trials::{Fit, Start, find_largest};

const EXAMPLES: &str = "\
Examples:
  plimsoll probe fit --model gpt2 --seq 512 --precision bf16-amp
  plimsoll probe fit run.toml --limit 11GiB
  plimsoll probe fit --family nbeats --device cpu --limit 2GiB
  plimsoll probe fit --model gpt2 --mode inference --max-new-tokens 128

Each trial is a fresh process; the estimate says where to begin, so that two to
four trials answer what doubling and halving would take ten for. The batch of
the scenario says nothing here. A record of each trial is kept.

Exit codes: 0 a batch was found, 1 not even one sample runs, 2 wrong usage
or a bad scenario, 3 no Python or PyTorch, a busy card, or a worker that
failed, 130 stopped by Ctrl-C.";

/// Find the largest micro-batch that runs, by real trials
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    input: Input,

    #[command(flatten)]
    place: Where,

    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    format: Format,

    /// Where to keep the record of each trial [default: with your other data]
    #[arg(long, value_name = "FOLDER")]
    out: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let mut asked = args.input.to_measure()?;
    asked.scenario = args.place.with_steps(asked.scenario);
    check_one_card(&asked.scenario, "probe fit")?;
    check_mode(&asked.scenario)?;
    let store = args.out.as_ref().map_or_else(Store::local, |folder| Ok(Store::at(folder)))?;
    survey::announce();
    let device = survey::survey(&args.place)?.map(|survey| survey.device);
    let start = Start { scenario: &asked.scenario, limit: args.place.limit, device: device.as_ref(), known: &[] };
    let mut bench = Machine::new(&args.place);
    let fit = find_largest(&start, &mut bench, &store)?;
    let code = match fit.largest {
        None if bench.stopped() => exit::INTERRUPTED,
        Some(0) | None => exit::DOES_NOT_FIT,
        Some(_) => exit::OK,
    };
    let answer = match args.format {
        Format::Json => {
            let mut value = fit.to_value();
            value["scenario"] = asked.scenario.to_value();
            value["limit"] = json!(args.place.limit);
            format!("{value:#}\n")
        }
        Format::Text => table(&asked.scenario, args.place.limit, &fit, store.folder(), Paint::for_stdout()),
    };
    let mut out = anstream::stdout().lock();
    match out.write_all(answer.as_bytes()).and_then(|()| out.flush()).map_err(Failure::from) {
        Ok(()) | Err(Failure::Closed) => Ok(code),
        Err(failure) => Err(failure),
    }
}
