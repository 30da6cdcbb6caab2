//! Memory: allocated <= reserved <= process <= total, and the peak that of the phases.

use plimsoll_ground::Bytes;
use plimsoll_ledger::PhaseName;
use plimsoll_scenario::limits;

use super::super::problems::{MEASURE_AGAIN, Problems};
use super::super::{DeviceKind, MeasuredPhase, Measurement, Outcome, ProcessSource};

pub fn check(record: &Measurement, problems: &mut Problems) {
    order(record, problems);
    for (index, phase) in record.phases.iter().enumerate() {
        within_phase(problems, &format!("phases[{index}]"), phase);
    }
    highest(record, problems);
    capped(record, problems);
    sampled(record, problems);
}

/// The most memory one process can be seen to hold.
///
/// On Apple's unified memory the device's total is the recommended working set, which a process may exceed:
/// PyTorch lets it, up to 1.7 times (`PYTORCH_MPS_HIGH_WATERMARK_RATIO`'s default, aten/src/ATen/mps/MPSAllocator.h).
pub fn ceiling(record: &Measurement) -> Bytes {
    let total = record.device.total;
    match record.device.kind {
        DeviceKind::Mps => Bytes::new(total.get().saturating_add(total.get() / 10 * 7)),
        DeviceKind::Cuda | DeviceKind::Cpu => total,
    }
}

/// Windows, also below WSL, moves what does not fit the card into the machine's own memory: the allocator may then
/// hold more than the card has, and more than the driver counts as on it.
fn spills(record: &Measurement) -> bool {
    record.software.wsl || record.software.os == "windows"
}

/// What the figure for the process may fall short of what PyTorch had reserved; `None` when nothing is known.
fn shortfall(record: &Measurement) -> Option<Bytes> {
    // The peak of a run that never finished may have stood for less time than lies between two samples.
    let finished = record.attempts.iter().any(|a| a.outcome == Outcome::Finished);
    if !finished || spills(record) {
        return None;
    }
    match record.peak.process_source? {
        // The driver's own count of this process: it holds the context too.
        ProcessSource::NvmlProcess | ProcessSource::AmdgpuProcess => Some(Bytes::ZERO),
        // Whoever used the card before may have given all of it back meanwhile.
        ProcessSource::NvmlDifference | ProcessSource::AmdgpuDifference => record.device.used_before,
        ProcessSource::Worker => Some(Bytes::ZERO),
        // The device is the machine: PyTorch reserves nothing there.
        ProcessSource::Resident => None,
    }
}

fn order(record: &Measurement, problems: &mut Problems) {
    let peak = &record.peak;
    // Where memory spills, the card's total is no bound; that there is one at all keeps sums from overflowing.
    let sizes = [("peak.allocated", peak.allocated), ("peak.reserved", peak.reserved), ("peak.process", peak.process)];
    for (key, size) in sizes {
        let most = size.unwrap_or(Bytes::ZERO) <= limits::MEMORY_MOST;
        problems.unless(most, key, || "no machine has that much memory".to_owned(), "give it in bytes");
    }
    if let (Some(allocated), Some(reserved)) = (peak.allocated, peak.reserved) {
        problems.unless(
            allocated <= reserved,
            "peak.allocated",
            || format!("{allocated} allocated is more than the {reserved} reserved"),
            MEASURE_AGAIN,
        );
    }
    // What PyTorch took from the driver; where it does not say, what it handed out.
    let (key, held) =
        if peak.reserved.is_some() { ("peak.reserved", peak.reserved) } else { ("peak.allocated", peak.allocated) };
    let held = held.unwrap_or(Bytes::ZERO);
    if let (Some(process), Some(shortfall)) = (peak.process, shortfall(record)) {
        problems.unless(
            held <= Bytes::new(process.get().saturating_add(shortfall.get())),
            "peak.process",
            || format!("a process of {process} cannot hold the {held} that PyTorch had taken"),
            MEASURE_AGAIN,
        );
    }
    let most = ceiling(record);
    problems.unless(
        held <= most || spills(record),
        key,
        || format!("{held} is more than the {} the device has", record.device.total),
        MEASURE_AGAIN,
    );
    let process = peak.process.unwrap_or(Bytes::ZERO);
    problems.unless(
        process <= most,
        "peak.process",
        || format!("{process} is more than the {} the device has", record.device.total),
        MEASURE_AGAIN,
    );
}

