//! What a model's row takes of a recipe: the rest is refused by it, never ignored.

use plimsoll_catalog::families::{Checkpoints, ExpertPart, Experts, Family, Inputs, Once, OneToOne, families};
use plimsoll_catalog::software::{Rule, Rules, Version, rules};
use plimsoll_ground::{Error, Reason, Result};
use serde_json::Value;

use super::lora::ATTENTION;
use super::{
    ActivationOffloading, Attention, BaseDtype, Checkpointing, Kernels, Lora, LoraTargets, LossImpl, Optimizer,
    OptimizerImpl, ParallelStrategy, Precision, Quantization, Scenario, Task, Trainer, ZeroGrad, ZeroGradAt, at,
};

/// Since then decoders of transformers write keys and values into a cache instead of returning them (`cache_utils.py` of 4.36.0).
const CACHE_OBJECTS: Version = Version::new(4, 36);

/// What liger-kernel 0.8.5 takes.
const LIGERS: Version = Version::new(5, 0);

/// What TRL 1.16 takes.
const TRLS: Version = Version::new(4, 56);

impl Scenario {
    /// The experts of its mixture, if it is one, as its transformers has them.
    pub fn experts(&self) -> Option<Experts> {
        self.family().experts.map(|experts| experts.under(Rules::of(&self.software)))
    }

    /// Refuses what `family` cannot do.
    ///
    /// # Errors
    /// The first lever that asks for it.
    pub(super) fn within_row(&self, family: &Family) -> Result<()> {
        self.checkpoints(family)?;
        self.offloads_inputs(family)?;
        self.keeps(family)?;
        self.normalises(family)?;
        self.attends(family)?;
        self.adapts(family)?;
        self.quantizes(family)?;
        self.caches(family)?;
        self.computes_loss(family)?;
        self.replaces(family)?;
        self.loops(family)
    }

    fn checkpoints(&self, family: &Family) -> Result<()> {
        let name = family.name;
        let (problem, hint) = match family.checkpointing {
            _ if self.training.checkpointing == Checkpointing::None => return Ok(()),
            Checkpoints::Always => return Ok(()),
            Checkpoints::WithoutAdapters if self.training.lora.is_none() => return Ok(()),
            Checkpoints::WithoutAdapters => (
                format!(
                    "transformers' {name} cannot be checkpointed under adapters: enable_input_require_grads() fails on it"
                ),
                "use checkpointing = \"none\", or train the whole model",
            ),
            Checkpoints::Never if family.is_own() => (
                format!("the family {name:?} has no gradient checkpointing"),
                "use checkpointing = \"none\", or a Hugging Face model",
            ),
            Checkpoints::Never => {
                (format!("transformers' {name} has no gradient checkpointing"), "use checkpointing = \"none\"")
            }
        };
        Err(Error::new(at::training::checkpointing, problem, hint))
    }

    /// Refuses a checkpoint of one input and one output where there are more.
    fn offloads_inputs(&self, family: &Family) -> Result<()> {
        let since = |rule: &Rule| Rules::of(&self.software).has(rule);
        let one_to_one = match family.one_to_one {
            OneToOne::Always => true,
            OneToOne::Since(rule) => since(rule),
            OneToOne::SinceUnderSdpa(rule) => since(rule) || self.training.attention == Attention::Eager,
            OneToOne::Without(key) => {
                let said = self.model.source.keys().and_then(|keys| keys.get(key));
                said.and_then(Value::as_u64) == Some(0)
            }
            OneToOne::Never => false,
        };
        if one_to_one || self.training.activation_offloading != ActivationOffloading::CheckpointInputs {
            return Ok(());
        }
        let problem = format!(
            "a layer of {} is given more than one tensor that takes a gradient, or returns more than one value, and PyTorch fails there: that \
             checkpoint has one of each",
            family.name
        );
        let hint = "leave it out, or use save-on-cpu";
        Err(Error::new(at::training::activation_offloading, problem, hint).because(Reason::OneOfEach))
    }

