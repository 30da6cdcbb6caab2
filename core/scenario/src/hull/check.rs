//! What cannot be asked of a recording: it would be another program.

use plimsoll_ground::{Error, Result};

use super::{HullModel, spread, variant};
use crate::{AttentionMask, Checkpointing, LossImpl, Mode, Optimizer, QuantStorage, Scenario, at};

/// Refuses what would make another program of it, and what was not recorded, each with what records it.
///
/// # Errors
/// The first lever that does.
pub(crate) fn check(scenario: &Scenario, model: &HullModel) -> Result<()> {
    let training = &scenario.training;
    let another = |key: &str, what: &str, hint: &str| {
        Err(Error::new(key, format!("{what} makes another program than the one that was recorded"), hint))
    };
    if training.mode == Mode::Inference {
        let hint = "use training.mode = \"train\": plimsoll trace records training steps";
        return Err(Error::new(at::training::mode, "a hull holds a training step, and no inference", hint));
    }
    if let Some(lora) = &training.lora {
        let hint = "leave it out, or add the adapters in MODULE:CALLABLE and record that with plimsoll trace";
        if lora.dora {
            return another(at::lora::dora, "DoRA", hint);
        }
        if !lora.autocast_adapter_dtype {
            return another(at::lora::autocast_adapter_dtype, "an adapter in the base's dtype", hint);
        }
        if !lora.modules_to_save.is_empty() {
            return another(at::lora::modules_to_save, "a module that is trained whole", hint);
        }
    }
    if training.quant_storage != QuantStorage::Uint8 {
        let hint = "leave it out: bitsandbytes packs what is recorded in uint8";
        return another(at::training::quant_storage, "a base that is packed in other numbers", hint);
    }
    if training.loss_impl != LossImpl::Full {
        return another(
            at::training::loss_impl,
            "another loss",
            "write it into --loss and record it with plimsoll trace",
        );
    }
    if training.label_smoothing > 0.0 {
        let hint = "write it into --loss and record it with plimsoll trace";
        return another(at::training::label_smoothing, "label smoothing", hint);
    }
    if training.keep_outputs {
        let hint = "leave it out: which tensors the loop would hold is not recorded yet";
        return another(at::training::keep_outputs, "holding the outputs", hint);
    }
    if training.checkpointing == Checkpointing::Selective {
        return Err(Error::new(
            at::training::checkpointing,
            "which operators of a recording keep their results is not estimated",
            "use full, or run the script with plimsoll rehearse",
        ));
    }
    if training.checkpointing == Checkpointing::Reentrant {
        return Err(Error::new(
            at::training::checkpointing,
            "what a recording's modules keep when they are checkpointed with use_reentrant=True is not estimated",
            "use full, which is use_reentrant=False, or run the script with plimsoll rehearse",
        ));
    }
    if training.compile && training.checkpointing != Checkpointing::None {
        let hint = "leave one of the two out, or run the script with plimsoll rehearse";
        let problem = "what torch.compile makes of a checkpointed model is not recorded: it decides itself what is computed again";
        return Err(Error::new(at::training::checkpointing, problem, hint));
    }
    spread::check(scenario, model)?;
    if training.optimizer == Optimizer::Muon {
        let hint = "use another optimizer: which matrices are embeddings is not recorded yet";
        return Err(Error::new(at::training::optimizer, "muon is not estimated for hulls yet", hint));
    }
    if scenario.input.attention_mask != AttentionMask::None {
        let hint = "make the mask an --input and record it with plimsoll trace";
        return another(at::input::attention_mask, "a mask", hint);
    }
    if model.file.is_some() {
        model.values(scenario.input.batch)?;
        variant::recorded(model, training)?;
    }
    Ok(())
}
