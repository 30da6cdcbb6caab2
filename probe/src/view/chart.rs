//! Memory over time as a drawing of letters.

use std::fmt::Write as _;

use plimsoll_core::Bytes;

use super::Paint;

/// Columns of the drawing.
pub const COLUMNS: usize = 64;
const ROWS: usize = 10;

/// A column for each height, with the highest and zero beside it.
pub fn chart(heights: &[Bytes]) -> String {
    const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let highest = heights.iter().copied().max().unwrap_or(Bytes::ZERO);
    let filled = |height: Bytes| {
        let eighths = ROWS as u128 * 8;
        (u128::from(height.get()) * eighths).div_ceil(u128::from(highest.get().max(1))) as usize
    };
    let mut out = String::new();
    for row in (0..ROWS).rev() {
        let label = match row {
            _ if row + 1 == ROWS => highest.to_string(),
            0 => "0".to_owned(),
            _ => String::new(),
        };
        let cells: String = heights.iter().map(|h| EIGHTHS[filled(*h).saturating_sub(row * 8).min(8)]).collect();
        let _ = writeln!(out, "  {label:>10} {}", cells.trim_end());
    }
    out
}

/// The line that points at the highest column.
pub fn peak_mark(column: usize, paint: Paint) -> String {
    let arrow = format!("{}^", " ".repeat(column.min(COLUMNS)));
    format!("  {:>10} {}\n", "peak", paint.signal(&arrow))
}
