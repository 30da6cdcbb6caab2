//! The closed choices of a recipe: what people read on the buttons.

use plimsoll_core::scenario::{
    Attention, AttentionMask, Checkpointing, LossImpl, Mode, Optimizer, OptimizerImpl, Precision, Quantization,
    ZeroGrad, ZeroGradAt,
};

/// A vocabulary of the scenario as a control offers it.
pub trait Choice: Copy + PartialEq + Send + Sync + 'static {
    /// Every value, in order.
    fn all() -> &'static [Self];
    /// The scenario's spelling, for tests and the DOM.
    fn key(self) -> &'static str;
    /// What the button says.
    fn label(self) -> &'static str;
    /// What the value means, in one line.
    fn about(self) -> &'static str;
}

macro_rules! choice {
    ($name:ident { $($variant:ident: $label:literal, $about:literal;)+ }) => {
        impl Choice for $name {
            fn all() -> &'static [Self] {
                Self::ALL
            }
            fn key(self) -> &'static str {
                self.as_str()
            }
            fn label(self) -> &'static str {
                match self { $(Self::$variant => $label,)+ }
            }
            fn about(self) -> &'static str {
                match self { $(Self::$variant => $about,)+ }
            }
        }
    };
}

choice!(Mode {
    Train: "training", "Forward, backward, the optimizer's step.";
    Inference: "inference", "Text is generated, or the model runs forward once.";
});
choice!(Precision {
    Fp32: "fp32", "Everything in 32 bits.";
    Fp16Amp: "fp16 amp", "32-bit weights, 16-bit matmuls, gradient scaler.";
    Bf16Amp: "bf16 amp", "32-bit weights, bfloat16 matmuls.";
    Fp16: "fp16", "Everything in 16 bits.";
    Bf16: "bf16", "Everything in bfloat16.";
});
choice!(Optimizer {
    Sgd: "SGD", "No states.";
    SgdMomentum: "SGD + momentum", "One state per trained number.";
    Adam: "Adam", "Two states per trained number.";
    AdamW: "AdamW", "Two states per trained number.";
    Adafactor: "Adafactor", "Factored second moments: rows and columns only.";
    AdamW8bit: "AdamW 8-bit", "bitsandbytes: two states of one byte per trained number.";
    Lion: "Lion", "One state per trained number.";
    Muon: "Muon", "One state per number of the hidden matrices; AdamW for the rest.";
});
choice!(OptimizerImpl {
    Foreach: "foreach", "Lists at once, with whole-model temporaries: PyTorch's default.";
    Fused: "fused", "One kernel, hardly any temporaries.";
    ForLoop: "for-loop", "One parameter after the other.";
});
choice!(Quantization {
    None: "none", "The frozen weights in the dtype they are loaded in.";
    Int8: "int8", "One byte a weight and a scale a row (LLM.int8).";
    Nf4: "nf4", "Half a byte a weight and a float32 scale for every 64 (QLoRA).";
    Nf4Double: "nf4 double", "As nf4, the scales quantized once more.";
});
choice!(Checkpointing {
    None: "off", "Everything backward needs is kept.";
    Full: "every layer", "Each layer keeps its input only and is recomputed in backward.";
});
choice!(LossImpl {
    Full: "all logits", "The model's own loss: every logit in float32.";
    Chunked: "in chunks", "torchtune's: an eighth of the sequence is made float32 at a time.";
    FusedLinear: "fused", "Liger's: head and loss together, the logits are never kept.";
});
choice!(Attention {
    Sdpa: "SDPA", "PyTorch's fused attention.";
    Eager: "eager", "Every attention score is kept.";
});
choice!(AttentionMask {
    None: "none", "No mask is given.";
    Ones: "all ones", "A mask is given but nothing is padded, so it is dropped.";
    Padded: "padded", "Padding is kept, which changes the attention kernel.";
});
choice!(ZeroGrad {
    SetToNone: "set to none", "Gradients are dropped: PyTorch's default.";
    Zero: "fill with zeros", "The buffers stay.";
});
choice!(ZeroGradAt {
    AfterStep: "after the step", "Gradients are gone during the next forward.";
    BeforeBackward: "before backward", "The last gradients live through the forward.";
});

#[cfg(test)]
mod tests {
    use plimsoll_core::scenario::{Optimizer, Precision};

    use super::Choice;

    #[test]
    fn every_choice_reads_differently() {
        fn distinct<C: Choice>() {
            let mut labels: Vec<_> = C::all().iter().map(|c| c.label()).collect();
            labels.sort_unstable();
            labels.dedup();
            assert_eq!(labels.len(), C::all().len());
        }
        distinct::<Precision>();
        distinct::<Optimizer>();
    }
}
