//! Layers that repeat are executed a few times and written down as often as there are: the ledger must be the one that
//! executing every layer gives, line for line.

use std::collections::BTreeSet;

use plimsoll_ledger::{DType, Event, Kind, Ledger, Owner, Stream, What, Work};
use plimsoll_run::{Repeats, execute_with};
use plimsoll_scenario::Scenario;
use serde_json::{Value, json};

/// What changes how layers run, forward and backward.
fn recipes() -> Vec<Value> {
    vec![
        json!({}),
        json!({"precision": "bf16-amp", "accumulation": 3, "clip_grad_norm": true}),
        json!({"precision": "bf16", "checkpointing": "full", "optimizer": "sgd", "zero_grad": "set-to-zero"}),
        json!({"precision": "fp16-amp", "attention": "eager", "checkpointing": "full"}),
        json!({"precision": "bf16-amp", "attention": "eager", "keep_outputs": true}),
        json!({"precision": "bf16-amp", "checkpointing": "selective", "accumulation": 2}),
        json!({"precision": "bf16", "checkpointing": "full", "checkpoint_every": 2}),
        json!({"precision": "bf16-amp", "checkpointing": "reentrant", "accumulation": 2}),
        json!({"precision": "bf16", "checkpointing": "reentrant", "lora": {"rank": 4, "dropout": 0.1}}),
        json!({"precision": "bf16", "lora": {"rank": 8, "dropout": 0.1}}),
        json!({"precision": "bf16-amp", "lora": {"rank": 4, "targets": "all-linear"}, "quantization": "nf4", "checkpointing": "full"}),
        json!({"precision": "bf16", "lora": {"rank": 4, "dora": true}, "accumulation": 2}),
        json!({"precision": "fp32", "optimizer": "adafactor", "ema": true}),
        json!({"mode": "infer", "precision": "bf16"}),
        json!({"mode": "infer", "precision": "bf16-amp", "attention": "eager"}),
    ]
}

/// An event and all that is known of its storage, whose number is the order of its birth: handles of a copied run may have
/// changed places.
#[derive(Debug, PartialEq)]
struct Line<'a> {
    what: What,
    stream: Stream,
    number: usize,
    bytes: u64,
    kind: Kind,
    owner: Option<Owner>,
    dtype: DType,
    op: &'a str,
    module: &'a str,
    sizes: &'a [u64],
}

/// The lines of two ledgers, which must be the same.
fn same_lines(scenario: &Value, copied: &Ledger, executed: &Ledger) {
    // Of a ledger's many lines few modules are told: each path is put together once.
    let paths = [copied, executed].map(|ledger| ledger.modules.paths());
    let (mut a, mut b) = (settled(lines(copied, &paths[0])), settled(lines(executed, &paths[1])));
    for at in 0.. {
        let (a, b) = (a.next(), b.next());
        assert!(a == b, "{scenario}: line {at} is {a:?}, executed it is {b:?}");
        if a.is_none() {
            break;
        }
    }
}

/// The same, of what goes at once the older first: what a graph of the past held goes in another order where it is known by its
/// storages alone, and an allocator makes the same of it.
fn settled<'a>(lines: impl Iterator<Item = Line<'a>>) -> impl Iterator<Item = Line<'a>> {
    let mut lines: Vec<Line<'a>> = lines.collect();
    for at_once in lines.chunk_by_mut(|a, b| a.what == What::Free && b.what == What::Free) {
        at_once.sort_by_key(|line| line.number);
    }
    lines.into_iter()
}

fn lines<'a>(ledger: &'a Ledger, paths: &'a [String]) -> impl Iterator<Item = Line<'a>> {
    let (mut numbers, mut next) = (vec![None; ledger.storages.len()], 0);
    ledger.events.iter().map(move |event: &Event| {
        let storage = &ledger.storages[event.id() as usize];
        let number = *numbers[event.id() as usize].get_or_insert_with(|| {
            next += 1;
            next
        });
        Line {
            what: event.what(),
            stream: event.stream(),
            number,
            bytes: storage.bytes,
            kind: storage.kind,
            owner: storage.owner,
            dtype: storage.dtype,
            op: ledger.op(storage),
            module: &paths[storage.module.index()],
            sizes: ledger.sizes(storage),
        }
    })
}

