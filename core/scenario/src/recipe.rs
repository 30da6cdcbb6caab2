//! The closed vocabularies of a scenario: each an enum whose text form is the scenario's own.

/// An enum whose values are words of the scenario.
pub(super) trait Vocabulary: Copy + 'static {
    /// Every value, in the order they are offered to people.
    fn values() -> &'static [Self];

    /// The scenario's spelling.
    fn word(self) -> &'static str;
}

/// Declares an enum with its scenario spellings, so that parsing, printing and "use one of ..." share one list.
macro_rules! vocabulary {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[$vdoc])* $variant,)+ }

        impl $name {
            /// Every value, in the order they are offered to people.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The scenario's spelling.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The value spelled `text`, if there is one.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|v| v.as_str() == text)
            }
        }

        impl Vocabulary for $name {
            fn values() -> &'static [Self] {
                Self::ALL
            }

            fn word(self) -> &'static str {
                self.as_str()
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}

vocabulary!(
    /// What is trained on the model: which head and which loss.
    Task {
        /// Next-token prediction.
        CausalLm = "causal-lm",
        /// BERT-style masked tokens.
        MaskedLm = "masked-lm",
        /// One label per sequence.
        SequenceClassification = "sequence-classification",
        /// Encoder-decoder generation.
        Seq2SeqLm = "seq2seq-lm",
        /// One label per image.
        ImageClassification = "image-classification",
        /// CLIP-style pairs.
        Contrastive = "contrastive",
        /// Whisper-style transcription.
        SpeechSeq2Seq = "speech-seq2seq",
        /// Values of the next time steps.
        Forecasting = "forecasting",
        /// One label per node of a graph.
        NodeClassification = "node-classification",
        /// One label per feature vector (the `mlp` family).
        Classification = "classification",
    }
);

vocabulary!(
    /// Whether an attention mask is given, and whether anything in it is padded.
    AttentionMask {
        /// Not given.
        None = "none",
        /// Given, nothing padded: transformers notices and drops it.
        Ones = "ones",
        /// Given with padding: kept, materialised, and it changes the SDPA kernel.
        Padded = "padded",
    }
);

vocabulary!(
    /// Training or inference.
    Mode {
        /// The training loop.
        Train = "train",
        /// Forward only.
        Inference = "inference",
    }
);

vocabulary!(
    /// The dtype of the weights, and whether the forward runs under `torch.autocast`.
    Precision {
        /// Everything float32.
        Fp32 = "fp32",
        /// float32 weights, float16 autocast, GradScaler.
        Fp16Amp = "fp16-amp",
        /// float32 weights, bfloat16 autocast.
        Bf16Amp = "bf16-amp",
        /// Weights, gradients and states in float16.
        Fp16 = "fp16",
        /// Weights, gradients and states in bfloat16.
        Bf16 = "bf16",
    }
);

vocabulary!(
    /// The optimizer's class.
    Optimizer {
        /// `torch.optim.SGD`, no momentum.
        Sgd = "sgd",
        /// `torch.optim.SGD` with momentum.
        SgdMomentum = "sgd-momentum",
        /// `torch.optim.Adam`.
        Adam = "adam",
        /// `torch.optim.AdamW`.
        AdamW = "adamw",
        /// transformers' Adafactor with `scale_parameter=False, relative_step=False`.
        Adafactor = "adafactor",
        /// bitsandbytes' `AdamW8bit`: both moments in bytes, in blocks of 256 with a scale each; those of parameters with
        /// fewer than 4096 numbers stay in float32.
        AdamW8bit = "adamw-8bit",
        /// Lion (Chen et al. 2023), one moment: lion-pytorch's `Lion` (`for-loop`) or its `foreach.Lion`, or bitsandbytes'
        /// `Lion`, whose moments are float32 (`fused`).
        Lion = "lion",
        /// `torch.optim.Muon` (PyTorch 2.9) on every matrix but embeddings and the output head, `AdamW` on the rest;
        /// `optimizer_impl` is AdamW's.
        Muon = "muon",
    }
);

