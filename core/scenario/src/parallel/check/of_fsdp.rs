//! Both of PyTorch's FSDPs.

use plimsoll_catalog::families::{ExpertPart, Experts};
use plimsoll_ground::{Error, Result};

use super::super::{ParallelStrategy, PolicyDtype, ShardingStrategy, Wrap, at, fsdp};
use crate::{
    BaseDtype, Checkpointing, Lora, LossImpl, Optimizer, OptimizerImpl, Precision, Quantization, Scenario, Training,
};

/// `fully_shard` hands the optimizer tensors of PyTorch's distributed kind, which not every kernel takes.
pub(super) fn with_fsdp2(scenario: &Scenario) -> Result<()> {
    let training = &scenario.training;
    let sgd = matches!(training.optimizer, Optimizer::Sgd | Optimizer::SgdMomentum);
    if sgd && training.optimizer_impl == OptimizerImpl::Fused {
        return Err(Error::new(
            crate::at::training::optimizer_impl,
            "PyTorch has no fused SGD for the parameters of fully_shard (`_fused_sgd_` has no sharding strategy)",
            "use foreach or for-loop",
        ));
    }
    with_sharded_tensors(training)?;
    let keys = &scenario.parallel.fsdp;
    // `to_accumulated_grad_if_needed` of `_fsdp_param.py` reads the gradient of a parameter that was never gathered: of the layers of
    // a tower that does not run. Seen with Qwen3-VL and PyTorch 2.11 on a hollow card.
    let accumulates = training.accumulation > 1 && !keys.sync_every_micro_batch;
    let reduces_apart = keys.reduce_dtype != PolicyDtype::Own && keys.reduce_dtype != keys.param_dtype;
    if scenario.family().tower && accumulates && reduces_apart && keys.wrap != Wrap::Root {
        return Err(Error::new(
            fsdp::at::sync_every_micro_batch,
            format!(
                "PyTorch fails in the first backward that reduces nothing: no layer of {}'s tower for images was gathered (\"'FSDPParam' \
                 object has no attribute '_unsharded_param'\")",
                scenario.family().name
            ),
            "set it to true, leave reduce_dtype out or make it param_dtype, or set parallel.fsdp.wrap = \"root\"",
        ));
    }
    let casts = matches!(keys.param_dtype, PolicyDtype::Bf16 | PolicyDtype::Fp16);
    let recomputes = matches!(training.checkpointing, Checkpointing::Full | Checkpointing::Selective);
    // `FSDPState._pre_forward` casts a module's inputs (`cast_forward_inputs`), but returns them as they are while the module goes
    // backward, as it has begun to where a checkpoint runs again that is not reentrant, and that one keeps them as they were. Seen with
    // transformers 5.17 on a hollow card; where the root alone is wrapped no layer's inputs are cast.
    let autocast = matches!(training.precision, Precision::Bf16Amp | Precision::Fp16Amp);
    if scenario.family().wide_tables.given(autocast) && casts && recomputes && keys.wrap != Wrap::Root {
        return Err(Error::new(
            fsdp::at::param_dtype,
            format!(
                "PyTorch fails in the first backward: fully_shard casts the float32 tables of positions that layers of {} are given in the \
                 forward, and not in the recomputation (\"Recomputed values for the following tensors have different metadata\")",
                scenario.family().name
            ),
            "leave it out and set precision = \"bf16\" or \"bf16-amp\", set parallel.fsdp.wrap = \"root\", use fsdp1, or set \
             training.checkpointing = \"none\" or \"reentrant\"",
        ));
    }
    with_fsdp(scenario)
}

