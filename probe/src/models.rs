//! `plimsoll models`: the models that can be named.

use std::fmt::Write as _;
use std::io::Write as _;

use plimsoll_core::catalog::families::{FamilyKey, OWN};
use plimsoll_core::catalog::{self, Model, search};
use plimsoll_core::solve::needs::{self, Method};
use plimsoll_core::{Bytes, device};
use serde_json::{Value, json};

use crate::estimate::Format;
use crate::exit::{self, Failure};
use crate::view::{Paint, fit, grouped, wrapped};

/// List the models that --model and --family name; of a single one, also what it takes to be trained
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only those that this finds: a name, a Hub id, a publisher, a type
    filter: Option<String>,

    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    format: Format,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let wanted = args.filter.as_deref().unwrap_or_default().to_lowercase();
    let contains = |m: &&Model| m.model_type.to_lowercase().contains(&wanted);
    let mut models = search::find_models(&wanted);
    if models.is_empty() {
        models = catalog::models().iter().filter(contains).collect();
    }
    let paint = Paint::for_stdout();
    let mut out = String::new();
    match args.format {
        Format::Json => {
            for m in &models {
                let row = json!({
                    "id": m.id, "name": m.name, "publisher": m.publisher, "model_type": m.model_type,
                    "parameters": m.parameters, "source": m.source,
                });
                let _ = writeln!(out, "{row}");
            }
        }
        Format::Text => {
            for m in &models {
                let id = paint.strong(&format!("{:<30}", m.id));
                let name = fit(m.name, 25);
                let _ = writeln!(
                    out,
                    "{id} {name:<25} {:<11} {:>10}",
                    m.model_type,
                    grouped(m.parameters / 1_000_000) + " M"
                );
                if models.len() == 1 || m.id == wanted {
                    out.push_str(&details(m, paint));
                }
            }
            for family in OWN.iter().filter(|f| f.name.contains(&wanted)) {
                let keys: Vec<String> = family.keys().iter().map(assignment).collect();
                let flag = paint.strong(&format!("{:<30}", format!("--family {}", family.name)));
                let _ = writeln!(out, "{flag} {}", family.about());
                for line in wrapped(&keys.join(" "), 76) {
                    let _ = writeln!(out, "    {}", paint.quiet(&line));
                }
            }
            if out.is_empty() {
                out.push_str("No model like that; paste its config.json with --hf-config.\n");
            }
        }
    }
    anstream::stdout().lock().write_all(out.as_bytes())?;
    Ok(exit::OK)
}

/// A key with its default, as `--set` takes it.
fn assignment(key: &FamilyKey) -> String {
    match key.kind.default() {
        Value::String(word) => format!("{}={word}", key.name),
        other => format!("{}={other}", key.name),
    }
}

/// What a model weighs and what training it takes, below its line.
fn details(model: &Model, paint: Paint) -> String {
    let mut out = String::new();
    let weights = [("fp32", 8), ("bf16", 4), ("8-bit", 2), ("4-bit", 1)];
    let weights = weights.map(|(name, half_bytes)| format!("{name} {}", Bytes::new(model.parameters * half_bytes / 2)));
    let _ = writeln!(out, "    {:<12}{}", "parameters", grouped(model.parameters));
    let _ = writeln!(out, "    {:<12}{}", "weights", weights.join("   "));
    let card = catalog::gpu(needs::CARD);
    for way in Method::ALL {
        let text = match needs::reserved(model, way) {
            Ok(reserved) => (reserved + card.map_or(Bytes::ZERO, |card| device::context(card).bytes)).to_string(),
            Err(error) => format!("not estimated: {}", error.problem),
        };
        let _ = writeln!(out, "    {:<12}{text}", way.label());
    }
    let about = format!(
        "What a process takes to train one sample of at most {} tokens with AdamW on a {}: full under bf16 autocast, \
         LoRA (rank {}, every linear) on a bf16 base, QLoRA on NF4 with double quantization under autocast, both checkpointed.",
        needs::TOKENS,
        card.map_or(needs::CARD, |card| card.name),
        needs::RANK
    );
    for line in wrapped(&about, 76) {
        let _ = writeln!(out, "    {}", paint.quiet(&line));
    }
    out
}
