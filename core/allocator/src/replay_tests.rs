//! Streams that PyTorch really produced, and streams at random.

use plimsoll_ledger::{Event, Stream};
use proptest::prelude::*;

use super::{Bytes, CachingAllocator, UNIT};

/// A committed stream; the files say themselves where they come from and how they read.
struct Traced {
    sizes: Vec<u64>,
    peak: (u64, u64),
    phases: Vec<Phase>,
}

struct Phase {
    name: String,
    end: (u64, u64),
    /// Each with the size of what it allocates.
    events: Vec<(Event, Bytes)>,
}

impl Traced {
    fn parse(text: &str) -> Self {
        let mut stream = Self { sizes: Vec::new(), peak: (0, 0), phases: Vec::new() };
        let mut next_id = 0;
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let words: Vec<&str> = line.split(' ').collect();
            let number = |at: usize| words[at].parse::<u64>().unwrap();
            match words[0] {
                "sizes" => stream.sizes.extend(words[1..].iter().map(|word| word.parse::<u64>().unwrap())),
                "peak" => stream.peak = (number(1), number(2)),
                "phase" => {
                    let phase = Phase { name: words[3..].join(" "), end: (number(1), number(2)), events: Vec::new() };
                    stream.phases.push(phase);
                }
                _ => {
                    let phase = stream.phases.last_mut().unwrap();
                    for word in words {
                        if let Some(id) = word.strip_prefix('-') {
                            phase.events.push((Event::free(id.parse().unwrap()), Bytes::ZERO));
                        } else {
                            let size = stream.sizes[word.parse::<usize>().unwrap()];
                            phase.events.push((Event::alloc(next_id), Bytes::new(size)));
                            next_id += 1;
                        }
                    }
                }
            }
        }
        stream
    }
}

fn apply(allocator: &mut CachingAllocator, event: Event, size: Bytes) {
    allocator.apply(event, size).unwrap();
}

fn replays_exactly(text: &str, events: usize) {
    let stream = Traced::parse(text);
    assert_eq!(stream.phases.iter().map(|phase| phase.events.len()).sum::<usize>(), events);
    let mut allocator = CachingAllocator::new(None);
    for phase in &stream.phases {
        for &(event, size) in &phase.events {
            apply(&mut allocator, event, size);
        }
        assert_eq!((allocator.allocated().get(), allocator.reserved().get()), phase.end, "{}", phase.name);
        check_blocks(&allocator);
    }
    assert_eq!((allocator.peak_allocated().get(), allocator.peak_reserved().get()), stream.peak);
    assert_eq!(allocator.retries(), 0);
}

#[test]
fn a_llama_layer_under_autocast() {
    replays_exactly(include_str!("testdata/llama-1layer-bf16-amp-sgd-momentum.events"), 834);
}

#[test]
fn resnet50_under_autocast_with_a_fused_optimizer() {
    replays_exactly(include_str!("testdata/resnet50-bf16-amp-adamw-fused.events"), 3471);
}

#[test]
fn gpt2_with_checkpointing() {
    replays_exactly(include_str!("testdata/gpt2-fp32-checkpointing-adamw.events"), 6025);
}

#[test]
fn a_limit_at_the_peak_changes_nothing() {
    let stream = Traced::parse(include_str!("testdata/gpt2-fp32-checkpointing-adamw.events"));
    let mut allocator = CachingAllocator::new(Some(Bytes::new(stream.peak.1)));
    for &(event, size) in stream.phases.iter().flat_map(|phase| &phase.events) {
        apply(&mut allocator, event, size);
    }
    assert_eq!((allocator.peak_reserved().get(), allocator.retries()), (stream.peak.1, 0));
}

#[test]
fn a_limit_between_the_peaks_is_met_by_releasing_cached_segments() {
    let stream = Traced::parse(include_str!("testdata/gpt2-fp32-checkpointing-adamw.events"));
    let limit = (stream.peak.0 + stream.peak.1) / 2;
    let mut allocator = CachingAllocator::new(Some(Bytes::new(limit)));
    for &(event, size) in stream.phases.iter().flat_map(|phase| &phase.events) {
        apply(&mut allocator, event, size);
        assert!(allocator.reserved().get() <= limit);
    }
    assert!(allocator.retries() > 0);
    check_blocks(&allocator);
}

/// Every block lies where its neighbours end, free ones are in the list of their pool exactly once and never touch, and
/// the totals are what the blocks add up to.
fn check_blocks(allocator: &CachingAllocator) {
    let blocks = allocator.blocks.live();
    let (mut allocated, mut reserved) = (0, 0);
    let mut spans = Vec::new();
    for (index, block) in &blocks {
        reserved += block.size;
        if !block.free {
            allocated += block.size;
        }
        assert_eq!(allocator.block_of.iter().filter(|&b| b == index).count(), usize::from(!block.free));
        assert_eq!(allocator.free[usize::from(block.stream.number())].contains(*index), block.free);
        spans.push((block.address, block.size));
        if let Some((_, next)) = blocks.iter().find(|(i, _)| *i == block.next) {
            assert_eq!((block.address + block.size, *index, block.pool), (next.address, next.prev, next.pool));
            assert!(!(block.free && next.free), "free neighbours are merged");
        }
    }
    spans.sort_unstable();
    assert!(spans.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "blocks overlap");
    assert_eq!((allocator.allocated, allocator.reserved), (allocated, reserved));
    assert!(allocator.free.iter().all(super::FreeList::is_sound));
}

/// The same rules once more, as plainly as they can be written: segments in the order of their addresses, every block
/// (its size, and whether it is free) in a list, every search from the start.
#[derive(Default)]
struct Plain {
    segments: Vec<((u8, bool), Vec<PlainBlock>)>,
}

