//! `torch.nn.DataParallel` (`torch/nn/parallel/data_parallel.py`), on the card that holds the model and the outputs.
//!
//! Before every forward the model is copied to the other cards, and each takes its share of the batch in a thread of its own. On the
//! first card the copy is the model itself. What comes out is gathered on it, that of all cards together; behind backward it has
//! every gradient of its own copy at once, and sums those of all cards into others. What another card holds is a [`Replica`].

mod replica;

use std::cell::RefCell;
use std::rc::Rc;

use plimsoll_torch::ops::{self, Fill, Rearrangement, Transfer};
use plimsoll_torch::optim;
use plimsoll_torch::tensor::{Context, DType, Kind, ModuleId, Tensor};

use crate::broadcast::Sent;
use crate::buckets;

pub use replica::Replica;

/// `buffer_size` of `broadcast_coalesced` and `reduce_add_coalesced` (`torch/nn/parallel/comm.py`).
const PIECE: u64 = 10 << 20;

/// A model under `DataParallel`, on its first card.
#[derive(Debug)]
pub struct DataParallel {
    /// All of them, as `parameters()` lists them.
    parameters: Vec<Tensor>,
    buffers: Vec<Sent>,
    cards: u64,
    module: ModuleId,
    /// Gradients of micro-batches before this one, while its own arrive.
    before: RefCell<Vec<Option<Tensor>>>,
}

impl DataParallel {
    /// `DataParallel(model)`, which allocates nothing.
    pub fn wrap(cx: &Rc<Context>, parameters: &[Tensor], cards: u64) -> Rc<Self> {
        let buffers = cx.buffers().into_iter().map(|(_, numel, dtype)| Sent { numel, dtype }).collect();
        cx.set_threads(cards);
        Rc::new(Self {
            parameters: parameters.to_vec(),
            buffers,
            cards,
            module: cx.module(ModuleId::ROOT, "data_parallel".into(), None),
            before: RefCell::default(),
        })
    }

    fn here<T>(&self, cx: &Rc<Context>, kind: Kind, f: impl FnOnce() -> T) -> T {
        cx.counting_as(kind, || cx.put_down_to(self.module, f))
    }

    /// `replicate`: parameters, then buffers, in flat pieces; a tensor by itself is sent as it lies.
    pub fn before_forward(&self, cx: &Rc<Context>) {
        let parameters: Vec<Sent> = self.parameters.iter().map(sent).collect();
        for tensors in [&parameters, &self.buffers] {
            for piece in buckets::assign(tensors, &[PIECE], None) {
                let members: Vec<Sent> = piece.iter().filter_map(|index| tensors.get(*index)).copied().collect();
                let Some(first) = members.first() else { continue };
                let numel = members.iter().fold(0u64, |sum, sent| sum.saturating_add(sent.numel));
                let cat = || ops::rearrangement(cx, Rearrangement::Cat, &[numel], first.dtype);
                let flat = (members.len() > 1).then(|| self.here(cx, Kind::Forward, cat));
                ops::transfer(cx, Transfer::Broadcast, numel, self.cards, first.dtype);
                drop(flat);
            }
        }
    }

    /// `gather`: the losses as a vector, every other output of all cards in one; then the mean of the losses, as transformers takes
    /// it. The loss, and what else the outputs hold.
    pub fn outputs(&self, cx: &Rc<Context>, loss: Tensor, held: Vec<Tensor>) -> (Tensor, Vec<Tensor>) {
        let losses = ops::clone(&loss);
        let gather = |output: &Tensor| {
            if output.storage_id() == loss.storage_id() {
                return losses.clone();
            }
            let numel = output.numel().saturating_mul(self.cards);
            self.here(cx, Kind::Forward, || ops::empty(cx, &[numel], output.dtype()))
        };
        let gathered: Vec<Tensor> = held.iter().map(gather).collect();
        drop((loss, held));
        let mean = ops::mul_scalar(&losses);
        drop(losses);
        (mean, gathered)
    }

    /// Gradients that are there already wait until those of this micro-batch are summed.
    pub fn before_backward(&self) {
        drop(self.before.replace(self.parameters.iter().map(optim::take_gradient).collect()));
    }

