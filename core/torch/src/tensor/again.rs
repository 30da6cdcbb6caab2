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

#[cfg(test)]
mod tests {
    use plimsoll_ledger::Kind;

    use crate::tensor::testing::{activation, forward};

    /// What is kept counts with what had been alive before it, and only where that was more than ever was beside it.
    #[test]
    fn a_workspace_that_came_last_is_there_from_the_beginning() {
        for (before, after, higher) in [(4096, 256, true), (256, 4096, false)] {
            let cx = forward();
            let begun = cx.position();
            drop(activation(&cx, &[before]));
            let _workspace = cx.counting_as(Kind::Workspace, || activation(&cx, &[1024]));
            drop(activation(&cx, &[after]));
            assert_eq!(cx.stands_higher_again(begun), higher, "{before} {after}");
        }
    }
}
