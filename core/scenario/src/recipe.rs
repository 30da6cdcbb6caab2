//! The closed vocabularies of a scenario: each an enum whose text form is the scenario's own, with what people read on a
//! button and what a value means.

use plimsoll_ground::Result;
use serde_json::Value;

use super::lever::{Field, Kind, Lever};

/// Declares a vocabulary whose values stand in a scenario.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($values:tt)+ }) => {
        plimsoll_ground::vocabulary!($(#[$doc])* $name { $($values)+ });

        impl Field for $name {
            const KIND: Kind = Kind::Words(<Self as plimsoll_ground::Vocabulary>::WORDS);

            fn read(lever: &Lever, value: &Value) -> Result<Self> {
                crate::lever::word(lever, value)
            }

            fn write(&self) -> Option<Value> {
                Some(self.as_str().into())
            }

            fn valid(&self, _: &Lever) -> Result<()> {
                Ok(())
            }
        }
    };
}

pub(crate) use words;

words!(
    /// Whether an attention mask is given, and whether anything in it is padded.
    AttentionMask {
        /// No mask is given.
        None = "none",
        /// A mask is given but nothing is padded: transformers notices and drops it.
        Ones = "ones" as "all ones",
        /// Padding is kept and the mask materialised, which changes the attention kernel.
        Padded = "padded",
    }
);

words!(
    /// Training or inference.
    Mode {
        /// Forward, backward, the optimizer's step.
        Train = "train" as "training",
        /// Text is generated, or the model runs forward once.
        Inference = "inference",
    }
);

words!(
    /// The dtype of the weights, and whether the forward runs under torch.autocast.
    Precision {
        /// Everything in 32 bits.
        Fp32 = "fp32",
        /// 32-bit weights, 16-bit matmuls, gradient scaler.
        Fp16Amp = "fp16-amp" as "fp16 amp",
        /// 32-bit weights, bfloat16 matmuls.
        Bf16Amp = "bf16-amp" as "bf16 amp",
        /// Weights, gradients and states in float16.
        Fp16 = "fp16",
        /// Weights, gradients and states in bfloat16.
        Bf16 = "bf16",
    }
);

words!(
    /// The optimizer's class.
    Optimizer {
        /// torch.optim.SGD without momentum: no states.
        Sgd = "sgd" as "SGD",
        /// torch.optim.SGD with momentum: one state per trained number.
        SgdMomentum = "sgd-momentum" as "SGD + momentum",
        /// torch.optim.Adam: two states per trained number.
        Adam = "adam" as "Adam",
        /// torch.optim.AdamW: two states per trained number.
        AdamW = "adamw" as "AdamW",
        /// transformers' Adafactor with scale_parameter=False, relative_step=False: factored second moments, rows and columns
        /// only.
        Adafactor = "adafactor" as "Adafactor",
        /// torch.optim.Adafactor (PyTorch 2.5): rows and columns of variances in the weights' dtype.
        AdafactorTorch = "adafactor-torch" as "Adafactor (torch)",
        /// torch.optim.Adagrad: one state per trained number, made with the optimizer.
        Adagrad = "adagrad" as "Adagrad",
        /// torch.optim.RMSprop: one state per trained number.
        RmsProp = "rmsprop" as "RMSprop",
        /// torch.optim.RMSprop with momentum: two states per trained number.
        RmsPropMomentum = "rmsprop-momentum" as "RMSprop + momentum",
        /// torch.optim.RMSprop, centered: two states per trained number.
        RmsPropCentered = "rmsprop-centered" as "RMSprop centered",
        /// torch.optim.RMSprop, centered and with momentum: three states per trained number.
        RmsPropCenteredMomentum = "rmsprop-centered-momentum" as "RMSprop centered + momentum",
        /// torch.optim.NAdam: two states per trained number.
        NAdam = "nadam" as "NAdam",
        /// torch.optim.Adamax: two states per trained number.
        Adamax = "adamax" as "Adamax",
        /// bitsandbytes' AdamW8bit: both moments in bytes, in blocks of 256 with a scale each; those of parameters with fewer
        /// than 4096 numbers stay in float32.
        AdamW8bit = "adamw-8bit" as "AdamW 8-bit",
        /// bitsandbytes' PagedAdamW: two float32 states per trained number, those of parameters of 100,000 numbers and more in
        /// managed memory, which moves between host and card and is in no figure of PyTorch's.
        PagedAdamW = "paged-adamw" as "AdamW paged",
        /// bitsandbytes' PagedAdamW8bit: as adamw-8bit, the bytes of those parameters in managed memory.
        PagedAdamW8bit = "paged-adamw-8bit" as "AdamW 8-bit paged",
        /// Lion (Chen et al. 2023), one state per trained number: lion-pytorch's Lion (for-loop) or its foreach.Lion, or
        /// bitsandbytes' Lion, whose moments are float32 (fused).
        Lion = "lion" as "Lion",
        /// torch.optim.Muon (PyTorch 2.9) on every matrix but embeddings and the output head, AdamW on the rest, whose
        /// implementation it is then.
        Muon = "muon" as "Muon",
    }
);

