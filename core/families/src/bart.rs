//! BART (transformers `models/bart/modeling_bart.py`).

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::{Error, Result};
use plimsoll_scenario::{Attention, AttentionMask};
use plimsoll_torch::Batch;
use plimsoll_torch::generate::{Encode, Generate, Step};
use plimsoll_torch::nn::{
    Embedding, EncoderAttention, LayerNorm, Linear, ModuleList, Scope, bidirectional_mask, decoder_causal_mask,
    older_causal_mask, older_cross_mask, whole_two_part_mask,
};
use plimsoll_torch::ops::{self, Fill, Pointwise, Reduction};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor, checkpoint};

use super::config::Config;
use super::seq2seq::{self, Beside, Kind, Lengths};
use super::seq2seq_layer::{Layer, LayerSizes, StackSizes};
use super::{Model, Output, Plan, causal_lm};

/// Rows of the position tables that no position uses.
const OFFSET: u64 = 2;

/// The tables that both stacks begin with.
#[derive(Clone, Copy, Debug)]
struct Tables {
    vocab: u64,
    positions: u64,
}

/// `BartEncoderLayer.forward` or, with cross-attention, `BartDecoderLayer.forward`.
fn forward(
    layer: &Layer,
    hidden: &Tensor,
    mask: Option<&Tensor>,
    encoded: Option<&Tensor>,
    encoded_mask: Option<&Tensor>,
) -> Tensor {
    let (cx, module) = (hidden.cx(), layer.module);
    let (hidden, mask) = (&cx.argument(module, hidden), &cx.argument_if(module, mask));
    let (encoded, encoded_mask) = (&cx.argument_if(module, encoded), &cx.argument_if(module, encoded_mask));
    let (mask, encoded, encoded_mask) = (mask.as_ref(), encoded.as_ref(), encoded_mask.as_ref());
    let one_name = cx.machine().rules.has(&rules::PROBABILITIES_SHARE_NAME);
    cx.within(module, || {
        let mut residual = hidden.clone();
        // `_` is a name like any other: it holds the probabilities until something else takes it.
        let (mut hidden, mut _beside) = layer.self_attn.forward(hidden, None, mask);
        let mut _beside_cross = Beside::default();
        hidden = ops::dropout(&hidden, layer.dropout);
        hidden = ops::add(&residual, &hidden);
        hidden = layer.self_attn_layer_norm.forward(&hidden);
        if let Some((attend, norm)) = &layer.cross {
            residual = hidden.clone();
            let beside;
            (hidden, beside) = attend.forward(&hidden, encoded, encoded_mask);
            let name = if one_name { &mut _beside } else { &mut _beside_cross };
            *name = beside;
            hidden = ops::dropout(&hidden, layer.dropout);
            hidden = ops::add(&residual, &hidden);
            hidden = norm.forward(&hidden);
        }
        residual = hidden.clone();
        hidden = layer.feed_forward(hidden);
        hidden = ops::add(&residual, &hidden);
        hidden = layer.final_layer_norm.forward(&hidden);
        if layer.cross.is_none() {
            look_for_infinities(&hidden);
        }
        hidden
    })
}

/// `torch.isfinite(hidden_states).all()`, which float16 encoders look at; what they clamp is not expected.
fn look_for_infinities(hidden: &Tensor) {
    if hidden.dtype() != DType::Float16 {
        return;
    }
    // at::isfinite: (self == self) * (self.abs() != inf), which the compiler works out from the right, and whose
    // temporaries live to its end.
    let magnitude = ops::each(Pointwise::Abs, hidden, hidden.dtype());
    let bounded = ops::each(Pointwise::NeScalar, &magnitude, DType::Bool);
    let number = ops::pointwise(Pointwise::EqTensor, hidden, &[hidden], hidden.dims(), DType::Bool);
    let finite = ops::pointwise(Pointwise::MulTensor, &number, &[&bounded], hidden.dims(), DType::Bool);
    drop((number, bounded, magnitude));
    drop((ops::reduction(Reduction::All, &finite, &[], DType::Bool), finite));
}

