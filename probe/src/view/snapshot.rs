//! A memory snapshot as text for people: its peak, memory over time, who held it, what lies between, and the estimate beside it.

use std::fmt::Write as _;

use plimsoll_core::estimate::{Against, Asked, Pair, Requests};
use plimsoll_core::snapshot::{Course, Summary};
use plimsoll_core::{Bytes, grouped, shown};

use super::chart::{COLUMNS, chart, peak_mark};
use super::{Paint, WIDTH, fit};

/// Rows of the table of who holds the peak.
const MOST: usize = 12;

/// A card of a snapshot, and what is laid over it.
#[derive(Clone, Copy, Debug)]
pub struct Snapped<'a> {
    /// What it says.
    pub summary: &'a Summary,
    /// Its history.
    pub course: &'a Course,
    /// How many cards the snapshot has.
    pub cards: usize,
    /// The estimate of a scenario beside it.
    pub against: Option<&'a Against>,
}

/// The whole text.
pub fn snapshot(snapped: &Snapped<'_>, paint: Paint) -> String {
    let Snapped { summary, course, .. } = snapped;
    let mut out = String::from("\n");
    line(&mut out, "Snapshot of card", &format!("{} (of {} in it)", summary.device, snapped.cards));
    if let Some(conf) = &summary.conf {
        line(&mut out, "Allocator set to", &fit(&shown(conf), WIDTH - 28));
    }
    if summary.events == 0 {
        line(&mut out, "History", "none: torch.cuda.memory._record_memory_history() was not called");
    } else {
        let steps = match summary.steps {
            0 => String::new(),
            1 => ", 1 step of an optimizer".to_owned(),
            n => format!(", {n} steps of an optimizer"),
        };
        line(&mut out, "History", &format!("{} events{steps}", grouped(summary.events)));
        line(&mut out, "Highest point", &paint.strong(&summary.peak.to_string()));
        if !summary.before.is_zero() {
            line(
                &mut out,
                "Before it begins",
                &format!("{}, of which {} at the peak", summary.before, summary.peak_from_before),
            );
        }
        line(&mut out, "Reserved at most", &summary.peak_reserved.to_string());
    }
    for vain in &summary.out_of_memory {
        let text = format!("{} asked for, {} left on the card, {} alive", vain.asked, vain.free, vain.live);
        line(&mut out, &paint.signal("Out of memory            "), &text);
        line(&mut out, "", &fit(&shown(&vain.origin()), WIDTH - 28));
    }
    if summary.events > 0 {
        out.push('\n');
        out.push_str(&chart(&course.heights(COLUMNS)));
        out.push_str(&peak_mark(course.column(course.peak(), COLUMNS), paint));
    }
    out.push_str(&holdings(summary, paint));
    out.push_str(&at_end(summary, paint));
    out.push_str(&snapped.against.map_or_else(String::new, |against| beside(against, paint)));
    out
}

fn line(out: &mut String, label: &str, text: &str) {
    let _ = writeln!(out, "  {label:<25} {text}");
}

fn holdings(summary: &Summary, paint: Paint) -> String {
    let mut out = String::new();
    if summary.holdings.is_empty() {
        return out;
    }
    let title = if summary.events > 0 { "Who holds the peak" } else { "Who holds what" };
    let _ = writeln!(out, "\n  {}", paint.strong(title));
    for held in summary.holdings.iter().take(MOST) {
        let front = format!("{:>10}  {:>6} x", held.bytes.to_string(), held.count);
        let _ = writeln!(out, "    {front}  {}", fit(&shown(&held.origin()), WIDTH - 28));
    }
    let rest: Bytes = summary.holdings.iter().skip(MOST).map(|held| held.bytes).sum();
    if !rest.is_zero() {
        let _ = writeln!(out, "    {}", paint.quiet(&format!("{:>10}  others", rest.to_string())));
    }
    out
}

fn at_end(summary: &Summary, paint: Paint) -> String {
    let end = &summary.at_end;
    let mut out = format!("\n  {}\n", paint.strong("When it was taken"));
    let segments = format!("{} in {} segments", end.reserved, grouped(end.segments));
    let streams = if end.streams > 1 { format!(", {} streams", end.streams) } else { String::new() };
    line(&mut out, "Reserved", &format!("{segments}{streams}"));
    line(&mut out, "Tensors have", &format!("{}, and asked for {}", end.allocated, end.requested));
    if !end.pending.is_zero() {
        line(&mut out, "Waited for", &format!("{} freed, and still used by another stream", end.pending));
    }
    line(&mut out, "Free between tensors", &format!("{}: it cannot be given back", end.stranded));
    line(&mut out, "Free segments", &format!("{}: torch.cuda.empty_cache gives it back", end.empty));
    line(&mut out, "Largest free block", &end.largest_free.to_string());
    out
}

fn beside(against: &Against, paint: Paint) -> String {
    let mut out = format!(
        "\n  {:<25} {:>14} {:>14}  {}\n",
        paint.strong("Beside the estimate      "),
        "estimate",
        "snapshot",
        "difference"
    );
    pair(&mut out, "Allocated at most", against.allocated);
    pair(&mut out, "Reserved at most", against.reserved);
    match &against.step {
        Some(step) => {
            pair(&mut out, "In the steady step", step.peak);
            out.push_str(&requests(step));
        }
        None => {
            line(&mut out, "Request by request", "not compared: that needs two steps of an optimizer in the history")
        }
    }
    out
}

fn pair(out: &mut String, label: &str, pair: Pair) {
    let (own, other) = (pair.estimate.get(), pair.snapshot.get());
    let difference = match own.cmp(&other) {
        std::cmp::Ordering::Equal => "none".to_owned(),
        std::cmp::Ordering::Less => format!("-{}", Bytes::new(other - own)),
        std::cmp::Ordering::Greater => format!("+{}", Bytes::new(own - other)),
    };
    let _ = writeln!(
        out,
        "  {label:<25} {:>14} {:>14}  {difference}",
        pair.estimate.to_string(),
        pair.snapshot.to_string()
    );
}

fn requests(step: &Requests) -> String {
    let mut out = String::new();
    let counts = format!("{} of {} and {}", grouped(step.equal), grouped(step.estimate), grouped(step.snapshot));
    match &step.differs {
        None => line(&mut out, "Request by request", &format!("all {} are equal to the byte", grouped(step.equal))),
        Some(differs) => {
            line(&mut out, "Request by request", &format!("the first {counts} are equal to the byte; then"));
            let words = |asked: &Option<Asked>| match asked {
                Some(asked) => format!("{} bytes, {}", grouped(asked.bytes.get()), shown(&asked.by)),
                None => "nothing more".to_owned(),
            };
            line(&mut out, "    the estimate has", &fit(&words(&differs.estimate), WIDTH - 28));
            line(&mut out, "    the snapshot has", &fit(&words(&differs.snapshot), WIDTH - 28));
        }
    }
    out
}
