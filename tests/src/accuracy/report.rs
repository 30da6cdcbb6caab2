//! `docs/accuracy.md` as text. Depends on nothing but the corpus, the records and the engine, so that it can be checked.

use std::fmt::Write as _;

use plimsoll_core::Error;

use super::cards::CardRow;
use super::cards_report;
use super::compiled;
use super::corpus::Row;
use super::families;
use super::hollow;
use super::largest;
use super::on_card;
use super::own;
use super::percent::{percent, signed_percent};
use super::published::{self, Compared, Published};
use super::rules_of_thumb::{RULES, Shape};
use super::runs;
use super::score::{Outcome, Score};
use super::several;
use super::statistics::Spread;
use super::worst::{reason, worst};

/// How many of the furthest rows are listed.
const WORST: usize = 10;

/// The scoreboard of these outcomes, of what others published, and of these records of real cards.
///
/// # Errors
/// A row of our own that cannot be read, or that the engine refuses.
pub fn report(
    outcomes: &[Outcome],
    published: &(Vec<Compared>, Vec<Published>),
    cards: &[CardRow],
) -> anyhow::Result<String> {
    let mut scores: Vec<&Score> = Vec::new();
    let mut refused: Vec<(&Row, &Error)> = Vec::new();
    for outcome in outcomes {
        match outcome {
            Outcome::Scored(score) => scores.push(score),
            Outcome::Refused(row, error) => refused.push((row, error)),
        }
    }
    let mut page = Page(String::new());
    page.line("<!-- Written by `cargo xtask accuracy`. Edit tests/src/accuracy, not this file. -->");
    page.line("# Accuracy\n");
    page.line(
        "How far Plimsoll is from PyTorch, on training steps of PyTorch 2.11 and transformers 5.17 that were traced op by op\n\
         (`tests/corpus/README.md` says how, and what the rows leave out). Errors are relative to PyTorch's own figure:\n\
         *allocated* is `torch.cuda.max_memory_allocated`, *reserved* `max_memory_reserved`, *requested* the live storages alone.\n\n\
         The engine was written against these rows: they show that it does what PyTorch does, over the levers below, not how near\n\
         it comes on a card, where kernels take memory of their own. 0 means not one byte of difference.\n",
    );
    summary(&mut page, &scores, refused.len());
    refusals(&mut page, &refused);
    by_family(&mut page, &scores);
    by_lever(&mut page, &scores);
    furthest(&mut page, &scores);
    rules(&mut page, &scores);
    own::section(&mut page)?;
    hollow::section(&mut page)?;
    compiled::section(&mut page)?;
    on_card::section(&mut page)?;
    largest::section(&mut page)?;
    several::section(&mut page)?;
    families::section(&mut page)?;
    published::section(&mut page, &published.0, &published.1);
    runs::section(&mut page)?;
    page.0.push_str(&real_cards(cards));
    Ok(page.0)
}

/// The page's part about records of real cards, which needs nothing of the rest.
#[must_use]
pub fn real_cards(cards: &[CardRow]) -> String {
    let mut page = Page(String::new());
    cards_report::section(&mut page, cards);
    page.0
}

/// Markdown under construction.
pub(super) struct Page(pub(super) String);

impl Page {
    pub(super) fn line(&mut self, text: &str) {
        self.0.push_str(text);
        self.0.push('\n');
    }

    pub(super) fn row(&mut self, cells: &[String]) {
        self.line(&format!("| {} |", cells.join(" | ")));
    }

    /// A table's head; `words` are the titles of columns of text, all others hold numbers.
    pub(super) fn head(&mut self, titles: &[&str], words: &[&str]) {
        self.line(&format!("| {} |", titles.join(" | ")));
        let rules: Vec<&str> = titles.iter().map(|t| if words.contains(t) { "---" } else { "---:" }).collect();
        self.line(&format!("| {} |", rules.join(" | ")));
    }
}

