//! What of `[parallel]` can stand beside what, and what of it is not run yet.

use plimsoll_catalog::families::{ExpertPart, Experts};
use plimsoll_ground::{Error, Result};

use super::{LoadFrom, Offload, ParallelStrategy, PolicyDtype, Schedule, ShardingStrategy, Wrap, at, ddp, fsdp, zero};
use crate::{
    BaseDtype, Checkpointing, Lora, LossImpl, ModelSource, Optimizer, OptimizerImpl, Precision, QuantStorage,
    Quantization, Scenario, ZeroGrad, ZeroGradAt, levers,
};

/// Whether the keys can stand beside one another.
///
/// # Errors
/// A strategy that needs several cards on one, several cards without a strategy, keys of another strategy.
pub(crate) fn check(scenario: &Scenario) -> Result<()> {
    let parallel = &scenario.parallel;
    let gpus = parallel.gpus;
    match (gpus > 1, parallel.strategy) {
        (false, ParallelStrategy::None) => {}
        (true, ParallelStrategy::None) => {
            let problem = format!("{gpus} cards need one that says how they train together");
            return Err(Error::new(at::strategy, problem, "use ddp or fsdp2, or set parallel.gpus = 1"));
        }
        (false, strategy) => {
            let problem = format!("{strategy} spreads a training over several cards, and there is one");
            return Err(Error::new(at::strategy, problem, "set parallel.gpus, or leave the strategy out"));
        }
        (true, _) => {}
    }
    if gpus > parallel.per_node && !gpus.is_multiple_of(parallel.per_node) {
        return Err(Error::new(
            at::gpus,
            format!("{gpus} cards do not fill machines of {}", parallel.per_node),
            "choose a multiple of parallel.per_node, or set that too",
        ));
    }
    let foreign = |table: &str| {
        levers().find(|lever| {
            lever.path.starts_with(table) && lever.get(scenario) != lever.default(scenario) && lever.is_open(scenario)
        })
    };
    let says_nothing = |table, strategies: &[ParallelStrategy]| {
        if strategies.contains(&parallel.strategy) {
            return Ok(());
        }
        match foreign(table) {
            Some(lever) => {
                let problem = format!("says nothing where the strategy is {}", parallel.strategy);
                Err(Error::new(lever.path, problem, "leave it out"))
            }
            None => Ok(()),
        }
    };
    says_nothing("parallel.ddp.", &[ParallelStrategy::Ddp])?;
    says_nothing("parallel.fsdp.", &[ParallelStrategy::Fsdp2, ParallelStrategy::Fsdp1])?;
    for key in [fsdp::at::sharding_strategy, fsdp::at::use_orig_params, fsdp::at::backward_prefetch] {
        says_nothing(key, &[ParallelStrategy::Fsdp1])?;
    }
    says_nothing("parallel.zero.", &[ParallelStrategy::Zero1, ParallelStrategy::Zero2, ParallelStrategy::Zero3])?;
    let late = [
        zero::at::prefetch_bucket_size,
        zero::at::max_live_parameters,
        zero::at::max_reuse_distance,
        zero::at::param_persistence_threshold,
        zero::at::sub_group_size,
        zero::at::contiguous_gradients,
        zero::at::reduce_scatter,
        zero::at::offload_param,
    ];
    for key in late {
        says_nothing(key, &[ParallelStrategy::Zero3])?;
    }
    if !parallel.fsdp.modules.is_empty() && !matches!(scenario.model.source, ModelSource::Hull(_)) {
        let hint = "leave it out; a model recorded with plimsoll trace can be wrapped by name";
        return Err(Error::new(fsdp::at::modules, "every layer of this model is wrapped, or none", hint));
    }
    let second = [fsdp::at::reshard_after_forward, fsdp::at::reshard_after_backward, fsdp::at::modules];
    for key in second {
        says_nothing(key, &[ParallelStrategy::Fsdp2])?;
    }
    if parallel.replicate > 1
        && (parallel.strategy != ParallelStrategy::Fsdp2 || !gpus.is_multiple_of(parallel.replicate))
    {
        let problem =
            format!("{} copies of the shard group on {gpus} cards under {}", parallel.replicate, parallel.strategy);
        return Err(Error::new(at::replicate, problem, "use fsdp2, and a number that divides parallel.gpus"));
    }
    for (key, degree, said) in [
        (at::sequence_parallel, parallel.tensor, parallel.sequence_parallel),
        (at::loss_parallel, parallel.tensor, parallel.loss_parallel),
        (at::schedule, parallel.pipeline, parallel.schedule != Schedule::OneForwardOneBackward),
        (at::pipeline_micro_batches, parallel.pipeline, parallel.pipeline_micro_batches > 1),
    ] {
        if said && degree == 1 {
            let of = if key == at::sequence_parallel || key == at::loss_parallel { "tensor" } else { "pipeline" };
            return Err(Error::new(key, format!("says nothing where parallel.{of} is 1"), "leave it out"));
        }
    }
    let degrees = parallel
        .replicate
        .saturating_mul(parallel.tensor)
        .saturating_mul(parallel.context)
        .saturating_mul(parallel.expert)
        .saturating_mul(parallel.pipeline);
    if degrees > gpus {
        let problem = format!("the degrees of parallelism ask for {degrees} cards, and there are {gpus}");
        return Err(Error::new(at::gpus, problem, "set parallel.gpus to that many, or lower a degree"));
    }
    Ok(())
}

