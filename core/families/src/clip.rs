//! CLIP (transformers `models/clip/modeling_clip.py`).

use std::rc::Rc;

use plimsoll_catalog::software::rules;
use plimsoll_ground::{Error, Result};
use plimsoll_torch::nn::{
    Activation, Embedding, EncoderAttention, LayerNorm, Linear, ModuleList, Scope, decoder_causal_mask,
    whole_two_part_mask,
};
use plimsoll_torch::ops::{self, Pointwise, Reduction};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor, checkpoint};
use plimsoll_torch::{Batch, Field};

use super::config::{Config, divide};
use super::seq2seq::{Attend, Beside, Kind};
use super::{Model, Output, Plan, causal_lm};

/// One of the two towers.
#[derive(Clone, Copy, Debug)]
struct Sizes<'c> {
    hidden: u64,
    intermediate: u64,
    layers: u64,
    heads: u64,
    act: &'c str,
    dropout: f64,
}

impl<'c> Sizes<'c> {
    fn read(config: &Config<'c>, hidden: u64, intermediate: u64, heads: u64) -> Result<Self> {
        let sizes = Self {
            hidden: config.size("hidden_size", hidden)?,
            intermediate: config.size("intermediate_size", intermediate)?,
            layers: config.layers("num_hidden_layers", 12)?,
            heads: config.size("num_attention_heads", heads)?,
            act: config.text("hidden_act", "quick_gelu")?,
            dropout: config.probability("attention_dropout", 0.0)?,
        };
        divide(config, ("hidden_size", sizes.hidden), ("num_attention_heads", sizes.heads))?;
        Ok(sizes)
    }
}

/// `CLIPEncoderLayer`.
#[derive(Debug)]
struct Layer {
    self_attn: Attend,
    layer_norm1: LayerNorm,
    fc1: Linear,
    fc2: Linear,
    activation_fn: Activation,
    layer_norm2: LayerNorm,
    mlp: ModuleId,
    module: ModuleId,
}

impl Layer {
    fn new(scope: &Scope, sizes: &Sizes<'_>, core: &EncoderAttention, causal: bool) -> Option<Self> {
        let (hidden, mlp) = (sizes.hidden, scope.child("mlp"));
        let norm = |name: &'static str| LayerNorm::new(&scope.child(name), hidden, true);
        Some(Self {
            self_attn: Attend::new(&scope.child("self_attn"), Kind::Clip, hidden, sizes.heads, core, causal),
            layer_norm1: norm("layer_norm1"),
            fc1: Linear::new(&mlp.child("fc1"), hidden, sizes.intermediate, true),
            fc2: Linear::new(&mlp.child("fc2"), sizes.intermediate, hidden, true),
            activation_fn: Activation::new(&mlp.child("activation_fn"), sizes.act)?,
            layer_norm2: norm("layer_norm2"),
            mlp: mlp.module(),
            module: scope.module(),
        })
    }

    fn feed_forward(&self, hidden: &Tensor) -> Tensor {
        hidden.cx().within(self.mlp, || {
            let mut hidden = self.fc1.forward(hidden);
            hidden = self.activation_fn.forward(&hidden);
            self.fc2.forward(&hidden)
        })
    }

    fn forward(&self, hidden: &Tensor, mask: Option<&Tensor>) -> Tensor {
        let hidden = &hidden.cx().argument(self.module, hidden);
        hidden.cx().within(self.module, || {
            let mut residual = hidden.clone();
            let mut hidden = self.layer_norm1.forward(hidden);
            // `_` is a name like any other: it holds the probabilities, where they are returned, until the layer is done.
            let (attended, Beside { mut weights, .. }) = self.self_attn.forward(&hidden, None, mask);
            if !hidden.cx().machine().rules.has(&rules::CLIP_RETURNS_PROBABILITIES) {
                drop(weights.take());
            }
            hidden = attended;
            hidden = ops::add(&residual, &hidden);
            residual = hidden.clone();
            hidden = self.layer_norm2.forward(&hidden);
            hidden = self.feed_forward(&hidden);
            ops::add(&residual, &hidden)
        })
    }
}

/// `CLIPEncoder`.
#[derive(Debug)]
struct Encoder {
    layers: ModuleList<Layer>,
    checkpointing: bool,
    module: ModuleId,
}

