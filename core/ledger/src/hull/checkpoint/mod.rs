//! Checkpointing, worked out from a tape that was recorded without it.
//!
//! What is here is `_checkpoint_without_reentrant_generator` and `_checkpoint_hook` of `torch/utils/checkpoint.py`: in a
//! checkpointed stretch autograd is given holders instead of tensors, and the stretch's inputs are kept until the last
//! holder is gone. Whoever asks a holder for its tensor first has the stretch run again, up to the last thing that it had
//! saved (early stop). A tape says all of this apart, so the result is a tape as well.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_ground::{Error, Result};

use super::Hull;
use super::tape::{Born, Segment, Step, Tape, Way};

/// Which stretches are checkpointed; of those within one another, the outermost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen<'a> {
    /// Those that were marked when it was recorded: what the model's own switch checkpoints, or the blocks that repeat.
    Marked,
    /// Calls of the modules whose names match one of these patterns.
    Named(&'a [String]),
}

/// Whether a module's dotted name is one that a pattern means: part for part, `*` for whatever is between two dots.
pub fn names_match(pattern: &str, name: &str) -> bool {
    let (mut wanted, mut parts) = (pattern.split('.'), name.split('.'));
    loop {
        match (wanted.next(), parts.next()) {
            (None, None) => return true,
            (Some(piece), Some(part)) if part_matches(piece, part) => {}
            _ => return false,
        }
    }
}

/// `*` stands for any number of characters.
fn part_matches(pattern: &str, part: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(first) = pieces.next() else { return false };
    let Some(mut rest) = part.strip_prefix(first) else { return false };
    let mut last = None;
    for piece in pieces {
        if let Some(before) = last.replace(piece) {
            let Some(at) = rest.find(before) else { return false };
            rest = &rest[at + before.len()..];
        }
    }
    match last {
        None => rest.is_empty(),
        Some(end) => rest.ends_with(end),
    }
}

fn cannot(problem: &str) -> Error {
    Error::new(
        "training.checkpointing",
        format!("checkpointing cannot be worked out from this recording: {problem}"),
        "call torch.utils.checkpoint in the model and record it again with plimsoll trace",
    )
}

/// A checkpointed stretch of a micro-batch.
#[derive(Debug, Default)]
struct Region {
    /// Its first instruction behind what it is given.
    start: usize,
    /// Where it ends.
    end: usize,
    /// Behind the last thing it had autograd save.
    stop: usize,
    /// The storage that would come next where it begins, as the recording counts.
    first: u32,
    /// The handle that would.
    handle: u32,
    /// Storages that it is given.
    inputs: Vec<u32>,
    /// Holders that are still there.
    holders: BTreeSet<u32>,
    /// Handles that stand for the kept inputs.
    kept: Vec<u32>,
    /// Whether it ran again.
    again: bool,
    /// Places of `kept` among what is left behind.
    left: Vec<u32>,
}

/// What becomes of something that a micro-batch leaves behind.
#[derive(Clone, Copy, Debug, Default)]
struct Left {
    /// Its place in the new list.
    place: Option<u32>,
    /// The stretch whose inputs go with its last holder.
    region: Option<usize>,
}

impl Tape {
    /// Whether anything was marked for checkpointing when it was recorded.
    pub fn is_marked(&self) -> bool {
        self.segments[0].steps.contains(&Step::Region)
    }

    /// Whether it says what modules are given, without which nothing can be worked out.
    pub fn says_what_is_given(&self) -> bool {
        self.segments[0].steps.iter().any(|step| matches!(step, Step::Given(_)))
    }

    /// Takes out what is marked for checkpointing: it cannot be worked out.
    pub fn unmark(&mut self) {
        self.segments.iter_mut().for_each(Segment::unmark);
    }