/// Refuses what is not run yet, by name.
///
/// # Errors
/// The first key that asks for it, with what is available.
pub(crate) fn estimated(scenario: &Scenario) -> Result<()> {
    let Scenario { parallel, training, .. } = scenario;
    let refuse =
        |key: &str, what: String, hint: &str| Err(Error::new(key, format!("{what} is not estimated yet"), hint));
    if !ParallelStrategy::ESTIMATED.contains(&parallel.strategy) {
        return refuse(
            at::strategy,
            parallel.strategy.to_string(),
            "use ddp, fsdp2, fsdp1, zero-1, zero-2, zero-3 or data-parallel, or one card",
        );
    }
    let degrees = [
        (at::tensor, parallel.tensor, "tensor parallelism"),
        (at::context, parallel.context, "context parallelism"),
        (at::expert, parallel.expert, "expert parallelism"),
        (at::pipeline, parallel.pipeline, "pipeline parallelism"),
    ];
    if let Some((key, _, name)) = degrees.into_iter().find(|(_, degree, _)| *degree > 1) {
        return refuse(key, name.to_owned(), "leave it out, and use ddp or fsdp2 over all cards");
    }
    if parallel.strategy == ParallelStrategy::None {
        return Ok(());
    }
    let strategy = parallel.strategy;
    if training.quantization != Quantization::None {
        quantized(scenario)?;
    }
    if training.ema {
        let key = crate::at::training::ema;
        return refuse(key, format!("a moving average under {strategy}"), "leave ema out, or use one card");
    }
    match strategy {
        ParallelStrategy::DataParallel => with_data_parallel(scenario),
        ParallelStrategy::Ddp => with_ddp(scenario),
        strategy if strategy.is_zero() => with_zero(scenario),
        ParallelStrategy::Fsdp2 => with_fsdp2(scenario),
        _ => with_fsdp(scenario),
    }
}

/// One process with all the cards, which copies the model to them in every forward.
fn with_data_parallel(scenario: &Scenario) -> Result<()> {
    let Scenario { parallel, training, .. } = scenario;
    if parallel.gpus > parallel.per_node {
        let problem = format!("DataParallel has one process, and {} cards stand in several machines", parallel.gpus);
        return Err(Error::new(at::gpus, problem, "use ddp, or set parallel.per_node to as many"));
    }
    if training.quantization != Quantization::None {
        let problem = "a quantized base under DataParallel is not estimated yet";
        return Err(Error::new(crate::at::training::quantization, problem, "use ddp"));
    }
    if training.loss_impl != LossImpl::Full || training.label_smoothing > 0.0 {
        let problem = "another loss than the model's own under DataParallel is not estimated yet";
        let hint = "use loss_impl = \"full\" without label_smoothing, or ddp";
        let key = if training.loss_impl == LossImpl::Full {
            crate::at::training::label_smoothing
        } else {
            crate::at::training::loss_impl
        };
        return Err(Error::new(key, problem, hint));
    }
    Ok(())
}

