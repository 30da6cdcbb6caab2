//! A micro-batch written anew, with the second runs of its stretches in it.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_ground::Result;

use super::{Left, Region, cannot};
use crate::hull::tape::{Born, Segment, Step, Tape, Way};

/// A micro-batch that is written anew.
pub(super) struct Again<'a> {
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

impl<'a> Again<'a> {
    /// Of a micro-batch with these stretches, behind whatever storages there are.
    pub(super) fn new(tape: &'a Tape, segment: &'a Segment, regions: Vec<Region>, storages: &'a mut Vec<Born>) -> Self {
        Self {
            tape,
            segment,
            first: storages.len() as u32,
            storages,
            regions,
            owner: BTreeMap::new(),
            numbers: Vec::new(),
            held: Vec::new(),
            references: Vec::new(),
            handles: BTreeMap::new(),
            refers: Vec::new(),
            taken: Vec::new(),
            steps: Vec::with_capacity(segment.steps.len()),
        }
    }

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

    pub(super) fn run(mut self, before: &[Left], old: &mut [Region]) -> Result<(Segment, Vec<Left>, Vec<Region>)> {
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
