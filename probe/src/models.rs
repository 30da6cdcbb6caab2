//! `plimsoll models`: the models that can be named.

use std::fmt::Write as _;
use std::io::Write as _;

use plimsoll_core::catalog::families::{FamilyKey, OWN};
use plimsoll_core::catalog::search::{self, Named};
use plimsoll_core::catalog::{self, Model, Recorded};
use plimsoll_core::ledger::hull::Axis;
use plimsoll_core::scenario::{HullModel, variant_in_words};
use plimsoll_core::solve::needs::{self, Method};
use plimsoll_core::{Bytes, device};
use serde_json::{Value, json};

use crate::estimate::Format;
use crate::exit::{self, Failure};
use crate::view::{Paint, WIDTH, columns, fit, grouped, wrapped};

/// Columns of a name where there are [`WIDTH`] for the line.
const NAME: usize = 25;
/// Columns of a type.
const TYPE: usize = 11;

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
    let mut models = search::find_named(&wanted);
    if models.is_empty() {
        models = catalog::models().iter().filter(contains).map(Named::Model).collect();
    }
    let paint = Paint::for_stdout();
    let mut out = String::new();
    match args.format {
        Format::Json => {
            for named in &models {
                let row = match named {
                    Named::Model(m) => json!({
                        "id": m.id, "name": m.name, "publisher": m.publisher, "model_type": m.model_type,
                        "parameters": m.parameters, "source": m.source,
                    }),
                    Named::Recorded(m) => json!({
                        "id": m.id, "name": m.name, "publisher": m.publisher, "hull": m.hash,
                        "parameters": m.parameters, "source": m.source, "about": m.about,
                    }),
                };
                let _ = writeln!(out, "{row}");
            }
        }
        Format::Text => {
            // A wide terminal has room for every name.
            let longest = models.iter().map(|named| named.name().chars().count()).max().unwrap_or(0);
            let width = longest.min(NAME + columns().saturating_sub(WIDTH)).max(NAME);
            if models.len() > 1 {
                let head = format!("{:<30} {:<width$} {:<TYPE$} {:>10}", "--model", "name", "type", "parameters");
                let _ = writeln!(out, "{}", paint.quiet(&head));
            }
            for named in &models {
                let id = paint.strong(&format!("{:<30}", named.id()));
                let kind = match named {
                    Named::Model(m) => m.model_type,
                    Named::Recorded(_) => "hull",
                };
                // A type that is wider than its column takes of the name's.
                let width = width.saturating_sub(kind.chars().count().saturating_sub(TYPE));
                let name = fit(named.name(), width);
                let parameters = grouped(named.parameters() / 1_000_000) + " M";
                let _ = writeln!(out, "{id} {name:<width$} {kind:<TYPE$} {parameters:>10}");
                if models.len() == 1 || named.id() == wanted {
                    match named {
                        Named::Model(m) => out.push_str(&details(m, paint)),
                        Named::Recorded(m) => out.push_str(&recorded(m, paint)),
                    }
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

/// What is in a recording, below its line.
fn recorded(row: &Recorded, paint: Paint) -> String {
    let mut out = String::new();
    for line in wrapped(&format!("{}.", row.about), 76) {
        let _ = writeln!(out, "    {line}");
    }
    let hull = HullModel::shipped(row);
    if let Ok(file) = hull.file() {
        let axis = |axis: &Axis| match axis.step {
            1 => format!("{}={} (from {})", axis.name, axis.usual, axis.least),
            step => format!("{}={} (from {}, multiples of {step})", axis.name, axis.usual, axis.least),
        };
        let axes: Vec<String> = file.axes.iter().skip(1).map(axis).collect();
        let made: Vec<String> = file.made.iter().map(|(name, version)| format!("{name} {version}")).collect();
        let _ = writeln!(out, "    {:<12}{}", "parameters", grouped(row.parameters));
        let _ = writeln!(out, "    {:<12}{}", "--set", if axes.is_empty() { "-".to_owned() } else { axes.join(", ") });
        let _ = writeln!(out, "    {:<12}{}", "--precision", file.precisions().join(", "));
        for variant in file.variants() {
            let _ = writeln!(out, "    {:<12}{}", "with", variant_in_words(variant));
        }
        let _ = writeln!(out, "    {:<12}{}", "made with", made.join(", "));
    }
    for line in wrapped(row.source, 76) {
        let _ = writeln!(out, "    {}", paint.quiet(&line));
    }
    out
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
