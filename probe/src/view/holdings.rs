//! Who holds what at the peak: the largest groups of storages.

use std::fmt::Write as _;

use plimsoll_core::Bytes;
use plimsoll_core::estimate::Holding;

use super::number::plain_op;
use super::{Paint, WIDTH, fit};

/// Groups shown; the rest is summed in one line.
const MOST: usize = 10;

/// The table, largest group first.
pub fn holdings(holdings: &[Holding], paint: Paint) -> String {
    if holdings.is_empty() {
        return String::new();
    }
    let mut out = String::new();
    let _ = writeln!(out, "  {}", paint.strong("What fills it"));
    for holding in holdings.iter().take(MOST) {
        let _ = writeln!(out, "{}", row(holding, paint));
    }
    let rest: Bytes = holdings.iter().skip(MOST).map(|h| h.bytes).sum();
    if rest.get() > 0 {
        let more = holdings.len() - MOST;
        let line = format!("{:>10}  in {more} more group{}", rest.to_string(), if more == 1 { "" } else { "s" });
        let _ = writeln!(out, "    {}", paint.quiet(&line));
    }
    out
}

/// One group in a line.
pub fn row(holding: &Holding, paint: Paint) -> String {
    let front = format!(
        "{:>10}  {:>5} x {:<20}",
        holding.bytes.to_string(),
        holding.count,
        fit(&format!("{} {}", shape(&holding.shape), dtype(&holding.dtype)), 20),
    );
    let room = (WIDTH - 6).saturating_sub(front.chars().count());
    let origin = origin(&holding.module, plain_op(&holding.op), room);
    let swatch = paint.cells(holding.category.into(), 1);
    format!("  {swatch} {front}  {origin}")
}

/// Where it was made: the module, and the op too where there is room for both.
fn origin(module: &str, op: &str, room: usize) -> String {
    let both = format!("{module}: {op}");
    match (module, op) {
        ("", op) => fit(op, room),
        (module, op) if op.is_empty() || both.chars().count() > room => tail(module, room),
        _ => both,
    }
}

/// The end of a path that is too long: the layer says more than the model it is in.
fn tail(path: &str, width: usize) -> String {
    let count = path.chars().count();
    if count <= width {
        return path.to_owned();
    }
    let end: String = path.chars().skip(count + 3 - width).collect();
    format!("...{end}")
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
