//! T5 (transformers `models/t5/modeling_t5.py`).

mod attention;
mod older;

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::Batch;
use plimsoll_torch::generate::{Encode, Generate, Step};
use plimsoll_torch::nn::{
    Activation, Embedding, EncoderAttention, Linear, ModuleList, Scope, T5LayerNorm, bidirectional_mask,
    decoder_causal_mask,
};
use plimsoll_torch::ops::{self, Fill, Pointwise, Reduction};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor, checkpoint_all};

use self::attention::{Attend, one_number};
use self::older::{counts_in_tensors, older_masks};
use super::config::{Config, MAX_SIZE};
use super::seq2seq::{self, Lengths};
use super::{Model, Output, Plan, causal_lm};

#[derive(Clone, Debug)]
struct Sizes {
    vocab: u64,
    hidden: u64,
    head_dim: u64,
    heads: u64,
    intermediate: u64,
    buckets: u64,
    dropout: f64,
    act: String,
    gated: bool,
}

impl Sizes {
    /// With the defaults of `configuration_t5.py`.
    fn read(config: &Config<'_>) -> Result<Self> {
        let proj = config.text("feed_forward_proj", "relu")?;
        let act = match proj {
            "gated-gelu" => "gelu_new",
            other => other.rsplit('-').next().unwrap_or(other),
        };
        let (heads, head_dim) = (config.size("num_heads", 8)?, config.size("d_kv", 64)?);
        if heads * head_dim > MAX_SIZE {
            return Err(config.error(
                "d_kv",
                format!("{heads} heads of {head_dim} make {} dimensions", heads * head_dim),
                format!("choose sizes so that all heads together have at most {MAX_SIZE}"),
            ));
        }
        Ok(Self {
            vocab: config.size("vocab_size", 32_128)?,
            hidden: config.size("d_model", 512)?,
            head_dim,
            heads,
            intermediate: config.size("d_ff", 2048)?,
            buckets: config.size("relative_attention_num_buckets", 32)?,
            dropout: config.probability("dropout_rate", 0.1)?,
            // A config that was written out carries what was worked out of feed_forward_proj beside it.
            act: config.text("dense_act_fn", act)?.to_owned(),
            gated: config.flag("is_gated_act", proj.starts_with("gated-"))?,
        })
    }

    fn attention(&self, plan: &Plan) -> EncoderAttention {
        EncoderAttention {
            implementation: plan.attention,
            rules: plan.rules.clone(),
            dropout: self.dropout,
            softmax_fp32: false,
            shared_since: None,
        }
    }
}

/// `nn.Dropout` at a place.
#[derive(Debug)]
struct Dropout {
    p: f64,
    module: ModuleId,
}

impl Dropout {
    fn new(scope: &Scope, p: f64) -> Self {
        Self { p, module: scope.module() }
    }

    fn forward(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.module, || ops::dropout(x, self.p))
    }
}

/// `T5LayerSelfAttention` or `T5LayerCrossAttention`.
#[derive(Debug)]
struct AttentionLayer {
    attention: Attend,
    layer_norm: T5LayerNorm,
    dropout: Dropout,
    module: ModuleId,
}

impl AttentionLayer {
    fn forward(
        &self,
        hidden: &Tensor,
        mask: Option<&Tensor>,
        encoded: Option<&Tensor>,
        position_bias: Option<&Tensor>,
    ) -> (Tensor, Tensor, Option<Tensor>) {
        hidden.cx().within(self.module, || {
            let normed = self.layer_norm.forward(hidden);
            let attention = &self.attention;
            let (attended, bias, weights) = if hidden.cx().machine().rules.has(&rules::T5_SHARES_ATTENTION) {
                attention.forward(&normed, mask, encoded, position_bias)
            } else {
                attention.forward_alone(&normed, mask, encoded, position_bias)
            };
            let out = ops::add(hidden, &self.dropout.forward(&attended));
            drop((normed, attended));
            (out, bias, weights)
        })
    }
}

/// `T5LayerFF` with its `T5DenseActDense` or `T5DenseGatedActDense`.
#[derive(Debug)]
struct FeedForward {
    wi: Linear,
    wi_1: Option<Linear>,
    wo: Linear,
    act: Activation,
    inner_dropout: Dropout,
    layer_norm: T5LayerNorm,
    dropout: Dropout,
    dtype: DType,
    dense: ModuleId,
    module: ModuleId,
}

