//! What more may stay reserved where the card lags behind its host: blocks that were handed to `record_stream`.
//!
//! `free` takes such a block off what is allocated at once, and gives it back to its pool when the other stream has passed an event
//! (`CUDACachingAllocator.cpp`). How far behind the card is, nobody knows; but each strategy has places where the host waits for it. The
//! low end of the band is a card that never lags, as everything else is estimated; the upper end one that is never ahead of what the host
//! waited for. Where there is no room PyTorch waits for all events before it gives up: whether a run fits does not depend on it.

use std::collections::VecDeque;

use plimsoll_allocator::CachingAllocator;
use plimsoll_ground::Bytes;
use plimsoll_ledger::{Event, Kind, Ledger, Module, ModuleId, PhaseName, Storage, Stream};
use plimsoll_scenario::{ParallelStrategy, Scenario};
use plimsoll_torch::Op;
use serde::Serialize;

use super::outcome::CardMemory;
use super::{Phase, Verdict};

/// Between what a card that does not lag has reserved at most, and one that lags as far as it can.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lag {
    /// A card that does not lag: the estimate's own figure.
    pub reserved_low: Bytes,
    /// One that lags as far as its host lets it.
    pub reserved_high: Bytes,
    /// The process at that end.
    pub process_high: Bytes,
    /// What is handed back late, and until when.
    pub reason: String,
}

/// All-gathers that FSDP1 has under way at most (`_FreeEventQueue`, `torch/distributed/fsdp/_limiter_utils.py`).
const IN_FLIGHT: usize = 2;

/// Where both make what they gather (`_unshard_stream`, `__allgather_stream`).
const GATHERING: Stream = Stream::new(1);

/// What the strategy hands to `record_stream`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handed {
    /// What was gathered, or cast to be, behind the stream that computes.
    Gathered,
    /// FSDP1's flat gradient, behind the stream that reduces.
    Gradient,
}

impl Handed {
    /// The stream it waits for.
    const fn behind(self) -> Stream {
        match self {
            Self::Gathered => Stream::DEFAULT,
            // `_post_backward_stream`
            Self::Gradient => Stream::new(3),
        }
    }
}

impl Lag {
    /// Of a run that reserves `reserved` on a card that does not lag; `None` where nothing is handed over, where it makes no
    /// difference, or where the run does not fit: then PyTorch waits for these blocks, and fails all the same.
    pub fn of(
        ledger: &Ledger,
        scenario: &Scenario,
        memory: &CardMemory,
        (reserved, verdict): (Bytes, Verdict),
        undelayed: Undelayed<'_>,
    ) -> Option<Self> {
        let strategy = scenario.parallel.strategy;
        // Other settings of the allocator are not replayed with events.
        if !memory.settings.is_default() || verdict == Verdict::DoesNotFit {
            return None;
        }
        if !ledger.handed.is_empty() {
            let high = returning(ledger, memory.room())?.max(reserved);
            let reason = "OffloadActivations hands what came back to record_stream where it is held longer than its node runs, as what a \
                          layer is recomputed from is, until the host waits behind backward";
            return (high > reserved).then(|| Self::between(reserved, high, memory, reason));
        }
        if scenario.parallel.gpus < 2 {
            return None;
        }
        let reason = match strategy {
            ParallelStrategy::Fsdp1 => {
                "FSDP1 hands what it gathered to record_stream, until the host waits for the reshard before the last two all-gathers \
                 (limit_all_gathers), and flat gradients until the next forward"
            }
            ParallelStrategy::Zero3 if scenario.parallel.zero.overlap_comm => {
                "DeepSpeed hands what it gathered to record_stream, and its host waits for what computes at the end of each backward alone"
            }
            _ => return None,
        };
        let high = lagging(ledger, strategy, memory.room(), undelayed)?.max(reserved);
        (high > reserved).then(|| Self::between(reserved, high, memory, reason))
    }

    fn between(low: Bytes, high: Bytes, memory: &CardMemory, reason: &str) -> Self {
        Self { reserved_low: low, reserved_high: high, process_high: high + memory.context, reason: reason.to_owned() }
    }

    /// In words.
    pub fn note(&self) -> String {
        format!(
            "on a card that lags behind its host up to {} stay reserved instead of {}, a process of {}: {}. Where there is no room PyTorch \
             waits for these blocks first, so whether the run fits does not depend on it",
            self.reserved_high, self.reserved_low, self.process_high, self.reason
        )
    }
}