/// `BartEncoder` or `BartDecoder`.
#[derive(Debug)]
struct Stack {
    embed_tokens: Embedding,
    embed_positions: Embedding,
    layers: ModuleList<Layer>,
    layernorm_embedding: LayerNorm,
    dropout: f64,
    plan: Plan,
    tokens: ModuleId,
    positions: ModuleId,
    module: ModuleId,
}

impl Stack {
    fn new(
        scope: &Scope,
        shared: Option<&Embedding>,
        (tables, sizes): (Tables, &LayerSizes<'_>),
        stack: StackSizes,
        attention_dropout: f64,
        plan: &Plan,
        decoder: bool,
    ) -> Option<Self> {
        let core = EncoderAttention {
            implementation: plan.attention,
            rules: plan.rules.clone(),
            dropout: attention_dropout,
            softmax_fp32: false,
            shared_since: Some(&rules::BART_SHARES_SDPA),
        };
        let (tokens, positions) = (scope.child("embed_tokens"), scope.child("embed_positions"));
        Some(Self {
            embed_tokens: match shared {
                Some(shared) => Embedding::tied(&tokens, shared.weight()),
                None => Embedding::new(&tokens, tables.vocab, sizes.hidden),
            },
            embed_positions: Embedding::new(&positions, tables.positions + OFFSET, sizes.hidden),
            layers: ModuleList::new(scope, "layers", stack.layers, |scope, _| {
                Layer::new(scope, Kind::Bart, sizes, stack, &core, decoder)
            })?,
            layernorm_embedding: LayerNorm::new(&scope.child("layernorm_embedding"), sizes.hidden, true),
            dropout: sizes.dropout,
            plan: plan.clone(),
            tokens: tokens.module(),
            positions: positions.module(),
            module: scope.module(),
        })
    }

    /// `BartScaledWordEmbedding`: always multiplied, be it by 1.
    fn embed(&self, ids: &Tensor) -> Tensor {
        let scaled = ids.cx().within(self.tokens, || ops::mul_scalar(&self.embed_tokens.forward(ids)));
        causal_lm::as_input_of_part(scaled, &self.plan)
    }

    fn encode(&self, ids: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let cx = ids.cx();
        cx.within(self.module, || {
            let embeds = self.embed(ids);
            let positions = self.positions_of(ids);
            let mut hidden = self.start(&embeds, &positions);
            let padding = causal_lm::given_mask(mask, &self.plan);
            let mask = if cx.machine().rules.has(&rules::LAST_DECODER_STACKS_SHARE_MASK) {
                bidirectional_mask(&embeds, padding, embeds.dtype(), self.plan.attention)
            } else {
                padding.and_then(|given| older_cross_mask(given, ids.size(1), embeds.dtype(), self.plan.attention))
            };
            hidden = self.layers.run(
                cx,
                hidden,
                |_| (),
                |layer, hidden| self.call(layer, &hidden, [mask.as_ref(), None, None, None]),
            );
            drop((embeds, positions));
            hidden
        })
    }

    /// `mask` is about the encoder's hidden states.
    fn decode(&self, ids: &Tensor, mask: Option<&Tensor>, encoded: &Tensor) -> Tensor {
        let cx = ids.cx();
        cx.within(self.module, || {
            let (attention, seq) = (self.plan.attention, ids.size(1));
            let embeds = self.embed(ids);
            if !cx.machine().rules.has(&rules::SEQ2SEQ_PROJECTS_FIRST) {
                return self.decode_older(ids, embeds, mask, encoded);
            }
            let shares = cx.machine().rules.has(&rules::LAST_DECODER_STACKS_SHARE_MASK);
            // A generation before handed on what it had counted.
            let handed = !shares && cx.is_inference() && cx.remembers();
            let position_ids = (!handed).then(|| causal_lm::position_ids(cx, seq));
            let (own_mask, ones) = {
                let ones = ops::fill(cx, Fill::Ones, &[ids.size(0), cx.seen(seq, false).keys], DType::Float32);
                // Nothing in it is padded. The reference rows of training were traced without values, though, and where
                // they say that the encoder's mask is padded they say so of this one too.
                let padded = self.plan.input.attention_mask == AttentionMask::Padded && !cx.remembers();
                let make = if shares { decoder_causal_mask } else { older_causal_mask };
                let mask = make(&embeds, Some((&ones, padded)), attention);
                // The mask took the name of what it was made of since all classes are one.
                (mask, (!cx.machine().rules.has(&rules::BART_SHARES_SDPA)).then_some(ones))
            };
            let padding = causal_lm::given_mask(mask, &self.plan);
            let encoded_mask = if shares {
                bidirectional_mask(&embeds, padding, encoded.dtype(), attention)
            } else {
                padding.and_then(|given| older_cross_mask(given, seq, embeds.dtype(), attention))
            };
            let positions = cx.within(self.positions, || {
                let shifted = ops::pointwise(Pointwise::AddTensor, ids, &[], &[1, seq], DType::Int64);
                self.embed_positions.forward(&shifted)
            });
            // Layers were handed what was counted.
            let counted = position_ids.as_ref().filter(|_| !shares);
            let given = [own_mask.as_ref(), Some(encoded), encoded_mask.as_ref(), counted];
            let hidden = self.through(&embeds, &positions, given);
            drop((embeds, positions, position_ids, ones));
            hidden
        })
    }

    /// All layers, under the masks of their own states, and the encoder's states with the mask of those.
    fn through(&self, embeds: &Tensor, positions: &Tensor, given: [Option<&Tensor>; 4]) -> Tensor {
        let hidden = self.start(embeds, positions);
        self.layers.run(embeds.cx(), hidden, |_| (), |layer, hidden| self.call(layer, &hidden, given))
    }

    /// [`Stack::decode`] with masks of numbers, and positions for every sample.
    fn decode_older(&self, ids: &Tensor, embeds: Tensor, mask: Option<&Tensor>, encoded: &Tensor) -> Tensor {
        let attention = self.plan.attention;
        let own_mask = (attention == Attention::Eager).then(|| whole_two_part_mask(&embeds, None)).flatten();
        let encoded_mask = causal_lm::given_mask(mask, &self.plan)
            .and_then(|given| older_cross_mask(given, ids.size(1), embeds.dtype(), attention));
        let positions = self.positions_of(ids);
        let given = [own_mask.as_ref(), Some(encoded), encoded_mask.as_ref(), None];
        let hidden = self.through(&embeds, &positions, given);
        drop((embeds, positions));
        hidden
    }

    /// `embed_positions(input)`: of every sample.
    fn positions_of(&self, ids: &Tensor) -> Tensor {
        let cx = ids.cx();
        cx.within(self.positions, || {
            let range = ops::arange(cx, ids.size(1));
            let shifted = ops::pointwise(Pointwise::AddTensor, &range, &[], ids.dims(), DType::Int64);
            self.embed_positions.forward(&shifted)
        })
    }

    fn start(&self, embeds: &Tensor, positions: &Tensor) -> Tensor {
        let mut hidden = ops::add(embeds, positions);
        hidden = self.layernorm_embedding.forward(&hidden);
        ops::dropout(&hidden, self.dropout)
    }

    /// A layer with its mask, the encoder's hidden states and their mask.
    fn call(&self, layer: &Rc<Layer>, hidden: &Tensor, given: [Option<&Tensor>; 4]) -> Tensor {
        let [mask, encoded, encoded_mask, _] = given;
        if !hidden.cx().checkpoints(self.plan.checkpointing) {
            return forward(layer, hidden, mask, encoded, encoded_mask);
        }
        // Its mask and the encoder's states are positional arguments, and so inputs of the checkpoint; what the layer is given besides is
        // held with the function, as long as they are.
        let (layer, [_, _, encoded_mask, counted]) = (Rc::clone(layer), given.map(Option::<&Tensor>::cloned));
        let is_masked = mask.is_some();
        let function = move |inputs: &[Tensor]| {
            let _captured = &counted;
            let (mask, encoded) = (inputs.get(1).filter(|_| is_masked), inputs.get(1 + usize::from(is_masked)));
            forward(&layer, &inputs[0], mask, encoded, encoded_mask.as_ref())
        };
        let inputs = [Some(hidden), mask, encoded].into_iter().flatten().cloned().collect();
        checkpoint(hidden.cx(), inputs, Rc::new(function))
    }
}

/// `BartForConditionalGeneration`.
#[derive(Debug)]
struct ConditionalGeneration {
    cx: Rc<Context>,
    encoder: Stack,
    decoder: Stack,
    lm_head: Linear,
    final_logits_bias: Tensor,
    lengths: Lengths,
    plan: Plan,
}

/// `BartForConditionalGeneration(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let sizes = LayerSizes::read(config, 1024, 0.1)?;
    let tables =
        Tables { vocab: config.size("vocab_size", 50_265)?, positions: config.size("max_position_embeddings", 1024)? };
    let attention_dropout = config.probability("attention_dropout", 0.0)?;
    let [encoder, decoder] = StackSizes::both(config, sizes.hidden, [12, 16, 4096])?;
    let lengths = Lengths::read(plan)?;
    for (key, length) in [("input.seq", lengths.source), ("input.target_seq", lengths.target)] {
        if length > tables.positions {
            return Err(Error::new(
                key,
                format!("{length} tokens, but the model has {} position embeddings", tables.positions),
                format!("use at most {}", tables.positions),
            ));
        }
    }
    let model = scope.child("model");
    let shared = Embedding::new(&model.child("shared"), tables.vocab, sizes.hidden);
    // Untied, each stack has a table of its own, and nobody looks into the shared one: before the config was asked, the head's alone was.
    let tied = config.flag("tie_word_embeddings", true)?;
    let shares = tied || !scope.cx().machine().rules.has(&rules::BART_UNTIES_STACKS);
    let stack = |name: &'static str, stack, decoder| -> Result<Stack> {
        Stack::new(
            &model.child(name),
            shares.then_some(&shared),
            (tables, &sizes),
            stack,
            attention_dropout,
            plan,
            decoder,
        )
        .ok_or_else(|| super::unknown_activation(config, "activation_function", sizes.act))
    };
    let encoder = stack("encoder", encoder, false)?;
    let decoder = stack("decoder", decoder, true)?;
    let lm_head = seq2seq::head(&scope.child("lm_head"), shared.weight(), tied);
    Ok(Box::new(ConditionalGeneration {
        cx: Rc::clone(scope.cx()),
        encoder,
        decoder,
        lm_head,
        final_logits_bias: scope.buffer_of(&[1, tables.vocab], scope.buffer_dtype()),
        lengths,
        plan: plan.clone(),
    }))
}

impl ConditionalGeneration {
    /// The logits of the decoder's ids, `mask` being about what was encoded; and what `outputs` holds to the end of the
    /// forward.
    fn decode(&self, ids: &Tensor, mask: Option<&Tensor>, encoded: &Tensor) -> (Tensor, Tensor) {
        let decoded = self.decoder.decode(ids, mask, encoded);
        let logits = self.lm_head.forward(&decoded);
        (ops::add(&logits, &self.final_logits_bias), decoded)
    }
}

impl Model for ConditionalGeneration {
    fn batch(&self) -> Batch {
        seq2seq::batch(&self.cx, &self.plan, self.lengths)
    }

    fn forward(&self, batch: &Batch) -> Output {
        let (ids, mask, labels) = batch.parts();
        let decoder_ids = seq2seq::shift_right(labels);
        let encoded = self.encoder.encode(ids, mask);
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

    fn returns_tuples(&self) -> bool {
        !self.cx.machine().rules.has(&rules::GPT2_HAS_CACHE_CLASS)
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for ConditionalGeneration {
    fn encode(&self, inputs: &Tensor, mask: Option<&Tensor>) -> Tensor {
        self.encoder.encode(inputs, mask)
    }
}