/// Whether the copied run was kept; panics where it differs from the executed one. Launches are looked at up to the end of this
/// step.
fn same(scenario: &Value, steps: u32) -> Option<bool> {
    let read = Scenario::from_value(scenario).ok()?;
    let executed = execute_with(&read, Repeats::Executed).ok()??;
    let copied = execute_with(&read, Repeats::Copied).unwrap_or_else(|e| panic!("{scenario}: {e}"));
    let Some(copied) = copied else { return Some(false) };
    same_lines(scenario, &copied, &executed);
    if let (Some(copied), Some(executed)) = (&copied.host, &executed.host) {
        same_lines(scenario, copied, executed);
    }
    let launches = |ledger: &Ledger| {
        let later = ledger.phases.iter().find(|mark| mark.step.is_some_and(|step| step > steps));
        let end = later.map_or(ledger.launches.len(), |mark| mark.launch);
        ledger.launches[..end].iter().map(|l| (l.at, ledger.work(l).copied())).collect::<Vec<_>>()
    };
    let (a, b) = (launches(&copied), launches(&executed));
    if let Some(at) = a.iter().zip(&b).position(|(a, b)| a != b) {
        let op = |(_, work): &(u32, Option<Work>)| work.map_or("", |work| copied.ops.get(work.op.0)).to_owned();
        panic!("{scenario}: launch {at} is {} {:?}, executed it is {} {:?}", op(&a[at]), a[at], op(&b[at]), b[at]);
    }
    assert_eq!(a.len(), b.len(), "{scenario}");
    Some(true)
}

#[test]
fn copied_layers_are_executed_layers() {
    let recipes = recipes();
    let mut families = BTreeSet::new();
    let (mut kept, mut dropped) = (0, Vec::new());
    for (index, model) in plimsoll_catalog::models().iter().enumerate() {
        // All recipes for one model of a family, for the others one after the other.
        let all = families.insert(model.model_type);
        for recipe in recipes.iter().enumerate().filter(|(number, _)| all || *number == index % recipes.len()) {
            let scenario = |input: Value| json!({"model": {"catalog": model.id}, "input": input, "training": recipe.1});
            let (tokens, images) = (scenario(json!({"batch": 2, "seq": 64})), scenario(json!({"batch": 2})));
            match same(&tokens, u32::MAX).or_else(|| same(&images, u32::MAX)) {
                Some(true) => kept += 1,
                Some(false) => dropped.push((model.id, recipe.0)),
                None => {}
            }
        }
    }
    assert!(kept > 300, "{kept}");
    // What is not copied is executed, which takes longer but is never wrong; here nothing is held alive between the layers
    // that would let them be copied; of OLMo 2 and 3 under autocast and adapters the first layer's input is a leaf, which is cast once
    // for three products, as the other layers' are not.
    // Reentrant checkpoints of T5 hand the gradient of the bias of positions from layer to layer.
    let (electra, small, large) = ("electra-small-discriminator", "t5-small", "t5-large");
    let olmo = [("olmo-2-1b", 10), ("olmo-3-7b", 10)];
    let held = [(electra, 3), (electra, 5), (electra, 7)].into_iter().chain(olmo);
    assert_eq!(dropped, held.chain([(small, 7), (small, 8), (large, 7)]).collect::<Vec<_>>());
}

/// Hooks of DistributedDataParallel hear of every gradient, of copied layers as of executed ones: buckets are averaged where
/// they are full, and made anew in the order in which gradients came.
#[test]
fn layers_are_copied_under_ddp() {
    let keys = [
        json!({}),
        json!({"bucket_cap_mb": 1}),
        json!({"find_unused_parameters": true}),
        json!({"static_graph": true}),
        json!({"no_sync": true}),
    ];
    let recipes = [
        json!({"precision": "bf16-amp", "clip_grad_norm": true}),
        json!({"precision": "fp32", "accumulation": 3}),
        json!({"precision": "bf16", "checkpointing": "full", "accumulation": 2}),
        json!({"precision": "bf16", "lora": {"rank": 4}}),
    ];
    let mut families = BTreeSet::new();
    let (mut kept, mut dropped) = (0, Vec::new());
    for model in plimsoll_catalog::models() {
        if !families.insert(model.model_type) {
            continue;
        }
        for (number, recipe) in recipes.iter().enumerate() {
            let ddp = &keys[(families.len() + number) % keys.len()];
            let scenario = |input: Value| {
                json!({"model": {"catalog": model.id}, "input": input, "training": recipe,
                    "parallel": {"gpus": 4, "strategy": "ddp", "ddp": ddp}})
            };
            let (tokens, images) = (scenario(json!({"batch": 2, "seq": 64})), scenario(json!({"batch": 2})));
            // A whole micro-batch that is copied has the first one's buckets, which are made anew behind it.
            match same(&tokens, 1).or_else(|| same(&images, 1)) {
                Some(true) => kept += 1,
                Some(false) => dropped.push((model.id, number)),
                None => {}
            }
        }
    }
    assert!(kept > 60, "{kept}");
    assert_eq!(dropped, []);
}

