//! What would make a run fit that does not, in a few lines: `plimsoll fit` says the rest.

use std::fmt::Write as _;

use plimsoll_core::estimate::fit::Fit;

use super::{Paint, WIDTH, wrapped};

/// Recipes that are named.
const MOST: usize = 3;

/// The first recipes that fit, or that none does.
pub fn remedies(fit: &Fit, paint: Paint) -> String {
    let mut out = String::from("\n");
    if let Some(miss) = &fit.nearest {
        let text = format!("No recipe fits this card; the nearest, {}, is over by {}.", miss.name, miss.over);
        for line in wrapped(&text, WIDTH - 2) {
            let _ = writeln!(out, "  {line}");
        }
    } else {
        let _ = writeln!(out, "  {}", paint.strong("It fits with"));
        for recipe in fit.recipes.iter().take(MOST) {
            let name = &recipe.name;
            let _ = writeln!(out, "  {name:<62} {:>14}", recipe.process.to_string());
        }
    }
    let _ = writeln!(
        out,
        "  {}",
        paint.quiet("`plimsoll fit` in place of `plimsoll estimate` says how, and at what cost.")
    );
    out
}
