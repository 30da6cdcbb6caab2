//! The same run with two versions: what changed between them, and what it is worth.

use plimsoll_core::estimate::{Holding, Run};
use plimsoll_core::scenario::Scenario;
use serde_json::{Value, json};

/// A Llama with grouped heads: 300 tokens in a vocabulary of 1000, no workspaces.
fn llama(versions: Value, gpu: &str, training: Value) -> Run {
    masked("none", versions, gpu, training)
}

/// The same with such a mask.
fn masked(mask: &str, versions: Value, gpu: &str, training: Value) -> Run {
    let value = json!({
        "model": { "hf": {
            "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
            "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000
        } },
        "input": { "batch": 2, "seq": 150, "attention_mask": mask },
        "training": training,
        "device": { "gpu": gpu, "workspaces": false },
        "software": versions
    });
    let scenario = Scenario::from_value(&value).unwrap_or_else(|e| panic!("{e}: {value}"));
    Run::new(&scenario).unwrap_or_else(|e| panic!("{e}: {value}"))
}

fn torch(version: &str, gpu: &str, training: Value) -> Run {
    llama(json!({ "torch": version }), gpu, training)
}

fn transformers(version: &str, training: Value) -> Run {
    llama(json!({ "transformers": version }), "a100-80gb", training)
}

fn peak(run: &Run) -> u64 {
    run.estimate().peak.requested.get()
}

fn parameters(run: &Run) -> u64 {
    run.estimate().parameters.total
}

/// What the optimizer makes on top of what it leaves.
fn step(run: &Run) -> u64 {
    let mut phases = run.estimate().phases.iter();
    let phase = phases.find(|p| p.name.as_str() == "optimizer").unwrap_or_else(|| panic!("no optimizer"));
    phase.peak_requested.get() - phase.end_requested.get()
}

/// What is alive after the forward of the first step, by op.
fn after_forward(run: &Run) -> Vec<Holding> {
    let phases = &run.estimate().phases;
    assert_eq!(phases[2].name.as_str(), "forward");
    let end = phases[2].end_requested;
    let timeline = run.timeline(usize::MAX / 4);
    let last = timeline.points.iter().rfind(|p| p.phase == 2).unwrap_or_else(|| panic!("no forward"));
    let holdings = run.alive_at(last.event);
    assert_eq!(holdings.iter().map(|h| h.bytes).sum::<plimsoll_core::Bytes>(), end);
    holdings
}

fn ran(run: &Run, op: &str) -> bool {
    after_forward(run).iter().any(|h| h.op.contains(op))
}

/// PyTorch 2.0's foreach AdamW made `denom` a list of its own beside the roots; 2.1 adds to the roots in place.
#[test]
fn adamw_made_two_lists_in_2_0() {
    let of = |version| torch(version, "a100-80gb", json!({ "precision": "fp32", "attention": "eager" }));
    let (old, new) = (of("2.0"), of("2.1"));
    assert_eq!(step(&old) - step(&new), 4 * parameters(&new), "one more copy of the parameters");
}

/// Before 2.0 nobody asked for lists: one parameter after the other; and gradients were zeroed, not let go of.
#[test]
fn torch_1_13_stepped_tensor_by_tensor_and_kept_its_gradients() {
    let (old, new) =
        (torch("1.13", "a100-80gb", json!({})), torch("2.0", "a100-80gb", json!({ "attention": "eager" })));
    let end = |run: &Run| run.estimate().phases.last().unwrap().end_requested.get();
    assert_eq!(end(&old) - end(&new), 4 * parameters(&new), "the gradients stay");
    assert!(old.estimate().scenario["training"]["optimizer_impl"] == "for-loop");
    // Its optimizer needs no copy of all parameters, its largest parameter twice.
    let (table, norm) = (1000 * 256 * 4, 256 * 4);
    assert_eq!(step(&old), 2 * table + norm, "and the one before lives until its name is given away");
    assert_eq!(step(&new), 2 * 4 * parameters(&new));
}

/// Hopper: cuDNN is first since the wheels of 2.11.
#[test]
fn hoppers_attention_is_cudnns_since_2_11() {
    let cudnn = |version| ran(&torch(version, "h200", json!({ "precision": "bf16" })), "cudnn_attention");
    let flash = |version| ran(&torch(version, "h200", json!({ "precision": "bf16" })), "flash_attention");
    assert_eq!(["2.6", "2.8", "2.9", "2.10", "2.11", "2.15"].map(cudnn), [false, false, false, false, true, true]);
    assert_eq!(["2.6", "2.8", "2.9", "2.10", "2.11", "2.15"].map(flash), [true, true, true, true, false, false]);
}

