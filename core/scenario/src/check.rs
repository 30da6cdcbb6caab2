//! Whether a scenario makes sense: every rule between its levers, once, for whoever made or changed it.

use plimsoll_catalog::software::{Rules, rules};
use plimsoll_ground::{Error, Result};

use super::{
    ActivationOffloading, Attention, BaseDtype, Checkpointing, Mode, ModelSource, Optimizer, ParallelStrategy,
    Precision, QuantStorage, Quantization, Scenario, Trainer, Training, ZeroGrad, ZeroGradAt, allocator, at, device,
    hull, input, levers, limits, model, parallel,
};

impl Scenario {
    /// Whether it makes sense: every value lies within its bounds, what it names exists, and its levers can stand beside one
    /// another. Whether the engine estimates it, [`Scenario::estimated`] says.
    ///
    /// # Errors
    /// The first key that is wrong, and what to do.
    pub fn check(&self) -> Result<()> {
        model::check(&self.model)?;
        for lever in levers() {
            (lever.valid)(self, lever)?;
        }
        input::check(self)?;
        if let ModelSource::Hull(hull) = &self.model.source {
            hull::check(self, hull)?;
        }
        self.in_mode()?;
        self.named_modules()?;
        self.chosen_layers()?;
        self.runs()?;
        self.steps_in_backward()?;
        self.offloads()?;
        self.training.quantized()?;
        self.training.base()?;
        self.training.enough_steps()?;
        self.training.unscales()?;
        allocator::check(self)?;
        parallel::check(self)?;
        device::check(&self.device)
    }

    /// Refuses what says nothing in this mode. Tokens that are generated have words of their own.
    fn in_mode(&self) -> Result<()> {
        let mode = self.training.mode;
        let foreign = levers().find(|lever| {
            lever.row.only.is_some_and(|only| only != mode && only == Mode::Train)
                && lever.get(self) != lever.default(self)
        });
        foreign.map_or(Ok(()), |lever| Err(Error::new(lever.path, "says nothing in inference", "leave it out")))
    }

    /// Refuses names of modules where nothing is checkpointed by name.
    fn named_modules(&self) -> Result<()> {
        let training = &self.training;
        if training.checkpoint_modules.is_empty() {
            return Ok(());
        }
        let (problem, hint) = match self.model.source {
            ModelSource::Hull(_) if training.checkpointing != Checkpointing::None => return Ok(()),
            ModelSource::Hull(_) => ("nothing is checkpointed", "use checkpointing = \"full\" beside it"),
            _ => (
                "every layer of this model is checkpointed, or none",
                "leave it out; a model recorded with plimsoll trace can be checkpointed by name",
            ),
        };
        Err(Error::new(at::training::checkpoint_modules, problem, hint))
    }

    /// Refuses a choice of layers where none is checkpointed, and where the model's own layers are not known.
    fn chosen_layers(&self) -> Result<()> {
        let training = &self.training;
        let (problem, hint) = match (training.checkpoint_every, &self.model.source) {
            (1, _) => return Ok(()),
            (_, ModelSource::Hull(_)) => {
                ("a recording is checkpointed by the names of its modules", "name them in training.checkpoint_modules")
            }
            _ if training.checkpointing == Checkpointing::None => {
                ("nothing is checkpointed", "use checkpointing = \"full\" beside it, or leave it out")
            }
            _ => return Ok(()),
        };
        Err(Error::new(at::training::checkpoint_every, problem, hint))
    }

    /// Refuses what cannot stand beside an optimizer that steps in backward.
    fn steps_in_backward(&self) -> Result<()> {
        let training = &self.training;
        if !training.optimizer_in_backward {
            return Ok(());
        }
        let (problem, hint) = if training.clip_grad_norm {
            (
                "there is no moment at which all gradients are there to be clipped",
                "set training.clip_grad_norm to false",
            )
        } else if training.accumulation > 1 {
            (
                "a gradient is gone before the next micro-batch could add to it",
                "use accumulation = 1 with a larger batch",
            )
        } else if training.precision == Precision::Fp16Amp {
            ("GradScaler unscales between backward and the step", "use precision = \"bf16-amp\"")
        } else if training.zero_grad != ZeroGrad::SetToNone || training.zero_grad_at != ZeroGradAt::AfterStep {
            ("each gradient is let go of with its step", "leave training.zero_grad and training.zero_grad_at out")
        } else if training.trainer != Trainer::None {
            ("this loop steps behind backward", "leave training.trainer out")
        } else if self.parallel.strategy != ParallelStrategy::None {
            ("over several cards it is not estimated", "leave it out, or train on one card")
        } else if !Rules::of(&self.software).has(&rules::POST_ACCUMULATE_HOOKS) {
            let problem = format!("PyTorch {} has no register_post_accumulate_grad_hook", self.software.torch);
            let hint = format!("use torch {} or later", rules::POST_ACCUMULATE_HOOKS.since);
            return Err(Error::new(at::training::optimizer_in_backward, problem, hint));
        } else {
            return Ok(());
        };
        Err(Error::new(at::training::optimizer_in_backward, problem, hint))
    }

