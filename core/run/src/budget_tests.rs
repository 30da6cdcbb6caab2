//! What is more than anything trained is given up soon, and says why.

use plimsoll_ledger::{DType, Recorder};
use plimsoll_scenario::Scenario;
use plimsoll_torch::tensor::{Context, Position, Told, ToldShape};

use crate::execute;
use crate::execute::{Card, execute_on, too_much};
use crate::train::Repeats;

fn run(model: &str, training: &str) -> plimsoll_ground::Result<usize> {
    let text = format!(
        r#"{{"model": {{"hf": {model}}}, "input": {{"batch": 1, "seq": 16}}, "training": {{{training}}},
            "device": {{"gpu": "rtx-3090"}}}}"#
    );
    let scenario = Scenario::from_json(&text).unwrap();
    execute(&scenario).map(|ledger| ledger.events.len())
}

#[test]
fn more_layers_than_anything_has_are_an_error_that_says_so() {
    let llama = r#"{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
        "num_hidden_layers": 2048, "vocab_size": 1000}"#;
    let t5 = r#"{"model_type": "t5", "d_model": 64, "d_ff": 128, "d_kv": 16, "num_heads": 4, "num_layers": 2048,
        "num_decoder_layers": 2048, "vocab_size": 1000}"#;
    for (model, training) in [
        (llama, r#""accumulation": 8"#),
        (llama, r#""accumulation": 1048576, "checkpointing": "full""#),
        (llama, r#""accumulation": 8, "lora": {"rank": 4, "targets": "all-linear"}"#),
        (llama, r#""accumulation": 8, "lora": {"rank": 4, "targets": "all-linear"}, "checkpointing": "full""#),
        (llama, r#""accumulation": 8, "optimizer": "muon", "ema": true, "keep_outputs": true"#),
        (t5, r#""accumulation": 8"#),
        (t5, r#""accumulation": 8, "checkpointing": "full""#),
        (t5, r#""accumulation": 8, "precision": "fp16-amp", "keep_outputs": true"#),
    ] {
        let error = run(model, training).unwrap_err();
        assert_eq!(error.key, "model", "{training}: {error}");
        // Modules with adapters weigh more than what they write.
        let over = ["more than 1700000 allocations and frees", "more than 128.0 MiB of memory to follow"];
        assert!(over.iter().any(|over| error.problem.contains(over)), "{training}: {error}");
    }
}

#[test]
fn what_is_large_but_real_is_run() {
    // As Llama 3.1 405B has layers, in the smallest of sizes.
    let llama = r#"{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
        "num_hidden_layers": 126, "vocab_size": 1000}"#;
    let events = run(llama, r#""accumulation": 8, "lora": {"rank": 4, "targets": "all-linear"}"#).unwrap();
    assert!(events > 500_000, "{events}");
}

/// Whatever allocation is the last one: also one within a layer that is being recomputed, or just before.
#[test]
fn a_run_may_end_within_a_recomputation() {
    for layers in [2_040, 2_044, 2_048] {
        let falcon = format!(
            r#"{{"model_type": "falcon", "vocab_size": 50304, "hidden_size": 2048, "num_hidden_layers": {layers},
                "num_attention_heads": 32, "alibi": true, "bias": false, "multi_query": true, "parallel_attn": false,
                "new_decoder_architecture": false, "hidden_dropout": 0.0, "attention_dropout": 0.0}}"#
        );
        let training = r#""precision": "bf16-amp", "accumulation": 8, "checkpointing": "full", "attention": "eager",
            "lora": {"rank": 16}"#;
        assert!(run(&falcon, training).is_err(), "{layers}");
    }
}

#[test]
fn what_would_take_more_memory_than_a_run_may_have_is_an_error_that_says_so() {
    let cx = Context::new();
    assert!(cx.weight() < Recorder::BYTES / 100 && !cx.exhausted());
    // Two million sizes that are all different, as no model has them: the shapes weigh more than the storages.
    let sizes = |n: u64| n..n + 6;
    let told = Told {
        bytes: 0,
        op: Default::default(),
        grad_fn: Default::default(),
        module: Default::default(),
        dtype: DType::Float32,
        shape: &ToldShape::new([]),
        kind: None,
    };
    let mut storages = 0u64;
    while !cx.exhausted() && storages < 2_000_000 {
        drop(cx.told(Told { shape: &ToldShape::new(sizes(storages)), ..told }));
        storages += 1;
    }
    assert!(cx.exhausted() && storages < 1_600_000, "{storages}");
    let scenario = Scenario::from_json(r#"{"model": {"family": "mlp"}}"#).unwrap();
    let error = too_much(&cx, &scenario);
    assert!(error.problem.contains("more than 128.0 MiB of memory to follow"), "{error}");
}

/// What older bitsandbytes keep in their nodes goes with these, which no copy of a layer says.
#[test]
fn a_run_whose_copies_are_none_ends_where_that_is_found() {
    let text = r#"{"model": {"hf": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
        "num_hidden_layers": 40, "vocab_size": 1000}}, "input": {"batch": 1, "seq": 16},
        "training": {"precision": "bf16", "quantization": "nf4", "prepare_kbit": false,
            "lora": {"rank": 4, "targets": "all-linear"}},
        "software": {"bitsandbytes": "0.43.1"}, "device": {"gpu": "rtx-3090"}}"#;
    let scenario = Scenario::from_json(text).unwrap();
    let events = execute(&scenario).unwrap().events.len();
    let cx = Context::new();
    assert!(execute_on(&cx, &scenario, Repeats::Copied, Card::First).unwrap().is_none());
    let written = cx.position().events_since(Position::default());
    assert!(written * 2 < events, "{written} of {events}");
}

/// Its tensors know the run: if it held one when it ended, all of it would stay in memory.
#[test]
fn nothing_is_left_of_a_run_however_it_ends() {
    let llama = |layers: u64| {
        format!(
            r#"{{"model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
                "num_hidden_layers": {layers}, "vocab_size": 1000}}"#
        )
    };
    let parallel = |strategy: &str| format!(r#", "parallel": {{"gpus": 4, "strategy": "{strategy}"}}"#);
    let older = r#""precision": "bf16", "quantization": "nf4", "prepare_kbit": false, "lora": {"rank": 4, "targets": "all-linear"}"#;
    let mut cases = vec![
        (llama(8), String::new(), String::new()),
        (llama(8), r#""checkpointing": "full", "accumulation": 3"#.to_owned(), String::new()),
        (llama(8), r#""keep_outputs": true"#.to_owned(), String::new()),
        (llama(8), r#""mode": "inference""#.to_owned(), String::new()),
        // Too much: while it is built, in its first forward, in its first backward, and later.
        (llama(2048), r#""accumulation": 8, "lora": {"rank": 4, "targets": "all-linear"}"#.to_owned(), String::new()),
        (llama(2048), r#""accumulation": 8, "keep_outputs": true"#.to_owned(), String::new()),
        (llama(2048), r#""accumulation": 8, "checkpointing": "full""#.to_owned(), String::new()),
        (llama(8), older.to_owned(), r#", "software": {"bitsandbytes": "0.43.1"}"#.to_owned()),
    ];
    for strategy in ["ddp", "fsdp2", "fsdp1", "zero-0", "zero-1", "zero-2", "zero-3"] {
        cases.push((llama(4), r#""precision": "fp32""#.to_owned(), parallel(strategy)));
    }
    for (model, training, more) in cases {
        let text = format!(
            r#"{{"model": {{"hf": {model}}}, "input": {{"batch": 1, "seq": 16}}, "training": {{{training}}},
                "device": {{"gpu": "rtx-3090"}}{more}}}"#
        );
        let scenario = Scenario::from_json(&text).unwrap();
        for repeats in [Repeats::Copied, Repeats::Executed] {
            let cx = Context::new();
            drop(execute_on(&cx, &scenario, repeats, Card::First));
            assert_eq!(std::rc::Rc::strong_count(&cx), 1, "{training}{more}, {repeats:?}");
        }
    }
}
