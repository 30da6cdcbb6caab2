//! What `fully_shard` holds of layers that are copied ([`UnitHooks`]): the group of the layer that backward left last is reduced,
//! and the next one's is gathered ahead, when the one between them is reached.

use std::ops::Range;

use plimsoll_torch::tensor::{CopiedBackward, CopiedForward, ModuleId, Tensor, UnitHooks};

use super::Fsdp2;
use super::group::Group;
use crate::span::{Progress, Span};

impl Fsdp2 {
    /// The groups of a unit, each with the place of its module in the unit.
    fn groups_of(&self, unit: &Range<u32>) -> impl Iterator<Item = (u32, usize)> {
        let owned = self.owners.range(ModuleId::new(unit.start)..ModuleId::new(unit.end));
        let start = unit.start;
        owned.map(move |(module, group)| (module.index() as u32 - start, *group))
    }

    /// Groups of one unit, each beside that of another.
    fn beside(&self, a: &Range<u32>, b: &Range<u32>) -> impl Iterator<Item = (&Group, &Group)> {
        let both = self.groups_of(a).zip(self.groups_of(b));
        both.filter_map(|((_, a), (_, b))| Some((&self.groups.get(a)?.1, &self.groups.get(b)?.1)))
    }
}

impl UnitHooks for Fsdp2 {
    /// When backward reaches the second layer, there is no buffer of a layer before that had been reduced.
    fn settles_after(&self) -> usize {
        1
    }

    fn are_alike(&self, a: &Range<u32>, b: &Range<u32>) -> bool {
        let places = |unit| self.groups_of(unit).map(|(place, _)| place);
        let whole = |group: usize| self.groups.get(group).is_some_and(|(modules, _)| modules.len() == 1);
        places(a).eq(places(b))
            && self.groups_of(a).all(|(_, group)| whole(group))
            // Of several groups in a unit gradients would come to the machine's memory in another order.
            && (!self.shared.offloaded || self.groups_of(a).count() <= 1)
            && self.beside(a, b).all(|(a, b)| a.parameters.len() == b.parameters.len() && a.reshards == b.reshards)
    }

    fn between(&self) -> Vec<Tensor> {
        self.shared.gathered.borrow().iter().cloned().collect()
    }

    fn forward_copied(&self, copied: &CopiedForward<'_>) {
        // Groups whose forward has ended stand in the order of their ends.
        let ended: Vec<usize> = {
            let order = self.order.borrow();
            let of_unit: Vec<usize> = self.groups_of(copied.like).map(|(_, group)| group).collect();
            order.iter().filter_map(|group| of_unit.iter().position(|of| of == group)).collect()
        };
        for (index, unit) in copied.units.iter().enumerate() {
            let groups: Vec<usize> = self.groups_of(unit).map(|(_, group)| group).collect();
            self.order.borrow_mut().extend(ended.iter().filter_map(|place| groups.get(*place)));
            for (model, group) in self.beside(copied.like, unit) {
                let inputs_take_gradients = model.span.get().inputs_take_gradients;
                group.span.set(Span { begin: copied.node, end: copied.node, inputs_take_gradients });
                let whole = model.whole.borrow().iter().filter_map(|whole| (copied.copy)(whole, index)).collect();
                drop(group.whole.replace(whole));
            }
        }
        let held = self.shared.gathered.take();
        drop(self.shared.gathered.replace(held.map(copied.moved)));
    }

    fn parts(&self, unit: &Range<u32>) -> Vec<Tensor> {
        let groups = self.groups_of(unit).filter_map(|(_, group)| self.groups.get(group));
        groups.flat_map(|(_, group)| group.parameters.iter().map(|p| p.shard.clone())).collect()
    }

    fn kept(&self, unit: &Range<u32>) -> Vec<Option<Tensor>> {
        let groups = self.groups_of(unit).filter_map(|(_, group)| self.groups.get(group));
        groups.map(|(_, group)| group.summed.borrow().clone()).collect()
    }

    fn keep(&self, unit: &Range<u32>, place: usize, kept: Tensor) {
        if let Some((_, group)) = self.groups_of(unit).nth(place).and_then(|(_, group)| self.groups.get(group)) {
            drop(group.summed.replace(Some(kept)));
        }
    }

    fn backward_copied(&self, copied: &CopiedBackward<'_>) {
        let CopiedBackward { units, model, gone, .. } = *copied;
        let unit = |index: usize| units.get(index).cloned().unwrap_or_default();
        // What was gathered ahead for the unit before the model was gathered for the second.
        for (from, to) in self.beside(&unit(model - 1), &unit(1)) {
            if let Some(arrived) = from.arrived.take() {
                drop(to.arrived.replace(Some(arrived)));
            }
        }
        for (from, to) in self.beside(&unit(model), &unit(2)) {
            to.progress.set(from.progress.replace(Progress::Done));
            let whole = from.whole.take();
            match (to.is_whole(), whole.is_empty()) {
                (false, _) => drop(to.whole.replace(whole)),
                // Left whole by the forward, it has its own.
                (true, false) => whole.into_iter().for_each(gone),
                (true, true) => to.whole.take().into_iter().for_each(gone),
            }
        }
        for index in 3..model {
            for (group, _) in self.beside(&unit(index), &unit(model)) {
                group.progress.set(Progress::Done);
                group.whole.take().into_iter().for_each(gone);
            }
        }
        // Gradients of all that were reduced have come to the machine's memory, in the order of backward.
        for index in (3..=model).rev().filter(|_| self.shared.offloaded) {
            for (behind, group) in self.beside(&unit(model + 1), &unit(index)) {
                for (like, parameter) in behind.parameters.iter().zip(&group.parameters) {
                    self.shared.hosted.gradient_like(&parameter.shard, &like.shard);
                }
            }
        }
        // What waits is another now.
        self.calm.set((0, u32::MAX));
    }
}
