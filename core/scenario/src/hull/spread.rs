//! Which strategies of several cards a recording is played under: those that act on parameters, their gradients, and calls of modules.

use plimsoll_ground::{Error, Result};

use super::{HullModel, variant};
use crate::parallel::{PolicyDtype, Wrap};
use crate::{ParallelStrategy, Precision, Quantization, Scenario, at};

/// Refuses what a recording does not hold enough for, by name.
///
/// # Errors
/// The first key that asks for it.
pub(super) fn check(scenario: &Scenario, model: &HullModel) -> Result<()> {
    let parallel = &scenario.parallel;
    let refuse = |key: &str, problem: &str, hint: &str| Err(Error::new(key, problem, hint));
    if parallel.strategy != ParallelStrategy::None && scenario.training.compile {
        let problem = "a compiled model runs as one call, and where in it a wrapper does its part is not recorded";
        return refuse(at::training::compile, problem, "leave it out, or use one card");
    }
    match parallel.strategy {
        ParallelStrategy::None => return Ok(()),
        ParallelStrategy::Ddp => {
            let sinks = [
                (at::ddp::find_unused_parameters, parallel.ddp.find_unused_parameters),
                (at::ddp::static_graph, parallel.ddp.static_graph),
            ];
            if let Some((key, _)) = sinks.into_iter().find(|(_, on)| *on) {
                let problem = "DDP then copies every output of the model, and which these are is not recorded";
                return refuse(key, problem, "leave it out");
            }
        }
        ParallelStrategy::Fsdp1 | ParallelStrategy::Fsdp2 => {
            if parallel.fsdp.wrap == Wrap::Torchtitan {
                let hint = "use wrap = \"layer\" or \"root\", or name modules: modules = [\"layers.*\", \"head\"]";
                return refuse(at::fsdp::wrap, "torchtitan's wrapping is known of its own models", hint);
            }
            if parallel.fsdp.param_dtype != PolicyDtype::Own {
                let problem = "a model that computes in another dtype than its parameters have is another program than the one that \
                               was recorded";
                return refuse(
                    at::fsdp::param_dtype,
                    problem,
                    "leave it out: use precision = \"bf16-amp\" or \"bf16\"",
                );
            }
        }
        ParallelStrategy::Zero1 | ParallelStrategy::Zero2 if scenario.training.quantization != Quantization::None => {
            let problem = format!("a quantized base under {} is not estimated for hulls yet", parallel.strategy);
            return refuse(at::training::quantization, &problem, "use ddp, or one card");
        }
        ParallelStrategy::Zero1 | ParallelStrategy::Zero2 => casts(scenario, model)?,
        strategy => {
            let problem = format!("{strategy} is not estimated for hulls yet");
            return refuse(at::parallel::strategy, &problem, "use ddp, fsdp2, fsdp1, zero-1 or zero-2, or one card");
        }
    }
    Ok(())
}

/// DeepSpeed casts parameters and leaves buffers as they are; a recording in 16 bits is of a model that was cast whole.
fn casts(scenario: &Scenario, model: &HullModel) -> Result<()> {
    if !matches!(scenario.training.precision, Precision::Bf16 | Precision::Fp16) {
        return Ok(());
    }
    let Some(hull) = &model.file else { return Ok(()) };
    let (wanted, precision) = (variant(&scenario.training), scenario.training.precision.as_str());
    let float = |number: u32| {
        hull.dtypes.get(number as usize).is_some_and(|name| name.starts_with(['f', 'b']) && name != "bool")
    };
    let buffers = hull.tapes.iter().filter(|tape| tape.precision == precision && tape.variant == wanted).any(|tape| {
        let parameter = |storage: u32| tape.parameters.iter().any(|parameter| parameter.storage == storage);
        let loaded = (0..).zip(&tape.storages).take(tape.loaded as usize);
        loaded.into_iter().any(|(storage, born)| float(born.dtype) && !parameter(storage))
    });
    if !buffers {
        return Ok(());
    }
    Err(Error::new(
        at::training::precision,
        format!(
            "DeepSpeed leaves this model's buffers in float32 beside parameters in 16 bits, and it was recorded with both in {precision}"
        ),
        "use precision = \"fp32\", or ddp or fsdp2",
    ))
}
