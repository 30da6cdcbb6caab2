//! `plimsoll fit`: a scenario in, recipes that bring it onto its card out; or the cards that hold it.

use std::fmt::Write as _;

use plimsoll_core::estimate::Verdict;
use plimsoll_core::estimate::fit::{Allowed, Berthed, Cards, Fit, Freedom, Miss, Recipe, cards, fit};
use plimsoll_core::{Bytes, Scenario, summary};
use serde::Serialize;

use crate::estimate::{Format, print};
use crate::exit::{self, Failure};
use crate::plan;
use crate::scenario::{Input, Overlay};
use crate::view::{Paint, WIDTH, grouped, question, wrapped};

const EXAMPLES: &str = "\
Examples:
  plimsoll fit --model qwen3-8b --gpu rtx-5070-ti --batch 4
  plimsoll fit run.toml --format json
  plimsoll fit run.toml --shorter
  plimsoll fit run.toml --cards

Every recipe has been run by the engine, keeps the effective batch, and comes
with the command that estimates it. \"Nothing fits\" is said when every combination
was tried.

Exit codes: 0 it fits, or a recipe or card does; 1 nothing does; 2 wrong usage
or a scenario that cannot be estimated; 3 a file cannot be read.";

/// Find what to change so that a run fits its card, or which cards hold it
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    input: Input,

    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    format: Format,

    /// Name the cards that hold the run as it is, smallest first
    #[arg(long, conflicts_with = "shorter")]
    cards: bool,

    /// Let the sequence be cut, where nothing else helps
    #[arg(long)]
    shorter: bool,
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let overlay = Overlay::new(&args.input.flags)?;
    answer(args, &overlay).map_err(|failure| args.input.blame(&overlay, failure))
}

fn answer(args: &Args, overlay: &Overlay) -> Result<u8, Failure> {
    let scenario = Scenario::from_value(&args.input.value(overlay)?)?;
    let paint = Paint::for_stdout();
    let code = |good| if good { exit::OK } else { exit::DOES_NOT_FIT };
    if args.cards {
        let answer = cards(&scenario)?;
        let good = code(!answer.cards.is_empty());
        return print(&written(args.format, &answer, || holding(&scenario, &answer, paint)), good);
    }
    if scenario.parallel.gpus > 1 && !args.shorter {
        return plan::answer(&scenario, Freedom::default(), args.format);
    }
    let answer = fit(&scenario, Allowed { shorter: args.shorter })?;
    let good = code(answer.verdict == Verdict::Fits || !answer.recipes.is_empty());
    print(&written(args.format, &answer, || recipes(&scenario, &answer, args.shorter, paint)), good)
}

pub fn written(format: Format, answer: &impl Serialize, text: impl FnOnce() -> String) -> String {
    match format {
        Format::Text => text(),
        Format::Json => format!("{:#}\n", serde_json::to_value(answer).unwrap_or_default()),
    }
}

fn recipes(scenario: &Scenario, answer: &Fit, shorter: bool, paint: Paint) -> String {
    let mut out = format!("\n{}", question(scenario, paint));
    let distance = summary::distance(answer.headroom);
    let line = answer.device.load_line;
    let label = answer.verdict.label().to_uppercase();
    let _ = writeln!(
        out,
        "  {}   peak {}, load line {line}: {distance}",
        paint.verdict(answer.verdict, &label),
        answer.process
    );
    if answer.verdict == Verdict::Fits {
        out.push_str("\n  Nothing needs to be changed.\n");
        return out;
    }
    if let Some(miss) = &answer.nearest {
        // What has no sequence has none to cut.
        let offered = !shorter && scenario.input.seq.is_some();
        out.push_str(&nothing(miss, answer.runs, offered, paint));
        return out;
    }
    let _ = writeln!(out, "\n  {}", paint.strong("It fits with one of these, the least sacrifice first:"));
    for (number, recipe) in (1..).zip(&answer.recipes) {
        out.push_str(&one(number, recipe, paint));
    }
    let _ = writeln!(out, "\n  {}", paint.quiet(&format!("{} runs searched.", grouped(answer.runs))));
    out
}

fn one(number: usize, recipe: &Recipe, paint: Paint) -> String {
    let mut out = format!("\n  {number}. {}\n", paint.strong(&recipe.name));
    let mut line = format!("peak {}, {}", recipe.process, summary::distance(recipe.headroom));
    let _ = write!(line, "; largest batch {}", grouped(recipe.largest_batch));
    if let Some(seq) = recipe.longest_seq {
        let _ = write!(line, "; sequences of {} fit too", grouped(seq));
    }
    let line = line.trim_end_matches(" fit too").to_owned();
    for line in wrapped(&line, WIDTH - 5) {
        let _ = writeln!(out, "     {line}");
    }
    for cost in &recipe.costs {
        let mut label = format!("{}:", cost.kind.label());
        for line in wrapped(&cost.words, WIDTH - 16) {
            let _ = writeln!(out, "     {} {line}", paint.quiet(&format!("{label:<9}")));
            label.clear();
        }
    }
    // Not broken into lines: it is there to be copied.
    let _ = writeln!(out, "     {}", paint.quiet(&recipe.command));
    out
}

fn nothing(miss: &Miss, runs: u64, may_be_shorter: bool, paint: Paint) -> String {
    let searched = grouped(runs);
    let mut out = format!("\n  {}\n", paint.strong("Nothing fits this card."));
    let what = format!(
        "Every combination was tried, {searched} runs. The nearest: {}, a peak of {}, {} too much.",
        miss.name, miss.process, miss.over
    );
    for line in wrapped(&what, WIDTH - 2) {
        let _ = writeln!(out, "  {line}");
    }
    let _ = writeln!(out, "  {}", paint.quiet(&miss.command));
    if !miss.cards.is_empty() {
        let names: Vec<String> = miss.cards.iter().map(|card| format!("{} ({})", card.name, card.memory)).collect();
        for line in wrapped(&format!("The smallest cards that hold it: {}.", names.join(", ")), WIDTH - 2) {
            let _ = writeln!(out, "  {line}");
        }
    }
    if may_be_shorter {
        let _ = writeln!(out, "  With --shorter the sequence may be cut too.");
    }
    out
}

fn holding(scenario: &Scenario, answer: &Cards, paint: Paint) -> String {
    let mut out = format!("\n{}", question(scenario, paint));
    if answer.cards.is_empty() {
        let _ = writeln!(out, "  No card of the {} in the catalog holds it as it is.", answer.of);
        out.push_str("  `plimsoll fit` without --cards says what to change.\n");
        return out;
    }
    let _ =
        writeln!(out, "  Held by {} of the {} cards in the catalog, smallest first:\n", answer.cards.len(), answer.of);
    for card in &answer.cards {
        out.push_str(&card_line(card, paint));
    }
    out
}

pub fn card_line(card: &Berthed, paint: Paint) -> String {
    let id = paint.strong(&format!("{:<24}", card.gpu));
    let tight = if card.verdict == Verdict::Tight { "  tight" } else { "" };
    let memory = Bytes::to_string(&card.memory);
    format!("  {id} {memory:>10}   {}{tight}\n", summary::distance(card.headroom))
}
