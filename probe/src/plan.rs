//! `plimsoll plan`: a scenario of several cards in, plans that hold it out, and why every other way is none.

use std::fmt::Write as _;

use clap::ValueEnum;
use plimsoll_core::estimate::fit::{Freedom, Miss, Plan, Plans, Rejected, plans, with_tokens};
use plimsoll_core::{Error, Scenario, summary};

use crate::estimate::{Format, print};
use crate::exit::{self, Failure};
use crate::fit::{card_line, written};
use crate::scenario::{Input, Overlay};
use crate::view::{Paint, WIDTH, grouped, question, wrapped};

const EXAMPLES: &str = "\
Examples:
  plimsoll plan --model llama-3.1-70b --gpu h100-sxm --gpus 64 --per-node 8 \\
    --seq 4096 --tokens 4M
  plimsoll plan --model qwen3-8b --gpu rtx-4090 --gpus 2 --batch 4
  plimsoll plan run.toml --keep strategy --format json

Searched are DDP, FSDP2, hybrid sharding, FSDP1 and ZeRO 1 to 3, with and without
offload, checkpointing and the optimizer's fused kernel, at every micro-batch that
keeps the samples of a step. Every plan that is named was run whole; every other
way has a reason. Plans are ranked by what no step of theirs is faster than: the
engine's count of operations and bytes at the rates that card and links are sold
with. That is a bound, not a time. Tensor, pipeline, context and expert
parallelism are not searched.

Exit codes: 0 there is a plan; 1 nothing fits; 2 wrong usage or a scenario that
cannot be estimated; 3 a file cannot be read.";

/// Find how to spread a training over several cards so that it fits
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Args {
    #[command(flatten)]
    input: Input,

    /// How to answer
    #[arg(long, value_enum, default_value_t = Format::Text, value_name = "FORMAT")]
    format: Format,

    /// Tokens of a step over all cards, in the place of batch and accumulation: 4194304, 4096K or 4M (K and M are 1024 and
    /// 1024 x 1024)
    #[arg(long, value_parser = tokens, value_name = "TOKENS")]
    tokens: Option<u64>,

    /// What stays as the scenario has it
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    keep: Vec<Keep>,
}

/// What need not be searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Keep {
    /// The strategy; what it can be told is searched
    Strategy,
    /// Whether layers are recomputed
    Checkpointing,
    /// Everything on the cards
    Offload,
    /// Micro-batch and accumulation
    MicroBatch,
}

/// `4M`.
fn tokens(text: &str) -> Result<u64, String> {
    let (digits, unit) = match text.strip_suffix(['K', 'k']) {
        Some(digits) => (digits, 1 << 10),
        None => text.strip_suffix(['M', 'm']).map_or((text, 1), |digits| (digits, 1 << 20)),
    };
    let count = digits.replace([',', '_'], "").parse::<u64>().ok().and_then(|count| count.checked_mul(unit));
    count.filter(|count| *count > 0).ok_or_else(|| "a whole number, with or without K or M".to_owned())
}

/// Runs the subcommand.
pub fn run(args: &Args) -> Result<u8, Failure> {
    let overlay = Overlay::new(&args.input.flags)?;
    asked(args, &overlay).map_err(|failure| args.input.blame(&overlay, failure))
}

fn asked(args: &Args, overlay: &Overlay) -> Result<u8, Failure> {
    let scenario = Scenario::from_value(&args.input.value(overlay)?)?;
    if scenario.parallel.gpus < 2 {
        let hint = "say how many with --gpus; for one card there is `plimsoll fit`";
        return Err(Error::new("parallel.gpus", "a plan is for several cards, and there is one", hint).into());
    }
    let scenario = match args.tokens {
        Some(tokens) => with_tokens(&scenario, tokens)?,
        None => scenario,
    };
    let may = |what: Keep| !args.keep.contains(&what);
    let freedom = Freedom {
        strategy: may(Keep::Strategy),
        recompute: may(Keep::Checkpointing),
        offload: may(Keep::Offload),
        micro_batch: may(Keep::MicroBatch),
    };
    answer(&scenario, freedom, args.format)
}

/// Searches and prints.
pub fn answer(scenario: &Scenario, freedom: Freedom, format: Format) -> Result<u8, Failure> {
    let answer = plans(scenario, freedom)?;
    let code = if answer.plans.is_empty() { exit::DOES_NOT_FIT } else { exit::OK };
    let paint = Paint::for_stdout();
    print(&written(format, &answer, || text(scenario, &answer, paint)), code)
}

