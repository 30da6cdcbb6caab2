//! Several cards: what each rank took, beside what its role is estimated to take.

use plimsoll_core::measurement::{BufferKind, MeasuredRank, Metric, Outcome};
use plimsoll_core::{Bytes, Estimate, Measurement};

/// One rank in a table.
#[derive(Clone, Debug, PartialEq)]
pub struct RankRow {
    /// `rank 0`.
    pub name: String,
    /// What sets it apart from the others: another device, another end.
    pub note: Option<String>,
    /// Of each metric, what was measured and by how much the estimate of its role is off:
    /// `(estimated - measured) / measured`.
    pub figures: [(Option<Bytes>, Option<f64>); 3],
    /// What it exchanged with the others in the last step, in words.
    pub exchanged: String,
}

/// The ranks of a record, in order; nothing where one card was measured.
pub fn rank_rows(record: &Measurement, estimate: Option<&Estimate>) -> Vec<RankRow> {
    let whole = record.finished();
    let row = |rank: &MeasuredRank| {
        let number = u64::from(rank.rank);
        let role = estimate.and_then(|e| e.roles.iter().find(|role| role.ranks.contains(&number)));
        let told = role.filter(|_| whole).map(|role| &role.peak);
        let figures = Metric::ALL.map(|metric| {
            let (measured, estimated) = match metric {
                Metric::Allocated => (rank.peak.allocated, told.map(|peak| peak.allocated)),
                Metric::Reserved => (rank.peak.reserved, told.map(|peak| peak.reserved)),
                Metric::Process => (rank.peak.process, told.map(|peak| peak.process)),
            };
            // A processor's figure is resident memory with Python in it, which nobody estimates.
            let comparable = rank.peak.allocated.is_some();
            let both = measured.filter(|size| *size > Bytes::ZERO && comparable).zip(estimated);
            let off = both
                .map(|(measured, estimated)| (estimated.get() as f64 - measured.get() as f64) / measured.get() as f64);
            (measured, off)
        });
        let ended = match rank.outcome {
            Some(Outcome::Finished) => None,
            Some(Outcome::OutOfMemory) => Some("ran out of memory"),
            Some(Outcome::Limit) => Some("hit the limit"),
            Some(Outcome::Interrupted | Outcome::Failed) | None => Some("was ended before it was through"),
        };
        let note: Vec<&str> = rank.device.as_deref().into_iter().chain(ended).collect();
        RankRow {
            name: format!("rank {number}"),
            note: (!note.is_empty()).then(|| note.join(", ")),
            figures,
            exchanged: exchanged(rank),
        }
    };
    record.ranks.iter().map(row).collect()
}

/// `buckets: 1 x 417.2 KiB`.
fn exchanged(rank: &MeasuredRank) -> String {
    let of_kind = |kind: BufferKind| {
        let sizes = rank.buffers.iter().filter(|buffer| buffer.kind == kind);
        let sizes: Vec<String> = sizes.map(|buffer| format!("{} × {}", buffer.count, buffer.bytes)).collect();
        let name = match kind {
            BufferKind::Bucket => "buckets",
            BufferKind::Gathered => "gathered",
            BufferKind::Reduced => "reduced",
        };
        (!sizes.is_empty()).then(|| format!("{name} {}", sizes.join(", ")))
    };
    let kinds: Vec<String> = BufferKind::ALL.into_iter().filter_map(of_kind).collect();
    kinds.join("; ")
}

#[cfg(test)]
mod tests {
    use plimsoll_core::estimate::Run;
    use plimsoll_core::measurement::{EXAMPLE, MeasuredBuffer};

    use super::*;

    #[test]
    fn each_rank_stands_beside_its_role() {
        let mut record = Measurement::from_json(EXAMPLE).unwrap();
        assert!(rank_rows(&record, None).is_empty(), "one card has no ranks");
        record.scenario["parallel"] = serde_json::json!({ "gpus": 2, "strategy": "ddp" });
        let run = Run::new(&record.as_run().unwrap()).unwrap();
        let peak = &run.estimate().peak;
        record.peak.allocated = Some(peak.allocated);
        let rank = |rank, outcome| MeasuredRank {
            rank,
            device: None,
            outcome,
            peak: record.peak.clone(),
            phases: Vec::new(),
            buffers: vec![MeasuredBuffer { kind: BufferKind::Bucket, bytes: Bytes::from_mib(25), count: 3 }],
        };
        record.ranks = vec![rank(0, Some(Outcome::Finished)), rank(1, None)];
        let rows = rank_rows(&record, Some(run.estimate()));
        assert_eq!((rows[0].name.as_str(), rows[0].note.as_deref()), ("rank 0", None));
        assert_eq!(rows[0].figures[0], (Some(peak.allocated), Some(0.0)));
        assert_eq!(rows[1].note.as_deref(), Some("was ended before it was through"));
        assert_eq!(rows[0].exchanged, "buckets 3 × 25.0 MiB");
        // What was not run to its end is beside no estimate, and neither is a processor.
        record.attempts.pop();
        assert_eq!(rank_rows(&record, Some(run.estimate()))[0].figures[0].1, None);
    }
}
