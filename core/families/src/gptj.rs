//! GPT-J (transformers `models/gptj/modeling_gptj.py`). Before [`rules::GPTJ_SHARES_ATTENTION`] it had no sdpa: attention was eager
//! whatever was asked for.

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_scenario::Attention;
use plimsoll_torch::nn::{Activation, Embedding, LayerNorm, Linear, ModuleList, Scope, kv_cache, late_causal_mask};
use plimsoll_torch::ops::{self, Fill, Pointwise, Rearrangement};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor};

use super::checkpointed::checkpointed;
use super::config::{Config, divide};
use super::decoder_head::DecoderHead;
use super::decoder_only::{DecoderOnly, Headed, Shell};
use super::gptj_attend::{Angles, SharedAttend};
use super::pre_norm::PlainMlp;
use super::{Model, Plan, causal_lm};

/// `GPTJAttention`.
#[derive(Debug)]
enum Attending {
    /// That of its own.
    Own(Box<Attend>),
    /// That which calls what all models share.
    Shared(Box<SharedAttend>),
}

/// What layers are given beside the hidden states.
#[derive(Clone, Debug)]
struct Given {
    mask: Option<Tensor>,
    position_ids: Tensor,
    /// Sines and cosines, where the model picks them.
    angles: Option<[Tensor; 2]>,
}

/// Attention with sines and cosines of its own.
#[derive(Debug)]
struct Attend {
    k_proj: Linear,
    v_proj: Linear,
    q_proj: Linear,
    out_proj: Linear,
    /// Sines and cosines of every position the model knows, float32: a buffer, and before one what reached the card with the first forward
    /// and stayed.
    embed_positions: RefCell<Option<Tensor>>,
    /// How many positions, and how many numbers of each.
    embedded: [u64; 2],
    /// Which positions see which, and the number that stands where nothing may be seen: before [`rules::GPTJ_SHARES_MASK`].
    bias: Option<[Tensor; 2]>,
    rotary_dim: Option<u64>,
    heads: u64,
    attn_dropout: (f64, ModuleId),
    resid_dropout: (f64, ModuleId),
    module: ModuleId,
}

impl Attend {
    /// `rows`: for how many samples positions are given; one stands for all.
    fn forward(&self, hidden: &Tensor, mask: Option<&Tensor>, rows: u64) -> (Tensor, Option<Tensor>) {
        let cx = hidden.cx();
        cx.within(self.module, || {
            let (batch, seq, width) = (hidden.size(0), hidden.size(1), hidden.size(2));
            let head_dim = width / self.heads;
            let split = |x: &Tensor| ops::view(x, &[batch, seq, self.heads, head_dim]);
            let (mut query, mut key, mut value) = {
                let query = self.q_proj.forward(hidden);
                let key = self.k_proj.forward(hidden);
                let value = self.v_proj.forward(hidden);
                (split(&query), split(&key), ops::transpose(&split(&value), 1, 2))
            };

            let [positions, turned] = self.embedded;
            self.embed_positions.borrow_mut().get_or_insert_with(|| {
                cx.kept_from_now_on(|| ops::fill(cx, Fill::ToCopy, &self.embedded, DType::Float32))
            });
            let _embed_positions =
                ops::rearrangement(cx, Rearrangement::Repeat, &[rows, positions, turned], DType::Float32);
            let _repeated_position_ids =
                ops::rearrangement(cx, Rearrangement::Repeat, &[rows, seq, turned], DType::Int64);
            let sincos = {
                let gathered = ops::rearrangement(cx, Rearrangement::Gather, &[rows, seq, turned], DType::Float32);
                if cx.machine().rules.has(&rules::GPTJ_CASTS_ANGLES) {
                    ops::to(&gathered, key.dtype())
                } else {
                    gathered
                }
            };
            let halves = ops::split(&sincos, turned / 2, -1);
            let (sin, cos) = (&halves[0], &halves[1]);
            let named = turn([&mut query, &mut key], self.rotary_dim, [sin, cos]);
            key = ops::transpose(&key, 1, 2);
            query = ops::transpose(&query, 1, 2);
            (key, value) = if self.bias.is_some() {
                kv_cache::update_tuple(key, value, hidden.dtype())
            } else {
                kv_cache::update(key, value, None)
            };
            let (mut out, weights) = self.attend(&query, &key, &value, mask);
            out = ops::view(&ops::contiguous(&ops::transpose(&out, 1, 2)), &[batch, seq, width]);
            out = self.out_proj.forward(&out);
            out = dropout(&out, self.resid_dropout);
            drop(named);
            (out, returned(weights))
        })
    }

