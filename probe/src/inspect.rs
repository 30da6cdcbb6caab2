//! `plimsoll inspect`: what a ledger says.

use std::io::Write as _;
use std::path::PathBuf;

use plimsoll_core::estimate::Reading;
use serde_json::Value;

use crate::estimate::Format;
use crate::exit::{self, Failure};
use crate::ledger_file;
use crate::view::{self, Paint};

const EXAMPLES: &str = "\
Examples:
  plimsoll estimate run.toml --ledger run.json.gz
  plimsoll inspect run.json.gz
  plimsoll inspect run.json.gz --format json

Exit codes: 0, 2 a file that is no ledger, 3 a file that cannot be read.";

/// Read a ledger that `estimate --ledger` wrote: its peak, the memory over time,
/// and who holds the peak
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    /// The ledger, compressed or not
    file: PathBuf,

    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    format: Format,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let reading = Reading::new(ledger_file::read(&args.file)?);
    let text = match args.format {
        Format::Json => format!("{:#}\n", serde_json::to_value(reading.summary()).unwrap_or(Value::Null)),
        Format::Text => view::reading(&reading, Paint::for_stdout()),
    };
    anstream::stdout().lock().write_all(text.as_bytes())?;
    Ok(exit::OK)
}