    /// `Broadcast.backward`, the last node of the graph: `reduce_add_coalesced` of all gradients.
    pub fn after_backward(&self, cx: &Rc<Context>) {
        // `torch.autograd.backward` holds the gradient it began with until it is through.
        let root = self.here(cx, Kind::Backward, || ops::empty(cx, &[1], DType::Float32));
        let mut sums: Vec<Option<Tensor>> = self.parameters.iter().map(|_| None).collect();
        reduced(cx, (&self.parameters, self.module, self.cards), |piece, numel, dtype| {
            let sum = self.here(cx, Kind::Gradient, || ops::empty(cx, &[numel], dtype));
            for index in piece {
                if let (Some(place), Some(parameter)) = (sums.get_mut(*index), self.parameters.get(*index)) {
                    *place = Some(sum.view_as(parameter.geometry().clone()));
                }
            }
        });
        for ((parameter, known), sum) in self.parameters.iter().zip(self.before.take()).zip(sums) {
            let Some(sum) = sum.filter(|_| parameter.requires_grad()) else { continue };
            match known {
                Some(known) => {
                    ops::accumulate(&known, &sum);
                    optim::set_gradient(parameter, Some(known));
                    drop(sum);
                }
                None => optim::set_gradient(parameter, Some(sum)),
            }
        }
        drop(root);
    }
}

/// `reduce_add_coalesced` (`torch/nn/parallel/comm.py`) of all gradients a card has; `summed` makes what the first one sums a piece
/// into. What is not trained has gradients of zeros (`materialize_grads`).
fn reduced(
    cx: &Rc<Context>,
    (parameters, module, cards): (&[Tensor], ModuleId, u64),
    mut summed: impl FnMut(&[usize], u64, DType),
) {
    let here = |f: &dyn Fn() -> Tensor| cx.counting_as(Kind::Backward, || cx.put_down_to(module, f));
    let zeros = |p: &Tensor| here(&|| ops::fill(cx, Fill::Zeros, &[p.numel()], p.dtype()));
    let gradient = |p: &Tensor| optim::take_gradient(p).unwrap_or_else(|| zeros(p));
    let gradients: Vec<Tensor> = parameters.iter().map(gradient).collect();
    let mut before = None;
    for piece in taken(&gradients) {
        let Some(first) = piece.first().and_then(|index| gradients.get(*index)) else { continue };
        let members = || piece.iter().filter_map(|index| gradients.get(*index));
        let numel = members().fold(0u64, |sum, gradient| sum.saturating_add(gradient.numel()));
        let cat = || ops::rearrangement(cx, Rearrangement::Cat, &[numel], first.dtype());
        let flat = (piece.len() > 1).then(|| here(&cat));
        // The last piece's list is let go of when this one's is complete.
        drop(std::mem::replace(&mut before, flat));
        summed(&piece, numel, first.dtype());
        ops::transfer(cx, Transfer::ReduceScatter, numel, cards, first.dtype());
    }
    drop(before);
    drop(gradients);
}

fn sent(tensor: &Tensor) -> Sent {
    Sent { numel: tensor.numel(), dtype: tensor.dtype() }
}

/// `_take_tensors` (`torch/_utils.py`): unlike C++'s, a piece closes before what would exceed it.
fn taken(tensors: &[Tensor]) -> Vec<Vec<usize>> {
    let mut open: Vec<(DType, Vec<usize>, u64)> = Vec::new();
    let mut pieces = Vec::new();
    for (index, tensor) in tensors.iter().enumerate() {
        let bytes = tensor.numel().saturating_mul(tensor.dtype().size());
        let at = open.iter().position(|(dtype, ..)| *dtype == tensor.dtype()).unwrap_or_else(|| {
            open.push((tensor.dtype(), Vec::new(), 0));
            open.len() - 1
        });
        let Some((_, members, held)) = open.get_mut(at) else { continue };
        if held.saturating_add(bytes) > PIECE && *held > 0 {
            pieces.push(std::mem::take(members));
            *held = 0;
        }
        members.push(index);
        *held = held.saturating_add(bytes);
    }
    pieces.extend(open.into_iter().map(|(_, members, _)| members).filter(|members| !members.is_empty()));
    pieces
}
