//! Where a scenario comes from on the command line: a file, standard input or a link, and flags laid over it.

mod flags;
mod foreign;
pub mod hull;
mod source;

use std::path::PathBuf;

use plimsoll_core::{Error, Scenario};
use serde_json::{Value, json};

pub use flags::{Flags, Overlay};
pub use source::{name, not_text, read};

use crate::exit::Failure;

/// A scenario as subcommands take it.
#[derive(Debug, Default, clap::Args)]
pub struct Input {
    /// A scenario (TOML or JSON), `-` for standard input, or a share link.
    /// Flags override what it says
    #[arg(value_name = "FILE | - | LINK")]
    pub source: Option<String>,

    /// Configurations of other tools in the place of a scenario: TrainingArguments (Python or JSON), Accelerate, DeepSpeed,
    /// Axolotl, LLaMA-Factory, torchtune, torchtitan, Unsloth, ms-swift, Lightning, a model's config.json; `-` for
    /// standard input
    #[arg(long, value_name = "FILE", num_args(1..))]
    pub from: Vec<PathBuf>,

    /// One for each key of a scenario.
    #[command(flatten)]
    pub flags: Flags,
}

impl Input {
    /// The table that file and flags give together, not validated yet.
    pub fn value(&self, overlay: &Overlay) -> Result<Value, Failure> {
        let mut value = match self.source.as_deref() {
            Some(source) => hull::opened(read(source)?, source)?,
            None if overlay.names_model() || !self.from.is_empty() => json!({}),
            None => {
                let hint = "name a model (--model llama-3.2-1b), a file, `-` or a link; --help shows examples";
                return Err(Error::new("scenario", "there is no scenario", hint).into());
            }
        };
        if !self.from.is_empty() {
            foreign::lay(&self.from, overlay, &mut value)?;
        }
        overlay.apply(&mut value);
        if !self.from.is_empty() {
            foreign::give_way(overlay, &mut value);
        }
        Ok(value)
    }

    /// Names the file in what went wrong, unless a flag is to blame.
    pub fn blame(&self, overlay: &Overlay, failure: Failure) -> Failure {
        match (self.source.as_deref().and_then(name), &failure) {
            (Some(name), Failure::Scenario { error, .. }) if !overlay.says(&error.key) => failure.in_file(&name),
            _ => failure,
        }
    }

    /// A scenario that is to be run for real: a family without an estimate is welcome.
    pub fn to_measure(&self) -> Result<Asked, Failure> {
        let overlay = Overlay::new(&self.flags)?;
        let read = || {
            let value = self.value(&overlay)?;
            let names_gpu = value.get("device").and_then(|device| device.get("gpu")).is_some_and(|gpu| !gpu.is_null());
            Ok(Asked { scenario: Scenario::from_value_to_measure(&value)?, names_gpu })
        };
        read().map_err(|failure| self.blame(&overlay, failure))
    }
}

/// A scenario somebody asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// What was asked.
    pub scenario: Scenario,
    /// Whether it says which card, rather than leaving it at the default.
    pub names_gpu: bool,
}