words!(
    /// The dtype a base is loaded in (`from_pretrained(dtype=)`).
    BaseDtype {
        /// What goes with the precision: float32 under autocast, else the precision's own.
        Precision = "precision" as "as the precision has it",
        /// 4 bytes a number.
        Float32 = "float32",
        /// 2 bytes a number, with a small range.
        Float16 = "float16",
        /// 2 bytes a number, with float32's range.
        Bfloat16 = "bfloat16",
    }
);

words!(
    /// What the base model's linear layers hold, as bitsandbytes replaces them.
    ///
    /// The model is loaded in the precision's dtype (`bf16` and `bf16-amp`: bfloat16), which is also what the quantized
    /// layers compute in (`bnb_4bit_compute_dtype`). For training, peft's `prepare_model_for_kbit_training` then casts
    /// everything that is not quantized, embeddings, norms, biases and the output head, to float32. So `bf16-amp` is the
    /// usual QLoRA run under autocast, while with `bf16` nothing but the quantized products is in bfloat16. With
    /// `prepare_kbit = false` that function is not called (litgpt, torchtune, unsloth and loops written by hand): all of
    /// it stays as it was loaded, frozen by `get_peft_model` alone.
    Quantization {
        /// The frozen weights in the dtype they are loaded in.
        None = "none",
        /// Linear8bitLt: one byte a weight and a scale a row (LLM.int8).
        Int8 = "int8",
        /// Linear4bit in NF4: half a byte a weight and a float32 scale for every 64 (QLoRA).
        Nf4 = "nf4",
        /// As nf4, the scales quantized once more (bnb_4bit_use_double_quant).
        Nf4Double = "nf4-double" as "nf4 double",
    }
);

words!(
    /// What four-bit weights are packed in (`bnb_4bit_quant_storage`). They take the same bytes in each; FSDP cuts parameters
    /// that are floating point numbers only.
    QuantStorage {
        /// Two weights a number: bitsandbytes' default.
        Uint8 = "uint8",
        /// Four weights a number.
        Float16 = "float16",
        /// Four weights a number.
        Bfloat16 = "bfloat16",
        /// Eight weights a number.
        Float32 = "float32",
    }
);

impl BaseDtype {
    /// The same, as what four-bit weights are packed in.
    pub(crate) const fn packed(self) -> QuantStorage {
        match self {
            Self::Float16 => QuantStorage::Float16,
            Self::Bfloat16 => QuantStorage::Bfloat16,
            Self::Precision | Self::Float32 => QuantStorage::Float32,
        }
    }
}

words!(
    /// How the output head and the cross-entropy are computed.
    LossImpl {
        /// The model's own loss: every logit at once, in float32.
        Full = "full" as "all logits",
        /// Head and loss in eight chunks of the sequence, of which one at a time is made float32 (torchtune's
        /// CEWithChunkedOutputLoss).
        Chunked = "chunked" as "in chunks",
        /// Head and loss together, chunk by chunk, without keeping logits (Liger's LigerFusedLinearCrossEntropyLoss).
        FusedLinear = "fused-linear" as "fused",
        /// Head and loss together, in tiles of 4,096 tokens by 32,768 tokens of the vocabulary that backward computes again (TRL's
        /// `add_fused_lm_head`, the loss of its SFTTrainer since 1.7).
        FusedLmHead = "fused-lm-head" as "in tiles",
    }
);

