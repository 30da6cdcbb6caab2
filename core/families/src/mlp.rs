//! `mlp`: linears and ReLUs, cross-entropy on the output.

use std::rc::Rc;

use plimsoll_ground::Result;
use plimsoll_torch::nn::{Activation, Linear, Scope};
use plimsoll_torch::ops;
use plimsoll_torch::tensor::{Context, DType, ModuleId};
use plimsoll_torch::{Batch, Field};

use super::config::{Config, MAX_LAYERS};
use super::{Model, Output, Plan};

#[derive(Debug)]
struct Mlp {
    cx: Rc<Context>,
    layers: Vec<(Linear, Option<Activation>)>,
    input: [u64; 2],
    dtype: DType,
}

/// `layers - 1` times Linear + ReLU, then a Linear to `d_out`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let d_in = config.size("d_in", 1024)?;
    let hidden = config.size("hidden", 4096)?;
    let count = config.layers("layers", 4)?.min(MAX_LAYERS);
    let d_out = config.size("d_out", 10)?;
    let layers = (0..count)
        .map(|i| {
            let last = i + 1 == count;
            let inputs = if i == 0 { d_in } else { hidden };
            let linear = Linear::new(&scope.item("net", 2 * i), inputs, if last { d_out } else { hidden }, true);
            let relu = if last { None } else { Activation::new(&scope.item("net", 2 * i + 1), "relu") };
            (linear, relu)
        })
        .collect();
    Ok(Box::new(Mlp { cx: Rc::clone(scope.cx()), layers, input: [plan.input.batch, d_in], dtype: scope.dtype() }))
}

impl Model for Mlp {
    fn batch(&self) -> Batch {
        let features = ops::empty(&self.cx, &self.input, self.dtype);
        Batch::of(features).with(Field::Labels, ops::labels(&self.cx, &self.input[..1], DType::Int64))
    }

    fn forward(&self, batch: &Batch) -> Output {
        let x = self.cx.within(ModuleId::ROOT, || {
            let mut x = batch.inputs().clone();
            for (linear, relu) in &self.layers {
                x = linear.forward(&x);
                if let Some(relu) = relu {
                    x = relu.forward(&x);
                }
            }
            x
        });
        Output { loss: ops::cross_entropy(&x, batch.labels()), held: vec![x] }
    }
}
