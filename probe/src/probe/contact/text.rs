//! The meeting as text for people.

use std::fmt::Write as _;
use std::path::Path;

use plimsoll_core::estimate::Requests;
use plimsoll_core::snapshot::Parting;
use plimsoll_core::{Bytes, catalog, device, grouped};

use super::beside::{Beside, Ended, Phase, Three};
use super::libraries::Libraries;
use super::meet::{End, Met};
use crate::probe::figures;
use crate::probe::survey::{Seen, Survey};
use crate::view::{Paint, WIDTH, wrapped};

/// What is known before the first entry: the card, and what its context and libraries take.
pub fn opening(survey: &Survey, card: &Seen, libraries: &Libraries, paint: Paint) -> String {
    let mut out = format!("\n  {}\n", paint.strong(&card.name));
    if survey.device.hollow {
        out.push_str(&prose(HOLLOW, paint));
    }
    let gpu = survey.device.gpu.as_deref().and_then(catalog::gpu);
    let _ = writeln!(out, "  {}", paint.quiet(&format!("{:<28}{:>14}{:>14}", "", "found", "catalog")));
    let mut row = |name: &str, found: String, listed: Option<String>| {
        let _ = writeln!(out, "  {name:<28}{found:>14}{:>14}", listed.unwrap_or_else(|| "-".to_owned()));
    };
    let size = |bytes: Option<Bytes>| figures::size(bytes);
    let driver = gpu.map(|gpu| device::driver_reserve(gpu).bytes);
    let memory = gpu.zip(driver).map(|(gpu, driver)| gpu.memory.saturating_sub(driver).to_string());
    row("memory, as PyTorch sees it", card.memory.to_string(), memory);
    row("kept by the driver", size(survey.device.reserved), driver.map(|bytes| bytes.to_string()));
    row("in use by others", size(survey.device.used_before), None);
    row("multiprocessors", card.multiprocessors.to_string(), gpu.map(|gpu| device::multiprocessors(gpu).to_string()));
    let listed = gpu.and_then(|gpu| gpu.compute_capability).map(|(major, minor)| format!("{major}.{minor}"));
    row("compute capability", card.capability.clone(), listed);

    let title = "Context and libraries, beside PyTorch's own memory";
    let _ = writeln!(out, "\n  {}", paint.strong(title));
    let _ = writeln!(out, "  {}", paint.quiet(&format!("{:<28}{:>14}{:>14}", "", "grew by", "now")));
    if libraries.total().is_none() {
        out.push_str(&prose(
            "They could not be read: NVML does not answer, or Python failed before its first call.",
            paint,
        ));
        return out;
    }
    let mut before = Bytes::ZERO;
    for step in &libraries.steps {
        let grown = step
            .beside
            .map_or_else(|| "-".to_owned(), |now| if before.is_zero() { now.to_string() } else { signed(now, before) });
        let sum = size(step.beside);
        let error = step.error.as_deref().map(|error| format!("  {error}")).unwrap_or_default();
        let _ = writeln!(out, "  {:<28}{grown:>14}{sum:>14}{}", step.step, cut(&error, WIDTH - 60));
        before = step.beside.unwrap_or(before);
    }
    if let Some(gpu) = gpu {
        let listed = device::context(gpu);
        let assumed = if listed.assumed { " (assumed)" } else { "" };
        let _ = writeln!(out, "  {:<28}{:>14}{:>14}", format!("by the catalog{assumed}"), "", listed.bytes.to_string());
    }
    out
}

const HOLLOW: &str = "This card is not there either: a rehearsal stands in for it. Nothing here was measured, and nothing of it \
    can be taken for a measurement.";

const ELSEWHERE: &str = "Every request is the same. What differs is where the driver put segments: between free blocks of one size \
    the allocator takes the one at the lowest address.";

/// What became of one entry.
pub fn entry(met: &Met, paint: Paint) -> String {
    let mut out = String::from("\n");
    let (word, rest) = match &met.end {
        End::Met(beside) if beside.agrees() => ("agrees", table(beside, paint)),
        End::Met(beside) if beside.asks_alike => {
            ("asks for the same, and LIES ELSEWHERE", table(beside, paint) + &prose(ELSEWHERE, paint))
        }
        End::Met(beside) => ("DIFFERS", table(beside, paint)),
        End::Skipped(why) => ("left out", prose(why, paint)),
        End::Failed(why) => ("FAILED", prose(why, paint)),
        End::NotReached(why) => ("not reached", prose(why, paint)),
    };
    let _ = writeln!(out, "  {}: {word}", paint.strong(&met.name));
    out.push_str(&rest);
    out
}

