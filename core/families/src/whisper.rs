//! Whisper (transformers `models/whisper/modeling_whisper.py`).

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::{Error, Result};
use plimsoll_torch::generate::{Encode, Generate, Step};
use plimsoll_torch::nn::{
    Conv1d, Embedding, EncoderAttention, LayerNorm, Linear, ModuleList, Scope, causal_mask, decoder_causal_mask,
    older_causal_mask,
};
use plimsoll_torch::ops::{self, Rearrangement};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor, checkpoint};
use plimsoll_torch::{Batch, Field};

use super::checkpointed::checkpointed;
use super::config::Config;
use super::seq2seq::{self, Beside, Kind};
use super::seq2seq_layer::{Layer, LayerSizes, StackSizes};
use super::{Model, Output, Plan, causal_lm};

/// `WhisperEncoderLayer.forward` or, with cross-attention, `WhisperDecoderLayer.forward`: the next hidden states, and the probabilities
/// of eager attention where they are returned beside them.
fn forward(
    layer: &Layer,
    hidden: &Tensor,
    mask: Option<&Tensor>,
    encoded: Option<&Tensor>,
) -> (Tensor, Option<Tensor>) {
    let (cx, module) = (hidden.cx(), layer.module);
    let (hidden, mask) = (&cx.argument(module, hidden), &cx.argument_if(module, mask));
    let encoded = &cx.argument_if(module, encoded);
    let (mask, encoded) = (mask.as_ref(), encoded.as_ref());
    let rules = cx.machine().rules;
    let one_name = rules.has(&rules::PROBABILITIES_SHARE_NAME);
    let returns = layer.cross.is_none() && rules.has(&rules::WHISPER_RETURNS_PROBABILITIES) && !one_name;
    cx.within(module, || {
        let mut residual = hidden.clone();
        let mut hidden = layer.self_attn_layer_norm.forward(hidden);
        // `_` is a name like any other: it holds the probabilities until something else takes it.
        let (mut _beside, mut _beside_cross) = (Beside::default(), Beside::default());
        (hidden, _beside) = layer.self_attn.forward(&hidden, None, mask);
        hidden = ops::dropout(&hidden, layer.dropout);
        hidden = ops::add(&residual, &hidden);
        if let Some((attend, norm)) = &layer.cross {
            residual = hidden.clone();
            hidden = norm.forward(&hidden);
            let beside;
            (hidden, beside) = attend.forward(&hidden, encoded, None);
            let name = if one_name { &mut _beside } else { &mut _beside_cross };
            *name = beside;
            hidden = ops::dropout(&hidden, layer.dropout);
            hidden = ops::add(&residual, &hidden);
        }
        residual = hidden.clone();
        hidden = layer.final_layer_norm.forward(&hidden);
        hidden = layer.feed_forward(hidden);
        hidden = ops::add(&residual, &hidden);
        if layer.cross.is_none() && hidden.dtype() == DType::Float16 {
            hidden = ops::clamp_numbers(&hidden);
        }
        (hidden, _beside.weights.filter(|_| returns))
    })
}

/// A call of a decoder's layer.
fn call(
    layer: &Rc<Layer>,
    hidden: &Tensor,
    mask: Option<&Tensor>,
    encoded: Option<&Tensor>,
    (counted, checkpointing): (Option<&Tensor>, bool),
) -> Tensor {
    if !hidden.cx().checkpoints(checkpointing) {
        return forward(layer, hidden, mask, encoded).0;
    }
    let (layer, is_masked, counted) = (Rc::clone(layer), mask.is_some(), counted.cloned());
    // The mask and the encoder's states are positional arguments, and so inputs of the checkpoint.
    let function = move |inputs: &[Tensor]| {
        let _captured = &counted;
        let (mask, encoded) = (inputs.get(1).filter(|_| is_masked), inputs.get(1 + usize::from(is_masked)));
        forward(&layer, &inputs[0], mask, encoded).0
    };
    let inputs = [Some(hidden), mask, encoded].into_iter().flatten().cloned().collect();
    checkpoint(hidden.cx(), inputs, Rc::new(function))
}

fn layers(
    scope: &Scope,
    sizes: &LayerSizes<'_>,
    stack: StackSizes,
    core: &EncoderAttention,
    decoder: bool,
) -> Option<ModuleList<Layer>> {
    ModuleList::new(scope, "layers", stack.layers, |scope, _| {
        Layer::new(scope, Kind::Whisper, sizes, stack, core, decoder)
    })
}