/// Hooks run for every layer that is copied: what `fully_shard` and FSDP gather and let go of.
#[test]
fn layers_are_copied_under_fsdp() {
    let keys = [
        json!({"strategy": "fsdp2"}),
        json!({"strategy": "fsdp2", "fsdp": {"param_dtype": "bf16", "reduce_dtype": "fp32"}}),
        json!({"strategy": "fsdp2", "fsdp": {"reshard_after_forward": false}}),
        json!({"strategy": "fsdp2", "replicate": 2, "fsdp": {"param_dtype": "bf16", "reduce_dtype": "bf16"}}),
        json!({"strategy": "fsdp2", "fsdp": {"wrap": "torchtitan", "reshard_after_forward": true}}),
        json!({"strategy": "fsdp2", "fsdp": {"wrap": "root"}}),
        json!({"strategy": "fsdp2", "fsdp": {"sync_every_micro_batch": false}}),
        json!({"strategy": "fsdp2", "fsdp": {"reshard_after_backward": false}}),
        json!({"strategy": "fsdp2", "fsdp": {"cpu_offload": true}}),
        json!({"strategy": "fsdp2", "fsdp": {"cpu_offload": true, "param_dtype": "bf16", "load": "cpu"}}),
        json!({"strategy": "fsdp1", "fsdp": {"param_dtype": "bf16"}}),
        json!({"strategy": "fsdp1", "fsdp": {"param_dtype": "bf16", "cpu_offload": true}}),
        json!({"strategy": "fsdp1", "fsdp": {"sharding_strategy": "shard-grad-op"}}),
        json!({"strategy": "fsdp1", "fsdp": {"backward_prefetch": "post", "use_orig_params": true}}),
        json!({"strategy": "fsdp1", "fsdp": {"backward_prefetch": "none", "wrap": "root"}}),
        json!({"strategy": "fsdp1", "fsdp": {"sharding_strategy": "no-shard"}}),
        json!({"strategy": "fsdp1", "fsdp": {"wrap": "peft"}}),
        json!({"strategy": "fsdp1", "fsdp": {"sync_every_micro_batch": false, "param_dtype": "bf16"}}),
    ];
    let (kept, dropped) = spread_over(&keys);
    assert!(kept > 150, "{kept}");
    assert_eq!(dropped, []);
}

/// What DeepSpeed gathers ahead, and when a bucket of gradients is full, does not repeat layer by layer: its hooks run for every
/// layer that is copied.
#[test]
fn layers_are_copied_under_zero() {
    let keys = [
        json!({"strategy": "zero-1"}),
        json!({"strategy": "zero-1", "zero": {"reduce_bucket_size": 20000, "overlap_comm": true}}),
        json!({"strategy": "zero-2"}),
        json!({"strategy": "zero-2", "zero": {"reduce_bucket_size": 100_000}}),
        json!({"strategy": "zero-2", "zero": {"offload_optimizer": "cpu"}}),
        json!({"strategy": "zero-3"}),
        json!({"strategy": "zero-3", "zero": {"reduce_bucket_size": 20000, "prefetch_bucket_size": 30000}}),
        json!({"strategy": "zero-3", "zero": {"prefetch_bucket_size": 0, "param_persistence_threshold": 0}}),
        json!({"strategy": "zero-3", "zero": {"max_live_parameters": 1_000_000, "max_reuse_distance": 100_000, "overlap_comm": true}}),
        json!({"strategy": "zero-3", "zero": {"contiguous_gradients": false, "reduce_scatter": false}}),
        json!({"strategy": "zero-3", "zero": {"offload_optimizer": "cpu", "offload_param": "cpu"}}),
    ];
    let (kept, dropped) = spread_over(&keys);
    assert!(kept > 150, "{kept}");
    assert_eq!(dropped, []);
}

/// How many runs of every family over every third of `keys` were kept as they were copied, and which were not.
fn spread_over(keys: &[Value]) -> (usize, Vec<(&'static str, usize, usize)>) {
    let recipes = [
        json!({"precision": "fp32", "clip_grad_norm": true}),
        json!({"precision": "bf16-amp", "accumulation": 3}),
        json!({"precision": "bf16", "checkpointing": "full", "accumulation": 2}),
        json!({"precision": "bf16", "lora": {"rank": 4}}),
    ];
    let mut families = BTreeSet::new();
    let (mut kept, mut dropped) = (0, Vec::new());
    for model in plimsoll_catalog::models() {
        if !families.insert(model.model_type) {
            continue;
        }
        for (number, recipe) in recipes.iter().enumerate() {
            for (way, keys) in keys.iter().enumerate().filter(|(way, _)| (families.len() + number + way) % 3 == 0) {
                let mut keys = keys.clone();
                keys["gpus"] = json!(4);
                let scenario = |input: Value| json!({"model": {"catalog": model.id}, "input": input, "training": recipe, "parallel": keys});
                let (tokens, images) = (scenario(json!({"batch": 2, "seq": 64})), scenario(json!({"batch": 2})));
                match same(&tokens, u32::MAX).or_else(|| same(&images, u32::MAX)) {
                    Some(true) => kept += 1,
                    Some(false) => dropped.push((model.id, number, way)),
                    None => {}
                }
            }
        }
    }
    (kept, dropped)
}