fn summary(page: &mut Page, scores: &[&Score], refused: usize) {
    page.line("## Summary\n");
    let rows = scores.len();
    let refusal = if refused == 0 { String::new() } else { format!("; {refused} more are refused by name, see below") };
    page.line(&format!("{rows} rows{refusal}.\n"));
    page.head(&["peak", "median", "95th percentile", "worst", "exact to the byte"], &["peak"]);
    for (name, error) in MEASURES {
        let spread = Spread::of(scores.iter().map(|s| error(s)));
        page.row(&[
            name.to_owned(),
            percent(spread.median),
            percent(spread.p95),
            percent(spread.worst),
            of(spread.exact, rows),
        ]);
    }
    let count = |holds: fn(&Score) -> bool| of(scores.iter().filter(|s| holds(s)).count(), rows);
    page.line(&format!("\nParameter counts: exact in {} rows.", count(Score::parameters_exact)));
    page.line(&format!("The phase that holds the peak: the same in {} rows.", count(Score::peak_phase_agrees)));
    page.line(&format!("What fills the peak: every category exact in {} rows.", count(Score::breakdown_exact)));

    let phases = scores.iter().flat_map(|s| s.phases.iter().map(move |p| (*s, p)));
    let spread = Spread::of(phases.clone().map(|(_, p)| p.error));
    let ends = phases.clone().filter(|(_, p)| p.end_exact).count();
    let near = phases.clone().filter(|(_, p)| p.error.abs() <= 0.01).count();
    page.line(&format!(
        "Peaks of single phases: {} within 1 %, {} exact to the byte; worst {}{}.",
        of(near, spread.count),
        of(spread.exact, spread.count),
        percent(spread.worst),
        phases
            .max_by(|(_, a), (_, b)| a.error.abs().total_cmp(&b.error.abs()))
            .filter(|(_, p)| p.error != 0.0)
            .map_or_else(String::new, |(s, p)| format!(" ({} of row {}, {})", p.name, s.row.id, s.row.name)),
    ));
    page.line(&format!(
        "Ends of single phases: requested, allocated and reserved all exact in {}.",
        of(ends, spread.count)
    ));
    let unmatched: usize = scores.iter().map(|s| s.unmatched_phases.len()).sum();
    if unmatched > 0 {
        page.line(&format!("Phases that only one side has: {unmatched}."));
    }
    page.line("");
}

type Measure = (&'static str, fn(&Score) -> f64);

const MEASURES: [Measure; 3] =
    [("allocated", Score::allocated), ("reserved", Score::reserved), ("requested", Score::requested)];

fn of(part: usize, whole: usize) -> String {
    format!("{part} of {whole}")
}

fn refusals(page: &mut Page, refused: &[(&Row, &Error)]) {
    if refused.is_empty() {
        return;
    }
    page.line("## Refused\n\nNot estimated yet, and said so:\n");
    for (row, error) in refused {
        page.line(&format!("- `{}` {} ({}): {error}", row.id, row.name, row.summary()));
    }
    page.line("");
}

const SPREAD_TITLES: [&str; 6] =
    ["rows", "allocated, median", "95th percentile", "worst", "reserved, median", "reserved, worst"];

fn spread_cells(scores: &[&Score]) -> [String; 6] {
    let allocated = Spread::of(scores.iter().map(|s| s.allocated()));
    let reserved = Spread::of(scores.iter().map(|s| s.reserved()));
    [
        scores.len().to_string(),
        percent(allocated.median),
        percent(allocated.p95),
        percent(allocated.worst),
        percent(reserved.median),
        percent(reserved.worst),
    ]
}

/// One line for each value of `group`, in the order the corpus brings them.
fn groups<'a>(scores: &[&'a Score], group: impl Fn(&Score) -> String) -> Vec<(String, Vec<&'a Score>)> {
    let mut found: Vec<(String, Vec<&Score>)> = Vec::new();
    for &score in scores {
        let name = group(score);
        match found.iter_mut().find(|(n, _)| *n == name) {
            Some((_, members)) => members.push(score),
            None => found.push((name, vec![score])),
        }
    }
    found
}

