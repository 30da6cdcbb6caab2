//! Tensors that are made over and over by the same kernel, as what a rank gathers: what was written of the first is written of each.

use std::cell::OnceCell;
use std::rc::Rc;

use plimsoll_ledger::{DType, Storage, WorkId};

use super::context::Context;
use super::geometry::Geometry;
use super::storage::Tensor;

/// What makes a tensor out of nothing, with one kernel at most. It is run once, and what it wrote is written again of every
/// other tensor.
#[derive(Debug, Default)]
pub struct Mould(OnceCell<Written>);

/// What was written of a tensor.
#[derive(Debug)]
struct Written {
    storage: Storage,
    geometry: Geometry,
    /// The kernel, and whether it is written down behind the storage.
    work: Option<(WorkId, bool)>,
}

impl Mould {
    /// Makes the tensor: `first` does, the first time. It has to make the same whenever it is called.
    pub fn make(&self, cx: &Rc<Context>, first: impl FnOnce() -> Tensor) -> Tensor {
        if cx.is_muted() || cx.exhausted() {
            return first();
        }
        if let Some(written) = self.0.get() {
            return cx.make_again(written);
        }
        let from = cx.position();
        let tensor = first();
        let to = cx.position();
        let (event, launch) = (to.event - from.event, to.launch - from.launch);
        if event == 1 && launch <= 1 && to.law == from.law {
            cx.so_far(|ledger| {
                let storage = ledger.storages.get(tensor.storage_id() as usize).copied()?;
                let launch = ledger.launches.get(from.launch);
                let work = launch.map(|launch| (launch.work, launch.at as usize > from.event));
                // A mould that is filled stays as it is.
                self.0.set(Written { storage, geometry: tensor.geometry().clone(), work }).ok()
            });
        }
        tensor
    }
}

/// Moulds of what is made for each of many tensors that are of a few sizes.
#[derive(Debug, Default)]
pub struct Moulds(Vec<(Geometry, DType, Mould)>);

impl Moulds {
    /// Makes a tensor for `of`: `first` does, for the first of its size. It has to make the same for all of them.
    pub fn make(&mut self, cx: &Rc<Context>, of: &Tensor, first: impl FnOnce() -> Tensor) -> Tensor {
        let (geometry, dtype) = (of.geometry(), of.dtype());
        if let Some((.., mould)) = self.0.iter().find(|(known, of, _)| known == geometry && *of == dtype) {
            return mould.make(cx, first);
        }
        let mould = Mould::default();
        let tensor = mould.make(cx, first);
        self.0.push((geometry.clone(), dtype, mould));
        tensor
    }
}

impl Context {
    fn make_again(self: &Rc<Self>, written: &Written) -> Tensor {
        let id = {
            let mut recorder = self.recorder.borrow_mut();
            let (grad_fn, owner) = (self.grad_fn.get().id(), self.owner());
            let storage = Storage { grad_fn, owner, ..written.storage };
            match written.work {
                Some((work, false)) => {
                    recorder.launch_again(work);
                    recorder.born(storage)
                }
                Some((work, true)) => {
                    let id = recorder.born(storage);
                    recorder.launch_again(work);
                    id
                }
                None => recorder.born(storage),
            }
        };
        self.refer(id);
        Tensor::fresh(self, id, written.geometry.clone(), written.storage.dtype)
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use plimsoll_ledger::Ledger;

    use super::Mould;
    use crate::ops::{self, Rearrangement, Transfer};
    use crate::tensor::{Context, DType, Tensor};

    /// What a mould makes is what is made without one.
    #[test]
    fn all_of_a_mould_are_alike() {
        // The kernel is written down before the storage, behind it, and not at all.
        let makers: [fn(&Rc<Context>) -> Tensor; 3] = [
            |cx| {
                ops::transfer(cx, Transfer::AllGather, 640, 4, DType::BFloat16);
                ops::empty(cx, &[640], DType::BFloat16)
            },
            |cx| ops::rearrangement(cx, Rearrangement::Cat, &[4, 160], DType::BFloat16),
            |cx| ops::loaded(cx, &[640], DType::Float32),
        ];
        for make in makers {
            let run = |one: &dyn Fn(&Rc<Context>) -> Tensor| {
                let cx = Context::new();
                for _ in 0..3 {
                    let kept = one(&cx);
                    drop((one(&cx), kept));
                }
                cx.take()
            };
            let mould = Mould::default();
            let (moulded, plain) = (run(&|cx| mould.make(cx, || make(cx))), run(&make));
            assert!(mould.0.get().is_some());
            let written = |ledger: Ledger| (ledger.events, ledger.storages, ledger.launches);
            assert_eq!(written(moulded), written(plain));
        }
    }
}