    /// The same micro-batches with these stretches checkpointed, and how many there are in the first.
    ///
    /// # Errors
    /// A stretch whose second run cannot be told from its first.
    pub fn checkpointed(&self, hull: &Hull, chosen: Chosen<'_>) -> Result<(Self, usize)> {
        let picked: Vec<bool> = match chosen {
            Chosen::Marked => Vec::new(),
            Chosen::Named(patterns) => {
                hull.modules.iter().map(|name| patterns.iter().any(|p| names_match(p, name))).collect()
            }
        };
        let begins = |step: &Step| match *step {
            Step::Region => chosen == Chosen::Marked,
            Step::Module(module) => picked.get(module as usize).copied().unwrap_or(false),
            _ => false,
        };
        let mut storages: Vec<Born> = self.storages.iter().take(self.loaded as usize).copied().collect();
        let mut before: Vec<Left> = vec![Left::default(); self.segments[0].leaves.len()];
        let mut regions: Vec<Region> = Vec::new();
        let mut made: Vec<Segment> = Vec::with_capacity(3);
        let mut count = 0;
        for (index, segment) in self.segments.iter().enumerate() {
            let found = stretches(segment, &begins)?;
            if index == 0 {
                count = found.len();
            }
            let again = Again {
                tape: self,
                segment,
                first: storages.len() as u32,
                storages: &mut storages,
                regions: found,
                owner: BTreeMap::new(),
                numbers: Vec::new(),
                held: Vec::new(),
                references: Vec::new(),
                handles: BTreeMap::new(),
                refers: Vec::new(),
                taken: Vec::new(),
                steps: Vec::with_capacity(segment.steps.len()),
            };
            let (segment, left, open) = again.run(&before, &mut regions)?;
            made.push(segment);
            (before, regions) = (left, open);
        }
        let kinds = |segment: &Segment| segment.leaves.iter().map(std::mem::discriminant).collect::<Vec<_>>();
        if made.iter().any(|segment| kinds(segment) != kinds(&made[0])) {
            return Err(cannot("micro-batches would leave different things behind"));
        }
        let Ok(segments) = <[Segment; 3]>::try_from(made) else { return Err(cannot("it has no three micro-batches")) };
        Ok((Self { storages, segments, ..self.clone() }, count))
    }
}

/// The stretches of a micro-batch's forward.
fn stretches(segment: &Segment, begins: &dyn Fn(&Step) -> bool) -> Result<Vec<Region>> {
    let mut regions: Vec<Region> = Vec::new();
    // Of every call that is open, whether it is the chosen one.
    let mut calls: Vec<(bool, bool)> = Vec::new();
    let (mut storages, mut handles) = (segment.first, 0u32);
    let mut open = false;
    let mut giving = false;
    for (at, step) in segment.steps.iter().enumerate().take(segment.begins[1] as usize) {
        let given = std::mem::replace(&mut giving, false);
        match *step {
            Step::Region | Step::Module(_) => {
                let chosen = !open && begins(step);
                calls.push((*step == Step::Region, chosen));
                if chosen {
                    (open, giving) = (true, true);
                    let (start, stop) = (at + 1, at + 1);
                    regions.push(Region { start, stop, first: storages, handle: handles, ..Region::default() });
                }
            }
            Step::Given(storage) => {
                if let (true, Some(region)) = (given, regions.last_mut()) {
                    giving = true;
                    region.inputs.push(storage);
                    region.start = at + 1;
                    region.stop = at + 1;
                }
            }
            Step::Return | Step::RegionEnd => {
                let Some((marked, chosen)) = calls.pop() else {
                    return Err(cannot("something ends that did not begin"));
                };
                if marked != (*step == Step::RegionEnd) {
                    return Err(cannot("calls are not within one another"));
                }
                if let (true, Some(region)) = (chosen, regions.last_mut()) {
                    region.end = at;
                    open = false;
                }
            }
            Step::Born => storages += 1,
            Step::Kept(_) => {
                if let (true, Some(region)) = (open, regions.last_mut()) {
                    region.holders.insert(handles);
                    region.stop = at + 1;
                }
                handles += 1;
            }
            Step::Taken(_) if open => return Err(cannot("it runs backward within its forward")),
            _ => {}
        }
    }
    if open {
        return Err(cannot("a stretch does not end within the forward"));
    }
    Ok(regions)
}

/// A micro-batch that is written anew.
struct Again<'a> {
    tape: &'a Tape,
    segment: &'a Segment,
    /// The number of its first storage, and all that came so far.
    first: u32,
    storages: &'a mut Vec<Born>,
    regions: Vec<Region>,
    /// The stretch of each holder.
    owner: BTreeMap<u32, usize>,
    /// The new number of every storage of the recording's.
    numbers: Vec<u32>,
    /// Of every new storage whether Python holds it, and how many do.
    held: Vec<bool>,
    references: Vec<u32>,
    /// The new handle of every old one that holds something.
    handles: BTreeMap<u32, u32>,
    /// What every new handle holds, by its storage.
    refers: Vec<u32>,
    /// The storage of whatever backward took out.
    taken: Vec<u32>,
    steps: Vec<Step>,
}

