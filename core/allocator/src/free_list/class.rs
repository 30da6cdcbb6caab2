//! The free blocks of one size.

use super::Place;

/// Free blocks of one size. Layers free theirs in descending order or in ascending order, and the lowest is taken first: so there
/// are two stacks, and what lies below one end or above the other needs no search and moves nothing.
#[derive(Clone, Debug)]
pub(super) struct Class {
    /// Their size.
    pub size: u64,
    /// Descending by their address: the last is the lowest of all. Empty only where there is none at all.
    low: Vec<Place>,
    /// What lies above those, ascending.
    high: Vec<Place>,
}

impl Class {
    /// Of this size, without blocks.
    pub const fn new(size: u64) -> Self {
        Self { size, low: Vec::new(), high: Vec::new() }
    }

    /// Whether it has none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.low.is_empty()
    }

    /// Takes out the lowest, if there is any.
    #[inline]
    pub fn take_lowest(&mut self) -> Option<Place> {
        let lowest = self.low.pop();
        if self.low.is_empty() {
            self.turn();
        }
        lowest
    }

    /// Adds one; says whether there was none before.
    #[inline]
    pub fn insert(&mut self, place: Place) -> bool {
        match self.low.last() {
            Some(lowest) if *lowest < place => {
                self.insert_above(place);
                false
            }
            lowest => {
                let first = lowest.is_none();
                self.low.push(place);
                first
            }
        }
    }

    /// Takes one out that is there; says whether it was the last one.
    #[inline]
    pub fn remove(&mut self, place: Place) -> bool {
        if self.low.last() == Some(&place) {
            self.low.pop();
        } else {
            self.remove_above(place);
        }
        if self.low.is_empty() {
            self.turn();
        }
        self.low.is_empty()
    }

    #[inline(never)]
    fn insert_above(&mut self, place: Place) {
        match (self.high.last(), self.low.first()) {
            (Some(highest), _) | (None, Some(highest)) if *highest < place => self.high.push(place),
            (_, Some(middle)) if *middle < place => {
                let at = self.high.partition_point(|other| *other < place);
                self.high.insert(at, place);
            }
            _ => {
                let at = self.low.partition_point(|other| *other > place);
                self.low.insert(at, place);
            }
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

    /// What was above is all there is.
    #[inline]
    fn turn(&mut self) {
        if !self.high.is_empty() {
            self.low.extend(self.high.drain(..).rev());
        }
    }

    /// All of them.
    pub fn places(&self) -> impl Iterator<Item = Place> {
        self.low.iter().chain(&self.high).copied()
    }
}

#[cfg(test)]
impl Class {
    /// Whether they lie in their order.
    pub fn is_sound(&self) -> bool {
        let ascending = self.low.iter().rev().chain(&self.high);
        ascending.is_sorted_by(|a, b| a < b) && (self.high.is_empty() || !self.low.is_empty())
    }
}