fn text(scenario: &Scenario, answer: &Plans, paint: Paint) -> String {
    let mut out = format!("\n{}", question(scenario, paint));
    let (gpus, per_node) = (answer.gpus, answer.per_node);
    let machines = gpus.div_ceil(per_node.max(1));
    let stand = if machines > 1 { format!("{machines} machines of {per_node}") } else { "one machine".to_owned() };
    let samples = grouped(answer.samples);
    let step = match answer.tokens {
        Some(tokens) => format!("{samples} sequences a step, {} tokens", grouped(tokens)),
        None => format!("{samples} samples a step"),
    };
    let _ = writeln!(out, "  {}", paint.quiet(&format!("{} cards in {stand}; {step}", grouped(gpus))));
    let label = answer.verdict.label().to_uppercase();
    let distance = summary::distance(answer.headroom);
    let line = answer.device.load_line;
    let label = paint.verdict(answer.verdict, &label);
    let _ = writeln!(out, "  as asked: {label}   peak {}, load line {line}: {distance}", answer.process);
    if let Some(miss) = &answer.nearest {
        nothing(&mut out, miss, paint);
    } else if !answer.plans.is_empty() {
        let _ = writeln!(out, "\n  {}", paint.strong("Plans that fit, the cheapest first:"));
        for (number, plan) in (1..).zip(&answer.plans) {
            one(&mut out, number, plan, answer, paint);
        }
    }
    let _ = writeln!(out, "\n  {}", paint.strong("None of them:"));
    for rejected in &answer.rejected {
        none(&mut out, rejected, paint);
    }
    let _ = writeln!(out, "\n  {}", paint.strong("Not searched:"));
    for line in wrapped(&format!("{}.", answer.not_searched.join("; ")), WIDTH - 2) {
        let _ = writeln!(out, "  {line}");
    }
    let notes = [
        format!("{}.", summary::plan::searched(answer)),
        format!("Rates: {}; the card's dense peak. Not in the peak: NCCL's own buffers.", answer.rates),
    ];
    out.push('\n');
    for line in notes.iter().flat_map(|note| wrapped(note, WIDTH - 2)) {
        let _ = writeln!(out, "  {}", paint.quiet(&line));
    }
    out
}

fn one(out: &mut String, number: usize, plan: &Plan, answer: &Plans, paint: Paint) {
    let _ = writeln!(out, "\n  {number}. {}", paint.strong(&plan.name));
    let peak = format!("peak {}, {} on each card", plan.process, summary::distance(plan.headroom));
    let takes = format!("a step takes each card {}", summary::plan::takes(plan, &answer.joined_by));
    let (hidden, parts) = (plan.bound.in_words(), summary::plan::bound(plan, &answer.joined_by));
    let bound = format!("no step is faster than {hidden}: {parts}");
    for line in [peak, takes, bound].iter().flat_map(|line| wrapped(line, WIDTH - 5)) {
        let _ = writeln!(out, "     {line}");
    }
    for cost in &plan.costs {
        let mut label = format!("{}:", cost.kind.label());
        for line in wrapped(&cost.words, WIDTH - 16) {
            let _ = writeln!(out, "     {} {line}", paint.quiet(&format!("{label:<9}")));
            label.clear();
        }
    }
    // Not broken into lines: it is there to be copied.
    let _ = writeln!(out, "     {}", paint.quiet(&plan.command));
}

fn none(out: &mut String, rejected: &Rejected, paint: Paint) {
    let _ = writeln!(out, "  {}", paint.strong(&rejected.name));
    for line in wrapped(&rejected.words, WIDTH - 4) {
        let _ = writeln!(out, "    {line}");
    }
}

fn nothing(out: &mut String, miss: &Miss, paint: Paint) {
    let _ = writeln!(out, "\n  {}", paint.strong("Nothing fits these cards."));
    let what = format!("The nearest: {}, a peak of {}, {} too much.", miss.name, miss.process, miss.over);
    for line in wrapped(&what, WIDTH - 2) {
        let _ = writeln!(out, "  {line}");
    }
    let _ = writeln!(out, "  {}", paint.quiet(&miss.command));
    if !miss.cards.is_empty() {
        let _ = writeln!(out, "  The smallest cards of which as many hold it:");
        for card in &miss.cards {
            out.push_str(&card_line(card, paint));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::tokens;

    #[test]
    fn tokens_are_written_as_people_write_them() {
        assert_eq!([tokens("4M"), tokens("4096k"), tokens("4_194_304")], [Ok(4_194_304), Ok(4_194_304), Ok(4_194_304)]);
        for wrong in ["", "M", "0", "-1", "4.5M", "99999999999999999999M"] {
            assert!(tokens(wrong).is_err(), "{wrong}");
        }
    }
}