/// A 4090 could not train heads of 128 with flash attention before 2.2.
#[test]
fn flash_2_trains_wide_heads_on_ada() {
    let of = |version| {
        let value = json!({
            "model": { "hf": {
                "model_type": "llama", "hidden_size": 512, "intermediate_size": 512, "num_hidden_layers": 1,
                "num_attention_heads": 4, "vocab_size": 100
            } },
            "input": { "seq": 64 }, "training": { "precision": "bf16" }, "device": { "gpu": "rtx-4090" },
            "software": { "torch": version }
        });
        Run::new(&Scenario::from_value(&value).unwrap()).unwrap()
    };
    assert!(ran(&of("2.1"), "efficient_attention") && ran(&of("2.2"), "flash_attention"));
}

/// float32 with grouped heads kept every score until 2.14 taught the efficient kernel groups.
#[test]
fn float32_with_grouped_heads_keeps_no_scores_since_2_14() {
    let of = |version| torch(version, "a100-80gb", json!({ "precision": "fp32" }));
    let (old, new) = (of("2.13"), of("2.14"));
    let scores = after_forward(&old).into_iter().filter(|h| h.shape.ends_with(&[150, 150]) && h.bytes.get() > 600_000);
    assert!(scores.count() > 0 && ran(&new, "efficient_attention"));
    assert!(after_forward(&new).iter().all(|h| !h.shape.ends_with(&[150, 150])));
}

/// Up to 4.48 the loss made a copy of all logits but each sample's last (`shift_logits`). Half logits were made float32
/// first, in their place up to 4.45; the peak of the forward is all of these beside the log-softmax.
#[test]
fn the_loss_copied_all_logits_before_4_49() {
    let forward =
        |version| transformers(version, json!({ "precision": "bf16" })).estimate().phases[2].peak_requested.get();
    let round = |bytes: u64| bytes.next_multiple_of(512);
    let (all, shifted) = (2 * 150 * 1000, 2 * 149 * 1000);
    // 5.17: half, float32, log-softmax; and the labels, padded by one and shifted.
    let labels = round(8 * 2 * 151) + round(8 * 2 * 150);
    let now = round(2 * all) + 2 * round(4 * all) + labels;
    let before = |half: u64| half + round(4 * all) + 2 * round(4 * shifted) + round(8 * 2 * 149);
    assert_eq!(forward("4.49") + FREQUENCIES, forward("5.17") + attention_copies() + output_copies());
    assert_eq!(forward("4.48") - forward("4.49"), before(round(2 * all)) - now);
    assert_eq!(forward("4.47") - forward("4.45"), round(2 * all), "half logits replaced");
}

/// What 5.17 keeps more: rotary frequencies a second time, as a buffer.
const FREQUENCIES: u64 = 512;

/// What 4.48 to 4.53 keep more than 5.17 in two layers: keys and values for every head.
fn attention_copies() -> u64 {
    2 * 2 * (2 * 2 * 150 * 2 * 64)
}

/// What 4.48 to 4.55 keep more than 5.17 in two layers: contiguous queries make flash attention write its result in their
/// order, and that it is transposed back is a copy.
fn output_copies() -> u64 {
    2 * (2 * 2 * 150 * 256)
}

/// Up to 4.53 keys and values were repeated for every head of the queries, and kept like that.
#[test]
fn grouped_heads_were_repeated_before_4_54() {
    // A mask that hides nothing is dropped; without one those versions make one, for sequences that may be packed.
    let kept = |version| {
        let versions = json!({ "transformers": version });
        let run = masked("ones", versions, "a100-80gb", json!({ "precision": "bf16" }));
        run.estimate().phases[2].end_requested.get()
    };
    assert_eq!(kept("4.53") - kept("4.54"), attention_copies());
    assert_eq!(kept("4.54") + FREQUENCIES, kept("5.17") + output_copies());
    assert_eq!(kept("4.56") + FREQUENCIES, kept("5.17"));
    // And a PyTorch without grouped heads gets them repeated still.
    let old = masked("ones", json!({ "torch": "2.4" }), "a100-80gb", json!({ "precision": "bf16" }));
    assert_eq!(old.estimate().phases[2].end_requested.get() - kept("5.17"), attention_copies());
}

