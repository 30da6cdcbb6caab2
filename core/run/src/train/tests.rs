//! Copied micro-batches against executed ones.

use plimsoll_catalog::device::Workspace;
use plimsoll_catalog::software::Rules;
use plimsoll_families as models;
use plimsoll_ground::Bytes;
use plimsoll_ledger::{Ledger, PhaseName, Work};
use plimsoll_scenario::{ParallelStrategy, Scenario};
use plimsoll_torch::ops::SdpaRules;
use plimsoll_torch::tensor::Context;

use super::{Repeats, train};

fn run(scenario: &Scenario, repeats: Repeats) -> Ledger {
    let cx = Context::new();
    let kept = |bytes| Workspace { bytes, kept: true };
    cx.set_blas_workspace(kept(Bytes::new(8_519_680)), kept(Bytes::from_mib(1)));
    cx.begin(PhaseName::Load, None, None);
    let whole = [ParallelStrategy::None, ParallelStrategy::Ddp].contains(&scenario.parallel.strategy);
    let shards = (!whole).then(|| plimsoll_parallel::plan(&scenario.parallel));
    let built = models::build(&cx, scenario, SdpaRules::cuda((8, 0), Rules::default()), shards).unwrap();
    train(&cx, &built, &scenario.training, &scenario.parallel, repeats).unwrap();
    let ledger = cx.take();
    drop(built);
    ledger
}

/// What an event is about, whatever ids the two runs gave.
fn events(ledger: &Ledger) -> Vec<(bool, u64, String)> {
    let line = |e: &plimsoll_ledger::Event| {
        let s = &ledger.storages[e.id() as usize];
        (e.is_free(), s.bytes, format!("{} {} {:?} {:?}", ledger.op(s), ledger.grad_fn(s), s.kind, ledger.sizes(s)))
    };
    ledger.events.iter().map(line).collect()
}

/// What runs, and after how many events.
fn launches(ledger: &Ledger) -> Vec<(u32, Option<&Work>)> {
    ledger.launches.iter().map(|launch| (launch.at, ledger.work(launch))).collect()
}

#[test]
fn a_copied_micro_batch_of_several_cards_is_the_same_stream_as_an_executed_one() {
    let spread = [
        r#""strategy":"ddp""#,
        r#""strategy":"ddp","ddp":{"no_sync":false}"#,
        r#""strategy":"ddp","ddp":{"gradient_as_bucket_view":true}"#,
        r#""strategy":"ddp","ddp":{"static_graph":true}"#,
        r#""strategy":"ddp","ddp":{"find_unused_parameters":true}"#,
        r#""strategy":"fsdp2""#,
        r#""strategy":"fsdp2","replicate":2,"fsdp":{"param_dtype":"bf16","reduce_dtype":"fp32"}"#,
        r#""strategy":"fsdp2","fsdp":{"sync_every_micro_batch":false,"reshard_after_forward":false}"#,
        r#""strategy":"fsdp2","fsdp":{"reshard_after_backward":false}"#,
        r#""strategy":"fsdp2","fsdp":{"cpu_offload":true}"#,
        r#""strategy":"fsdp1","fsdp":{"param_dtype":"bf16"}"#,
        r#""strategy":"fsdp1","fsdp":{"use_orig_params":true}"#,
        r#""strategy":"fsdp1","fsdp":{"sharding_strategy":"no-shard"}"#,
        r#""strategy":"fsdp1","fsdp":{"sharding_strategy":"shard-grad-op","sync_every_micro_batch":false}"#,
        r#""strategy":"fsdp1","fsdp":{"cpu_offload":true}"#,
        r#""strategy":"zero-0""#,
        r#""strategy":"zero-1""#,
        r#""strategy":"zero-2","zero":{"reduce_bucket_size":20000,"overlap_comm":true}"#,
        r#""strategy":"zero-2","zero":{"offload_optimizer":"cpu"}"#,
        r#""strategy":"zero-3","zero":{"reduce_bucket_size":20000}"#,
    ];
    for keys in spread {
        for accumulation in [1, 3] {
            let static_graph = keys.contains("static_graph") && accumulation > 1;
            if static_graph {
                continue;
            }
            let text = format!(
                r#"{{"model":{{"hf":{{"model_type":"llama","hidden_size":64,"intermediate_size":128,"num_hidden_layers":2,
                "num_attention_heads":4,"num_key_value_heads":2,"vocab_size":301}}}},"input":{{"batch":2,"seq":16}},
                "training":{{"precision":"fp32","accumulation":{accumulation}}},"parallel":{{"gpus":4,{keys}}}}}"#
            );
            let scenario = Scenario::from_json(&text).unwrap();
            scenario.estimated().unwrap();
            let (copied, executed) = (run(&scenario, Repeats::Copied), run(&scenario, Repeats::Executed));
            assert_eq!(copied.phases, executed.phases, "{keys}, {accumulation}");
            assert!(launches(&copied) == launches(&executed), "{keys}, {accumulation}");
            assert!(events(&copied) == events(&executed), "{keys}, {accumulation}");
        }
    }
}

