//! The frame of transformers' rotary decoders: embeddings, masks, positions, layers, a last norm, a head.

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_scenario::Attention;
use plimsoll_torch::nn::{
    Axes, Embedding, ModuleList, Norm, RotaryEmbedding, Scope, causal_mask, chunked_causal_mask, late_causal_mask,
    older_hybrid_mask, older_windowed_mask, recurrent_mask, sliding_window_causal_mask, two_part_causal_mask,
    whole_two_part_mask, windowless_causal_mask,
};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{Context, ModuleId, Tensor};

use super::checkpointed::checkpoint_layer;
use super::config::Config;
use super::decoder_head::DecoderHead;
use super::decoder_only::{DecoderOnly, Headed, Shell};
use super::gemma4_shared::{Beside, Shared, Sharing};
use super::vision_tower::VisionTower;
use super::{Model, Plan, causal_lm};

/// What every layer is handed by keyword, and so what a checkpoint captures.
#[derive(Clone, Debug)]
pub struct Keywords {
    /// `position_embeddings`, where the model makes them.
    pub rotary: Option<(Tensor, Tensor)>,
    /// So, as complex numbers: cosines with sines.
    pub freqs_cis: Option<Tensor>,
    /// `attention_mask`.
    pub mask: Option<Tensor>,
    /// `position_ids`, which only layers with angles of their own read.
    pub position_ids: Option<Tensor>,
    /// `cache_position`, of a model that counts positions twice ([`rules::VL_COUNTS_FOR_IMAGES`]).
    #[allow(dead_code, reason = "a checkpoint captures it, and that is all")]
    pub cache_position: Option<Tensor>,
    /// What a model's layers have in common besides (Gemma 4).
    pub shared: Option<Rc<Shared>>,
    /// `per_layer_input`, the layer's part of that.
    pub own: Option<Tensor>,
}

impl Keywords {
    /// The hidden states and these as `module` is given them.
    pub fn given(&self, module: ModuleId, hidden: &Tensor) -> (Tensor, Self) {
        let cx = hidden.cx();
        let given = |tensor: &Tensor| cx.argument(module, tensor);
        let hidden = given(hidden);
        let mask = self.mask.as_ref().map(given);
        let rotary = self.rotary.as_ref().map(|(cos, sin)| (given(cos), given(sin)));
        // What is no tensor, nor a list or dict of them, is handed on as it is.
        (hidden, Self { rotary, mask, ..self.clone() })
    }
}

/// A decoder layer.
pub trait Layer: std::fmt::Debug {
    /// The next hidden states.
    fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> Tensor;

    /// Whether it looks through the sliding window, or is linear: it is handed the second of the masks.
    fn windowed(&self) -> bool {
        false
    }

    /// What sets it apart from other layers of its model besides the window: layers of one kind do the same.
    fn kind(&self) -> u64 {
        0
    }
}

/// Which masks a model makes before its layers run.
#[derive(Clone, Copy, Debug)]
pub enum Masks {
    /// `create_causal_mask` alone.
    Full,
    /// So, of a model whose layers may be windowed, and are not.
    Windowless,
    /// So, of a model that was among the last to call it (OLMoE, StableLM).
    Late,
    /// Out of a causal and a padding part, as GPT-NeoX had it (`modeling_attn_mask_utils.py`).
    TwoParts,
    /// `create_sliding_window_causal_mask` alone: every layer is windowed (Mistral's way).
    Windowed(u64),
    /// Both, the full one first (OLMo 3's way).
    Both(u64),
    /// One for all layers, as before [`rules::MIXTURES_SHARE_MASK`] (Qwen2-MoE's way).
    BothLate(u64),
    /// So; before `masking_utils.py` one for all, of which each layer with a window made its own (Gemma 2's way).
    Hybrid(u64),
    /// So, the other one in chunks (Llama 4).
    Chunked(u64),
    /// So, made without position ids, which say where packed sequences begin (GPT-OSS).
    BothUnpacked(u64),
    /// The full one always, the windowed one only where a layer uses it (Qwen's way).
    FullThenUsed(u64),
    /// The full one, and what linear layers know of padding (Qwen3-Next, Qwen3.5).
    Recurrent,
}

