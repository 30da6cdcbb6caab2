//! Every byte at the peak: whose it is, layer by layer, and what lies between live memory and the process.

use std::collections::BTreeMap;

use plimsoll_ground::Bytes;
use plimsoll_ledger::{Ledger, Storage};
use serde::Serialize;

use super::measure::{ROUNDING, alive, category};
use super::{Category, Holding};

/// The peak of live memory, explained: `layers` sum to `requested`, and with `beyond` to the process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// Live memory at its peak; the estimate's `peak.requested`.
    pub requested: Bytes,
    /// What fills it, layer by layer, in the order the model runs them; what belongs to no layer stands under its
    /// module, or under an empty name.
    pub layers: Vec<Layer>,
    /// What the process takes beyond live memory.
    pub beyond: Beyond,
}

/// One layer, or one module outside the layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Layer {
    /// `model.layers.3`, `lm_head`; empty for what belongs to no module.
    pub name: String,
    /// What it holds.
    pub bytes: Bytes,
    /// Groups of equal storages, largest first.
    pub holdings: Vec<Holding>,
}

/// From live memory up to the process. All but `rounding` and `allocated_elsewhere` sum, with `requested`, to the
/// process peak.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Beyond {
    /// How much of `requested` nobody asked for: every storage counts in steps of 512 bytes.
    pub rounding: Bytes,
    /// At that moment, rests of blocks that were too small to be split off: they count as allocated.
    pub unsplit: Bytes,
    /// At that moment, free blocks that the allocator keeps.
    pub cached: Bytes,
    /// What more it had reserved at another moment.
    pub reserved_elsewhere: Bytes,
    /// CUDA context and loaded libraries.
    pub context: Bytes,
    /// How much higher `allocated` was at another moment, where it peaks.
    pub allocated_elsewhere: Bytes,
}

/// The layer of a module's path: up to its first number.
fn layer_of(module: &str) -> &str {
    let mut end = 0;
    for part in module.split('.') {
        end += part.len();
        if !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()) {
            return &module[..end];
        }
        end += 1;
    }
    module
}

/// Groups what is alive after `events` events, layer by layer.
pub fn layers(ledger: &Ledger, events: usize) -> Vec<Layer> {
    let paths = ledger.modules.paths();
    let path = |s: &Storage| paths[s.module.index()].as_str();
    // By layer in the order of its first storage: parameters are made in the order the model has them.
    let mut order: BTreeMap<&str, usize> = BTreeMap::new();
    for storage in &ledger.storages {
        let next = order.len();
        order.entry(layer_of(path(storage))).or_insert(next);
    }
    type Key<'a> = (Category, &'a str, &'a str, &'a str, &'a [u64], &'static str);
    type Groups<'a> = BTreeMap<Key<'a>, (u64, Bytes)>;
    let mut groups: BTreeMap<(usize, &str), Groups<'_>> = BTreeMap::new();
    for id in alive(ledger, events) {
        let s = &ledger.storages[id as usize];
        // An optimizer runs outside every module; what it makes for a parameter is the parameter's module's.
        let owner = s.owner.and_then(|owner| ledger.storages.get(owner.parameter() as usize));
        let module = path(owner.unwrap_or(s));
        let layer = layer_of(module);
        let place = order.get(layer).copied().unwrap_or(usize::MAX);
        let key = (category(s.kind), module, ledger.op(s), ledger.grad_fn(s), ledger.sizes(s), s.dtype.name());
        let group = groups.entry((place, layer)).or_default().entry(key).or_default();
        group.0 += 1;
        group.1 += Bytes::new(s.bytes).round_up_to(ROUNDING);
    }
    let layer = |((_, name), groups): ((usize, &str), Groups<'_>)| {
        let mut holdings: Vec<Holding> = groups
            .into_iter()
            .map(|((category, module, op, node, shape, dtype), (count, bytes))| Holding {
                category,
                module: module.to_owned(),
                op: if node.is_empty() { op.to_owned() } else { format!("{op}@{node}") },
                shape: shape.to_vec(),
                dtype: dtype.to_owned(),
                count,
                bytes,
            })
            .collect();
        holdings.sort_by_key(|h| std::cmp::Reverse(h.bytes));
        Layer { name: name.to_owned(), bytes: holdings.iter().map(|h| h.bytes).sum(), holdings }
    };
    groups.into_iter().map(layer).collect()
}

/// What rounding adds to what is alive after `events` events.
pub fn rounding(ledger: &Ledger, events: usize) -> Bytes {
    let over = |id: u32| {
        let bytes = Bytes::new(ledger.storages[id as usize].bytes);
        bytes.round_up_to(ROUNDING) - bytes
    };
    alive(ledger, events).map(over).sum()
}
