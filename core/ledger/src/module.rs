//! Which module an event belongs to.

/// A module's dotted path, interned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct ModuleId(u32);

impl ModuleId {
    /// The module at `index` among the modules' paths.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// Its place among the modules' paths.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}
