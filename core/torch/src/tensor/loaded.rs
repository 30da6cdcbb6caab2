//! What a model that is loaded has on the card.

use std::rc::Rc;

use plimsoll_ledger::{DType, Kind, ModuleId, Modules, Storage};

use super::context::Context;
use super::geometry::Geometry;
use super::storage::Tensor;
use crate::Op;

impl Context {
    /// The storage of each buffer, how many numbers it has, and of which type, in the order in which they were made.
    pub fn buffers(&self) -> Vec<(u32, u64, DType)> {
        let (recorder, references) = (self.recorder.borrow(), self.references.borrow());
        let ledger = recorder.ledger();
        let loaded = (0..).zip(ledger.storages.iter().zip(references.iter()));
        let alive = loaded.filter(|(_, (s, references))| references.get() > 0 && s.kind == Kind::Buffer);
        alive.map(|(id, (s, _))| (id, ledger.sizes(s).iter().product(), s.dtype)).collect()
    }

    /// A copy of every parameter and buffer that was made before the storage `until`, named by `op`, in modules of the same paths under
    /// `root`, in the order of `copy.deepcopy`: of each module its own parameters, its buffers, then the modules in it. (`Module.to`
    /// takes the modules in it first.)
    pub fn copy_loaded(self: &Rc<Self>, op: Op, root: &'static str, until: u32) -> Vec<Tensor> {
        let loaded: Vec<Storage> = {
            let (recorder, references, twice) = (self.recorder.borrow(), self.references.borrow(), self.twice.borrow());
            let loaded = (0..).zip(recorder.ledger().storages.iter().zip(references.iter()));
            let alive = loaded.filter(|(id, (s, references))| {
                *id < until && references.get() > 0 && matches!(s.kind, Kind::Parameter | Kind::Buffer)
            });
            let mut alive: Vec<(u32, Storage)> = alive.map(|(id, (s, _))| (id, *s)).collect();
            from_the_root(&mut alive, &recorder.ledger().modules);
            let copies = |id: u32| if twice.contains(&id) { 2 } else { 1 };
            alive.into_iter().flat_map(|(id, s)| std::iter::repeat_n(s, copies(id))).collect()
        };
        let modules = self.copy_modules(root);
        let copy = |storage: &Storage| {
            let geometry = Geometry::contiguous(self.recorder.borrow().ledger().sizes(storage));
            let module = modules.get(storage.module.index()).copied().unwrap_or_default();
            let copy = || self.allocate(op, geometry, storage.dtype, storage.bytes);
            let copy = self.within(module, || self.counting_as(storage.kind, copy));
            if storage.kind == Kind::Buffer && self.machine().kernels.is_counted() {
                // `self.new_empty([])`, which then takes the copied storage: `Tensor.__deepcopy__`, which parameters do without.
                let one = || self.empty_sizes(op, &[], storage.dtype);
                drop(self.within(module, || self.counting_as(Kind::Forward, one)));
            }
            copy
        };
        loaded.iter().map(copy).collect()
    }

    /// A copy of the tree of modules below a new one, `root`: the copies by the index of their originals.
    fn copy_modules(&self, root: &'static str) -> Vec<ModuleId> {
        let mut recorder = self.recorder.borrow_mut();
        let originals: Vec<_> = recorder.ledger().modules.iter().cloned().collect();
        let mut copies: Vec<ModuleId> = Vec::with_capacity(originals.len());
        for (index, module) in originals.into_iter().enumerate() {
            let copy = match copies.get(module.parent.index()) {
                Some(parent) if index > 0 => recorder.module(*parent, module.name, module.item),
                _ => recorder.module(ModuleId::ROOT, root.into(), None),
            };
            copies.push(copy);
        }
        copies
    }
}

/// Sorts what was loaded as a walk from the root meets it: what a module holds itself, parameters first, then the modules in it, in the
/// order in which the first of theirs was loaded.
fn from_the_root(loaded: &mut [(u32, Storage)], modules: &Modules) {
    let mut first: Vec<u32> = vec![u32::MAX; modules.len()];
    for (id, storage) in loaded.iter() {
        for module in modules.ancestors(storage.module) {
            // Whoever was met before has all above it met as well.
            match first.get_mut(module.index()) {
                Some(known) if *known == u32::MAX => *known = *id,
                _ => break,
            }
        }
    }
    loaded.sort_by_cached_key(|(id, storage)| {
        let above = modules.ancestors(storage.module);
        let mut path: Vec<(bool, u32)> =
            above.map(|module| (true, first.get(module.index()).copied().unwrap_or(*id))).collect();
        path.reverse();
        path.extend([(false, u32::from(storage.kind == Kind::Buffer)), (false, *id)]);
        path
    });
}
