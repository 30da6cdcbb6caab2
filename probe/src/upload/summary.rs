//! What is in a record, in a few lines, above the record itself.

use plimsoll_core::measurement::Outcome;
use plimsoll_core::{Bytes, Measurement, is_hidden};

use crate::records;

/// A few lines, indented, each ending in a line feed.
pub fn summary(record: &Measurement, text: &str) -> String {
    let training = &record.scenario["training"];
    let word = |key: &str| training[key].as_str().unwrap_or("?").to_owned();
    let mut what = vec![records::model(&record.scenario)];
    if let Some(last) = record.attempts.last() {
        what.push(format!("batch {} x {}", last.batch, last.accumulation));
    }
    what.extend([word("precision"), word("optimizer")]);
    let outcome = match record.attempts.last().map(|attempt| attempt.outcome) {
        Some(Outcome::Finished) => "finished",
        Some(Outcome::OutOfMemory) => "out of memory",
        Some(Outcome::Limit) => "stopped at the limit",
        Some(Outcome::Interrupted) => "interrupted",
        Some(Outcome::Failed) => "failed",
        None => "ended before the first step",
    };
    let size = |bytes: Option<Bytes>| bytes.map_or_else(|| "-".to_owned(), |bytes| bytes.to_string());
    let peak = &record.peak;
    let rows = [
        ("what", what.join(", ")),
        ("on", format!("{}, torch {}, {}", record.device.name, record.software.torch, record.software.os)),
        ("taken", format!("{}, {outcome}", record.taken)),
        (
            "peaks",
            format!(
                "{} allocated, {} reserved, {} the process",
                size(peak.allocated),
                size(peak.reserved),
                size(peak.process)
            ),
        ),
        (
            "holds",
            format!(
                "{} phases, {} steps, {} samples, {} events, {} estimate",
                record.phases.len(),
                record.steps.len(),
                record.samples.len(),
                record.events.len(),
                if record.estimate.is_some() { "an" } else { "no" }
            ),
        ),
        ("size", Bytes::new(text.len() as u64).to_string()),
    ];
    rows.iter().map(|(label, text)| format!("  {label:<6} {}\n", plain(text))).collect()
}

/// Without anything that commands a terminal: names come from drivers and other people's files.
fn plain(text: &str) -> String {
    text.chars().map(|c| if is_hidden(c) { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::sample;

    #[test]
    fn it_says_what_is_in_the_record() {
        let mut record = sample::record();
        record.device.name.push('\u{202e}');
        assert_eq!(
            summary(&record, "0123456789"),
            "  what   gpt2, batch 2 x 1, bf16-amp, adamw\n  \
             on     NVIDIA GeForce RTX 5070 Ti Laptop GPU?, torch 2.11.0, linux\n  \
             taken  2026-11-20, finished\n  \
             peaks  2.33 GiB allocated, 2.42 GiB reserved, 2.70 GiB the process\n  \
             holds  3 phases, 3 steps, 1 samples, 0 events, no estimate\n  \
             size   10 B\n"
        );
    }
}