#[derive(Clone, Copy)]
struct PlainBlock {
    size: u64,
    owner: Option<u32>,
}

impl Plain {
    fn alloc(&mut self, id: u32, size: u64, stream: u8) {
        const MIB: u64 = 1 << 20;
        let size = size.div_ceil(512) * 512;
        if size == 0 {
            return;
        }
        let small = size <= MIB;
        let mut best: Option<(u64, usize, usize)> = None;
        for (s, (_, blocks)) in self.segments.iter().enumerate().filter(|(_, segment)| segment.0 == (stream, small)) {
            for (b, block) in blocks.iter().enumerate() {
                if block.owner.is_none() && block.size >= size && best.is_none_or(|(found, ..)| block.size < found) {
                    best = Some((block.size, s, b));
                }
            }
        }
        let (found, s, b) = best.unwrap_or_else(|| {
            let segment = match size {
                _ if small => 2 * MIB,
                _ if size < 10 * MIB => 20 * MIB,
                _ => size.div_ceil(2 * MIB) * 2 * MIB,
            };
            self.segments.push(((stream, small), vec![PlainBlock { size: segment, owner: None }]));
            (segment, self.segments.len() - 1, 0)
        });
        let rest = found - size;
        let blocks = &mut self.segments[s].1;
        if rest > MIB || (small && rest > 0) {
            blocks[b].size = rest;
            blocks.insert(b, PlainBlock { size, owner: Some(id) });
        } else {
            blocks[b].owner = Some(id);
        }
    }

    fn free(&mut self, id: u32) {
        for (_, blocks) in &mut self.segments {
            for block in blocks.iter_mut().filter(|block| block.owner == Some(id)) {
                block.owner = None;
            }
            for b in (1..blocks.len()).rev() {
                if blocks[b].owner.is_none() && blocks[b - 1].owner.is_none() {
                    blocks[b - 1].size += blocks.remove(b).size;
                }
            }
        }
    }

    fn books(&self) -> (u64, u64) {
        let blocks = || self.segments.iter().flat_map(|segment| &segment.1);
        let used = blocks().filter(|block| block.owner.is_some()).map(|block| block.size).sum();
        (used, blocks().map(|block| block.size).sum())
    }
}

/// A request on a stream, or a free of the n-th live storage.
#[derive(Clone, Copy, Debug)]
enum Step {
    Alloc(u64, u8),
    Free(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let size = prop_oneof![
        1 => Just(0),
        4 => 1..2 * 1024u64,
        4 => 1..2u64 << 20,
        4 => (0..40u64).prop_map(|n| n << 19),
        2 => 1..64u64 << 20,
        1 => (1..4u64).prop_map(|n| n << 30),
    ];
    let step = prop_oneof![3 => (size, 0..3u8).prop_map(|(size, stream)| Step::Alloc(size, stream)), 2 => any::<usize>().prop_map(Step::Free)];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn any_stream_ends_as_under_the_plainly_written_rules(steps in steps()) {
        let (mut allocator, mut plain) = (CachingAllocator::new(None), Plain::default());
        let mut live = Vec::new();
        for (id, step) in (0..).zip(steps) {
            match step {
                Step::Alloc(size, stream) => {
                    allocator.alloc(id, Bytes::new(size), Stream::new(stream)).unwrap();
                    plain.alloc(id, size, stream);
                    live.push(id);
                }
                Step::Free(_) if live.is_empty() => {}
                Step::Free(n) => {
                    let id = live.swap_remove(n % live.len());
                    allocator.free(id);
                    plain.free(id);
                }
            }
            prop_assert_eq!((allocator.allocated().get(), allocator.reserved().get()), plain.books());
        }
    }

    #[test]
    fn any_stream_keeps_the_books(steps in steps(), limit in prop::option::of(0..4u64 << 30)) {
        let mut allocator = CachingAllocator::new(limit.map(Bytes::new));
        let mut live: Vec<(u32, u64)> = Vec::new();
        let mut next_id = 0;
        for step in steps {
            let reserved_before = allocator.reserved();
            match step {
                Step::Alloc(size, stream) => {
                    match allocator.alloc(next_id, Bytes::new(size), Stream::new(stream)) {
                        Ok(()) => live.push((next_id, size)),
                        Err(error) => {
                            prop_assert!(limit.is_some());
                            prop_assert_eq!(error.requested.get(), size);
                            prop_assert_eq!(error.allocated, allocator.allocated());
                        }
                    }
                    next_id += 1;
                }
                Step::Free(_) if live.is_empty() => {}
                Step::Free(n) => allocator.free(live.swap_remove(n % live.len()).0),
            }
            check_blocks(&allocator);
            let requested: u64 = live.iter().map(|(_, size)| size.div_ceil(UNIT) * UNIT).sum();
            prop_assert!(requested <= allocator.allocated().get());
            prop_assert!(allocator.allocated() <= allocator.reserved());
            prop_assert!(limit.is_none_or(|limit| allocator.reserved().get() <= limit));
            prop_assert!(limit.is_some() || allocator.reserved() >= reserved_before);
            prop_assert!(allocator.peak_allocated() >= allocator.allocated());
            prop_assert!(allocator.peak_reserved() >= allocator.reserved());
        }
        let reserved = allocator.reserved();
        for (id, _) in live {
            allocator.free(id);
        }
        check_blocks(&allocator);
        prop_assert_eq!(allocator.allocated(), Bytes::ZERO);
        prop_assert_eq!(allocator.reserved(), reserved);
    }
}
