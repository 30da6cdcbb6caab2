//! Whether a stretch that is run once more stands higher than it did.

use plimsoll_ledger::Kind;

use super::context::Context;
use super::repeat::Position;

impl Context {
    /// Whether what was done since `since` would stand higher if it were done once more: a library took a workspace in it, which it
    /// keeps, when more had been alive than ever was with it.
    pub fn stands_higher_again(&self, since: Position) -> bool {
        let recorder = self.recorder.borrow();
        let ledger = recorder.ledger();
        let events = ledger.events.get(since.event..).unwrap_or_default();
        let storage = |id: u32| ledger.storages.get(id as usize);
        let (mut alive, mut kept) = (0i128, 0i128);
        // With what is kept as it comes, and without it.
        let (mut highest, mut highest_without) = (0, 0);
        for event in events {
            let Some(storage) = storage(event.id()) else { continue };
            let bytes = i128::from(storage.bytes);
            let change = if event.is_free() { -bytes } else { bytes };
            alive += change;
            if storage.kind == Kind::Workspace {
                kept += change;
            }
            highest = highest.max(alive);
            highest_without = highest_without.max(alive - kept);
        }
        highest_without + kept > highest
    }
}
