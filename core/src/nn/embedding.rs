//! `nn.Embedding`.

use super::scope::Scope;
use crate::ops;
use crate::tensor::{ModuleId, Tensor};

/// `nn.Embedding(rows, features)`.
#[derive(Debug)]
pub struct Embedding {
    weight: Tensor,
    module: ModuleId,
}

impl Embedding {
    /// A table of `rows` vectors.
    pub fn new(scope: &Scope, rows: u64, features: u64) -> Self {
        let weight = scope.parameter(&[rows, features]);
        scope.cx().mark_outer(&weight);
        Self { weight, module: scope.module() }
    }

    /// A table that is never trained.
    pub fn frozen(scope: &Scope, rows: u64, features: u64) -> Self {
        Self { weight: scope.frozen_parameter(&[rows, features]), module: scope.module() }
    }

    /// A table that shares another one's weight.
    pub fn tied(scope: &Scope, weight: &Tensor) -> Self {
        Self { weight: weight.clone(), module: scope.module() }
    }

    /// The table, for a head that shares it.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// `forward`.
    pub fn forward(&self, indices: &Tensor) -> Tensor {
        indices.cx().within(self.module, || ops::embedding(&self.weight, indices))
    }
}
