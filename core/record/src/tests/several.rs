//! Records of several cards.

use serde_json::json;

use super::*;

/// The example as a run on two cards, of which the second took a little less.
fn several() -> Measurement {
    let mut record = example();
    record.scenario["parallel"] = json!({ "gpus": 2, "strategy": "ddp" });
    record.estimate = None;
    let rank = |rank: u32, less: u64| {
        let lower = |size: Option<Bytes>| size.map(|size| size.saturating_sub(Bytes::new(less)));
        let peak = MeasuredPeak { allocated: lower(record.peak.allocated), ..record.peak.clone() };
        let buffer = MeasuredBuffer { kind: BufferKind::Bucket, bytes: Bytes::from_mib(25), count: 19 };
        let outcome = Some(Outcome::Finished);
        MeasuredRank { rank, device: None, outcome, peak, phases: record.phases.clone(), buffers: vec![buffer] }
    };
    record.ranks = vec![rank(0, 0), rank(1, 4096)];
    record
}

#[test]
fn a_record_of_several_cards_tells_of_every_rank() {
    let record = several();
    assert_eq!(faults(&record), []);
    let text = record.canonical();
    assert_eq!(Measurement::from_json(&text), Ok(record.clone()));
    // A record without ranks is written as it always was.
    assert!(text.contains("\"ranks\"") && !example().canonical().contains("\"ranks\""));
    let refused = |change: &dyn Fn(&mut Measurement)| {
        let mut record = several();
        change(&mut record);
        let mut keys: Vec<String> = faults(&record).into_iter().map(|error| error.key).collect();
        keys.dedup();
        keys
    };
    assert_eq!(refused(&|r| _ = r.ranks.pop()), ["ranks"]);
    assert_eq!(refused(&|r| r.ranks.clear()), [""; 0], "they may be left out");
    assert_eq!(refused(&|r| r.scenario["parallel"] = json!({ "gpus": 4 })), ["ranks"]);
    assert_eq!(refused(&|r| r.ranks.swap(0, 1)), ["ranks[0].rank", "ranks[1].rank"]);
    assert_eq!(refused(&|r| r.ranks[0].peak.allocated = mib(10)), ["peak.allocated"], "the highest is no rank's");
    assert_eq!(refused(&|r| r.ranks[1].peak.reserved = mib(10)), ["ranks[1].peak.allocated"]);
    assert_eq!(
        refused(&|r| r.ranks[1].peak.process_source = Some(ProcessSource::Resident)),
        ["ranks[1].peak.process_source"]
    );
    assert_eq!(
        refused(&|r| r.ranks[1].phases[1].end_allocated = mib(11_000)),
        ["ranks[1].phases[1].peak_allocated", "ranks[1].phases[1].end_reserved"]
    );
    assert_eq!(refused(&|r| r.ranks[1].phases[1].attempt = 7), ["ranks[1].phases[1].attempt"]);
    assert_eq!(refused(&|r| r.ranks[0].buffers[0].count = 0), ["ranks[0].buffers[0]"]);
    assert_eq!(refused(&|r| r.ranks[1].device = Some("/home/zaphod".to_owned())), ["ranks[1].device"]);
    // In a link without the phases of each: what is compared is there.
    let packed = record.packed().unwrap();
    let carried = Measurement::in_link(&format!("#r={packed}")).unwrap().unwrap();
    assert_eq!((carried.ranks.len(), &carried.ranks[1].peak), (2, &record.ranks[1].peak));
}
