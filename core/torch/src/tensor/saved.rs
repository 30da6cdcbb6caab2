//! What a node keeps of a tensor: the tensor itself, a copy in the machine's memory, or inside a checkpoint only a place to recompute it.

use std::rc::Rc;

use super::checkpoint::{Frame, Role};
use super::context::Context;
use super::offloaded::{Offloaded, Offloading};
use super::stash::Tracked;
use super::storage::Tensor;

/// A saved variable.
#[derive(Clone, Debug)]
pub enum Saved {
    /// Not needed for any gradient that is asked for.
    Nothing,
    /// Kept.
    Held(Tensor),
    /// In the machine's memory.
    Offloaded(Rc<Offloaded>),
    /// A number, by which TRL's offloading (`stash.rs`, beside this file) knows it.
    Stashed(Rc<Tracked>),
    /// Inside a checkpoint: the `slot`-th tensor its recomputation will save.
    Deferred {
        /// The checkpoint.
        frame: Frame,
        /// Which of its saved tensors.
        slot: usize,
        /// Alive as long as this place is: what nothing will unpack is not kept by a recomputation.
        #[allow(dead_code, reason = "the checkpoint watches it")]
        holder: Rc<()>,
    },
}

impl Saved {
    pub(super) fn pack(cx: &Rc<Context>, tensor: &Tensor) -> Self {
        let frames = cx.frames.borrow();
        match frames.last() {
            Some(frame) if frame.role() == Role::Forward => {
                let holder = Rc::new(());
                Self::Deferred { frame: frame.clone(), slot: frame.defer(&holder, tensor), holder }
            }
            Some(frame) => {
                if frame.recomputed(tensor) {
                    cx.muted.set(true);
                }
                Self::Held(tensor.detach())
            }
            None => {
                match cx.offloads() {
                    Offloading::SaveOnCpu => return Self::Offloaded(Rc::new(Offloaded::pack(cx, tensor))),
                    Offloading::Stashed => return Self::Stashed(Rc::new(Tracked::pack(cx, tensor))),
                    Offloading::None | Offloading::Checkpoints => {}
                }
                tensor.mark_saved();
                // A parameter is saved itself; a view of it holds what it was a view of.
                let held = if tensor.is_view() { cx.held(tensor) } else { None };
                Self::Held(held.unwrap_or_else(|| tensor.detach()))
            }
        }
    }

    /// The tensor, recomputing its checkpoint first if that has not happened.
    ///
    /// # Panics
    /// When the op did not save it: a formula asked for something its forward does not keep.
    pub fn unpack(&self) -> Tensor {
        match self {
            Self::Held(tensor) => tensor.clone(),
            Self::Offloaded(there) => there.unpack(),
            Self::Stashed(tracked) => tracked.unpack(),
            Self::Deferred { frame, slot, .. } => frame.take(*slot),
            Self::Nothing => unreachable!("a backward formula unpacked a tensor that its forward did not save"),
        }
    }

    /// The tensor if one was saved, as [`Saved::unpack`]. A formula unpacks everything before it computes anything:
    /// that is when a checkpoint is recomputed, and until its end all of it stays alive.
    pub fn get(&self) -> Option<Tensor> {
        if let Self::Nothing = self { None } else { Some(self.unpack()) }
    }
}
