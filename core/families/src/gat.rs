//! `gat`: a graph attention network (Velickovic et al. 2018) on a dense adjacency matrix.

use std::rc::Rc;

use plimsoll_ground::Result;
use plimsoll_torch::nn::Scope;
use plimsoll_torch::ops::{self, Pointwise};
use plimsoll_torch::tensor::{Context, DType, ModuleId, Tensor};
use plimsoll_torch::{Batch, Field};

use super::config::Config;
use super::{Model, Output, Plan};

/// One layer: every node attends to every other; what is no edge is masked out.
#[derive(Debug)]
struct Layer {
    weight: Tensor,
    a1: Tensor,
    a2: Tensor,
    /// Heads side by side and an ELU; else their mean.
    concat: bool,
    dropout: f64,
    module: ModuleId,
}

impl Layer {
    fn new(scope: &Scope, [inputs, outputs, heads]: [u64; 3], concat: bool, dropout: f64) -> Self {
        Self {
            weight: scope.parameter(&[heads, inputs, outputs]),
            a1: scope.parameter(&[heads, outputs, 1]),
            a2: scope.parameter(&[heads, outputs, 1]),
            concat,
            dropout,
            module: scope.module(),
        }
    }

    fn forward(&self, x: &Tensor, adjacency: &Tensor) -> Tensor {
        let cx = x.cx();
        cx.within(self.module, || {
            let x = ops::dropout(x, self.dropout);
            let h = ops::matmul(&x, &self.weight);
            let mut scores = {
                let sum = {
                    let source = ops::matmul(&h, &self.a1);
                    let target = ops::matmul(&h, &self.a2);
                    ops::add(&source, &ops::transpose(&target, 1, 2))
                };
                ops::leaky_relu(&sum)
            };
            scores = {
                let no_edge = ops::pointwise(Pointwise::EqScalar, adjacency, &[], adjacency.dims(), DType::Bool);
                ops::masked_fill(&scores, &no_edge)
            };
            let attention = ops::dropout(&ops::softmax(&scores), self.dropout);
            let out = ops::matmul(&attention, &h);
            let result = if self.concat {
                let (heads, nodes, features) = (out.size(0), out.size(1), out.size(2));
                ops::elu(&ops::reshape(&ops::permute(&out, &[1, 0, 2]), &[nodes, heads * features]))
            } else {
                ops::mean(&out, 0)
            };
            // Python lets go of a function's names in the order they were bound.
            drop(x);
            drop((h, scores, attention, out));
            result
        })
    }
}

#[derive(Debug)]
struct Gat {
    cx: Rc<Context>,
    first: Layer,
    second: Layer,
    nodes: u64,
    features: u64,
    dtype: DType,
}

/// Two layers: `n_heads` heads of `n_hid` side by side, then one head of `n_class`.
pub fn build(scope: &Scope, config: &Config<'_>, plan: &Plan) -> Result<Box<dyn Model>> {
    let features = config.size("n_feat", 1433)?;
    let hidden = config.size("n_hid", 8)?;
    let heads = config.size("n_heads", 8)?;
    let classes = config.size("n_class", 7)?;
    let dropout = config.probability("dropout", 0.6)?;
    let first = Layer::new(&scope.child("l1"), [features, hidden, heads], true, dropout);
    let second = Layer::new(&scope.child("l2"), [hidden * heads, classes, 1], false, dropout);
    Ok(Box::new(Gat { cx: Rc::clone(scope.cx()), first, second, nodes: plan.seq()?, features, dtype: scope.dtype() }))
}

impl Model for Gat {
    fn batch(&self) -> Batch {
        let tensor = |sizes: &[u64], dtype| ops::empty(&self.cx, sizes, dtype);
        let features = tensor(&[self.nodes, self.features], self.dtype);
        let adjacency = tensor(&[self.nodes, self.nodes], self.dtype);
        let labels = ops::labels(&self.cx, &[self.nodes], DType::Int64);
        Batch::of(features).with(Field::Adjacency, adjacency).with(Field::Labels, labels)
    }

    fn forward(&self, batch: &Batch) -> Output {
        let mut x = self.first.forward(batch.inputs(), batch.field(Field::Adjacency));
        x = self.second.forward(&x, batch.field(Field::Adjacency));
        Output { loss: ops::cross_entropy(&x, batch.labels()), held: vec![x] }
    }
}
