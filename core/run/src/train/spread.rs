//! What spreads a training over several cards.

use std::rc::Rc;

use plimsoll_parallel::{DataParallel, Ddp, Early, Fsdp1, Fsdp2, Late, Replica, Whole, Wrapper};
use plimsoll_scenario::{Parallel, ParallelStrategy, ShardingStrategy, Training};
use plimsoll_torch::nn::Sharded;
use plimsoll_torch::optim::Norm;
use plimsoll_torch::tensor::{Context, ModuleId, Tensor};

/// What spreads the training over several cards; nothing of it on one.
#[derive(Debug, Default)]
pub(super) struct Spread {
    pub(super) ddp: Option<Rc<Ddp>>,
    /// All cards in one process.
    pub(super) together: Option<Rc<DataParallel>>,
    /// The same on another card than the first, where no loop runs.
    pub(super) replica: Option<Rc<Replica>>,
    pub(super) cut: Option<Rc<dyn Wrapper>>,
    /// Whether the model computes its loss within its own forward, as those of transformers do.
    pub(super) whole: bool,
    /// Whether gradients are reduced after every micro-batch, and not after a step's last one only.
    pub(super) every: bool,
    /// How gradients are clipped.
    pub(super) norm: Norm,
}

/// Wraps a model of these parameters, as it lists them, and as they were cut where they are.
pub(super) fn spread(
    cx: &Rc<Context>,
    listed: Vec<Tensor>,
    sharded: &[Sharded],
    (sharing, leaves): (&[(ModuleId, Tensor)], &[ModuleId]),
    training: &Training,
    parallel: &Parallel,
) -> Spread {
    let ddp = (parallel.strategy == ParallelStrategy::Ddp).then(|| Ddp::wrap(cx, &listed, parallel));
    let (mut together, mut replica) = (None, None);
    if parallel.strategy == ParallelStrategy::DataParallel {
        match sharded {
            [] => together = Some(DataParallel::wrap(cx, &listed, parallel.gpus)),
            sharded => replica = Some(Replica::wrap(cx, sharded, &listed, parallel)),
        }
    }
    let cut: Option<Rc<dyn Wrapper>> = match parallel.strategy {
        ParallelStrategy::Fsdp2 => Some(Fsdp2::wrap(cx, sharded.to_vec(), &listed, parallel)),
        ParallelStrategy::Fsdp1 => Some(Fsdp1::wrap(cx, sharded.to_vec(), &listed, parallel)),
        ParallelStrategy::Zero0 => Some(Whole::wrap(cx, sharded, &listed, training.clip_grad_norm, parallel.gpus)),
        ParallelStrategy::Zero1 | ParallelStrategy::Zero2 => Some(Early::wrap(cx, sharded, &listed, parallel)),
        ParallelStrategy::Zero3 => Some(Late::wrap(cx, sharded, listed, (sharing, leaves), parallel)),
        _ => None,
    };
    let every = match parallel.strategy {
        ParallelStrategy::Ddp => !parallel.ddp.no_sync,
        ParallelStrategy::Fsdp1 | ParallelStrategy::Fsdp2 => parallel.fsdp.sync_every_micro_batch,
        _ => false,
    };
    let norm = match parallel.strategy {
        ParallelStrategy::Fsdp2 => Norm::OfShards,
        ParallelStrategy::Fsdp1 if parallel.fsdp.sharding_strategy == ShardingStrategy::NoShard => {
            Norm::PlainBehindZero
        }
        ParallelStrategy::Fsdp1 if parallel.fsdp.cpu_offload => Norm::OneByOneElsewhere,
        ParallelStrategy::Fsdp1 => Norm::OneByOne,
        _ => Norm::Plain,
    };
    Spread { ddp, together, replica, cut, whole: false, every, norm }
}