vocabulary!(
    /// What the base model's linear layers hold, as bitsandbytes replaces them.
    ///
    /// The model is loaded in the precision's dtype (`bf16` and `bf16-amp`: bfloat16), which is also what the quantized
    /// layers compute in (`bnb_4bit_compute_dtype`). For training, peft's `prepare_model_for_kbit_training` then casts
    /// everything that is not quantized, embeddings, norms, biases and the output head, to float32. So `bf16-amp` is the
    /// usual QLoRA run under autocast, while with `bf16` nothing but the quantized products is in bfloat16. With
    /// `prepare_kbit = false` that function is not called (litgpt, torchtune, unsloth and loops written by hand): all of
    /// it stays as it was loaded, frozen by `get_peft_model` alone.
    Quantization {
        /// The weights' own dtype.
        None = "none",
        /// `Linear8bitLt`: int8, one scale per row.
        Int8 = "int8",
        /// `Linear4bit` in NF4, blocks of 64 with a float32 scale each.
        Nf4 = "nf4",
        /// NF4 with its scales quantized once more (`bnb_4bit_use_double_quant`).
        Nf4Double = "nf4-double",
    }
);

vocabulary!(
    /// How the output head and the cross-entropy are computed.
    LossImpl {
        /// All logits at once, in float32.
        Full = "full",
        /// Head and loss in eight chunks of the sequence, of which one at a time is made float32 (torchtune's
        /// `CEWithChunkedOutputLoss`).
        Chunked = "chunked",
        /// Head and loss together, chunk by chunk, without keeping logits (Liger's `LigerFusedLinearCrossEntropyLoss`).
        FusedLinear = "fused-linear",
    }
);

vocabulary!(
    /// Which of PyTorch's implementations of the optimizer runs.
    OptimizerImpl {
        /// Horizontally fused lists; PyTorch's default on CUDA.
        Foreach = "foreach",
        /// One kernel for the whole update.
        Fused = "fused",
        /// One parameter after the other.
        ForLoop = "for-loop",
    }
);

vocabulary!(
    /// Activation checkpointing.
    Checkpointing {
        /// Everything backward needs is kept.
        None = "none",
        /// Every layer keeps its input only and is recomputed in backward (non-reentrant).
        Full = "full",
    }
);

vocabulary!(
    /// How attention is computed.
    Attention {
        /// `scaled_dot_product_attention`; which kernel depends on dtype, mask, head size and card.
        Sdpa = "sdpa",
        /// Two matmuls and a softmax, every score kept.
        Eager = "eager",
    }
);

vocabulary!(
    /// What `zero_grad` does with the gradients.
    ZeroGrad {
        /// Drops them (PyTorch's default since 2.0).
        SetToNone = "set-to-none",
        /// Keeps the buffers and fills them with zeros.
        Zero = "zero",
    }
);

vocabulary!(
    /// Where `zero_grad` stands in the loop.
    ZeroGradAt {
        /// After the optimizer's step.
        AfterStep = "after-step",
        /// Between the first micro-batch's forward and its backward: the last gradients live through the forward.
        BeforeBackward = "before-backward",
    }
);

/// `lora = { rank, targets, dropout, dora, modules_to_save }`: low-rank adapters of peft on a frozen base, alpha = 2 x rank.
///
/// Missing keys take rank 8 and dropout 0, as peft's `LoraConfig` has them, and `all-linear`.
#[derive(Clone, Debug, PartialEq)]
pub struct Lora {
    /// Rank of the adapters.
    pub rank: u64,
    /// Which linears carry one.
    pub targets: LoraTargets,
    /// Dropout on the adapter's input, 0 <= p < 1.
    pub dropout: f64,
    /// Whether the adapter learns the weight's magnitude too (`use_dora`).
    pub dora: bool,
    /// Modules that are trained whole, in a copy of their own (`modules_to_save`); names as peft matches them.
    pub modules_to_save: Vec<String>,
}

/// Which linear layers carry an adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LoraTargets {
    /// `"all-linear"`: every linear but the output head.
    AllLinear,
    /// Module names as peft matches them: the last part of the dotted path.
    Names(Vec<String>),
}

impl Precision {
    /// Whether the forward runs under autocast.
    pub const fn is_amp(self) -> bool {
        matches!(self, Self::Fp16Amp | Self::Bf16Amp)
    }
}

impl Default for Lora {
    fn default() -> Self {
        Self { rank: 8, targets: LoraTargets::AllLinear, dropout: 0.0, dora: false, modules_to_save: Vec::new() }
    }
}
