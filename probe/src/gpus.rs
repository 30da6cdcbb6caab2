//! `plimsoll gpus`: the cards that can be named, and of a single one what it holds before a run.

use std::fmt::Write as _;
use std::io::Write as _;

use plimsoll_core::catalog::{Gpu, search};
use serde_json::json;

use crate::estimate::Format;
use crate::exit::{self, Failure};
use crate::footprint;
use crate::view::{Paint, fit};

/// List the GPUs that --gpu names
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Only those that this finds: a name, an architecture, an amount of memory (24gb)
    filter: Option<String>,

    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    format: Format,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let wanted = args.filter.as_deref().unwrap_or_default().to_lowercase();
    let paint = Paint::for_stdout();
    let mut out = String::new();
    let found: Vec<&Gpu> = search::find_gpus(&wanted);
    if found.len() > 1 && args.format == Format::Text {
        let head = format!("{:<23} {:<32} {:>10} {:>11}", "--gpu", "name", "memory", "bandwidth");
        let _ = writeln!(out, "{}", paint.quiet(&head));
    }
    for &g in &found {
        match args.format {
            Format::Json => {
                let mut row = json!({
                    "id": g.id, "name": g.name, "architecture": g.architecture, "form": g.form, "memory": g.memory,
                    "bandwidth_gb_s": g.bandwidth_gb_s, "tflops_fp32": g.tflops_fp32, "tflops_fp16": g.tflops_fp16,
                    "tflops_bf16": g.tflops_bf16, "source": g.source,
                });
                if let Some(keys) = row.as_object_mut() {
                    keys.append(&mut footprint::keys(g));
                }
                let _ = writeln!(out, "{row}");
            }
            Format::Text => {
                let id = paint.strong(&format!("{:<23}", g.id));
                let (name, memory) = (fit(g.name, 32), g.memory.to_string());
                let _ = writeln!(out, "{id} {name:<32} {memory:>10} {:>11}", format!("{} GB/s", g.bandwidth_gb_s));
                if found.len() == 1 || g.id == wanted {
                    out.push_str(&footprint::text(g, paint));
                }
            }
        }
    }
    if out.is_empty() && args.format == Format::Text {
        out.push_str("No GPU like that; take one of the same kind and give --memory.\n");
    }
    anstream::stdout().lock().write_all(out.as_bytes())?;
    Ok(exit::OK)
}