/// Optimizers whose operators know nothing of tensors that are cut (`DTensor`), and what PyTorch 2.11, transformers 5.17, lion-pytorch
/// 0.2.5 and bitsandbytes 0.50 say then. Seen on a hollow card.
fn with_sharded_tensors(training: &Training) -> Result<()> {
    let (said, hint) = match (training.optimizer, training.optimizer_impl) {
        (Optimizer::Adafactor, _) => ("aten.add_.Tensor got mixed torch.Tensor and DTensor", "use adamw, or fsdp1"),
        (Optimizer::AdafactorTorch, OptimizerImpl::ForLoop) => (
            "aten.pow_.Scalar: in-place operations that require placement changes are not supported",
            "use adamw, or fsdp1",
        ),
        (Optimizer::AdafactorTorch, _) => (
            "Operator aten._foreach_lerp_.ScalarList does not have a sharding strategy registered",
            "use adamw, or fsdp1",
        ),
        (Optimizer::Lion, OptimizerImpl::Foreach) => (
            "Operator aten._foreach_sign_.default does not have a sharding strategy registered",
            "set optimizer_impl = \"for-loop\", or use fsdp1",
        ),
        (Optimizer::Lion, OptimizerImpl::Fused) => (
            "Operator bitsandbytes.optimizer_update_32bit.default does not have a sharding strategy registered",
            "set optimizer_impl = \"for-loop\", or use fsdp1",
        ),
        (Optimizer::PagedAdamW, _) => {
            ("bitsandbytes.optimizer_update_32bit.default got mixed torch.Tensor and DTensor", "use adamw, or fsdp1")
        }
        (Optimizer::AdamW8bit | Optimizer::PagedAdamW8bit, _) => (
            "bitsandbytes.optimizer_update_8bit_blockwise.default got mixed torch.Tensor and DTensor",
            "use adamw, or fsdp1",
        ),
        _ => return Ok(()),
    };
    let problem = format!(
        "PyTorch fails in the first step of {} on the parameters of fully_shard (\"{said}\")",
        training.optimizer
    );
    Err(Error::new(crate::at::training::optimizer, problem, hint))
}

/// One flat parameter of a block's frozen weights and its adapters.
fn with_flat_adapters(scenario: &Scenario, lora: &Lora) -> Result<()> {
    let Scenario { parallel, training, .. } = scenario;
    let alone = parallel.fsdp.wrap == Wrap::Peft;
    let reaches = |experts: Experts| ExpertPart::ALL.into_iter().any(|part| lora.reaches(experts, part));
    // `ParamWrapper.get_delta_weight` of peft reads the weights of `lora_A` and `lora_B` and calls neither: nothing gathers what FSDP1
    // wrapped by itself. Seen with peft 0.21 on a hollow card, with use_orig_params and without.
    if alone && scenario.experts().is_some_and(reaches) {
        return Err(Error::new(
            fsdp::at::wrap,
            "PyTorch fails in the first forward: peft's adapters on experts read weights of modules that are not called, and FSDP1 gathers \
             what it wrapped by itself when it is called (\"inconsistent tensor size\", or \"Output 0 of ViewBackward0 is a view and its base \
             or another view of its base has been modified inplace\")",
            "use wrap = \"layer\" with use_orig_params, target attention alone, or use fsdp2",
        ));
    }
    if !parallel.fsdp.use_orig_params && !alone {
        return Err(Error::new(
            fsdp::at::use_orig_params,
            "without it PyTorch lays no frozen weight and no adapter into one flat parameter (\"Must flatten tensors with uniform \
             `requires_grad`\")",
            "set it to true, or wrap every adapter by itself as peft does (wrap = \"peft\"), or use fsdp2",
        ));
    }
    let half = !matches!(training.loaded(), BaseDtype::Precision | BaseDtype::Float32);
    let quantized = training.quantization != Quantization::None;
    // `prepare_model_for_kbit_training` leaves norms and biases in float32.
    let prepared = quantized && training.prepare_kbit;
    let beside = if prepared { BaseDtype::Float32 } else { training.loaded() };
    if quantized && training.quant_storage.as_str() != beside.as_str() {
        return Err(Error::new(
            crate::at::training::quant_storage,
            format!(
                "PyTorch lays no weights packed in {} beside parameters in {beside} into one flat parameter (\"Must flatten \
                 tensors with uniform dtype\")",
                training.quant_storage
            ),
            format!("set it to {beside}, or use fsdp2"),
        ));
    }
    if alone {
        return Ok(());
    }
    if half && prepared && !lora.autocast_adapter_dtype {
        return Err(Error::new(
            "training.lora.autocast_adapter_dtype",
            "PyTorch lays no adapter in 16 bits beside parameters in float32 into one flat parameter (\"Must flatten tensors with \
             uniform dtype\")",
            "set it to true, set prepare_kbit to false, or use fsdp2",
        ));
    }
    if half && !prepared && lora.autocast_adapter_dtype {
        return Err(Error::new(
            "training.lora.autocast_adapter_dtype",
            "PyTorch lays no float32 adapter beside weights in 16 bits into one flat parameter (\"Must flatten tensors with uniform dtype\")",
            "set it to false, load in float32, or use fsdp2",
        ));
    }
    Ok(())
}

