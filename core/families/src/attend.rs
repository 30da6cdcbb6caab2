//! The attention most rotary decoders share: four projections, queries and keys turned by their position.

use plimsoll_catalog::software::rules;
use plimsoll_torch::nn::{
    AttentionCore, LayerRotary, Linear, Norm, Scope, apply_neighbours_rotary_pos_emb, apply_partial_rotary_pos_emb,
    apply_rotary_pos_emb, apply_rotary_pos_emb_fp32, kv_cache, picked_sections,
};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{ModuleId, Tensor};

use super::decoder::Keywords;
use super::heads::Heads;
use super::turns::Turns;

/// Where queries and keys are normalised.
#[derive(Debug)]
pub enum QueryKeyNorms {
    /// Not at all.
    None,
    /// Every head on its own, once the projection is split (Qwen3, Gemma 3).
    Heads(Norm, Norm),
    /// The whole projection (OLMo 2).
    Projections(Norm, Norm),
    /// Every head, once all are projected and split (GLM-4.5).
    Split(Norm, Norm),
    /// Every head, once all are split and transposed (Gemma 3, Phi, StableLM).
    Transposed(Norm, Norm),
}

/// How queries and keys are turned by their position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotation {
    /// The second half of what is turned beside the first (Llama).
    Halves,
    /// So, in float32, and cast back (OLMo).
    InFloat32,
    /// So; turned and unturned parts of a head have names of their own, and are put together even where nothing is left
    /// unturned (Phi, StableLM).
    InNamedParts,
    /// So, without names, put together all the same (GLM-4.5).
    InParts,
    /// Every dimension with its neighbour (GLM).
    Neighbours,
}

/// What differs between the families.
#[derive(Clone, Copy, Debug)]
pub struct AttendOptions {
    /// Heads and their size.
    pub heads: Heads,
    /// How many dimensions of a head are turned; 0: positions are not looked at (SmolLM3's every fourth layer).
    pub rotary: u64,
    /// By what they are turned.
    pub turns: Turns,
    /// A bias on the query, key and value projections.
    pub qkv_bias: bool,
    /// A bias on the output projection.
    pub out_bias: bool,
    /// The output projection's name.
    pub out_name: &'static str,
    /// Eager scores are squashed by a tanh (Gemma 2).
    pub soft_cap: bool,
    /// Projections are clamped in place (OLMo's `clip_qkv`).
    pub clip: bool,
    /// How queries and keys are turned.
    pub rotation: Rotation,
    /// All three projections are made before any is split into heads (OLMo, StableLM, Qwen2.5-VL): they live a little longer.
    pub whole_projections: bool,
    /// Dropout of the output projection (StarCoder2).
    pub out_dropout: f64,
    /// How far back the layer looks, where that is limited: what a generation remembers of it.
    pub window: Option<u64>,
}

impl AttendOptions {
    /// Llama's: no bias, no clamp, no cap. Heads and rotary must be given.
    pub const PLAIN: Self = Self {
        heads: Heads { hidden: 0, heads: 0, kv_heads: 0, head_dim: 0 },
        rotary: 0,
        turns: Turns::PLAIN,
        qkv_bias: false,
        out_bias: false,
        out_name: "o_proj",
        soft_cap: false,
        clip: false,
        rotation: Rotation::Halves,
        whole_projections: false,
        out_dropout: 0.0,
        window: None,
    };
}

/// `LlamaAttention` and its relatives.
#[derive(Debug)]
pub struct Attend {
    q_proj: Linear,
    k_proj: Linear,
    v_proj: Linear,
    o_proj: Linear,
    rotary_emb: LayerRotary,
    norms: QueryKeyNorms,
    core: AttentionCore,
    pub options: AttendOptions,
    /// Whether it is a class of the model's own, from before all shared one.
    own: bool,
    module: ModuleId,
}

impl Attend {
    /// Projections in the order of `q_proj, k_proj, v_proj, o_proj`; then `norms` registers its own parameters.
    pub fn new(
        scope: &Scope,
        options: &AttendOptions,
        core: AttentionCore,
        norms: impl FnOnce(&Scope) -> QueryKeyNorms,
    ) -> Self {
        let heads = options.heads;
        let linear = |name: &'static str, i, o, bias| Linear::new(&scope.child(name), i, o, bias);
        let (q, kv) = (heads.heads * heads.head_dim, heads.kv_heads * heads.head_dim);
        // Classes of their own split what they projected when all of it was there.
        let own = core.is_own(scope.cx().machine().rules);
        Self {
            q_proj: linear("q_proj", heads.hidden, q, options.qkv_bias),
            k_proj: linear("k_proj", heads.hidden, kv, options.qkv_bias),
            v_proj: linear("v_proj", heads.hidden, kv, options.qkv_bias),
            o_proj: linear(options.out_name, q, heads.hidden, options.out_bias),
            rotary_emb: options.turns.layer(scope, options.rotary),
            norms: norms(scope),
            options: AttendOptions { whole_projections: options.whole_projections || own, ..*options },
            core,
            own,
            module: scope.module(),
        }
    }

