//! A list of Python's.

use std::ops::Deref;

use crate::tensor::Tensor;

/// Tensors that a list of Python's holds. It lets go of the last one first (`list_dealloc` in CPython's `Objects/listobject.c`),
/// which decides what blocks of theirs are put together in the allocator.
#[derive(Debug, Default)]
pub struct PythonList(Vec<Tensor>);

impl FromIterator<Tensor> for PythonList {
    fn from_iter<I: IntoIterator<Item = Tensor>>(tensors: I) -> Self {
        Self(tensors.into_iter().collect())
    }
}

impl Deref for PythonList {
    type Target = [Tensor];

    fn deref(&self) -> &[Tensor] {
        &self.0
    }
}

impl Drop for PythonList {
    fn drop(&mut self) {
        while self.0.pop().is_some() {}
    }
}
