//! `_group_tensors_by_device_and_dtype`: what the foreach implementations work through one after the other.

use super::with_gradients;
use crate::tensor::{DType, Tensor};

/// [`by_dtype`], each dtype's by themselves.
pub fn by_dtype_apart(parameters: &[Tensor]) -> Vec<Vec<&Tensor>> {
    let mut groups: Vec<Vec<&Tensor>> = Vec::new();
    for p in by_dtype(parameters) {
        match groups.last_mut() {
            Some(group) if group.last().is_some_and(|last| last.dtype() == p.dtype()) => group.push(p),
            _ => groups.push(vec![p]),
        }
    }
    groups
}

/// Every parameter with a gradient, in the order foreach works on them: one dtype after the other. The groups are in a C++
/// `unordered_map`, which libstdc++ walks from the key that was inserted last.
pub fn by_dtype(parameters: &[Tensor]) -> Vec<&Tensor> {
    let mut order: Vec<DType> = Vec::new();
    let mut grouped: Vec<&Tensor> = Vec::with_capacity(parameters.len());
    for (_, p) in with_gradients(parameters) {
        if !order.contains(&p.dtype()) {
            order.push(p.dtype());
        }
        grouped.push(p);
    }
    if order.len() > 1 {
        grouped.sort_by_key(|p| std::cmp::Reverse(order.iter().position(|dtype| *dtype == p.dtype())));
    }
    grouped
}
