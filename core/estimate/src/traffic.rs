//! What leaves a card in a step: over the links between cards, over the network between machines, over its own to the machine's
//! memory.
//!
//! The engine writes down every collective that it runs, with its bytes. What a card sends for it is what NCCL's ring sends:
//! of `n` cards each passes `(n - 1) / n` of what is gathered or scattered on to the next, of a sum twice that
//! (`nccl-tests` counts its bus bandwidth so, doc/PERFORMANCE.md). Of the cards that stand in one machine as neighbours, one passes
//! on to the next machine, and they take turns: each channel leaves by another card. Trees and switches that add up (NVLS, SHARP)
//! move other amounts, and are not counted.

use plimsoll_ground::Bytes;
use plimsoll_ledger::{Ledger, WorkId};
use plimsoll_scenario::{Parallel, ParallelStrategy};
use plimsoll_torch::ops::Transfer;
use serde::{Deserialize, Serialize};

/// What a card sends in one step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// To cards of its own machine.
    pub peers: Bytes,
    /// To cards of other machines.
    pub network: Bytes,
    /// To the machine's memory and from there.
    pub host: Bytes,
}

impl Traffic {
    /// Whether nothing leaves the card.
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }

    /// Adds another one, so many times.
    pub(crate) fn add(&mut self, other: &Self, times: u64) {
        let sum = |sum: Bytes, more: Bytes| Bytes::new(sum.get().saturating_add(more.get().saturating_mul(times)));
        self.peers = sum(self.peers, other.peers);
        self.network = sum(self.network, other.network);
        self.host = sum(self.host, other.host);
    }
}

/// Cards that take part in a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Group {
    ranks: u64,
    /// How many of them stand in one machine.
    local: u64,
}

impl Group {
    /// What one of them sends, of `bytes` that each passes on.
    fn spread(self, bytes: u64) -> Traffic {
        let leaving = if self.ranks > self.local { bytes / self.local.max(1) } else { 0 };
        Traffic { peers: Bytes::new(bytes - leaving), network: Bytes::new(leaving), host: Bytes::ZERO }
    }
}

/// What of a ledger's work leaves the card.
pub(crate) struct Transfers(Vec<Option<Traffic>>);

impl Transfers {
    /// Of a ledger on cards that stand as `parallel` says.
    pub fn of(ledger: &Ledger, parallel: &Parallel) -> Self {
        let kind = |name: &str| Transfer::ALL.into_iter().find(|kind| kind.op().name() == name);
        let sent = |work: &plimsoll_ledger::Work| {
            let kind = kind(ledger.ops.get(work.op.0))?;
            let group = group(kind, parallel);
            let share = |bytes: u64, times: u64| {
                let all = u128::from(bytes) * u128::from(times) * u128::from(group.ranks.saturating_sub(1));
                u64::try_from(all / u128::from(group.ranks.max(1))).unwrap_or(u64::MAX)
            };
            Some(match kind {
                Transfer::AllGather => group.spread(share(work.written, 1)),
                Transfer::ReduceScatter => group.spread(share(work.read, 1)),
                Transfer::AllReduce => group.spread(share(work.read, 2)),
                // All but the last pass on what they get.
                Transfer::Broadcast => group.spread(share(work.read, 1)),
                Transfer::ToCard => Traffic { host: Bytes::new(work.written), ..Traffic::default() },
                Transfer::ToHost => Traffic { host: Bytes::new(work.read), ..Traffic::default() },
            })
        };
        Self(ledger.works.iter().map(sent).collect())
    }

    /// What work of this number sends; `None` where it is a kernel that computes.
    pub fn get(&self, WorkId(number): WorkId) -> Option<&Traffic> {
        self.0.get(number as usize)?.as_ref()
    }
}

