//! `nbeats`: generic N-BEATS blocks, mean squared error.

use std::rc::Rc;

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Activation, Linear, Scope};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor};
use plimsoll_torch::{Batch, Field};

use super::config::Config;
use super::{Model, Output, Plan};

#[derive(Debug)]
struct Block {
    fc: Vec<(Linear, Option<Activation>)>,
    theta_b: Linear,
    theta_f: Linear,
    backcast: Linear,
    forecast: Linear,
    module: ModuleId,
}

impl Block {
    fn forward(&self, x: &Tensor) -> (Tensor, Tensor) {
        x.cx().within(self.module, || {
            let mut hidden = x.clone();
            for (linear, relu) in &self.fc {
                hidden = linear.forward(&hidden);
                if let Some(relu) = relu {
                    hidden = relu.forward(&hidden);
                }
            }
            let backcast = self.backcast.forward(&self.theta_b.forward(&hidden));
            let forecast = self.forecast.forward(&self.theta_f.forward(&hidden));
            (backcast, forecast)
        })
    }
}

#[derive(Debug)]
struct NBeats {
    cx: Rc<Context>,
    blocks: Vec<Block>,
    batch: u64,
    backcast: u64,
    horizon: u64,
    dtype: DType,
}

/// `stacks` blocks in a row.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let stacks = config.layers("stacks", 30)?;
    let layers = config.layers("layers", 4)?;
    let width = config.size("width", 512)?;
    let theta = config.size("theta", 32)?;
    let backcast = config.size("backcast", 96)?;
    let horizon = config.size("horizon", 24)?;
    let blocks = (0..stacks)
        .map(|i| {
            let scope = scope.item("blocks", i);
            let fc = (0..layers)
                .map(|j| {
                    let inputs = if j == 0 { backcast } else { width };
                    let linear = Linear::new(&scope.item("fc", 2 * j), inputs, width, true);
                    (linear, Activation::new(&scope.item("fc", 2 * j + 1), "relu"))
                })
                .collect();
            Block {
                fc,
                theta_b: Linear::new(&scope.child("tb"), width, theta, false),
                theta_f: Linear::new(&scope.child("tf"), width, theta, false),
                backcast: Linear::new(&scope.child("b"), theta, backcast, true),
                forecast: Linear::new(&scope.child("f"), theta, horizon, true),
                module: scope.module(),
            }
        })
        .collect();
    Ok(Box::new(NBeats {
        cx: Rc::clone(scope.cx()),
        blocks,
        batch: plan.input.batch,
        backcast,
        horizon,
        dtype: scope.dtype(),
    }))
}

impl Model for NBeats {
    fn batch(&self) -> Batch {
        let history = ops::empty(&self.cx, &[self.batch, self.backcast], self.dtype);
        Batch::of(history).with(Field::Labels, ops::labels(&self.cx, &[self.batch, self.horizon], self.dtype))
    }

    fn forward(&self, batch: &Batch) -> Output {
        let forecast = self.forecast(batch.inputs());
        Output { loss: ops::mse_loss(&forecast, batch.labels()), held: vec![forecast] }
    }
}

impl NBeats {
    fn forecast(&self, history: &Tensor) -> Tensor {
        let mut x = history.clone();
        // The loop's names hold a block's two outputs until the next block's take them.
        let (mut backcast, mut part) = self.blocks[0].forward(&x);
        let mut forecast = part.clone();
        x = ops::sub(&x, &backcast);
        for block in &self.blocks[1..] {
            (backcast, part) = block.forward(&x);
            x = ops::sub(&x, &backcast);
            forecast = ops::add(&forecast, &part);
        }
        forecast
    }
}