    /// `_attn`: scores of queries and keys in float32.
    fn attend(&self, query: &Tensor, key: &Tensor, value: &Tensor, mask: Option<&Tensor>) -> (Tensor, Tensor) {
        let query = ops::to(query, DType::Float32);
        let key = ops::to(key, DType::Float32);
        let mut weights = ops::matmul(&query, &ops::transpose(&key, -1, -2));
        let mut _mask_value = None;
        if let Some([bias, _]) = &self.bias {
            let causal = ops::narrow(&ops::narrow(bias, 2, query.size(2)), 3, key.size(2));
            let number = _mask_value.insert(ops::fill(query.cx(), Fill::ToCopy, &[], weights.dtype()));
            weights = ops::where_tensor(&causal, &weights, number);
        }
        weights = ops::div_scalar(&weights);
        if let Some(mask) = mask {
            weights = ops::add(&weights, mask);
        }
        weights = ops::softmax(&weights);
        weights = ops::to(&weights, value.dtype());
        weights = dropout(&weights, self.attn_dropout);
        (ops::matmul(&weights, value), weights)
    }
}

fn dropout(x: &Tensor, (p, module): (f64, ModuleId)) -> Tensor {
    x.cx().within(module, || ops::dropout(x, p))
}

/// Turns queries and keys, of which `rotary_dim` dimensions are turned, or all, and says what the forward's own names hold until it is
/// done.
pub(super) fn turn([query, key]: [&mut Tensor; 2], rotary_dim: Option<u64>, [sin, cos]: [&Tensor; 2]) -> Vec<Tensor> {
    let Some(rotary) = rotary_dim else {
        *key = apply_rotary_pos_emb(key, sin, cos);
        *query = apply_rotary_pos_emb(query, sin, cos);
        return Vec::new();
    };
    let parts = |x: &Tensor| (last_of(x, rotary), last_of(x, x.size(-1) - rotary));
    let (mut k_rot, k_pass) = parts(key);
    let (mut q_rot, q_pass) = parts(query);
    k_rot = apply_rotary_pos_emb(&k_rot, sin, cos);
    q_rot = apply_rotary_pos_emb(&q_rot, sin, cos);
    *key = ops::cat(&[&k_rot, &k_pass], -1);
    *query = ops::cat(&[&q_rot, &q_pass], -1);
    vec![k_rot, k_pass, q_rot, q_pass]
}

/// `(tensor * cos) + (rotate_every_two(tensor) * sin)` on `[batch, seq, heads, dim]`.
fn apply_rotary_pos_emb(x: &Tensor, sin: &Tensor, cos: &Tensor) -> Tensor {
    let (sin, cos) = (twice(sin), twice(cos));
    let straight = ops::mul(x, &cos);
    let turned = {
        // x[:, :, :, ::2]
        let half = || ops::every_second(&indexed(x));
        let (first, second) = (half(), half());
        let pairs = ops::stack_last(&ops::neg(&second), &first);
        ops::mul(&ops::view(&pairs, x.dims()), &sin)
    };
    ops::add(&straight, &turned)
}

/// `x[:, :, :, a:b]`, `length` of the last dimension.
fn last_of(x: &Tensor, length: u64) -> Tensor {
    ops::narrow(&indexed(x), -1, length)
}

/// What the whole dimensions before an index make of it.
fn indexed(x: &Tensor) -> Tensor {
    ops::whole(&ops::whole(&ops::whole(x)))
}

/// `torch.repeat_interleave(table[:, :, None, :], 2, 3)`.
fn twice(table: &Tensor) -> Tensor {
    let (rows, seq, half) = (table.size(0), table.size(1), table.size(2));
    let wide = ops::clone(&ops::expand(&ops::unsqueeze(&ops::unsqueeze(table, 2), -1), &[rows, seq, 1, half, 2]));
    ops::view(&wide, &[rows, seq, 1, 2 * half])
}

#[derive(Debug)]
struct Block {
    ln_1: LayerNorm,
    attn: Attending,
    mlp: PlainMlp,
    module: ModuleId,
}

