//! The cards of this process, from the environment, once.

use std::collections::BTreeMap;
use std::env;
use std::sync::{Arc, Mutex, OnceLock};

use super::book::Book;
use super::call::{Status, lock, status};
use super::pages::{self, Mapped};
use super::space::Space;
use crate::card::{Card, Setup, VARIABLE};
use crate::identity::visible;

/// Where the first card's addresses start, and how many each has: 4 TiB at 16 TiB, far from where Linux puts anything.
const FIRST: u64 = 1 << 44;
const EACH: u64 = 1 << 42;
/// Beyond that addresses would run into Linux's own.
const MOST: usize = 16;

/// A card that this process sees.
pub(super) struct Device {
    /// What it is.
    pub card: Card,
    /// Its place among all cards, seen or not.
    pub physical: usize,
    space: Mutex<Space<Mapped>>,
    context: OnceLock<Status>,
}

impl Device {
    /// Its book, once a process has a context on it.
    pub(super) fn space(&self) -> std::sync::MutexGuard<'_, Space<Mapped>> {
        lock(&self.space)
    }

    /// Makes the context, the first time: it takes memory of its own.
    pub(super) fn activate(&self) -> Status {
        *self.context.get_or_init(|| match self.space().take(self.card.context) {
            Ok(()) => status::SUCCESS,
            Err(_) => status::OUT_OF_MEMORY,
        })
    }

    /// Whether it has a context.
    pub(super) fn active(&self) -> bool {
        self.context.get().is_some()
    }
}

/// Everything that is known of the simulation.
pub(super) struct Cards {
    /// What was said.
    pub setup: Setup,
    /// What the other processes hold.
    pub book: Arc<Book>,
    devices: Vec<Device>,
    host: Mutex<BTreeMap<u64, (u64, bool)>>,
}

/// The cards; none if nothing readable was said.
pub(super) fn cards() -> &'static Cards {
    static CARDS: OnceLock<Cards> = OnceLock::new();
    CARDS.get_or_init(|| {
        let setup = env::var(VARIABLE).ok().and_then(|text| Setup::from_json(&text).ok()).unwrap_or_else(|| Setup {
            cards: Vec::new(),
            rules: crate::Rules::default(),
            cuda: 0,
            cudnn: 0,
            book: None,
            planner: None,
        });
        let book = Book::new(setup.book.clone());
        let list = env::var("CUDA_VISIBLE_DEVICES").ok();
        let seen = visible(list.as_deref(), setup.cards.len().min(MOST));
        let devices = seen
            .into_iter()
            .enumerate()
            .map_while(|(index, physical)| {
                let card = setup.cards.get(physical)?.clone();
                let base = FIRST + index as u64 * EACH;
                if !pages::set_aside(base, EACH) {
                    eprintln!("plimsoll: the addresses of hollow card {index} are taken; it is left out");
                    return None;
                }
                let pages = Mapped { book: Arc::clone(&book), physical };
                let space = Mutex::new(Space::new(pages, base, EACH, card.memory, card.falling));
                Some(Device { card, physical, space, context: OnceLock::new() })
            })
            .collect();
        Cards { setup, book, devices, host: Mutex::new(BTreeMap::new()) }
    })
}

impl Cards {
    /// How many this process sees.
    pub(super) fn count(&self) -> usize {
        self.devices.len()
    }

    /// One of them.
    pub(super) fn get(&self, index: i32) -> Result<&Device, Status> {
        usize::try_from(index).ok().and_then(|i| self.devices.get(i)).ok_or(status::INVALID_DEVICE)
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter()
    }

    /// The card that an address belongs to, whether something is allocated there or not.
    pub(super) fn of_address(&self, at: u64) -> Option<(i32, &Device)> {
        let index = at.checked_sub(FIRST)? / EACH;
        Some((index as i32, self.devices.get(index as usize)?))
    }

    /// Pinned memory of the host; `ours` if it was made here, else it was registered.
    pub(super) fn pin(&self, at: u64, len: u64, ours: bool) {
        lock(&self.host).insert(at, (len, ours));
    }

    /// Start, length and maker of the pinned memory that holds an address.
    pub(super) fn pinned(&self, at: u64) -> Option<(u64, u64, bool)> {
        let host = lock(&self.host);
        let (&start, &(len, ours)) = host.range(..=at).next_back()?;
        (at < start + len).then_some((start, len, ours))
    }

    /// No longer pinned; what was made here is given back.
    pub(super) fn unpin(&self, at: u64) {
        let gone = lock(&self.host).remove(&at);
        if let Some((len, true)) = gone {
            pages::give_back(at, len);
        }
    }
}
