//! Rotary positions as layers of older transformers had them: each with angles of its own, computed or looked up.

use plimsoll_catalog::software::{Rule, Rules, rules};

use super::rope::RotaryEmbedding;
use super::scope::Scope;
use crate::ops::{self, Rearrangement};
use crate::tensor::{DType, ModuleId, Tensor};

/// Who knows the cosines and sines of the positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Angles {
    /// The model computes them once; its layers hold nothing.
    Once,
    /// The model computes them once; its layers hold frequencies that nobody reads.
    OnceAndHeld,
    /// Every layer computes them.
    EachLayer,
    /// Every layer looks them up in tables of all positions, which have the weights' dtype and are cast to the values'.
    Tables,
    /// As [`Angles::Tables`], but float32 always, and never cast.
    WideTables,
}

/// What a model type did before its angles were computed once for all layers: until the rule held, what stands beside it; the
/// first that has not come yet counts.
type History = &'static [(&'static Rule, Angles)];

const LLAMA: History = &[
    (&rules::LLAMA_COMPUTES_ANGLES, Angles::Tables),
    (&rules::FIRST_ANGLES_ONCE, Angles::EachLayer),
    (&rules::ANGLES_ONCE, Angles::OnceAndHeld),
];
const MISTRAL: History = &[(&rules::FIRST_ANGLES_ONCE, Angles::Tables), (&rules::ANGLES_ONCE, Angles::EachLayer)];
const MOST: History = &[(&rules::MOST_ANGLES_ONCE, Angles::Tables), (&rules::ANGLES_ONCE, Angles::OnceAndHeld)];
const FALCON: History =
    &[(&rules::MOST_ANGLES_ONCE, Angles::Tables), (&rules::FALCON_LETS_GO_OF_FREQUENCIES, Angles::OnceAndHeld)];
const LAST: History =
    &[(&rules::MOST_ANGLES_ONCE, Angles::Tables), (&rules::LAST_FREQUENCIES_LET_GO, Angles::OnceAndHeld)];
const NEOX: History =
    &[(&rules::MOST_ANGLES_ONCE, Angles::WideTables), (&rules::GPT_NEOX_SHARES_ATTENTION, Angles::OnceAndHeld)];
const MIXTRAL: History = &[(&rules::ANGLES_ONCE, Angles::Tables)];
const LATER: History = &[(&rules::ANGLES_ONCE, Angles::EachLayer)];

impl Angles {
    /// Those of a `model_type` under `software`.
    pub fn of(model_type: &str, software: Rules) -> Self {
        let history = match model_type {
            "llama" => LLAMA,
            "mistral" => MISTRAL,
            "qwen2" | "phi" | "starcoder2" => MOST,
            "falcon" => FALCON,
            "qwen2_moe" | "stablelm" => LAST,
            "gpt_neox" => NEOX,
            "mixtral" => MIXTRAL,
            "gemma" | "gemma2" | "olmo" | "phi3" => LATER,
            _ => &[],
        };
        history.iter().find(|(until, _)| !software.has(until)).map_or(Self::Once, |(_, angles)| *angles)
    }

    /// Whether the model computes them before its layers run.
    pub const fn are_the_models(self) -> bool {
        matches!(self, Self::Once | Self::OnceAndHeld)
    }
}

/// `rotary_emb` of an attention layer.
#[derive(Debug)]
pub enum LayerRotary {
    /// There is none, or one that is never called.
    Unused(Option<Tensor>),
    /// It computes.
    Computes(RotaryEmbedding),
    /// It looks up.
    LooksUp {
        /// `inv_freq`, `cos_cached` and `sin_cached`.
        buffers: [Tensor; 3],
        /// Whether what is found takes the values' dtype.
        casts: bool,
        /// The module.
        module: ModuleId,
    },
}

/// The cosines and sines that one layer turns by.
#[derive(Debug)]
pub struct LayerAngles {
    /// Cosines.
    pub cos: Tensor,
    /// Sines.
    pub sin: Tensor,
    /// What attention has names for: tables that were cast.
    named: Option<[Tensor; 2]>,
}

impl LayerAngles {
    /// When queries and keys are turned: what attention still has names for. What was picked out of tables had a name only
    /// where it was used.
    pub fn turned(self) -> [Tensor; 2] {
        self.named.unwrap_or([self.cos, self.sin])
    }
}

