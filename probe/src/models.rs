//! `plimsoll models`: the models that can be named.

use std::fmt::Write as _;
use std::io::Write as _;

use plimsoll_core::catalog::{self, Model};
use plimsoll_core::scenario::supported::{FAMILIES, FamilyKeyKind};
use serde_json::json;

use crate::estimate::Format;
use crate::exit::{self, Failure};
use crate::view::{Paint, fit, grouped, wrapped};

/// List the models that --model and --family name
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only those whose id, name, publisher or type contains this
    filter: Option<String>,

    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    format: Format,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let wanted = args.filter.as_deref().unwrap_or_default().to_lowercase();
    let matches =
        |m: &&Model| [m.id, m.name, m.publisher, m.model_type].iter().any(|text| text.to_lowercase().contains(&wanted));
    let models: Vec<&Model> = catalog::models().iter().filter(matches).collect();
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
            }
            for family in FAMILIES.iter().filter(|f| f.name.contains(&wanted)) {
                let keys: Vec<String> = family
                    .keys
                    .iter()
                    .map(|key| match key.kind {
                        FamilyKeyKind::Count { default, .. } => format!("{}={default}", key.name),
                        FamilyKeyKind::Fraction { default } => format!("{}={default}", key.name),
                        FamilyKeyKind::Flag { default } => format!("{}={default}", key.name),
                        FamilyKeyKind::Word { default, .. } => format!("{}={default}", key.name),
                    })
                    .collect();
                let flag = paint.strong(&format!("{:<30}", format!("--family {}", family.name)));
                let _ = writeln!(out, "{flag} {}", family.about);
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
