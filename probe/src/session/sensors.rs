//! What is read beside the worker: the card it runs on, or its memory as the system counts it.

use std::time::{Duration, Instant};

use plimsoll_core::Bytes;
use plimsoll_core::measurement::Sample;

use crate::cards::sampler::{Sampled, Sampler};
use crate::cards::{self, Card, CardHandle, Cards};
use crate::exit::Failure;
use crate::worker::Hello;

/// How often memory is read.
const EVERY: Duration = Duration::from_millis(10);

/// The cards, and what was on each before the worker started.
pub struct Sensors {
    cards: Cards,
    handles: Vec<Option<CardHandle>>,
}

/// The card a worker took.
pub struct Taken {
    /// What it is.
    pub card: Card,
    /// What was in use on it, by anyone, before the worker started.
    pub used_before: Option<Bytes>,
    handle: Option<CardHandle>,
}

impl Sensors {
    /// Looks for cards and reads them: to be made before the worker starts.
    pub fn open() -> Self {
        let cards = cards::open();
        let handles = cards.list().iter().map(|card| cards.handle(card.index)).collect();
        Self { cards, handles }
    }

    /// Whether there is any card.
    pub fn has_card(&self) -> bool {
        !self.cards.list().is_empty()
    }

    /// As [`Cards::lacks`].
    pub fn lacks(&self, index: u32) -> Option<Failure> {
        self.cards.lacks(index)
    }

    /// Why the worker's card cannot be read beside it.
    pub fn note(&self) -> String {
        let why = self.cards.note().unwrap_or("none of the cards that can be read is the worker's");
        format!("only what PyTorch itself counts is measured, not the whole process: {why}")
    }

    /// The card the worker took: by its identity, else the one that was asked for, else the only one, where the memory does
    /// not contradict.
    pub fn card(&self, hello: &Hello, asked: Option<u32>) -> Option<Taken> {
        let told = &hello.device;
        let named = self.cards.find(told.uuid.as_deref(), told.pci.as_deref());
        let list = self.cards.list();
        let likely = || match asked {
            Some(index) => list.iter().find(|card| card.index == index),
            None => list.first().filter(|_| list.len() == 1),
        };
        // What PyTorch calls the card's memory is up to a tenth less than what the driver does.
        let same_size =
            |card: &&Card| told.total <= card.total && told.total.get() >= card.total.get() - card.total.get() / 10;
        let card = named.or_else(|| likely().filter(same_size))?.clone();
        let handle = usize::try_from(card.index).ok().and_then(|index| self.handles.get(index).cloned().flatten());
        Some(Taken { used_before: handle.as_ref().and_then(CardHandle::used_before), card, handle })
    }
}

/// Samples that are being taken.
pub struct Sampling(Sampler);

impl Sampling {
    /// Of the card, or where there is none of the process, from now on. Times count from `since`.
    pub fn start(taken: Option<&Taken>, pid: u32, since: Instant) -> Self {
        Self(Sampler::start(taken.and_then(|taken| taken.handle.clone()), pid, since, EVERY))
    }

    /// The latest one; its time is not told.
    pub fn latest(&self) -> Sample {
        let latest = self.0.latest();
        Sample {
            at: 0,
            process: latest.process,
            device: latest.device,
            utilization: latest.load.utilization,
            power: latest.load.power,
            temperature: latest.load.temperature,
        }
    }

    /// Ends it.
    pub fn stop(self) -> Sampled {
        self.0.stop()
    }
}
