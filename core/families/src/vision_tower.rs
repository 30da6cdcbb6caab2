//! The vision towers of Qwen2.5-VL, Qwen3-VL and Qwen3.5 (transformers `models/{qwen2_5_vl,qwen3_vl,qwen3_5}/modeling_*.py`):
//! what they take on the card beside a language model that reads text alone. No forward is here. Without images none runs, so that nothing
//! of them gets a gradient.

use plimsoll_catalog::software::rules;
use plimsoll_ground::Result;
use plimsoll_torch::nn::{Embedding, GatedMlp, LayerNorm, Linear, ModuleList, Norm, RmsNorm, Scope};
use plimsoll_torch::tensor::Tensor;

use super::config::{Config, divide};

/// What differs between them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tower {
    /// `Qwen2_5_VisionTransformerPretrainedModel`.
    Qwen25,
    /// `Qwen3VLVisionModel`.
    Qwen3,
    /// `Qwen3_5VisionModel`: the same, without outputs of layers that are merged for themselves.
    Qwen35,
}

/// The sizes, with the defaults of the config classes.
#[derive(Clone, Debug)]
struct Sizes {
    depth: u64,
    hidden: u64,
    intermediate: u64,
    heads: u64,
    channels: u64,
    frames: u64,
    patch: u64,
    /// `hidden_size * spatial_merge_size ** 2`.
    merged: u64,
    out: u64,
    /// Rows of the table of positions (Qwen3-VL).
    positions: u64,
    /// How many layers' outputs are merged for themselves (Qwen3-VL); `None` where there is no list of them.
    deep: Option<u64>,
}

impl Sizes {
    fn read(config: &Config<'_>, tower: Tower) -> Result<Self> {
        let third = tower != Tower::Qwen25;
        let pick = |second, other| if third { other } else { second };
        let hidden = config.size("hidden_size", pick(3584, 1152))?;
        let heads = match config.optional_size("num_attention_heads")? {
            Some(heads) => heads,
            None => config.size("num_heads", 16)?,
        };
        divide(config, ("hidden_size", hidden), ("num_heads", heads))?;
        let merge = config.size("spatial_merge_size", 2)?;
        // `config.size` has a bound, and the product of three has none.
        let merged = hidden.saturating_mul(merge).saturating_mul(merge);
        if merged > super::config::MAX_SIZE {
            let problem = format!("{merge} by {merge} patches of {hidden} make {merged} dimensions");
            return Err(config.error("spatial_merge_size", problem, "give the sizes of the model's config.json"));
        }
        Ok(Self {
            depth: config.layers("depth", pick(32, 27))?,
            hidden,
            intermediate: config.size("intermediate_size", pick(3420, 4304))?,
            heads,
            channels: config.size("in_channels", 3)?,
            frames: config.side("temporal_patch_size", 2)?,
            patch: config.side("patch_size", pick(14, 16))?,
            merged,
            out: config.size("out_hidden_size", 3584)?,
            positions: config.size("num_position_embeddings", 2304)?,
            deep: (tower == Tower::Qwen3)
                .then(|| config.counts("deepstack_visual_indexes").map_or(3, |layers| layers.len() as u64)),
        })
    }
}

/// What a module holds that is never called.
#[derive(Debug)]
#[allow(dead_code, reason = "it is held, and that is all")]
enum Held {
    Table(Embedding),
    Layer(Norm),
    Project(Linear),
    Gated(Box<GatedMlp>),
    Weights(Vec<Tensor>),
    Several(ModuleList<Vec<Held>>),
}

/// `model.visual`.
#[derive(Debug)]
#[allow(dead_code, reason = "it is held, and that is all")]
pub struct VisionTower(Vec<Held>);

/// `nn.Conv3d` without overlaps, and what peft puts beside it where it is called by its name: `all-linear` leaves it alone.
fn conv(scope: &Scope, sizes: &Sizes, bias: bool) -> Held {
    let lora = scope.adapter(true).cloned();
    let inner = if lora.is_some() { scope.child("base_layer") } else { scope.clone() };
    let kernel = [sizes.frames, sizes.patch, sizes.patch];
    let mut weights = vec![inner.parameter(&[&[sizes.hidden, sizes.channels], &kernel[..]].concat())];
    weights.extend(bias.then(|| inner.parameter(&[sizes.hidden])));
    if let Some(lora) = lora {
        let part = |name: &'static str, sizes: &[u64]| {
            scope.child(name).child("default").adapter_parameter(sizes, scope.dtype())
        };
        weights.push(part("lora_A", &[&[lora.rank, sizes.channels], &kernel[..]].concat()));
        weights.push(part("lora_B", &[sizes.hidden, lora.rank, 1, 1, 1]));
        weights.extend(lora.dora.then(|| part("lora_magnitude_vector", &[1, sizes.hidden, 1, 1, 1])));
    }
    Held::Weights(weights)
}