impl LayerRotary {
    /// The layer's own, below its attention's `scope`: `dim` dimensions of a head are turned, the tables have `positions` rows.
    pub fn new(scope: &Scope, angles: Angles, dim: u64, positions: u64) -> Self {
        let frequencies = |scope: &Scope| scope.buffer(&[dim / 2]);
        let scope = scope.child("rotary_emb");
        let table = |dtype| {
            let buffers = [
                frequencies(&scope),
                scope.buffer_of(&[positions, dim], dtype),
                scope.buffer_of(&[positions, dim], dtype),
            ];
            (buffers, scope.module())
        };
        match angles {
            Angles::Once => Self::Unused(None),
            Angles::OnceAndHeld => Self::Unused(Some(frequencies(&scope))),
            Angles::EachLayer => Self::Computes(RotaryEmbedding::unscaled(&scope, dim)),
            Angles::Tables => {
                let (buffers, module) = table(scope.buffer_dtype());
                Self::LooksUp { buffers, casts: true, module }
            }
            Angles::WideTables => {
                let (buffers, module) = table(DType::Float32);
                Self::LooksUp { buffers, casts: false, module }
            }
        }
    }

    /// What `value`'s layer turns by; `shared` is the model's.
    pub fn angles(
        &self,
        value: &Tensor,
        position_ids: Option<&Tensor>,
        shared: Option<&(Tensor, Tensor)>,
    ) -> LayerAngles {
        match (self, position_ids, shared) {
            (Self::LooksUp { buffers: [_, cos, sin], casts, module }, Some(position_ids), _) => {
                let cx = value.cx();
                let (seq, dim) = (position_ids.size(-1), cos.size(-1));
                let tables = cx.within(*module, || {
                    [cos, sin].map(|table| {
                        let rows = ops::narrow(table, 0, seq);
                        if *casts { ops::to(&rows, value.dtype()) } else { rows }
                    })
                });
                let pick = |table: &Tensor| {
                    let sizes = [position_ids.size(0), seq, dim];
                    ops::rearrangement(cx, Rearrangement::IndexTensor, &sizes, table.dtype())
                };
                let (cos, sin) = (pick(&tables[0]), pick(&tables[1]));
                LayerAngles { cos, sin, named: Some(tables) }
            }
            (Self::Computes(rotary), Some(position_ids), _) => {
                let (cos, sin) = rotary.forward(value, position_ids);
                LayerAngles { cos, sin, named: None }
            }
            (Self::Unused(_), _, Some((cos, sin))) => LayerAngles { cos: cos.clone(), sin: sin.clone(), named: None },
            (Self::LooksUp { .. } | Self::Computes(_), None, _) => unreachable!("who makes angles is handed positions"),
            (Self::Unused(_), _, None) => unreachable!("who has no angles of its own is handed the model's"),
        }
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_catalog::software::{Software, Version};

    use super::*;

    fn of(model_type: &str, minor: u16) -> Angles {
        let software = Software { transformers: Version::new(4, minor), ..Software::default() };
        Angles::of(model_type, Rules::of(&software))
    }

    /// As `rotary_emb` is called in `modeling_*.py` of 4.36.2, 4.40.2, 4.44.2, 4.45.2, 4.47.1 and 4.48.3.
    #[test]
    fn angles_are_the_layers_until_they_are_the_models() {
        use Angles::{EachLayer, Once, OnceAndHeld, Tables, WideTables};
        let versions = [36, 40, 44, 45, 47, 48];
        let of = |model_type| versions.map(|minor| of(model_type, minor));
        assert_eq!(of("llama"), [Tables, EachLayer, OnceAndHeld, OnceAndHeld, OnceAndHeld, Once]);
        assert_eq!(of("mistral"), [Tables, Tables, EachLayer, EachLayer, EachLayer, Once]);
        assert_eq!(of("qwen2"), [Tables, Tables, Tables, OnceAndHeld, OnceAndHeld, Once]);
        assert_eq!(of("gpt_neox")[2], WideTables);
        assert_eq!(of("mixtral"), [Tables, Tables, Tables, Tables, Tables, Once]);
        assert_eq!(of("gemma"), [EachLayer, EachLayer, EachLayer, EachLayer, EachLayer, Once]);
        assert_eq!(of("qwen3"), [Once; 6]);
    }
}