/// As which a model makes cosines and sines.
#[derive(Clone, Copy, Debug)]
pub enum AngleTables {
    /// As wide as what is turned, in the dtype of the hidden states.
    Twice,
    /// So, in float32 (OLMo).
    InFloat32,
    /// Half as wide (GPT-OSS).
    Once,
    /// As complex numbers, one for each angle (DeepSeek V2, Llama 4).
    Complex,
    /// As wide as what is turned, of positions along three axes (Qwen2.5-VL, Qwen3-VL, Qwen3.5).
    Axes(Axes),
}

/// Dropout of the embeddings before the first layer.
#[derive(Clone, Copy, Debug)]
pub struct EmbedDropout {
    /// Probability.
    pub p: f64,
    /// The module that drops.
    pub module: ModuleId,
    /// Whether the result takes the embeddings' own name, so that they go (Phi); else they stay to the end.
    pub rebinds: bool,
}

/// The model around its layers. Parts are built by the family, in the order of its `__init__`.
#[derive(Debug)]
pub struct Decoder {
    /// The run.
    pub cx: Rc<Context>,
    /// `embed_tokens`.
    pub embed_tokens: Embedding,
    /// The factor of a scaled word embedding (Gemma).
    pub embed_scale: Option<EmbedScale>,
    /// Dropout of the embeddings.
    pub embed_dropout: Option<EmbedDropout>,
    /// The layers.
    pub layers: ModuleList<Box<dyn Layer>>,
    /// The last norm.
    pub norm: Norm,
    /// Cosines and sines of the positions; a second set for windowed layers (Gemma 3, OLMo 3).
    pub rotary_emb: Option<RotaryEmbedding>,
    /// The second set.
    pub local_rotary: Option<RotaryEmbedding>,
    /// `lm_head` or `score`.
    pub head: DecoderHead,
    /// As which cosines and sines are made.
    pub angles: AngleTables,
    /// The masks made.
    pub masks: Masks,
    /// `model`.
    pub model: ModuleId,
    /// The model that it is the language model of, which looks up the embeddings, and what that one has on the card beside
    /// it (Qwen2.5-VL, Qwen3-VL, Qwen3.5).
    pub outer: Option<(ModuleId, VisionTower)>,
    /// `rope_deltas` of such a model, which it keeps until it counts again.
    pub rope_deltas: RefCell<Option<Tensor>>,
    /// Whether it asks the word embeddings where they are (Llama 4).
    pub asks_embeddings: bool,
    /// Whether masks and layers are handed the positions: whoever has them along three axes alone (Qwen2.5-VL) hands on none.
    pub hands_positions: bool,
    /// What is made for the layers to share besides (Gemma 4).
    pub sharing: Option<Sharing>,
    /// Whether its layers are checkpointed where that is asked for.
    pub checkpoints: bool,
    /// Whether a generation of it hands tuples of keys and values around, and no cache.
    pub returns_tuples: bool,
    /// Whether it counts positions of its cache where others are handed to it (Phi-3 before [`rules::SHARED_SDPA`], whose head kept them).
    pub counts_anew: bool,
    /// Tokens a sample.
    pub seq: u64,
    /// The rest of the scenario.
    pub plan: Plan,
}

/// What every family builds, in the order of its own `__init__`.
#[derive(Debug)]
pub struct Parts {
    /// `embed_tokens`.
    pub embed_tokens: Embedding,
    /// The layers.
    pub layers: ModuleList<Box<dyn Layer>>,
    /// The last norm.
    pub norm: Norm,
    /// Cosines and sines.
    pub rotary_emb: Option<RotaryEmbedding>,
    /// `lm_head` or `score`.
    pub head: DecoderHead,
    /// The masks made.
    pub masks: Masks,
}

