//! A snapshot of PyTorch 2.11 with transformers on a hollow RTX 4090 (`core/snapshot/tests/made/llama.py`; in it folders are renamed
//! and call stacks cut to their innermost frames and the script's), beside the estimate of the same run and of others.
#![allow(clippy::unwrap_used, reason = "a snapshot or scenario that cannot be read fails the test")]

use plimsoll_estimate::{Against, Run};
use plimsoll_scenario::Scenario;
use plimsoll_snapshot::{Course, Snapshot};

const LLAMA: &[u8] = include_bytes!("../../snapshot/tests/made/llama.pickle");

fn against(training: &str) -> Against {
    let snapshot = Snapshot::read(LLAMA).unwrap();
    let course = Course::of(snapshot.busiest().unwrap());
    let scenario = format!(
        r#"{{ "model": {{ "hf": {{ "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1,
            "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1000, "use_cache": false }} }},
            "input": {{ "batch": 2, "seq": 64 }}, "device": {{ "gpu": "rtx-4090" }},
            "training": {{ "precision": "bf16-amp", {training} }} }}"#
    );
    Against::new(&Run::new(&Scenario::from_json(&scenario).unwrap()).unwrap(), &snapshot, &course)
}

#[test]
fn the_estimate_of_the_run_is_equal_request_by_request() {
    let against = against(r#""clip_grad_norm": false"#);
    assert_eq!(against.allocated.estimate, against.allocated.snapshot);
    assert_eq!(against.reserved.estimate, against.reserved.snapshot);
    let step = against.step.unwrap();
    assert_eq!((step.equal, step.differs), (step.snapshot, None));
    assert!(step.snapshot > 150);
    assert_eq!(step.peak.estimate, step.peak.snapshot);
}

#[test]
fn what_the_run_does_otherwise_is_where_they_part() {
    let clipped = against(r#""clip_grad_norm": true"#).step.unwrap().differs.unwrap();
    assert!(clipped.estimate.unwrap().by.starts_with("clip: "));
    assert!(clipped.snapshot.unwrap().by.contains("in _multi_tensor_adam, llama.py:"));
    let plain = against(r#""clip_grad_norm": false, "optimizer": "sgd""#).step.unwrap();
    let differs = plain.differs.unwrap();
    assert!(differs.estimate.is_none(), "plain SGD asks for nothing more: {differs:?}");
    assert_eq!(plain.equal, plain.estimate);
}

#[test]
fn folded_micro_batches_are_not_compared_one_by_one() {
    assert!(against(r#""accumulation": 64"#).step.is_none());
}
