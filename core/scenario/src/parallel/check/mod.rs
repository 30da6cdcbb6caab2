//! What of `[parallel]` can stand beside what, and what of it is not run yet.

use plimsoll_ground::{Error, Reason, Result};

use super::{LoadFrom, Parallel, ParallelStrategy, PolicyDtype, Schedule, ShardingStrategy, Wrap, at, ddp, fsdp, zero};
use crate::{Checkpointing, LossImpl, ModelSource, QuantStorage, Quantization, Scenario, ZeroGrad, ZeroGradAt, levers};

mod of_fsdp;
mod of_zero;

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
    let second = [fsdp::at::reshard_after_forward, fsdp::at::reshard_after_backward];
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
    if training.reference_model {
        let key = crate::at::training::reference_model;
        return refuse(
            key,
            format!("a reference model under {strategy}"),
            "leave reference_model out, or use one card",
        );
    }
    if training.checkpointing == Checkpointing::Reentrant {
        reentrant(parallel)?;
    }
    match strategy {
        ParallelStrategy::DataParallel => with_data_parallel(scenario),
        ParallelStrategy::Ddp => with_ddp(scenario),
        strategy if strategy.is_zero() => of_zero::with_zero(scenario),
        ParallelStrategy::Fsdp2 => of_fsdp::with_fsdp2(scenario),
        _ => of_fsdp::with_fsdp(scenario),
    }
}

/// A backward within another one, beside what watches backward.
fn reentrant(parallel: &Parallel) -> Result<()> {
    let key = crate::at::training::checkpointing;
    let hint = "use full, which is use_reentrant=False";
    match parallel.strategy {
        // The reducer takes the parameters of a checkpoint for unused, as its output's graph does not lead to them, and has them ready
        // before their gradients come. Seen with PyTorch 2.11 on a hollow card.
        ParallelStrategy::Ddp if parallel.ddp.find_unused_parameters && !parallel.ddp.static_graph => Err(Error::new(
            key,
            "DistributedDataParallel that looks for unused parameters fails on reentrant checkpoints: \"Expected to mark a variable ready \
             only once\"",
            "use full, which is use_reentrant=False, leave find_unused_parameters out, or set parallel.ddp.static_graph",
        )
        .because(Reason::ReadyTwice)),
        // `AccumulateGrad` of the one flat parameter runs in the first checkpoint's backward, and its hook lets the whole of it go. Seen with
        // PyTorch 2.11 on a hollow card.
        ParallelStrategy::Fsdp1 if parallel.fsdp.wrap == Wrap::Root && parallel.fsdp.sharding_strategy != ShardingStrategy::NoShard => {
            let problem = "FSDP1 that wraps the model as one takes its gradients for there when the first reentrant checkpoint has gone backward, \
                           and the next one finds no weights";
            Err(Error::new(key, problem, "use full, which is use_reentrant=False, or wrap every layer (parallel.fsdp.wrap)"))
        }
        ParallelStrategy::Fsdp1 if parallel.fsdp.wrap != Wrap::Layer => {
            let problem = format!("a reentrant checkpoint under FSDP1 that wraps by {} is not estimated yet", parallel.fsdp.wrap);
            Err(Error::new(key, problem, hint))
        }
        strategy @ ParallelStrategy::DataParallel => {
            Err(Error::new(key, format!("a reentrant checkpoint under {strategy} is not estimated yet"), hint))
        }
        _ => Ok(()),
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

/// Refuses a parameter without dimensions, of which nothing can be cut ("FSDP doesn't support scalar parameters") and no bytes be
/// viewed (`p.data.view(torch.uint8)` in DeepSpeed's `_broadcast_model`).
fn sized(scenario: &Scenario) -> Result<()> {
    let recorded = match &scenario.model.source {
        ModelSource::Hull(hull) => hull.scalar(),
        _ => None,
    };
    let Some(name) = recorded.or_else(|| scenario.family().scalar.map(str::to_owned)) else { return Ok(()) };
    let strategy = scenario.parallel.strategy;
    let problem = format!("{strategy} takes no parameter without dimensions, which {name} of this model is");
    Err(Error::new(at::strategy, problem, "use ddp, or one card").because(Reason::ScalarParameter))
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

#[cfg(test)]
mod tests;
