//! What a recording is, as text for people.

use std::fmt::Write as _;

use plimsoll_core::shown;

use super::{Paint, WIDTH, wrapped};

/// Columns of a line's name.
const NAME: usize = 20;

/// A name and what it says, line for line; what a stranger wrote cannot move the cursor.
pub fn recorded(lines: &[(&'static str, String)], paint: Paint) -> String {
    let mut out = String::from("\n");
    for (name, says) in lines {
        let mut label = *name;
        for line in wrapped(&shown(says).to_string(), WIDTH - NAME - 3) {
            let padded = format!("{label:<NAME$}");
            let _ = writeln!(out, "  {} {line}", paint.strong(&padded));
            label = "";
        }
    }
    out
}
