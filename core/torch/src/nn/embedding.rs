//! `nn.Embedding`.

use super::scope::Scope;
use crate::ops;
use crate::tensor::{ModuleId, Tensor};

/// `nn.Embedding(rows, features)`.
#[derive(Debug)]
pub struct Embedding {
    /// What a tied head shares.
    weight: Tensor,
    /// What is looked up: the weight, or the copy that is trained in its place.
    table: Tensor,
    module: ModuleId,
}

impl Embedding {
    /// A table of `rows` vectors.
    pub fn new(scope: &Scope, rows: u64, features: u64) -> Self {
        let table = Self::of(scope, scope.original(&[rows, features]));
        scope.indexes();
        scope.cx().mark_outer(&table.weight);
        scope.cx().mark_outer(&table.table);
        table
    }

    /// A table that is never trained.
    pub fn frozen(scope: &Scope, rows: u64, features: u64) -> Self {
        Self::of(scope, scope.frozen_parameter(&[rows, features]))
    }

    /// A table that shares another one's weight.
    pub fn tied(scope: &Scope, weight: &Tensor) -> Self {
        scope.shares(weight);
        Self::of(scope, weight.clone())
    }

    fn of(scope: &Scope, weight: Tensor) -> Self {
        let table = scope.copy_of(&weight).unwrap_or_else(|| weight.clone());
        Self { weight, table, module: scope.module() }
    }

    /// The table, for a head that shares it.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// `forward`.
    pub fn forward(&self, indices: &Tensor) -> Tensor {
        indices.cx().within(self.module, || ops::embedding(&self.table, indices))
    }
}
