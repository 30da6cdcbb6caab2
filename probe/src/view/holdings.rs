//! Who holds what at the peak: the largest groups of storages.

use std::fmt::Write as _;

use plimsoll_core::Bytes;
use plimsoll_core::estimate::Holding;

use super::number::Unit;
use super::stack::Layer;
use super::{Paint, WIDTH, fit};

/// Groups shown; the rest is summed in one line.
const MOST: usize = 10;

/// The table, largest group first.
pub fn holdings(holdings: &[Holding], paint: Paint) -> String {
    let Some(largest) = holdings.iter().map(|h| h.bytes).max() else { return String::new() };
    let unit = Unit::of(largest);
    let mut out = String::new();
    let _ = writeln!(out, "  {}", paint.strong("What fills it"));
    for holding in holdings.iter().take(MOST) {
        let front = format!(
            "{:>11}  {:>5} x {:<22}",
            unit.text(holding.bytes),
            holding.count,
            fit(&format!("{} {}", shape(&holding.shape), dtype(&holding.dtype)), 22),
        );
        let origin = match (holding.module.as_str(), holding.op.as_str()) {
            ("", op) => op.to_owned(),
            (module, "") => module.to_owned(),
            (module, op) => format!("{module}: {op}"),
        };
        let room = WIDTH - 4 - front.chars().count() - 2;
        let swatch = paint.cells(Layer::Tensors(holding.category), 1);
        let _ = writeln!(out, "  {swatch} {front}  {}", fit(&origin, room));
    }
    let rest: Bytes = holdings.iter().skip(MOST).map(|h| h.bytes).sum();
    if rest.get() > 0 {
        let more = holdings.len() - MOST;
        let line = format!("{:>11}  in {more} more group{}", unit.text(rest), if more == 1 { "" } else { "s" });
        let _ = writeln!(out, "    {}", paint.quiet(&line));
    }
    out
}

fn shape(shape: &[u64]) -> String {
    if shape.is_empty() {
        return "scalar".to_owned();
    }
    shape.iter().map(u64::to_string).collect::<Vec<_>>().join("x")
}

fn dtype(dtype: &str) -> &str {
    match dtype {
        "float32" => "fp32",
        "float16" => "fp16",
        "bfloat16" => "bf16",
        other => other,
    }
}