/// cuBLAS' workspaces: Blackwell takes 32 MiB from 2.12 on, and from 2.15 on nothing of it is kept. cuBLASLt's own is
/// kept from 2.9 to 2.11, for the forward's thread, where biases are added.
#[test]
fn cublas_workspaces_moved() {
    let workspace = |version: &str| {
        let value = json!({
            "model": { "catalog": "gpt2" }, "device": { "gpu": "rtx-5090" }, "software": { "torch": version }
        });
        let estimate = Run::new(&Scenario::from_value(&value).unwrap()).unwrap().into_estimate();
        estimate.at_peak.workspace.get()
    };
    let of = |version| workspace(version) - workspace("2.15");
    let lt = 1 << 20;
    assert_eq!([of("2.8"), of("2.11")], [2 * 8_519_680, 2 * 8_519_680 + lt]);
    assert_eq!([of("2.12"), of("2.14")], [64 << 20, 64 << 20]);
}

/// A version nobody has read is estimated all the same, and says so.
#[test]
fn an_unknown_version_warns() {
    let unknown = torch("2.31", "a100-80gb", json!({}));
    assert_eq!(unknown.estimate().scenario["software"]["torch"], "2.31", "as it was asked");
    assert_eq!(unknown.estimate().warnings, ["the rules of torch 2.31 are not known; those of 2.15 are taken"]);
    assert_eq!(peak(&unknown), peak(&torch("2.15", "a100-80gb", json!({}))));
}

/// Since 4.56 a cache puts keys and values behind nothing, which copies them; before, it kept the tensors themselves. In both
/// cases what is kept by outputs that are kept outlives backward.
#[test]
fn a_cache_held_by_the_outputs() {
    let run = |version: &str, use_cache: bool| {
        let training = json!({ "precision": "fp32", "optimizer": "sgd", "keep_outputs": true, "use_cache": use_cache });
        transformers(version, training)
    };
    let after_backward = |run: &Run| {
        let phases = &run.estimate().phases;
        phases.iter().find(|p| p.name.as_str() == "backward").map_or(0, |p| p.end_requested.get())
    };
    // Two layers' keys and values: 2 samples of 150 tokens in 2 heads of 64, 4 bytes each.
    let cache = 2 * 2 * (2 * 150 * 2 * 64 * 4);
    for version in ["4.51", "5.17"] {
        let (with, without) = (run(version, true), run(version, false));
        assert_eq!(after_backward(&with) - after_backward(&without), cache, "{version}");
    }
    let copies = |run: &Run| after_forward(run).iter().filter(|h| h.op == "cat").map(|h| h.bytes.get()).sum::<u64>();
    let made = |version: &str| copies(&run(version, true)) - copies(&run(version, false));
    assert_eq!((made("4.51"), made("5.17")), (0, cache));
}

/// Each of two layers of GPT-2 held its mask of 64 positions until 5.2, and a number until 5.
#[test]
fn buffers_of_gpt2_went_in_two_releases() {
    let loaded = |version: &str| {
        let value = json!({
            "model": { "hf": { "model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 2, "n_positions": 64, "vocab_size": 100 } },
            "input": { "batch": 1, "seq": 16 },
            "device": { "gpu": "a100-80gb", "workspaces": false },
            "software": { "transformers": version }
        });
        let scenario = Scenario::from_value(&value).unwrap_or_else(|e| panic!("{e}: {value}"));
        let run = Run::new(&scenario).unwrap_or_else(|e| panic!("{e}: {value}"));
        run.estimate().phases.first().map_or(0, |load| load.end_requested.get())
    };
    let [old, first, second] = ["4.57", "5.1", "5.2"].map(loaded);
    assert_eq!((old - first, first - second), (2 * 512, 2 * 64 * 64));
}

/// peft put adapters on the experts and the router of a Qwen2-MoE, and none on its shared expert, until 5.4.
#[test]
fn experts_of_qwen2_moe_had_adapters_before_5_5() {
    let adapted = |version: &str| {
        let value = json!({
            "model": { "hf": {
                "model_type": "qwen2_moe", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
                "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1000, "num_experts": 4,
                "num_experts_per_tok": 2, "moe_intermediate_size": 128, "shared_expert_intermediate_size": 64
            } },
            "input": { "batch": 1, "seq": 16 },
            "training": { "lora": { "rank": 4, "targets": "all-linear" } },
            "device": { "gpu": "a100-80gb", "workspaces": false },
            "software": { "transformers": version }
        });
        let scenario = Scenario::from_value(&value).unwrap_or_else(|e| panic!("{e}: {value}"));
        parameters(&Run::new(&scenario).unwrap_or_else(|e| panic!("{e}: {value}")))
    };
    // In each of two layers: two projections of four experts in one tensor, with their ranks together, the other one, and the router.
    let experts = 4 * (8 * (256 + 2 * 128) + 4 * (128 + 256)) + 4 * (256 + 4);
    let shared = 3 * 4 * (256 + 64);
    assert_eq!(adapted("5.4") + 2 * shared, adapted("5.5") + 2 * experts);
}
