//! `[training]`: the recipe.

use plimsoll_catalog::families::{Family, Inputs};
use plimsoll_catalog::software::{Rules, rules};

use super::lever::{Group, Kind, Near, Written, levers};
use super::{
    ActivationOffloading, Attention, BaseDtype, Checkpointing, Kernels, Lora, LossImpl, Mode, ModelSource, Optimizer,
    OptimizerImpl, Precision, QuantStorage, Quantization, Scenario, Trainer, ZeroGrad, ZeroGradAt, limits,
};

levers! {
    /// `[training]`: the recipe.
    pub struct Training = "training", training of Scenario {
        /// Training or inference.
        pub mode: Mode = Mode::Train => {
            link: "mode",
            label: "Mode",
            group: Group::Recipe,
        }
        /// The dtype of the weights, and whether the forward runs under autocast.
        pub precision: Precision = Precision::Bf16Amp => {
            link: "precision",
            label: "Precision",
            group: Group::Recipe,
            near: Near::unlike(3.0),
        }
        /// The optimizer's class.
        pub optimizer: Optimizer = Optimizer::AdamW => {
            link: "optimizer",
            label: "Optimizer",
            group: Group::Recipe,
            only: Some(Mode::Train),
            near: Near::unlike(2.0),
        }
        /// Which of its implementations runs.
        pub optimizer_impl: OptimizerImpl = OptimizerImpl::Foreach, or implementation => {
            link: "impl",
            label: "Its implementation",
            otherwise: "PyTorch's own: foreach where the optimizer has it, before PyTorch 2.0 for-loop",
            group: Group::Recipe,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(1.0),
        }
        /// Whether each parameter is stepped as soon as its gradient is there, within backward, by an optimizer of its own, and its
        /// gradient let go of (`register_post_accumulate_grad_hook`; torchtune's `optimizer_in_bwd`): gradients of no more than a
        /// few parameters are there at once.
        pub optimizer_in_backward: bool = false => {
            link: "in_backward",
            label: "Step in backward",
            help: "Each parameter is stepped when its gradient is there, which then goes: no clipping, no accumulation, no gradient scaler",
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(3.0),
        }
        /// Micro-batches per optimizer step.
        pub accumulation: u64 = 1 => {
            link: "accumulation",
            kind: Kind::Count { most: limits::ACCUMULATION },
            label: "Accumulation",
            help: "Micro-batches in one optimizer step",
            group: Group::Load,
            slide: Some((1, 128)),
            only: Some(Mode::Train),
            near: Near::octaves(0.25, 0.25),
        }
        /// Whether layers keep their inputs only and are recomputed in backward.
        pub checkpointing: Checkpointing = Checkpointing::None => {
            link: "checkpointing",
            label: "Activation checkpointing",
            group: Group::Recipe,
            only: Some(Mode::Train),
            near: Near::unlike(3.0),
        }
        /// Of the layers of a stack every so many-th is checkpointed, where layers are: 2 keeps every other one whole
        /// (`selective_ac_option = "2"` of torchtitan).
        pub checkpoint_every: u64 = 1 => {
            link: "checkpoint_every",
            kind: Kind::Count { most: limits::LAYERS },
            label: "Checkpointed: one layer of",
            help: "Of a stack's layers one of so many is checkpointed; the others keep all",
            group: Group::Recipe,
            written: Written::WhereItSays,
            yields: true,
            only: Some(Mode::Train),
            near: Near::octaves(0.5, 1.0),
        }
        /// Which modules of a hull are checkpointed, by name; `*` stands for whatever is between two dots (`layers.*`). Where
        /// nothing is said, what the model's own switch checkpoints, or its blocks that repeat.
        pub checkpoint_modules: Vec<String> = Vec::new() => {
            link: "checkpoint_modules",
            kind: Kind::Names { all: None, example: &["layers.*", "encoder.block.*.*"] },
            label: "Checkpointed modules",
            help: "Of a recorded model, by name: layers.*",
            otherwise: "what the model's own switch checkpoints, else its blocks that repeat",
            group: Group::Recipe,
            written: Written::WhereItSays,
            yields: true,
            only: Some(Mode::Train),
            near: Near::unlike(2.0),
        }
        /// Whether what backward needs waits for it in the machine's memory, and comes back when it is needed.
        pub activation_offloading: ActivationOffloading = ActivationOffloading::None => {
            link: "offloading",
            label: "Activation offloading",
            help: "What backward needs waits in the machine's memory: slow, for it goes over PCIe twice",
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(3.0),
        }
        /// How attention is computed.
        pub attention: Attention = Attention::Sdpa, or attention => {
            link: "attention",
            label: "Attention",
            otherwise: "sdpa; eager before PyTorch 2.0, and where that version of the model has nothing else (OPT before transformers 4.46, T5 before 5)",
            yields: true,
            near: Near::unlike(2.0),
        }
        /// Whether `clip_grad_norm_` runs before the optimizer.
        pub clip_grad_norm: bool = true, or clip_grad_norm => {
            link: "clip",
            label: "Gradient clipping",
            help: "clip_grad_norm_ before the optimizer",
            otherwise: "true; false where the optimizer steps in backward",
            only: Some(Mode::Train),
            near: Near::unlike(0.5),
        }
        /// What `zero_grad` does with the gradients.
        pub zero_grad: ZeroGrad = ZeroGrad::SetToNone, or zero_grad => {
            link: "zero_grad",
            label: "Zeroing gradients",
            otherwise: "set-to-none, before PyTorch 2.0 zero",
            only: Some(Mode::Train),
            near: Near::unlike(1.0),
        }
        /// Where `zero_grad` stands in the loop.
        pub zero_grad_at: ZeroGradAt = ZeroGradAt::AfterStep => {
            link: "zero_grad_at",
            label: "Zeroed",
            only: Some(Mode::Train),
            near: Near::unlike(0.5),
        }
        /// Whose loop runs the steps: of causal language models, on one card, transformers' Trainer (from transformers 4.49 on) as well
        /// as one written by hand; of torchvision's networks, that of its references, and of nanoGPT its own.
        pub trainer: Trainer = Trainer::None => {
            link: "trainer",
            label: "Loop",
            help: "Whose loop it is: transformers' Trainer has all micro-batches of a step on the card at once, torchvision's lets go of a \
                   batch before the next",
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.25),
        }
        /// How many optimizer steps are run. The first makes lazy state and the second is what every later one repeats; what
        /// the allocator reserves may still grow in a third or fourth.
        pub optimizer_steps: u64 = 2 => {
            link: "steps",
            kind: Kind::Count { most: limits::STEPS },
            label: "Steps run",
            help: "From two on live memory repeats itself; what is reserved may still grow",
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            near: Near::unlike(0.25),
        }
        /// Whether the loop holds the model's outputs (logits) through backward, as hand-written loops do.
        pub keep_outputs: bool = false => {
            link: "keep_outputs",
            label: "Outputs kept",
            help: "The loop holds the logits through backward, as hand-written loops do",
            only: Some(Mode::Train),
            near: Near::unlike(1.0),
        }
        /// Whether a language model's forward fills the cache of keys and values and returns it with its outputs: they are
        /// then alive as long as the outputs are. transformers' Trainer switches it off since version 5
        /// (`TrainingArguments.use_cache`), and so does checkpointing, but for layers that were wrapped from outside before 4.36; a
        /// loop written by hand has what the config says.
        pub use_cache: bool = false, or use_cache => {
            link: "use_cache",
            label: "Keys and values returned",
            help: "The config's use_cache; in training the outputs hold what it makes",
            otherwise: "what the config says where outputs are kept: true of a model from the catalog, whose published config \
                        has it so. False of a config that does not say, under checkpointing, and where outputs are let go of. \
                        Whisper's is what its config says, else true",
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(1.0),
        }
        /// Low-rank adapters; absent means full training.
        pub lora: Option<Lora> = None => [Lora]
        /// What the base model's linear layers hold.
        pub quantization: Quantization = Quantization::None => {
            link: "quantization",
            label: "Base weights quantized",
            group: Group::Adapters,
            written: Written::WhereItSays,
            yields: true,
            near: Near::unlike(4.0),
        }
        /// What a four-bit base is packed in. FSDP cuts one that is packed in floating point numbers only.
        pub quant_storage: QuantStorage = QuantStorage::Uint8 => {
            link: "quant_storage",
            label: "Packed in",
            help: "bnb_4bit_quant_storage: what four-bit weights are packed in; FSDP cuts no uint8",
            group: Group::Adapters,
            written: Written::WhereItSays,
            yields: true,
            near: Near::unlike(0.25),
        }
        /// The dtype a frozen base is loaded in, apart from autocast: `from_pretrained(dtype=torch.bfloat16)` under
        /// `Trainer(bf16=True)`, with adapters that peft makes float32 (`autocast_adapter_dtype`). Another than the precision's
        /// own only of a base that is frozen, not quantized, and run under autocast.
        pub base_dtype: BaseDtype = BaseDtype::Precision => {
            link: "base_dtype",
            label: "Base loaded in",
            help: "What a frozen base is loaded in, apart from autocast; the adapters are float32",
            group: Group::Adapters,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(3.0),
        }
        /// Whether a quantized base goes through peft's `prepare_model_for_kbit_training` before it is trained. False only
        /// of one that is quantized and trained.
        pub prepare_kbit: bool = true => {
            link: "prepare_kbit",
            label: "Preparation by peft",
            help: "prepare_model_for_kbit_training casts norms, embeddings and the output head to float32. Off: they stay as \
                   loaded, as in litgpt, torchtune and unsloth",
            group: Group::Adapters,
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(3.0),
        }
        /// How the output head and the cross-entropy are computed.
        pub loss_impl: LossImpl = LossImpl::Full => {
            link: "loss",
            label: "Head and loss",
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            near: Near::unlike(2.0),
        }
        /// Whose kernels compute norms, rotary positions and gated activations.
        pub kernels: Kernels = Kernels::Default => {
            link: "kernels",
            label: "Kernels",
            help: "liger-kernel's take the place of norms, rotary positions and gated activations",
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(2.0),
        }
        /// `label_smoothing`, 0 <= p < 1. Of a Hugging Face model it is the Trainer's `label_smoothing_factor`: the model
        /// returns logits only, autocast ends, the logits are made float32, and `LabelSmoother` computes the loss. Of the
        /// families of our own it is `cross_entropy(label_smoothing=)`.
        pub label_smoothing: f64 = 0.0 => {
            link: "label_smoothing",
            label: "Label smoothing",
            help: "0 to below 1; the Trainer's, for models of Hugging Face",
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            near: Near::unlike(1.0),
        }
        /// `amsgrad` of torch.optim.Adam and AdamW: the largest second moment of each trained number is kept beside it.
        pub amsgrad: bool = false => {
            link: "amsgrad",
            label: "AMSGrad",
            help: "Of Adam and AdamW: a third state per trained number",
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(1.0),
        }
        /// `weight_decay` of torch.optim.SGD: where it is not 0, foreach makes a sum of gradients and weights, a copy of all that is
        /// trained. Other optimizers: AdamW, Lion, Muon and Adafactor make nothing of theirs, those of the rest are not estimated.
        pub weight_decay: f64 = 0.0 => {
            link: "weight_decay",
            label: "Weight decay",
            help: "Of SGD: where it is not 0, foreach makes a copy of all gradients",
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            yields: true,
            near: Near::unlike(0.5),
        }
        /// Whether an exponential moving average of the weights is kept on the device:
        /// `torch.optim.swa_utils.AveragedModel`, a copy of every parameter and buffer, averaged after each optimizer step.
        pub ema: bool = false => {
            link: "ema",
            label: "Moving average of the weights",
            help: "A copy of the model on the device, averaged after every step",
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            near: Near::unlike(2.0),
        }
        /// Whether a frozen copy of the model lies beside it on the device, as the reference of DPO or KTO does where the whole model is
        /// trained: every parameter and buffer once more. Its own forward keeps nothing, and is not followed.
        pub reference_model: bool = false => {
            link: "reference",
            label: "Reference model",
            help: "A frozen copy of the model beside it: the reference of DPO where the whole model is trained",
            written: Written::WhereItSays,
            only: Some(Mode::Train),
            near: Near::unlike(2.0),
        }
        /// Whether the model runs through `torch.compile`: of a recorded model, where that was recorded as well (`plimsoll trace
        /// --also compile`). Of a hand-written family it is not modelled: the estimate is that of the run without, and says between what
        /// compiled ones end up, and how to have PyTorch compile it without a card.
        pub compile: bool = false => {
            link: "compile",
            label: "torch.compile",
            help: "Of a recorded model, where it was recorded so (plimsoll trace --also compile); else the estimate is that of the run without it, and says between what compiled ones end up",
            written: Written::WhereItSays,
            near: Near::unlike(2.0),
        }
    }
}

