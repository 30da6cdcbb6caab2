//! Single figures: none beyond anything that exists, none on the wrong kind of device.

use plimsoll_catalog as catalog;
use plimsoll_ground::Bytes;
use plimsoll_scenario::limits;

use super::super::problems::{MEASURE_AGAIN, Problems};
use super::super::{DeviceKind, Measurement, ProcessSource, Range};

/// Most entries of a list; the probe thins samples to 2000.
const ATTEMPTS: usize = 64;
const PHASES: usize = 20_000;
const STEPS: usize = 100_000;
const SAMPLES: usize = 4_000;
const EVENTS: usize = 1_000;

/// Longest duration, in microseconds: 100 days.
const LONGEST: u64 = 100 * 86_400_000_000;

/// Most power of a board, in milliwatts: ten times a large card's.
const POWER: u64 = 10_000_000;

pub fn check(record: &Measurement, problems: &mut Problems) {
    for (key, count, most) in [
        ("attempts", record.attempts.len(), ATTEMPTS),
        ("phases", record.phases.len(), PHASES),
        ("steps", record.steps.len(), STEPS),
        ("samples", record.samples.len(), SAMPLES),
        ("events", record.events.len(), EVENTS),
    ] {
        problems.unless(count <= most, key, || format!("{count} entries are more than {most}"), "thin it out");
    }
    if let Some(parameters) = record.parameters {
        problems.unless(
            parameters.trainable <= parameters.total && parameters.total < 1 << 50,
            "parameters",
            || format!("{} of {} parameters are trainable", parameters.trainable, parameters.total),
            MEASURE_AGAIN,
        );
    }
    device(record, problems);
    source(record, problems);
    for (key, range, most) in [("utilization", record.utilization, 100), ("power", record.power, POWER)] {
        if let Some(Range { mean, most: highest }) = range {
            problems.unless(
                mean <= highest && highest <= most,
                key,
                || format!("a mean of {mean} and a highest of {highest} cannot be"),
                MEASURE_AGAIN,
            );
        }
    }
    samples(record, problems);
    for (index, event) in record.events.iter().enumerate() {
        duration(problems, &format!("events[{index}].at"), event.at);
    }
}

fn duration(problems: &mut Problems, key: &str, micros: u64) {
    problems.unless(
        micros <= LONGEST,
        key,
        || format!("{micros} microseconds are more than 100 days"),
        "give microseconds since the worker started",
    );
}

fn device(record: &Measurement, problems: &mut Problems) {
    let device = &record.device;
    let total = device.total;
    problems.unless(
        (limits::MEMORY_LEAST..=limits::MEMORY_MOST).contains(&total),
        "device.total",
        || format!("{total} is no device's memory"),
        "give it in bytes",
    );
    let parts = [
        ("device.reserved", device.reserved),
        ("device.used_before", device.used_before),
        ("allocator.limit", record.allocator.limit),
    ];
    for (key, part) in parts {
        let Some(part) = part else { continue };
        problems.unless(
            part <= total,
            key,
            || format!("{part} is more than the {total} the device has"),
            MEASURE_AGAIN,
        );
    }
    if let Some(id) = &device.gpu {
        problems.unless(
            catalog::gpu(id).is_some(),
            "device.gpu",
            || "no GPU of this id is in the catalog".to_owned(),
            "use an id that plimsoll gpus lists, or leave it out",
        );
    }
}

/// Whether what was read fits the kind of device it was read on.
fn source(record: &Measurement, problems: &mut Problems) {
    let (peak, kind) = (&record.peak, record.device.kind);
    problems.unless(
        peak.process.is_some() == peak.process_source.is_some(),
        "peak.process_source",
        || "process and process_source belong together".to_owned(),
        "give both or none",
    );
    let fits = match peak.process_source {
        None => true,
        Some(ProcessSource::Worker) => kind == DeviceKind::Mps,
        Some(ProcessSource::Resident) => kind == DeviceKind::Cpu,
        Some(
            ProcessSource::NvmlProcess
            | ProcessSource::NvmlDifference
            | ProcessSource::AmdgpuProcess
            | ProcessSource::AmdgpuDifference,
        ) => kind == DeviceKind::Cuda,
    };
    problems.unless(
        fits,
        "peak.process_source",
        || "it is no source of this kind of device".to_owned(),
        "cuda has nvml_* and amdgpu_*, mps has worker, cpu has resident",
    );
    let difference =
        matches!(peak.process_source, Some(ProcessSource::NvmlDifference | ProcessSource::AmdgpuDifference));
    problems.unless(
        !difference || record.device.used_before.is_some(),
        "device.used_before",
        || "a difference needs what was in use before".to_owned(),
        MEASURE_AGAIN,
    );
    if kind == DeviceKind::Cpu {
        for (key, size) in [("peak.allocated", peak.allocated), ("peak.reserved", peak.reserved)] {
            problems.unless(size.is_none(), key, || "PyTorch keeps no such count on cpu".to_owned(), "leave it out");
        }
    }
}

fn samples(record: &Measurement, problems: &mut Problems) {
    let total = record.device.total;
    let mut last = 0;
    for (index, sample) in record.samples.iter().enumerate() {
        let key = |name: &str| format!("samples[{index}].{name}");
        duration(problems, &key("at"), sample.at);
        problems.unless(sample.at >= last, key("at"), || "it is before the sample before it".to_owned(), "sort them");
        last = sample.at;
        for (name, size) in [("process", sample.process), ("device", sample.device)] {
            let most = if name == "process" { super::peaks::ceiling(record) } else { total };
            problems.unless(
                size.unwrap_or(Bytes::ZERO) <= most,
                key(name),
                || format!("it is more than the {total} the device has"),
                MEASURE_AGAIN,
            );
        }
        for (name, figure, most) in [
            ("utilization", sample.utilization.map(u64::from), 100),
            ("power", sample.power, POWER),
            ("temperature", sample.temperature.map(u64::from), 150),
        ] {
            let figure = figure.unwrap_or(0);
            problems.unless(figure <= most, key(name), || format!("{figure} is more than {most}"), MEASURE_AGAIN);
        }
    }
}