    /// Refuses to keep what the model writes over.
    fn keeps(&self, family: &Family) -> Result<()> {
        let selective = self.training.checkpointing == Checkpointing::Selective;
        let keys = self.model.source.keys();
        let asked = keys.and_then(|keys| keys.get("norm_topk_prob")).and_then(Value::as_bool);
        if !selective || !self.experts().is_some_and(|experts| experts.rescales.given(asked)) {
            return Ok(());
        }
        let problem = format!(
            "{}'s router writes over what a selective checkpoint keeps of topk, and PyTorch fails there: \"Tensor cached during \
             selective activation checkpoint has been mutated\"",
            family.name
        );
        Err(Error::new(at::training::checkpointing, problem, "use full").because(Reason::WrittenOver))
    }

    /// Refuses batch norms in 16 bits that are given the other 16 bits.
    fn normalises(&self, family: &Family) -> Result<()> {
        let (training, loaded) = (&self.training, self.training.loaded());
        let given = training.precision.dtype(true);
        let mixed = training.precision.is_amp() && loaded != BaseDtype::Float32 && loaded != given;
        if !mixed || !family.has_batch_norms(self.model.source.keys()) {
            return Ok(());
        }
        let problem = format!(
            "{}'s batch norms would be in {loaded} and are given {given}: PyTorch has no kernel for that",
            family.name
        );
        let hint = format!("use float32 or {given}");
        Err(Error::new(at::training::base_dtype, problem, hint).because(Reason::MixedBatchNorm))
    }

    fn attends(&self, family: &Family) -> Result<()> {
        if family.eager || self.training.attention == Attention::Sdpa {
            return Ok(());
        }
        let problem = format!("{} calls scaled_dot_product_attention itself", family.name);
        Err(Error::new(at::training::attention, problem, "use attention = \"sdpa\""))
    }

    fn caches(&self, family: &Family) -> Result<()> {
        let training = &self.training;
        let (problem, hint) = match family.caches {
            _ if !training.use_cache => return Ok(()),
            false => (
                format!("what {} remembers in training is nothing, or is not estimated yet", family.name),
                "leave it out",
            ),
            // Layers that PyTorch's own `checkpoint_wrapper` wraps do not say so to their model. From 4.36 on they write into a
            // cache, once more when they run again, and PyTorch fails.
            true if training.checkpointing != Checkpointing::None && self.software.transformers >= CACHE_OBJECTS => (
                "transformers switches the cache off under gradient checkpointing".to_owned(),
                "leave it out, or use checkpointing = \"none\"; before transformers 4.36 layers that are wrapped from outside keep it",
            ),
            true if training.loss_impl != LossImpl::Full => {
                (format!("the cache beside {} is not estimated yet", training.loss_impl), "leave one of the two out")
            }
            true if training.label_smoothing > 0.0 => {
                ("the Trainer, which smooths the labels, switches the cache off".to_owned(), "leave one of the two out")
            }
            true => return Ok(()),
        };
        Err(Error::new(at::training::use_cache, problem, hint))
    }

    fn adapts(&self, family: &Family) -> Result<()> {
        let Some(lora) = &self.training.lora else { return Ok(()) };
        if !family.adapters {
            let problem = format!("{} has no linear layers that adapters could sit on", family.name);
            return Err(Error::new("training.lora", problem, "leave lora out"));
        }
        self.experts().map_or(Ok(()), |experts| lora.suits(experts))
    }

