//! `plimsoll code`: a scenario in, the configuration of another tool or a training script out.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use plimsoll_core::exchange::{Form, write};
use plimsoll_core::{Error, Scenario};

use crate::estimate::print;
use crate::exit::{self, Failure};
use crate::scenario::{Input, Overlay};

const EXAMPLES: &str = "\
Examples:
  plimsoll code --model qwen3-8b --lora-rank 16 --quantization nf4 --as trainer
  plimsoll code run.toml --as pytorch --out train.py
  plimsoll code --from axolotl.yaml --as llama-factory

What is written is read back first: what a form cannot say is refused by name, so
that it never stands for another run than the one that was estimated. Code has
placeholders for your data, and nothing else to fill in.

Exit codes: 0 written; 2 wrong usage, or what the form cannot say; 3 a file cannot
be read or written.";

/// Write a run as code or as the configuration of another tool
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    input: Input,

    /// What to write
    #[arg(
        long = "as", value_name = "FORM", default_value = "pytorch",
        value_parser = PossibleValuesParser::new(Form::ALL.iter().map(|form| form.as_str())),
    )]
    form: String,

    /// Where to, instead of standard output; a file that is there is not written over
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let overlay = Overlay::new(&args.input.flags)?;
    answer(args, &overlay).map_err(|failure| args.input.blame(&overlay, failure))
}

fn answer(args: &Args, overlay: &Overlay) -> Result<u8, Failure> {
    let scenario = Scenario::from_value_to_measure(&args.input.value(overlay)?)?;
    let form = Form::parse(&args.form).ok_or_else(|| Error::new("--as", "there is no such form", "see --help"))?;
    let text = write(&scenario, form)?;
    let Some(path) = &args.out else { return print(&text, exit::OK) };
    let file = std::fs::OpenOptions::new().write(true).create_new(true).open(path);
    file.and_then(|mut file| std::io::Write::write_all(&mut file, text.as_bytes())).map_err(|error| {
        Failure::Environment {
            problem: format!("cannot write {}: {error}", path.display()),
            hint: "name a file that is not there yet, in a folder that is".to_owned(),
        }
    })?;
    Ok(exit::OK)
}