/// The most that is reserved where what one card handed over comes back when its host has waited, at the end of each backward (`__exit__`);
/// `None` where there is no room.
fn returning(ledger: &Ledger, room: Bytes) -> Option<Bytes> {
    let mut allocator = CachingAllocator::with_capacity(Some(room), ledger.storages.len());
    for (number, mark) in ledger.phases.iter().enumerate() {
        let end = ledger.phase(number).end;
        for (emptied, range) in ledger.between_emptyings(mark.at..end) {
            if emptied {
                allocator.empty_cache();
            }
            for (at, event) in range.clone().zip(ledger.events.get(range)?) {
                let id = event.id();
                if event.is_free() && ledger.handed.binary_search(&id).is_ok() {
                    allocator.free_behind(id, Stream::DEFAULT, at);
                } else {
                    let size = ledger.storages.get(id as usize)?.bytes;
                    allocator.apply(*event, Bytes::new(size)).ok()?;
                }
            }
        }
        if mark.name == PhaseName::Backward {
            allocator.synchronized();
        }
    }
    Some(allocator.peak_reserved())
}

/// What a storage is handed to `record_stream` as, if it is: `_no_dispatch_record_stream` in `torch/distributed/fsdp/_flat_param.py` and
/// `_runtime_utils.py`, `free_param` in `deepspeed/runtime/zero/partition_parameters.py`. One that was made on the stream it would wait
/// for is not (`recordStream`).
fn handed(storage: &Storage, stream: Stream, (strategy, by): (ParallelStrategy, ModuleId)) -> Option<Handed> {
    if stream == Stream::DEFAULT || storage.module != by {
        return None;
    }
    match strategy {
        ParallelStrategy::Fsdp1 | ParallelStrategy::Zero3 if storage.kind == Kind::Parameter => Some(Handed::Gathered),
        ParallelStrategy::Fsdp1 if storage.op == Op::Cat.id() => Some(Handed::Gradient),
        _ => None,
    }
}

/// The module that the strategy's wrapper says it makes what it hands over in.
fn wrapper(ledger: &Ledger, strategy: ParallelStrategy) -> Option<ModuleId> {
    let name = if strategy == ParallelStrategy::Fsdp1 { "unshard" } else { "zero" };
    let is = |(_, module): &(u32, &Module)| module.parent == ModuleId::ROOT && module.name == name;
    (0..).zip(ledger.modules.iter()).skip(1).find(is).map(|(index, _)| ModuleId::new(index))
}

/// The most that is reserved; `None` where there is no room.
///
/// What is handed over lies on streams of its own, and a block serves its stream alone: where nothing is given back to make room, no
/// other stream has anything else reserved than on a card that does not lag, whose `phases` are known. Where the card is full before,
/// PyTorch waits and gives back: it has been full.
fn lagging(ledger: &Ledger, strategy: ParallelStrategy, room: Bytes, undelayed: Undelayed<'_>) -> Option<Bytes> {
    if let Some(most) = undelayed.with(ledger, strategy) {
        return Some(most.min(room));
    }
    replay(ledger, strategy, Some(room), Which::All)?.into_iter().max()
}

/// The same run on a card that does not lag.
#[derive(Clone, Copy, Debug)]
pub struct Undelayed<'a> {
    pub phases: &'a [Phase],
    pub retries: u32,
    /// What other streams than the one that computes had reserved when each stretch between two emptyings of the cache ended: with
    /// nothing given back within a stretch, that is the most of it.
    pub apart: &'a [Bytes],
}

impl Undelayed<'_> {
    /// The most that is reserved where handed blocks come back late and there is room for everything; `None` where that cannot be told
    /// from the phases.
    fn with(&self, ledger: &Ledger, strategy: ParallelStrategy) -> Option<Bytes> {
        if self.retries > 0 || self.apart.len() != ledger.emptied.len() + 1 {
            return None;
        }
        let late = replay(ledger, strategy, None, Which::Elsewhere)?;
        let mut most = self.phases.iter().map(|phase| phase.peak_reserved).max()?;
        for ((end, before), after) in ends(ledger).zip(self.apart.iter().copied()).zip(late) {
            if after > before {
                let whole = self.phases.get(end?)?.end_reserved;
                most = most.max(whole.saturating_sub(before) + after);
            }
        }
        Some(most)
    }
}

/// Of every stretch between two emptyings of the cache, the phase with which it ends; `None` where that is in the middle of one.
fn ends(ledger: &Ledger) -> impl Iterator<Item = Option<usize>> {
    let ends = ledger.emptied.iter().map(|after| *after as usize).chain([ledger.events.len()]);
    ends.map(|after| {
        let last = ledger.phases.partition_point(|mark| mark.at < after).checked_sub(1)?;
        (ledger.phase(last).end == after).then_some(last)
    })
}

/// Whose events are replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    All,
    /// Those of all streams but the one that computes.
    Elsewhere,
}

