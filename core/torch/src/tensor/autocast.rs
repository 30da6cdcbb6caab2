//! `torch.autocast`: the region, its dtype and its cache of weight copies (`aten/src/ATen/autocast_mode.cpp`).

use std::rc::Rc;

use plimsoll_ledger::DType;

use super::context::Context;
use super::storage::Tensor;

/// An open region.
#[derive(Debug)]
pub(super) struct Autocast {
    dtype: DType,
    /// Low-precision copies of the weights, by the weight's storage id; one cast a region.
    cache: Vec<Option<Tensor>>,
}

impl Context {
    /// The open region's dtype.
    pub fn autocast_dtype(&self) -> Option<DType> {
        self.autocast.borrow().as_ref().map(|a| a.dtype)
    }

    /// Runs `f` inside an autocast region of its own (or outside any, for `None`); its weight cache dies at the end.
    pub fn with_autocast<T>(&self, dtype: Option<DType>, f: impl FnOnce() -> T) -> T {
        let outer = self.autocast.replace(dtype.map(|dtype| Autocast { dtype, cache: Vec::new() }));
        let out = f();
        // Dropping the cached copies frees storages, which reaches back into the context: let the borrow end first.
        let region = self.autocast.replace(outer);
        drop(region);
        out
    }

    /// Runs `f` with autocast switched off; the region around it keeps its copies.
    pub fn without_autocast<T>(&self, f: impl FnOnce() -> T) -> T {
        let outer = self.autocast.take();
        let out = f();
        let inner = self.autocast.replace(outer);
        drop(inner);
        out
    }

    /// Ends the open region before its time: what the forward still does after it runs outside autocast.
    pub fn leave_autocast(&self) {
        let region = self.autocast.take();
        drop(region);
    }

    /// What `sum` makes of this type: in an open region float32 (`fp32_set_opt_dtype` of `aten/src/ATen/autocast_mode.h`), in a
    /// backward too that is run in one.
    pub fn summed(&self, dtype: DType) -> DType {
        if self.autocast.borrow().is_some() && dtype.is_half() { DType::Float32 } else { dtype }
    }

    /// The cached copy of a weight.
    pub fn cached_copy(&self, weight: &Tensor) -> Option<Tensor> {
        let autocast = self.autocast.borrow();
        autocast.as_ref()?.cache.get(weight.storage_id() as usize)?.clone()
    }

    /// Remembers a weight's copy until the region ends.
    pub fn cache_copy(self: &Rc<Self>, weight: &Tensor, copy: &Tensor) {
        if let Some(region) = self.autocast.borrow_mut().as_mut().filter(|_| !self.has_threads()) {
            let index = weight.storage_id() as usize;
            if region.cache.len() <= index {
                region.cache.resize(index + 1, None);
            }
            region.cache[index] = Some(copy.clone());
        }
    }
}