    /// Refuses to offload activations where that is not estimated.
    fn offloads(&self) -> Result<()> {
        let asked = self.training.activation_offloading;
        let (problem, hint) = if asked == ActivationOffloading::None {
            return Ok(());
        } else if matches!(self.model.source, ModelSource::Hull(_)) {
            ("what a recording keeps for backward stays on the card", "leave it out")
        } else if asked == ActivationOffloading::CheckpointInputs
            && self.training.checkpointing != Checkpointing::Reentrant
        {
            ("that checkpoint is a reentrant one", "use checkpointing = \"reentrant\" beside it")
        } else if asked == ActivationOffloading::SaveOnCpu && self.training.trainer != Trainer::None {
            (
                "this loop has no save_on_cpu around its forward",
                "leave training.trainer out, or use offload-activations",
            )
        } else if asked == ActivationOffloading::OffloadActivations
            && !matches!(self.training.trainer, Trainer::None | Trainer::Transformers)
        {
            ("this loop is not TRL's", "leave training.trainer out, or use transformers' Trainer")
        } else if self.parallel.strategy != ParallelStrategy::None && asked != ActivationOffloading::CheckpointInputs {
            ("over several cards it is not estimated", "leave it out, or train on one card")
        } else {
            return Ok(());
        };
        Err(Error::new(at::training::activation_offloading, problem, hint))
    }

    /// Refuses what these versions of the software do not have.
    fn runs(&self) -> Result<()> {
        let (optimizer, given) = (self.training.optimizer, self.training.optimizer_impl);
        let offered = optimizer.implementations();
        if !offered.contains(&given) {
            let words: Vec<&str> = offered.iter().map(|i| i.as_str()).collect();
            return Err(Error::new(
                at::training::optimizer_impl,
                format!("{optimizer} has no {given} implementation"),
                format!("use {}, or leave optimizer_impl out", words.join(" or ")),
            ));
        }
        if self.training.amsgrad && !matches!(optimizer, Optimizer::Adam | Optimizer::AdamW) {
            let hint = "leave it out, or use the optimizer adam or adamw";
            return Err(Error::new(at::training::amsgrad, format!("{optimizer} has no such variant"), hint));
        }
        if self.training.weight_decay > 0.0 && !matches!(optimizer, Optimizer::Sgd | Optimizer::SgdMomentum) {
            return Err(Error::new(
                at::training::weight_decay,
                format!("what it makes {optimizer} allocate is not estimated"),
                "leave it out: of AdamW, Lion, Muon and Adafactor it is nothing; or use sgd or sgd-momentum",
            ));
        }
        let software = Rules::of(&self.software);
        let family = self.family();
        if self.training.attention == Attention::Sdpa && !family.only_eager && !family.calls_sdpa(software) {
            let other = match family.sdpa.filter(|since| !software.has(since)) {
                Some(since) => format!(", or transformers {} or later", since.since),
                None => family
                    .sdpa_until
                    .map_or_else(String::new, |until| format!(", or transformers before {}", until.since)),
            };
            return Err(Error::new(
                at::training::attention,
                format!("{} of transformers {} has eager attention only", family.name, self.software.transformers),
                format!("use eager{other}"),
            ));
        }
        if self.training.checkpointing == Checkpointing::Selective && !software.has(&rules::SELECTIVE_CHECKPOINTS) {
            return Err(Error::new(
                at::training::checkpointing,
                format!("PyTorch {} has no create_selective_checkpoint_contexts", self.software.torch),
                format!("use full, or torch {} or later", rules::SELECTIVE_CHECKPOINTS.since),
            ));
        }
        if self.training.attention == Attention::Sdpa && !software.has(&rules::SDPA) {
            return Err(Error::new(
                at::training::attention,
                format!("PyTorch {} has no scaled_dot_product_attention", self.software.torch),
                format!("use eager, or torch {} or later", rules::SDPA.since),
            ));
        }
        Ok(())
    }
}