/// Whether the figures of a phase can stand beside one another; `at` says where it stands.
pub fn within_phase(problems: &mut Problems, at: &str, phase: &MeasuredPhase) {
    let pairs = [
        ("peak_allocated", phase.end_allocated, phase.peak_allocated, "it is below what was allocated at the end"),
        ("peak_reserved", phase.end_reserved, phase.peak_reserved, "it is below what was reserved at the end"),
        ("peak_reserved", phase.peak_allocated, phase.peak_reserved, "it is below what was allocated"),
        ("end_reserved", phase.end_allocated, phase.end_reserved, "it is below what was allocated"),
    ];
    for (name, low, high, problem) in pairs {
        let (Some(low), Some(high)) = (low, high) else { continue };
        problems.unless(low <= high, format!("{at}.{name}"), || problem.to_owned(), MEASURE_AGAIN);
    }
}

type Read = fn(&MeasuredPhase) -> Option<Bytes>;

/// The peak of an attempt is the highest of its phases. Counters are reset before each phase, so nothing is missed
/// between them. Of a long attempt only the first and the last step are kept, so its peak may lie above them; one
/// that ran out of memory has no record of the phase it died in.
fn highest(record: &Measurement, problems: &mut Problems) {
    let Some(subject) = record.subject() else { return };
    let none_finished = record.attempts.iter().all(|a| a.outcome != Outcome::Finished);
    // When no attempt finished the peak is the whole run's.
    let about = |phase: &&MeasuredPhase| none_finished || phase.attempt as usize == subject;
    let complete = !none_finished && record.attempts.get(subject).is_some_and(|a| a.steps <= 2);
    let measures: [(&str, Option<Bytes>, Read); 2] = [
        ("peak.allocated", record.peak.allocated, |p| p.peak_allocated),
        ("peak.reserved", record.peak.reserved, |p| p.peak_reserved),
    ];
    for (key, peak, read) in measures {
        let Some(peak) = peak else { continue };
        let most = |load: bool| {
            let is_load = |phase: &&MeasuredPhase| phase.name == PhaseName::Load;
            let phases = record.phases.iter().filter(|p| if is_load(p) { load } else { about(p) });
            phases.filter_map(read).max()
        };
        // Loading comes before the loop: it may count or not.
        if let Some(loop_most) = most(false) {
            problems.unless(
                loop_most <= peak,
                key,
                || format!("{peak} is below the {loop_most} of one of its phases"),
                MEASURE_AGAIN,
            );
            let all = most(true).unwrap_or(loop_most);
            problems.unless(
                !complete || peak <= all,
                key,
                || format!("{peak} is above all of its phases, which reach {all}"),
                MEASURE_AGAIN,
            );
        }
    }
}

/// A hard cap on CUDA is PyTorch's own (`set_per_process_memory_fraction`): it never reserves more than that. On other
/// devices it is looked at after each phase, which may have passed it.
fn capped(record: &Measurement, problems: &mut Problems) {
    let (Some(limit), DeviceKind::Cuda) = (record.allocator.limit, record.device.kind) else { return };
    let phases = record.phases.iter().enumerate();
    let phases = phases.map(|(index, phase)| (format!("phases[{index}].peak_reserved"), phase.peak_reserved));
    for (key, reserved) in std::iter::once(("peak.reserved".to_owned(), record.peak.reserved)).chain(phases) {
        let reserved = reserved.unwrap_or(Bytes::ZERO);
        let above = || format!("{reserved} is more than the limit of {limit}");
        problems.unless(reserved <= limit, key, above, MEASURE_AGAIN);
    }
}

/// No sample of a run's only attempt lies above its peak. Only the card's driver is asked: the machine's own memory,
/// which is sampled elsewhere, keeps growing after the loop, when the process writes what it was asked to.
fn sampled(record: &Measurement, problems: &mut Problems) {
    let (Some(peak), 1) = (record.peak.process, record.attempts.len()) else { return };
    if matches!(record.peak.process_source, Some(ProcessSource::Resident | ProcessSource::Worker)) {
        return;
    }
    let highest = record.samples.iter().filter_map(|s| s.process).max().unwrap_or(Bytes::ZERO);
    problems.unless(
        highest <= peak,
        "peak.process",
        || format!("{peak} is below the {highest} of one of the samples"),
        MEASURE_AGAIN,
    );
}
