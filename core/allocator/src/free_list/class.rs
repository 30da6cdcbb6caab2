//! The free blocks of one size.

use super::Place;

/// Free blocks of one size. Many sizes have one block at a time, which needs no list. Of several, layers free theirs in descending
/// order or in ascending order, and the lowest is taken first: so there are two stacks, and what lies below one end or above the
/// other needs no search and moves nothing.
#[derive(Clone, Debug)]
pub(super) struct Class {
    /// Their size.
    pub size: u64,
    /// The lowest of all; [`Place::NONE`] where there is none at all.
    lowest: Place,
    /// Those above it, descending.
    low: Vec<Place>,
    /// What lies above those, ascending.
    high: Vec<Place>,
}

impl Class {
    /// Of this size, without blocks.
    pub const fn new(size: u64) -> Self {
        Self { size, lowest: Place::NONE, low: Vec::new(), high: Vec::new() }
    }

    /// Whether it has none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.lowest == Place::NONE
    }

    /// Takes out the lowest, if there is any.
    #[inline]
    pub fn take_lowest(&mut self) -> Option<Place> {
        let lowest = self.lowest;
        if lowest == Place::NONE {
            return None;
        }
        self.lowest = match self.low.pop() {
            Some(next) => next,
            None if self.high.is_empty() => Place::NONE,
            None => self.turn(),
        };
        Some(lowest)
    }

    /// Adds one; says whether there was none before.
    #[inline]
    pub fn insert(&mut self, place: Place) -> bool {
        let lowest = self.lowest;
        if lowest < place {
            self.insert_above(place);
            return false;
        }
        self.lowest = place;
        if lowest == Place::NONE {
            return true;
        }
        self.low.push(lowest);
        false
    }

    /// Takes one out that is there; says whether it was the last one.
    #[inline]
    pub fn remove(&mut self, place: Place) -> bool {
        if self.lowest == place {
            self.take_lowest();
            return self.is_empty();
        }
        self.remove_above(place);
        false
    }

    #[inline(never)]
    fn insert_above(&mut self, place: Place) {
        if self.high.last().is_some_and(|highest| *highest < place) {
            self.high.push(place);
        } else if self.low.first().is_none_or(|middle| *middle < place) {
            let at = self.high.partition_point(|other| *other < place);
            self.high.insert(at, place);
        } else {
            let at = self.low.partition_point(|other| *other > place);
            self.low.insert(at, place);
        }
    }

    #[inline(never)]
    fn remove_above(&mut self, place: Place) {
        let at = self.low.partition_point(|other| *other > place);
        if self.low.get(at) == Some(&place) {
            self.low.remove(at);
        } else if let Ok(at) = self.high.binary_search(&place) {
            self.high.remove(at);
        }
    }

    /// What was above is all there is; the lowest of it.
    #[cold]
    fn turn(&mut self) -> Place {
        self.low.extend(self.high.drain(..).rev());
        self.low.pop().unwrap_or(Place::NONE)
    }

    /// All of them.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        let lowest = (!self.is_empty()).then_some(self.lowest);
        lowest.into_iter().chain(self.low.iter().chain(&self.high).copied())
    }
}

#[cfg(test)]
impl Class {
    /// Whether they lie in their order.
    pub fn is_sound(&self) -> bool {
        let above = self.low.iter().rev().chain(&self.high);
        let lowest = above.clone().next().is_none_or(|next| self.lowest < *next);
        above.is_sorted_by(|a, b| a < b) && lowest
    }
}
