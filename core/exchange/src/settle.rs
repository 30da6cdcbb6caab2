//! A draft becomes the table of a scenario: what depends on several keys is decided here, once for all tools.

use plimsoll_catalog::families::{Family, Liger, Task};
use plimsoll_catalog::{self as catalog, families, search};
use plimsoll_scenario::{
    ActivationOffloading, Attention, AttentionMask, BaseDtype, Checkpointing, Kernels, LossImpl, ParallelStrategy,
    Precision, Quantization, Trainer, Wrap, ZeroGrad, at, print_memory, strategies,
};
use serde_json::{Map, Value, json};

use crate::draft::{Draft, Dtype, Recomputed, Reentrant, Stage3, Targets};
use crate::rule::Heard;

/// GiB in bytes.
const GIB: f64 = (1_u64 << 30) as f64;

/// What a draft says, by the paths of levers.
pub fn settle(draft: &mut Draft, gpus: Option<u64>) -> Map<String, Value> {
    let mut out = Table(Map::new());
    model(draft, &mut out);
    let loss = recipe(draft, &mut out);
    adapters(draft, &mut out);
    cards(draft, gpus, &mut out);
    out.maybe(at::training::trainer, trainer(draft, gpus, &out, loss).map(Trainer::as_str));
    memory(draft, &mut out);
    out.0
}

/// A scenario's table that is filled by paths.
struct Table(Map<String, Value>);

impl Table {
    fn put(&mut self, path: &str, value: Value) {
        let mut place = &mut self.0;
        let mut steps = path.split('.').peekable();
        while let Some(step) = steps.next() {
            if steps.peek().is_none() {
                place.insert(step.to_owned(), value);
                return;
            }
            let inner = place.entry(step).or_insert_with(|| json!({}));
            let Value::Object(table) = inner else { return };
            place = table;
        }
    }

    fn maybe(&mut self, path: &str, value: Option<impl Into<Value>>) {
        if let Some(value) = value {
            self.put(path, value.into());
        }
    }
}

fn model(draft: &mut Draft, out: &mut Table) {
    if let Some(config) = draft.config.take() {
        out.put("model.hf", config);
    } else if let Some(name) = &draft.model {
        match search::called(name) {
            Some(id) => out.put(at::model::catalog, id.into()),
            None => {
                let text = format!("no model of the catalog is called {name}: give its config.json too, or name one");
                draft.remark(text);
            }
        }
    }
    out.maybe(at::input::seq, draft.seq);
    out.maybe(at::input::image, draft.image);
    if draft.packing == Some(true) {
        out.put(at::input::attention_mask, AttentionMask::None.as_str().into());
    }
}

fn precision(draft: &mut Draft, quantized: bool) -> Precision {
    let trains_base = draft.adapters != Some(true) && !quantized;
    let weights = draft.weights.filter(|_| !(trains_base && draft.trained_in_float32));
    let autocast = match (draft.bf16, draft.fp16) {
        (Some(true), _) => Some(Dtype::Bfloat16),
        (_, Some(true)) => Some(Dtype::Float16),
        _ => None,
    };
    // DeepSpeed casts the model itself, and keeps float32 masters in its optimizer.
    if draft.strategy.is_some_and(ParallelStrategy::is_zero) {
        return match autocast {
            Some(Dtype::Bfloat16) => Precision::Bf16,
            Some(Dtype::Float16) => Precision::Fp16,
            Some(Dtype::Float32) | None => Precision::Fp32,
        };
    }
    match (autocast, weights) {
        (Some(half), Some(weights)) if trains_base && weights != Dtype::Float32 => {
            draft.remark(
                "16-bit weights that are trained under autocast are estimated without it, as weights of that type",
            );
            if half == Dtype::Float16 && weights == Dtype::Float16 { Precision::Fp16 } else { Precision::Bf16 }
        }
        (Some(Dtype::Float16), _) => Precision::Fp16Amp,
        (Some(_), _) => Precision::Bf16Amp,
        (None, Some(Dtype::Bfloat16)) => Precision::Bf16,
        (None, Some(Dtype::Float16)) => Precision::Fp16,
        (None, _) => Precision::Fp32,
    }
}

