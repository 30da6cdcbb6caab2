//! What stages 1 and 2 keep in the machine's memory with `offload_optimizer` (`deepspeed/runtime/zero/stage_1_and_2.py`, 0.19.8).

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use plimsoll_torch::optim;
use plimsoll_torch::tensor::{Context, DType, HostMemory, Kind, Tensor};

use super::partition::Layout;

/// The optimizer's part of a rank, in the machine's memory.
#[derive(Debug)]
pub struct Away {
    /// `single_partition_of_fp32_groups`, with its gradient: the optimizer's own, whose states come to lie beside it.
    pub master: Tensor,
    how: HostMemory,
    /// `param_buffer_of_bit16_for_cpu_offload_groups` and `temp_grad_buffer_for_cpu_offload`.
    #[allow(dead_code, reason = "held alive, as the optimizer holds them")]
    held: [Tensor; 2],
    /// `accumulated_grads_in_cpu`, by parameter: whole gradients of several micro-batches, which are never let go of.
    collected: RefCell<BTreeMap<usize, Tensor>>,
}

impl Away {
    /// As the optimizer is made: each comes pageable and is page-locked then.
    pub fn load(cx: &Rc<Context>, layout: &Layout, (largest, dtype): (u64, DType), how: HostMemory) -> Self {
        let copy = |numel: u64, dtype| cx.pinned_copy(&[numel], dtype, how);
        let master = copy(layout.part, DType::Float32);
        // A local name holds the pageable one until the constructor is through.
        let first = cx.on_host(&[layout.part], dtype, HostMemory::Pageable);
        let half = match how {
            HostMemory::Pageable => first.clone(),
            how => cx.on_host(&[layout.part], dtype, how),
        };
        let passing = copy(largest, dtype);
        let gradient = cx.counting_as(Kind::Gradient, || copy(layout.part, DType::Float32));
        drop(first);
        let master = master.into_leaf(false);
        optim::set_gradient(&master, Some(gradient));
        Self { master, how, held: [half, passing], collected: RefCell::default() }
    }

    /// `buffer_to_accumulate_to_in_cpu`, of a parameter whose gradient comes for the first time.
    pub fn collect(&self, cx: &Rc<Context>, index: usize, numel: u64, dtype: DType) {
        let mut collected = self.collected.borrow_mut();
        let make = || cx.counting_as(Kind::Gradient, || cx.pinned_copy(&[numel], dtype, self.how));
        collected.entry(index).or_insert_with(make);
    }
}
