//! The peak as one stacked bar, with the load line marked under it.

use plimsoll_core::summary::Part;
use plimsoll_core::{Bytes, Estimate};

use super::number::shares;
use super::{Paint, WIDTH};

const CELLS: usize = WIDTH - 4;

/// The bar stands for the card's capacity, or for the peak where that is more.
pub fn bar(estimate: &Estimate, parts: &[Part], paint: Paint) -> String {
    let peak: Bytes = parts.iter().map(|part| part.bytes).sum();
    let free = estimate.device.capacity.saturating_sub(peak);
    let mut sizes: Vec<u64> = parts.iter().map(|part| part.bytes.get()).collect();
    sizes.push(free.get());
    let cells: Vec<usize> = shares(&sizes, CELLS as u64).iter().map(|&n| usize::try_from(n).unwrap_or(CELLS)).collect();
    let mut bar = String::new();
    for (part, &cells) in parts.iter().zip(&cells) {
        bar.push_str(&paint.cells(part.kind, cells));
    }
    bar.push_str(&paint.free(cells.last().copied().unwrap_or_default()));

    let whole = (peak + free).get().max(1);
    let line = estimate.device.load_line;
    let at = u128::from(line.get()) * CELLS as u128 / u128::from(whole);
    let at = usize::try_from(at).unwrap_or(CELLS).min(CELLS - 1);
    let label = format!("load line {line}");
    // The label stands left of its mark where there is room, else right of it.
    let mark = if at > label.len() {
        format!("{}{label} ^", " ".repeat(at - label.len() - 1))
    } else {
        format!("{}^ {label}", " ".repeat(at))
    };
    format!("  {bar}\n  {}\n", paint.quiet(&mark))
}
