//! DeepSpeed's JSON.

use plimsoll_ground::{Error, Result};
use plimsoll_scenario::{Offload, ParallelStrategy, Precision, Scenario, Zero, at};
use serde_json::{Value, json};

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
            ("offload_optimizer", offload_optimizer(zero)),
            ("offload_param", offload_param(zero)),
        ];
        if let Some(keys) = value.get_mut("zero_optimization").and_then(|keys| keys.as_object_mut()) {
            keys.extend(said.map(|(key, value)| (key.to_owned(), value)));
        }
    }
    let swaps = [parallel.zero.offload_optimizer, parallel.zero.offload_param].contains(&Offload::Nvme);
    if let Some(keys) = value.as_object_mut().filter(|_| swaps) {
        let zero = &parallel.zero;
        let aio = json!({ "block_size": zero.aio_block_size, "intra_op_parallelism": zero.aio_intra_op_parallelism });
        keys.insert("aio".to_owned(), aio);
    }
    Ok(format!("{value:#}\n"))
}

/// Where what is swapped goes: whoever runs it has a folder of his own.
const FOLDER: &str = "/local_nvme";

fn offload_optimizer(zero: &Zero) -> Value {
    let device = zero.offload_optimizer.as_str();
    match zero.offload_optimizer {
        Offload::Nvme => json!({ "device": device, "nvme_path": FOLDER, "buffer_count": zero.offload_buffer_count }),
        Offload::None | Offload::Cpu => json!({ "device": device }),
    }
}

fn offload_param(zero: &Zero) -> Value {
    let device = zero.offload_param.as_str();
    match zero.offload_param {
        Offload::Nvme => json!({
            "device": device, "nvme_path": FOLDER, "buffer_count": zero.offload_param_buffer_count,
            "buffer_size": zero.offload_param_buffer_size, "max_in_cpu": zero.offload_param_max_in_cpu,
        }),
        Offload::None | Offload::Cpu => json!({ "device": device }),
    }
}
