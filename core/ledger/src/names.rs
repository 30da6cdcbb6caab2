//! The names of ops and of autograd's functions: a ledger holds each once, and refers to it by number.

use std::borrow::Cow;

/// The op that made a storage or launched a kernel: its place in [`crate::Ledger::ops`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub u16);

/// The autograd function whose backward ran an op: its place in [`crate::Ledger::grad_fns`]. The first is outside every
/// backward and has no name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GradFnId(pub u16);

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
