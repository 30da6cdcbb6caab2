//! The answer adds up: breakdown, timeline, holdings, phases, the largest batch.

use plimsoll_ground::{Bytes, Reason};
use plimsoll_scenario::Scenario;
use serde_json::{Value, json};

use super::{Category, Estimate, Phase, PhaseName, Run, Timeline, Verdict, estimate, max_batch};

fn llama() -> Value {
    json!({"hf": {"model_type": "llama", "vocab_size": 500, "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2}})
}

fn scenario(model: Value, batch: u64, training: Value, device: Value) -> Scenario {
    let tokens = !matches!(model["family"].as_str(), Some("mlp" | "nbeats"));
    let input = if tokens { json!({"batch": batch, "seq": 32}) } else { json!({"batch": batch}) };
    Scenario::from_value(&json!({"model": model, "input": input, "training": training, "device": device})).unwrap()
}

fn run(training: Value) -> Run {
    Run::new(&scenario(llama(), 2, training, json!({"gpu": "a100-80gb"}))).unwrap()
}

/// Recipes that differ in what is alive at the peak.
fn recipes() -> Vec<Value> {
    vec![
        json!({"precision": "fp32"}),
        json!({"precision": "bf16-amp", "attention": "eager"}),
        json!({"precision": "fp16-amp", "accumulation": 3, "optimizer_impl": "fused"}),
        json!({"precision": "bf16", "checkpointing": "full", "zero_grad": "zero"}),
        json!({"precision": "bf16-amp", "lora": {"rank": 4, "targets": "all-linear", "dropout": 0.1}}),
        json!({"precision": "fp32", "optimizer": "adafactor", "optimizer_impl": "for-loop", "keep_outputs": true}),
    ]
}

#[test]
fn the_breakdown_sums_to_the_requested_peak() {
    for recipe in recipes() {
        let run = run(recipe.clone());
        let estimate = run.estimate();
        assert_eq!(estimate.at_peak.total(), estimate.peak.requested, "{recipe}");
        let highest = estimate.phases.iter().map(|p| p.peak_requested).max();
        assert_eq!(highest, Some(estimate.peak.requested), "{recipe}");
    }
}

/// `requested` is a lower bound of `allocated` (a block's rest counts), `allocated` of `reserved`, that of the process.
#[test]
fn the_four_peaks_stand_in_order() {
    for recipe in recipes() {
        let run = run(recipe.clone());
        let peak = &run.estimate().peak;
        assert!(peak.requested <= peak.allocated && peak.allocated <= peak.reserved, "{recipe} {peak:?}");
        assert!(peak.reserved < peak.process, "the context is never free: {peak:?}");
        for phase in &run.estimate().phases {
            assert!(phase.end_requested <= phase.peak_requested, "{phase:?}");
            assert!(
                phase.end_requested <= phase.end_allocated && phase.end_allocated <= phase.end_reserved,
                "{phase:?}"
            );
            assert!(phase.end_allocated <= phase.peak_allocated && phase.end_reserved <= phase.peak_reserved);
            assert!(phase.peak_requested <= phase.peak_allocated && phase.peak_allocated <= phase.peak_reserved);
        }
        let highest = |of: fn(&Phase) -> Bytes| run.estimate().phases.iter().map(of).max();
        assert_eq!(highest(|p| p.peak_allocated), Some(peak.allocated));
        assert_eq!(highest(|p| p.peak_reserved), Some(peak.reserved));
    }
}

/// Every point of the timeline is what the ledger holds there: its categories, its holdings, its phase.
#[test]
fn timeline_points_are_what_is_alive_there() {
    for recipe in recipes() {
        let run = run(recipe);
        let timeline = run.timeline(60);
        assert!(timeline.points.len() >= run.estimate().phases.len() - 1);
        assert!(timeline.points.is_sorted_by_key(|p| p.event), "in order");
        for point in &timeline.points {
            let holdings = run.alive_at(point.event);
            let sum: Bytes = holdings.iter().map(|h| h.bytes).sum();
            assert_eq!(sum, point.live.total());
            for category in Category::ALL {
                let of: Bytes = holdings.iter().filter(|h| h.category == category).map(|h| h.bytes).sum();
                assert_eq!(of, point.live.get(category), "{category:?} at {}", point.event);
            }
            assert!(holdings.is_sorted_by_key(|h| std::cmp::Reverse(h.bytes)), "largest first");
        }
        let peak = &timeline.points[timeline.peak];
        assert_eq!(peak.live, run.estimate().at_peak);
        assert_eq!((peak.event, peak.live.total()), (run.peak_event(), run.estimate().peak.requested));
    }
}

/// A part of the stream that is looked at closely has every event, and what the whole says of the same moments.
#[test]
fn a_stretch_has_every_event_of_its_own() {
    let run = run(json!({"precision": "bf16-amp"}));
    let whole = run.timeline(100_000);
    let last = run.ledger().events.len() as u32;
    assert_eq!(run.stretch(0, u32::MAX, 100_000).points.len(), last as usize);
    for (from, to) in
        [(0, 40), (17, 18), (last / 2, last / 2 + 200), (last - 5, last), (run.peak_event() - 1, run.peak_event())]
    {
        let part = run.stretch(from, to, 400);
        assert_eq!(part.points.iter().map(|p| p.event).collect::<Vec<_>>(), (from + 1..=to).collect::<Vec<_>>());
        for point in &part.points {
            let holdings: Bytes = run.alive_at(point.event).iter().map(|h| h.bytes).sum();
            assert_eq!(holdings, point.live.total());
        }
        for same in whole.points.iter().filter(|p| p.event > from && p.event <= to) {
            assert!(part.points.contains(same), "{same:?}");
        }
        let highest = part.points.iter().map(|p| p.live.total()).max();
        assert_eq!(Some(part.points[part.peak].live.total()), highest);
    }
    // Fewer points than events: the highest and the lowest are there still.
    let (coarse, fine) = (run.stretch(10, last - 10, 50), run.stretch(10, last - 10, 100_000));
    let ends = |t: &Timeline| {
        let totals = t.points.iter().map(|p| p.live.total());
        (totals.clone().min(), totals.max())
    };
    assert!(coarse.points.len() < 120 && ends(&coarse) == ends(&fine));
    assert!(run.stretch(5, 5, 100).points.is_empty() && run.stretch(9, 3, 100).points.is_empty());
}

/// However few points are asked for, the peak is one of them, and every phase ends in one.
#[test]
fn a_coarse_timeline_keeps_the_peak_and_the_phases() {
    let run = run(json!({"precision": "bf16-amp"}));
    for points in [1, 2, 10, 100, 100_000] {
        let timeline = run.timeline(points);
        assert_eq!(timeline.points[timeline.peak].live.total(), run.estimate().peak.requested, "{points}");
        for (index, phase) in run.estimate().phases.iter().enumerate() {
            if let Some(last) = timeline.points.iter().rfind(|p| p.phase as usize == index) {
                assert_eq!(last.live.total(), phase.end_requested, "{points} {phase:?}");
            }
        }
        let highest = timeline.points.iter().map(|p| p.live.total()).max();
        assert_eq!(highest, Some(run.estimate().peak.requested));
    }
}

#[test]
fn before_the_first_event_nothing_is_alive() {
    let run = run(json!({}));
    assert!(run.alive_at(0).is_empty());
    let weights = run.alive_at(1);
    assert_eq!((weights.len(), weights[0].category, weights[0].count), (1, Category::Weights, 1));
}

/// Equal layers are one group: `model.layers.*`.
#[test]
fn holdings_group_equal_layers() {
    let run = run(json!({"precision": "fp32"}));
    let holdings = run.alive_at(run.peak_event());
    let q = holdings.iter().find(|h| h.module == "model.layers.*.self_attn.q_proj" && h.category == Category::Weights);
    assert_eq!(q.map(|h| (h.count, h.shape.clone(), h.bytes)), Some((2, vec![64, 64], Bytes::new(2 * 64 * 64 * 4))));
}

fn names(phases: &[Phase]) -> Vec<String> {
    phases
        .iter()
        .map(|p| match (p.step, p.micro_batch) {
            (Some(step), Some(micro)) => format!("{}@{step}.{micro}", p.name.as_str()),
            (Some(step), None) => format!("{}@{step}", p.name.as_str()),
            _ => p.name.as_str().to_owned(),
        })
        .collect()
}

/// The loop of the contract: load, then twice [input, forward, backward] x accumulation, clip, optimizer, zero_grad.
#[test]
fn phases_stand_in_the_order_of_the_loop() {
    assert_eq!(
        names(&run(json!({})).estimate().phases),
        [
            "load",
            "input@1.1",
            "forward@1.1",
            "backward@1.1",
            "clip@1",
            "optimizer@1",
            "zero_grad@1",
            "input@2.1",
            "forward@2.1",
            "backward@2.1",
            "clip@2",
            "optimizer@2",
            "zero_grad@2"
        ]
    );
    let three = run(json!({"accumulation": 3}));
    assert_eq!(
        names(&three.estimate().phases)[..13],
        [
            "load",
            "input@1.1",
            "forward@1.1",
            "backward@1.1",
            "input@1.2",
            "forward@1.2",
            "backward@1.2",
            "input@1.3",
            "forward@1.3",
            "backward@1.3",
            "clip@1",
            "optimizer@1",
            "zero_grad@1"
        ]
    );
}

/// `zero_grad_at = "before-backward"`: between the first micro-batch's forward and its backward, and only there.
#[test]
fn zero_grad_may_stand_before_the_backward() {
    let run = run(json!({"accumulation": 2, "zero_grad_at": "before-backward"}));
    assert_eq!(
        names(&run.estimate().phases)[..11],
        [
            "load",
            "input@1.1",
            "forward@1.1",
            "zero_grad@1",
            "backward@1.1",
            "input@1.2",
            "forward@1.2",
            "backward@1.2",
            "clip@1",
            "optimizer@1",
            "input@2.1"
        ]
    );
}

fn end(estimate: &Estimate, name: PhaseName, step: u32, micro_batch: Option<u64>) -> u64 {
    let phase = estimate
        .phases
        .iter()
        .find(|p| p.name == name && p.step == Some(step) && (micro_batch.is_none() || p.micro_batch == micro_batch));
    phase.unwrap().end_requested.get()
}

/// What is alive between the steps: weights, state and the last batch; with `zero` the gradients too.
#[test]
fn zeroed_gradients_stay_and_dropped_ones_go() {
    let after = |zero_grad: &str| {
        let run = run(json!({"precision": "fp32", "zero_grad": zero_grad, "optimizer": "sgd"}));
        end(run.estimate(), PhaseName::ZeroGrad, 1, None)
    };
    // All but the rotary frequencies, which are buffers of 8 numbers.
    let weights: u64 = run(json!({"optimizer": "sgd"}))
        .alive_at(u32::MAX)
        .iter()
        .filter(|h| h.category == Category::Weights && h.op == "empty_strided" && h.shape != [8])
        .map(|h| h.bytes.get())
        .sum();
    assert_eq!(after("zero") - after("set-to-none"), weights);
}

/// With the reset before the backward, the last step's gradients live through the next forward.
#[test]
fn a_late_reset_keeps_gradients_through_the_forward() {
    let forward = |at: &str| {
        let run = run(json!({"precision": "fp32", "zero_grad_at": at}));
        (end(run.estimate(), PhaseName::Forward, 1, None), end(run.estimate(), PhaseName::Forward, 2, None))
    };
    let (late, early) = (forward("before-backward"), forward("after-step"));
    assert_eq!(late.0, early.0, "in the first step there are none yet");
    assert!(late.1 > early.1);
}

/// A loop that holds the outputs holds the logits through the backward.
#[test]
fn kept_outputs_hold_the_logits() {
    let ends = |keep: bool| {
        let run = run(json!({"precision": "bf16", "keep_outputs": keep}));
        end(run.estimate(), PhaseName::Forward, 1, None)
    };
    // 2 x 32 tokens, 500 logits, 2 bytes, rounded up to 512.
    assert_eq!(ends(true) - ends(false), (2u64 * 32 * 500 * 2).div_ceil(512) * 512);
}

/// From the second micro-batch on nothing changes, so a long accumulation is not run to its end.
#[test]
fn a_long_accumulation_peaks_as_a_short_one() {
    let peak = |n: u64| run(json!({"accumulation": n})).estimate().peak.clone();
    let (short, long) = (peak(8), peak(1000));
    assert_eq!((short.requested, short.allocated, short.reserved), (long.requested, long.allocated, long.reserved));
    assert!(run(json!({"accumulation": 1000})).estimate().phases.len() < 50);
}

/// Exact: the answer fits and one sample more does not, over cards and recipes that end in different places.
#[test]
fn the_largest_batch_fits_and_one_more_does_not() {
    let nanogpt =
        json!({"family": "nanogpt", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 500, "block_size": 64});
    let mlp = json!({"family": "mlp", "d_in": 64, "hidden": 256, "layers": 3});
    for (model, training, memory) in [
        (llama(), json!({"precision": "bf16-amp"}), "2 GiB"),
        (llama(), json!({"precision": "fp32", "attention": "eager"}), "2 GiB"),
        (llama(), json!({"precision": "bf16", "checkpointing": "full", "accumulation": 2}), "1500 MiB"),
        (nanogpt, json!({"precision": "fp16-amp"}), "2 GiB"),
        (mlp, json!({"precision": "fp32"}), "1 GiB"),
    ] {
        let device = json!({"gpu": "rtx-5070-ti-laptop", "memory": memory});
        let asked = scenario(model.clone(), 1, training.clone(), device.clone());
        let verdict = |batch: u64| {
            Run::new(&scenario(model.clone(), batch, training.clone(), device.clone())).unwrap().estimate().verdict
        };
        let answer = max_batch(&asked).unwrap();
        assert!(answer > 1, "{training} finds room");
        assert_eq!(verdict(answer), Verdict::Fits, "{training} {answer}");
        assert_ne!(verdict(answer + 1), Verdict::Fits, "{training} {answer}");
        // It does not depend on the batch that was asked about.
        let other = scenario(model.clone(), 7, training.clone(), device.clone());
        assert_eq!(max_batch(&other).unwrap(), answer);
        assert_eq!(estimate(&asked).unwrap().max_batch, Some(answer));
    }
}

#[test]
fn nothing_fits_a_card_that_is_full_already() {
    let device = json!({"gpu": "rtx-5070-ti-laptop", "memory": "100 MiB"});
    assert_eq!(max_batch(&scenario(llama(), 1, json!({}), device)).unwrap(), 0);
}

/// A verdict follows from the peak: fits up to the line, tight up to the capacity, then does not fit.
#[test]
fn verdicts_follow_the_process_peak() {
    let needed = run(json!({})).estimate().peak.process;
    let verdict = |memory: Bytes, line: Bytes| {
        let device = json!({"gpu": "a100-80gb", "memory": memory.get(), "load_line": line.get()});
        let run = Run::new(&scenario(llama(), 2, json!({}), device)).unwrap();
        (run.estimate().verdict, run.estimate().headroom)
    };
    let mib = Bytes::from_mib(1);
    assert_eq!(verdict(needed, needed), (Verdict::Fits, 0));
    assert_eq!(verdict(needed + mib, needed - mib), (Verdict::Tight, -(1 << 20)));
    let (small, _) = verdict(needed - Bytes::from_mib(20), needed - Bytes::from_mib(20));
    assert_eq!(small, Verdict::DoesNotFit);
}

/// Workspaces are counted unless the scenario says otherwise, and stand in their own category.
#[test]
fn workspaces_are_counted_on_request() {
    let with = |workspaces: bool| {
        let device = json!({"gpu": "a100-80gb", "workspaces": workspaces});
        let run = Run::new(&scenario(llama(), 2, json!({}), device)).unwrap();
        (run.estimate().at_peak.workspace, run.estimate().peak.requested)
    };
    let (counted, uncounted) = (with(true), with(false));
    assert_eq!(uncounted.0, Bytes::ZERO);
    assert!(counted.0 > Bytes::ZERO && counted.1 > uncounted.1);
}

/// Every byte has an owner: the layers sum to the peak, and with what lies beyond to the process.
#[test]
fn the_explanation_sums_to_the_peak_and_to_the_process() {
    for recipe in recipes() {
        let run = run(recipe.clone());
        let (estimate, explanation) = (run.estimate(), run.explain());
        assert_eq!(explanation.requested, estimate.peak.requested, "{recipe}");
        assert_eq!(explanation.layers.iter().map(|l| l.bytes).sum::<Bytes>(), estimate.peak.requested, "{recipe}");
        let holdings = || explanation.layers.iter().flat_map(|l| &l.holdings);
        for category in Category::ALL {
            let of: Bytes = holdings().filter(|h| h.category == category).map(|h| h.bytes).sum();
            assert_eq!(of, estimate.at_peak.get(category), "{recipe} {category:?}");
        }
        let asked: u64 = holdings().map(|h| h.count * h.shape.iter().product::<u64>() * bytes_of(&h.dtype)).sum();
        let beyond = explanation.beyond;
        assert_eq!(Bytes::new(asked) + beyond.rounding, estimate.peak.requested, "{recipe}");
        let process =
            estimate.peak.requested + beyond.unsplit + beyond.cached + beyond.reserved_elsewhere + beyond.context;
        assert_eq!(process, estimate.peak.process, "{recipe}");
        let allocated = estimate.peak.requested + beyond.unsplit + beyond.allocated_elsewhere;
        assert_eq!(allocated, estimate.peak.allocated, "{recipe}");
    }
}

fn bytes_of(dtype: &str) -> u64 {
    match dtype {
        "float32" | "int32" => 4,
        "float16" | "bfloat16" => 2,
        "int64" | "uint64" => 8,
        _ => 1,
    }
}

/// Layers stand in the model's order, equal layers hold the same, and the optimizer's states stand with the parameters
/// they belong to.
#[test]
fn the_explanation_goes_layer_by_layer() {
    let run = run(json!({"precision": "fp32", "optimizer_impl": "fused"}));
    let layers = run.explain().layers;
    let names: Vec<&str> = layers.iter().map(|l| l.name.as_str()).filter(|n| n.starts_with("model.layers")).collect();
    assert_eq!(names, ["model.layers.0", "model.layers.1"]);
    let layer = |name: &str| layers.iter().find(|l| l.name == name).unwrap();
    let of = |name: &str, category: Category| -> u64 {
        layer(name).holdings.iter().filter(|h| h.category == category).map(|h| h.bytes.get()).sum()
    };
    let (first, second) = ("model.layers.0", "model.layers.1");
    assert_eq!(of(first, Category::Weights), of(second, Category::Weights));
    assert_eq!(of(first, Category::OptimizerStates), of(second, Category::OptimizerStates));
    // Two moments in float32, and a step counter of 4 bytes in 512 for each of nine parameters.
    assert_eq!(of(first, Category::OptimizerStates), 2 * of(first, Category::Weights) + 9 * 512);
    let q = layer(first).holdings.iter().find(|h| h.module.ends_with("q_proj") && h.op == "zeros_like").unwrap();
    assert_eq!((q.count, q.shape.as_slice(), q.category), (2, [64, 64].as_slice(), Category::OptimizerStates));
}

/// A mask comes back from the machine's memory without the room behind its rows, and a checkpoint's comes back in another order.
#[test]
fn what_pytorch_cannot_bring_back_is_refused() {
    let asked = |model: Value, seq: u64, training: Value| {
        let value = json!({"model": model, "input": {"batch": 2, "seq": seq, "attention_mask": "padded"},
            "training": training, "device": {"gpu": "rtx-5070-ti"}});
        Run::new(&Scenario::from_value(&value).unwrap()).map_err(|error| error.reason)
    };
    let offloaded = |checkpointing: &str, attention: &str| json!({"activation_offloading": "save-on-cpu", "checkpointing": checkpointing, "attention": attention});
    assert_eq!(asked(llama(), 30, offloaded("none", "sdpa")).unwrap_err(), Some(Reason::UnalignedMask));
    // A multiple of four keys; what is recomputed, or has no kernel of its own.
    for (seq, training) in
        [(32, offloaded("none", "sdpa")), (30, offloaded("full", "sdpa")), (30, offloaded("none", "eager"))]
    {
        let run = asked(llama(), seq, training).unwrap();
        assert!(!run.estimate().host.as_ref().unwrap().pinned.is_zero());
    }
    let t5 = || {
        json!({"hf": {"model_type": "t5", "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4,
        "vocab_size": 300}})
    };
    assert_eq!(asked(t5(), 32, offloaded("full", "sdpa")).unwrap_err(), Some(Reason::RecomputedOtherwise));
    let trl = json!({"activation_offloading": "offload-activations", "checkpointing": "full"});
    assert_eq!(asked(t5(), 32, trl).unwrap_err(), Some(Reason::RecomputedOtherwise));
    assert!(asked(t5(), 32, offloaded("full", "eager")).is_ok());
}

/// Before PyTorch 2.10 FSDP2 gathers, beside a reentrant checkpoint, what has just gone backward: more of the model the deeper it is.
#[test]
fn reentrant_checkpoints_gather_the_whole_model_before_2_10() {
    let peak = |layers: u64, torch: &str, checkpointing: &str| {
        let mut model = llama();
        model["hf"]["num_hidden_layers"] = json!(layers);
        let value = json!({"model": model, "input": {"batch": 1, "seq": 16}, "software": {"torch": torch},
            "parallel": {"gpus": 4, "strategy": "fsdp2"}, "device": {"gpu": "rtx-4090"},
            "training": {"precision": "bf16", "optimizer": "sgd", "checkpointing": checkpointing}});
        let run = Run::new(&Scenario::from_value(&value).unwrap()).unwrap();
        let said = run.estimate().warnings.iter().any(|warning| warning.contains("use_reentrant=False"));
        (run.estimate().peak.requested.get(), said)
    };
    let grows = |torch, checkpointing| {
        let (few, said) = peak(4, torch, checkpointing);
        (peak(12, torch, checkpointing).0 - few, said)
    };
    let ((before, warned), (since, quiet)) = (grows("2.9", "reentrant"), grows("2.10", "reentrant"));
    assert!(warned && !quiet);
    assert!(before > 2 * since, "{before} and {since} bytes for eight layers more");
    assert!(!grows("2.9", "full").1);
}
