//! What stage 3 keeps on NVMe (`offload_optimizer.device` and `offload_param.device` = `nvme`; `deepspeed/runtime/swap_tensor/`,
//! 0.19.8): a file for every tensor, and buffers in the machine's memory that all of them pass through.
//!
//! What is too small for one asynchronous request stays where `cpu` would have it. Buffers are DeepSpeed's own
//! (`new_cpu_locked_tensor`, `posix_memalign` and `mlock`), not PyTorch's: they are as large as they are asked for.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use plimsoll_ground::{Error, Result};
use plimsoll_scenario::{Offload, Zero, at};
use plimsoll_torch::ops::{self, Fill};
use plimsoll_torch::tensor::{Context, DType, HostMemory, Kind, Tensor};

use super::late::SubGroup;

/// `MIN_AIO_BYTES` (`swap_tensor/utils.py`).
const LEAST: u64 = 1 << 20;
/// `AIO_ALIGNED_BYTES`, for each thread of a request.
const ALIGNED: u64 = 1024;
/// Tensors of a parameter that `DeepSpeedCPUAdam` keeps beside it: both moments. How many steps it has made is too small to go.
const STATES: usize = 2;
/// Bytes of a master weight, a gradient or a moment.
const SINGLE: u64 = 4;

/// What is swapped, and how.
#[derive(Debug)]
pub struct Swap {
    optimizer: bool,
    /// The least bytes that go, and of which all that goes is a multiple.
    least: u64,
    aligned: u64,
    /// Numbers of the sub-groups whose master weights and states lie on NVMe.
    groups: RefCell<Vec<u64>>,
    /// Files, and buffers that requests pass through.
    held: RefCell<Vec<Tensor>>,
    /// Gradients in float32 that leave the card with their bucket, and those that stay until the step (`unswapped_gradients`).
    leaving: RefCell<Vec<Tensor>>,
    staying: RefCell<Vec<Tensor>>,
    stepped: Cell<bool>,
    /// Why DeepSpeed fails on it.
    fails: RefCell<Option<Error>>,
}

impl Swap {
    /// As these keys say; nothing is swapped where neither says so.
    pub fn new(keys: &Zero) -> Self {
        Self {
            optimizer: keys.offload_optimizer == Offload::Nvme,
            least: LEAST.max(keys.aio_block_size),
            aligned: ALIGNED.saturating_mul(keys.aio_intra_op_parallelism.max(1)),
            groups: RefCell::default(),
            held: RefCell::default(),
            leaving: RefCell::default(),
            staying: RefCell::default(),
            stepped: Cell::new(false),
            fails: RefCell::default(),
        }
    }

    /// `_io_aligned_numel`, in bytes.
    fn file(&self, bytes: u64) -> u64 {
        bytes.checked_next_multiple_of(self.aligned).unwrap_or(u64::MAX)
    }

    /// `_swappable_optimizer_subgroup`.
    pub fn takes(&self, numel: u64) -> bool {
        self.optimizer && numel.saturating_mul(SINGLE) >= self.least
    }

    fn put(&self, cx: &Rc<Context>, bytes: u64, how: HostMemory) {
        self.held.borrow_mut().push(cx.on_host(&[bytes], DType::UInt8, how));
    }

    /// `_partition_param` (`zero/partition_parameters.py`): whether a part of so many numbers goes to NVMe.
    pub fn parts(&self, keys: &Zero, part: u64, dtype: DType) -> bool {
        keys.offload_param == Offload::Nvme && part.saturating_mul(dtype.size()) >= self.least
    }