    fn quantizes(&self, family: &Family) -> Result<()> {
        if self.training.quantization == Quantization::Int8 && family.wide_linears {
            let problem = format!(
                "{}'s linears are given four dimensions, and bitsandbytes multiplies eight-bit weights with two or three",
                family.name
            );
            let refusal = Error::new(at::training::quantization, problem, "use nf4 or nf4-double, or leave it out");
            return Err(refusal.because(Reason::ManyDimensions));
        }
        if self.training.quantization == Quantization::None {
            return Ok(());
        }
        let sorted = family.experts.is_some_and(|experts| experts.once == Once::Sorted);
        if sorted && !Rules::of(&self.software).has(&rules::STACKED_EXPERTS) {
            let problem = format!(
                "before transformers 5 the experts of {} were linear layers, which bitsandbytes quantized too; that is not estimated yet",
                family.name
            );
            let hint = "ask for transformers 5.17, which leaves the experts as they are, or leave quantization out";
            return Err(Error::new(at::training::quantization, problem, hint));
        }
        if family.unquantized.is_some() {
            return Ok(());
        }
        let (problem, hint) = if family.is_own() {
            let problem =
                format!("the family {:?} is no model that transformers loads and bitsandbytes quantizes", family.name);
            (problem, "leave quantization out, or use a Hugging Face model")
        } else {
            let problem = format!(
                "transformers puts linears in the place of {}'s experts, which is not estimated yet",
                family.name
            );
            (problem, "leave quantization out")
        };
        Err(Error::new(at::training::quantization, problem, hint))
    }

    /// Refuses kernels that take the place of nothing.
    pub(super) fn replaces(&self, family: &Family) -> Result<()> {
        let training = &self.training;
        let refuse = |problem: &str, hint: &str| Err(Error::new(at::training::kernels, problem, hint));
        if training.kernels == Kernels::Default {
            return Ok(());
        }
        if family.liger.is_none() {
            let those: Vec<&str> =
                families().filter(|family| family.liger.is_some()).map(|family| family.name).collect();
            let problem = format!("Liger's kernels are not followed in {}", family.name);
            return refuse(&problem, &format!("leave kernels out; they are followed in {}", those.join(", ")));
        }
        if self.model.task != Task::CausalLm {
            return refuse("Liger's kernels are followed in causal language models", "leave kernels out");
        }
        if self.software.transformers < LIGERS {
            let problem = format!("liger-kernel 0.8.5 takes transformers 5, not {}", self.software.transformers);
            return refuse(&problem, "leave kernels out, or use transformers 5.0 or later");
        }
        if training.compile {
            return refuse("what torch.compile makes of Liger's kernels is not estimated", "leave one of the two out");
        }
        if self.parallel.strategy == ParallelStrategy::DataParallel {
            let problem =
                "Liger's forwards are bound to the modules of the first card, and PyTorch fails on the others";
            return refuse(problem, "leave kernels out, or use ddp");
        }
        Ok(())
    }

    /// Refuses a loop that is not followed.
    fn loops(&self, family: &Family) -> Result<()> {
        let (training, one) = (&self.training, self.parallel.gpus == 1);
        let refusal = match training.trainer {
            Trainer::None => None,
            _ if !one => Some(("that loop is followed on one card".to_owned(), "leave it out")),
            Trainer::Transformers => self.trains(family),
            Trainer::Torchvision => self.follows_references(family),
            Trainer::NanoGpt => self.follows_nanogpt(family),
        };
        refusal.map_or(Ok(()), |(problem, hint)| Err(Error::new(at::training::trainer, problem, hint)))
    }

