//! One op or small module alone, forward and backward, as kernel benchmarks run them: what others measured of those can
//! be laid beside the engine without a whole model around it. Modules are run with `retain_graph=True`, losses without.

use std::rc::Rc;

use plimsoll_catalog::device::Workspace;
use plimsoll_catalog::families;
use plimsoll_ground::Bytes;
use plimsoll_torch::nn::{GatedMlp, LayerNorm, Linear, RmsNorm, Scope};
use plimsoll_torch::ops::{self, Fill};
use plimsoll_torch::tensor::{Context, DType, Tensor, backward, backward_retaining};

use crate::{PhaseName, largest_allocated};

/// What is run; sizes in numbers of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Single {
    /// `nn.CrossEntropyLoss` on float32 logits `[rows, vocab]` that require grad.
    CrossEntropy {
        /// Tokens.
        rows: u64,
        /// Classes.
        vocab: u64,
    },
    /// `nn.LayerNorm(features)` on float32 `[rows, features]`.
    LayerNorm {
        /// Rows.
        rows: u64,
        /// Features of each.
        features: u64,
    },
    /// transformers' `LlamaRMSNorm` with float32 weights on bfloat16 `[rows, features]`: its output is float32, the gradient
    /// that is held for it bfloat16.
    RmsNorm {
        /// Rows.
        rows: u64,
        /// Features of each.
        features: u64,
    },
    /// transformers' `LlamaMLP`, or Liger's `LigerSwiGLUMLP` or `LigerGEGLUMLP`, in bfloat16 on `[batch, seq, hidden]`.
    GatedMlp {
        /// Samples.
        batch: u64,
        /// Tokens of each.
        seq: u64,
        /// Features of a token.
        hidden: u64,
        /// Features between.
        intermediate: u64,
        /// Whether the activation is tanh-GELU rather than SiLU.
        gelu: bool,
        /// Whether it is Liger's.
        #[serde(default)]
        liger: bool,
    },
    /// An output head without bias and `nn.CrossEntropyLoss`, bfloat16 `[rows, hidden]`.
    HeadAndLoss {
        /// Tokens.
        rows: u64,
        /// Features of a token.
        hidden: u64,
        /// Classes.
        vocab: u64,
    },
}

/// Forward and backward, once.
type Round = Box<dyn Fn()>;

/// Rounds run before the one that is read: gradients are accumulated from the second on.
const ROUNDS: u64 = 3;

impl Single {
    /// `torch.cuda.max_memory_allocated` over one round of forward and backward after others; `workspace` is what cuBLAS
    /// takes for each of its handles.
    pub fn peak(self, workspace: Bytes) -> Bytes {
        let cx = Context::new();
        cx.set_blas_workspace(Workspace { bytes: workspace, kept: true }, Workspace::NONE);
        cx.begin(PhaseName::Load, None, None);
        let round = self.build(&cx);
        for step in 1..=ROUNDS {
            cx.begin(PhaseName::Forward, u32::try_from(step).ok(), None);
            // The output's graph is let go of before the next round.
            round();
        }
        cx.end();
        let ledger = cx.take();
        largest_allocated(&ledger, ROUNDS)
    }

    /// The tensors that stay, and what one round does with them.
    fn build(self, cx: &Rc<Context>) -> Round {
        let leaf = |sizes: &[u64], dtype| ops::fill(cx, Fill::Rand, sizes, dtype).into_leaf(false);
        let scope = |dtype| Scope::root(cx, dtype, None, None, None);
        match self {
            Self::CrossEntropy { rows, vocab } => {
                let logits = leaf(&[rows, vocab], DType::Float32);
                let targets = ops::empty(cx, &[rows], DType::Int64);
                Box::new(move || backward(&ops::cross_entropy(&logits, &targets)))
            }
            Self::LayerNorm { rows, features } => {
                let x = leaf(&[rows, features], DType::Float32);
                let norm = LayerNorm::new(&scope(DType::Float32), features, true);
                Box::new(move || backward_retaining(&norm.forward(&x)))
            }
            Self::RmsNorm { rows, features } => {
                let x = leaf(&[rows, features], DType::BFloat16);
                let norm = RmsNorm::new(&scope(DType::Float32), features);
                // Autograd casts it to the output's dtype (`validate_outputs` in engine.cpp): the one that backward uses is
                // another.
                let gradient = leaf(&[rows, features], DType::BFloat16);
                Box::new(move || {
                    let _held = &gradient;
                    backward_retaining(&norm.forward(&x));
                })
            }
            Self::GatedMlp { batch, seq, hidden, intermediate, gelu, liger } => {
                // What a gated activation becomes is the same in every family.
                cx.set_liger(families::of_type("llama").and_then(|family| family.liger).filter(|_| liger));
                let x = leaf(&[batch, seq, hidden], DType::BFloat16);
                let act = if gelu { "gelu_pytorch_tanh" } else { "silu" };
                let mlp = GatedMlp::new(&scope(DType::BFloat16), hidden, intermediate, act, false);
                Box::new(move || {
                    if let Some(mlp) = &mlp {
                        backward_retaining(&mlp.forward(&x));
                    }
                })
            }
            Self::HeadAndLoss { rows, hidden, vocab } => {
                let x = leaf(&[rows, hidden], DType::BFloat16);
                let head = Linear::new(&scope(DType::BFloat16), hidden, vocab, false);
                let targets = ops::empty(cx, &[rows], DType::Int64);
                Box::new(move || {
                    let loss: Tensor = {
                        let logits = head.forward(&x);
                        ops::cross_entropy(&logits, &targets)
                    };
                    backward(&loss);
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Liger-Kernel, benchmark/data/all_benchmark_data.csv at ead96b6, provider "huggingface", A100 80 GB: MiB as printed.
    #[test]
    fn what_a_kernel_benchmark_measured() {
        let a100 = Bytes::new(8_519_680);
        let mlp =
            |liger| Single::GatedMlp { batch: 8, seq: 1024, hidden: 4096, intermediate: 11008, gelu: true, liger };
        let rows: [(Single, f64); 6] = [
            (Single::CrossEntropy { rows: 8 * 2048, vocab: 4096 }, 1_280.125_976_562_5),
            (Single::CrossEntropy { rows: 8 * 2048, vocab: 131_072 }, 40_960.125_976_562_5),
            (Single::LayerNorm { rows: 4096, features: 1024 }, 80.0625),
            // Less 4 KiB, the weight of the module that it is compared with.
            (Single::RmsNorm { rows: 2048, features: 1024 }, 80.019_531_25 - 4.0 / 1024.0),
            (mlp(false), 1992.25),
            // Provider "liger".
            (mlp(true), 1582.25),
        ];
        for (single, mib) in rows {
            let ours = single.peak(a100).get() as f64 / 1_048_576.0;
            assert!((ours - mib).abs() / mib < 0.0001, "{single:?}: {ours} for {mib}");
        }
    }
}
