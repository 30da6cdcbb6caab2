//! Every byte at the peak, layer by layer, and what lies between live memory and the process.

use std::fmt::Write as _;

use plimsoll_core::estimate::{Category, Explanation, Layer};
use plimsoll_core::summary::Kind;
use plimsoll_core::{Bytes, Estimate};

use super::holdings::row;
use super::number::Unit;
use super::{Paint, WIDTH, fit};

/// Columns of a layer's name.
const NAME: usize = 34;

/// A run of layers that follow one another and hold the same.
struct Run<'a> {
    layers: Vec<&'a Layer>,
}

/// The whole explanation.
pub fn explanation(explanation: &Explanation, estimate: &Estimate, paint: Paint) -> String {
    let mut out = String::new();
    let unit = Unit::of(explanation.requested);
    let runs = runs(&explanation.layers);
    let _ = writeln!(out, "  {}", paint.strong("Who holds the peak, layer by layer"));
    for run in &runs {
        let _ = writeln!(out, "{}", line(run, unit, paint));
    }
    let total = format!("{:<NAME$}{:>16}", "live tensors", unit.text(explanation.requested));
    let _ = writeln!(out, "  {}", paint.strong(&total));
    out.push('\n');
    for run in &runs {
        let Some(layer) = run.layers.first() else { continue };
        let each = if run.layers.len() > 1 { ", each" } else { "" };
        let _ = writeln!(out, "  {}", paint.strong(&fit(&format!("{}{each}", name(run)), WIDTH - 2)));
        for holding in &layer.holdings {
            let mut holding = holding.clone();
            // The layer's name stands above; what is left says where in it.
            let inside = holding.module.strip_prefix(layer.name.as_str()).map(|rest| rest.trim_start_matches('.'));
            holding.module = inside.unwrap_or(&holding.module).to_owned();
            let _ = writeln!(out, "{}", row(&holding, paint));
        }
    }
    out.push('\n');
    out + &beyond(explanation, estimate, paint)
}

/// Folds equal neighbours: a deep model is one block many times.
fn runs(layers: &[Layer]) -> Vec<Run<'_>> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    for layer in layers {
        match runs.last_mut() {
            Some(run) if run.layers.first().is_some_and(|first| alike(first, layer)) => run.layers.push(layer),
            _ => runs.push(Run { layers: vec![layer] }),
        }
    }
    runs
}

/// Whether two layers of one list hold the same, name for name but for the layer's own.
fn alike(a: &Layer, b: &Layer) -> bool {
    let stem = |layer: &Layer| layer.name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned();
    let numbered = |layer: &Layer| layer.name.ends_with(|c: char| c.is_ascii_digit());
    numbered(a)
        && numbered(b)
        && stem(a) == stem(b)
        && a.holdings.len() == b.holdings.len()
        && a.holdings.iter().zip(&b.holdings).all(|(x, y)| {
            let inside = |module: &str, layer: &Layer| module.strip_prefix(layer.name.as_str()).map(str::to_owned);
            (x.category, &x.op, &x.shape, &x.dtype, x.count) == (y.category, &y.op, &y.shape, &y.dtype, y.count)
                && inside(&x.module, a) == inside(&y.module, b)
        })
}

/// `model.layers.0` or `model.layers.0 to 15`.
fn name(run: &Run<'_>) -> String {
    let (Some(first), Some(last)) = (run.layers.first(), run.layers.last()) else { return String::new() };
    let end = last.name.rsplit('.').next().unwrap_or_default();
    match (first.name.as_str(), run.layers.len()) {
        ("", _) => "outside every module".to_owned(),
        (name, 1) => name.to_owned(),
        (name, _) => format!("{name} to {end}"),
    }
}

/// A run in one line: how much each holds, of what, and all together.
fn line(run: &Run<'_>, unit: Unit, paint: Paint) -> String {
    let Some(layer) = run.layers.first() else { return String::new() };
    let all: Bytes = run.layers.iter().map(|l| l.bytes).sum();
    let name = fit(&name(run), NAME);
    let parts: String = Category::ALL
        .iter()
        .filter(|category| layer.holdings.iter().any(|h| h.category == **category))
        .map(|category| paint.cells((*category).into(), 1))
        .collect();
    let times = if run.layers.len() > 1 {
        format!("  {} x {}", run.layers.len(), unit.text(layer.bytes))
    } else {
        String::new()
    };
    let width = Category::ALL.len() - layer_width(layer);
    format!("  {name:<NAME$}{:>16}  {parts}{}{}", unit.text(all), " ".repeat(width), paint.quiet(&times))
        .trim_end()
        .to_owned()
}

/// How many categories a layer has.
fn layer_width(layer: &Layer) -> usize {
    Category::ALL.iter().filter(|category| layer.holdings.iter().any(|h| h.category == **category)).count()
}

/// From live tensors up to the process.
fn beyond(explanation: &Explanation, estimate: &Estimate, paint: Paint) -> String {
    let beyond = &explanation.beyond;
    let unit = Unit::of(estimate.peak.process);
    let mut out = String::new();
    let _ = writeln!(out, "  {}", paint.strong("From there to the process"));
    let rows = [
        ("live tensors, in steps of 512 bytes", explanation.requested),
        ("rests of blocks too small to split off", beyond.unsplit),
        ("free blocks the allocator keeps", beyond.cached),
        ("more it had reserved at another moment", beyond.reserved_elsewhere),
        (Kind::Context.label(), beyond.context),
    ];
    for (label, bytes) in rows {
        let _ = writeln!(out, "  {label:<NAME$} {:>16}", unit.text(bytes), NAME = NAME + 6);
    }
    let total = format!("{:<NAME$} {:>16}", "the process", unit.text(estimate.peak.process), NAME = NAME + 6);
    let _ = writeln!(out, "  {}", paint.strong(&total));
    let mut notes = vec![format!("{} of it only rounding", beyond.rounding)];
    if beyond.allocated_elsewhere > Bytes::ZERO {
        notes.push(format!("allocated peaks at another moment, {} higher", beyond.allocated_elsewhere));
    }
    let _ = writeln!(out, "  {}", paint.quiet(&notes.join("; ")));
    out
}
