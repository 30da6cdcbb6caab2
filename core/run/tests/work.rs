//! What is made was written by a kernel: of every op, launches write at least the bytes of the storages that it made.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_ledger::{Kind, Ledger, PhaseName};
use plimsoll_run::execute;
use plimsoll_scenario::Scenario;
use serde_json::{Value, json};

/// Training, its optimizers and what changes how ops run; inference.
fn recipes() -> Vec<Value> {
    vec![
        json!({"precision": "bf16-amp", "accumulation": 2}),
        json!({"precision": "fp16-amp", "attention": "eager", "optimizer_impl": "for-loop", "checkpointing": "full"}),
        json!({"precision": "fp32", "optimizer": "adafactor", "ema": true}),
        json!({"precision": "bf16", "optimizer": "lion", "optimizer_impl": "fused", "zero_grad": "zero"}),
        json!({"precision": "bf16", "optimizer": "adamw-8bit", "label_smoothing": 0.1}),
        json!({"precision": "bf16-amp", "optimizer": "muon", "loss_impl": "fused-linear"}),
        json!({"precision": "bf16", "lora": {"rank": 4, "dora": true, "dropout": 0.1}, "quantization": "nf4-double"}),
        json!({"precision": "bf16", "lora": {"rank": 4, "targets": "all-linear"}, "quantization": "int8"}),
        json!({"mode": "inference", "precision": "bf16"}),
    ]
}

/// Names of ops that wrote less than they made.
fn unwritten(ledger: &Ledger) -> BTreeSet<String> {
    let loaded = ledger.phases.iter().find(|mark| mark.name == PhaseName::Forward).map_or(0, |mark| mark.at);
    let mut made: BTreeMap<&str, u64> = BTreeMap::new();
    for event in ledger.events.iter().skip(loaded).filter(|event| !event.is_free()) {
        let storage = &ledger.storages[event.id() as usize];
        // What libraries and kernels take for themselves is written inside them; what an optimizer or scaler keeps is filled
        // once, before the steps that are looked at.
        let inside = matches!(storage.kind, Kind::Workspace | Kind::Scratch | Kind::Input | Kind::OptimizerState);
        if !inside && !ledger.op(storage).contains("empty") {
            *made.entry(ledger.op(storage)).or_default() += storage.bytes;
        }
    }
    for launch in &ledger.launches {
        if let Some(work) = ledger.work(launch)
            && let Some(left) = made.get_mut(ledger.ops.get(work.op.0))
        {
            *left = left.saturating_sub(work.written);
        }
    }
    made.into_iter().filter(|(_, left)| *left > 0).map(|(op, _)| op.to_owned()).collect()
}

#[test]
fn what_is_made_was_written() {
    let recipes = recipes();
    let mut seen = BTreeSet::new();
    let mut ran = 0;
    let mut wrong: BTreeMap<String, Value> = BTreeMap::new();
    for model in plimsoll_catalog::models().iter().filter(|model| seen.insert(model.model_type)) {
        for recipe in &recipes {
            for input in [json!({"batch": 2, "seq": 64}), json!({"batch": 2})] {
                let scenario = json!({"model": {"catalog": model.id}, "input": input, "training": recipe});
                let ledger = Scenario::from_value(&scenario).and_then(|scenario| execute(&scenario));
                let Ok(ledger) = ledger else { continue };
                for op in unwritten(&ledger) {
                    wrong.entry(op).or_insert_with(|| scenario.clone());
                }
                ran += 1;
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(ran > 150, "{ran}");
}
