//! Modules that are gathered and let go of with all that lies in them (`set_z3_leaf_modules` of `deepspeed/utils/z3_leaf_module.py`): the
//! modules inside have no hooks, and their gradients are reduced when the backward of the whole is over.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use plimsoll_torch::ops;
use plimsoll_torch::optim;
use plimsoll_torch::tensor::{Context, Kind, ModuleId};

use super::store::{Members, Store};

/// The leaf modules of a model.
#[derive(Debug)]
pub struct Leaves {
    modules: Vec<ModuleId>,
    /// The trained parameters of each, in order.
    trained: RefCell<BTreeMap<ModuleId, Vec<usize>>>,
    /// All of those, ascending.
    all: RefCell<Vec<usize>>,
}

impl Leaves {
    pub fn new(modules: &[ModuleId]) -> Self {
        Self { modules: modules.to_vec(), trained: RefCell::default(), all: RefCell::default() }
    }

    /// The leaf that a module is, or lies in.
    pub fn of(&self, cx: &Rc<Context>, module: ModuleId) -> Option<ModuleId> {
        if self.modules.is_empty() {
            return None;
        }
        cx.so_far(|ledger| ledger.modules.ancestors(module).find(|above| self.modules.contains(above)))
    }

    /// Whether a module lies in a leaf, and is none itself.
    pub fn has_inside(&self, cx: &Rc<Context>, module: ModuleId) -> bool {
        self.of(cx, module).is_some_and(|leaf| leaf != module)
    }

    /// Notes which parameters they have, of all modules' by module.
    pub fn hold(&self, owned: &[Members], store: &Store) {
        let is_trained = |index: &usize| store.get(*index).is_some_and(|parameter| parameter.whole.requires_grad());
        let mut trained = self.trained.borrow_mut();
        for module in &self.modules {
            let own = owned.get(module.index()).into_iter().flatten().copied();
            let mut own: Vec<usize> = own.filter(is_trained).collect();
            own.sort_unstable();
            self.all.borrow_mut().extend(&own);
            trained.insert(*module, own);
        }
        self.all.borrow_mut().sort_unstable();
    }

    /// Whether a parameter is one of theirs.
    pub fn have(&self, parameter: usize) -> bool {
        self.all.borrow().binary_search(&parameter).is_ok()
    }

    /// The backward of a module is over: the parameters whose gradients are reduced now. Those that none has come for get zeros.
    pub fn settle(&self, module: ModuleId, store: &Store) -> Vec<usize> {
        let own = self.trained.borrow().get(&module).cloned().unwrap_or_default();
        for parameter in own.iter().filter_map(|index| store.get(*index)) {
            let whole = &parameter.whole;
            if !optim::has_gradient(whole) {
                let zeros = || ops::zeros_like(whole);
                optim::set_gradient(whole, Some(whole.cx().counting_as(Kind::Gradient, zeros)));
            }
        }
        own
    }
}