/// What a quantized base is spread by: bitsandbytes' weights are parameters of integers, or of what they are packed in.
fn quantized(scenario: &Scenario) -> Result<()> {
    let Scenario { parallel, training, .. } = scenario;
    let (strategy, storage) = (parallel.strategy, training.quant_storage);
    let (kind, packed) = (crate::at::training::quantization, crate::at::training::quant_storage);
    let own = training.loaded().packed();
    match strategy {
        ParallelStrategy::Fsdp1 | ParallelStrategy::Fsdp2 => {
            let words = if strategy == ParallelStrategy::Fsdp1 {
                "Cannot flatten integer dtype tensors"
            } else {
                "only Tensors of floating point dtype can require gradients"
            };
            if training.quantization == Quantization::Int8 {
                let problem = format!("PyTorch cuts no weights of int8 ({words:?})");
                return Err(Error::new(kind, problem, "use nf4 or nf4-double with quant_storage, or use ddp"));
            }
            if storage == QuantStorage::Uint8 {
                let problem = format!("{strategy} cuts no weights that are packed in uint8 ({words:?})");
                let hint = format!("set it to {own}, the dtype the rest is loaded in, or use ddp");
                return Err(Error::new(packed, problem, hint));
            }
            let cast = match parallel.fsdp.param_dtype {
                PolicyDtype::Own => storage,
                PolicyDtype::Bf16 => QuantStorage::Bfloat16,
                PolicyDtype::Fp16 => QuantStorage::Float16,
                PolicyDtype::Fp32 => QuantStorage::Float32,
            };
            if cast != storage {
                let problem = format!("FSDP would cast what is packed in {storage} to {cast}, as if it were numbers");
                return Err(Error::new(fsdp::at::param_dtype, problem, format!("leave it out, or pack in {cast}")));
            }
            // bitsandbytes puts a parameter of its own in the place of what was gathered.
            if parallel.fsdp.sharding_strategy == ShardingStrategy::ShardGradOp {
                let problem = "PyTorch runs no four-bit weights under SHARD_GRAD_OP (\"FSDP does not support changing the \
                               parameters between forward and backward\")";
                return Err(Error::new(fsdp::at::sharding_strategy, problem, "use full-shard, or fsdp2"));
            }
            // FSDP1 takes from the machine's memory what a script of one's own has quantized weight by weight and put there.
            let kept = strategy == ParallelStrategy::Fsdp1 && parallel.fsdp.load == LoadFrom::Cpu;
            if parallel.fsdp.load != LoadFrom::Cuda && !kept {
                let problem = "a quantized base is quantized on the card before it is cut";
                return Err(Error::new(fsdp::at::load, problem, "set it to cuda, or leave it out"));
            }
        }
        strategy if strategy.is_zero() && storage != QuantStorage::Uint8 && storage != own => {
            let problem = format!("DeepSpeed would cast what is packed in {storage} to {own}, as if it were numbers");
            return Err(Error::new(packed, problem, format!("set it to {own}, or leave it out")));
        }
        _ => {}
    }
    Ok(())
}

/// What DDP does that is followed.
fn with_ddp(scenario: &Scenario) -> Result<()> {
    let keys = &scenario.parallel.ddp;
    let training = &scenario.training;
    let outlives = training.zero_grad != ZeroGrad::SetToNone || training.zero_grad_at == ZeroGradAt::BeforeBackward;
    if keys.gradient_as_bucket_view && outlives {
        return Err(Error::new(
            ddp::at::gradient_as_bucket_view,
            "beside gradients that outlive the step it is not estimated yet",
            "use zero_grad = \"set-to-none\" after the step, or leave it out",
        ));
    }
    if keys.static_graph && keys.no_sync && training.accumulation > 1 {
        return Err(Error::new(
            ddp::at::static_graph,
            "PyTorch fails in the first micro-batch that is not synchronised (\"expect_autograd_hooks_ INTERNAL ASSERT FAILED\")",
            "leave it out, set parallel.ddp.no_sync = false or training.accumulation = 1",
        ));
    }
    let sinks =
        [(ddp::at::find_unused_parameters, keys.find_unused_parameters), (ddp::at::static_graph, keys.static_graph)];
    match sinks.into_iter().find(|(_, on)| *on && matches!(scenario.model.source, ModelSource::Hull(_))) {
        Some((key, _)) => {
            let problem = "clones every output, which is not estimated yet of a recorded model";
            Err(Error::new(key, problem, "leave it out, or use fsdp2"))
        }
        None => Ok(()),
    }
}

