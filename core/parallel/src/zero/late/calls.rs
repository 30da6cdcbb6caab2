//! The calls of modules of one forward, and how far backward has come back through them
//! (`_register_deepspeed_module` of `deepspeed/runtime/zero/parameter_offload.py`).
//!
//! DeepSpeed puts a node of its own behind what a module returns and one before what it is given. Here the numbers of the
//! graph's nodes stand for them: backward runs nodes in falling order, so it passes the first with the first node below the
//! call's end, and the second with the first node below its begin.

use std::cell::{Cell, RefCell};

use plimsoll_torch::tensor::ModuleId;

/// What backward passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passed {
    /// `PreBackwardFunctionForModule`: the module's own backward is about to begin.
    Output(ModuleId),
    /// `PostBackwardFunctionModule`: it is over.
    Input(ModuleId),
}

/// A module that runs.
#[derive(Clone, Copy, Debug)]
struct Running {
    module: ModuleId,
    /// How often it calls itself: a name for parts of one module.
    depth: u32,
    begin: u32,
}

/// The calls of one forward.
#[derive(Debug, Default)]
pub struct Calls {
    running: RefCell<Vec<Running>>,
    /// The nodes, each with the number of the graph's node that follows it.
    nodes: RefCell<Vec<(u32, Passed)>>,
    /// The module whose call ended last, where it made no node.
    left: Cell<Option<ModuleId>>,
}

impl Calls {
    /// A forward begins.
    pub fn clear(&self) {
        self.running.borrow_mut().clear();
        self.nodes.borrow_mut().clear();
    }

    /// The module that runs (`FWD_MODULE_STACK[-1]`).
    pub fn innermost(&self) -> Option<ModuleId> {
        self.running.borrow().last().map(|running| running.module)
    }

    /// A module is called when the graph's next node is `node`. Whether it was not running already.
    pub fn enters(&self, module: ModuleId, node: u32, inputs_take_gradients: bool) -> bool {
        let mut running = self.running.borrow_mut();
        if let Some(known) = running.iter_mut().rev().find(|known| known.module == module) {
            known.depth += 1;
            return false;
        }
        running.push(Running { module, depth: 0, begin: node });
        if inputs_take_gradients {
            self.nodes.borrow_mut().push((node, Passed::Input(module)));
        }
        true
    }

    /// A module's call ends when the graph's next node is `node`. Whether it is the outermost call.
    pub fn leaves(&self, module: ModuleId, node: u32) -> bool {
        let mut running = self.running.borrow_mut();
        let Some(at) = running.iter().rposition(|known| known.module == module) else { return false };
        let Some(known) = running.get_mut(at) else { return false };
        if known.depth > 0 {
            known.depth -= 1;
            return false;
        }
        let begin = known.begin;
        running.remove(at);
        // What a module returns that made no node takes no gradient, unless that is asked of it.
        self.left.set((node == begin).then_some(module));
        if node > begin {
            self.nodes.borrow_mut().push((node, Passed::Output(module)));
        }
        true
    }

    /// A hook of the module that was left last makes its output take a gradient (`enable_input_require_grads`).
    pub fn requires_output(&self, node: u32) {
        if let Some(module) = self.left.take() {
            self.nodes.borrow_mut().push((node, Passed::Output(module)));
        }
    }

    /// What is left when backward has run through all nodes: what lies before the first of them.
    pub fn pass_last(&self) -> Option<Passed> {
        self.nodes.borrow_mut().pop().map(|(_, passed)| passed)
    }

    /// What backward passes on its way to the node of this number, one after the other.
    pub fn pass(&self, to: u32) -> Option<Passed> {
        let mut nodes = self.nodes.borrow_mut();
        nodes.pop_if(|(node, _)| *node > to).map(|(_, passed)| passed)
    }
}