/// What FSDP does, the first and the second, that is followed.
pub(super) fn with_fsdp(scenario: &Scenario) -> Result<()> {
    let Scenario { parallel, training, .. } = scenario;
    let keys = &parallel.fsdp;
    let refuse =
        |key: &str, what: String, hint: &str| Err(Error::new(key, format!("{what} is not estimated yet"), hint));
    let family = scenario.family();
    if family.is_own() && !["mlp", "hull"].contains(&family.name) {
        let hint = "use ddp, one card, or a model of Hugging Face";
        return refuse(at::gpus, format!("{} of {}", parallel.strategy, family.name), hint);
    }
    super::sized(scenario)?;
    // Their stages are followed as one: what each layer would gather by itself is not known.
    if keys.wrap == Wrap::Layer && ["resnet", "convnext"].contains(&family.name) {
        let what = format!("every layer of {} by itself under {}", family.name, parallel.strategy);
        let hint = "use wrap = \"root\", or record it: plimsoll trace, docs/hull.md";
        return refuse(fsdp::at::wrap, what, hint);
    }
    if keys.wrap == Wrap::Peft && (parallel.strategy != ParallelStrategy::Fsdp1 || training.lora.is_none()) {
        let problem = "peft's wrapping is of adapters under FSDP1";
        return Err(Error::new(fsdp::at::wrap, problem, "use wrap = \"layer\""));
    }
    if keys.wrap == Wrap::Torchtitan {
        // A weight that the embedding and the head share would be let go of between them. None of these shares it unless told.
        let plain = ["llama", "mistral", "qwen2", "qwen3"].contains(&family.name);
        let config = scenario.model.source.config();
        let tied = config.is_some_and(|config| config.get("tie_word_embeddings") == Some(&true.into()));
        if !plain || tied {
            let with = if tied { " with a head that shares the embedding's weight" } else { "" };
            let what = format!("torchtitan's wrapping of {}{with}", family.name);
            return refuse(fsdp::at::wrap, what, "use wrap = \"layer\" or \"root\"");
        }
        if parallel.strategy == ParallelStrategy::Fsdp1 || training.lora.is_some() {
            return refuse(
                fsdp::at::wrap,
                "torchtitan's wrapping of that".to_owned(),
                "use wrap = \"layer\" or \"root\"",
            );
        }
    }
    if keys.cpu_offload && keys.sharding_strategy == ShardingStrategy::NoShard {
        let what = "what is offloaded without being cut".to_owned();
        return refuse(fsdp::at::cpu_offload, what, "use another sharding_strategy, or leave it out");
    }
    if let Some(lora) = training.lora.as_ref().filter(|_| parallel.strategy == ParallelStrategy::Fsdp1) {
        with_flat_adapters(scenario, lora)?;
    }
    let plain = [Optimizer::Sgd, Optimizer::SgdMomentum, Optimizer::Adam, Optimizer::AdamW];
    let with = match parallel.strategy {
        _ if plain.contains(&training.optimizer) => None,
        // What a processor has in their place is not followed.
        _ if keys.cpu_offload => Some("FSDP that offloads"),
        // It gathers every matrix for its products.
        ParallelStrategy::Fsdp2 if training.optimizer == Optimizer::Muon => Some("fsdp2"),
        // Original parameters that are not cut keep their sizes: a matrix is multiplied, or has rows and columns.
        ParallelStrategy::Fsdp1
            if keys.use_orig_params
                && keys.sharding_strategy == ShardingStrategy::NoShard
                && matches!(training.optimizer, Optimizer::Muon | Optimizer::Adafactor | Optimizer::AdafactorTorch) =>
        {
            Some("fsdp1 that cuts nothing, with original parameters,")
        }
        _ => None,
    };
    if let Some(with) = with {
        let what = format!("{} under {with}", training.optimizer);
        return refuse(crate::at::training::optimizer, what, "use sgd, sgd-momentum, adam or adamw");
    }
    if training.loss_impl != LossImpl::Full || training.label_smoothing > 0.0 {
        let what = "a loss that is not the model's own under FSDP".to_owned();
        return refuse(crate::at::training::loss_impl, what, "use loss_impl = \"full\" without label_smoothing");
    }
    Ok(())
}