    /// What is not followed of transformers' Trainer.
    fn trains(&self, family: &Family) -> Option<(String, &'static str)> {
        let training = &self.training;
        if self.model.task != Task::CausalLm || family.is_own() {
            let problem = "transformers' Trainer is followed for causal language models of Hugging Face";
            return Some((problem.to_owned(), "leave it out: the loop is then one written by hand"));
        }
        if !Rules::of(&self.software).has(&rules::GPT_NEOX_SHARES_LOSS) {
            let problem = format!("the Trainer of transformers {} is not followed", self.software.transformers);
            return Some((problem, "leave it out, or use transformers 4.49 or later"));
        }
        // `use_liger_kernel` takes the place of norms, rotary embeddings and products as well.
        let fused = training.loss_impl == LossImpl::FusedLinear && training.kernels == Kernels::Liger;
        if !(fused || matches!(training.loss_impl, LossImpl::Full | LossImpl::FusedLmHead))
            || training.label_smoothing > 0.0
        {
            let problem = "transformers' Trainer is followed with the model's own loss, with Liger's beside its kernels, or as TRL's SFTTrainer \
                           with its fused head";
            let hint = "leave trainer out, or use loss_impl = \"full\" or \"fused-lm-head\" and no label_smoothing, or kernels = \"liger\"";
            return Some((problem.to_owned(), hint));
        }
        if training.keep_outputs {
            let problem = "transformers' Trainer lets go of the outputs";
            return Some((problem.to_owned(), "leave it out, or use keep_outputs = false"));
        }
        if training.zero_grad != ZeroGrad::SetToNone || training.zero_grad_at != ZeroGradAt::AfterStep {
            let problem = "transformers' Trainer sets gradients to none after each step";
            return Some((
                problem.to_owned(),
                "leave trainer out, or use zero_grad = \"set-to-none\" and zero_grad_at = \"after-step\"",
            ));
        }
        None
    }

    /// What torchvision's references are not.
    fn follows_references(&self, family: &Family) -> Option<(String, &'static str)> {
        let training = &self.training;
        if !family.is_own() || !matches!(family.inputs, Inputs::Image { .. }) {
            return Some(("it is the loop of torchvision's own networks".to_owned(), "leave it out"));
        }
        if training.accumulation > 1 {
            return Some((
                "torchvision's loop has no micro-batches".to_owned(),
                "leave it out, or use accumulation = 1",
            ));
        }
        if !training.keep_outputs || training.zero_grad_at != ZeroGradAt::BeforeBackward {
            let problem = "torchvision's loop holds the outputs, and zeroes gradients before backward";
            return Some((
                problem.to_owned(),
                "leave it out, or use keep_outputs = true and zero_grad_at = \"before-backward\"",
            ));
        }
        None
    }

    /// What nanoGPT's script is not.
    fn follows_nanogpt(&self, family: &Family) -> Option<(String, &'static str)> {
        let training = &self.training;
        if family.name != "nanogpt" {
            return Some(("it is the loop of the family \"nanogpt\"".to_owned(), "leave it out"));
        }
        let plain = training.lora.is_none() && training.label_smoothing == 0.0;
        let (fused, adamw) = (training.optimizer_impl == OptimizerImpl::Fused, training.optimizer == Optimizer::AdamW);
        if !(plain && fused && adamw && training.keep_outputs && training.zero_grad_at == ZeroGradAt::AfterStep) {
            let problem =
                "nanoGPT's loop trains the whole model with fused AdamW, holds the outputs and zeroes after the step";
            let hint = "leave it out, or use optimizer = \"adamw\", optimizer_impl = \"fused\", keep_outputs = true";
            return Some((problem.to_owned(), hint));
        }
        None
    }

    /// Whether what TRL's output head is given, or autocast, is bfloat16: a base that peft prepared gives float32.
    fn tiles_in_bfloat16(&self) -> bool {
        let training = &self.training;
        let prepared = training.quantization != Quantization::None && training.prepare_kbit;
        training.precision == Precision::Bf16Amp || training.precision == Precision::Bf16 && !prepared
    }

