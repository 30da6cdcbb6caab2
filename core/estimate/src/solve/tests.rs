//! Every shortcut against the single estimate it stands for.

use std::sync::Arc;

use plimsoll_ground::Bytes;
use plimsoll_scenario::Scenario;
use serde_json::{Value, json};

use super::{EFFORT, Known, NOT_SEARCHED, grid, max_batch};
use crate::{AnyBatch, Envelope, OneBatch, Run, Verdict, estimate, execute};

fn scenario(model: Value, input: Value, training: Value, device: Value) -> Scenario {
    Scenario::from_value(&json!({"model": model, "input": input, "training": training, "device": device})).unwrap()
}

fn llama() -> Value {
    json!({"hf": {"model_type": "llama", "vocab_size": 500, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}})
}

/// Models of every kind: rotary, learned positions, relative positions, experts, images, a window, a graph.
fn models() -> Vec<(Value, Value)> {
    let tokens = |batch: u64| json!({"batch": batch, "seq": 24});
    vec![
        (llama(), tokens(2)),
        (
            json!({"hf": {"model_type": "gpt2", "vocab_size": 300, "n_positions": 64, "n_embd": 48, "n_layer": 2, "n_head": 4}}),
            tokens(2),
        ),
        (
            json!({"hf": {"model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4,
            "vocab_size": 300}}),
            tokens(2),
        ),
        (
            json!({"hf": {"model_type": "qwen3_moe", "vocab_size": 300, "hidden_size": 64, "intermediate_size": 128,
            "moe_intermediate_size": 32, "num_experts": 8, "num_experts_per_tok": 2, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}}),
            tokens(2),
        ),
        (
            json!({"hf": {"model_type": "mistral", "vocab_size": 300, "hidden_size": 64, "intermediate_size": 128,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": 30}}),
            tokens(2),
        ),
        (
            json!({"hf": {"model_type": "bert", "vocab_size": 300, "hidden_size": 64, "intermediate_size": 128,
            "num_hidden_layers": 2, "num_attention_heads": 4}}),
            tokens(2),
        ),
        (json!({"family": "mlp", "d_in": 64, "hidden": 256, "layers": 3}), json!({"batch": 2})),
        (json!({"family": "resnet"}), json!({"batch": 2, "image": 64})),
        (json!({"family": "gat"}), json!({"seq": 40})),
    ]
}

fn recipes() -> [Value; 4] {
    [
        json!({"precision": "bf16-amp"}),
        json!({"precision": "fp32", "optimizer": "sgd"}),
        json!({"precision": "bf16", "accumulation": 2, "optimizer_impl": "fused"}),
        json!({"precision": "fp16-amp", "keep_outputs": true}),
    ]
}

fn with_batch(scenario: &Scenario, batch: u64) -> Scenario {
    super::variant::with_batch(scenario, batch)
}

/// Two traces say what a third would, wherever their streams pair up; and their envelope where it peaks.
#[test]
fn the_envelope_is_the_peak_of_a_run_at_every_batch() {
    let device = json!({"gpu": "a100-80gb"});
    let mut long = 0;
    for (model, input) in models() {
        for recipe in recipes() {
            let asked = scenario(model.clone(), input.clone(), recipe.clone(), device.clone());
            let step = |batch: u64| OneBatch::of(Arc::new(execute(&with_batch(&asked, batch)).unwrap()));
            // Beyond 3,072 tokens an embedding's backward goes another way, with buffers that are no lines; its table
            // has 300 or 500 rows, and all of them occur from some batch on.
            for (low, high, batches) in
                [(2, 41, [2, 3, 7, 8, 40, 41, 57]), (130, 991, [130, 131, 139, 150, 500, 991, 1003])]
            {
                let stream = AnyBatch::between(&step(low), low, &step(high), high);
                let Some(stream) = stream else {
                    assert!(low > 2, "{model} {recipe} {low} {high}");
                    continue;
                };
                long += usize::from(low > 2);
                let envelope = Envelope::new(&stream, low, 1003);
                for batch in batches {
                    let run = Run::new(&with_batch(&asked, batch)).unwrap();
                    // Beyond the two an op may go another way (sorting more than fits one tile), and says so.
                    if batch > high && !stream.is_of(run.ledger(), batch) {
                        continue;
                    }
                    assert!(stream.is_of(run.ledger(), batch), "{model} {recipe} {batch}");
                    let peak = envelope.at(batch);
                    assert_eq!(peak.bytes, run.estimate().peak.requested, "{model} {recipe} {batch}");
                    assert_eq!(peak.event as u32 + 1, run.peak_event(), "{model} {recipe} {batch}");
                }
            }
        }
    }
    // Where few rows take many tokens each, some models change their way within the long range.
    assert!(long > 15, "{long} long ranges pair up");
}

/// Stretches cover the range without gaps, and within one the peak grows as it says, up to the rounding of each storage.
#[test]
fn stretches_say_what_a_sample_adds() {
    let asked = scenario(llama(), json!({"batch": 2, "seq": 24}), json!({"precision": "bf16-amp"}), json!({}));
    let step = |batch: u64| OneBatch::of(Arc::new(execute(&with_batch(&asked, batch)).unwrap()));
    let stream = AnyBatch::between(&step(2), 2, &step(9), 9).unwrap();
    let envelope = Envelope::new(&stream, 2, 120);
    let stretches = envelope.stretches();
    assert!(stretches.len() > 1, "the optimizer's peak gives way to the backward's: {stretches:?}");
    assert_eq!((stretches[0].from, stretches.last().map(|s| s.to)), (2, Some(120)));
    assert!(stretches.windows(2).all(|w| w[0].to + 1 == w[1].from && w[0].per_sample <= w[1].per_sample));
    for stretch in stretches {
        let grown = envelope.at(stretch.to).bytes.get() as i64 - envelope.at(stretch.from).bytes.get() as i64;
        let said = stretch.per_sample.get() as i64 * (stretch.to - stretch.from) as i64;
        assert!((grown - said).abs() < 512 * 200, "{stretch:?} {grown} {said}");
    }
}

/// Every cell of a grid is the estimate one would get for it alone: peak, verdict, live memory.
#[test]
fn a_cell_is_the_single_estimate() {
    let (batches, seqs) = ([1, 2, 3, 5, 8, 13, 21], [7, 16, 24, 33, 48]);
    for (model, input) in models() {
        let tokens = input.get("seq").is_some();
        for (recipe, memory) in recipes().into_iter().zip(["330 MiB", "480 MiB", "600 MiB", "1 GiB"]) {
            let device = json!({"gpu": "rtx-5070-ti-laptop", "memory": memory});
            let asked = scenario(model.clone(), input.clone(), recipe.clone(), device);
            let found = grid(&asked, &batches, if tokens { &seqs } else { &[] }, EFFORT).unwrap();
            assert_eq!(found.rows.len(), if tokens { seqs.len() } else { 1 });
            for row in &found.rows {
                assert_eq!(row.cells.len(), batches.len());
                for cell in &row.cells {
                    let single = super::variant::with_sizes(&asked, cell.batch, row.seq).unwrap();
                    let run = Run::new(&single).unwrap();
                    let estimate = run.estimate();
                    assert_eq!(cell.known, Known::Exact);
                    let place = format!("{model} {recipe} {} x {:?}", cell.batch, row.seq);
                    assert_eq!(cell.requested, estimate.peak.requested, "{place}");
                    assert_eq!((cell.process, cell.verdict), (estimate.peak.process, estimate.verdict), "{place}");
                }
            }
        }
    }
}

/// One token's attention is not cuDNN's, two tokens' is on a card that prefers it: rows load other libraries.
#[test]
fn a_row_stands_on_what_its_own_kernels_load() {
    let device = json!({"gpu": "h200", "memory": "780337152 B"});
    let asked = scenario(llama(), json!({"batch": 1, "seq": 1}), json!({"precision": "bf16-amp"}), device);
    let found = grid(&asked, &[1, 2, 3], &[1, 2, 3], EFFORT).unwrap();
    let process = |row: &super::Row, cell: &super::Cell| {
        let single = Run::new(&super::variant::with_sizes(&asked, cell.batch, row.seq).unwrap()).unwrap();
        assert_eq!(cell.process, single.estimate().peak.process, "{} x {:?}", cell.batch, row.seq);
        cell.process - single.estimate().peak.reserved
    };
    let contexts: Vec<Bytes> = found.rows.iter().map(|row| process(row, &row.cells[0])).collect();
    assert!(contexts[0] < contexts[1], "{contexts:?}");
    assert_eq!(contexts[1], contexts[2]);
    for row in &found.rows {
        for cell in &row.cells {
            process(row, cell);
        }
    }
}

/// Many lengths share a polynomial; it must say what a trace would, past a sliding window and off the multiples too.
#[test]
fn a_row_that_was_not_traced_is_as_if_it_were() {
    let mut seqs: Vec<u64> = (1..=16).map(|i| i * 64).collect();
    seqs.extend([500, 999]);
    // From 512 tokens to 27,000: an embedding's backward changes its way within the rows.
    let batches = [1, 2, 5, 9, 27];
    for (model, _) in models().into_iter().filter(|(_, input)| input.get("seq").is_some()) {
        let mut model = model;
        let graph = model["family"] == "gat";
        if !graph {
            for (key, value) in [("sliding_window", 300), ("n_positions", 2000), ("max_position_embeddings", 2000)] {
                if model["hf"].get(key).is_some() || key == "max_position_embeddings" {
                    model["hf"][key] = value.into();
                }
            }
        }
        for (attention, mask) in [("sdpa", "none"), ("eager", "none"), ("sdpa", "padded")] {
            if graph && (attention, mask) != ("sdpa", "none") {
                continue;
            }
            let training = json!({"precision": "bf16-amp", "attention": attention});
            let input = json!({"batch": 2, "seq": 64, "attention_mask": mask});
            let asked = scenario(model.clone(), input, training, json!({"gpu": "a100-80gb"}));
            let found = grid(&asked, &batches, &seqs, 0).unwrap();
            assert_eq!(found.rows.len(), seqs.len());
            for cell in found.rows.iter().flat_map(|row| row.cells.iter().map(|cell| (row.seq, cell))) {
                let single = super::variant::with_sizes(&asked, cell.1.batch, cell.0).unwrap();
                let run = Run::new(&single).unwrap();
                let place = format!("{model} {attention} {mask} {} x {:?}", cell.1.batch, cell.0);
                assert_eq!(cell.1.requested, run.estimate().peak.requested, "{place}");
            }
        }
    }
}

/// With no replays at all, what is said to be certain is; with one for each open cell, every verdict is right.
#[test]
fn without_replays_what_is_certain_stays_certain() {
    let device = json!({"gpu": "rtx-5070-ti-laptop", "memory": "400 MiB"});
    let asked = scenario(llama(), json!({"batch": 2, "seq": 24}), json!({"precision": "bf16-amp"}), device);
    let batches: Vec<u64> = (1..80).collect();
    let (quick, exact) =
        (grid(&asked, &batches, &[64, 256], 0).unwrap(), grid(&asked, &batches, &[64, 256], u64::MAX).unwrap());
    let pairs = || quick.rows.iter().flat_map(|r| &r.cells).zip(exact.rows.iter().flat_map(|r| &r.cells));
    assert!(
        pairs().any(|(cell, _)| cell.known == Known::AtLeast) && pairs().any(|(cell, _)| cell.known == Known::Near)
    );
    for (cell, truth) in pairs() {
        assert_eq!((cell.requested, truth.known), (truth.requested, Known::Exact));
        if cell.known == Known::AtLeast {
            assert_eq!(truth.verdict, Verdict::DoesNotFit);
            assert!(cell.process <= truth.process, "it takes more than the least it could");
        }
    }
    let events = execute(&asked).unwrap().events.len() as u64;
    let open = pairs().filter(|(cell, _)| cell.known == Known::Near).count() as u64;
    let some = grid(&asked, &batches, &[64, 256], events * open).unwrap();
    for (cell, truth) in some.rows.iter().flat_map(|r| &r.cells).zip(exact.rows.iter().flat_map(|r| &r.cells)) {
        assert_eq!(cell.verdict, truth.verdict);
    }
}

/// A row may be refused and the others stand; a question that makes no sense is refused as a whole.
#[test]
fn what_cannot_be_estimated_says_so() {
    let gpt2 = json!({"hf": {"model_type": "gpt2", "vocab_size": 300, "n_positions": 64, "n_embd": 48, "n_layer": 1, "n_head": 4}});
    let asked = scenario(gpt2, json!({"batch": 1, "seq": 32}), json!({}), json!({}));
    let found = grid(&asked, &[1, 2], &[32, 65], EFFORT).unwrap();
    assert!(found.rows[0].refused.is_none() && found.rows[0].cells.len() == 2);
    assert!(found.rows[1].refused.as_ref().is_some_and(|why| why.contains("64 positions")), "{:?}", found.rows[1]);
    assert_eq!(grid(&asked, &[1], &[65], EFFORT).unwrap_err().key, "input.seq");
    assert_eq!(grid(&asked, &[], &[32], EFFORT).unwrap_err().key, "grid");
    assert_eq!(grid(&asked, &[0, 1], &[32], EFFORT).unwrap_err().key, "input.batch");
    let many: Vec<u64> = (1..200).collect();
    assert_eq!(grid(&asked, &many, &many, EFFORT).unwrap_err().key, "grid");
    let mlp = scenario(json!({"family": "mlp"}), json!({"batch": 1}), json!({}), json!({}));
    assert_eq!(grid(&mlp, &[1], &[32], EFFORT).unwrap_err().key, "input.seq");
    assert_eq!(grid(&mlp, &[4, 1, 4], &[], EFFORT).unwrap().batches, [1, 4], "in order, each once");
}

/// No batch above the answer fits, islands included: found by trying them all.
#[test]
fn the_largest_batch_is_the_largest() {
    for (recipe, memory) in recipes().into_iter().zip(["500 MiB", "400 MiB", "700 MiB", "600 MiB"]) {
        let device = json!({"gpu": "rtx-5070-ti-laptop", "memory": memory});
        let asked = scenario(llama(), json!({"batch": 1, "seq": 512}), recipe.clone(), device);
        let fits = |batch: u64| Run::new(&with_batch(&asked, batch)).unwrap().estimate().verdict == Verdict::Fits;
        let answer = max_batch(&asked).unwrap();
        assert!(answer > 2 && fits(answer), "{recipe} {answer}");
        assert!((answer + 1..answer * 2).all(|batch| !fits(batch)), "{recipe} {answer}");
    }
}

/// A generation does something else at nearly every batch: there is no stream to go by, and each is run.
#[test]
fn the_largest_batch_of_a_generation_is_found() {
    let input = json!({"batch": 1, "seq": 64, "max_new_tokens": 100});
    let recipe = json!({"mode": "inference", "precision": "bf16"});
    let device = json!({"gpu": "rtx-5070-ti-laptop", "memory": "700 MiB"});
    let asked = scenario(llama(), input, recipe, device);
    let fits = |batch: u64| Run::new(&with_batch(&asked, batch)).unwrap().estimate().verdict == Verdict::Fits;
    let answer = max_batch(&asked).unwrap();
    assert!(answer > 2 && fits(answer) && !fits(answer + 1), "{answer}");
}

/// A graph is one sample however large the batch is said to be.
#[test]
fn a_graph_has_no_larger_batch() {
    let asked = scenario(json!({"family": "gat"}), json!({"seq": 40}), json!({}), json!({"gpu": "a100-80gb"}));
    assert_eq!(max_batch(&asked).unwrap(), 1);
    assert!(grid(&asked, &[1, 2], &[40], EFFORT).unwrap().rows[0].cells.iter().all(|c| c.process > Bytes::ZERO));
}

#[test]
fn a_search_that_costs_too_much_is_given_up_and_the_estimate_stays() {
    let text = r#"{"model": {"hf": {"model_type": "llama", "hidden_size": 64, "intermediate_size": 128,
        "num_attention_heads": 4, "num_hidden_layers": 2048, "vocab_size": 1000}}, "input": {"batch": 1, "seq": 16},
        "device": {"gpu": "rtx-3090"}}"#;
    let scenario = Scenario::from_json(text).unwrap();
    let error = max_batch(&scenario).unwrap_err();
    assert_eq!(error.key, NOT_SEARCHED, "{error}");
    let estimate = estimate(&scenario).unwrap();
    assert_eq!(estimate.max_batch, None);
    assert!(estimate.warnings.iter().any(|warning| warning.starts_with("the largest batch is not searched")));
}
