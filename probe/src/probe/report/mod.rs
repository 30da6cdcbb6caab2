//! A measurement as text for people: 80 columns, what was measured beside what was predicted.

mod difference;
mod events;
mod header;
mod pace;
mod peaks;
mod phases;
mod ranks;
#[cfg(test)]
mod tests;

use plimsoll_core::estimate::{Estimate, Run};
use plimsoll_core::measurement::{self, Attempt, DeviceKind, MeasuredBuffer};
use plimsoll_core::{Bytes, Error, Measurement, Scenario};

use crate::scenario::Asked;
use crate::session::{Work, as_measured, subject, with_shape};
use crate::view::{Paint, WIDTH, wrapped};

/// Everything the report is written from.
struct Report<'a> {
    record: &'a Measurement,
    scenario: &'a Scenario,
    /// Whether the scenario says which card.
    names_gpu: bool,
    /// The attempt that the figures are about, with its index.
    subject: Option<(usize, &'a Attempt)>,
    /// The estimate of that attempt, or why there is none.
    predicted: Result<Estimate, Error>,
    /// What a rank exchanges in a step by the estimate, where it tells.
    exchanged: Option<Vec<MeasuredBuffer>>,
}

impl Report<'_> {
    /// What was repeated.
    fn work(&self) -> Work {
        Work::of(self.scenario)
    }

    /// The estimate, where it speaks of what was measured: on a card.
    fn comparable(&self) -> Option<&Estimate> {
        let estimate = self.predicted.as_ref().ok()?;
        (self.record.device.kind == DeviceKind::Cuda).then_some(estimate)
    }
}

/// The whole report.
pub fn report(record: &Measurement, asked: &Asked, paint: Paint) -> String {
    let scenario = &asked.scenario;
    let subject = subject(record);
    let mut measured = as_measured(scenario, &record.software, &record.device, record.allocator.limit);
    if let Some((_, attempt)) = subject {
        measured = with_shape(&measured, attempt.batch, attempt.accumulation);
    }
    // A hollow card's addresses rise, unless it was told otherwise.
    let run =
        if record.device.hollow { Run::on_hollow_card(&measured) } else { Run::new(&measured).map(Run::with_falling) };
    let exchanged = run.as_ref().ok().and_then(|run| measurement::exchanged(&measured, run));
    let predicted = run.map(Run::into_estimate);
    let report = Report { record, scenario, names_gpu: asked.names_gpu, subject, predicted, exchanged };
    let parts = [
        header::header(&report, paint),
        peaks::peaks(&report, paint),
        ranks::ranks(&report, paint),
        phases::phases(&report, paint),
        difference::difference(&report, paint),
        pace::pace(&report, paint),
        events::events(&report, paint),
    ];
    let parts: Vec<&str> = parts.iter().map(String::as_str).filter(|part| !part.is_empty()).collect();
    format!("\n{}", parts.join("\n"))
}

/// How far `measured` is above `predicted`, in bytes; negative below.
fn off(measured: Bytes, predicted: Bytes) -> i128 {
    i128::from(measured.get()) - i128::from(predicted.get())
}

/// `+1.2 %` of `predicted`; empty when nothing was predicted.
fn percent(off: i128, predicted: Bytes) -> String {
    if predicted == Bytes::ZERO {
        return String::new();
    }
    // For people only.
    format!("{:+.1} %", off as f64 * 100.0 / predicted.get() as f64)
}

/// `+21.3 MiB`.
fn signed(off: i128) -> String {
    let size = Bytes::new(u64::try_from(off.unsigned_abs()).unwrap_or(u64::MAX));
    format!("{}{size}", if off < 0 { '-' } else { '+' })
}

/// Lines of prose within the margins.
fn prose(text: &str) -> String {
    wrapped(text, WIDTH - 2).iter().map(|line| format!("  {line}\n")).collect()
}

/// `12.3 ms`.
pub fn duration(micros: u64) -> String {
    match micros {
        0..1000 => format!("{micros} us"),
        1000..1_000_000 => format!("{:.1} ms", micros as f64 / 1e3),
        1_000_000..600_000_000 => format!("{:.2} s", micros as f64 / 1e6),
        _ => format!("{:.1} min", micros as f64 / 6e7),
    }
}