impl FeedForward {
    fn new(scope: &Scope, sizes: &Sizes) -> Option<Self> {
        let dense = scope.child("DenseReluDense");
        let linear = |name: &'static str, i, o| Linear::new(&dense.child(name), i, o, false);
        Some(Self {
            wi: linear(if sizes.gated { "wi_0" } else { "wi" }, sizes.hidden, sizes.intermediate),
            wi_1: sizes.gated.then(|| linear("wi_1", sizes.hidden, sizes.intermediate)),
            wo: linear("wo", sizes.intermediate, sizes.hidden),
            act: Activation::new(&dense.child("act"), &sizes.act)?,
            inner_dropout: Dropout::new(&dense.child("dropout"), sizes.dropout),
            layer_norm: T5LayerNorm::new(&scope.child("layer_norm"), sizes.hidden),
            dropout: Dropout::new(&scope.child("dropout"), sizes.dropout),
            dtype: scope.dtype(),
            dense: dense.module(),
            module: scope.module(),
        })
    }

    fn dense(&self, x: &Tensor) -> Tensor {
        x.cx().within(self.dense, || {
            let mut hidden = self.act.forward(&self.wi.forward(x));
            let mut parts = None;
            if let Some(wi_1) = &self.wi_1 {
                let linear = wi_1.forward(x);
                let product = ops::mul(&hidden, &linear);
                parts = Some((std::mem::replace(&mut hidden, product), linear));
            }
            hidden = self.inner_dropout.forward(&hidden);
            // wo's weight keeps its own dtype, and so does what it is given: under FSDP that which it is gathered in.
            if let Some((weight, _)) = self.wo.plain() {
                x.cx().read(weight);
                hidden = ops::to(&hidden, weight.dtype());
            } else {
                hidden = ops::to(&hidden, self.dtype);
            }
            hidden = self.wo.forward(&hidden);
            drop(parts);
            hidden
        })
    }

    fn forward(&self, hidden: &Tensor) -> Tensor {
        hidden.cx().within(self.module, || {
            let mut forwarded = self.layer_norm.forward(hidden);
            forwarded = self.dense(&forwarded);
            let out = ops::add(hidden, &self.dropout.forward(&forwarded));
            drop(forwarded);
            out
        })
    }
}

/// "clamp inf values to enable fp16 training"; `clamp_value` is the block's name for the limit.
fn clamp(hidden: Tensor, clamp_value: &mut Option<Tensor>) -> Tensor {
    if hidden.dtype() != DType::Float16 {
        return hidden;
    }
    let cx = hidden.cx();
    let any = {
        // at::isinf: self.abs() == inf
        let magnitude = ops::each(Pointwise::Abs, &hidden, hidden.dtype());
        let infinite = ops::pointwise(Pointwise::EqScalar, &magnitude, &[], hidden.dims(), DType::Bool);
        drop(magnitude);
        ops::reduction(Reduction::Any, &infinite, &[], DType::Bool)
    };
    let scalar = || ops::fill(cx, Fill::ScalarTensor, &[], DType::Float32);
    let numbers = (scalar(), scalar());
    let limit = ops::pointwise(Pointwise::WhereSelf, &numbers.0, &[&numbers.1, &any], &[], DType::Float32);
    drop((numbers, any));
    let limit = clamp_value.insert(limit);
    let negative = ops::each(Pointwise::Neg, limit, DType::Float32);
    ops::clamp(&hidden, &negative, limit)
}

/// What a block is handed by position beside the hidden states, in order: the mask, the position bias, the encoder's
/// hidden states, their mask, and the cross-attention's position bias.
type Given = [Option<Tensor>; 5];

/// `T5Block`.
#[derive(Debug)]
struct Block {
    self_attention: AttentionLayer,
    cross_attention: Option<AttentionLayer>,
    feed_forward: FeedForward,
    module: ModuleId,
}

impl Block {
    fn new(scope: &Scope, sizes: &Sizes, plan: &Plan, decoder: bool, first: bool) -> Option<Self> {
        let layer = |index: u64, name: &'static str, bias: bool, causal: bool| {
            let scope = scope.item("layer", index);
            AttentionLayer {
                attention: Attend::new(&scope.child(name), sizes, plan, bias, decoder, causal),
                layer_norm: T5LayerNorm::new(&scope.child("layer_norm"), sizes.hidden),
                dropout: Dropout::new(&scope.child("dropout"), sizes.dropout),
                module: scope.module(),
            }
        };
        Some(Self {
            self_attention: layer(0, "SelfAttention", first, decoder),
            cross_attention: decoder.then(|| layer(1, "EncDecAttention", false, false)),
            feed_forward: FeedForward::new(&scope.item("layer", if decoder { 2 } else { 1 }), sizes)?,
            module: scope.module(),
        })
    }

    /// The hidden states, and the position biases of self- and cross-attention.
    fn forward(&self, hidden: &Tensor, given: &Given) -> Vec<Tensor> {
        hidden.cx().within(self.module, || {
            let [mask, bias, encoded, encoded_mask, cross_bias] = given.each_ref().map(Option::as_ref);
            // `_` is a name like any other: it holds the probabilities until something else takes it.
            let mut clamp_value = None;
            let (mut hidden, self_bias, mut _weights) = self.self_attention.forward(hidden, mask, None, bias);
            // `self_attention_outputs` and `cross_attention_outputs`, tuples with names until the block returns.
            let tuples = !hidden.cx().machine().rules.has(&rules::T5_SHARES_ATTENTION);
            let mut named: Vec<Tensor> = tuples.then(|| hidden.clone()).into_iter().collect();
            hidden = clamp(hidden, &mut clamp_value);
            let mut outputs = vec![self_bias];
            if let Some(layer) = &self.cross_attention {
                // query_length = cache_position[-1] + 1, in every block.
                let cx = hidden.cx();
                let _query_length = counts_in_tensors(cx).then(|| one_number(cx));
                let (attended, bias, weights) = layer.forward(&hidden, encoded_mask, encoded, cross_bias);
                (hidden, _weights) = (attended, weights);
                named.extend(tuples.then(|| hidden.clone()));
                outputs.push(bias);
                hidden = clamp(hidden, &mut clamp_value);
            }
            hidden = self.feed_forward.forward(&hidden);
            outputs.insert(0, clamp(hidden, &mut clamp_value));
            drop(named);
            outputs
        })
    }
}

