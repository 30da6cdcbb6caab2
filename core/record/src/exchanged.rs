//! What a rank exchanges with the others in a step, by the estimate: what is laid beside the buffers that were counted.

use std::collections::BTreeMap;

use plimsoll_estimate::Run;
use plimsoll_ground::Bytes;
use plimsoll_ledger::{Event, Ledger, Storage, Stream};
use plimsoll_scenario::{ParallelStrategy, Scenario};

use super::{BufferKind, MeasuredBuffer};

/// Sizes of each kind, and how many there are.
type Counts = BTreeMap<(BufferKind, u64), u64>;

/// The buckets of the reducer, or what FSDP2 gathers and reduces, in the last step of a run; `None` where the estimate does not
/// tell its buffers apart from other tensors.
pub fn exchanged(scenario: &Scenario, run: &Run) -> Option<Vec<MeasuredBuffer>> {
    let ledger = run.ledger();
    let counts = match scenario.parallel.strategy {
        ParallelStrategy::Ddp => buckets(ledger),
        ParallelStrategy::Fsdp2 => gathered_and_reduced(ledger),
        _ => return None,
    };
    let buffer = |((kind, bytes), count)| MeasuredBuffer { kind, bytes: Bytes::new(bytes), count };
    Some(counts.into_iter().map(buffer).collect())
}

/// What the reducer holds at the end.
fn buckets(ledger: &Ledger) -> Counts {
    let mut alive = vec![false; ledger.storages.len()];
    for event in &ledger.events {
        if let Some(alive) = alive.get_mut(event.id() as usize) {
            *alive = !event.is_free();
        }
    }
    let mut counts = Counts::new();
    for (storage, alive) in ledger.storages.iter().zip(alive) {
        // Beside its buckets the reducer may hold which parameters were used, in integers.
        if alive && ledger.module(storage) == "reducer" && storage.dtype.is_float() {
            *counts.entry((BufferKind::Bucket, storage.bytes)).or_default() += 1;
        }
    }
    counts
}

/// What is gathered outlives what is cast or fetched for it, which goes at once. What is reduced is made on the default stream,
/// what comes of it on another.
fn gathered_and_reduced(ledger: &Ledger) -> Counts {
    let mut counts = Counts::new();
    let last = ledger.phases.iter().filter_map(|phase| phase.step).max();
    for (index, phase) in ledger.phases.iter().enumerate() {
        if phase.step.is_none() || phase.step != last {
            continue;
        }
        let mut count = |kind, bytes| *counts.entry((kind, bytes)).or_default() += ledger.phase_stands_for(index);
        let mut gathering: Vec<u32> = Vec::new();
        for event in ledger.events.get(ledger.phase(index)).unwrap_or_default() {
            let Some(storage) = ledger.storages.get(event.id() as usize) else { continue };
            let module = ledger.module(storage);
            match (module.as_str(), event.is_free()) {
                ("all_gather", false) => gathering.push(event.id()),
                ("all_gather", true) => gathering.retain(|id| *id != event.id()),
                ("reduce_scatter", false) if is_input(ledger, storage, *event) => {
                    count(BufferKind::Reduced, storage.bytes);
                }
                _ => {}
            }
            if module != "all_gather" {
                settle(ledger, &mut gathering, &mut count);
            }
        }
        settle(ledger, &mut gathering, &mut count);
    }
    counts
}

/// Beside what is reduced, the copy into it makes a table of addresses.
fn is_input(ledger: &Ledger, storage: &Storage, event: Event) -> bool {
    event.stream() == Stream::DEFAULT && ledger.op(storage).starts_with("empty")
}

/// What is still there once something else happens was gathered.
fn settle(ledger: &Ledger, gathering: &mut Vec<u32>, count: &mut impl FnMut(BufferKind, u64)) {
    for id in gathering.drain(..) {
        if let Some(storage) = ledger.storages.get(id as usize) {
            count(BufferKind::Gathered, storage.bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A llama of two layers with one key and value for two heads, on two cards.
    fn of(parallel: serde_json::Value, training: serde_json::Value) -> Vec<(&'static str, u64, u64)> {
        let config = json!({
            "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
        });
        let scenario = json!({
            "model": { "hf": config }, "input": { "batch": 2, "seq": 32 }, "training": training, "parallel": parallel,
        });
        let scenario = Scenario::from_value(&scenario).unwrap();
        let buffers = exchanged(&scenario, &Run::new(&scenario).unwrap()).unwrap();
        buffers.into_iter().map(|b| (b.kind.as_str(), b.bytes.get(), b.count)).collect()
    }

    /// 106,816 parameters of four bytes. The real reducer's `bucket_sizes`: `427264`.
    #[test]
    fn ddp_has_buckets() {
        let all = of(json!({ "gpus": 2 }), json!({}));
        assert_eq!(all, [("bucket", 427_264, 1)]);
    }

    /// As counted in two processes: the root gathers once and a layer twice, and all are reduced once.
    #[test]
    fn fsdp2_gathers_and_reduces_by_layer() {
        let wide = of(json!({ "gpus": 2, "strategy": "fsdp2" }), json!({}));
        let layers =
            [("gathered", 131_328, 1), ("gathered", 147_968, 4), ("reduced", 131_328, 1), ("reduced", 147_968, 2)];
        assert_eq!(wide, layers);
        // Cast before they are gathered: the cast shard is none of what is exchanged.
        let policy =
            json!({ "gpus": 2, "strategy": "fsdp2", "fsdp": { "param_dtype": "bf16", "reduce_dtype": "fp32" } });
        let narrow = of(policy, json!({ "precision": "fp32", "accumulation": 2 }));
        let twice =
            [("gathered", 65_664, 2), ("gathered", 73_984, 8), ("reduced", 131_328, 2), ("reduced", 147_968, 4)];
        assert_eq!(narrow, twice);
    }
}