impl Training {
    /// The dtype the model is loaded in; never [`BaseDtype::Precision`].
    pub fn loaded(&self) -> BaseDtype {
        match self.base_dtype {
            BaseDtype::Precision => self.precision.dtype(self.quantization != Quantization::None),
            said => said,
        }
    }
}

/// PyTorch's own default, which older versions had otherwise.
fn implementation(scenario: &Scenario) -> OptimizerImpl {
    let offered = scenario.training.optimizer.implementations();
    let newest = offered.first().copied().unwrap_or(OptimizerImpl::Foreach);
    let lists = Rules::of(&scenario.software).has(&rules::FOREACH);
    if lists || !offered.contains(&OptimizerImpl::ForLoop) { newest } else { OptimizerImpl::ForLoop }
}

/// There is no moment at which all gradients are there to have a norm.
fn clip_grad_norm(scenario: &Scenario) -> bool {
    !scenario.training.optimizer_in_backward
}

fn attention(scenario: &Scenario) -> Attention {
    let software = Rules::of(&scenario.software);
    let calls = scenario.family().calls_sdpa(software);
    if calls && software.has(&rules::SDPA) { Attention::Sdpa } else { Attention::Eager }
}

/// As transformers has it where nobody switches it off.
fn use_cache(scenario: &Scenario) -> bool {
    let (training, source) = (&scenario.training, &scenario.model.source);
    let said = source.keys().and_then(|config| {
        let text = || config.get("text_config")?.get("use_cache");
        config.get("use_cache").or_else(text)?.as_bool()
    });
    let forgets = source.family().forgets_in_training(Rules::of(&scenario.software));
    if training.mode != Mode::Train || forgets || !training.may_cache(source.family()) {
        return false;
    }
    match source {
        _ if source.family().inputs == Inputs::Speech => said.unwrap_or(true),
        ModelSource::Catalog(_) => training.keep_outputs && said.unwrap_or(true),
        ModelSource::Hull(_) => false,
        ModelSource::HuggingFace(_) | ModelSource::Family { .. } => training.keep_outputs && said.unwrap_or(false),
    }
}

impl Training {
    /// Whether anything can come back with the outputs.
    fn may_cache(&self, family: &Family) -> bool {
        let whole = self.loss_impl == LossImpl::Full && self.label_smoothing == 0.0;
        family.caches && self.checkpointing == Checkpointing::None && whole
    }
}

fn zero_grad(scenario: &Scenario) -> ZeroGrad {
    if Rules::of(&scenario.software).has(&rules::SET_TO_NONE) { ZeroGrad::SetToNone } else { ZeroGrad::Zero }
}