/// Answers how the loss is computed.
fn recipe(draft: &mut Draft, out: &mut Table) -> Option<LossImpl> {
    let quantization = match (draft.four_bit, draft.eight_bit, draft.double_quant) {
        (Some(true), _, Some(true)) => Quantization::Nf4Double,
        (Some(true), ..) => Quantization::Nf4,
        (_, Some(true), _) => Quantization::Int8,
        _ => Quantization::None,
    };
    let quantized = quantization != Quantization::None;
    let said = draft.bf16.is_some() || draft.fp16.is_some() || draft.weights.is_some();
    if said {
        let precision = precision(draft, quantized);
        out.put(at::training::precision, precision.as_str().into());
        let autocast = matches!(precision, Precision::Bf16Amp | Precision::Fp16Amp);
        let base = match draft.weights {
            Some(Dtype::Bfloat16) => Some(BaseDtype::Bfloat16),
            Some(Dtype::Float16) => Some(BaseDtype::Float16),
            _ => None,
        };
        // Float32 under autocast is what goes with it.
        let base = base.filter(|_| autocast && !quantized && draft.adapters == Some(true));
        out.put(at::training::base_dtype, base.unwrap_or(BaseDtype::Precision).as_str().into());
    }
    if draft.four_bit.is_some() || draft.eight_bit.is_some() {
        out.put(at::training::quantization, quantization.as_str().into());
    }
    if matches!(quantization, Quantization::Nf4 | Quantization::Nf4Double) {
        out.maybe(at::training::quant_storage, draft.quant_storage.map(|word| word.as_str()));
    }
    if quantized && draft.adapters != Some(false) {
        out.maybe(at::training::prepare_kbit, draft.prepare_kbit.or(by_trl_alone(draft).then_some(false)));
    }
    out.maybe(at::training::optimizer, draft.optimizer.map(|word| word.as_str()));
    out.maybe(at::training::optimizer_impl, draft.implementation.map(|word| word.as_str()));
    let recomputed = draft.recomputed.filter(|_| draft.partly);
    offloaded_inputs(draft);
    let nested = draft.checkpointing == Some(true) && recomputed != Some(Recomputed::Cheap) && is_reentrant(draft);
    let checkpointing = |on: bool| match recomputed {
        _ if !on => Checkpointing::None,
        Some(Recomputed::Cheap) => Checkpointing::Selective,
        Some(Recomputed::Every(_)) | None if nested => Checkpointing::Reentrant,
        Some(Recomputed::Every(_)) | None => Checkpointing::Full,
    };
    out.maybe(at::training::checkpointing, draft.checkpointing.map(|on| checkpointing(on).as_str()));
    if let (Some(true), Some(Recomputed::Every(every))) = (draft.checkpointing, recomputed) {
        out.put(at::training::checkpoint_every, every.into());
    }
    out.maybe(at::training::attention, draft.attention.map(Attention::as_str));
    out.maybe(at::training::clip_grad_norm, draft.clip);
    out.maybe(at::training::optimizer_in_backward, draft.in_backward);
    out.maybe(at::training::activation_offloading, draft.offloading.map(|word| word.as_str()));
    let zero = |zeros| if zeros { ZeroGrad::Zero } else { ZeroGrad::SetToNone };
    out.maybe(at::training::zero_grad, draft.zeros.map(|zeros| zero(zeros).as_str()));
    let loss = loss(draft, out);
    out.maybe(at::training::loss_impl, loss.map(LossImpl::as_str));
    out.maybe(at::training::kernels, kernels(draft, out).map(Kernels::as_str));
    let reference = draft.reference && draft.adapters != Some(true);
    if reference && draft.strategy.is_some() {
        draft.remark(
            "the reference is a model of its own beside it, which over several cards is not estimated: it comes on top",
        );
    }
    out.maybe(at::training::reference_model, (reference && draft.strategy.is_none()).then_some(true));
    out.maybe(at::training::amsgrad, draft.amsgrad);
    out.maybe(at::training::label_smoothing, draft.smoothing);
    out.maybe(at::training::compile, draft.compile);
    out.maybe(at::training::use_cache, draft.use_cache);
    loss
}

/// Where the input of each checkpoint waits in the machine's memory: its checkpoints are reentrant ones, and without checkpoints
/// nothing does.
fn offloaded_inputs(draft: &mut Draft) {
    if draft.offloading != Some(ActivationOffloading::CheckpointInputs) {
        return;
    }
    if draft.checkpointing != Some(true) {
        draft.offloading = None;
    } else if goes_nested(draft) {
        draft.reentrant = Some(true);
    } else {
        draft.remark("what layers keep is estimated on the card: its offloading is not under DataParallel, nor where FSDP1 wraps all as one");
        (draft.offloading, draft.reentrant) = (None, Some(false));
    }
}

/// Whether a reentrant checkpoint runs under what spreads the model, and is estimated.
fn goes_nested(draft: &Draft) -> bool {
    use ParallelStrategy as S;
    match draft.strategy {
        Some(S::DataParallel) => false,
        Some(S::Fsdp1) => draft.wrap != Some(Wrap::Root),
        _ => true,
    }
}

