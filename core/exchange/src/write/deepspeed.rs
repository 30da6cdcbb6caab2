//! DeepSpeed's JSON.

use plimsoll_ground::{Error, Result};
use plimsoll_scenario::{ParallelStrategy, Precision, Scenario, at};
use serde_json::json;

use super::parts;

/// The file.
pub fn write(scenario: &Scenario) -> Result<String> {
    use ParallelStrategy as S;
    parts::only_training(scenario)?;
    let (parallel, training) = (&scenario.parallel, &scenario.training);
    let stage = match parallel.strategy {
        S::Zero1 => 1,
        S::Zero2 => 2,
        S::Zero3 => 3,
        S::None | S::Zero0 => 0,
        other => {
            let problem = format!("DeepSpeed has no {other}");
            return Err(Error::new(
                at::parallel::strategy,
                problem,
                "use zero-0, which reduces as ddp does, or zero-1, zero-2 or zero-3",
            ));
        }
    };
    let mut value = json!({
        "train_micro_batch_size_per_gpu": scenario.input.batch,
        "gradient_accumulation_steps": training.accumulation,
        "gradient_clipping": if training.clip_grad_norm { 1.0 } else { 0.0 },
        "bf16": { "enabled": matches!(training.precision, Precision::Bf16Amp | Precision::Bf16) },
        "fp16": { "enabled": matches!(training.precision, Precision::Fp16Amp | Precision::Fp16) },
        "zero_optimization": {
            "stage": stage,
            "reduce_bucket_size": parallel.zero.reduce_bucket_size,
            "overlap_comm": parallel.zero.overlap_comm,
            "offload_optimizer": { "device": parallel.zero.offload_optimizer.as_str() },
        },
    });
    if parallel.strategy == S::Zero3 {
        let zero = &parallel.zero;
        let said = [
            ("stage3_prefetch_bucket_size", json!(zero.prefetch_bucket_size)),
            ("stage3_max_live_parameters", json!(zero.max_live_parameters)),
            ("stage3_max_reuse_distance", json!(zero.max_reuse_distance)),
            ("stage3_param_persistence_threshold", json!(zero.param_persistence_threshold)),
            ("sub_group_size", json!(zero.sub_group_size)),
            ("contiguous_gradients", json!(zero.contiguous_gradients)),
            ("reduce_scatter", json!(zero.reduce_scatter)),
            ("offload_param", json!({ "device": zero.offload_param.as_str() })),
        ];
        if let Some(keys) = value.get_mut("zero_optimization").and_then(|keys| keys.as_object_mut()) {
            keys.extend(said.map(|(key, value)| (key.to_owned(), value)));
        }
    }
    Ok(format!("{value:#}\n"))
}