/// What DeepSpeed's engine does that is followed.
fn with_zero(scenario: &Scenario) -> Result<()> {
    let Scenario { parallel, training, .. } = scenario;
    let strategy = parallel.strategy;
    let refuse =
        |key: &str, what: String, hint: &str| Err(Error::new(key, format!("{what} is not estimated yet"), hint));
    let family = scenario.family();
    if family.is_own() && !["mlp", "hull"].contains(&family.name) {
        let hint = "use ddp, one card, or a model of Hugging Face";
        return refuse(at::gpus, format!("{strategy} of {}", family.name), hint);
    }
    if matches!(training.precision, Precision::Bf16Amp | Precision::Fp16Amp) {
        let hint = "DeepSpeed's own is precision = \"bf16\", or \"fp16\"; use one of them or \"fp32\"";
        return refuse(crate::at::training::precision, format!("autocast under {strategy}"), hint);
    }
    if parallel.zero.offload_optimizer != Offload::None && strategy == ParallelStrategy::Zero1 {
        return refuse(zero::at::offload_optimizer, format!("offload under {strategy}"), "use zero-2, or leave it out");
    }
    swapped(scenario)?;
    let plain = [Optimizer::Sgd, Optimizer::SgdMomentum, Optimizer::Adam, Optimizer::AdamW];
    if !plain.contains(&training.optimizer) {
        let what = format!("{} under {strategy}", training.optimizer);
        return refuse(crate::at::training::optimizer, what, "use sgd, sgd-momentum, adam or adamw");
    }
    if training.loss_impl != LossImpl::Full || training.label_smoothing > 0.0 {
        let what = format!("a loss that is not the model's own under {strategy}");
        return refuse(crate::at::training::loss_impl, what, "use loss_impl = \"full\" without label_smoothing");
    }
    if training.zero_grad != ZeroGrad::SetToNone || training.zero_grad_at != ZeroGradAt::AfterStep {
        let what = "gradients that outlive the step".to_owned();
        return refuse(
            crate::at::training::zero_grad,
            what,
            "DeepSpeed's engine lets them go with the step: leave it out",
        );
    }
    Ok(())
}

/// What DeepSpeed swaps to NVMe, and what it needs for that.
fn swapped(scenario: &Scenario) -> Result<()> {
    /// A parameter, its gradient, and both moments of Adam: each has a buffer while its sub-group is stepped
    /// (`swap_in_optimizer_state`).
    const BUFFERS: u64 = 4;
    let Scenario { parallel, training, .. } = scenario;
    let keys = &parallel.zero;
    let optimizer = keys.offload_optimizer == Offload::Nvme;
    let key = match (optimizer, keys.offload_param == Offload::Nvme) {
        (true, _) => zero::at::offload_optimizer,
        (false, true) => zero::at::offload_param,
        (false, false) => return Ok(()),
    };
    if parallel.strategy != ParallelStrategy::Zero3 {
        let problem = format!("DeepSpeed swaps to NVMe in stage 3 alone, and this is {}", parallel.strategy);
        return Err(Error::new(key, problem, "use zero-3, or cpu"));
    }
    if optimizer && !matches!(training.optimizer, Optimizer::Adam | Optimizer::AdamW) {
        let problem = format!("{} whose states lie on NVMe is not estimated yet", training.optimizer);
        return Err(Error::new(key, problem, "use adam or adamw, which DeepSpeed runs on the processor, or cpu"));
    }
    if optimizer && keys.offload_buffer_count < BUFFERS {
        return Err(Error::new(
            zero::at::offload_buffer_count,
            format!(
                "DeepSpeed fails in the second step: a parameter, its gradient and both moments are swapped in together, and there are \
                 {} buffers for these {BUFFERS}",
                keys.offload_buffer_count
            ),
            format!("set it to at least {BUFFERS}"),
        ));
    }
    Ok(())
}

