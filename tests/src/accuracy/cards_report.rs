//! The section "Real cards" of `docs/accuracy.md`.

use super::cards::{CardErrors, CardOutcome, CardRow};
use super::percent::{percent, signed_percent};
use super::report::Page;
use super::statistics::Spread;

/// A row beyond this is listed.
const BEYOND: f64 = 0.01;

type Measure = (&'static str, fn(&CardErrors) -> Option<f64>);

const MEASURES: [Measure; 3] =
    [("allocated", |e| e.allocated), ("reserved", |e| e.reserved), ("process", |e| e.process)];

/// Writes the section.
pub fn section(page: &mut Page, rows: &[CardRow]) {
    page.line("\n## Real cards\n");
    if rows.is_empty() {
        page.line(
            "There are no records of real cards yet. `plimsoll probe suite` measures a fixed list of scenarios on the card at hand and\n\
             writes one record each; `docs/measuring.md` says how to give them to the project.",
        );
        return;
    }
    page.line(
        "Training steps measured by `plimsoll probe` (`data/measurements`, one folder for each card) against today's estimate of what\n\
         ran. *allocated* and *reserved* are PyTorch's own counts, *process* is what the driver showed for the process. Errors are\n\
         relative to what was measured; these rows are never mixed with the traced ones above.\n",
    );
    page.head(&["card", "peak", "records", "median", "95th percentile", "worst"], &["card", "peak"]);
    let mut names: Vec<&str> = rows.iter().map(|r| r.card.as_str()).collect();
    names.dedup();
    for name in &names {
        spreads(page, &format!("`{name}`"), rows.iter().filter(|r| r.card == *name));
    }
    if names.len() > 1 {
        spreads(page, "all cards", rows.iter());
    }
    beyond(page, rows);
    left_out(page, rows);
}

fn spreads<'a>(page: &mut Page, title: &str, rows: impl Iterator<Item = &'a CardRow> + Clone) {
    for (measure, error) in MEASURES {
        let spread = Spread::of(rows.clone().filter_map(|r| error(&r.errors()?)));
        let figures = [spread.median, spread.p95, spread.worst];
        let shown = figures.map(|f| if spread.count == 0 { "-".to_owned() } else { percent(f) });
        let cells = [title.to_owned(), measure.to_owned(), spread.count.to_string()];
        page.row(&[&cells[..], &shown[..]].concat());
    }
}

/// Every row with an error beyond [`BEYOND`], the furthest first.
fn beyond(page: &mut Page, rows: &[CardRow]) {
    let far = |row: &CardRow| row.errors().map_or(0.0, |e| e.worst());
    let mut list: Vec<&CardRow> = rows.iter().filter(|r| far(r) > BEYOND).collect();
    if list.is_empty() {
        page.line(&format!("\nNo record is beyond {}.", percent(BEYOND)));
        return;
    }
    list.sort_by(|a, b| far(b).total_cmp(&far(a)).then_with(|| (&a.card, &a.name).cmp(&(&b.card, &b.name))));
    page.line(&format!("\nRecords beyond {}:\n", percent(BEYOND)));
    let words = ["card", "record", "model", "what was run", "PyTorch"];
    page.head(&[&words[..], &["allocated", "reserved", "process"]].concat(), &words);
    for row in list {
        let errors = row.errors().unwrap_or_default();
        let shown = MEASURES.map(|(_, error)| error(&errors).map_or_else(|| "-".to_owned(), signed_percent));
        let cells = [
            format!("`{}`", row.card),
            format!("`{}`", row.name),
            row.recipe().family().to_owned(),
            row.recipe().summary(),
            row.torch.clone(),
        ];
        page.row(&[&cells[..], &shown[..]].concat());
    }
}

/// Records that cannot be compared, by name: nothing is left out silently.
fn left_out(page: &mut Page, rows: &[CardRow]) {
    let why = |row: &CardRow| match &row.outcome {
        CardOutcome::Compared(_) => None,
        CardOutcome::Unfinished => Some("the run did not finish".to_owned()),
        CardOutcome::Refused(error) => Some(error.to_string()),
    };
    let lines: Vec<String> = rows
        .iter()
        .filter_map(|row| Some(format!("- `{}/{}` ({}): {}", row.card, row.name, row.recipe().summary(), why(row)?)))
        .collect();
    if !lines.is_empty() {
        page.line(&format!("\nNot compared:\n\n{}", lines.join("\n")));
    }
}
