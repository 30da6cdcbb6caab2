//! Accelerate's YAML: how many cards, which strategy, which precision. The recipe is the script's.

use plimsoll_ground::{Error, Result};
use plimsoll_scenario::{
    BackwardPrefetch, ParallelStrategy, PolicyDtype, Precision, Reshard, Scenario, Wrap, at, strategies,
};

use super::parts::{self, Yaml};

/// The file.
pub fn write(scenario: &Scenario) -> Result<String> {
    use ParallelStrategy as S;
    parts::only_training(scenario)?;
    let (parallel, training) = (&scenario.parallel, &scenario.training);
    let mut yaml = Yaml(parts::header(scenario, "accelerate launch --config_file accelerate.yaml train.py"));
    yaml.put("compute_environment", "LOCAL_MACHINE");
    let kind = match parallel.strategy {
        S::None => "'NO'",
        S::Ddp => "MULTI_GPU",
        S::Fsdp1 | S::Fsdp2 => "FSDP",
        strategy if strategy.is_zero() => "DEEPSPEED",
        other => {
            let problem = format!("Accelerate has no {other}");
            return Err(Error::new(at::parallel::strategy, problem, "take toml or json"));
        }
    };
    yaml.put("distributed_type", kind);
    if parallel.strategy.is_zero() {
        let stage = match parallel.strategy {
            S::Zero0 => 0,
            S::Zero1 => 1,
            S::Zero2 => 2,
            _ => 3,
        };
        yaml.put("deepspeed_config", format!("\n  zero_stage: {stage}"));
        yaml.put("  gradient_accumulation_steps", training.accumulation);
        yaml.put("  gradient_clipping", if training.clip_grad_norm { 1.0 } else { 0.0 });
    }
    if parallel.strategy == S::Fsdp2 {
        let keys = &parallel.fsdp;
        yaml.put("fsdp_config", "\n  fsdp_version: 2");
        // Accelerate asks for the one or the other, and passes on what it was told.
        match keys.reshard_after_forward {
            Reshard::Unset => {}
            word => yaml.put("  fsdp_reshard_after_forward", word == Reshard::True),
        }
        match keys.wrap {
            Wrap::Layer | Wrap::Peft => yaml.put("  fsdp_auto_wrap_policy", "TRANSFORMER_BASED_WRAP"),
            Wrap::Root => yaml.put("  fsdp_auto_wrap_policy", "NO_WRAP"),
            _ => {
                let hint = "use layer or root";
                return Err(Error::new(strategies::fsdp::wrap, "Accelerate does not wrap like this", hint));
            }
        }
        if keys.param_dtype != PolicyDtype::Own || keys.reduce_dtype != PolicyDtype::Own {
            let hint = "leave both policies out";
            return Err(Error::new(strategies::fsdp::param_dtype, "Accelerate makes the policy itself", hint));
        }
        yaml.put("  fsdp_offload_params", keys.cpu_offload);
        yaml.put("  fsdp_state_dict_type", "SHARDED_STATE_DICT");
    } else if parallel.strategy == S::Fsdp1 {
        let keys = &parallel.fsdp;
        yaml.put("fsdp_config", "\n  fsdp_version: 1");
        let wrap = if keys.wrap == Wrap::Root { "NO_WRAP" } else { "TRANSFORMER_BASED_WRAP" };
        yaml.put("  fsdp_auto_wrap_policy", wrap);
        yaml.put("  fsdp_sharding_strategy", keys.sharding_strategy.in_words().label);
        yaml.put("  fsdp_use_orig_params", keys.use_orig_params);
        let prefetch = match keys.backward_prefetch {
            BackwardPrefetch::Pre => "BACKWARD_PRE",
            BackwardPrefetch::Post => "BACKWARD_POST",
            BackwardPrefetch::None => "NO_PREFETCH",
        };
        yaml.put("  fsdp_backward_prefetch", prefetch);
        yaml.put("  fsdp_offload_params", keys.cpu_offload);
    }
    yaml.put("gradient_accumulation_steps", training.accumulation);
    let precision = match training.precision {
        Precision::Bf16Amp => "bf16",
        Precision::Fp16Amp => "fp16",
        _ => "'no'",
    };
    yaml.put("mixed_precision", precision);
    let nodes = parallel.gpus.div_ceil(parallel.per_node.max(1));
    yaml.put("num_machines", nodes);
    yaml.put("num_processes", parallel.gpus);
    yaml.put("machine_rank", 0);
    Ok(yaml.0)
}
