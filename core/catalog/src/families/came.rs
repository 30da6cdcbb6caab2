//! Which release of transformers had a model first.

use super::{Family, Task};
use crate::software::Version;

/// When transformers came to have a model, and a class for what is trained on it: read off the names in `models/auto` of every
/// release from 4.36 to 5.24 (the last patch of each).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Came {
    /// The first release that has its `model_type`.
    pub first: Version,
    /// A task whose class came later, and with which release.
    pub later: Option<(Task, Version)>,
}

impl Came {
    /// As far back as was read.
    pub const LONG_AGO: Self = Self { first: Version::new(0, 0), later: None };
}

impl Family {
    /// The row of a model that came with this release.
    pub(super) const fn came(self, major: u16, minor: u16) -> Self {
        Self { came: Came { first: Version::new(major, minor), ..self.came }, ..self }
    }

    /// The same, `task` with a later one.
    pub(super) const fn later(self, task: Task, major: u16, minor: u16) -> Self {
        Self { came: Came { later: Some((task, Version::new(major, minor))), ..self.came }, ..self }
    }

    /// The first release of transformers that trains `task` on it.
    pub fn since(&self, task: Task) -> Version {
        self.came.later.filter(|(later, _)| *later == task).map_or(self.came.first, |(_, since)| since)
    }
}

#[cfg(test)]
mod tests {
    use super::super::of_type;
    use super::*;

    #[test]
    fn a_class_may_have_come_later_than_its_model() {
        let since = |name: &str, task| of_type(name).map(|family| family.since(task));
        assert_eq!(since("olmo3", Task::CausalLm), Some(Version::new(4, 57)));
        assert_eq!(since("olmo3", Task::SequenceClassification), Some(Version::new(5, 6)));
        assert!(since("llama", Task::SequenceClassification) < Some(Version::new(4, 36)));
    }
}
