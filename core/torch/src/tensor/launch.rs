//! Kernels: what an op runs on the card, and the bytes it moves.
//!
//! An op reads each of its operands once and writes each of its results once. What stands in a tensor several times, because
//! it was expanded, is read once.

use std::rc::Rc;

use plimsoll_ledger::{DType, OpId, Work};

use super::context::Context;
use super::geometry::Geometry;
use super::storage::Tensor;
use crate::Op;

/// A kernel that runs. What it makes is allocated while this lives; with its end it is written down, with all it reads and
/// writes.
#[derive(Debug)]
pub(crate) struct Launch<'c> {
    cx: &'c Rc<Context>,
    op: Op,
    /// Of the first operand, or of the first result where there is none.
    dtype: Option<DType>,
    flops: u64,
    read: u64,
    written: u64,
    times: u64,
}

impl Launch<'_> {
    /// It does this many floating-point operations, as `torch.utils.flop_counter` counts them.
    pub fn flops(mut self, flops: u64) -> Self {
        self.flops = self.flops.saturating_add(flops);
        self
    }

    /// It reads so many bytes besides its operands: of a table, the rows that are picked.
    pub fn reads(mut self, bytes: u64) -> Self {
        self.read = self.read.saturating_add(bytes);
        self
    }

    /// It writes so many bytes besides its results.
    pub fn writes(mut self, bytes: u64) -> Self {
        self.written = self.written.saturating_add(bytes);
        self
    }

    /// It writes over this tensor.
    pub fn over(mut self, x: &Tensor) -> Self {
        self.dtype.get_or_insert(x.dtype());
        self.written = self.written.saturating_add(x.touched());
        self
    }

    /// It runs so many times, of which one is looked at.
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Its numbers are of this type, whatever its operands are.
    pub fn of(mut self, dtype: DType) -> Self {
        self.dtype = Some(dtype);
        self
    }

    /// Makes a tensor.
    pub fn make(&mut self, geometry: Geometry, dtype: DType) -> Tensor {
        let out = self.cx.empty(self.op, geometry, dtype);
        self.dtype.get_or_insert(dtype);
        self.written = self.written.saturating_add(out.touched());
        out
    }

    /// Makes a contiguous tensor of `sizes`.
    pub fn make_sizes(&mut self, sizes: &[u64], dtype: DType) -> Tensor {
        self.make(Geometry::contiguous(sizes), dtype)
    }

    /// Makes a tensor like another one, in its memory order.
    pub fn make_like(&mut self, x: &Tensor) -> Tensor {
        self.make(x.geometry().preserved(), x.dtype())
    }
}

impl Drop for Launch<'_> {
    fn drop(&mut self) {
        let dtype = self.dtype.unwrap_or(DType::Float32);
        let all = |once: u64| once.saturating_mul(self.times);
        let (flops, read, written) = (all(self.flops), all(self.read), all(self.written));
        self.cx.write_down(Work { op: self.op.id(), dtype, flops, read, written });
    }
}

impl Context {
    /// Runs a kernel that reads `operands`.
    pub(crate) fn launch<'c>(self: &'c Rc<Self>, op: Op, operands: &[&Tensor]) -> Launch<'c> {
        let read = operands.iter().fold(0u64, |sum, x| sum.saturating_add(x.touched()));
        let dtype = operands.first().map(|x| x.dtype());
        Launch { cx: self, op, dtype, flops: 0, read, written: 0, times: 1 }
    }

    /// Runs a kernel that writes over `x`, which is one of its operands as well.
    pub(crate) fn in_place(self: &Rc<Self>, op: Op, x: &Tensor, others: &[&Tensor]) {
        self.is_written_over(op, x);
        drop(self.launch(op, others).reads(x.touched()).over(x).of(x.dtype()));
    }

    /// An op runs within another, or of whose kernels nothing is known.
    pub(crate) fn runs(&self, op: OpId) {
        self.recorder.borrow_mut().runs(op);
    }

    /// Writes no launches down: only memory is asked for.
    pub fn leave_out_launches(&self) {
        self.recorder.borrow_mut().leave_out_launches();
    }

    fn write_down(&self, work: Work) {
        if !self.is_muted() {
            self.recorder.borrow_mut().launch(work);
        }
    }
}

impl Tensor {
    /// The bytes that a kernel reads or writes of it: elements that an expansion repeats lie in memory once.
    pub fn touched(&self) -> u64 {
        self.geometry().distinct().saturating_mul(self.dtype().size())
    }
}
