//! The names of ops and of autograd's functions: a ledger holds each once, and refers to it by number.

use std::borrow::Cow;

/// The op that made a storage or launched a kernel: its place in [`crate::Ledger::ops`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u16);

/// The autograd function whose backward ran an op: its place in [`crate::Ledger::grad_fns`]. The first is outside every
/// backward and has no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GradFnId(pub u16);

/// Ops that ran: a bit for each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OpSet(Vec<u64>);

impl OpSet {
    const BITS: usize = u64::BITS as usize;

    /// Adds an op.
    pub fn insert(&mut self, OpId(number): OpId) {
        let (word, bit) = (usize::from(number) / Self::BITS, usize::from(number) % Self::BITS);
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << bit;
    }

    /// Whether it is among them.
    pub fn has(&self, OpId(number): OpId) -> bool {
        let (word, bit) = (usize::from(number) / Self::BITS, usize::from(number) % Self::BITS);
        self.0.get(word).is_some_and(|bits| bits >> bit & 1 == 1)
    }
}

/// Names by number: those of a table in the program, or those that a file brought along.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(Cow<'static, [Cow<'static, str>]>);

impl Names {
    /// The names of a table.
    pub const fn of(table: &'static [Cow<'static, str>]) -> Self {
        Self(Cow::Borrowed(table))
    }

    /// Names of a file.
    pub fn own(names: Vec<String>) -> Self {
        Self(Cow::Owned(names.into_iter().map(Cow::Owned).collect()))
    }

    /// The name with this number; empty where there is none.
    pub fn get(&self, number: u16) -> &str {
        self.0.get(usize::from(number)).map_or("", |name| name.as_ref())
    }

    /// The number of a name.
    pub fn position(&self, name: &str) -> Option<u16> {
        u16::try_from(self.0.iter().position(|n| n == name)?).ok()
    }

    /// The number of a name, which is added where it is new. Beyond 65,535 names the last one stands for the rest.
    pub fn number(&mut self, name: &str) -> u16 {
        if let Some(number) = self.position(name) {
            return number;
        }
        let full = self.len() > usize::from(u16::MAX);
        if !full {
            self.0.to_mut().push(Cow::Owned(name.to_owned()));
        }
        u16::try_from(self.len().saturating_sub(1)).unwrap_or(u16::MAX)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All of them, by number.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(Cow::as_ref)
    }
}

#[cfg(test)]
mod tests {
    use super::{OpId, OpSet};

    #[test]
    fn an_op_that_ran_is_in_the_set() {
        let mut ran = OpSet::default();
        for number in [0, 63, 64, 1000] {
            assert!(!ran.has(OpId(number)));
            ran.insert(OpId(number));
            assert!(ran.has(OpId(number)));
        }
        assert!(!ran.has(OpId(1)) && !ran.has(OpId(u16::MAX)));
    }
}
