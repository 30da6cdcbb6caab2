//! A module that FSDP1 wraps by itself and that is called twice in a forward (DeBERTa's projections, with peft's wrapping): its
//! gradients are reduced when those of both calls have come, and nothing of them is left to the next micro-batch.
#![allow(clippy::unwrap_used, reason = "a scenario that cannot be read fails the test")]

use plimsoll_ledger::Ledger;
use plimsoll_run::{Repeats, execute_with};
use plimsoll_scenario::Scenario;
use serde_json::json;

fn events(ledger: &Ledger) -> Vec<(bool, u64, String)> {
    let line = |event: &plimsoll_ledger::Event| {
        let storage = &ledger.storages[event.id() as usize];
        let of = format!("{} {} {:?}", ledger.op(storage), ledger.grad_fn(storage), ledger.sizes(storage));
        (event.is_free(), storage.bytes, of)
    };
    ledger.events.iter().map(line).collect()
}

#[test]
fn a_micro_batch_that_is_copied_is_one_that_is_executed() {
    let model = json!({"task": "sequence-classification", "hf": {"model_type": "deberta-v2", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 3, "num_attention_heads": 4, "vocab_size": 300, "max_position_embeddings": 64, "relative_attention": true,
        "pos_att_type": ["c2p", "p2c"], "position_buckets": 16, "norm_rel_ebd": "layer_norm", "share_att_key": true}});
    for checkpointing in ["none", "full"] {
        let scenario = Scenario::from_value(&json!({
            "model": model, "input": {"batch": 2, "seq": 16},
            "training": {"precision": "bf16", "accumulation": 3, "checkpointing": checkpointing,
                "lora": {"rank": 4, "targets": "all-linear"}},
            "parallel": {"gpus": 4, "strategy": "fsdp1", "fsdp": {"wrap": "peft"}},
        }))
        .unwrap();
        let [copied, executed] =
            [Repeats::Copied, Repeats::Executed].map(|repeats| execute_with(&scenario, repeats).unwrap().unwrap());
        assert_eq!(copied.phases, executed.phases, "{checkpointing}");
        assert!(events(&copied) == events(&executed), "{checkpointing}");
    }
}