words!(
    /// Whose kernels compute norms, rotary positions and gated activations.
    Kernels {
        /// The model's own, in PyTorch's operators.
        Default = "default" as "the model's own",
        /// Liger's (`apply_liger_kernel_to_*` of liger-kernel 0.8.5 on a model that is there, as transformers' `use_liger_kernel`):
        /// norms keep what they are given and a number for every row, positions are turned where they lie, and a gated activation keeps its
        /// two inputs, over which its gradients are written. The loss is a lever of its own.
        Liger = "liger" as "Liger's",
    }
);

words!(
    /// Which of PyTorch's implementations of the optimizer runs.
    OptimizerImpl {
        /// Lists at once, with whole-model temporaries: PyTorch's default on CUDA.
        Foreach = "foreach",
        /// One kernel for the whole update, hardly any temporaries.
        Fused = "fused",
        /// One parameter after the other.
        ForLoop = "for-loop",
    }
);

words!(
    /// Activation checkpointing.
    Checkpointing {
        /// Everything backward needs is kept.
        None = "none" as "off",
        /// Each layer keeps its input only and is recomputed in backward, as far as it has to (`use_reentrant=False`).
        Full = "full" as "every layer",
        /// As `full`, by `use_reentrant=True`, which transformers before 5 checkpoint with unless they are told otherwise: each layer is
        /// recomputed whole and goes backward on its own, while what it made and the gradient that came stay.
        Reentrant = "reentrant",
        /// As `full`, but the results of what takes time (products, attention, convolutions) are kept instead of computed
        /// again, of products of two matrices every other one: torchtitan's `selective` with `op`, by
        /// `create_selective_checkpoint_contexts`.
        Selective = "selective",
    }
);

words!(
    /// Where what backward needs waits for it.
    ActivationOffloading {
        /// On the card.
        None = "none" as "off",
        /// In the machine's memory, page-locked: all of it, views of weights and copies that autocast made of them too
        /// (`torch.autograd.graph.save_on_cpu(pin_memory=True)` around the forward). Beside checkpointing that is the input of each layer,
        /// and what lies between them.
        SaveOnCpu = "save-on-cpu" as "save_on_cpu",
        /// The same, as TRL's `OffloadActivations` does it (`SFTConfig(activation_offloading=True)`): on a stream of its own, the last few
        /// held on the card until backward, what is small, a parameter, part of the output head or known already not at all. As of TRL 1.16;
        /// the cache is emptied before each micro-batch where bitsandbytes is imported: with quantization, its optimizers, adapters, Liger's or TRL's loss, the
        /// Trainer, and transformers' Adafactor since 5.2.
        OffloadActivations = "offload-activations" as "TRL's OffloadActivations",
        /// Of each checkpointed layer its input, page-locked, and nothing else: with `checkpointing = "reentrant"`, which it is one of.
        /// LLaMA-Factory's `use_unsloth_gc`, and what Unsloth and Axolotl did of old; Unsloth's of today has two buffers of one input on the card
        /// besides.
        CheckpointInputs = "checkpoint-inputs" as "checkpoints' inputs",
    }
);

words!(
    /// How attention is computed.
    Attention {
        /// PyTorch's scaled_dot_product_attention; which kernel depends on dtype, mask, head size and card.
        Sdpa = "sdpa" as "SDPA",
        /// Two matmuls and a softmax, every score kept.
        Eager = "eager",
    }
);

words!(
    /// What zero_grad does with the gradients.
    ZeroGrad {
        /// Gradients are dropped: PyTorch's default since 2.0.
        SetToNone = "set-to-none" as "set to none",
        /// The buffers stay, filled with zeros.
        Zero = "zero" as "fill with zeros",
    }
);

words!(
    /// Where zero_grad stands in the loop.
    ZeroGradAt {
        /// Gradients are gone during the next forward.
        AfterStep = "after-step" as "after the step",
        /// Between the first micro-batch's input and its forward: the last gradients live until the batch is there.
        BeforeForward = "before-forward" as "before forward",
        /// Between the first micro-batch's forward and its backward: the last gradients live through the forward.
        BeforeBackward = "before-backward" as "before backward",
    }
);