impl Block {
    fn forward(&self, hidden: &Tensor, given: &Given) -> (Tensor, Option<Tensor>) {
        let mask = given.mask.as_ref();
        let hidden = &hidden.cx().argument(self.module, hidden);
        hidden.cx().within(self.module, || {
            let residual = hidden;
            let hidden = self.ln_1.forward(residual);
            let (attended, weights) = match (&self.attn, &given.angles) {
                (Attending::Own(attn), _) => attn.forward(&hidden, mask, given.position_ids.size(0)),
                (Attending::Shared(attn), Some(angles)) => attn.forward(&hidden, mask, angles),
                (Attending::Shared(_), None) => unreachable!("who shares attention is handed the model's angles"),
            };
            let fed = self.mlp.forward(&hidden);
            let sum = ops::add(&attended, &fed);
            let out = ops::add(&sum, residual);
            // A shared one's are held by the layer alone, which calls them `_`.
            (out, weights.filter(|_| given.angles.is_none()))
        })
    }
}

#[derive(Debug)]
struct GptjForCausalLm {
    cx: Rc<Context>,
    wte: Embedding,
    drop: (f64, ModuleId),
    h: ModuleList<Block>,
    ln_f: LayerNorm,
    rotary_emb: Option<Angles>,
    head: DecoderHead,
    transformer: ModuleId,
    seq: u64,
    plan: Plan,
}

/// `GPTJForCausalLM(config)`, with the defaults of `configuration_gptj.py`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let embed = config.size("n_embd", 4096)?;
    let heads = config.size("n_head", 16)?;
    let head_dim = divide(config, ("n_embd", embed), ("n_head", heads))?;
    let layers = config.layers("n_layer", 28)?;
    let positions = config.size("n_positions", 2048)?;
    let vocab = config.size("vocab_size", 50_400)?;
    let inner = config.optional_size("n_inner")?.unwrap_or(4 * embed);
    let act = config.text("activation_function", "gelu_new")?;
    let rotary_dim = match config.optional_size("rotary_dim")? {
        None if config.mentions("rotary_dim") => None,
        given => Some(given.unwrap_or(64)),
    };
    // Without `rotary_dim` the whole of every head is turned, by a table as wide as the model: only one head fits it.
    let turned = rotary_dim.unwrap_or(embed);
    if turned > head_dim || !turned.is_multiple_of(2) {
        return Err(config.error(
            "rotary_dim",
            format!("{turned} dimensions cannot be turned in a head of {head_dim}"),
            format!("give an even number of at most {head_dim}"),
        ));
    }
    let seq = plan.seq()?;
    if seq > positions {
        return Err(plimsoll_ground::Error::new(
            "input.seq",
            format!("{seq} tokens, but the model has {positions} position embeddings"),
            format!("use at most {positions}"),
        ));
    }
    let (resid, attn_pdrop) = (config.probability("resid_pdrop", 0.0)?, config.probability("attn_pdrop", 0.0)?);
    let transformer = scope.child("transformer");
    let wte = Embedding::new(&transformer.child("wte"), vocab, embed);
    let rules = scope.cx().machine().rules;
    let core = rules.has(&rules::GPTJ_SHARES_ATTENTION).then(|| causal_lm::attention(plan, attn_pdrop));
    let block = |scope: &Scope, _| -> Option<Block> {
        let (attn, mlp) = (scope.child("attn"), scope.child("mlp"));
        let ln_1 = LayerNorm::new(&scope.child("ln_1"), embed, true);
        let linear = |name: &'static str| Linear::new(&attn.child(name), embed, embed, false);
        let attend = || Attend {
            k_proj: linear("k_proj"),
            v_proj: linear("v_proj"),
            q_proj: linear("q_proj"),
            out_proj: linear("out_proj"),
            bias: (!rules.has(&rules::GPTJ_SHARES_MASK))
                .then(|| [attn.buffer_of(&[1, 1, positions, positions], DType::Bool), attn.buffer(&[])]),
            embed_positions: RefCell::new(
                rules.has(&rules::GPTJ_BUFFERS_POSITIONS).then(|| attn.buffer(&[positions, turned])),
            ),
            embedded: [positions, turned],
            rotary_dim,
            heads,
            attn_dropout: (attn_pdrop, attn.child("attn_dropout").module()),
            resid_dropout: (resid, attn.child("resid_dropout").module()),
            module: attn.module(),
        };
        Some(Block {
            ln_1,
            attn: match &core {
                Some(core) => Attending::Shared(Box::new(SharedAttend::new(
                    &attn,
                    [embed, heads],
                    rotary_dim,
                    core.clone(),
                    resid,
                ))),
                None => Attending::Own(Box::new(attend())),
            },
            mlp: PlainMlp {
                fc1: Linear::new(&mlp.child("fc_in"), embed, inner, true),
                fc2: Linear::new(&mlp.child("fc_out"), inner, embed, true),
                act: Activation::new(&mlp.child("act"), act)?,
                dropout: resid,
                module: mlp.module(),
            },
            module: scope.module(),
        })
    };
    let h = ModuleList::new(&transformer, "h", layers, block)
        .ok_or_else(|| super::unknown_activation(config, "activation_function", act))?;
    let ln_f = LayerNorm::new(&transformer.child("ln_f"), embed, true);
    let rotary_emb = core.as_ref().map(|_| Angles::new(&transformer.child("rotary_emb"), positions, turned));
    let shared = config.flag("tie_word_embeddings", false)?.then(|| wte.weight().clone());
    let head = DecoderHead::new(scope, config, plan, (&wte, false), || {
        Linear::biased_head(&scope.child("lm_head"), embed, vocab, shared.as_ref())
    })?;
    Ok(Box::new(Headed(GptjForCausalLm {
        cx: Rc::clone(scope.cx()),
        wte,
        drop: (config.probability("embd_pdrop", 0.0)?, transformer.child("drop").module()),
        h,
        ln_f,
        rotary_emb,
        head,
        transformer: transformer.module(),
        seq,
        plan: plan.clone(),
    })))
}

