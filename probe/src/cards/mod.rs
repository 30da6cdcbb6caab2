//! The cards of this machine: what they are, and what is going on on them.
//!
//! NVIDIA's are read through NVML, AMD's through sysfs. Their UUID and PCI address stay in memory: they serve to find the
//! card a worker runs on and are neither stored nor printed.

mod absence;
mod amdgpu;
mod drm;
mod family;
mod matching;
mod nvml;
mod resident;
mod roots;
pub mod sampler;
mod series;

#[cfg(test)]
pub mod scripted;

use std::sync::Arc;

use plimsoll_core::Bytes;

use crate::exit::Failure;

pub use roots::Roots;

/// What stays the same about a card while the program runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// Its place in [`Cards::list`]: NVIDIA's in NVML's order (by PCI address), then AMD's by PCI address.
    pub index: u32,
    /// As the driver names it, `NVIDIA GeForce RTX 5070 Ti Laptop GPU`.
    pub name: String,
    /// Its id in the catalog, where name and memory tell it.
    pub gpu: Option<&'static str>,
    /// Identity: only to find the card of a worker. Never stored, never printed.
    pub uuid: Option<String>,
    /// Identity: only to find the card of a worker. Never stored, never printed.
    pub pci: Option<String>,
    /// Memory as the driver reports it.
    pub total: Bytes,
    /// What the driver keeps of it for itself, where it says so.
    pub reserved: Option<Bytes>,
    /// Version of the driver.
    pub driver: Option<String>,
    /// CUDA compute capability, `12.0`.
    pub capability: Option<String>,
}

impl Card {
    /// What processes can have of the card: its memory less what the driver keeps.
    pub fn capacity(&self) -> Bytes {
        self.total.saturating_sub(self.reserved.unwrap_or_default())
    }
}

/// One look at a card. What it does not tell is absent.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reading {
    /// In use, by anyone, without what the driver keeps. Absent when the card cannot be read: it was lost or went to sleep.
    pub used: Option<Bytes>,
    /// What the driver keeps for itself.
    pub reserved: Option<Bytes>,
    /// How busy it is, and how warm.
    pub load: Load,
    /// Who is on it, largest first, as far as this user may see.
    pub processes: Vec<ProcessUse>,
}

/// How busy a card is, and how warm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Percent of the time in which a kernel ran.
    pub utilization: Option<u8>,
    /// Board power in milliwatts.
    pub power: Option<u64>,
    /// The most it may draw, in milliwatts.
    pub power_limit: Option<u64>,
    /// Degrees Celsius.
    pub temperature: Option<u8>,
}

/// Memory of a card at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// In use, by anyone, without what the driver keeps.
    pub used: Bytes,
    /// What the driver keeps for itself, where it says so.
    pub reserved: Option<Bytes>,
}

/// One process on a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessUse {
    /// As the driver names it: in a container it may be the host's.
    pub pid: u32,
    /// Program and script, where the system tells. For the screen, never stored.
    pub name: Option<String>,
    /// What it holds on the card; the driver hides it on Windows.
    pub memory: Option<Bytes>,
}

/// Whose figures a source reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reader {
    /// NVIDIA's management library.
    Nvml,
    /// The kernel's files about an AMD card.
    Amdgpu,
}

/// Where the readings of one card come from.
pub trait Source: Send + Sync {
    /// Whose figures these are.
    fn reader(&self) -> Reader;
    /// Memory in use. Cheap.
    fn memory(&self) -> Option<Memory>;
    /// Utilisation, power, temperature. Takes longer.
    fn load(&self) -> Load;
    /// Who is on the card, by pid, without names.
    fn processes(&self) -> Vec<ProcessUse>;
    /// What a process is called, where only the card's driver knows it.
    fn name(&self, _pid: u32) -> Option<String> {
        None
    }
    /// What these processes hold together; `None` when the card does not tell of any of them.
    fn held_by(&self, pids: &[u32]) -> Option<Bytes> {
        let of_them = self.processes().into_iter().filter(|p| pids.contains(&p.pid));
        of_them.filter_map(|p| p.memory).reduce(|a, b| a + b)
    }
}

/// A card and where its readings come from.
#[derive(Clone)]
struct Entry {
    card: Card,
    source: Arc<dyn Source>,
}

/// All cards that can be read.
pub struct Cards {
    list: Vec<Card>,
    entries: Vec<Entry>,
    note: Option<String>,
    roots: Roots,
}