/// The most that is reserved in every stretch between two emptyings of the cache, on a card that lags where `strategy` lets it; `None`
/// where there is no room.
fn replay(ledger: &Ledger, strategy: ParallelStrategy, room: Option<Bytes>, which: Which) -> Option<Vec<Bytes>> {
    let by = wrapper(ledger, strategy).map(|module| (strategy, module));
    let mut allocator = CachingAllocator::with_capacity(room, ledger.storages.len());
    let mut births: Vec<Option<(Handed, Stream)>> = vec![None; ledger.storages.len()];
    // `_FreeEventQueue`, and until when the stream that computes has waited for the one that reduces.
    let (mut freed, mut joined) = (VecDeque::new(), None);
    // Whether the host has waited for all streams. What that gives back is looked at when something is asked for again, if anything is.
    let mut waited_for_all = false;
    let mut stretches = Vec::with_capacity(ledger.emptied.len() + 1);
    for (number, mark) in ledger.phases.iter().enumerate() {
        let end = ledger.phase(number).end;
        for (emptied, range) in ledger.between_emptyings(mark.at..end) {
            if emptied {
                stretches.push(allocator.peak_reserved());
                allocator.empty_cache();
                allocator.reset_peaks();
            }
            let wanted = |event: &Event| which == Which::All || event.stream() != Stream::DEFAULT;
            let begin = range.start;
            for (offset, event) in ledger.events.get(range)?.iter().enumerate().filter(|(_, event)| wanted(event)) {
                let at = begin + offset;
                if std::mem::take(&mut waited_for_all) {
                    allocator.synchronized();
                }
                let (id, storage) = (event.id(), ledger.storages.get(event.id() as usize)?);
                let birth = births.get_mut(id as usize)?;
                match (event.is_free(), *birth) {
                    (true, Some((handed, made))) => {
                        allocator.free_behind(id, handed.behind(), at);
                        if strategy == ParallelStrategy::Fsdp1 && handed == Handed::Gathered && made == GATHERING {
                            freed.push_back(at);
                        }
                    }
                    (true, None) => allocator.free(id),
                    (false, _) => {
                        let made = event.stream();
                        *birth = by.and_then(|by| handed(storage, made, by)).map(|handed| (handed, made));
                        let gathers = *birth == Some((Handed::Gathered, GATHERING));
                        if strategy == ParallelStrategy::Fsdp1 && gathers && freed.len() >= IN_FLIGHT {
                            let waited: usize = freed.pop_front()?;
                            allocator.passed(Handed::Gathered.behind(), waited);
                            if let Some(joined) = joined.filter(|joined| *joined <= waited) {
                                allocator.passed(Handed::Gradient.behind(), joined);
                            }
                        }
                        allocator.alloc(id, Bytes::new(storage.bytes), event.stream()).ok()?;
                    }
                }
            }
        }
        if mark.name == PhaseName::Backward {
            match strategy {
                // `reduce_and_partition_stream.synchronize()`, which has waited for what computes.
                ParallelStrategy::Zero3 => waited_for_all = true,
                // `_post_backward_final_callback`
                _ => joined = Some(end),
            }
        }
    }
    stretches.push(allocator.peak_reserved());
    Some(stretches)
}

#[cfg(test)]
mod tests {
    use plimsoll_scenario::{ParallelStrategy, Scenario};
    use serde_json::{Value, json};

    use plimsoll_allocator::Settings;
    use plimsoll_ground::Bytes;

    use super::{Undelayed, Which, replay};
    use crate::measure;
    use crate::{Run, Verdict};

    fn run(parallel: Value) -> Run {
        run_of(1, parallel)
    }

    fn run_of(batch: u64, parallel: Value) -> Run {
        Run::new(&Scenario::from_value(&scenario(batch, parallel)).unwrap()).unwrap()
    }

