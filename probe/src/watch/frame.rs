//! Everything that is on the screen at a moment.

use std::time::Duration;

use super::Watched;
use super::panel::{Detail, panel};
use crate::view::{Paint, fit};

/// Blank columns at each side.
const MARGIN: usize = 2;
/// Wider, and the eye loses the row.
const WIDEST: usize = 120;
/// Narrower, and lines are cut.
const NARROWEST: usize = 40;

/// Where the frame is shown.
#[derive(Clone, Copy, Debug)]
pub struct Screen {
    /// Its width.
    pub columns: usize,
    /// Its height, where it ends: the frame then says less rather than be cut.
    pub rows: Option<usize>,
    /// Colour or none.
    pub paint: Paint,
    /// Time between two marks of the history, in a view that moves.
    pub every: Option<Duration>,
}

/// From all there is to say to the least.
const DETAILS: [Detail; 9] = [
    Detail { processes: 8, chart: 5, airy: true },
    Detail { processes: 8, chart: 3, airy: true },
    Detail { processes: 8, chart: 1, airy: true },
    Detail { processes: 5, chart: 1, airy: true },
    Detail { processes: 3, chart: 1, airy: true },
    Detail { processes: 1, chart: 1, airy: true },
    Detail { processes: 0, chart: 1, airy: true },
    Detail { processes: 0, chart: 1, airy: false },
    Detail { processes: 0, chart: 0, airy: false },
];

/// The frame's text, each line ended.
pub fn frame(watched: &[Watched], screen: &Screen) -> String {
    let columns = screen.columns.clamp(NARROWEST, WIDEST) - 2 * MARGIN;
    let mut lines = Vec::new();
    for detail in DETAILS {
        lines = with_detail(watched, screen, columns, detail);
        if screen.rows.is_none_or(|rows| lines.len() <= rows) {
            break;
        }
    }
    lines.truncate(screen.rows.unwrap_or(usize::MAX));
    let margin = " ".repeat(MARGIN);
    let line = |line: &String| if line.is_empty() { "\n".to_owned() } else { format!("{margin}{line}\n") };
    lines.iter().map(line).collect()
}

fn with_detail(watched: &[Watched], screen: &Screen, columns: usize, detail: Detail) -> Vec<String> {
    let mut lines: Vec<String> = detail.airy.then(String::new).into_iter().collect();
    if let Some(every) = screen.every {
        lines.push(header(every, columns, screen.paint));
        lines.extend(detail.airy.then(String::new));
    }
    for (number, card) in watched.iter().enumerate() {
        lines.extend((number > 0).then(String::new));
        lines.extend(panel(card, columns, detail, screen.paint));
    }
    lines
}

/// The mark, the name, and how to leave.
fn header(every: Duration, columns: usize, paint: Paint) -> String {
    let mark = if paint.coloured() { "\u{2500}\u{2296}\u{2500}" } else { "-o-" };
    let left = 3 + 1 + "plimsoll watch".len();
    let marks = format!("a mark every {} s, q quits", every.as_secs_f64());
    let right = if left + 2 + marks.len() <= columns { marks } else { "q quits".to_owned() };
    let right = fit(&right, columns.saturating_sub(left + 1));
    let gap = " ".repeat(columns.saturating_sub(left + right.len()));
    format!("{} {}{gap}{}", paint.strong(mark), paint.strong("plimsoll watch"), paint.quiet(&right))
}