    /// `AsyncPartitionedParameterSwapper`: its buffers, and a file for every part of a parameter that is large enough. Those of up to
    /// `max_in_cpu` numbers come back into the flat buffer of what is trained, and their files stay. The numbers of that buffer.
    ///
    /// `parts` are of all parameters, each with whether it stays on the card; those that are trained are those of `groups`.
    pub fn parameters(
        &self,
        cx: &Rc<Context>,
        keys: &Zero,
        dtype: DType,
        parts: &[(u64, bool)],
        groups: &[SubGroup],
    ) -> u64 {
        let total = groups.iter().fold(0u64, |sum, group| sum.saturating_add(group.numel()));
        if keys.offload_param != Offload::Nvme {
            return total;
        }
        let size = dtype.size();
        let buffer = self.file(keys.offload_param_buffer_size.saturating_mul(size));
        self.put(cx, buffer.saturating_mul(keys.offload_param_buffer_count), HostMemory::Locked);
        // One that persists and is as large as that goes as well.
        for (part, _) in parts.iter().filter(|(part, _)| self.parts(keys, *part, dtype)) {
            if *part > keys.offload_param_buffer_size {
                // `get_buffer`
                self.fails.borrow_mut().get_or_insert_with(|| too_small(*part, keys.offload_param_buffer_size));
            }
            cx.counting_as(Kind::Parameter, || self.put(cx, self.file(part.saturating_mul(size)), HostMemory::Nvme));
        }
        // `_create_fp16_partitions_with_defragmentation`: a sub-group lies in the flat buffer, or none of it does.
        let flat = total.min(keys.offload_param_max_in_cpu);
        let (mut end, mut outside) = (0u64, false);
        for group in groups {
            end = end.saturating_add(group.numel());
            outside |= end > flat;
        }
        if outside {
            // `reserve_partitioned_swap_space`, of the largest sub-group.
            let largest = groups.iter().rev().max_by_key(|group| group.numel());
            let parts = largest.into_iter().flat_map(|group| &group.parts);
            let bytes = parts.fold(0u64, |sum, part| sum.saturating_add(self.file(part.saturating_mul(size))));
            self.put(cx, bytes, HostMemory::Locked);
        }
        flat
    }

    /// `SwapBufferManager`, and the files of master weights (`initialize_parameters`).
    pub fn optimizer(&self, cx: &Rc<Context>, keys: &Zero, groups: &[SubGroup]) {
        if !self.optimizer {
            return;
        }
        let numels = || groups.iter().map(SubGroup::numel);
        let largest = numels().max().unwrap_or(0);
        let buffer = self.file(largest.saturating_mul(SINGLE));
        self.put(cx, buffer.saturating_mul(keys.offload_buffer_count), HostMemory::Locked);
        let gone: Vec<u64> = numels().filter(|numel| self.takes(*numel)).collect();
        for numel in &gone {
            self.put(cx, self.file(numel.saturating_mul(SINGLE)), HostMemory::Nvme);
        }
        drop(self.groups.replace(gone));
    }

    /// `_offload_grad_partition_at_boundary`: a gradient whose sub-group lies on NVMe is cast on the card, and waits there until its
    /// bucket is through; `sent` is itself in float32 already. What is too small to go, or does not end where a request may, stays.
    pub fn gradient(&self, cx: &Rc<Context>, sent: &Tensor) -> bool {
        if self.groups.borrow().is_empty() {
            return false;
        }
        let single = match sent.dtype() {
            DType::Float32 => sent.clone(),
            _ => ops::fill(cx, Fill::ToCopy, sent.dims(), DType::Float32),
        };
        let bytes = sent.numel().saturating_mul(SINGLE);
        let goes = bytes >= self.least;
        if goes && !self.stepped.get() {
            let whole = bytes - bytes % self.aligned;
            cx.counting_as(Kind::Gradient, || self.put(cx, whole, HostMemory::Nvme));
        }
        let stays = !goes || !bytes.is_multiple_of(self.aligned);
        let list = if stays { &self.staying } else { &self.leaving };
        list.borrow_mut().push(single);
        true
    }

    /// `partition_grads` returns.
    pub fn bucket_left(&self) {
        drop(self.leaving.take());
    }

    /// The step, sub-group by sub-group: the first one makes the states in the machine's memory, from where they go. Gradients that
    /// stayed go with it (`release_unswapped_gradients`).
    pub fn step(&self, cx: &Rc<Context>) {
        if !self.optimizer {
            return;
        }
        if !self.stepped.replace(true) {
            for numel in self.groups.borrow().iter() {
                let state = || cx.on_host(&[*numel], DType::Float32, HostMemory::Pageable);
                let made = cx.counting_as(Kind::OptimizerState, || [(); STATES].map(|()| state()));
                cx.counting_as(Kind::OptimizerState, || {
                    for _ in 0..STATES {
                        self.put(cx, self.file(numel.saturating_mul(SINGLE)), HostMemory::Nvme);
                    }
                });
                drop(made);
            }
        }
        drop(self.staying.take());
    }

    /// What DeepSpeed fails with.
    ///
    /// # Errors
    /// A part of a parameter that no buffer holds.
    pub fn checked(&self) -> Result<()> {
        self.fails.borrow().clone().map_or(Ok(()), Err)
    }
}

fn too_small(part: u64, buffer: u64) -> Error {
    Error::new(
        at::zero::offload_param_buffer_size,
        format!(
            "a card's part of a parameter has {part} numbers, and DeepSpeed swaps it through a buffer of {buffer} (\"More elements {part} than buffer size {buffer}\")"
        ),
        format!("set it to at least {part}, or use more cards"),
    )
}