/// `nn.ModuleList([Layer(config, i) for i in range(count)])`, the `layers` of `model`.
///
/// # Errors
/// `layer` has none where the activation `act`, given under `key`, is not known.
pub fn layers(
    config: &Config<'_>,
    (key, act): (&str, &str),
    (model, count): (&Scope, u64),
    layer: impl FnMut(&Scope, u64) -> Option<Box<dyn Layer>>,
) -> Result<ModuleList<Box<dyn Layer>>> {
    ModuleList::new(model, "layers", count, layer).ok_or_else(|| super::unknown_activation(config, key, act))
}

impl Decoder {
    /// The plain frame: no scale, no dropout, no cap.
    ///
    /// # Errors
    /// When the scenario has no sequence length.
    pub fn new(scope: &Scope, model: &Scope, plan: &Plan, parts: Parts) -> Result<Self> {
        let Parts { embed_tokens, layers, norm, rotary_emb, head, masks } = parts;
        Ok(Self {
            cx: Rc::clone(scope.cx()),
            embed_tokens,
            embed_scale: None,
            embed_dropout: None,
            layers,
            norm,
            rotary_emb,
            local_rotary: None,
            head,
            angles: AngleTables::Twice,
            masks,
            model: model.module(),
            outer: None,
            rope_deltas: RefCell::new(None),
            asks_embeddings: false,
            hands_positions: true,
            sharing: None,
            checkpoints: true,
            returns_tuples: false,
            counts_anew: false,
            seq: plan.seq()?,
            plan: plan.clone(),
        })
    }

    /// With its head, as a model.
    pub fn boxed(self) -> Box<dyn Model> {
        Box::new(Headed(self))
    }
}

impl DecoderOnly for Decoder {
    fn shell(&self) -> Shell<'_> {
        Shell { cx: &self.cx, head: &self.head, seq: self.seq, plan: &self.plan }
    }

    fn returns_tuples(&self) -> bool {
        self.returns_tuples
    }

    /// Those of the three axes, and the text's before them, where a model of images makes them; of text alone they are the
    /// same along all (Qwen3.5).
    fn position_axes(&self) -> u64 {
        if self.outer.is_some() { 4 } else { 1 }
    }

    fn kept(&self) -> Vec<Tensor> {
        self.rope_deltas.take().into_iter().collect()
    }

    /// `self.model(input_ids, ...)`: the last hidden state.
    fn hidden(&self, ids: &Tensor, mask: Option<&Tensor>, positions: Option<&Tensor>) -> Tensor {
        let Some((outer, _)) = &self.outer else {
            return self.cx.within(self.model, || {
                let embeds = self.embeds(ids);
                let beside = self.sharing.as_ref().map(|sharing| sharing.begin(ids, &embeds));
                self.stack(embeds, beside, mask, positions)
            });
        };
        self.cx.within(*outer, || {
            let embeds = self.embeds(ids);
            let own = self.counts_before(&self.cx).then(|| self.rope_index(ids, mask));
            self.cx.within(self.model, || self.stack(embeds, None, mask, own.as_ref().or(positions)))
        })
    }
}

