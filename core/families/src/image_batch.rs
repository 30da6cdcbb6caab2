//! A micro-batch of images and their classes.

use std::rc::Rc;

use plimsoll_ground::{Error, Result};
use plimsoll_torch::nn::Scope;
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{Context, DType};
use plimsoll_torch::{Batch, Field};

use super::Plan;

/// Images `[batch, channels, side, side]` in the weights' dtype and int64 classes `[batch]`.
#[derive(Debug)]
pub struct ImageBatch {
    cx: Rc<Context>,
    sizes: [u64; 4],
    dtype: DType,
}

impl ImageBatch {
    /// Of the plan's size.
    ///
    /// # Errors
    /// When the scenario says no size.
    pub fn new(scope: &Scope, plan: &Plan, channels: u64) -> Result<Self> {
        let side = plan.input.image.ok_or_else(|| {
            Error::new("input.image", "this model reads images, but no size is given", "set input.image, in pixels")
        })?;
        let sizes = [plan.input.batch, channels, side, side];
        Ok(Self { cx: Rc::clone(scope.cx()), sizes, dtype: scope.dtype() })
    }

    /// Checks that images have the side the model was made for.
    ///
    /// # Errors
    /// When they do not.
    pub fn must_have_side(&self, side: u64) -> Result<()> {
        let given = self.sizes[3];
        if given == side {
            return Ok(());
        }
        let problem = format!("{given} pixels a side, but the model's position embeddings are for {side}");
        Err(Error::new("input.image", problem, format!("use {side}")))
    }

    /// Checks that images have at least this many pixels a side.
    ///
    /// # Errors
    /// When they do not.
    pub fn must_have_pixels(&self, least: u64) -> Result<()> {
        let given = self.sizes[3];
        if given >= least {
            return Ok(());
        }
        let problem = format!("{given} pixels a side are fewer than the model's patches and stages take together");
        Err(Error::new("input.image", problem, format!("use at least {least}")))
    }

    /// Pixels a side.
    pub fn side(&self) -> u64 {
        self.sizes[3]
    }

    /// Allocates it.
    pub fn make(&self) -> Batch {
        let images = ops::empty(&self.cx, &self.sizes, self.dtype);
        Batch::of(images).with(Field::Labels, ops::labels(&self.cx, &self.sizes[..1], DType::Int64))
    }
}