/// `fully_shard` hands the optimizer tensors of PyTorch's distributed kind, which not every kernel takes.
fn with_fsdp2(scenario: &Scenario) -> Result<()> {
    let training = &scenario.training;
    let sgd = matches!(training.optimizer, Optimizer::Sgd | Optimizer::SgdMomentum);
    if sgd && training.optimizer_impl == OptimizerImpl::Fused {
        return Err(Error::new(
            crate::at::training::optimizer_impl,
            "PyTorch has no fused SGD for the parameters of fully_shard (`_fused_sgd_` has no sharding strategy)",
            "use foreach or for-loop",
        ));
    }
    let keys = &scenario.parallel.fsdp;
    let casts = matches!(keys.param_dtype, PolicyDtype::Bf16 | PolicyDtype::Fp16);
    let recomputes = training.checkpointing != Checkpointing::None;
    // `FSDPState._pre_forward` casts a module's inputs (`cast_forward_inputs`), but returns them as they are while backward runs; a
    // checkpoint within the module keeps them as they were. Seen with transformers 5.17 on a hollow card; where the root alone is
    // wrapped no layer's inputs are cast.
    if scenario.family().wide_tables && casts && recomputes && keys.wrap != Wrap::Root {
        return Err(Error::new(
            fsdp::at::param_dtype,
            format!(
                "PyTorch fails in the first backward: fully_shard casts the float32 tables of positions that layers of {} are given in the \
                 forward, and not in the recomputation (\"Recomputed values for the following tensors have different metadata\")",
                scenario.family().name
            ),
            "leave it out and set precision = \"bf16\" or \"bf16-amp\", set parallel.fsdp.wrap = \"root\", use fsdp1, or set \
             training.checkpointing = \"none\"",
        ));
    }
    with_fsdp(scenario)
}