impl Encoder {
    fn new(scope: &Scope, sizes: &Sizes<'_>, plan: &Plan, causal: bool) -> Option<Self> {
        let core = EncoderAttention {
            implementation: plan.attention,
            rules: plan.rules.clone(),
            dropout: sizes.dropout,
            softmax_fp32: true,
            shared_since: Some(&rules::CLIP_SHARES_SDPA),
        };
        let layers =
            ModuleList::new(scope, "layers", sizes.layers, |scope, _| Layer::new(scope, sizes, &core, causal))?;
        Some(Self { layers, checkpointing: plan.checkpointing, module: scope.module() })
    }

    fn forward(&self, embeds: &Tensor, mask: Option<&Tensor>) -> Tensor {
        embeds.cx().within(self.module, || {
            self.layers.run(
                embeds.cx(),
                embeds.clone(),
                |_| (),
                |layer, hidden| {
                    if embeds.cx().checkpoints(self.checkpointing) {
                        let layer = Rc::clone(layer);
                        // The mask is a positional argument, and so one of the checkpoint's inputs.
                        let inputs = std::iter::once(hidden).chain(mask.cloned()).collect();
                        let function = move |inputs: &[Tensor]| layer.forward(&inputs[0], inputs.get(1));
                        checkpoint(embeds.cx(), inputs, Rc::new(function))
                    } else {
                        layer.forward(&hidden, mask)
                    }
                },
            )
        })
    }
}

/// `CLIPTextModel`.
#[derive(Debug)]
struct TextModel {
    token_embedding: Embedding,
    position_embedding: Embedding,
    position_ids: Tensor,
    encoder: Encoder,
    final_layer_norm: LayerNorm,
    /// Configs older than their own end token (2): the text's end is where its largest id is.
    largest_id: bool,
    plan: Plan,
    embeddings: ModuleId,
    module: ModuleId,
}

impl TextModel {
    /// The last hidden states, and what stands at each text's end.
    fn forward(&self, ids: &Tensor) -> (Tensor, Tensor) {
        let cx = ids.cx();
        cx.within(self.module, || {
            let embeds = cx.within(self.embeddings, || {
                let position_ids = ops::narrow(&self.position_ids, 1, ids.size(1));
                let tokens = causal_lm::input_embeddings(&self.token_embedding, ids, &self.plan);
                let positions = self.position_embedding.forward(&position_ids);
                ops::add(&tokens, &positions)
            });
            let mask = if cx.machine().rules.has(&rules::CLIP_SHARES_MASK) {
                decoder_causal_mask(&embeds, None, self.plan.attention)
            } else {
                whole_two_part_mask(&embeds, None)
            };
            let mut hidden = self.encoder.forward(&embeds, mask.as_ref());
            hidden = self.final_layer_norm.forward(&hidden);
            let batch = ops::arange(cx, ids.size(0));
            let ends = {
                let mut marks = ops::each(Pointwise::ToCopy, ids, DType::Int32);
                if !self.largest_id {
                    let is_end = ops::pointwise(Pointwise::EqScalar, ids, &[], ids.dims(), DType::Bool);
                    drop(marks);
                    marks = ops::pointwise(Pointwise::ToCopy, &is_end, &[], ids.dims(), DType::Int32);
                    drop(is_end);
                }
                let ends = ops::reduction(Reduction::Argmax, &marks, &[ids.size(0)], DType::Int64);
                drop(marks);
                ends
            };
            let pooled = ops::index(&hidden, &[&batch, &ends]);
            drop((mask, embeds));
            (hidden, pooled)
        })
    }
}

/// `CLIPVisionModel`.
#[derive(Debug)]
struct VisionModel {
    class_embedding: Tensor,
    patch_embedding: Tensor,
    patch: (u64, ModuleId),
    position_embedding: Embedding,
    position_ids: Tensor,
    pre_layernorm: LayerNorm,
    encoder: Encoder,
    post_layernorm: LayerNorm,
    plan: Plan,
    embeddings: ModuleId,
    module: ModuleId,
}