/// `T5Stack`.
#[derive(Debug)]
struct Stack {
    embed_tokens: Embedding,
    blocks: ModuleList<Block>,
    final_layer_norm: T5LayerNorm,
    dropout: Dropout,
    decoder: bool,
    plan: Plan,
    module: ModuleId,
}

impl Stack {
    fn new(scope: &Scope, shared: &Embedding, sizes: &Sizes, layers: u64, plan: &Plan, decoder: bool) -> Option<Self> {
        let blocks =
            ModuleList::new(scope, "block", layers, |scope, i| Block::new(scope, sizes, plan, decoder, i == 0))?;
        Some(Self {
            embed_tokens: Embedding::tied(&scope.child("embed_tokens"), shared.weight()),
            blocks,
            final_layer_norm: T5LayerNorm::new(&scope.child("final_layer_norm"), sizes.hidden),
            dropout: Dropout::new(&scope.child("dropout"), sizes.dropout),
            decoder,
            plan: plan.clone(),
            module: scope.module(),
        })
    }

    /// The last hidden states of the encoder (`mask` is about `ids`), or of the decoder (`mask` is about `encoded`).
    fn forward(&self, ids: &Tensor, mask: Option<&Tensor>, encoded: Option<&Tensor>) -> Tensor {
        let cx = ids.cx();
        cx.within(self.module, || {
            let embeds = causal_lm::input_embeddings(&self.embed_tokens, ids, &self.plan);
            let attention = self.plan.attention;
            let padding = causal_lm::given_mask(mask, &self.plan);
            let generates = cx.is_inference() && cx.remembers();
            let counted = (counts_in_tensors(cx) && !generates).then(|| ops::arange(cx, embeds.size(1)));
            let mut made_of = [None, None];
            let [own_mask, encoded_mask] = match encoded {
                _ if !cx.machine().rules.has(&rules::T5_SHARES_MASK) => {
                    let (masks, ones) = older_masks(&embeds, padding.map(|(mask, _)| mask), encoded);
                    made_of = ones;
                    masks
                }
                Some(encoded) => [
                    decoder_causal_mask(&embeds, None, attention),
                    bidirectional_mask(&embeds, padding, encoded.dtype(), attention),
                ],
                None => [bidirectional_mask(&embeds, padding, embeds.dtype(), attention), None],
            };
            let mut given: Given = [own_mask, None, encoded.cloned(), encoded_mask, None];
            let mut hidden = self.dropout.forward(&embeds);
            let first = |block: &Block| block.self_attention.attention.relative_attention_bias.is_some();
            hidden = self.blocks.run(cx, hidden, first, |block, hidden| {
                let mut outputs = self.call(block, &hidden, &given, counted.as_ref()).into_iter();
                let hidden = outputs.next().unwrap_or(hidden);
                given[1] = outputs.next();
                if self.decoder {
                    given[4] = outputs.next();
                }
                hidden
            });
            hidden = self.final_layer_norm.forward(&hidden);
            hidden = self.dropout.forward(&hidden);
            // Names go in the order in which they came; masks that are shared take that of what was given.
            let [own_mask, bias, _encoded, encoded_mask, cross_bias] = given;
            if cx.machine().rules.has(&rules::T5_SHARES_MASK) {
                drop((own_mask, embeds, encoded_mask));
            } else {
                drop((made_of, embeds, counted, own_mask, encoded_mask));
            }
            drop((bias, cross_bias));
            hidden
        })
    }