/// Whether checkpoints are reentrant, and are estimated so.
fn is_reentrant(draft: &mut Draft) -> bool {
    use ParallelStrategy as S;
    let spread = draft.strategy;
    let wrapped = draft.offloading == Some(ActivationOffloading::OffloadActivations) && draft.adapters != Some(true);
    let asked = match draft.reentrant_unsaid {
        Some(Reentrant::ButOffloaded) if wrapped => false,
        unsaid => draft.reentrant.unwrap_or(match unsaid {
            Some(Reentrant::Always | Reentrant::ButOffloaded) => true,
            Some(Reentrant::ButUnderDdp) => spread != Some(S::Ddp),
            Some(Reentrant::WithoutTrainer) => !draft.by_trainer,
            None => false,
        }),
    };
    if asked && !goes_nested(draft) {
        draft.remark(
            "checkpoints are estimated with use_reentrant=False: reentrant ones are not under DataParallel, nor where FSDP1 wraps all as one",
        );
        return false;
    }
    asked
}

/// Whether trl's SFTTrainer runs it on one card, or on several that know of no part of a model.
fn by_trl_alone(draft: &Draft) -> bool {
    draft.by_trl && draft.strategy.is_none()
}

/// The family of the model that was said, or is known from elsewhere.
fn family(draft: &Draft, out: &Table) -> Option<&'static Family> {
    let model = out.0.get("model").or(draft.known.as_ref())?;
    let of_catalog = || Some(catalog::model(model.get("catalog")?.as_str()?)?.model_type);
    let model_type = model.get("hf").and_then(|config| config.get("model_type")?.as_str()).or_else(of_catalog)?;
    families::of_type(model_type)
}

/// Whose kernels run. Where the whole model is Liger's, what is not said of them is so; where each is asked for on its own, it is not.
fn kernels(draft: &mut Draft, out: &Table) -> Option<Kernels> {
    let whole = draft.liger == Some(true);
    let asked = draft.liger_parts.iter().filter(|part| part.unwrap_or(whole)).count();
    let family = family(draft, out)?;
    if draft.like_liger {
        return family.liger.map(|_| Kernels::Liger);
    }
    if asked == 0 {
        return draft.liger.map(|_| Kernels::Default);
    }
    // What Liger has nothing for in a model nobody needs to ask for.
    let all = |liger: &Liger| {
        let there = [liger.rope, true, liger.gate.is_some()];
        draft.liger_parts.iter().zip(there).all(|(part, there)| !there || part.unwrap_or(whole))
    };
    if family.liger.is_some_and(all) {
        return Some(Kernels::Liger);
    }
    draft.remark(if family.liger.is_some() {
        "Liger's norms, positions and gated activations are estimated together: the model's own stand for those that were asked for, \
         and keep more"
    } else if family.experts.is_some() {
        // `LigerFusedMoEFunction.backward`: `zeros_like(gate_up_proj)`, `zeros_like(down_proj)`, whoever needs them.
        "Liger's norms and experts are not followed in this model: its own stand for them. Under adapters Liger's backward makes gradients \
         of the frozen experts, too, those of one layer at a time"
    } else {
        "Liger's norms and gated activations are not followed in this model: its own stand for them, which keep more"
    });
    None
}

/// How the loss is computed. Labels that are smoothed trl computes with all logits, as the Trainer does.
fn loss(draft: &mut Draft, out: &Table) -> Option<LossImpl> {
    // trl leaves Liger's loss out, and keeps no logits either.
    let fused = draft.liger_loss.or(draft.liger).filter(|_| draft.liger_loss.is_some() || !draft.by_trl);
    if let (None, Some(fused)) = (draft.loss, fused) {
        draft.loss = Some(if fused { LossImpl::FusedLinear } else { LossImpl::Full });
    }
    if draft.loss.is_some() || !draft.by_trl || draft.smoothing.is_some_and(|smoothing| smoothing > 0.0) {
        return draft.loss;
    }
    let family = family(draft, out)?;
    let in_tiles = family.tasks.first().is_some_and(|task| family.computes_loss_in_tiles(*task));
    if !in_tiles || draft.strategy.is_some() {
        draft.remark(
            "trl's loss keeps no logits since 1.7; here the model's own stands for it, which does, and takes more",
        );
        return None;
    }
    draft.remark("trl's loss keeps no logits since 1.7. Before it is loss_impl = \"full\"");
    Some(LossImpl::FusedLmHead)
}