impl Decoder {
    /// What `forward` does with `inputs_embeds`.
    fn stack(
        &self,
        embeds: Tensor,
        beside: Option<Beside>,
        mask: Option<&Tensor>,
        positions: Option<&Tensor>,
    ) -> Tensor {
        let cx = &self.cx;
        let position_ids = positions.cloned().unwrap_or_else(|| causal_lm::position_ids(cx, self.seq));
        let counted = positions.filter(|_| self.counts_anew).map(|_| ops::arange(cx, embeds.size(1)));
        let cache_position = (self.counts_before(cx)).then(|| ops::arange(cx, self.seq));
        let along_axes = position_ids.geometry().rank() == 3;
        let handed = if along_axes {
            Some(ops::select(&position_ids, 0))
        } else {
            self.hands_positions.then(|| position_ids.clone())
        };
        let (full, windowed) = self.make_masks(&embeds, mask, handed.as_ref());
        let mut embeds = embeds;
        let mut hidden = embeds.clone();
        if let Some(EmbedDropout { p, module, rebinds }) = self.embed_dropout {
            hidden = cx.within(module, || ops::dropout(&hidden, p));
            if rebinds {
                embeds = hidden.clone();
            }
        }
        let mut freqs_cis = None;
        let rotary = self.rotary_emb.as_ref().and_then(|rotary| match self.angles {
            AngleTables::Twice => Some(rotary.forward(&hidden, &position_ids)),
            AngleTables::InFloat32 => Some(rotary.forward_fp32(&position_ids)),
            AngleTables::Once => Some(rotary.forward_once(&hidden, &position_ids)),
            AngleTables::Axes(axes) => {
                let positions = if along_axes {
                    ops::narrow(&position_ids, 0, 3)
                } else {
                    let sizes = [3, hidden.size(0), position_ids.size(-1)];
                    ops::expand(&ops::unsqueeze(&position_ids, 0), &sizes)
                };
                Some(rotary.forward_axes(&hidden, &positions, axes))
            }
            AngleTables::Complex => {
                freqs_cis = Some(rotary.forward_complex(&position_ids));
                None
            }
        });
        let local = match &self.local_rotary {
            Some(local) => Some(match self.angles {
                AngleTables::InFloat32 => local.forward_fp32(&position_ids),
                _ => local.forward(&hidden, &position_ids),
            }),
            None => rotary.clone(),
        };
        if let Some(EmbedScale::Number) = self.embed_scale {
            // `hidden_states * normalizer`; `inputs_embeds` stay a name.
            hidden = ops::mul_scalar(&hidden);
        }
        let shared = beside.as_ref().map(|beside| Rc::clone(&beside.shared));
        let full = Keywords { rotary, freqs_cis, mask: full, position_ids: handed, cache_position, shared, own: None };
        let windowed = Keywords { rotary: local, mask: windowed, ..full.clone() };
        let plan = Plan { checkpointing: self.plan.checkpointing && self.checkpoints, ..self.plan.clone() };
        hidden = self.layers.run(
            cx,
            hidden,
            |layer| (layer.windowed(), layer.kind()),
            |layer, hidden| {
                let keywords = if layer.windowed() { &windowed } else { &full };
                let own = beside.as_ref().and_then(Beside::input);
                run_layer(cx, &plan, layer, (hidden, own), keywords)
            },
        );
        let out = self.norm.forward(&hidden);
        drop((embeds, counted, position_ids));
        out
    }

    /// `embed_tokens(input_ids)`, scaled where the family does.
    fn embeds(&self, ids: &Tensor) -> Tensor {
        if self.asks_embeddings {
            self.cx.read(self.embed_tokens.weight());
        }
        let plain = || causal_lm::input_embeddings(&self.embed_tokens, ids, &self.plan);
        let scale = match &self.embed_scale {
            None => return plain(),
            // Later, when the angles are there.
            Some(EmbedScale::Number) => return plain(),
            Some(EmbedScale::Buffer(scale)) => scale,
        };
        let embeds = self.embed_tokens.forward(ids);
        let scaled = ops::mul(&embeds, &ops::to(scale, embeds.dtype()));
        if self.plan.adapters && self.plan.checkpointing { scaled.into_required_output() } else { scaled }
    }