words!(
    /// Whose loop runs the steps.
    Trainer {
        /// One written by hand: a batch comes when it is needed, and what a step counted goes.
        None = "none" as "a plain loop",
        /// transformers' Trainer. All micro-batches of a step are on the card before the first of them runs, their labels are
        /// counted there, and the last loss, the sum of the losses and the norm of the gradients stay.
        Transformers = "transformers" as "transformers' Trainer",
        /// torchvision's references/classification/train.py. A batch is let go of before the next one comes, the outputs before
        /// the next loss; after each step its accuracies are computed on the card, and stay.
        Torchvision = "torchvision" as "torchvision's reference",
        /// nanoGPT's train.py. It evaluates before its first step, fetches the next batch before each backward, and updates matrices
        /// before vectors; its model holds the embeddings to the end of the forward.
        NanoGpt = "nanogpt" as "nanoGPT's train.py",
    }
);

words!(
    /// What stands in CUBLAS_WORKSPACE_CONFIG: sizes in KiB, each with how many of them.
    CublasWorkspace {
        /// Nothing: PyTorch takes what it takes by card.
        Default = "default" as "PyTorch's own",
        /// No workspace is taken from PyTorch's allocator.
        None = ":0:0" as "none",
        /// 128 KiB: one of the two settings that make cuBLAS deterministic.
        Small = ":16:8",
        /// 32 MiB: the other.
        Large = ":4096:8",
        /// 8.125 MiB: PyTorch's own before Hopper.
        Both = ":4096:2:16:8",
    }
);

impl CublasWorkspace {
    /// What one handle takes, in bytes; `None`: what it takes by card. `parseChosenWorkspaceSize` in
    /// `aten/src/ATen/cuda/CublasHandlePool.cpp`.
    pub const fn bytes(self) -> Option<u64> {
        match self {
            Self::Default => None,
            Self::None => Some(0),
            Self::Small => Some((16 * 8) << 10),
            Self::Large => Some((4096 * 8) << 10),
            Self::Both => Some((4096 * 2 + 16 * 8) << 10),
        }
    }
}

impl Optimizer {
    /// Which implementations it has; the first is the default.
    pub const fn implementations(self) -> &'static [OptimizerImpl] {
        match self {
            Self::Adafactor | Self::AdamW8bit | Self::PagedAdamW | Self::PagedAdamW8bit => &[OptimizerImpl::ForLoop],
            // `if foreach:`, of which the default is None.
            Self::AdafactorTorch => &[OptimizerImpl::ForLoop, OptimizerImpl::Foreach],
            // NAdam, Adamax and RMSprop have no fused implementation, and Adagrad's is for the host.
            Self::Adagrad
            | Self::NAdam
            | Self::Adamax
            | Self::RmsProp
            | Self::RmsPropMomentum
            | Self::RmsPropCentered
            | Self::RmsPropCenteredMomentum => &[OptimizerImpl::Foreach, OptimizerImpl::ForLoop],
            Self::Lion => &[OptimizerImpl::ForLoop, OptimizerImpl::Foreach, OptimizerImpl::Fused],
            _ => OptimizerImpl::ALL,
        }
    }
}

impl Precision {
    /// The 16 bits that go with it, for weights too.
    pub const fn half(self) -> Self {
        match self {
            Self::Fp16 | Self::Fp16Amp => Self::Fp16,
            Self::Fp32 | Self::Bf16 | Self::Bf16Amp => Self::Bf16,
        }
    }

    /// The dtype a model is loaded in with it: float32 under autocast, as `Trainer(bf16=True)` wants of what is trained
    /// whole; of a base that is quantized the 16 bits its products compute in.
    pub const fn dtype(self, quantized: bool) -> BaseDtype {
        match self {
            Self::Fp16Amp if quantized => BaseDtype::Float16,
            Self::Bf16Amp if quantized => BaseDtype::Bfloat16,
            Self::Fp32 | Self::Fp16Amp | Self::Bf16Amp => BaseDtype::Float32,
            Self::Fp16 => BaseDtype::Float16,
            Self::Bf16 => BaseDtype::Bfloat16,
        }
    }

    /// Whether the forward runs under autocast.
    pub const fn is_amp(self) -> bool {
        matches!(self, Self::Fp16Amp | Self::Bf16Amp)
    }
}