/// Looks for cards. Never fails: where there is none, [`Cards::note`] says why and what to do.
pub fn open() -> Cards {
    let roots = Roots::from_env();
    let nvml = if roots.substituted() { nvml::Found::default() } else { nvml::open() };
    let mut entries = nvml.entries;
    entries.extend(amdgpu::open(&roots));
    let note = entries.is_empty().then(|| absence::explain(&roots, nvml.problem.as_ref()));
    Cards::new(entries, note, roots)
}

impl Cards {
    fn new(mut entries: Vec<Entry>, note: Option<String>, roots: Roots) -> Self {
        for (index, entry) in (0..).zip(&mut entries) {
            entry.card.index = index;
            entry.card.gpu = matching::catalog_id(&entry.card.name, entry.card.total);
        }
        let list = entries.iter().map(|entry| entry.card.clone()).collect();
        Self { list, entries, note, roots }
    }

    /// The cards; empty when there is none.
    pub fn list(&self) -> &[Card] {
        &self.list
    }

    /// Why no card has this number, where there are cards and none does. Where none can be read PyTorch is to be asked.
    pub fn lacks(&self, index: u32) -> Option<Failure> {
        let count = self.list.len();
        let known = count > 0 && usize::try_from(index).is_ok_and(|index| index >= count);
        known.then(|| Failure::Environment {
            problem: format!("there is no card {index}: {count} can be seen, counted from 0"),
            hint: "plimsoll watch --once shows them; leave --index out for the first".to_owned(),
        })
    }

    /// Why there is no card, and what to do about it.
    pub fn note(&self) -> Option<&str> {
        self.note.as_deref()
    }

    /// Reads the card at this index; `None` when there is none.
    pub fn read(&self, index: u32) -> Option<Reading> {
        let source = &self.entry(index)?.source;
        let memory = source.memory();
        let mut processes = source.processes();
        processes.sort_by_key(|p| (std::cmp::Reverse(p.memory), p.pid));
        for process in &mut processes {
            process.name = family::name(&self.roots, process.pid).or_else(|| source.name(process.pid));
        }
        Some(Reading {
            used: memory.map(|m| m.used),
            reserved: memory.and_then(|m| m.reserved),
            load: source.load(),
            processes,
        })
    }

    /// What is in use on the card at this index, and nothing else: cheap.
    pub fn used(&self, index: u32) -> Option<Bytes> {
        self.entry(index)?.source.memory().map(|memory| memory.used)
    }

    fn entry(&self, index: u32) -> Option<&Entry> {
        self.entries.get(usize::try_from(index).ok()?)
    }
}

/// For the measuring session.
impl Cards {
    /// The card a worker names by its UUID or PCI address, whatever the order in which CUDA counts cards.
    ///
    /// Takes them in any common spelling: with or without `GPU-`, domain and function.
    pub fn find(&self, uuid: Option<&str>, pci: Option<&str>) -> Option<&Card> {
        let same = |a: Option<&str>, b: Option<&str>, plain: fn(&str) -> Option<String>| {
            a.and_then(plain).is_some_and(|a| b.and_then(plain).is_some_and(|b| a == b))
        };
        let by = |f: &dyn Fn(&&Card) -> bool| self.list.iter().find(f);
        by(&|card| same(card.uuid.as_deref(), uuid, matching::plain_uuid))
            .or_else(|| by(&|card| same(card.pci.as_deref(), pci, matching::plain_pci)))
    }

    /// What a [`sampler::Sampler`] reads a card through. It remembers what was on the card now: take it before the worker
    /// starts.
    pub fn handle(&self, index: u32) -> Option<CardHandle> {
        let entry = self.entry(index)?;
        let used_before = entry.source.memory().map(|m| m.used);
        let pids_before = entry.source.processes().iter().map(|p| p.pid).collect();
        Some(CardHandle { source: Arc::clone(&entry.source), used_before, pids_before })
    }
}

/// One card to sample, and what was on it before.
#[derive(Clone)]
pub struct CardHandle {
    source: Arc<dyn Source>,
    used_before: Option<Bytes>,
    pids_before: Vec<u32>,
}

impl CardHandle {
    /// What was in use on the card when the handle was taken.
    pub fn used_before(&self) -> Option<Bytes> {
        self.used_before
    }
}
