//! The changes made so far: undo, redo, and what the page was opened with.

/// Changes that are kept to be undone; older ones are forgotten, the first state is not.
const KEPT: usize = 200;

/// States one after the other, and the one that stands now.
#[derive(Clone, Debug, PartialEq)]
pub struct Trail<T> {
    first: T,
    past: Vec<T>,
    now: T,
    future: Vec<T>,
}

impl<T: Clone + PartialEq> Trail<T> {
    /// A trail that begins here.
    pub fn new(first: T) -> Self {
        Self { now: first.clone(), first, past: Vec::new(), future: Vec::new() }
    }

    /// What it began with.
    pub const fn first(&self) -> &T {
        &self.first
    }

    /// Notes that `next` stands now. What the browser's Back or Forward leads to is the step before or after, and is no
    /// new one. With `settled` false it takes the place of the present state: a number that is still being typed is one
    /// change and not one a digit.
    pub fn enter(&mut self, next: T, settled: bool) {
        if next == self.now {
            return;
        }
        if settled && self.past.last() == Some(&next) {
            self.undo();
        } else if settled && self.future.last() == Some(&next) {
            self.redo();
        } else {
            if settled {
                let before = std::mem::replace(&mut self.now, next);
                self.past.push(before);
                if self.past.len() > KEPT {
                    self.past.remove(0);
                }
            } else {
                self.now = next;
            }
            self.future.clear();
        }
    }

    /// Whether there is a step back.
    pub const fn can_undo(&self) -> bool {
        !self.past.is_empty()
    }

    /// Whether there is a step forward again.
    pub const fn can_redo(&self) -> bool {
        !self.future.is_empty()
    }

    /// Takes one step back; the state that stands then, `None` where there is none.
    pub fn undo(&mut self) -> Option<T> {
        let before = self.past.pop()?;
        self.future.push(std::mem::replace(&mut self.now, before));
        Some(self.now.clone())
    }

    /// Takes a step forward that was taken back; the state that stands then, `None` where there is none.
    pub fn redo(&mut self) -> Option<T> {
        let after = self.future.pop()?;
        self.past.push(std::mem::replace(&mut self.now, after));
        Some(self.now.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::{KEPT, Trail};

    #[test]
    fn what_was_done_is_undone_and_done_again() {
        let mut trail = Trail::new(1);
        trail.enter(2, true);
        trail.enter(3, true);
        assert_eq!((trail.undo(), trail.undo(), trail.undo()), (Some(2), Some(1), None));
        assert_eq!((trail.redo(), trail.can_undo()), (Some(2), true));
        trail.enter(9, true);
        assert!(!trail.can_redo(), "another way was taken");
        assert_eq!((trail.undo(), trail.undo(), *trail.first()), (Some(2), Some(1), 1));
    }

    #[test]
    fn a_number_being_typed_is_one_change() {
        let mut trail = Trail::new(8);
        trail.enter(1, true);
        trail.enter(10, false);
        trail.enter(102, false);
        trail.enter(1024, false);
        assert_eq!((trail.undo(), trail.undo()), (Some(8), None));
        assert_eq!(trail.redo(), Some(1024));
    }

    /// The browser's own buttons lead along the same trail.
    #[test]
    fn back_and_forward_of_the_browser_are_steps_of_it() {
        let mut trail = Trail::new(1);
        trail.enter(2, true);
        trail.enter(1, true);
        assert!(!trail.can_undo() && trail.can_redo());
        trail.enter(2, true);
        assert!(trail.can_undo() && !trail.can_redo());
    }

    #[test]
    fn it_does_not_grow_without_end() {
        let mut trail = Trail::new(0);
        for state in 1..=2 * KEPT {
            trail.enter(state, true);
        }
        let mut steps = 0;
        while trail.undo().is_some() {
            steps += 1;
        }
        assert_eq!((steps, *trail.first()), (KEPT, 0));
    }
}
