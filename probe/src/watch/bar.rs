//! How deep a card sits: a bar of its capacity, with the load line marked under it.

use clap::builder::styling::AnsiColor;
use plimsoll_core::Bytes;

use super::percent;
use crate::view::Paint;

/// From here on, in percent of the capacity, the view warns.
pub const WARNING: u64 = 90;

/// Where on a card a level lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Depth {
    /// Above the warning and the load line.
    Calm,
    /// At 90 % of the capacity or deeper, not below the line.
    Warning,
    /// Below the load line.
    Below,
}

/// What levels are held against.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// What processes can have.
    pub capacity: Bytes,
    /// How deep the card may sit.
    pub line: Bytes,
}

impl Scale {
    /// Where this level lies.
    pub fn depth(self, level: Bytes) -> Depth {
        if level > self.line {
            Depth::Below
        } else if level >= percent(self.capacity, WARNING) {
            Depth::Warning
        } else {
            Depth::Calm
        }
    }

    /// A level in cells of `whole`, rounded to the nearest, at most all of them.
    pub fn cells(self, level: Bytes, whole: usize) -> usize {
        let capacity = u128::from(self.capacity.get().max(1));
        let cells = (u128::from(level.get()) * whole as u128 + capacity / 2) / capacity;
        usize::try_from(cells).unwrap_or(whole).min(whole)
    }
}

impl Depth {
    /// Text in the colour of this depth.
    pub fn paint(self, text: &str, paint: Paint) -> String {
        match self {
            Self::Calm => paint.tinted(AnsiColor::Blue, text),
            Self::Warning => paint.tinted(AnsiColor::Yellow, text),
            Self::Below => paint.signal(text),
        }
    }

    /// Stands for a full cell where there is no colour.
    pub const fn letter(self) -> char {
        match self {
            Self::Calm => '#',
            Self::Warning => '+',
            Self::Below => '!',
        }
    }
}

/// Two rows, `columns` wide, without margin or line ends.
pub fn bar(used: Option<Bytes>, scale: Scale, columns: usize, paint: Paint) -> [String; 2] {
    let full = scale.cells(used.unwrap_or_default(), columns);
    let line = scale.cells(scale.line, columns);
    let warning = scale.cells(percent(scale.capacity, WARNING), columns).min(line);
    let mut bar = String::new();
    for (depth, from, to) in [(Depth::Calm, 0, warning), (Depth::Warning, warning, line), (Depth::Below, line, columns)]
    {
        let cells = full.clamp(from, to) - from;
        if paint.coloured() {
            bar.push_str(&depth.paint(&"\u{2588}".repeat(cells), paint));
        } else {
            bar.extend(std::iter::repeat_n(depth.letter(), cells));
        }
    }
    let free = columns - full;
    bar.push_str(&if paint.coloured() { paint.quiet(&"\u{2591}".repeat(free)) } else { ".".repeat(free) });
    [bar, mark(scale.line, line.min(columns.saturating_sub(1)), columns, paint)]
}

/// The ship's own mark, a circle with a bar through it, under the cell where the line is. Its label stands left of it where
/// there is room, else right.
fn mark(line: Bytes, at: usize, columns: usize, paint: Paint) -> String {
    let label = format!("load line {line}");
    let sign = if paint.coloured() { "\u{2296}" } else { "^" };
    let (before, after) = if at > label.len() {
        (format!("{label:>width$} ", width = at - 1), String::new())
    } else if at + label.len() + 2 <= columns {
        (" ".repeat(at), format!(" {label}"))
    } else {
        (" ".repeat(at), String::new())
    };
    format!("{}{}{}", paint.quiet(&before), paint.strong(sign), paint.quiet(&after))
}
