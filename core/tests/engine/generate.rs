//! What encoder-decoders generate. The reference rows say what each byte is; here is what must hold of any length.

use plimsoll_core::estimate::Run;
use plimsoll_core::ledger::Kind;
use plimsoll_core::{Result, Scenario};
use serde_json::{Value, json};

fn scenario(model: &Value, input: &Value) -> Result<Scenario> {
    Scenario::from_value(&json!({
        "model": model,
        "input": input,
        "training": { "mode": "inference", "precision": "bf16" },
        "device": { "gpu": "a100-80gb", "workspaces": false },
    }))
}

fn run(model: &Value, input: &Value) -> Run {
    Run::new(&scenario(model, input).unwrap()).unwrap()
}

fn refusal(model: &Value, input: &Value) -> String {
    scenario(model, input).and_then(|scenario| Run::new(&scenario)).unwrap_err().to_string()
}

/// Bytes of keys and values where the last token is known, after which nothing is allocated.
fn remembered(run: &Run) -> u64 {
    let ledger = run.ledger();
    let last = ledger.events.iter().rposition(|event| !event.is_free()).unwrap();
    ledger.events[..last].iter().fold(0, |alive, event| {
        let storage = &ledger.storages[event.id() as usize];
        match (storage.kind, event.is_free()) {
            (Kind::KeyValue, false) => alive + storage.bytes,
            (Kind::KeyValue, true) => alive - storage.bytes,
            _ => alive,
        }
    })
}

/// What the encoder read is remembered once, and stays as it is; skipped tokens are remembered like any other.
#[test]
fn keys_and_values_are_those_of_the_source_and_of_the_text() {
    let t5 = json!({ "catalog": "t5-small" });
    // 6 layers of 8 heads of 64, keys and values in two bytes, of four samples.
    let per_token = 6 * 2 * 8 * 64 * 2 * 4;
    for (seq, tokens) in [(128, 1), (128, 32), (512, 32), (512, 1500)] {
        let run = run(&t5, &json!({ "batch": 4, "seq": seq, "max_new_tokens": tokens }));
        assert_eq!(remembered(&run), (seq + tokens) * per_token, "{seq}, {tokens}");
    }
    // 4 layers of 6 heads of 64, of 1500 frames.
    let whisper = run(&json!({ "catalog": "whisper-tiny" }), &json!({ "batch": 4, "max_new_tokens": 100 }));
    assert_eq!(remembered(&whisper), 1600 * 4 * 2 * 6 * 64 * 2 * 4);
}

/// The encoder runs before the first token, and belongs to the prefill.
#[test]
fn an_encoder_runs_once() {
    let run = run(&json!({ "catalog": "bart-base" }), &json!({ "seq": 100, "max_new_tokens": 5 }));
    let ledger = run.ledger();
    let encodes = |id: u32| ledger.module(&ledger.storages[id as usize]).starts_with("model.encoder");
    let [decode, next] = [3, 4].map(|phase| ledger.phases[phase].at);
    let (before, after) = ledger.events[..next].split_at(decode);
    assert!(before.iter().any(|e| !e.is_free() && encodes(e.id())));
    assert!(!after.iter().any(|e| !e.is_free() && encodes(e.id())));
    let names: Vec<&str> = run.estimate().phases.iter().map(|p| p.name.as_str()).collect();
    let once = ["input", "prefill", "decode"];
    assert_eq!(names, [&["load"], &once[..], &once[..]].concat(), "and another generation as it");
}

#[test]
fn what_transformers_cannot_generate_is_refused() {
    let t5 = json!({ "hf": { "model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 128, "num_heads": 4,
        "num_layers": 2, "num_decoder_layers": 3, "vocab_size": 300 } });
    assert!(refusal(&t5, &json!({ "seq": 16 })).contains("num_decoder_layers"));
    // One start token, and 448 positions.
    let whisper = json!({ "catalog": "whisper-tiny" });
    assert!(refusal(&whisper, &json!({ "max_new_tokens": 448 })).contains("max_new_tokens"));
    assert!(scenario(&whisper, &json!({ "max_new_tokens": 447 })).is_ok());
    let bart = json!({ "catalog": "bart-base" });
    assert!(refusal(&bart, &json!({ "target_seq": 16 })).contains("target_seq"));
}