fn table(beside: &Beside, paint: Paint) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "  {}", prose_attempts(beside));
    if let Some(why) = &beside.no_twin {
        out.push_str(&prose(&format!("No twin: {why}"), paint));
    }
    if let Some(why) = &beside.no_estimate {
        out.push_str(&prose(&format!("The estimate decides nothing: {why}"), paint));
    }
    for (title, of) in
        [("allocated", (|phase: &Phase| phase.allocated) as fn(&Phase) -> Three), ("reserved", |phase| phase.reserved)]
    {
        let titles = format!("{:>11}{:>11}{:>11}", "card", "twin", "estimate");
        let _ = writeln!(out, "  {:<10}{}", title, paint.quiet(&format!("{titles}  {}", titles.trim_end())));
        for first in beside.phases.iter().filter(|phase| !phase.steady) {
            let steady = beside.phases.iter().find(|phase| phase.steady && phase.phase == first.phase);
            let cells = [Some(of(first)), steady.map(of)].map(|three| three.map_or_else(String::new, row));
            let line = format!("  {:<10}{}  {}", first.phase.as_str(), cells[0], cells[1]);
            let _ = writeln!(out, "{}", line.trim_end());
        }
    }
    let process = [("card", beside.process.card), ("twin", beside.process.twin), ("estimate", beside.process.estimate)];
    let process: Vec<String> = process.iter().map(|(who, bytes)| format!("{who} {}", figures::size(*bytes))).collect();
    let _ = writeln!(out, "  process: {}", process.join(", "));
    if let Some(parting) = &beside.tensors {
        out.push_str(&prose(&parted("Allocations", parting), paint));
    }
    if let Some(parting) = beside.segments.as_ref().filter(|parting| !parting.agrees()) {
        out.push_str(&prose(&parted("Segments", parting), paint));
    }
    for (who, requests) in [("twin", &beside.twin_and_estimate), ("card", &beside.card_and_estimate)] {
        // The card's says nothing more where the twin did the same.
        if let Some(requests) = requests.as_ref().filter(|_| who == "twin" || !beside.twin_agrees) {
            out.push_str(&prose(&steady(who, requests), paint));
        }
    }
    out
}

/// The card's figure, and what the others say: `=` where they say the same, else by how much they are off.
fn row(three: Three) -> String {
    let other = |bytes: Option<Bytes>| match (three.card, bytes) {
        (_, None) => "-".to_owned(),
        (Some(card), Some(bytes)) if card == bytes => "=".to_owned(),
        (Some(card), Some(bytes)) => signed(bytes, card),
        (None, Some(bytes)) => bytes.to_string(),
    };
    format!("{:>11}{:>11}{:>11}", figures::size(three.card), other(three.twin), other(three.estimate))
}

/// `+2.0 MiB`.
fn signed(value: Bytes, from: Bytes) -> String {
    if value >= from { format!("+{}", value - from) } else { format!("-{}", from - value) }
}

fn prose_attempts(beside: &Beside) -> String {
    let said = |attempts: &[Ended]| {
        let each = |a: &Ended| format!("{} x {} {}", a.batch, a.accumulation, figures::outcome(Some(a.outcome)));
        attempts.iter().map(each).collect::<Vec<_>>().join(", ")
    };
    let twin = beside.twin_attempts.as_ref().map(|twin| format!("; the twin: {}", said(twin))).unwrap_or_default();
    format!("micro-batch {}{twin}", said(&beside.attempts))
}

fn parted(what: &str, parting: &Parting) -> String {
    if parting.agrees() {
        return format!("{what}: {}, on the card and its twin the same in order", grouped(parting.one));
    }
    let asked = |request: &Option<plimsoll_core::snapshot::Request>| match request {
        Some(request) => format!("asks for {} bytes ({})", grouped(request.bytes.get()), request.by),
        None => "has no more".to_owned(),
    };
    format!(
        "{what}: {} on the card, {} on its twin. After {} that are the same the card {}, the twin {}",
        grouped(parting.one),
        grouped(parting.other),
        grouped(parting.equal),
        asked(&parting.first_of_one),
        asked(&parting.first_of_other),
    )
}

fn steady(who: &str, requests: &Requests) -> String {
    let Some(differs) = &requests.differs else {
        let count = grouped(requests.snapshot);
        return format!("Steady step: {count} requests, the {who}'s and the estimate's the same in order");
    };
    let asked = |asked: &Option<plimsoll_core::estimate::Asked>| match asked {
        Some(asked) => format!("asks for {} bytes ({})", grouped(asked.bytes.get()), asked.by),
        None => "has no more".to_owned(),
    };
    format!(
        "Steady step: {} requests of the {who}'s, {} of the estimate's. After {} that are the same the {who} {}, the estimate {}",
        grouped(requests.snapshot),
        grouped(requests.estimate),
        grouped(requests.equal),
        asked(&differs.snapshot),
        asked(&differs.estimate),
    )
}

/// What came of all.
pub fn closing(told: &[Met], folder: &Path, hollow: bool, paint: Paint) -> String {
    let count = |is: &dyn Fn(&Met) -> bool| told.iter().filter(|met| is(met)).count();
    let agree = count(&Met::agrees);
    let elsewhere = count(&Met::lies_elsewhere);
    let differ = count(&|met| matches!(met.end, End::Met(_))) - agree - elsewhere;
    let mut parts = vec![format!("{agree} agree"), format!("{differ} differ")];
    for (word, number) in [
        ("ask for the same and lie elsewhere", elsewhere),
        ("failed", count(&|met| matches!(met.end, End::Failed(_)))),
        ("left out", count(&|met| matches!(met.end, End::Skipped(_)))),
        ("not reached", count(&|met| matches!(met.end, End::NotReached(_)))),
    ] {
        if number > 0 {
            parts.push(format!("{number} {word}"));
        }
    }
    let mut out = format!("\n  {}\n", paint.strong(&format!("Of {} entries {}", told.len(), parts.join(", "))));
    if hollow {
        out.push_str(&prose(HOLLOW, paint));
    }
    let where_to = format!(
        "Records, snapshots and contact.json are in {}. The snapshots name files of your Python, folders and all.",
        folder.display()
    );
    out.push_str(&prose(&where_to, paint));
    out
}

fn cut(text: &str, columns: usize) -> String {
    text.chars().take(columns).collect()
}

fn prose(text: &str, paint: Paint) -> String {
    wrapped(text, WIDTH - 4).iter().map(|line| format!("  {}\n", paint.quiet(line))).collect()
}
