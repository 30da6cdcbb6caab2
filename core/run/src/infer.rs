//! Inference: the model in evaluation, without gradients; a generation where it makes text, else one forward.

use std::rc::Rc;

use plimsoll_families::Built;
use plimsoll_ground::{Error, Result};
use plimsoll_ledger::PhaseName;
use plimsoll_scenario::{Precision, Scenario};
use plimsoll_torch::Batch;
use plimsoll_torch::generate::{Kept, generate};
use plimsoll_torch::tensor::{Context, DType};

/// Runs a loaded model, which [`Context::set_inference`] put into evaluation.
///
/// # Errors
/// When the model makes text but its generation is not estimated.
pub fn infer(cx: &Rc<Context>, built: &Built, scenario: &Scenario) -> Result<()> {
    let autocast = match scenario.training.precision {
        Precision::Fp16Amp => Some(DType::Float16),
        Precision::Bf16Amp => Some(DType::BFloat16),
        Precision::Fp32 | Precision::Fp16 | Precision::Bf16 => None,
    };
    let mut kept = Kept::default();
    cx.begin(PhaseName::Input, Some(1), Some(1));
    let mut batch = built.model.batch();
    let done = cx.no_grad(|| match (built.model.generate(), scenario.input.max_new_tokens) {
        (Some(model), Some(tokens)) => {
            let mut answer = |step, batch: &Batch| {
                let begin = |name| cx.begin(name, Some(step), None);
                begin(PhaseName::Prefill);
                // One region around the whole of it: the weights' copies are made once.
                cx.with_autocast(autocast, || {
                    generate(cx, model, &mut kept, batch, tokens, || begin(PhaseName::Decode))
                })
            };
            let mut answered = answer(1, &batch);
            if answered.remembers && answered.repeatable {
                // The next prompt finds other free blocks than the first one did, and the workspaces there.
                cx.begin(PhaseName::Input, Some(2), Some(1));
                drop((answered, batch));
                batch = built.model.batch();
                answered = answer(2, &batch);
            }
            cx.end();
            answered.remembers
        }
        (None, Some(_)) => false,
        (_, None) => {
            cx.begin(PhaseName::Forward, Some(1), Some(1));
            let output = cx.with_autocast(autocast, || built.model.forward(&batch));
            // The next batch finds the workspaces there that the first one took, and other free blocks: it may stand higher.
            cx.begin(PhaseName::Input, Some(2), Some(1));
            drop((output, batch));
            batch = built.model.batch();
            cx.begin(PhaseName::Forward, Some(2), Some(1));
            let output = cx.with_autocast(autocast, || built.model.forward(&batch));
            cx.end();
            drop(output);
            true
        }
    });
    if done {
        return Ok(());
    }
    Err(Error::new(
        "training.mode",
        "what this model generates is not estimated yet",
        "use mode = \"train\", or another model",
    ))
}