impl Training {
    /// Refuses a dtype of the base that is not its precision's, where the base is trained or nothing would come of it.
    fn base(&self) -> Result<()> {
        if self.loaded() == self.precision.dtype(self.quantization != Quantization::None) {
            return Ok(());
        }
        let refuse = |problem: &str, hint: &str| Err(Error::new(at::training::base_dtype, problem, hint));
        let Some(lora) = &self.lora else {
            return refuse(
                "a model that is trained whole has the dtype of its precision",
                "add training.lora, or choose another training.precision",
            );
        };
        if self.quantization != Quantization::None {
            return refuse(
                "a quantized base is loaded in the dtype its products compute in",
                "leave it out, or choose another training.precision",
            );
        }
        if !self.precision.is_amp() {
            return refuse(
                "without autocast the forward is in the dtype of the base, which training.precision says",
                "use precision = \"fp32\", \"fp16\" or \"bf16\", or one under autocast",
            );
        }
        // As below: GradScaler refuses gradients in float16, and modules to save are copies in the base's dtype.
        if self.precision == Precision::Fp16Amp
            && self.loaded() == BaseDtype::Float16
            && !lora.modules_to_save.is_empty()
        {
            return refuse(
                "the modules to save would be float16, and GradScaler refuses gradients in float16",
                "use precision = \"bf16-amp\", or leave lora.modules_to_save out",
            );
        }
        Ok(())
    }

    /// Refuses adapters in float16 beside a GradScaler.
    fn unscales(&self) -> Result<()> {
        let kept = self.lora.as_ref().is_some_and(|lora| !lora.autocast_adapter_dtype);
        // Adapters on weights of eight bits stay as peft makes them, in float32.
        let half = self.loaded() == BaseDtype::Float16 && self.quantization != Quantization::Int8;
        if self.mode == Mode::Train && self.precision == Precision::Fp16Amp && kept && half {
            return Err(Error::new(
                at::lora::autocast_adapter_dtype,
                "the adapters would be float16, and GradScaler refuses gradients in float16 (\"Attempting to unscale FP16 gradients.\")",
                "set it to true, or use precision = \"bf16-amp\"",
            ));
        }
        Ok(())
    }

    /// Refuses a run that never comes to its steady state.
    fn enough_steps(&self) -> Result<()> {
        if self.optimizer_steps >= limits::STEPS_LEAST {
            return Ok(());
        }
        Err(Error::new(
            at::training::optimizer_steps,
            "in a single step the optimizer's state is still being made",
            format!("run {} or more", limits::STEPS_LEAST),
        ))
    }

    /// Refuses a quantized base that nothing is trained on, and one left unprepared that cannot be.
    fn quantized(&self) -> Result<()> {
        if self.quantization != Quantization::None && self.mode == Mode::Train && self.lora.is_none() {
            return Err(Error::new(
                at::training::quantization,
                "quantized weights are not trained themselves",
                "add training.lora, or leave quantization out",
            ));
        }
        let four_bit = !matches!(self.quantization, Quantization::None | Quantization::Int8);
        if self.quant_storage != QuantStorage::Uint8 && !four_bit {
            return Err(Error::new(
                at::training::quant_storage,
                "only weights of four bits are packed",
                "leave it out, or set training.quantization to nf4 or nf4-double",
            ));
        }
        if self.prepare_kbit {
            return Ok(());
        }
        let refuse = |problem: &str, hint: &str| Err(Error::new(at::training::prepare_kbit, problem, hint));
        if self.quantization == Quantization::None {
            return refuse(
                "without quantization there is nothing to prepare",
                "leave it out, or set training.quantization to int8, nf4 or nf4-double",
            );
        }
        let saved = self.lora.as_ref().is_some_and(|lora| !lora.modules_to_save.is_empty());
        if self.precision == Precision::Fp16Amp && saved {
            // `_unscale_grads_` of `torch/amp/grad_scaler.py`: "Attempting to unscale FP16 gradients." Modules to save are
            // copies in the dtype the base is in; only adapters are made float32.
            return refuse(
                "the modules to save stay in float16, and GradScaler refuses gradients in float16",
                "use precision = \"bf16-amp\", or leave prepare_kbit or lora.modules_to_save out",
            );
        }
        Ok(())
    }
}