impl DecoderOnly for GptjForCausalLm {
    fn shell(&self) -> Shell<'_> {
        Shell { cx: &self.cx, head: &self.head, seq: self.seq, plan: &self.plan }
    }

    fn returns_tuples(&self) -> bool {
        !self.cx.machine().rules.has(&rules::GPT_NEOX_HAS_CACHE_CLASS)
    }

    /// `GPTJModel.forward`.
    fn hidden(&self, ids: &Tensor, mask: Option<&Tensor>, positions: Option<&Tensor>) -> Tensor {
        let cx = &self.cx;
        cx.within(self.transformer, || {
            let embeds = causal_lm::input_embeddings(&self.wte, ids, &self.plan);
            let position_ids = positions.cloned().unwrap_or_else(|| causal_lm::position_ids(cx, self.seq));
            let given = causal_lm::given_mask(mask, &self.plan);
            let mask = if cx.machine().rules.has(&rules::GPTJ_SHARES_MASK) {
                let attention = if self.rotary_emb.is_some() { self.plan.attention } else { Attention::Eager };
                late_causal_mask(&embeds, given, &position_ids, attention)
            } else {
                given.map(|(mask, _)| padding_numbers(mask, embeds.dtype()))
            };
            let mut hidden = dropout(&embeds, self.drop);
            let angles = self.rotary_emb.as_ref().map(|rotary_emb| rotary_emb.forward(&hidden, &position_ids));
            let given = Given { mask, position_ids, angles };
            // `outputs`: what the last block returned, the probabilities with it.
            let mut _outputs = None;
            hidden = self.h.run(
                cx,
                hidden,
                |_| (),
                |block, hidden| {
                    let (next, weights) = if cx.checkpoints(self.plan.checkpointing) {
                        let (block, given) = (Rc::clone(block), given.clone());
                        checkpointed(cx, hidden, move |x| block.forward(x, &given))
                    } else {
                        let (next, weights) = block.forward(&hidden, &given);
                        drop(hidden);
                        (next, weights)
                    };
                    _outputs = weights;
                    next
                },
            );
            self.ln_f.forward(&hidden)
        })
    }
}

/// `(1.0 - attention_mask) * min`, of a `[batch, 1, 1, seq]` mask in the model's dtype.
fn padding_numbers(mask: &Tensor, dtype: DType) -> Tensor {
    let sizes = [mask.size(0), 1, 1, mask.size(1)];
    let mask = ops::pointwise(Pointwise::ToCopy, mask, &[], &sizes, dtype);
    let hidden = ops::each(Pointwise::RsubScalar, &mask, dtype);
    ops::each(Pointwise::MulTensor, &hidden, dtype)
}

/// The probabilities of eager attention where it returns them whether they were asked for or not.
pub(super) fn returned(probabilities: Tensor) -> Option<Tensor> {
    probabilities.cx().machine().rules.has(&rules::PROBABILITIES_RETURNED).then_some(probabilities)
}
