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
        S::None | S::Ddp => 0,
        other => {
            let problem = format!("DeepSpeed has no {other}");
            return Err(Error::new(at::parallel::strategy, problem, "use zero-1, zero-2 or zero-3"));
        }
    };
    let value = json!({
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
    Ok(format!("{value:#}\n"))
}