impl VisionModel {
    fn embed(&self, pixels: &Tensor) -> Tensor {
        let cx = pixels.cx();
        cx.within(self.embeddings, || {
            let (side, module) = self.patch;
            let patches = cx.within(module, || {
                ops::conv2d(pixels, &self.patch_embedding, None, ops::Window { kernel: side, stride: side, padding: 0 })
            });
            let patches = causal_lm::as_input(patches, &self.plan);
            let [batch, width] = [patches.size(0), patches.size(1)];
            let patches =
                ops::transpose(&ops::view(&patches, &[batch, width, patches.size(2) * patches.size(3)]), 1, 2);
            let class = ops::expand(&self.class_embedding, &[batch, 1, width]);
            let mut embeddings = ops::cat(&[&class, &patches], 1);
            embeddings = {
                let positions = self.position_embedding.forward(&self.position_ids);
                ops::add(&embeddings, &positions)
            };
            embeddings
        })
    }

    /// The last hidden states, and the class token's.
    fn forward(&self, pixels: &Tensor) -> (Tensor, Tensor) {
        pixels.cx().within(self.module, || {
            let mut hidden = self.embed(pixels);
            hidden = self.pre_layernorm.forward(&hidden);
            let last = self.encoder.forward(&hidden, None);
            let pooled = self.post_layernorm.forward(&ops::whole(&ops::first(&last)));
            drop(hidden);
            (last, pooled)
        })
    }
}

/// `CLIPModel`.
#[derive(Debug)]
struct Clip {
    cx: Rc<Context>,
    text_model: TextModel,
    vision_model: VisionModel,
    visual_projection: Linear,
    text_projection: Linear,
    logit_scale: Tensor,
    ids: [u64; 2],
    pixels: [u64; 4],
    dtype: DType,
}

