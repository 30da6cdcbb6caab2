//! How fast it was, and how the device was used.

use std::fmt::Write as _;

use plimsoll_core::estimate::PhaseName;
use plimsoll_core::measurement::{MeasuredStep, PHASE_ORDER, Range};

use super::phases::label;
use super::{Report, duration};
use crate::session::Work;
use crate::view::{Paint, WIDTH, grouped, wrapped};

/// A line for each figure that is known.
pub fn pace(report: &Report<'_>, paint: Paint) -> String {
    let (record, mut out) = (report.record, String::new());
    let Some((index, _)) = report.subject else { return out };
    let steps: Vec<&MeasuredStep> =
        record.steps.iter().filter(|s| usize::try_from(s.attempt).is_ok_and(|a| a == index)).collect();
    let work = report.work();
    let kind = if matches!(work, Work::Generation { .. }) { "new tokens" } else { "tokens" };
    let mut row = |name: &str, text: &str| {
        let _ = writeln!(out, "  {name:<14}{text}");
    };
    let first = steps.first().filter(|s| s.step == 1).map(|s| duration(s.micros));
    match (&record.speed, first) {
        (Some(speed), first) => {
            let first = first.map(|first| format!(" ({} 1: {first})", work.noun())).unwrap_or_default();
            row(title(work), &format!("{}{}", paint.strong(&duration(speed.step_micros)), paint.quiet(&first)));
            if let Some(per_token) = per_token(report, index) {
                row("Token", &format!("{} each after the first", duration(per_token)));
            }
            for (n, line) in wrapped(&shares(report, index).unwrap_or_default(), WIDTH - 18).iter().enumerate() {
                row(if n == 0 { "of it" } else { "" }, line);
            }
            let sample = 1e6 / speed.samples_per_second.max(f64::MIN_POSITIVE);
            // Saturates where it is absurd.
            row("Sample", &duration(sample as u64));
            let tokens = speed.tokens_per_second.map(|n| format!(", {} {kind}/s", whole(n))).unwrap_or_default();
            row("Throughput", &format!("{} samples/s{tokens}", rate(speed.samples_per_second)));
        }
        (None, Some(first)) => row(&format!("{} 1", title(work)), &first),
        (None, None) => {}
    }
    if let Some(range) = &record.utilization {
        row("Utilisation", &format!("{} %, most {} %", range.mean, range.most));
    }
    if let Some(Range { mean, most }) = record.power {
        row("Power", &format!("{} W, most {} W", (mean + 500) / 1000, (most + 500) / 1000));
    }
    if let Some(scale) = steps.last().and_then(|s| s.scale) {
        let skipped = steps.iter().filter(|s| s.skipped).count();
        row("GradScaler", &format!("scale {scale}, {skipped} of {} steps skipped", steps.len()));
    }
    let losses: Vec<f64> = steps.iter().filter_map(|s| s.loss).collect();
    if let (Some(first), Some(last)) = (losses.first(), losses.last()) {
        row("Loss", &format!("{first:.4} first, {last:.4} last"));
    }
    if let Some(parameters) = record.parameters {
        let trained = match parameters.trainable {
            _ if !work.trains() => String::new(),
            trainable if trainable == parameters.total => " (all trained)".to_owned(),
            trainable => format!(" ({} trained)", grouped(trainable)),
        };
        row("Parameters", &format!("{}{trained}", grouped(parameters.total)));
    }
    out
}

/// A step, with a capital letter and short enough for the column.
const fn title(work: Work) -> &'static str {
    match work {
        Work::Step => "Step",
        Work::Generation { .. } => "Generation",
        Work::Forward => "Forward pass",
    }
}

/// Microseconds of every token after the first, in the last generation.
fn per_token(report: &Report<'_>, index: usize) -> Option<u64> {
    let Work::Generation { tokens: tokens @ 2.. } = report.work() else { return None };
    let attempt = u32::try_from(index).ok()?;
    let decodes = report.record.phases.iter().filter(|p| p.attempt == attempt && p.name == PhaseName::Decode);
    Some(decodes.max_by_key(|p| p.step)?.micros / (tokens - 1))
}

/// Where the last step's time went, its micro-batches together: `forward 31 %, backward 55 %, ...`.
fn shares(report: &Report<'_>, index: usize) -> Option<String> {
    let attempt = u32::try_from(index).ok()?;
    let of_it = || report.record.phases.iter().filter(move |p| p.attempt == attempt && p.name != PhaseName::Load);
    let last = of_it().filter_map(|p| p.step).max()?;
    let micros = |name| of_it().filter(|p| p.name == name && p.step == Some(last)).map(|p| p.micros).sum::<u64>();
    let times = PHASE_ORDER.map(|name| (name, micros(name)));
    let whole: u64 = times.iter().map(|(_, micros)| micros).sum();
    // Rounded each for itself; what is under half a percent is not worth a word.
    let percent = |micros: u64| (micros.saturating_mul(200) + whole) / whole.saturating_mul(2).max(1);
    let shares = times.iter().map(|(name, micros)| (name, percent(*micros))).filter(|(_, share)| *share > 0);
    let words: Vec<String> = shares.map(|(name, share)| format!("{} {share} %", label(*name))).collect();
    (words.len() > 1).then(|| words.join(", "))
}

/// Without decimals, as long as that says something.
fn whole(per_second: f64) -> String {
    if per_second >= 10.0 { grouped(per_second as u64) } else { rate(per_second) }
}

/// Three digits that say something.
fn rate(per_second: f64) -> String {
    match per_second {
        n if n >= 1000.0 => grouped(n as u64),
        n if n >= 10.0 => format!("{n:.1}"),
        n => format!("{n:.3}"),
    }
}
