//! Measurements beside estimates: what the compare page shows, worked out without a browser.

pub mod axis;
pub mod histogram;
pub mod lay;
pub mod nearest;
pub mod ranks;
pub mod scatter;
pub mod view;

use plimsoll_core::measurement::{MeasurementPoint, Metric};
use plimsoll_core::scenario::at;
use serde::Deserialize;

/// Where a measurement came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// This browser: a file that was dropped, or a link.
    Here,
    /// The server that serves the page.
    Server,
    /// The records that ship with the planner.
    Shipped,
}

impl Origin {
    /// Where, in words.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Here => "yours, in this browser only",
            Self::Server => "on this server",
            Self::Shipped => "ships with Plimsoll",
        }
    }
}

/// One measurement of the page.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// What is known of it.
    pub point: MeasurementPoint,
    /// Where it came from.
    pub origin: Origin,
}

/// A list of measurements, as the server answers it and as an export holds it.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct List {
    /// The measurements.
    pub items: Vec<MeasurementPoint>,
    /// Where the list goes on.
    #[serde(default)]
    pub next: Option<String>,
    /// How many there are in all.
    #[serde(default)]
    pub total: Option<u64>,
}

/// Adds measurements; one that is there already stays as it is, but for a file of this browser that a server knows too.
pub fn merge(entries: &mut Vec<Entry>, points: Vec<MeasurementPoint>, origin: Origin) {
    for point in points {
        match entries.iter_mut().find(|e| e.point.id == point.id) {
            None => entries.push(Entry { point, origin }),
            // What a server says of a record, whether it stands among others say, is more than a file of it can.
            Some(known) if known.origin == Origin::Here && origin != Origin::Here => *known = Entry { point, origin },
            Some(_) => {}
        }
    }
}

/// A relative error in words: `+1.2 %`, `−0.04 %`, `0 %`.
pub fn percent(error: f64) -> String {
    let percent = error * 100.0;
    let size = percent.abs();
    let text = if size < 0.005 {
        return "0 %".to_owned();
    } else if size < 0.1 {
        format!("{size:.2} %")
    } else if size < 100.0 {
        format!("{size:.1} %")
    } else {
        format!("{size:.0} %")
    };
    format!("{}{text}", if percent < 0.0 { '\u{2212}' } else { '+' })
}

/// [`percent`] without its sign: of a median of sizes.
pub fn percent_size(error: f64) -> String {
    percent(error.abs()).trim_start_matches('+').to_owned()
}

/// What was run, in one line: `8 × 512 tokens, bf16-amp, adamw foreach, LoRA r 16`.
pub fn recipe(point: &MeasurementPoint) -> String {
    use crate::number::grouped;
    let mut text = match point.seq {
        Some(seq) => format!("{} × {} tokens", grouped(point.batch), grouped(seq)),
        None => format!("{} samples", grouped(point.batch)),
    };
    text.push_str(&format!(", {}", point.precision));
    if point.mode == "inference" {
        text.push_str(", inference");
        return text;
    }
    text.push_str(&format!(", {} {}", point.optimizer, point.optimizer_impl));
    if point.accumulation > 1 {
        text.push_str(&format!(", {} micro-batches", grouped(point.accumulation)));
    }
    if point.checkpointing != "none" {
        text.push_str(", checkpointing");
    }
    if let Some(rank) = point.lora {
        text.push_str(&format!(", LoRA r {rank}"));
    }
    if let Some(quantization) = &point.quantization {
        text.push_str(&format!(" on {quantization}"));
    }
    if point.prepare_kbit == Some(false) {
        text.push_str(" as loaded");
    }
    for clause in point.levers().told(&TOLD) {
        text.push_str(&format!(", {clause}"));
    }
    text
}

/// What the line has words of its own for, or stands elsewhere.
const TOLD: [&str; 16] = [
    at::input::batch,
    at::input::seq,
    at::training::precision,
    at::training::optimizer,
    at::training::optimizer_impl,
    at::training::accumulation,
    at::training::checkpointing,
    at::training::quantization,
    at::training::prepare_kbit,
    at::lora::rank,
    at::lora::targets,
    at::device::gpu,
    at::device::workspaces,
    at::software::torch,
    at::software::transformers,
    at::software::bitsandbytes,
];

/// The peak as it is called on the page.
pub const fn metric_label(metric: Metric) -> &'static str {
    match metric {
        Metric::Allocated => "allocated",
        Metric::Reserved => "reserved",
        Metric::Process => "process",
    }
}

/// What the metric is, for people who have not met it.
pub const fn metric_about(metric: Metric) -> &'static str {
    match metric {
        Metric::Allocated => "What PyTorch's tensors took: torch.cuda.max_memory_allocated.",
        Metric::Reserved => "What PyTorch took from the driver: torch.cuda.max_memory_reserved.",
        Metric::Process => "What nvidia-smi shows for the process: reserved, the CUDA context and libraries.",
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use plimsoll_core::measurement::{EXAMPLE, Peaks};
    use plimsoll_core::{Bytes, Measurement};

    use super::*;

    /// A made-up measurement: `measured` and `estimated` GiB at every peak.
    pub fn point(id: &str, measured: u64, estimated: u64) -> MeasurementPoint {
        let peaks = |gib| {
            let bytes = Some(Bytes::from_gib(gib));
            Peaks { allocated: bytes, reserved: bytes, process: bytes }
        };
        MeasurementPoint {
            id: id.to_owned(),
            measured: peaks(measured),
            estimated: Some(peaks(estimated)),
            ..Measurement::from_json(EXAMPLE).unwrap().point().unwrap()
        }
    }

    #[test]
    fn errors_read_well() {
        let texts = [0.0, 0.00001, -0.0004, 0.0123, -0.5, 3.0].map(percent);
        assert_eq!(texts, ["0 %", "0 %", "−0.04 %", "+1.2 %", "−50.0 %", "+300 %"]);
        assert_eq!(percent_size(-0.0123), "1.2 %");
    }

    #[test]
    fn the_same_record_from_two_places_is_one_entry() {
        let mut entries = Vec::new();
        merge(&mut entries, vec![point("a", 1, 1)], Origin::Here);
        merge(&mut entries, vec![point("a", 1, 1), point("b", 1, 1)], Origin::Server);
        merge(&mut entries, vec![point("b", 1, 1)], Origin::Here);
        let seen: Vec<_> = entries.iter().map(|e| (e.point.id.as_str(), e.origin)).collect();
        assert_eq!(seen, [("a", Origin::Server), ("b", Origin::Server)]);
    }

    #[test]
    fn a_recipe_is_one_line() {
        assert_eq!(recipe(&point("a", 1, 1)), "8 × 512 tokens, fp16-amp, adamw foreach, 4 micro-batches");
        let mut loaded = point("a", 1, 1);
        (loaded.lora, loaded.quantization, loaded.prepare_kbit) = (Some(8), Some("nf4".to_owned()), Some(false));
        assert!(recipe(&loaded).ends_with(", LoRA r 8 on nf4 as loaded"), "{}", recipe(&loaded));
    }

    #[test]
    fn a_list_of_an_export_or_a_server() {
        let text = format!(
            r#"{{"schema":1,"items":[{}],"next":null,"total":1}}"#,
            serde_json::to_string(&point("a", 1, 1)).unwrap()
        );
        let list: List = serde_json::from_str(&text).unwrap();
        assert_eq!((list.items.len(), list.next, list.total), (1, None, Some(1)));
    }
}