    fn computes_loss(&self, family: &Family) -> Result<()> {
        let (training, task) = (&self.training, self.model.task);
        let has = match training.loss_impl {
            LossImpl::Full => true,
            LossImpl::Chunked | LossImpl::FusedLinear => family.computes_loss_in_parts(task),
            LossImpl::FusedLmHead => family.computes_loss_in_tiles(task),
        };
        if !has {
            let whose = match training.loss_impl {
                LossImpl::FusedLmHead => "whose class has a model of its own in it, which returns hidden states",
                _ => "whose loss takes logits as their head makes them",
            };
            let problem = format!("{} is for causal language models of Hugging Face {whose}", training.loss_impl);
            return Err(Error::new(at::training::loss_impl, problem, "use loss_impl = \"full\", or leave it out"));
        }
        if training.loss_impl == LossImpl::FusedLmHead && self.software.transformers < TRLS {
            let problem =
                format!("TRL's fused output head takes transformers 4.56 or later, not {}", self.software.transformers);
            return Err(Error::new(
                at::training::loss_impl,
                problem,
                "use loss_impl = \"full\", or a later transformers",
            ));
        }
        let wider = Rules::of(&self.software).has(&rules::PRODUCTS_SUM_WIDER);
        let capability = plimsoll_catalog::gpu(&self.device.gpu).and_then(|gpu| gpu.compute_capability);
        if training.loss_impl == LossImpl::FusedLmHead
            && wider
            && self.tiles_in_bfloat16()
            && capability.is_some_and(|c| c < (8, 0))
        {
            let problem = format!(
                "its backward sums products of bfloat16 in float32, which {} cannot: that takes compute capability 8.0",
                self.device.gpu
            );
            let hint = "use loss_impl = \"full\" or \"fused-linear\", or fp16-amp";
            return Err(Error::new(at::training::loss_impl, problem, hint));
        }
        if training.loss_impl != LossImpl::Full && training.label_smoothing > 0.0 {
            let problem =
                format!("the Trainer smooths labels on all logits, which {} does not make", training.loss_impl);
            let hint = "use loss_impl = \"full\", or leave label_smoothing out";
            return Err(Error::new(at::training::loss_impl, problem, hint));
        }
        if training.label_smoothing > 0.0 && !task.smooths_labels() {
            let problem = match task {
                Task::Seq2SeqLm | Task::SpeechSeq2Seq => {
                    format!("for {task} the Trainer needs decoder inputs from the data, which is not estimated yet")
                }
                _ => format!("{task} has no labels to smooth"),
            };
            return Err(Error::new(at::training::label_smoothing, problem, "leave it out"));
        }
        Ok(())
    }
}

impl Lora {
    /// Whether a mixture's parameter gets an adapter; `experts` is what its row says.
    pub fn reaches(&self, experts: Experts, part: ExpertPart) -> bool {
        experts.adapted.is_some_and(|names| match &self.targets {
            LoraTargets::AllLinear => true,
            LoraTargets::Names(targets) => targets.iter().any(|target| names.part(target) == Some(part)),
        })
    }

    /// Whether a linear of this name gets an adapter.
    fn names(&self, linear: &str) -> bool {
        match &self.targets {
            LoraTargets::AllLinear => true,
            LoraTargets::Names(targets) => targets.iter().any(|target| target.rsplit('.').next() == Some(linear)),
        }
    }

    /// Refuses what peft does not add to a mixture.
    fn suits(&self, experts: Experts) -> Result<()> {
        let attention = format!("target {ATTENTION:?}");
        if let Some(router) = experts.unadaptable.filter(|router| self.names(router)) {
            let problem = format!("peft's adapter fails on {router}, which returns two tensors");
            return Err(Error::new(at::lora::targets, problem, attention));
        }
        let Some(names) = experts.adapted else { return Ok(()) };
        if !ExpertPart::ALL.into_iter().any(|part| self.reaches(experts, part)) {
            return Ok(());
        }
        if let LoraTargets::Names(targets) = &self.targets {
            let named = |wanted: &str| targets.iter().any(|target| target.rsplit('.').next() == Some(wanted));
            let [first, second] = names.gate_up;
            if named(first) != named(second) {
                let problem = format!("peft adapts {first:?} and {second:?} together: they are one tensor here");
                return Err(Error::new(at::lora::targets, problem, "name both, or neither"));
            }
        }
        if self.dropout > 0.0 {
            let problem = "peft has no dropout for adapters on experts and their router";
            return Err(Error::new(at::lora::dropout, problem, format!("set it to 0, or {attention}")));
        }
        if self.dora {
            let problem = "peft has no DoRA on experts and their router";
            return Err(Error::new(at::lora::dora, problem, format!("leave it out, or {attention}")));
        }
        Ok(())
    }
}
