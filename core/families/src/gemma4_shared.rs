//! What Gemma 4's layers are handed beside the hidden states: an input of their own each, and the keys and values of layers before
//! them.

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Embedding, Linear, PowerRmsNorm, Scope};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::Tensor;

use super::config::Config;
use super::decoder::embed_scale;

/// What one forward makes for its layers.
#[derive(Debug)]
pub struct Beside {
    /// `per_layer_inputs`, `[batch, seq, layers, features]`.
    per_layer: Option<Tensor>,
    /// What all of them are handed.
    pub shared: Rc<Shared>,
}

impl Beside {
    /// `per_layer_inputs[:, :, i, :]`.
    pub fn input(&self) -> Option<Tensor> {
        self.per_layer.as_ref().map(|inputs| ops::select(inputs, 2))
    }
}

/// What one forward hands to all of its layers.
#[derive(Debug, Default)]
pub struct Shared {
    /// `shared_kv_states`: of full and of windowed layers.
    states: RefCell<[Option<(Tensor, Tensor)>; 2]>,
}

impl Shared {
    /// A layer leaves its keys and values for those of its kind behind it.
    pub fn store(&self, windowed: bool, key: &Tensor, value: &Tensor) {
        // What stood there goes when the place can be asked again.
        let before = self.states.borrow_mut()[usize::from(windowed)].replace((key.clone(), value.clone()));
        drop(before);
    }

    /// What the last layer of the kind that has its own left.
    pub fn stored(&self, windowed: bool) -> Option<(Tensor, Tensor)> {
        self.states.borrow()[usize::from(windowed)].clone()
    }
}

/// What a model makes of that before its layers run.
#[derive(Debug)]
pub struct Sharing {
    per_layer: Option<PerLayer>,
}

/// `embed_tokens_per_layer` and what stands behind it.
#[derive(Debug)]
struct PerLayer {
    table: Embedding,
    scale: Tensor,
    projection: Linear,
    norm: PowerRmsNorm,
    layers: u64,
    features: u64,
}

impl Sharing {
    /// Of `layers` layers of a model that is `hidden` wide, `features` of which are each layer's own.
    ///
    /// # Errors
    /// A vocabulary that is no size.
    pub fn new(model: &Scope, config: &Config<'_>, (layers, hidden, features): (u64, u64, u64)) -> Result<Self> {
        if features == 0 {
            return Ok(Self { per_layer: None });
        }
        let vocab = config.size("vocab_size_per_layer_input", 262_144)?;
        let embedding = model.child("embed_tokens_per_layer");
        let table = Embedding::new(&embedding, vocab, layers * features);
        let scale = embed_scale(&embedding);
        let projection = Linear::new(&model.child("per_layer_model_projection"), hidden, layers * features, false);
        let norm = PowerRmsNorm::new(&model.child("per_layer_projection_norm"), features);
        Ok(Self { per_layer: Some(PerLayer { table, scale, projection, norm, layers, features }) })
    }

    /// For one forward.
    pub fn begin(&self, ids: &Tensor, embeds: &Tensor) -> Beside {
        let per_layer = self.per_layer.as_ref().map(|own| own.inputs(ids, embeds));
        Beside { per_layer, shared: Rc::default() }
    }
}

impl PerLayer {
    /// `get_per_layer_inputs`, then `project_per_layer_inputs`.
    fn inputs(&self, ids: &Tensor, embeds: &Tensor) -> Tensor {
        let sizes = [embeds.size(0), embeds.size(1), self.layers, self.features];
        let looked_up = {
            let rows = self.table.forward(ids);
            ops::reshape(&ops::mul(&rows, &ops::to(&self.scale, rows.dtype())), &sizes)
        };
        let mut projected = {
            let product = self.projection.forward(embeds);
            ops::mul_scalar(&product)
        };
        projected = ops::reshape(&projected, &sizes);
        projected = self.norm.forward(&projected);
        let sum = ops::add(&projected, &looked_up);
        ops::mul_scalar(&sum)
    }
}