fn by_family(page: &mut Page, scores: &[&Score]) {
    page.line("## By family\n");
    page.head(&[&["family"][..], &SPREAD_TITLES[..]].concat(), &["family"]);
    for (family, members) in groups(scores, |s| s.row.family().to_owned()) {
        page.row(&[&[family][..], &spread_cells(&members)[..]].concat());
    }
    page.line("");
}

type Lever = (&'static str, fn(&Score) -> String);

const LEVERS: [Lever; 7] = [
    ("precision", |s| s.row.training("precision").to_owned()),
    ("checkpointing", |s| s.row.training("checkpointing").to_owned()),
    ("training", |s| if s.row.lora().is_some() { "LoRA" } else { "full" }.to_owned()),
    ("accumulation", |s| s.row.accumulation().to_string()),
    ("optimizer", |s| format!("{}, {}", s.row.training("optimizer"), s.row.training("optimizer_impl"))),
    ("attention", |s| s.row.training("attention").to_owned()),
    ("attention mask", |s| match s.row.input("attention_mask") {
        "" => "not given".to_owned(),
        mask => mask.to_owned(),
    }),
];

fn by_lever(page: &mut Page, scores: &[&Score]) {
    page.line("## By lever\n");
    page.head(&[&["lever", "value"][..], &SPREAD_TITLES[..]].concat(), &["lever", "value"]);
    for (lever, value) in LEVERS {
        let mut groups = groups(scores, value);
        groups.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (name, members) in groups {
            page.row(&[&[lever.to_owned(), name][..], &spread_cells(&members)[..]].concat());
        }
    }
    page.line("");
}

fn furthest(page: &mut Page, scores: &[&Score]) {
    let rows = worst(scores, WORST);
    if rows.is_empty() {
        return;
    }
    page.line("## The furthest rows\n");
    page.head(
        &["row", "model", "what was run", "allocated", "reserved", "requested", "where it comes from"],
        &["row", "model", "what was run", "where it comes from"],
    );
    for score in rows {
        page.row(&[
            format!("`{}`", score.row.id),
            score.row.name.clone(),
            score.row.summary(),
            signed_percent(score.allocated()),
            signed_percent(score.reserved()),
            signed_percent(score.requested()),
            reason(score),
        ]);
    }
    page.line("");
}

fn rules(page: &mut Page, scores: &[&Score]) {
    let shaped: Vec<(&Score, Shape)> =
        scores.iter().filter_map(|&s| Shape::of(&s.row).map(|shape| (s, shape))).collect();
    if shaped.is_empty() {
        return;
    }
    page.line("## Rules of thumb on the same rows\n");
    page.line(&format!(
        "What one gets without running the step, against *allocated* on the {} rows where such rules claim to apply: transformers,\n\
         all weights trained, Adam or AdamW. Too low is what runs out of memory.\n",
        shaped.len()
    ));
    page.head(&["estimate", "median", "95th percentile", "worst", "too low by more than 10 %"], &["estimate"]);
    let mut line = |name: &str, errors: Vec<f64>| {
        let spread = Spread::of(errors.iter().copied());
        let low = errors.iter().filter(|&&e| e < -0.1).count();
        page.row(&[
            name.to_owned(),
            percent(spread.median),
            percent(spread.p95),
            percent(spread.worst),
            of(low, errors.len()),
        ]);
    };
    line("Plimsoll", shaped.iter().map(|(s, _)| s.allocated()).collect());
    for rule in RULES {
        let error = |(s, shape): &(&Score, Shape)| {
            super::percent::relative((rule.bytes)(shape), s.row.expected.peak.allocated.get())
        };
        line(rule.name, shaped.iter().map(error).collect());
    }
    page.line("");
    for rule in RULES {
        let written = writeln!(page.0, "- **{}**: {}.", rule.name, rule.words);
        debug_assert!(written.is_ok(), "writing to a String cannot fail");
    }
}