#[test]
fn a_copied_micro_batch_is_the_same_stream_as_an_executed_one() {
    let model = r#""model":{"hf":{"model_type":"llama","hidden_size":64,"intermediate_size":128,
        "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":300}}"#;
    let recipes = [
        r#""precision":"bf16-amp","accumulation":3"#,
        r#""precision":"fp16-amp","accumulation":1"#,
        r#""precision":"fp16-amp","accumulation":4,"zero_grad":"zero""#,
        r#""precision":"fp32","accumulation":2,"zero_grad_at":"before-backward""#,
        r#""precision":"bf16","accumulation":2,"zero_grad":"zero","zero_grad_at":"before-backward""#,
        r#""precision":"bf16","accumulation":3,"checkpointing":"full","optimizer_impl":"fused""#,
        r#""precision":"bf16-amp","accumulation":3,"keep_outputs":true"#,
        r#""precision":"bf16-amp","accumulation":3,"trainer":"transformers""#,
        r#""precision":"fp16-amp","accumulation":4,"trainer":"transformers","clip_grad_norm":false,"checkpointing":"full""#,
        r#""precision":"bf16-amp","optimizer_in_backward":true"#,
        r#""precision":"bf16","optimizer":"adafactor","optimizer_in_backward":true,"checkpointing":"full""#,
        r#""precision":"bf16-amp","accumulation":3,"loss_impl":"chunked""#,
        r#""precision":"bf16-amp","accumulation":3,"loss_impl":"fused-linear","optimizer":"adamw-8bit""#,
        r#""precision":"bf16","accumulation":4,"loss_impl":"fused-linear","checkpointing":"full","zero_grad":"zero""#,
        r#""precision":"fp16-amp","accumulation":3,"label_smoothing":0.1,"optimizer":"muon","ema":true"#,
        r#""precision":"fp32","accumulation":2,"label_smoothing":0.1,"optimizer":"lion","checkpointing":"full""#,
        r#""precision":"bf16","checkpointing":"full","accumulation":2,"lora":{"rank":4,"targets":["q_proj"],"dropout":0.1}"#,
        r#""precision":"bf16-amp","checkpointing":"full","accumulation":2,"lora":{"rank":4},"trainer":"transformers""#,
    ];
    // A leaf of the model's own, held by the loss.
    let t5 = r#""model":{"hf":{"model_type":"t5","d_model":64,"d_kv":16,"d_ff":128,"num_layers":2,"num_heads":4,
        "vocab_size":300}}"#;
    let cases = recipes.iter().map(|recipe| (model, *recipe));
    for (model, recipe) in cases.chain([(t5, r#""precision":"bf16","checkpointing":"full","accumulation":4"#)]) {
        let text = format!(r#"{{{model},"input":{{"batch":2,"seq":16}},"training":{{{recipe}}}}}"#);
        let scenario = Scenario::from_json(&text).unwrap();
        let (copied, executed) = (run(&scenario, Repeats::Copied), run(&scenario, Repeats::Executed));
        assert_eq!(copied.phases, executed.phases, "{recipe}");
        assert!(launches(&copied) == launches(&executed), "{recipe}");
        assert!(events(&copied) == events(&executed), "{recipe}");
    }
}
