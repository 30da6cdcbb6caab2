//! Several processes: each rank beside what its role is estimated to take, and what they exchanged in a step.

use std::fmt::Write as _;

use plimsoll_core::Bytes;
use plimsoll_core::measurement::{BufferKind, MeasuredBuffer, MeasuredRank, Outcome};

use super::{Report, off, prose, signed};
use crate::view::{Paint, wrapped};

/// Where the words of a row begin, in columns.
const NAME: usize = 12;
/// Most columns of what was exchanged.
const SIZES: usize = 64;

/// The tables; nothing on one card.
pub fn ranks(report: &Report<'_>, paint: Paint) -> String {
    let ranks = &report.record.ranks;
    if ranks.is_empty() {
        return String::new();
    }
    let mut out = String::new();
    // On a processor PyTorch keeps no count.
    let counts = ranks.iter().any(|rank| rank.peak.allocated.is_some());
    let titles = match counts {
        true => format!("{:<NAME$}{:>11}{:>22}{:>22}", "By rank", "allocated", "reserved", "process"),
        false => format!("{:<NAME$}{:>11}", "By rank", "process"),
    };
    let _ = writeln!(out, "  {}", paint.strong(&titles));
    let roles = report.comparable().map(|estimate| estimate.roles.as_slice()).unwrap_or_default();
    for role in roles {
        let peak = &role.peak;
        let sizes =
            [peak.allocated, peak.reserved, peak.process].map(|size| format!("{:>11}{:11}", size.to_string(), ""));
        let row = format!("  {:<NAME$}{}", role.name, sizes.concat());
        let _ = writeln!(out, "{}", paint.quiet(row.trim_end()));
        let its = ranks.iter().filter(|rank| role.ranks.contains(&u64::from(rank.rank)));
        let told = [Some(peak.allocated), Some(peak.reserved), Some(peak.process)];
        its.for_each(|rank| row_of(&mut out, rank, told));
    }
    let estimated = |rank: &MeasuredRank| roles.iter().any(|role| role.ranks.contains(&u64::from(rank.rank)));
    ranks.iter().filter(|rank| !estimated(rank)).for_each(|rank| row_of(&mut out, rank, [None; 3]));
    if !roles.is_empty() {
        out.push_str(
            &paint.quiet(&prose("Of each role what is estimated stands first, and by how much its ranks are off.")),
        );
    }
    out.push_str(&exchanged(report, paint));
    out
}

fn row_of(out: &mut String, rank: &MeasuredRank, told: [Option<Bytes>; 3]) {
    let mut row = format!("  {:<NAME$}", format!("  rank {}", rank.rank));
    let peak = &rank.peak;
    let counted = [peak.allocated, peak.reserved].map(|size| (size, size.is_some()));
    for ((size, shown), told) in counted.into_iter().chain([(peak.process, true)]).zip(told) {
        if !shown {
            continue;
        }
        let shown = size.map(|size| size.to_string()).unwrap_or_default();
        let apart = size.zip(told).map(|(size, told)| signed(off(size, told))).unwrap_or_default();
        let _ = write!(row, "{shown:>11}{apart:>11}");
    }
    let _ = writeln!(out, "{}", row.trim_end());
    let how = match rank.outcome {
        Some(Outcome::Finished) => None,
        Some(Outcome::OutOfMemory) => Some("ran out of memory"),
        Some(Outcome::Limit) => Some("hit the limit"),
        Some(Outcome::Interrupted | Outcome::Failed) | None => Some("was ended before it was through"),
    };
    if let Some(how) = how {
        let _ = writeln!(out, "{:NAME$}{how}", "");
    }
}

/// What was sent through in the last step, beside the estimate's buffers.
fn exchanged(report: &Report<'_>, paint: Paint) -> String {
    let ranks = &report.record.ranks;
    let Some(first) = ranks.first().filter(|rank| !rank.buffers.is_empty()) else { return String::new() };
    let mut out = String::new();
    let _ = writeln!(out, "\n  {}", paint.strong("Exchanged in the last step"));
    for kind in BufferKind::ALL {
        let measured = of_kind(&first.buffers, kind);
        let predicted = report.exchanged.as_ref().map(|all| of_kind(all, kind));
        if measured.is_empty() && predicted.as_ref().is_none_or(String::is_empty) {
            continue;
        }
        let comment = match &predicted {
            Some(predicted) if *predicted == measured => " (as estimated)".to_owned(),
            Some(predicted) if predicted.is_empty() => " (none is estimated)".to_owned(),
            Some(predicted) => format!(" (estimated: {predicted})"),
            None => String::new(),
        };
        let shown = if measured.is_empty() { "none" } else { &measured };
        for (place, line) in wrapped(&format!("{shown}{comment}"), SIZES).iter().enumerate() {
            let name = if place == 0 { words(kind) } else { "" };
            let _ = writeln!(out, "  {name:<NAME$}{line}");
        }
    }
    let others: Vec<String> =
        ranks.iter().filter(|rank| rank.buffers != first.buffers).map(|rank| rank.rank.to_string()).collect();
    if !others.is_empty() {
        out.push_str(&prose(&format!("That is rank 0; otherwise on rank {}.", others.join(", "))));
    }
    out
}

const fn words(kind: BufferKind) -> &'static str {
    match kind {
        BufferKind::Bucket => "buckets",
        BufferKind::Gathered => "gathered",
        BufferKind::Reduced => "reduced",
    }
}

/// `1 x 128.2 KiB, 4 x 144.5 KiB`.
fn of_kind(all: &[MeasuredBuffer], kind: BufferKind) -> String {
    let sizes = all.iter().filter(|buffer| buffer.kind == kind);
    let sizes: Vec<String> = sizes.map(|buffer| format!("{} x {}", buffer.count, buffer.bytes)).collect();
    sizes.join(", ")
}