fn text_model(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<(TextModel, u64, u64)> {
    let sizes = Sizes::read(config, 512, 2048, 8)?;
    let vocab = config.size("vocab_size", 49_408)?;
    let positions = config.size("max_position_embeddings", 77)?;
    let place = scope.child("embeddings");
    let token_embedding = Embedding::new(&place.child("token_embedding"), vocab, sizes.hidden);
    let position_embedding = Embedding::new(&place.child("position_embedding"), positions, sizes.hidden);
    let model = TextModel {
        token_embedding,
        position_embedding,
        position_ids: place.buffer_of(&[1, positions], DType::Int64),
        encoder: Encoder::new(&scope.child("encoder"), &sizes, plan, true)
            .ok_or_else(|| super::unknown_activation(config, "hidden_act", sizes.act))?,
        final_layer_norm: LayerNorm::new(&scope.child("final_layer_norm"), sizes.hidden, true),
        largest_id: config.count("eos_token_id", 49_407)? == 2,
        plan: plan.clone(),
        embeddings: place.module(),
        module: scope.module(),
    };
    Ok((model, sizes.hidden, positions))
}

fn vision_model(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<(VisionModel, u64, [u64; 2])> {
    let sizes = Sizes::read(config, 768, 3072, 12)?;
    let channels = config.size("num_channels", 3)?;
    let side = config.side("image_size", 224)?;
    let patch = config.side("patch_size", 32)?;
    if patch > side {
        return Err(config.error(
            "patch_size",
            format!("patches of {patch} pixels do not fit an image of {side}"),
            "give the sizes of the model's config.json",
        ));
    }
    if let Some(image) = plan.input.image.filter(|&image| image != side) {
        return Err(Error::new(
            "input.image",
            format!("images of {image} pixels, but the model takes {side}"),
            format!("use image = {side}, or leave it out"),
        ));
    }
    let positions = (side / patch).pow(2) + 1;
    let place = scope.child("embeddings");
    let first = place.place();
    let conv = place.child("patch_embedding");
    let patch_embedding = conv.parameter(&[sizes.hidden, channels, patch, patch]);
    let position_embedding = Embedding::new(&place.child("position_embedding"), positions, sizes.hidden);
    let model = VisionModel {
        class_embedding: place.own_parameter(first, &[sizes.hidden]),
        patch_embedding,
        patch: (patch, conv.module()),
        position_embedding,
        position_ids: place.buffer_of(&[1, positions], DType::Int64),
        pre_layernorm: LayerNorm::new(&scope.child("pre_layrnorm"), sizes.hidden, true),
        encoder: Encoder::new(&scope.child("encoder"), &sizes, plan, false)
            .ok_or_else(|| super::unknown_activation(config, "hidden_act", sizes.act))?,
        post_layernorm: LayerNorm::new(&scope.child("post_layernorm"), sizes.hidden, true),
        plan: plan.clone(),
        embeddings: place.module(),
        module: scope.module(),
    };
    Ok((model, sizes.hidden, [channels, side]))
}

/// `CLIPModel(config)`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let projection = config.size("projection_dim", 512)?;
    let first = scope.place();
    let text = config.section("text_config", "model.hf.text_config")?;
    let (text_model, text_width, positions) = text_model(&scope.child("text_model"), &text, plan)?;
    let vision = config.section("vision_config", "model.hf.vision_config")?;
    let (vision_model, vision_width, [channels, side]) = vision_model(&scope.child("vision_model"), &vision, plan)?;
    let project = |name: &'static str, width| Linear::new(&scope.child(name), width, projection, false);
    // A text longer than the model takes is cut by its tokenizer.
    let seq = plan.seq()?.min(positions);
    Ok(Box::new(Clip {
        cx: Rc::clone(scope.cx()),
        text_model,
        vision_model,
        visual_projection: project("visual_projection", vision_width),
        text_projection: project("text_projection", text_width),
        logit_scale: scope.own_parameter(first, &[]),
        ids: [plan.input.batch, seq],
        pixels: [plan.input.batch, channels, side, side],
        dtype: scope.dtype(),
    }))
}

/// `embeds / _get_vector_norm(embeds)`.
fn normalized(embeds: &Tensor) -> Tensor {
    let norm = {
        let square = ops::pow(embeds);
        let sum = ops::sum_last(&square);
        ops::pow(&sum)
    };
    ops::div(embeds, &norm)
}

/// `contrastive_loss`: every text belongs to the image of its own number.
fn contrastive_loss(logits: &Tensor) -> Tensor {
    let targets = ops::arange(logits.cx(), logits.size(0));
    ops::cross_entropy(logits, &targets)
}

impl Model for Clip {
    fn batch(&self) -> Batch {
        let ids = ops::empty(&self.cx, &self.ids, DType::Int64);
        Batch::of(ids).with(Field::Pixels, ops::empty(&self.cx, &self.pixels, self.dtype))
    }

    fn forward(&self, batch: &Batch) -> Output {
        let at_once = self.cx.machine().rules.has(&rules::CLIP_SHARES_MASK);
        let (image_hidden, mut image_pooled) = self.vision_model.forward(batch.field(Field::Pixels));
        if at_once {
            image_pooled = self.visual_projection.forward(&image_pooled);
        }
        let (text_hidden, mut text_pooled) = self.text_model.forward(batch.inputs());
        if at_once {
            text_pooled = self.text_projection.forward(&text_pooled);
        }
        // Where they are projected at last, outputs hold what was pooled, and what is projected goes when it is normalised.
        let mut image_embeds =
            if at_once { image_pooled.clone() } else { self.visual_projection.forward(&image_pooled) };
        let mut text_embeds = if at_once { text_pooled.clone() } else { self.text_projection.forward(&text_pooled) };
        image_embeds = normalized(&image_embeds);
        text_embeds = normalized(&text_embeds);
        let mut logits = ops::matmul(&text_embeds, &ops::transpose(&image_embeds, 0, 1));
        logits = ops::mul(&logits, &ops::exp(&self.logit_scale));
        let loss = if logits.cx().is_inference() {
            logits.clone()
        } else {
            let caption_loss = contrastive_loss(&logits);
            let image_loss = contrastive_loss(&ops::transpose(&logits, 0, 1));
            ops::div_scalar(&ops::add(&caption_loss, &image_loss))
        };
        // `logits_per_image = logits_per_text.t()`
        let per_image = ops::transpose(&logits, 0, 1);
        let held = vec![
            loss.clone(),
            per_image,
            logits,
            text_embeds,
            image_embeds,
            text_hidden,
            text_pooled,
            image_hidden,
            image_pooled,
        ];
        Output { loss, held }
    }
}