    /// The attended hidden states, and the probabilities that eager attention returns beside them.
    pub fn forward(&self, hidden: &Tensor, keywords: &Keywords) -> (Tensor, Option<Tensor>) {
        hidden.cx().within(self.module, || {
            let (batch, seq) = (hidden.size(0), hidden.size(1));
            let AttendOptions { heads: Heads { head_dim, .. }, rotary, .. } = self.options;
            let split =
                |projected: &Tensor| ops::view(projected, &[batch, seq, projected.size(-1) / head_dim, head_dim]);
            let heads = |projected: &Tensor| ops::transpose(&split(projected), 1, 2);
            let (mut query, mut key, mut value) = match &self.norms {
                QueryKeyNorms::None if !self.options.whole_projections => {
                    let query = heads(&self.q_proj.forward(hidden));
                    let key = heads(&self.k_proj.forward(hidden));
                    (query, key, heads(&self.v_proj.forward(hidden)))
                }
                QueryKeyNorms::Heads(q_norm, k_norm) => {
                    let query = ops::transpose(&q_norm.forward(&split(&self.q_proj.forward(hidden))), 1, 2);
                    let key = ops::transpose(&k_norm.forward(&split(&self.k_proj.forward(hidden))), 1, 2);
                    (query, key, heads(&self.v_proj.forward(hidden)))
                }
                QueryKeyNorms::Split(q_norm, k_norm) => {
                    let (mut query, mut key) =
                        (split(&self.q_proj.forward(hidden)), split(&self.k_proj.forward(hidden)));
                    let value = heads(&self.v_proj.forward(hidden));
                    query = q_norm.forward(&query);
                    key = k_norm.forward(&key);
                    (ops::transpose(&query, 1, 2), ops::transpose(&key, 1, 2), value)
                }
                QueryKeyNorms::Transposed(q_norm, k_norm) => {
                    let (mut query, mut key, value) = if self.options.whole_projections {
                        self.projections(hidden, heads)
                    } else {
                        let query = heads(&self.q_proj.forward(hidden));
                        let key = heads(&self.k_proj.forward(hidden));
                        (query, key, heads(&self.v_proj.forward(hidden)))
                    };
                    query = q_norm.forward(&query);
                    key = k_norm.forward(&key);
                    (query, key, value)
                }
                QueryKeyNorms::Projections(..) | QueryKeyNorms::None => self.projections(hidden, heads),
            };
            let angles = self.rotary_emb.angles(&value, keywords.position_ids.as_ref(), keywords.rotary.as_ref());
            // Of three axes, each layer picks its own.
            let picked = (angles.cos.geometry().rank() == 4)
                .then(|| (picked_sections(&angles.cos), picked_sections(&angles.sin)));
            let (cos, sin) = picked.as_ref().map_or((&angles.cos, &angles.sin), |(cos, sin)| (cos, sin));
            // What the forward's own names hold beside queries and keys until it is done.
            let mut named = Vec::new();
            (query, key) = match rotary {
                0 => (query, key),
                _ if self.options.rotation == Rotation::InNamedParts => {
                    let rest = head_dim - rotary;
                    let (q_rot, q_pass) = (ops::narrow(&query, -1, rotary), ops::narrow(&query, -1, rest));
                    let (k_rot, k_pass) = (ops::narrow(&key, -1, rotary), ops::narrow(&key, -1, rest));
                    let (q_rot, k_rot) = apply_rotary_pos_emb(&q_rot, &k_rot, cos, sin);
                    query = ops::cat(&[&q_rot, &q_pass], -1);
                    key = ops::cat(&[&k_rot, &k_pass], -1);
                    named.extend([q_rot, q_pass, k_rot, k_pass]);
                    (query, key)
                }
                _ if self.options.rotation == Rotation::InFloat32 => apply_rotary_pos_emb_fp32(&query, &key, cos, sin),
                _ if self.options.rotation == Rotation::Neighbours => {
                    apply_neighbours_rotary_pos_emb(&query, &key, cos, sin)
                }
                all if all == head_dim && self.options.rotation != Rotation::InParts => {
                    apply_rotary_pos_emb(&query, &key, cos, sin)
                }
                _ => apply_partial_rotary_pos_emb(&query, &key, cos, sin),
            };
            drop(picked);
            named.extend(angles.turned());
            (key, value) = kv_cache::update(key, value, self.options.window);
            let mask = keywords.mask.as_ref();
            let by_function = self.options.soft_cap && query.cx().machine().rules.has(&rules::GEMMA2_BY_FUNCTION);
            if self.own && !by_function {
                [query, key, value] = self.core.of_own([query, key, value], mask);
            }
            let (mut out, weights) = if self.options.soft_cap {
                self.core.forward_capped(&query, &key, &value, mask)
            } else {
                self.core.forward(&query, &key, &value, mask)
            };
            out = ops::contiguous(&ops::reshape(&out, &[batch, seq, out.size(2) * head_dim]));
            out = self.o_proj.forward(&out);
            out = ops::dropout(&out, self.options.out_dropout);
            drop(named);
            // `if not output_attentions: attn_weights = None`
            (out, weights.filter(|_| !self.own))
        })
    }

    /// All three projections, normalised and clamped as wholes before they are split into heads.
    fn projections(&self, hidden: &Tensor, heads: impl Fn(&Tensor) -> Tensor) -> (Tensor, Tensor, Tensor) {
        let (mut query, mut key) = match &self.norms {
            QueryKeyNorms::Projections(q_norm, k_norm) => {
                let query = q_norm.forward(&self.q_proj.forward(hidden));
                (query, k_norm.forward(&self.k_proj.forward(hidden)))
            }
            _ => {
                let query = self.q_proj.forward(hidden);
                (query, self.k_proj.forward(hidden))
            }
        };
        let mut value = self.v_proj.forward(hidden);
        if self.options.clip {
            query = ops::clamp_in_place(query);
            key = ops::clamp_in_place(key);
            value = ops::clamp_in_place(value);
        }
        (heads(&query), heads(&key), heads(&value))
    }
}