#[derive(Debug)]
struct Encoder {
    conv1: Conv1d,
    conv2: Conv1d,
    embed_positions: Embedding,
    layers: ModuleList<Layer>,
    layer_norm: LayerNorm,
    dropout: f64,
    plan: Plan,
    module: ModuleId,
}

impl Encoder {
    fn forward(&self, features: &Tensor) -> Tensor {
        let cx = features.cx();
        cx.within(self.module, || {
            let mut embeds = {
                let first = causal_lm::as_input_of_part(self.conv1.forward(features), &self.plan);
                ops::gelu(&first)
            };
            embeds = ops::gelu(&self.conv2.forward(&embeds));
            embeds = ops::transpose(&embeds, 1, 2);
            // Before they were looked up, the whole table was added.
            let looked_up = cx.machine().rules.has(&rules::BART_SHARES_SDPA);
            let all_positions = looked_up.then(|| ops::arange(cx, embeds.size(1)));
            let mut hidden = match &all_positions {
                Some(all_positions) => {
                    let positions = self.embed_positions.forward(all_positions);
                    ops::add(&embeds, &positions)
                }
                None => ops::add(&embeds, self.embed_positions.weight()),
            };
            hidden = ops::dropout(&hidden, self.dropout);
            // `layer_outputs`: what the last layer returned, the probabilities with it.
            let mut _outputs = None;
            hidden = self.layers.run(
                cx,
                hidden,
                |_| (),
                |layer, hidden| {
                    let (next, weights) = if cx.checkpoints(self.plan.checkpointing) {
                        let layer = Rc::clone(layer);
                        checkpointed(cx, hidden, move |x| forward(&layer, x, None, None))
                    } else {
                        let (next, weights) = forward(layer, &hidden, None, None);
                        drop(hidden);
                        (next, weights)
                    };
                    _outputs = weights;
                    next
                },
            );
            hidden = self.layer_norm.forward(&hidden);
            drop((embeds, all_positions));
            hidden
        })
    }
}

#[derive(Debug)]
struct Decoder {
    embed_tokens: Embedding,
    embed_positions: Tensor,
    layers: ModuleList<Layer>,
    layer_norm: LayerNorm,
    dropout: f64,
    /// Whether there is a cache when the mask is made.
    use_cache: bool,
    plan: Plan,
    positions: ModuleId,
    module: ModuleId,
}

impl Decoder {
    fn forward(&self, ids: &Tensor, encoded: &Tensor) -> Tensor {
        let cx = ids.cx();
        cx.within(self.module, || {
            let attention = self.plan.attention;
            let embeds = causal_lm::input_embeddings(&self.embed_tokens, ids, &self.plan);
            let row = causal_lm::position_ids(cx, ids.size(1));
            let position_ids = if cx.machine().rules.has(&rules::WHISPER_REPEATS_POSITIONS) {
                ops::rearrangement(cx, Rearrangement::Repeat, ids.dims(), DType::Int64)
            } else {
                row.clone()
            };
            // `cache_position`, a name while it was what was counted.
            let cache_position = (!cx.machine().rules.has(&rules::POSITIONS_SHIFTED)).then_some(row);
            let positions = cx.within(self.positions, || ops::index(&self.embed_positions, &[&position_ids]));
            let mut hidden = ops::add(&embeds, &positions);
            hidden = ops::dropout(&hidden, self.dropout);
            // Only without a cache are the positions looked at for packed sequences.
            let mask = if !cx.machine().rules.has(&rules::BOOLEAN_MASKS) {
                older_causal_mask(&embeds, None, attention)
            } else if self.use_cache {
                decoder_causal_mask(&embeds, None, attention)
            } else {
                causal_mask(&embeds, None, &position_ids, attention)
            };
            hidden = self.layers.run(
                cx,
                hidden,
                |_| (),
                |layer, hidden| {
                    let captured = (cache_position.as_ref(), self.plan.checkpointing);
                    call(layer, &hidden, mask.as_ref(), Some(encoded), captured)
                },
            );
            hidden = self.layer_norm.forward(&hidden);
            drop((embeds, cache_position, positions, position_ids));
            hidden
        })
    }
}

/// `WhisperForConditionalGeneration`.
#[derive(Debug)]
struct ConditionalGeneration {
    cx: Rc<Context>,
    encoder: Encoder,
    decoder: Decoder,
    proj_out: Linear,
    features: [u64; 3],
    seq: u64,
    dtype: DType,
}

