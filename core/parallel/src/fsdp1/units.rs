//! What `FullyShardedDataParallel` holds of layers that are copied ([`UnitHooks`]): gradients of the layer that backward left last
//! are laid together and reduced, and the next one's parameter is gathered ahead, when the one between them is reached.

use std::ops::Range;

use plimsoll_torch::tensor::{CopiedBackward, CopiedForward, ModuleId, Tensor, UnitHooks};

use super::Fsdp1;
use super::unit::Unit;
use crate::span::{Progress, Span};

impl Fsdp1 {
    /// The wrapped modules within a unit of the model, each with its place there.
    fn within(&self, unit: &Range<u32>) -> impl Iterator<Item = (u32, usize)> {
        let owned = self.owners.range(ModuleId::new(unit.start)..ModuleId::new(unit.end));
        let start = unit.start;
        owned.map(move |(module, index)| (module.index() as u32 - start, *index))
    }

    fn units_of(&self, unit: &Range<u32>) -> impl Iterator<Item = &Unit> {
        self.within(unit).filter_map(|(_, index)| self.units.get(index).map(|(_, unit)| unit))
    }

    fn beside(&self, a: &Range<u32>, b: &Range<u32>) -> impl Iterator<Item = (&Unit, &Unit)> {
        self.units_of(a).zip(self.units_of(b))
    }
}

impl UnitHooks for Fsdp1 {
    /// A layer's parameter is gathered in the backward of the one behind and let go of in that of the one before.
    fn settles_after(&self) -> usize {
        2
    }

    /// Not where one wrapped module lies within another, which is what peft's policy makes: what is gathered ahead may then be
    /// further away than the next layer.
    fn are_alike(&self, a: &Range<u32>, b: &Range<u32>) -> bool {
        if self.nested {
            return false;
        }
        let places = |unit| self.within(unit).map(|(place, _)| place);
        let dims = |unit: &Unit| -> Vec<u64> { unit.leaves.iter().map(Tensor::numel).collect() };
        places(a).eq(places(b)) && self.beside(a, b).all(|(a, b)| dims(a) == dims(b))
    }

    fn between(&self) -> Vec<Tensor> {
        Vec::new()
    }

    fn forward_copied(&self, copied: &CopiedForward<'_>) {
        // Those whose forward has ended stand in the order of their ends.
        let ended: Vec<usize> = {
            let order = self.order.borrow();
            let of_unit: Vec<usize> = self.within(copied.like).map(|(_, index)| index).collect();
            order.iter().filter_map(|index| of_unit.iter().position(|of| of == index)).collect()
        };
        for (index, modules) in copied.units.iter().enumerate() {
            let units: Vec<usize> = self.within(modules).map(|(_, index)| index).collect();
            self.order.borrow_mut().extend(ended.iter().filter_map(|place| units.get(*place)));
            for (model, unit) in self.beside(copied.like, modules) {
                let inputs_take_gradients = model.span.get().inputs_take_gradients;
                unit.span.set(Span { begin: copied.node, end: copied.node, inputs_take_gradients });
                let whole = model.whole.borrow().as_ref().and_then(|whole| (copied.copy)(whole, index));
                drop(unit.whole.replace(whole));
            }
        }
    }

    fn parts(&self, unit: &Range<u32>) -> Vec<Tensor> {
        self.units_of(unit).flat_map(|unit| unit.leaves.iter().cloned()).collect()
    }

    /// A reduced gradient, where it is more than what the parameter's own gradient is.
    fn kept(&self, unit: &Range<u32>) -> Vec<Option<Tensor>> {
        if !self.shared.originals && !self.shared.offloaded {
            return Vec::new();
        }
        self.units_of(unit).map(|unit| unit.shard_gradient.borrow().clone()).collect()
    }

    fn keep(&self, unit: &Range<u32>, place: usize, kept: Tensor) {
        if let Some(unit) = self.units_of(unit).nth(place) {
            drop(unit.shard_gradient.replace(Some(kept)));
        }
    }

    fn backward_copied(&self, copied: &CopiedBackward<'_>) {
        let CopiedBackward { units, model, gone, moved } = *copied;
        let modules = |index: usize| units.get(index).cloned().unwrap_or_default();
        let pass_on = |from: &Unit, to: &Unit| {
            let (there, whole) = (to.whole.borrow().is_some(), from.whole.take());
            match (there, whole) {
                (false, whole) => drop(to.whole.replace(whole.map(moved))),
                // Left whole by the forward, it has its own.
                (true, Some(whole)) => gone(whole),
                (true, None) => to.whole.take().into_iter().for_each(gone),
            }
        };
        for (from, to) in self.beside(&modules(model - 1), &modules(1)) {
            // Gathered ahead.
            let there = to.whole.borrow().is_some();
            if !there {
                drop(to.whole.replace(from.whole.take().map(moved)));
            }
        }
        for (from, to) in self.beside(&modules(model), &modules(2)) {
            to.progress.set(from.progress.replace(Progress::Done));
            pass_on(from, to);
        }
        for index in 3..model {
            for unit in self.units_of(&modules(index)) {
                unit.progress.set(Progress::Done);
                unit.whole.take().into_iter().for_each(gone);
            }
        }
    }
}