/// One flat parameter of a block's frozen weights and its adapters.
fn with_flat_adapters(scenario: &Scenario, lora: &Lora) -> Result<()> {
    let Scenario { parallel, training, .. } = scenario;
    let alone = parallel.fsdp.wrap == Wrap::Peft;
    let reaches = |experts: Experts| ExpertPart::ALL.into_iter().any(|part| lora.reaches(experts, part));
    // `ParamWrapper.get_delta_weight` of peft reads the weights of `lora_A` and `lora_B` and calls neither: nothing gathers what FSDP1
    // wrapped by itself. Seen with peft 0.21 on a hollow card, with use_orig_params and without.
    if alone && scenario.family().experts.is_some_and(reaches) {
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
fn with_fsdp(scenario: &Scenario) -> Result<()> {
    let Scenario { parallel, training, .. } = scenario;
    let keys = &parallel.fsdp;
    let refuse =
        |key: &str, what: String, hint: &str| Err(Error::new(key, format!("{what} is not estimated yet"), hint));
    let family = scenario.family();
    if family.is_own() && !["mlp", "hull"].contains(&family.name) {
        let hint = "use ddp, one card, or a model of Hugging Face";
        return refuse(at::gpus, format!("{} of {}", parallel.strategy, family.name), hint);
    }
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
    if !plain.contains(&training.optimizer) {
        let what = format!("{} under FSDP", training.optimizer);
        return refuse(crate::at::training::optimizer, what, "use sgd, sgd-momentum, adam or adamw");
    }
    if training.loss_impl != LossImpl::Full || training.label_smoothing > 0.0 {
        let what = "a loss that is not the model's own under FSDP".to_owned();
        return refuse(crate::at::training::loss_impl, what, "use loss_impl = \"full\" without label_smoothing");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::Scenario;

    /// What stands against a LoRA run that is spread as `parallel` says, if anything does.
    fn problem(parallel: Value, training: Value) -> Option<String> {
        let mut training = training;
        training["lora"] = training.get("lora").cloned().unwrap_or_else(|| json!({ "rank": 8 }));
        let model = json!({ "hf": { "model_type": "bert" }, "task": "masked-lm" });
        let scenario = json!({ "model": model, "input": { "seq": 16 }, "training": training, "parallel": parallel });
        let checked = Scenario::from_value(&scenario).and_then(|scenario| scenario.estimated());
        checked.err().map(|error| error.to_string())
    }

    #[test]
    fn adapters_of_an_encoder_are_spread_by_every_strategy() {
        for strategy in ["ddp", "fsdp2", "zero-0", "zero-1", "zero-2", "zero-3"] {
            assert_eq!(problem(json!({ "gpus": 4, "strategy": strategy }), json!({ "precision": "bf16" })), None);
        }
    }

    #[test]
    fn tables_of_positions_that_are_cast_once_are_refused_where_layers_are_recomputed() {
        let of = |model: &str, parallel: Value, checkpointing: &str| {
            let scenario = json!({ "model": { "hf": { "model_type": model } }, "input": { "seq": 16 },
                "training": { "precision": "fp32", "checkpointing": checkpointing }, "parallel": parallel });
            Scenario::from_value(&scenario).and_then(|scenario| scenario.estimated()).is_ok()
        };
        let cut = |strategy: &str, wrap: &str| json!({ "gpus": 4, "strategy": strategy, "fsdp": { "param_dtype": "bf16", "wrap": wrap } });
        for model in ["olmo", "olmo2"] {
            assert!(!of(model, cut("fsdp2", "layer"), "full"));
            assert!(of(model, cut("fsdp2", "root"), "full"));
            assert!(of(model, cut("fsdp1", "layer"), "full"));
            assert!(of(model, cut("fsdp2", "layer"), "none"));
            assert!(of(model, json!({ "gpus": 4, "strategy": "fsdp2" }), "full"));
        }
        assert!(of("olmoe", cut("fsdp2", "layer"), "full") && of("llama", cut("fsdp2", "layer"), "full"));
    }

    #[test]
    fn a_quantized_base_is_cut_where_it_is_packed_in_floating_point_numbers() {
        let of = |strategy: &str, training: Value| {
            let fsdp = if strategy == "fsdp1" { json!({ "use_orig_params": true }) } else { json!({}) };
            problem(json!({ "gpus": 2, "strategy": strategy, "fsdp": fsdp }), training).unwrap_or_default()
        };
        let nf4 = |storage: &str| json!({ "precision": "fp32", "quantization": "nf4", "quant_storage": storage });
        for strategy in ["ddp", "zero-1", "zero-2", "zero-3"] {
            assert_eq!(
                problem(
                    json!({ "gpus": 2, "strategy": strategy }),
                    json!({ "precision": "fp32", "quantization": "int8" })
                ),
                None
            );
            assert_eq!(problem(json!({ "gpus": 2, "strategy": strategy }), nf4("uint8")), None, "{strategy}");
        }
        for strategy in ["fsdp1", "fsdp2"] {
            assert_eq!(of(strategy, nf4("float32")), "");
            assert!(of(strategy, nf4("uint8")).contains("set it to float32"), "{}", of(strategy, nf4("uint8")));
            assert!(of(strategy, json!({ "precision": "fp32", "quantization": "int8" })).contains("int8"));
        }
        assert!(of("fsdp1", nf4("bfloat16")).contains("uniform dtype"));
        assert!(
            problem(json!({ "gpus": 2, "strategy": "zero-3" }), nf4("bfloat16")).unwrap_or_default().contains("cast")
        );
    }

    #[test]
    fn what_pytorch_lays_into_no_flat_parameter_is_refused_in_its_words() {
        let fsdp1 =
            |originals: bool| json!({ "gpus": 4, "strategy": "fsdp1", "fsdp": { "use_orig_params": originals } });
        let of = |originals, training| problem(fsdp1(originals), training).unwrap_or_default();
        assert!(of(false, json!({ "precision": "fp32" })).contains("uniform `requires_grad`"));
        assert!(of(true, json!({ "precision": "bf16" })).contains("uniform dtype"));
        let own = json!({ "precision": "bf16", "lora": { "rank": 8, "autocast_adapter_dtype": false } });
        assert_eq!(of(true, own), "");
        assert_eq!(of(true, json!({ "precision": "fp32" })), "");
    }
}