/// `rotary_pos_emb`: a frequency for every pair of half a head, twice ([`rules::VISION_FREQUENCIES_TWICE`]).
fn frequencies(scope: &Scope, sizes: &Sizes) -> Held {
    let count = (sizes.hidden / sizes.heads / 2).div_ceil(2);
    let copies = if scope.cx().machine().rules.has(&rules::VISION_FREQUENCIES_TWICE) { 2 } else { 1 };
    Held::Weights((0..copies).map(|_| scope.buffer(&[count])).collect())
}

impl VisionTower {
    /// The tower at `scope`, `vision_config` in its words.
    ///
    /// # Errors
    /// Sizes that are missing, too large or contradict one another.
    pub fn new(scope: &Scope, config: &Config<'_>, tower: Tower) -> Result<Self> {
        let sizes = Sizes::read(config, tower)?;
        Ok(Self(match tower {
            Tower::Qwen25 => second(scope, config, &sizes)?,
            Tower::Qwen3 | Tower::Qwen35 => third(scope, &sizes),
        }))
    }
}

fn linear(scope: &Scope, name: &'static str, inputs: u64, outputs: u64) -> Held {
    Held::Project(Linear::new(&scope.child(name), inputs, outputs, true))
}

fn attention(scope: &Scope, sizes: &Sizes) -> [Held; 2] {
    let attn = scope.child("attn");
    let width = sizes.hidden;
    [linear(&attn, "qkv", width, width.saturating_mul(3)), linear(&attn, "proj", width, width)]
}

fn second(scope: &Scope, config: &Config<'_>, sizes: &Sizes) -> Result<Vec<Held>> {
    let width = sizes.hidden;
    let act = config.text("hidden_act", "silu")?;
    let norm = |scope: &Scope, name: &'static str| Held::Layer(Norm::Rms(RmsNorm::new(&scope.child(name), width)));
    let patches = conv(&scope.child("patch_embed").child("proj"), sizes, false);
    let rotary = frequencies(&scope.child("rotary_pos_emb"), sizes);
    let blocks = ModuleList::new(scope, "blocks", sizes.depth, |scope, _| {
        let mut held = vec![norm(scope, "norm1"), norm(scope, "norm2")];
        held.extend(attention(scope, sizes));
        held.push(Held::Gated(Box::new(GatedMlp::new(&scope.child("mlp"), width, sizes.intermediate, act, true)?)));
        Some(held)
    });
    let blocks = blocks.ok_or_else(|| super::unknown_activation(config, "hidden_act", act))?;
    let merger = scope.child("merger");
    let ln_q = norm(&merger, "ln_q");
    // An activation without parameters is between the two.
    let project = |i, outputs| Held::Project(Linear::new(&merger.item("mlp", i), sizes.merged, outputs, true));
    let mlp = [project(0, sizes.merged), project(2, sizes.out)];
    Ok([patches, rotary, Held::Several(blocks), ln_q].into_iter().chain(mlp).collect())
}

fn third(scope: &Scope, sizes: &Sizes) -> Vec<Held> {
    let width = sizes.hidden;
    let norm = |scope: &Scope, name: &'static str, width| {
        Held::Layer(Norm::Layer(LayerNorm::new(&scope.child(name), width, true)))
    };
    let merger = |scope: &Scope, normed| {
        vec![
            norm(scope, "norm", normed),
            linear(scope, "linear_fc1", sizes.merged, sizes.merged),
            linear(scope, "linear_fc2", sizes.merged, sizes.out),
        ]
    };
    let patches = conv(&scope.child("patch_embed").child("proj"), sizes, true);
    let positions = Held::Table(Embedding::new(&scope.child("pos_embed"), sizes.positions, width));
    let rotary = frequencies(&scope.child("rotary_pos_emb"), sizes);
    let blocks = ModuleList::of(scope, "blocks", sizes.depth, |scope, _| {
        let mut held = vec![norm(scope, "norm1", width), norm(scope, "norm2", width)];
        held.extend(attention(scope, sizes));
        let mlp = scope.child("mlp");
        held.push(linear(&mlp, "linear_fc1", width, sizes.intermediate));
        held.push(linear(&mlp, "linear_fc2", sizes.intermediate, width));
        held
    });
    let mut held = vec![patches, positions, rotary, Held::Several(blocks)];
    held.extend(merger(&scope.child("merger"), width));
    let deep = |scope: &Scope, _| merger(scope, sizes.merged);
    held.extend(sizes.deep.map(|count| Held::Several(ModuleList::of(scope, "deepstack_merger_list", count, deep))));
    held
}
