//! `step()` of stage 3 (`deepspeed/runtime/zero/stage3.py`): the norm of all gradients, then one sub-group after the other.

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_torch::ops::{self, Fill, Pointwise, Rearrangement, Reduction};
use plimsoll_torch::optim::{self, Share};
use plimsoll_torch::tensor::{Context, DType, Tensor};

use crate::zero::small::{self, Executed, number};

/// What is stepped at a time (`sub_group_size`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SubGroup {
    /// Numbers of the rank's parts of its parameters.
    pub parts: Vec<u64>,
}

impl SubGroup {
    /// `_create_fp16_sub_groups`: a group closes with the parameter that fills it.
    pub fn of(parts: &[u64], size: u64) -> Vec<Self> {
        let (mut groups, mut numel) = (vec![Self::default()], 0u64);
        for part in parts {
            if numel >= size && size > 0 {
                groups.push(Self::default());
                numel = 0;
            }
            if let Some(group) = groups.last_mut() {
                group.parts.push(*part);
                numel = numel.saturating_add(*part);
            }
        }
        groups
    }

    pub fn numel(&self) -> u64 {
        self.parts.iter().fold(0, |sum, part| sum.saturating_add(*part))
    }
}

/// `get_grad_norm_direct`: each part is copied to float64 first.
fn norm(cx: &Rc<Context>, group: &SubGroup) -> Tensor {
    let norms = small::in_double(cx, &group.parts);
    let count = norms.len() as u64;
    let stacked = ops::fill(cx, Fill::Full, &[count], DType::Float64);
    let powers = ops::pointwise(Pointwise::PowTensorTensor, &stacked, &[], &[count], DType::Float64);
    drop(stacked);
    let sum = number(cx, DType::Float64);
    drop(powers);
    let norm = number(cx, DType::Float64);
    drop(sum);
    drop(norms);
    norm
}

/// `complete_grad_norm_calculation_for_cpu_offload`: the sum of all squares in float32, its root, and what
/// `mask_nan_or_inf_with_val_inplace` looks at.
pub fn norms_elsewhere(cx: &Rc<Context>, groups: usize) {
    for _ in 0..groups {
        let sum = number(cx, DType::Float32);
        let root = number(cx, DType::Float32);
        let [infinite, nan, either] = [(); 3].map(|()| number(cx, DType::Bool));
        drop([number(cx, DType::Float32), either, nan, infinite, root, sum]);
    }
}

/// `has_overflow`, of float16.
pub fn look_for_overflow(gradients: &Tensor) {
    let sizes = gradients.dims().to_vec();
    let look = |of: &Tensor, op: Pointwise| {
        let found = ops::pointwise(op, of, &[], &sizes, DType::Bool);
        drop(ops::reduction(Reduction::Any, &found, &[], DType::Bool));
        found
    };
    let whole = ops::pointwise(Pointwise::Abs, gradients, &[], &sizes, gradients.dtype());
    let infinite = ops::pointwise(Pointwise::EqScalar, &whole, &[], &sizes, DType::Bool);
    drop(whole);
    drop(ops::reduction(Reduction::Any, &infinite, &[], DType::Bool));
    drop(infinite);
    drop(look(gradients, Pointwise::NeScalar));
}

/// What a step remembers of the one before.
#[derive(Debug, Default)]
pub struct Step {
    /// `_global_grad_norm`, which the engine holds until its step is over.
    last: RefCell<Option<Tensor>>,
    /// The norm of every sub-group, which is the same in all steps.
    norms: RefCell<Vec<Executed>>,
}

impl Step {
    /// Steps the sub-groups, whose master weights are `masters`; `gradients` are those of all, in `dtype`.
    pub fn run(
        &self,
        cx: &Rc<Context>,
        groups: &[SubGroup],
        masters: &[Tensor],
        dtype: DType,
        gradients: &Tensor,
        optimizers: &mut [Share],
    ) {
        let mut known = self.norms.borrow_mut();
        let norm = |(index, group): (usize, &SubGroup)| match known.get_mut(index) {
            Some(executed) => executed.again(cx, || norm(cx, group)),
            None => {
                let (executed, norm) = Executed::of(cx, || norm(cx, group));
                known.push(executed);
                norm
            }
        };
        let norms: Vec<Tensor> = groups.iter().enumerate().map(norm).collect();
        let combined = number(cx, DType::Float64);
        let scaled = number(cx, DType::Float64);
        for (group, master) in groups.iter().zip(masters) {
            let numel = [group.numel()];
            let flat = (group.parts.len() > 1).then(|| ops::rearrangement(cx, Rearrangement::Cat, &numel, dtype));
            let gradient = if dtype == DType::Float32 {
                flat.unwrap_or_else(|| gradients.clone())
            } else {
                let single = ops::fill(cx, Fill::ToCopy, &numel, DType::Float32);
                drop(flat);
                single
            };
            drop(small::clip(cx, &combined));
            optim::set_gradient(master, Some(gradient.view_as(master.geometry().clone())));
            drop(gradient);
            for optimizer in &mut *optimizers {
                optimizer.step(cx);
            }
            optim::set_gradient(master, None);
        }
        drop(norms);
        drop(combined);
        drop(self.last.replace(Some(scaled)));
    }
}

#[cfg(test)]
mod tests {
    use super::SubGroup;

    #[test]
    fn a_sub_group_closes_with_the_parameter_that_fills_it() {
        let parts = |groups: Vec<SubGroup>| groups.into_iter().map(|group| group.parts).collect::<Vec<_>>();
        assert_eq!(parts(SubGroup::of(&[4, 4, 4, 1], 6)), [vec![4, 4], vec![4, 1]]);
        assert_eq!(parts(SubGroup::of(&[4, 4, 4, 1], 100)), [vec![4, 4, 4, 1]]);
    }
}