/// Whose loop runs it: transformers' Trainer, where that is followed.
fn trainer(draft: &Draft, gpus: Option<u64>, out: &Table, loss: Option<LossImpl>) -> Option<Trainer> {
    let followed =
        family(draft, out).is_some_and(|family| !family.is_own() && family.tasks.first() == Some(&Task::CausalLm));
    let liger =
        out.0.get("training").is_some_and(|training| training.get("kernels") == Some(&json!(Kernels::Liger.as_str())));
    let plain = match loss {
        None | Some(LossImpl::Full | LossImpl::FusedLmHead) => true,
        Some(LossImpl::FusedLinear) => liger,
        Some(LossImpl::Chunked) => false,
    };
    let alone = draft.strategy.is_none() && gpus.or(draft.gpus).or(draft.per_node).unwrap_or(1) == 1;
    let smoothed = draft.smoothing.is_some_and(|smoothing| smoothing > 0.0);
    (draft.by_trainer && followed && plain && alone && !smoothed).then_some(Trainer::Transformers)
}

fn adapters(draft: &Draft, out: &mut Table) {
    if draft.adapters == Some(false) {
        // Said to be none, whatever stood there.
        out.put("training.lora", Value::Null);
    }
    if draft.adapters != Some(true) {
        return;
    }
    // An empty table is adapters as peft has them.
    out.put("training.lora", json!({}));
    out.maybe(at::lora::rank, draft.rank);
    let targets = draft.targets.clone().map(|targets| match targets {
        Targets::All => json!("all-linear"),
        Targets::Names(names) => json!(names),
    });
    out.maybe(at::lora::targets, targets);
    out.maybe(at::lora::dropout, draft.dropout.filter(|_| !draft.disable_dropout));
    out.maybe(at::lora::dora, draft.dora);
    let quantized = draft.four_bit == Some(true) || draft.eight_bit == Some(true);
    let cast = (by_trl_alone(draft) && quantized).then_some(false);
    out.maybe(at::lora::autocast_adapter_dtype, draft.adapters_in_float32.or(cast));
    out.maybe(at::lora::modules_to_save, draft.save.clone().filter(|names| !names.is_empty()));
}

fn cards(draft: &mut Draft, given: Option<u64>, out: &mut Table) {
    let launched = draft.per_node.map(|cards| cards.saturating_mul(draft.nodes.unwrap_or(1)));
    let said = draft.gpus.or(launched);
    let gpus = given.or(said);
    let batch_and_steps = (draft.batch, draft.accumulation, draft.global_batch);
    let sequences = if draft.pairs { 2 } else { 1 };
    out.maybe(at::input::batch, draft.batch.map(|batch| batch.saturating_mul(sequences)));
    // Two of the three say the third.
    let degrees = [draft.tensor, draft.context, draft.pipeline].into_iter().flatten().fold(1_u64, u64::saturating_mul);
    let replicas = gpus.unwrap_or(1).checked_div(degrees.max(1)).unwrap_or(1).max(1);
    let accumulation = match batch_and_steps {
        (_, Some(steps), _) => Some(steps),
        (Some(batch), None, Some(all)) => {
            let one = batch.saturating_mul(replicas);
            let steps = all.checked_div(one).unwrap_or(1).max(1);
            draft.remark(format!(
                "{all} samples a step in micro-batches of {batch} on {replicas} card{}: {steps} micro-batches",
                if replicas == 1 { "" } else { "s" }
            ));
            Some(steps)
        }
        _ => None,
    };
    out.maybe(at::training::accumulation, accumulation);
    let several = gpus.unwrap_or(1) > 1;
    out.maybe(at::parallel::gpus, said);
    if draft.nodes.unwrap_or(1) > 1 {
        out.maybe(at::parallel::per_node, draft.per_node);
    }
    let Some(strategy) = draft.strategy else { return };
    if !several {
        draft
            .remark(format!("{strategy} is for several cards, and how many is not said: --gpus, or one card is taken"));
        return;
    }
    out.put(at::parallel::strategy, strategy.as_str().into());
    for (path, degree) in [
        (at::parallel::replicate, draft.replicate),
        (at::parallel::tensor, draft.tensor),
        (at::parallel::context, draft.context),
        (at::parallel::pipeline, draft.pipeline),
        (at::parallel::expert, draft.expert),
    ] {
        out.maybe(path, degree.filter(|degree| *degree > 1));
    }
    match strategy {
        ParallelStrategy::Ddp => {
            out.maybe(strategies::ddp::bucket_cap_mb, draft.bucket_cap_mb);
            out.maybe(strategies::ddp::gradient_as_bucket_view, draft.bucket_view);
            out.maybe(strategies::ddp::static_graph, draft.static_graph);
            out.maybe(strategies::ddp::find_unused_parameters, draft.find_unused);
            out.maybe(strategies::ddp::broadcast_buffers, draft.broadcast_buffers);
        }
        ParallelStrategy::Fsdp2 => {
            out.maybe(strategies::fsdp::reshard_after_forward, draft.reshard.map(|word| word.as_str()));
            out.maybe(strategies::fsdp::wrap, draft.wrap.map(|word| word.as_str()));
            out.maybe(strategies::fsdp::param_dtype, draft.param_dtype.map(|word| word.as_str()));
            out.maybe(strategies::fsdp::reduce_dtype, draft.reduce_dtype.map(|word| word.as_str()));
            out.maybe(strategies::fsdp::cpu_offload, draft.cpu_offload);
        }
        ParallelStrategy::Fsdp1 => {
            out.maybe(strategies::fsdp::sharding_strategy, draft.sharding.map(|word| word.as_str()));
            out.maybe(strategies::fsdp::use_orig_params, draft.orig_params);
            out.maybe(strategies::fsdp::backward_prefetch, draft.backward_prefetch.map(|word| word.as_str()));
            out.maybe(strategies::fsdp::wrap, draft.wrap.map(|word| word.as_str()));
            out.maybe(strategies::fsdp::cpu_offload, draft.cpu_offload);
        }
        ParallelStrategy::Zero1 | ParallelStrategy::Zero2 | ParallelStrategy::Zero3 => {
            out.maybe(strategies::zero::reduce_bucket_size, draft.reduce_bucket);
            out.maybe(strategies::zero::overlap_comm, draft.overlap);
            out.maybe(strategies::zero::offload_optimizer, draft.offload_optimizer.map(|word| word.as_str()));
            if draft.strategy == Some(ParallelStrategy::Zero3) {
                stage3(&draft.stage3, out);
            }
        }
        _ => {}
    }
}

