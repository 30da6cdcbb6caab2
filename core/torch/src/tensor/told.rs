//! Storages that a recording tells of: no op of ours makes them, so whoever plays the recording says all there is to say.

use std::rc::Rc;

use plimsoll_ledger::{Birth, DType, GradFnId, Kind, ModuleId, OpId};

use super::context::Context;
use super::geometry::Geometry;
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
    /// Sizes of the tensor it comes for.
    pub sizes: &'a [u64],
    /// Why it exists; `None`: by the phase.
    pub kind: Option<Kind>,
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
            return Tensor::fresh(self, 0, Geometry::contiguous(told.sizes), told.dtype);
        }
        let Told { bytes, op, grad_fn, module, dtype, sizes, kind } = told;
        let kind = kind.unwrap_or_else(|| self.kind());
        let birth = Birth { bytes, kind, op, grad_fn, module, dtype, sizes, owner: None };
        let id = self.recorder.borrow_mut().birth(birth);
        self.refer(id);
        Tensor::fresh(self, id, Geometry::contiguous(sizes), dtype)
    }

    /// Another tensor on a storage that comes from a recording; `None` where nothing refers to it any more.
    pub fn told_again(self: &Rc<Self>, id: u32) -> Option<Tensor> {
        let dtype = self.recorder.borrow().ledger().storages.get(id as usize)?.dtype;
        if self.references(id) == 0 {
            return None;
        }
        self.retain(id);
        Some(Tensor::fresh(self, id, Geometry::contiguous(&[]), dtype))
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

    /// A storage became a parameter's `.grad`.
    pub fn gradient_told(&self, tensor: &Tensor) {
        self.raise(tensor.storage_id(), Kind::Gradient);
    }
}
