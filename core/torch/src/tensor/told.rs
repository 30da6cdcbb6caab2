//! Storages that a recording tells of: no op of ours makes them, so whoever plays the recording says all there is to say.

use std::rc::Rc;

use plimsoll_ledger::{Birth, DType, GradFnId, Kind, ModuleId, OpId};
use smallvec::SmallVec;

use super::context::Context;
use super::geometry::{Geometry, MAX_RANK};
use super::heard::Call;
use super::storage::Tensor;
use crate::GradFn;

/// What a recording says of a storage as it comes.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// Bytes.
    pub bytes: u64,
    /// The operator, by [`Context::name_op`].
    pub op: OpId,
    /// Autograd's function, by [`Context::name_grad_fn`].
    pub grad_fn: GradFnId,
    /// The module.
    pub module: ModuleId,
    /// Element type.
    pub dtype: DType,
    /// The tensor it comes for.
    pub shape: &'a ToldShape,
    /// Why it exists; `None`: by the phase.
    pub kind: Option<Kind>,
}

/// The sizes of a recorded tensor: many have the same.
#[derive(Clone, Debug)]
pub struct ToldShape {
    sizes: SmallVec<[u64; MAX_RANK]>,
    geometry: Geometry,
}

impl ToldShape {
    /// Of these sizes.
    pub fn new(sizes: impl IntoIterator<Item = u64>) -> Self {
        let sizes: SmallVec<[u64; MAX_RANK]> = sizes.into_iter().collect();
        let geometry = folded(&sizes);
        Self { sizes, geometry }
    }

    /// The sizes that were recorded.
    pub fn sizes(&self) -> &[u64] {
        &self.sizes
    }

    /// The geometry that stands for them.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }
}

/// The geometry of a recorded tensor. One of more dimensions than ours have has its first ones in one: it is as large, and what
/// optimizers do with the last two stays.
fn folded(sizes: &[u64]) -> Geometry {
    let Some(more) = sizes.len().checked_sub(MAX_RANK).filter(|more| *more > 0) else {
        return Geometry::contiguous(sizes);
    };
    let (first, last) = sizes.split_at(more + 1);
    let mut dims = [first.iter().fold(1, |n: u64, size| n.saturating_mul(*size)); MAX_RANK];
    dims[1..].copy_from_slice(last);
    Geometry::contiguous(&dims)
}

impl Context {
    /// The number of an operator's name, which a recording may be the first to say.
    pub fn name_op(&self, name: &str) -> OpId {
        self.recorder.borrow_mut().name_op(name)
    }

    /// The number of the name of an autograd function.
    pub fn name_grad_fn(&self, name: &str) -> GradFnId {
        self.recorder.borrow_mut().name_grad_fn(name)
    }

    /// A tensor on a storage that comes now.
    pub fn told(self: &Rc<Self>, told: Told<'_>) -> Tensor {
        if self.exhausted() {
            // Any storage will do: nobody reads this ledger.
            self.retain(0);
            return Tensor::fresh(self, 0, told.shape.geometry.clone(), told.dtype);
        }
        let Told { bytes, op, grad_fn, module, dtype, shape, kind } = told;
        let kind = kind.unwrap_or_else(|| self.kind());
        let birth = Birth { bytes, kind, op, grad_fn, module, dtype, sizes: &shape.sizes, owner: None };
        let id = self.recorder.borrow_mut().birth(birth);
        self.runs(op);
        self.refer(id);
        Tensor::fresh(self, id, shape.geometry.clone(), dtype)
    }

    /// Another tensor on a storage that comes from a recording; `None` where nothing refers to it any more.
    pub fn told_again(self: &Rc<Self>, id: u32, shape: &ToldShape) -> Option<Tensor> {
        let dtype = self.recorder.borrow().ledger().storages.get(id as usize)?.dtype;
        if self.references(id) == 0 {
            return None;
        }
        self.retain(id);
        Some(Tensor::fresh(self, id, shape.geometry.clone(), dtype))
    }

    /// A matrix product runs that a recording tells of, in the thread of the forward or of backward: each has a handle.
    pub fn product_told(self: &Rc<Self>, bias: bool, backward: bool) {
        // Any function stands for that of the product: only whether there is one is asked.
        let grad_fn = if backward { GradFn::AddmmBackward0 } else { GradFn::None };
        let outer = self.grad_fn.replace(grad_fn);
        if bias {
            self.blas_with_bias();
        } else {
            self.blas();
        }
        self.grad_fn.set(outer);
    }

    /// Autograd keeps a storage: what the forward made becomes what is saved.
    pub fn keep_told(&self, tensor: &Tensor) {
        self.raise(tensor.storage_id(), Kind::Saved);
    }

    /// A module is called, behind so many calls and returns of this forward: these stand for the nodes of the graph, of which a
    /// recording makes none. `takes` says whether it is given something that takes a gradient.
    pub fn enters_told(self: &Rc<Self>, module: ModuleId, turns: u32, takes: bool) {
        self.next_seq.set(turns);
        self.takes_told.set(Some(takes));
        self.tell(Call::Enters(module));
        self.takes_told.set(None);
    }

    /// A module returns.
    pub fn leaves_told(self: &Rc<Self>, module: ModuleId, turns: u32) {
        self.next_seq.set(turns);
        self.tell(Call::Leaves(module));
    }

    /// Backward comes to what the forward made behind so many calls and returns.
    pub fn reaches_told(self: &Rc<Self>, turns: u32) {
        self.tell(Call::Reaches(turns));
    }

    /// A parameter has its gradient.
    pub fn arrived_told(self: &Rc<Self>, parameter: &Tensor) {
        if let Some(leaf) = parameter.edge().and_then(|edge| edge.node.leaf()) {
            leaf.tell(self);
        }
    }

    /// Backward is over.
    pub fn finishes_told(self: &Rc<Self>) {
        if let Some(hooks) = self.hooks() {
            hooks.finishes(self);
        }
    }

    /// A storage became a parameter's `.grad`.
    pub fn gradient_told(&self, tensor: &Tensor) {
        self.raise(tensor.storage_id(), Kind::Gradient);
    }
}

#[cfg(test)]
mod tests {
    use super::folded;

    #[test]
    fn a_tensor_of_more_dimensions_than_ours_is_as_large_as_it_was() {
        let seven = folded(&[2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((seven.dims(), seven.numel()), ([6, 4, 5, 6, 7, 8].as_slice(), 40_320));
        assert_eq!(folded(&[2, 3, 4, 5, 6, 7]).dims(), [2, 3, 4, 5, 6, 7]);
        assert_eq!(folded(&[u64::MAX; 9]).numel(), u64::MAX);
    }
}