/// `WhisperForConditionalGeneration(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let sizes = LayerSizes::read(config, 384, 0.0)?;
    let hidden = sizes.hidden;
    let bins = config.size("num_mel_bins", 80)?;
    let source = config.size("max_source_positions", 1500)?;
    let target = config.size("max_target_positions", 448)?;
    let vocab = config.size("vocab_size", 51_865)?;
    let [encoder_sizes, decoder_sizes] = StackSizes::both(config, hidden, [4, 6, 1536])?;
    if config.flag("apply_spec_augment", false)? {
        return Err(config.error("apply_spec_augment", "is not estimated yet", "set it to false"));
    }
    // What is generated begins with one token; labels are of training.
    let seq = if scope.cx().is_inference() { 1 } else { plan.seq()? };
    if seq > target {
        return Err(Error::new(
            "input.seq",
            format!("{seq} tokens, but the model has {target} position embeddings"),
            format!("use at most {target}"),
        ));
    }
    let core = EncoderAttention {
        implementation: plan.attention,
        rules: plan.rules.clone(),
        dropout: config.probability("attention_dropout", 0.0)?,
        softmax_fp32: false,
        shared_since: Some(&rules::BART_SHARES_SDPA),
    };
    let unknown = || super::unknown_activation(config, "activation_function", sizes.act);
    let model = scope.child("model");
    let place = model.child("encoder");
    let encoder = Encoder {
        conv1: Conv1d::new(&place.child("conv1"), [bins, hidden], 3, 1, 1, 1),
        conv2: Conv1d::new(&place.child("conv2"), [hidden, hidden], 3, 2, 1, 1),
        embed_positions: Embedding::frozen(&place.child("embed_positions"), source, hidden),
        layers: layers(&place, &sizes, encoder_sizes, &core, false).ok_or_else(unknown)?,
        layer_norm: LayerNorm::new(&place.child("layer_norm"), hidden, true),
        dropout: sizes.dropout,
        plan: plan.clone(),
        module: place.module(),
    };
    let place = model.child("decoder");
    let positions = place.child("embed_positions");
    let decoder = Decoder {
        embed_tokens: Embedding::new(&place.child("embed_tokens"), vocab, hidden),
        embed_positions: {
            // `WhisperPositionalEmbedding` is an `nn.Embedding`, which it indexes instead of calling it.
            let table = positions.parameter(&[target, hidden]);
            scope.cx().mark_outer(&table);
            table
        },
        layers: layers(&place, &sizes, decoder_sizes, &core, true).ok_or_else(unknown)?,
        layer_norm: LayerNorm::new(&place.child("layer_norm"), hidden, true),
        dropout: sizes.dropout,
        use_cache: {
            let switched_late = plan.checkpointing && !scope.cx().machine().rules.has(&rules::WHISPER_SWITCHES_FIRST);
            let said = scope.cx().is_inference() || switched_late;
            if said { config.flag("use_cache", true)? } else { plan.use_cache }
        },
        plan: plan.clone(),
        positions: positions.module(),
        module: place.module(),
    };
    let tied = config.flag("tie_word_embeddings", true)?;
    let proj_out = seq2seq::head(&scope.child("proj_out"), decoder.embed_tokens.weight(), tied);
    Ok(Box::new(ConditionalGeneration {
        cx: Rc::clone(scope.cx()),
        encoder,
        decoder,
        proj_out,
        features: [plan.input.batch, bins, 2 * source],
        seq,
        dtype: scope.dtype(),
    }))
}

impl Model for ConditionalGeneration {
    fn batch(&self) -> Batch {
        let features = ops::empty(&self.cx, &self.features, self.dtype);
        Batch::of(features).with(Field::Labels, ops::labels(&self.cx, &[self.features[0], self.seq], DType::Int64))
    }

    fn forward(&self, batch: &Batch) -> Output {
        let (features, _, labels) = batch.parts();
        let decoder_ids = seq2seq::shift_right(labels);
        let encoded = self.cx.forgetting(|| self.encoder.forward(features));
        let decoded = self.decoder.forward(&decoder_ids, &encoded);
        let logits = self.proj_out.forward(&decoded);
        seq2seq::output(logits, labels, encoded)
    }

    fn generate(&self) -> Option<&dyn Generate> {
        Some(self)
    }
}

impl Generate for ConditionalGeneration {
    fn logits(&self, step: Step<'_>) -> Tensor {
        let decoded = self.decoder.forward(step.ids, step.encoded());
        self.proj_out.forward(&decoded)
    }

    fn encoder(&self) -> Option<&dyn Encode> {
        Some(self)
    }
}

impl Encode for ConditionalGeneration {
    fn encode(&self, inputs: &Tensor, _mask: Option<&Tensor>) -> Tensor {
        self.encoder.forward(inputs)
    }

    fn is_whisper(&self) -> bool {
        true
    }
}
