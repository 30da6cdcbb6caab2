//! Whose upload is estimated next: each caller's in turn, so that whoever sends many, or heavy ones, waits for his own.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::rate::Caller;

/// Places of work, and who waits for one.
#[derive(Debug)]
pub(super) struct Turns {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// Callers that wait, in the order of their next turn; each stands here once.
    round: VecDeque<Caller>,
    /// What each of them waits with, oldest first.
    waiting: HashMap<Caller, VecDeque<oneshot::Sender<Turn>>>,
}

/// A place of work; dropping it gives it to the next.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
}

impl Turns {
    pub(super) fn new(places: usize) -> Arc<Self> {
        let state = State { free: places, round: VecDeque::new(), waiting: HashMap::new() };
        Arc::new(Self { state: Mutex::new(state) })
    }

    /// A place, when it is this caller's turn. Whoever stops waiting loses nothing but that.
    pub(super) async fn take(self: &Arc<Self>, caller: &Caller) -> Option<Turn> {
        let turn = {
            let mut state = self.state();
            if state.free > 0 {
                state.free -= 1;
                return Some(Turn { turns: Arc::clone(self) });
            }
            let (sender, turn) = oneshot::channel();
            let theirs = state.waiting.entry(caller.clone()).or_default();
            theirs.push_back(sender);
            if theirs.len() == 1 {
                state.round.push_back(caller.clone());
            }
            turn
        };
        turn.await.ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Who is next, if anybody waits.
    fn next(&mut self) -> Option<oneshot::Sender<Turn>> {
        loop {
            let caller = self.round.pop_front()?;
            let Some(theirs) = self.waiting.get_mut(&caller) else { continue };
            // Who has given up is passed over.
            theirs.retain(|sender| !sender.is_closed());
            let next = theirs.pop_front();
            if theirs.is_empty() {
                self.waiting.remove(&caller);
            } else {
                self.round.push_back(caller);
            }
            if next.is_some() {
                return next;
            }
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let next = {
            let mut state = self.turns.state();
            let next = state.next();
            if next.is_none() {
                state.free += 1;
            }
            next
        };
        if let Some(next) = next {
            // Gone this very moment, the place comes back and is dropped here once more: it goes to the one after.
            let _ = next.send(Self { turns: Arc::clone(&self.turns) });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    fn caller(name: &str) -> Caller {
        Caller::Token(name.to_owned())
    }

    #[tokio::test]
    async fn each_caller_has_its_turn() {
        let turns = Turns::new(1);
        let first = turns.take(&caller("many")).await.unwrap();
        let (told, mut order) = tokio::sync::mpsc::unbounded_channel();
        for name in ["many", "many", "many", "one", "other"] {
            let (waits, told) = (Arc::clone(&turns), told.clone());
            tokio::spawn(async move {
                let turn = waits.take(&caller(name)).await.unwrap();
                told.send(name).unwrap();
                drop(turn);
            });
            tokio::task::yield_now().await;
        }
        drop((first, told));
        let mut all = Vec::new();
        while let Some(name) = order.recv().await {
            all.push(name);
        }
        assert_eq!(all, ["many", "one", "other", "many", "many"]);
        assert_eq!(turns.state().free, 1);
    }

    #[tokio::test]
    async fn who_gives_up_keeps_no_place() {
        let turns = Turns::new(1);
        let first = turns.take(&caller("a")).await.unwrap();
        for _ in 0..3 {
            let b = caller("b");
            let waits = timeout(Duration::from_millis(1), turns.take(&b));
            assert!(waits.await.is_err());
        }
        drop(first);
        assert_eq!(turns.state().free, 1);
        assert!(turns.take(&caller("c")).await.is_some());
        assert_eq!(turns.state().free, 1);
    }
}