    fn scenario(batch: u64, parallel: Value) -> Value {
        let model = json!({"hf": {"model_type": "llama", "vocab_size": 2000, "hidden_size": 1024, "intermediate_size": 2816,
            "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 8}});
        json!({"model": model, "input": {"batch": batch, "seq": 32}, "training": {"precision": "bf16"},
            "parallel": parallel, "device": {"gpu": "h100-sxm"}})
    }

    #[test]
    fn what_is_handed_to_record_stream_has_a_band() {
        for parallel in [json!({"gpus": 8, "strategy": "fsdp1"}), json!({"gpus": 8, "strategy": "zero-3"})] {
            let run = run(parallel.clone());
            let lag = run.estimate().lag.clone().unwrap();
            assert_eq!(lag.reserved_low, run.estimate().peak.reserved, "{parallel}");
            assert!(lag.reserved_high > lag.reserved_low, "{parallel}: {lag:?}");
            // No more than the whole model gathered in forward and again in backward, and all its gradients, beside it.
            let model = run.estimate().parameters.total * 2;
            let most = lag.reserved_low.get() + 4 * model;
            assert!(lag.reserved_high.get() < most, "{parallel}: {lag:?}");
            assert!(
                run.estimate().warnings.iter().any(|warning| warning.contains("lags behind its host")),
                "{parallel}"
            );
        }
    }

    #[test]
    fn what_trl_offloads_has_a_band_where_layers_are_recomputed() {
        let of = |precision: &str, offloading: &str| {
            let mut value = scenario(8, json!({"gpus": 1}));
            value["training"] = json!({"precision": precision, "checkpointing": "full", "activation_offloading": offloading,
                "loss_impl": "fused-linear"});
            value["input"]["seq"] = json!(2048);
            Run::new(&Scenario::from_value(&value).unwrap()).unwrap().into_estimate()
        };
        let lag = of("fp32", "offload-activations").lag.unwrap();
        // At most the inputs of all six layers more, in segments.
        let inputs = 6 * 8 * 2048 * 1024 * 4;
        assert!(
            lag.reserved_high > lag.reserved_low && lag.reserved_high.get() <= lag.reserved_low.get() + 2 * inputs,
            "{lag:?}"
        );
        // In bfloat16 a norm reads a copy in float32, and nobody holds the input longer.
        assert_eq!(of("bf16", "offload-activations").lag, None);
        assert_eq!(of("fp32", "save-on-cpu").lag, None);
    }

    /// What is told from the other streams alone is what a replay of everything comes to.
    #[test]
    fn the_streams_apart_are_the_whole() {
        let small = json!({"sub_group_size": 1_000_000, "prefetch_bucket_size": 100_000});
        let cases = [
            (ParallelStrategy::Fsdp1, json!({"gpus": 8, "strategy": "fsdp1"})),
            (ParallelStrategy::Fsdp1, json!({"gpus": 2, "strategy": "fsdp1"})),
            (ParallelStrategy::Zero3, json!({"gpus": 8, "strategy": "zero-3"})),
            (ParallelStrategy::Zero3, json!({"gpus": 2, "strategy": "zero-3", "zero": small})),
        ];
        for (strategy, parallel) in cases {
            let run = run(parallel.clone());
            let (ledger, phases) = (run.ledger(), &run.estimate().phases);
            let whole = replay(ledger, strategy, None, Which::All).unwrap().into_iter().max();
            let size = |id: u32| Bytes::new(ledger.storages[id as usize].bytes);
            let peaks = measure::replay(ledger, size, (None, &Settings::default()), None).unwrap();
            let apart = Undelayed { phases, retries: 0, apart: &peaks.apart }.with(ledger, strategy);
            assert!(apart.is_some() && apart == whole, "{parallel}: {apart:?}, {whole:?}");
        }
    }

    /// Where handed blocks would fill the card, PyTorch waits for them: no more is reserved than there is.
    #[test]
    fn no_more_is_reserved_than_the_card_has() {
        let parallel = json!({"gpus": 8, "strategy": "fsdp1"});
        let roomy = run(parallel.clone()).estimate().lag.clone().unwrap();
        let memory = roomy.process_high.get() - (64 << 20);
        let mut value = scenario(1, parallel);
        value["device"]["memory"] = json!(memory);
        value["device"]["load_line"] = json!(memory);
        let small = Run::new(&Scenario::from_value(&value).unwrap()).unwrap();
        let lag = small.estimate().lag.clone().unwrap();
        assert_eq!(lag.reserved_low, roomy.reserved_low);
        assert_eq!(lag.process_high, small.estimate().device.capacity);
    }

    #[test]
    fn a_run_that_does_not_fit_has_none() {
        let run = run_of(100_000, json!({"gpus": 8, "strategy": "fsdp1"}));
        assert_eq!((run.estimate().verdict, run.estimate().lag.is_none()), (Verdict::DoesNotFit, true));
    }

    #[test]
    fn nothing_else_has_one() {
        let others = [
            json!({"gpus": 1}),
            json!({"gpus": 8, "strategy": "ddp"}),
            json!({"gpus": 8, "strategy": "fsdp2"}),
            json!({"gpus": 8, "strategy": "zero-2", "zero": {"overlap_comm": true, "reduce_bucket_size": 1_000_000}}),
            json!({"gpus": 8, "strategy": "zero-3", "zero": {"overlap_comm": false}}),
        ];
        for parallel in others {
            assert!(run(parallel.clone()).estimate().lag.is_none(), "{parallel}");
        }
    }
}