    /// The masks of full and of windowed layers, made in this order.
    fn make_masks(
        &self,
        embeds: &Tensor,
        mask: Option<&Tensor>,
        position_ids: Option<&Tensor>,
    ) -> (Option<Tensor>, Option<Tensor>) {
        let given = causal_lm::given_mask(mask, &self.plan);
        let full = || causal_mask(embeds, given, position_ids, self.plan.attention);
        let windowed = |w| sliding_window_causal_mask(embeds, given, position_ids, self.plan.attention, w);
        match self.masks {
            Masks::Full => (full(), None),
            Masks::Windowless => (windowless_causal_mask(embeds, given, position_ids, self.plan.attention), None),
            Masks::Late => (late_causal_mask(embeds, given, position_ids, self.plan.attention), None),
            Masks::BothLate(w) => {
                let attention = self.plan.attention;
                let (window, software) = ((w > 0).then_some(w), embeds.cx().machine().rules);
                let one = if window.is_some() || software.has(&rules::WINDOWED_MASKS_BY_POSITION) {
                    older_windowed_mask(embeds, given, attention, window)
                } else {
                    late_causal_mask(embeds, given, position_ids, attention)
                };
                (one.clone(), one)
            }
            Masks::TwoParts if self.plan.attention == Attention::Eager => (whole_two_part_mask(embeds, given), None),
            Masks::TwoParts => (two_part_causal_mask(embeds, given, self.plan.attention), None),
            Masks::Windowed(w) => (None, windowed(w)),
            Masks::Hybrid(_) if !embeds.cx().machine().rules.has(&rules::BOOLEAN_MASKS) => {
                let one = older_hybrid_mask(embeds, given);
                (one.clone(), one)
            }
            Masks::Both(w) | Masks::Hybrid(w) => {
                let full = full();
                (full, windowed(w))
            }
            Masks::Chunked(size) => {
                let full = full();
                (full, chunked_causal_mask(embeds, given, position_ids, self.plan.attention, size))
            }
            Masks::BothUnpacked(w) => {
                let full = causal_mask(embeds, given, None, self.plan.attention);
                (full, sliding_window_causal_mask(embeds, given, None, self.plan.attention, w))
            }
            Masks::Recurrent => {
                let full = full();
                (full, recurrent_mask(embeds, given))
            }
            Masks::FullThenUsed(w) => {
                let full = full();
                let used = self.layers.iter().any(|layer| layer.windowed());
                (full, used.then(|| windowed(w)).flatten())
            }
        }
    }
}

/// One layer, in a checkpoint of its own where the plan says so.
fn run_layer(
    cx: &Rc<Context>,
    plan: &Plan,
    layer: &Rc<Box<dyn Layer>>,
    (hidden, own): (Tensor, Option<Tensor>),
    keywords: &Keywords,
) -> Tensor {
    if !cx.checkpoints(plan.checkpointing) {
        return match own {
            Some(_) => layer.forward(&hidden, &Keywords { own, ..keywords.clone() }),
            None => layer.forward(&hidden, keywords),
        };
    }
    let (layer, mut keywords) = (Rc::clone(layer), keywords.clone());
    let given = (keywords.mask.take(), keywords.position_ids.take());
    // Both are positional arguments, and so inputs of the checkpoint.
    let inputs = [hidden].into_iter().chain(own).collect();
    checkpoint_layer(cx, inputs, given, move |inputs, mask, position_ids| {
        let own = inputs.get(1).cloned();
        layer.forward(&inputs[0], &Keywords { mask, position_ids, own, ..keywords.clone() })
    })
}

/// What words are multiplied by.
#[derive(Clone, Debug)]
pub enum EmbedScale {
    /// A scalar on the card.
    Buffer(Tensor),
    /// A number of the host.
    Number,
}

/// As Gemma and Gemma 2 have it, by version.
pub fn embed_scale_by_version(scope: &Scope) -> EmbedScale {
    if scope.cx().machine().rules.has(&rules::SCALED_EMBEDDINGS) {
        EmbedScale::Buffer(embed_scale(scope))
    } else {
        EmbedScale::Number
    }
}

/// `embed_scale`: a scalar of the weights' dtype that the scaled word embedding holds as a buffer.
pub fn embed_scale(scope: &Scope) -> Tensor {
    scope.buffer_of(&[], scope.buffer_dtype())
}
