//! Cards that read what a test says.

use std::sync::{Arc, Mutex, PoisonError};

use plimsoll_core::Bytes;

use super::{Card, Cards, Entry, Load, Memory, ProcessUse, Reader, Roots, Source};

/// What a scripted card reads at the moment.
#[derive(Clone, Debug, Default)]
pub struct Script {
    /// Memory in use.
    pub used: Option<Bytes>,
    /// Utilisation, power, temperature.
    pub load: Load,
    /// Who is on the card.
    pub processes: Vec<ProcessUse>,
}

/// A card whose script the test may change.
#[derive(Clone)]
pub struct Scripted {
    reader: Reader,
    script: Arc<Mutex<Script>>,
}

impl Scripted {
    /// A card that reads this.
    pub fn new(reader: Reader, script: Script) -> Self {
        Self { reader, script: Arc::new(Mutex::new(script)) }
    }

    /// Changes what it reads.
    pub fn set(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.script.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn get(&self) -> Script {
        self.script.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Source for Scripted {
    fn reader(&self) -> Reader {
        self.reader
    }

    fn memory(&self) -> Option<Memory> {
        self.get().used.map(|used| Memory { used, reserved: None })
    }

    fn load(&self) -> Load {
        self.get().load
    }

    fn processes(&self) -> Vec<ProcessUse> {
        self.get().processes
    }
}

/// The cards of a machine that has these.
pub fn cards(list: Vec<(Card, Scripted)>, roots: Roots) -> Cards {
    let entry = |(card, source)| Entry { card, source: Arc::new(source) as Arc<dyn Source> };
    Cards::new(list.into_iter().map(entry).collect(), None, roots)
}