impl Again<'_> {
    /// The number a storage has now.
    fn number(&self, storage: u32) -> u32 {
        match storage.checked_sub(self.segment.first) {
            Some(index) => self.numbers.get(index as usize).copied().unwrap_or(self.first),
            None => storage,
        }
    }

    fn count(&mut self, number: u32, more: bool) {
        let index = number.checked_sub(self.first).map(|index| index as usize);
        if let Some(references) = index.and_then(|index| self.references.get_mut(index)) {
            *references = if more { *references + 1 } else { references.saturating_sub(1) };
        }
    }

    fn born(&mut self, storage: u32) -> u32 {
        let number = self.storages.len() as u32;
        if let Some(born) = self.tape.storages.get(storage as usize) {
            self.storages.push(*born);
        }
        self.held.push(true);
        self.references.push(1);
        self.steps.push(Step::Born);
        number
    }

    /// Python lets go of a new storage.
    fn drop(&mut self, number: u32) {
        if let Some(index) = number.checked_sub(self.first) {
            if !self.held.get_mut(index as usize).is_some_and(|held| std::mem::replace(held, false)) {
                return;
            }
            self.count(number, false);
        }
        self.steps.push(Step::Dropped(number));
    }

    fn keep(&mut self, number: u32) -> Result<u32> {
        let index = number.checked_sub(self.first).map(|index| index as usize);
        if index.is_some_and(|index| self.references.get(index).copied().unwrap_or(0) == 0) {
            return Err(cannot("it saves again what was there in its first run only"));
        }
        self.count(number, true);
        let handle = self.refers.len() as u32;
        self.refers.push(number);
        self.steps.push(Step::Kept(number));
        Ok(handle)
    }

    fn let_go(&mut self, handle: u32) {
        if let Some(number) = self.refers.get(handle as usize).copied() {
            self.count(number, false);
            self.steps.push(Step::LetGo(handle));
        }
    }

    /// A holder is gone, and with the last of them what its stretch was given.
    fn holder_gone(&mut self, index: usize, holder: u32, at: usize) {
        let region = &mut self.regions[index];
        region.holders.remove(&holder);
        if region.holders.is_empty() && at >= region.end {
            for handle in std::mem::take(&mut region.kept) {
                self.let_go(handle);
            }
        }
    }

    fn run(mut self, before: &[Left], old: &mut [Region]) -> Result<(Segment, Vec<Left>, Vec<Region>)> {
        let owners = self.regions.iter().enumerate();
        self.owner = owners.flat_map(|(index, r)| r.holders.iter().map(move |holder| (*holder, index))).collect();
        let starts: BTreeMap<usize, usize> = self.regions.iter().enumerate().map(|(i, r)| (r.start, i)).collect();
        let ends: BTreeMap<usize, usize> = self.regions.iter().enumerate().map(|(i, r)| (r.end, i)).collect();
        let (mut storages, mut handles) = (self.segment.first, 0u32);
        let mut begins = [0u32; 2];
        for at in 0..=self.segment.steps.len() {
            for (new, old) in begins.iter_mut().zip(self.segment.begins) {
                if old as usize == at {
                    *new = self.steps.len() as u32;
                }
            }
            if let Some(index) = starts.get(&at).copied() {
                for storage in self.regions[index].inputs.clone() {
                    // What came before this micro-batch stays by itself.
                    if storage >= self.segment.first {
                        let handle = self.keep(self.number(storage))?;
                        self.regions[index].kept.push(handle);
                    }
                }
            }
            let Some(step) = self.segment.steps.get(at) else { break };
            match *step {
                Step::Born => {
                    let number = self.born(storages);
                    self.numbers.push(number);
                    storages += 1;
                }
                Step::Dropped(storage) => self.drop(self.number(storage)),
                Step::Carried(place) => self.carried(before.get(place as usize).copied().unwrap_or_default(), old),
                Step::Kept(storage) => {
                    if !self.owner.contains_key(&handles) {
                        let handle = self.keep(self.number(storage))?;
                        self.handles.insert(handles, handle);
                    }
                    handles += 1;
                }
                Step::LetGo(old) => {
                    if let Some(handle) = self.handles.remove(&old) {
                        self.let_go(handle);
                    }
                    if let Some(index) = self.owner.get(&old).copied() {
                        self.holder_gone(index, old, at);
                    }
                }
                Step::Taken(old) => {
                    let owner = self.owner.get(&old).copied();
                    if let Some(index) = owner.filter(|index| !self.regions[*index].again) {
                        self.again(index)?;
                    }
                    let Some(handle) = self.handles.get(&old).copied() else {
                        return Err(cannot("backward takes something out twice"));
                    };
                    let number = self.refers.get(handle as usize).copied().unwrap_or(0);
                    self.count(number, true);
                    self.taken.push(number);
                    self.steps.push(Step::Taken(handle));
                    if owner.is_some() {
                        // It is handed over.
                        self.handles.remove(&old);
                        self.let_go(handle);
                    }
                }
                Step::PutBack(number) => {
                    if let Some(storage) = self.taken.get(number as usize).copied() {
                        self.count(storage, false);
                    }
                    self.steps.push(*step);
                }
                Step::Return | Step::RegionEnd => {
                    if let Some(index) = ends.get(&at).copied()
                        && self.regions[index].holders.is_empty()
                    {
                        for handle in std::mem::take(&mut self.regions[index].kept) {
                            self.let_go(handle);
                        }
                    }
                    if *step == Step::Return {
                        self.steps.push(*step);
                    }
                }
                Step::Takes | Step::Module(_) | Step::Product(_) | Step::Reached(_) | Step::Arrived(_) => {
                    self.steps.push(*step);
                }
                Step::Region | Step::Given(_) => {}
            }
        }
        self.finished(begins)
    }

    /// Something that was left behind goes.
    fn carried(&mut self, left: Left, old: &mut [Region]) {
        if let Some(place) = left.place {
            self.steps.push(Step::Carried(place));
        }
        let Some(region) = left.region.and_then(|index| old.get_mut(index)) else { return };
        // Whichever holder it is: the last one counts.
        region.holders.pop_first();
        if region.holders.is_empty() {
            self.steps.extend(std::mem::take(&mut region.left).into_iter().map(Step::Carried));
        }
    }

    /// A stretch runs once more, as far as it has to.
    fn again(&mut self, index: usize) -> Result<()> {
        let region = &mut self.regions[index];
        region.again = true;
        let (start, stop, first, mut handle) = (region.start, region.stop, region.first, region.handle);
        let alive = region.holders.clone();
        let mut fresh: Vec<u32> = Vec::new();
        let mut graph: BTreeMap<u32, u32> = BTreeMap::new();
        let steps: Vec<Step> = self.segment.steps[start..stop].to_vec();
        for step in steps {
            let place = |storage: u32| storage.checked_sub(first).map(|index| index as usize);
            match step {
                Step::Born => {
                    let number = self.born(first + fresh.len() as u32);
                    fresh.push(number);
                }
                Step::Dropped(storage) => {
                    if let Some(number) = place(storage).and_then(|place| fresh.get(place)).copied() {
                        self.drop(number);
                    }
                }
                Step::Kept(storage) => {
                    let known = place(storage).and_then(|place| fresh.get(place)).copied();
                    let kept = self.keep(known.unwrap_or_else(|| self.number(storage)))?;
                    graph.insert(handle, kept);
                    handle += 1;
                }
                Step::LetGo(old) => {
                    if let Some(kept) = graph.remove(&old) {
                        self.let_go(kept);
                    }
                }
                Step::Product(_) => self.steps.push(step),
                _ => {}
            }
        }
        for (old, kept) in graph {
            if alive.contains(&old) {
                self.handles.insert(old, kept);
            } else {
                self.let_go(kept);
            }
        }
        for number in fresh {
            self.drop(number);
        }
        Ok(())
    }

    fn finished(mut self, begins: [u32; 2]) -> Result<(Segment, Vec<Left>, Vec<Region>)> {
        // What a holder leaves behind is what its second run made of it, and the stretch's inputs.
        let mut leaves: BTreeSet<Way> = BTreeSet::new();
        let mut found: Vec<(Option<Way>, Option<usize>)> = Vec::new();
        for way in &self.segment.leaves {
            let (kept, region) = match *way {
                Way::Storage(storage) => (Some(Way::Storage(self.number(storage))), None),
                Way::Handle(old) => {
                    (self.handles.get(&old).map(|handle| Way::Handle(*handle)), self.owner.get(&old).copied())
                }
                Way::Taken(number) => (Some(Way::Taken(number)), None),
            };
            leaves.extend(kept);
            found.push((kept, region));
        }
        for region in &self.regions {
            // Holders that nobody lets go of keep what is given for ever.
            let go = |holder: &u32| self.segment.leaves.binary_search(&Way::Handle(*holder)).is_ok();
            if region.holders.iter().all(go) {
                leaves.extend(region.kept.iter().map(|handle| Way::Handle(*handle)));
            }
        }
        let leaves: Vec<Way> = leaves.into_iter().collect();
        let place = |way: Way| leaves.binary_search(&way).ok().map(|place| place as u32);
        for region in &mut self.regions {
            region.left = region.kept.iter().filter_map(|handle| place(Way::Handle(*handle))).collect();
        }
        let left = found.iter().map(|(way, region)| Left { place: way.and_then(place), region: *region }).collect();
        let segment = Segment {
            first: self.first,
            born: self.held.len() as u32,
            gradients: self.segment.gradients.iter().map(|g| g.map(|g| self.number(g))).collect(),
            loss: self.number(self.segment.loss),
            root: self.segment.root.map(|root| self.number(root)),
            steps: self.steps,
            begins,
            leaves,
        };
        Ok((segment, left, self.regions))
    }
}