/// Who takes part: all cards; under hybrid sharding those that share a model, which stand beside one another, or those that hold
/// the same part of it.
fn group(kind: Transfer, parallel: &Parallel) -> Group {
    let (all, local) = (parallel.gpus.max(1), parallel.local().max(1));
    let copies = parallel.replicate.clamp(1, all);
    let sharing = all / copies;
    if parallel.strategy != ParallelStrategy::Fsdp2 || copies == 1 {
        return Group { ranks: all, local };
    }
    if kind == Transfer::AllReduce {
        return Group { ranks: copies, local: (local / sharing.max(1)).clamp(1, copies) };
    }
    // A group that does not end where a machine does is taken as if it stood in as many as it touches.
    let within =
        if local.is_multiple_of(sharing) || sharing.is_multiple_of(local) { local } else { gcd(sharing, local) };
    Group { ranks: sharing, local: within.min(sharing) }
}

const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests {
    use plimsoll_scenario::Scenario;
    use serde_json::{Value, json};

    use super::*;
    use crate::Run;

    /// What is sent, and how many numbers the model has.
    fn traffic(parallel: Value, training: Value) -> (Traffic, u64) {
        let scenario = json!({
            "model": {"family": "mlp", "d_in": 8, "hidden": 32, "d_out": 4},
            "input": {"batch": 8}, "training": training, "parallel": parallel, "device": {"gpu": "h100-sxm"}
        });
        let scenario = Scenario::from_value(&scenario).unwrap_or_else(|error| panic!("{error}"));
        let run = Run::new(&scenario).unwrap_or_else(|error| panic!("{error}"));
        (run.estimate().work.traffic, run.estimate().parameters.trainable)
    }

    #[test]
    fn ddp_sums_every_gradient_once_a_step() {
        for accumulation in [1, 3] {
            let ddp = |keys: Value| {
                let mut parallel = json!({"gpus": 4, "strategy": "ddp"});
                parallel["ddp"] = keys;
                traffic(parallel, json!({"precision": "fp32", "accumulation": accumulation}))
            };
            let (sent, numbers) = ddp(json!({}));
            let once = Traffic { peers: Bytes::new(2 * numbers * 4 * 3 / 4), ..Traffic::default() };
            assert_eq!(sent, once);
            let (every, _) = ddp(json!({"no_sync": false}));
            assert_eq!(every.peers.get(), once.peers.get() * accumulation);
        }
    }

    #[test]
    fn of_the_cards_of_a_machine_one_passes_on_to_the_next() {
        let parallel = |per_node: u64| json!({"gpus": 4, "per_node": per_node, "strategy": "ddp"});
        let of = |per_node| traffic(parallel(per_node), json!({"precision": "fp32"})).0;
        let all = of(4).peers.get();
        assert_eq!((of(2).peers.get(), of(2).network.get()), (all / 2, all / 2));
        assert_eq!((of(1).peers.get(), of(1).network.get()), (0, all));
    }

    #[test]
    fn copies_of_a_shard_group_are_summed_across_it() {
        let parallel = |replicate: u64, strategy: &str| json!({"gpus": 4, "per_node": 2, "strategy": strategy, "replicate": replicate});
        let of = |replicate| traffic(parallel(replicate, "fsdp2"), json!({"precision": "fp32"})).0;
        let (one, two) = (of(1), of(2));
        // Two machines of two: what is gathered stays within them, and half a model's gradients are summed across.
        assert!(two.network.get() < one.network.get() / 2, "{one:?} {two:?}");
        assert!(two.network.get() > 0 && one.peers.get() > 0);
    }

    #[test]
    fn what_is_offloaded_goes_to_the_machines_memory_and_back() {
        let parallel = json!({"gpus": 2, "strategy": "fsdp2", "fsdp": {"cpu_offload": true}});
        let (sent, numbers) = traffic(parallel, json!({"precision": "fp32"}));
        assert!(sent.host.get() >= numbers * 4);
        let parallel = json!({"gpus": 2, "strategy": "zero-2", "zero": {"offload_optimizer": "cpu"}});
        let moved = traffic(parallel, json!({"precision": "bf16"})).0.host.get();
        // Half of the gradients in float32 one way, half of the parameters in bfloat16 the other.
        assert!((numbers * 3..numbers * 3 + 64).contains(&moved), "{moved} for {numbers}");
    }
}