/// What stage 3 alone reads.
fn stage3(said: &Stage3, out: &mut Table) {
    out.maybe(strategies::zero::prefetch_bucket_size, said.prefetch);
    out.maybe(strategies::zero::max_live_parameters, said.live);
    out.maybe(strategies::zero::max_reuse_distance, said.reuse);
    out.maybe(strategies::zero::param_persistence_threshold, said.persistence);
    out.maybe(strategies::zero::sub_group_size, said.sub_group);
    out.maybe(strategies::zero::contiguous_gradients, said.contiguous);
    out.maybe(strategies::zero::reduce_scatter, said.scatters);
    out.maybe(strategies::zero::offload_param, said.offload.map(|word| word.as_str()));
    out.maybe(strategies::zero::offload_buffer_count, said.buffers);
    out.maybe(strategies::zero::offload_param_buffer_count, said.param_buffers);
    out.maybe(strategies::zero::offload_param_buffer_size, said.param_buffer);
    out.maybe(strategies::zero::offload_param_max_in_cpu, said.param_max_in_cpu);
    out.maybe(strategies::zero::aio_block_size, said.aio_block);
    out.maybe(strategies::zero::aio_intra_op_parallelism, said.aio_threads);
}

fn memory(draft: &Draft, out: &mut Table) {
    let size = |gib: f64| {
        // Sizes that make no sense are for the scenario to refuse.
        let bytes = format!("{:.0}", gib * GIB).parse::<u64>().unwrap_or_default();
        Value::String(print_memory(plimsoll_ground::Bytes::new(bytes)))
    };
    let Some(memory) = draft.budget.memory_gib else { return };
    out.put(at::device::memory, size(memory));
    if let Some(target) = draft.budget.target {
        out.put(at::device::load_line, size(memory * target));
    }
}

/// A number of GiB, with or without its unit.
pub fn gib(value: &Value) -> Option<f64> {
    match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => {
            let text = text.trim();
            let plain = text.trim_end_matches(|c: char| c.is_alphabetic()).trim();
            plain.parse().ok()
        }
        _ => None,
    }
    .filter(|gib: &f64| gib.is_finite() && *gib > 0.0 && *gib < 1e6)
}

/// `gib`, or what was wrong.
pub fn memory_of(draft: &mut Draft, value: &Value) -> Heard {
    match gib(value) {
        Some(gib) => {
            draft.budget.memory_gib = Some(gib);
            Heard::Taken
        }
        None => Heard::wrong("an amount of GiB"),
    }
}
