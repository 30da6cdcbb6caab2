//! Several processes: one for each card of the scenario, and none above the record's own figures, which are the highest of theirs.

use plimsoll_ground::Bytes;
use plimsoll_scenario::{Scenario, limits};

use super::super::problems::{MEASURE_AGAIN, Problems};
use super::super::{DeviceKind, MeasuredPeak, MeasuredRank, Measurement};
use super::peaks::within_phase;

/// Most sizes of buffers of a rank: a bucket, or a layer, has one.
const BUFFERS: usize = 10_000;
/// Most phases of all ranks together.
const PHASES: usize = 100_000;

type Read = fn(&MeasuredPeak) -> Option<Bytes>;

const FIGURES: [(&str, Read); 3] =
    [("allocated", |peak| peak.allocated), ("reserved", |peak| peak.reserved), ("process", |peak| peak.process)];

pub fn check(record: &Measurement, scenario: Option<&Scenario>, problems: &mut Problems) {
    let ranks = &record.ranks;
    if ranks.is_empty() {
        return;
    }
    let cards = scenario.map_or(ranks.len() as u64, |scenario| scenario.parallel.gpus);
    problems.unless(
        ranks.len() as u64 == cards && ranks.len() > 1,
        "ranks",
        || format!("{} ranks are not the {cards} cards of the scenario", ranks.len()),
        "give one for each card, or none",
    );
    let phases: usize = ranks.iter().map(|rank| rank.phases.len()).sum();
    problems.unless(phases <= PHASES, "ranks", || format!("{phases} phases are more than {PHASES}"), "thin them out");
    for (name, read) in FIGURES {
        let highest = ranks.iter().filter_map(|rank| read(&rank.peak)).max();
        problems.unless(
            highest.is_none() || highest == read(&record.peak),
            format!("peak.{name}"),
            || "it is not the highest of its ranks".to_owned(),
            MEASURE_AGAIN,
        );
    }
    for (index, rank) in ranks.iter().enumerate() {
        of_rank(record, index, rank, problems);
    }
}

fn of_rank(record: &Measurement, index: usize, rank: &MeasuredRank, problems: &mut Problems) {
    let key = |name: &str| format!("ranks[{index}].{name}");
    problems.unless(
        rank.rank as usize == index,
        key("rank"),
        || format!("rank {} stands where {index} is due", rank.rank),
        "give every rank once, in order",
    );
    let peak = &rank.peak;
    if let (Some(allocated), Some(reserved)) = (peak.allocated, peak.reserved) {
        let above = || format!("{allocated} allocated is more than the {reserved} reserved");
        problems.unless(allocated <= reserved, key("peak.allocated"), above, MEASURE_AGAIN);
    }
    problems.unless(
        peak.process_source.is_none() || peak.process_source == record.peak.process_source,
        key("peak.process_source"),
        || "it was read elsewhere than the record's".to_owned(),
        "give the record's, or none",
    );
    let counted = peak.allocated.is_some() || peak.reserved.is_some();
    problems.unless(
        record.device.kind != DeviceKind::Cpu || !counted,
        key("peak.allocated"),
        || "PyTorch keeps no such count on cpu".to_owned(),
        "leave it out",
    );
    for (place, phase) in rank.phases.iter().enumerate() {
        within_phase(problems, &key(&format!("phases[{place}]")), phase);
        problems.unless(
            record.attempts.get(phase.attempt as usize).is_some(),
            key(&format!("phases[{place}].attempt")),
            || format!("there is no attempt {}", phase.attempt),
            MEASURE_AGAIN,
        );
    }
    let buffers = rank.buffers.len();
    problems.unless(buffers <= BUFFERS, key("buffers"), || format!("{buffers} are more than {BUFFERS}"), "thin it out");
    for (place, buffer) in rank.buffers.iter().enumerate() {
        problems.unless(
            buffer.bytes <= limits::MEMORY_MOST && buffer.count > 0,
            key(&format!("buffers[{place}]")),
            || format!("{} buffers of {}", buffer.count, buffer.bytes),
            "give how many there are, and the size of each in bytes",
        );
    }
}
