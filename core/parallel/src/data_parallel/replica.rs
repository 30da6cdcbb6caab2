//! Any card of `DataParallel` but the first: it has nothing of its own. For a forward it is sent its share of the batch and a copy of
//! the model (`replicate`), both of which live on in what the graph saves of them; behind backward its gradients go to the first card.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use plimsoll_scenario::Parallel;
use plimsoll_torch::nn::{ShardPlan, Sharded};
use plimsoll_torch::ops::{self, Transfer};
use plimsoll_torch::tensor::{Context, Hooks, Kind, ModuleId, Tensor};

use super::{PIECE, reduced, sent};
use crate::broadcast::Sent;
use crate::buckets;

/// The copy of a model on another card than the first.
#[derive(Debug)]
pub struct Replica {
    /// All of them, as `parameters()` lists them: views without bytes.
    parameters: Vec<Tensor>,
    /// What is sent, by the storages that the model knows: parameters, then buffers.
    parcels: [(Kind, Vec<(u32, Sent)>); 2],
    /// The parameters of every module.
    owned: BTreeMap<ModuleId, Vec<Tensor>>,
    cards: u64,
    module: ModuleId,
    /// What has come of each, as long as the copy of the model is there.
    here: RefCell<BTreeMap<u32, Tensor>>,
}

impl Replica {
    /// How a model is made whose parameters and buffers come from another card.
    pub const fn plan() -> ShardPlan {
        ShardPlan {
            ranks: 1,
            gathered: None,
            offloaded: false,
            wide_buffers: false,
            flat: BTreeSet::new(),
            parts: true,
            passing: true,
        }
    }

    /// A model made as [`Replica::plan`] says; `order` are its parameters as `parameters()` lists them.
    pub fn wrap(cx: &Rc<Context>, sharded: &[Sharded], order: &[Tensor], parallel: &Parallel) -> Rc<Self> {
        let parameters = order.iter().map(|parameter| (parameter.storage_id(), sent(parameter))).collect();
        let buffers = cx.buffers().into_iter().map(|(id, numel, dtype)| (id, Sent { numel, dtype })).collect();
        let mut owned: BTreeMap<ModuleId, Vec<Tensor>> = BTreeMap::new();
        for parameter in sharded {
            owned.entry(parameter.module).or_default().push(parameter.whole.clone());
        }
        // The other thread's card has a share of the batch alone.
        cx.set_threads(1);
        let replica = Rc::new(Self {
            parameters: order.to_vec(),
            parcels: [(Kind::Parameter, parameters), (Kind::Buffer, buffers)],
            owned,
            cards: parallel.gpus,
            module: cx.module(ModuleId::ROOT, "data_parallel".into(), None),
            here: RefCell::default(),
        });
        cx.set_hooks(Rc::<Self>::clone(&replica));
        replica
    }

    /// `broadcast_coalesced` (`torch/csrc/cuda/comm.cpp`): every parameter is a view of the flat piece it came in.
    pub fn before_forward(&self, cx: &Rc<Context>) {
        let mut here = BTreeMap::new();
        for (kind, parcel) in &self.parcels {
            let tensors: Vec<Sent> = parcel.iter().map(|(_, sent)| *sent).collect();
            for piece in buckets::assign(&tensors, &[PIECE], None) {
                let members = || piece.iter().filter_map(|index| parcel.get(*index));
                let Some((_, first)) = members().next() else { continue };
                let numel = members().fold(0u64, |sum, (_, sent)| sum.saturating_add(sent.numel));
                let empty = || cx.put_down_to(self.module, || ops::empty(cx, &[numel], first.dtype));
                let flat = cx.counting_as(*kind, empty);
                ops::transfer(cx, Transfer::Broadcast, numel, self.cards, first.dtype);
                here.extend(members().map(|(id, _)| (*id, flat.clone())));
            }
        }
        drop(self.here.replace(here));
    }

    /// What comes out goes to the first card (`gather`), and `DataParallel.forward` returns: copies of the model live on in its graph
    /// alone. What backward begins with.
    pub fn outputs(&self, loss: Tensor) -> Tensor {
        let gone = ops::sent_away(&loss);
        drop(loss);
        drop(self.here.take());
        gone
    }

    /// `Broadcast.backward`, the last node of the graph.
    pub fn after_backward(&self, cx: &Rc<Context>) {
        reduced(cx, (&self.parameters, self.module, self.cards), |_, _, _| {});
    }
}

impl Hooks for Replica {
    /// A checkpoint holds the module that it runs again, and that its parameters.
    fn enters(&self, cx: &Rc<Context>, module: ModuleId) -> bool {
        let Some(owned) = self.owned.get(&module) else { return false };
        for parameter in owned {
            if let Some(bytes) = self.here.borrow().get(&parameter.storage_id()) {
                cx.hold_for_recomputation(parameter, bytes);
            }
        }
        true
    }

    fn holds(&self, tensor: &Tensor) -> Option<Tensor> {
        let here = self.here.borrow().get(&tensor.storage_id()).cloned();
        let bytes = here.or_else(|| tensor.cx().held_for_recomputation(tensor))?;
        Some(bytes.view_as(tensor.geometry().clone()))
    }
}
