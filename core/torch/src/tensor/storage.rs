//! The tensor: geometry over a reference-counted storage, and the autograd edge it came from.

use std::rc::Rc;

use plimsoll_ledger::DType;
use plimsoll_ledger::Kind;

use super::autograd::{Edge, Node};
use super::context::Context;
use super::geometry::Geometry;

/// A reference to a storage, which is alive exactly as long as one exists; its death is an event on the ledger. The
/// counts stand in the context: a step makes thousands of storages, and none needs a heap allocation of its own.
#[derive(Debug)]
struct Storage {
    id: u32,
    cx: Rc<Context>,
}

impl Clone for Storage {
    fn clone(&self) -> Self {
        self.cx.retain(self.id);
        Self { id: self.id, cx: Rc::clone(&self.cx) }
    }
}

impl Drop for Storage {
    fn drop(&mut self) {
        self.cx.release(self.id);
    }
}

/// A tensor with a size and a lifetime but no contents. Cloning it is taking another reference, as in Python.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// First, as `TensorImpl::release_resources` lets go of the graph before the storage.
    edge: Option<Edge>,
    storage: Storage,
    geometry: Geometry,
    dtype: DType,
    /// Made by a view op: PyTorch's view metadata then keeps the base alive, so the storage has a second owner.
    is_view: bool,
    /// How many elements of the storage lie before its first, as far as 32 bits can say. It has no bearing on what is allocated, and is
    /// known of what is split and of what is cut off elsewhere than at its front by [`crate::ops::narrow_from`]: parts of one storage
    /// are told apart by it.
    offset: u32,
}

impl Tensor {
    pub(super) fn fresh(cx: &Rc<Context>, id: u32, geometry: Geometry, dtype: DType) -> Self {
        Self { storage: Storage { id, cx: Rc::clone(cx) }, geometry, dtype, is_view: false, offset: 0, edge: None }
    }

    /// The run it belongs to.
    pub fn cx(&self) -> &Rc<Context> {
        &self.storage.cx
    }

    /// Whether it is a view of another tensor.
    pub(super) fn is_view(&self) -> bool {
        self.is_view
    }

    /// Its storage's id on the ledger.
    pub fn storage_id(&self) -> u32 {
        self.storage.id
    }

    /// Whether nothing else refers to the storage.
    pub fn is_sole_owner(&self) -> bool {
        self.storage.cx.references(self.storage.id) == 1
    }

    /// Whether nothing else refers to this very tensor (`use_count() == 1`). Other tensors may have the storage of a view; that
    /// of a tensor that is none has no other owner, as views of it would keep it alive.
    pub fn is_only_handle(&self) -> bool {
        self.is_sole_owner() || (self.is_view && self.geometry.is_unshared())
    }

    /// Whether a sum may be written over it (`can_accumulate_inplace` in `input_buffer.cpp`).
    pub fn can_accumulate_in_place(&self) -> bool {
        !self.is_view && self.is_sole_owner() && self.geometry.is_dense() && !self.storage.cx.is_seen(self.storage.id)
    }

    /// Sizes and strides.
    pub fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// Sizes.
    pub fn dims(&self) -> &[u64] {
        self.geometry.dims()
    }

    /// Size of dimension `i`; negative counts from the end.
    pub fn size(&self, i: isize) -> u64 {
        self.geometry.size(i)
    }

    /// Number of elements.
    pub fn numel(&self) -> u64 {
        self.geometry.numel()
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Whether a gradient will flow to it.
    pub fn requires_grad(&self) -> bool {
        self.edge.is_some()
    }

    /// Whether it is no op's result: a gradient, if any, ends at it.
    pub fn is_leaf(&self) -> bool {
        self.edge.as_ref().is_none_or(|edge| edge.node.leaf().is_some_and(|leaf| leaf.view.get().is_none()))
    }

    /// The node (and its output) the gradient of this tensor goes to.
    pub fn edge(&self) -> Option<&Edge> {
        self.edge.as_ref()
    }

    /// A view: the same storage with other sizes and strides and no history; the caller records its node.
    pub fn view_as(&self, geometry: Geometry) -> Self {
        Self { is_view: true, ..self.unsafe_view_as(geometry) }
    }

    /// The same, beginning so many elements further on in its storage.
    pub(crate) fn beginning(self, further: u64) -> Self {
        let offset = u32::try_from(u64::from(self.offset).saturating_add(further)).unwrap_or(u32::MAX);
        Self { offset, ..self }
    }

    /// How many elements of its storage lie before its first, as far as that is known.
    pub(super) fn offset(&self) -> u32 {
        self.offset
    }

    /// As [`Tensor::view_as`], its bytes taken for another type's.
    pub fn view_of(&self, geometry: Geometry, dtype: DType) -> Self {
        Self { dtype, ..self.view_as(geometry) }
    }

    /// The same tensor on another storage, of whose references this becomes one that was counted already; without history.
    pub(super) fn on_storage(&self, id: u32) -> Self {
        let storage = Storage { id, cx: Rc::clone(&self.storage.cx) };
        let (geometry, dtype) = (self.geometry.clone(), self.dtype);
        Self { storage, geometry, dtype, is_view: self.is_view, offset: self.offset, edge: None }
    }

    /// `_unsafe_view`: as [`Tensor::view_as`], but PyTorch does not track it as a view.
    pub fn unsafe_view_as(&self, geometry: Geometry) -> Self {
        let (storage, dtype) = (self.storage.clone(), self.dtype);
        Self { storage, geometry, dtype, is_view: self.is_view, offset: self.offset, edge: None }
    }

    /// `detach()`.
    pub fn detach(&self) -> Self {
        self.unsafe_view_as(self.geometry.clone())
    }

    /// A tensor on a storage, of whose references it becomes one that was counted already.
    pub(super) fn standing(cx: &Rc<Context>, id: u32, geometry: Geometry, dtype: DType, is_view: bool) -> Self {
        Self { is_view, ..Self::fresh(cx, id, geometry, dtype) }
    }

    /// The same tensor, its gradient going there.
    pub(super) fn with_edge(self, edge: Option<Edge>) -> Self {
        Self { edge, ..self }
    }

    pub(super) fn set_edge(&mut self, node: &Rc<Node>, slot: u32) {
        self.edge = Some(Edge { node: Rc::clone(node), slot });
    }

    /// Marks the storage as kept for backward.
    pub(super) fn mark_saved(&self) {
        self.storage.cx.raise(self.storage.id, Kind::Saved);
    }

    pub(super) fn mark(&self, kind: Kind) {
        self.storage.cx.raise(self.storage.id, kind);
    }
}