    /// `counted` are the positions that a checkpoint captures.
    fn call(&self, block: &Rc<Block>, hidden: &Tensor, given: &Given, counted: Option<&Tensor>) -> Vec<Tensor> {
        if !hidden.cx().checkpoints(self.plan.checkpointing) {
            return block.forward(hidden, given);
        }
        let present = given.each_ref().map(Option::is_some);
        let inputs = std::iter::once(hidden).chain(given.iter().flatten()).cloned().collect();
        let (block, counted) = (Rc::clone(block), counted.cloned());
        let function = move |inputs: &[Tensor]| {
            let _captured = &counted;
            let mut rest = inputs[1..].iter().cloned();
            block.forward(&inputs[0], &present.map(|is| if is { rest.next() } else { None }))
        };
        checkpoint_all(hidden.cx(), inputs, Rc::new(function))
    }
}

/// `T5ForConditionalGeneration`.
#[derive(Debug)]
struct ConditionalGeneration {
    cx: Rc<Context>,
    encoder: Stack,
    decoder: Stack,
    lm_head: Linear,
    scale_decoder_outputs: bool,
    lengths: Lengths,
    plan: Plan,
}

/// `T5ForConditionalGeneration(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let sizes = Sizes::read(config)?;
    let layers = config.layers("num_layers", 6)?;
    let decoder_layers = config.layers("num_decoder_layers", layers)?;
    if scope.cx().is_inference() && decoder_layers > layers {
        // `DynamicCache(config=...)` has `num_hidden_layers` layers, which T5's config takes for the encoder's.
        return Err(config.error(
            "num_decoder_layers",
            format!(
                "transformers' cache has room for as many layers as the encoder has, {layers}: generate fails with \
                 {decoder_layers}"
            ),
            "use a decoder no deeper than its encoder, or mode = \"train\"",
        ));
    }
    let shared = Embedding::new(&scope.child("shared"), sizes.vocab, sizes.hidden);
    let unknown = || super::unknown_activation(config, "dense_act_fn", &sizes.act);
    let stack = |name: &'static str, layers, decoder| -> Result<Stack> {
        Stack::new(&scope.child(name), &shared, &sizes, layers, plan, decoder).ok_or_else(unknown)
    };
    let encoder = stack("encoder", layers, false)?;
    let decoder = stack("decoder", decoder_layers, true)?;
    let tied = config.flag("tie_word_embeddings", true)?;
    // A key of transformers 5, which knows what was saved before by whether its head was tied.
    let scales = match scope.cx().machine().rules.has(&rules::T5_HEAD_IS_TIED) {
        true => config.flag("scale_decoder_outputs", tied)?,
        false => tied,
    };
    Ok(Box::new(ConditionalGeneration {
        cx: Rc::clone(scope.cx()),
        encoder,
        decoder,
        // T5 v1.1 says by tie_word_embeddings = false that its outputs are not scaled, and that its head is one of its own.
        lm_head: if tied || scope.cx().machine().rules.has(&rules::T5_HEAD_IS_TIED) {
            Linear::tied(&scope.child("lm_head"), shared.weight())
        } else {
            Linear::new(&scope.child("lm_head"), sizes.hidden, sizes.vocab, false)
        },
        scale_decoder_outputs: scales,
        lengths: Lengths::read(plan)?,
        plan: plan.clone(),
    }))
}

impl ConditionalGeneration {
    /// The logits of the decoder's ids, `mask` being about what was encoded; and what `decoder_outputs` and
    /// `sequence_output` hold to the end of the forward.
    fn decode(&self, ids: &Tensor, mask: Option<&Tensor>, encoded: &Tensor) -> (Tensor, [Tensor; 2]) {
        let decoded = self.decoder.forward(ids, mask, Some(encoded));
        let scaled = if self.scale_decoder_outputs { ops::mul_scalar(&decoded) } else { decoded.clone() };
        (self.lm_head.forward(&scaled), [decoded, scaled])
    }
}

impl Model for ConditionalGeneration {
    fn batch(&self) -> Batch {
        seq2seq::batch(&self.cx, &self.plan, self.lengths)
    }

    fn forward(&self, batch: &Batch) -> Output {
        let (ids, mask, labels) = batch.parts();
        let encoded = self.cx.forgetting(|| self.encoder.forward(ids, mask, None));
        let decoder_ids = seq2seq::shift_right(labels);
        let (logits, _outputs) = self.decode(&decoder_ids, mask, &encoded);
        seq2seq::output(logits, labels, encoded)
    }

    fn generate(&self) -> Option<&dyn Generate> {
        Some(self)
    }
}

impl Generate for ConditionalGeneration {
    fn logits(&self, step: Step<'_>) -> Tensor {
        self.decode(step.ids, step.mask, step.encoded()).0
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for ConditionalGeneration {
    fn encode(&self, inputs: &Tensor, mask: Option<&Tensor>) -> Tensor {
        self.encoder.forward(inputs, mask, None)
    }
}
