//! The table of levers: one row for every key of a scenario, and what a row says of it.
//!
//! A row makes the field of its struct with its documentation, its default, its reading and writing, its name in a link, its
//! flag, its control in the planner, its place in a record's line and in the documentation. All of these are loops over the
//! table; nothing else lists the levers. What bears on two levers at once is no row's: it stands in `check.rs`.

mod field;
mod kind;
mod near;
mod rows;

use std::sync::LazyLock;

use plimsoll_ground::Result;
use serde_json::Value;

use super::{Allocator, Device, Input, Mode, Parallel, Scenario, Software, Training, model};
pub(crate) use field::{Field, module_names, word};
pub use kind::Kind;
pub use near::Near;
pub(crate) use rows::{Place, Rows, Slot, entry, levers};

/// One thing of a scenario a person can change.
#[derive(Clone, Copy, Debug)]
pub struct Lever {
    /// Where it stands: `training.lora.rank`.
    pub path: &'static str,
    /// What it is: the documentation of its field.
    pub about: &'static str,
    /// What the table says of it.
    pub row: Row,
    /// The value in this scenario; `None` where it has none.
    pub(crate) get: fn(&Scenario) -> Option<Value>,
    /// Reads a value into the scenario; the table it stands in is opened.
    pub(crate) set: fn(&mut Scenario, &Self, &Value) -> Result<()>,
    /// Whether the value in this scenario lies within its bounds.
    pub(crate) valid: fn(&Scenario, &Self) -> Result<()>,
    /// The value of a scenario that says nothing, as long as nothing else is said.
    pub(crate) constant: fn() -> Option<Value>,
    /// That value where it goes by what else is said.
    pub(crate) follows: Option<fn(&Scenario) -> Option<Value>>,
}

/// What the table says of a lever beside its type and default.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name in a share link. Never change one: links open for ever.
    pub link: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What people call it.
    pub label: &'static str,
    /// One line on what it does; empty where the values say it themselves.
    pub help: &'static str,
    /// The default in words, where it is no constant.
    pub otherwise: &'static str,
    /// Where the planner has its control.
    pub group: Group,
    /// Where a slider beside its field starts and ends.
    pub slide: Option<(u64, u64)>,
    /// Whether it is always written, or only where it says something: scenarios from before the key then stay as they were.
    pub written: Written,
    /// The one mode in which it says something.
    pub only: Option<Mode>,
    /// Whether it takes its default where a change of another lever leaves it no place, rather than refusing that change.
    pub yields: bool,
    /// How far apart it sets two runs.
    pub near: Near,
}

impl Row {
    /// A row that says nothing yet.
    pub(crate) const fn of(kind: Kind) -> Self {
        Self {
            link: "",
            kind,
            label: "",
            help: "",
            otherwise: "",
            group: Group::Loop,
            slide: None,
            written: Written::Always,
            only: None,
            yields: false,
            near: Near::NOT,
        }
    }
}

/// Where the planner has a control: its headings, in their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// The model.
    Model,
    /// The card.
    Card,
    /// Several cards.
    Parallel,
    /// How a strategy goes about it.
    Spread,
    /// What is read and carried, and not estimated yet: nowhere.
    Later,
    /// What is loaded.
    Load,
    /// The recipe.
    Recipe,
    /// Adapters, and the base they sit on.
    Adapters,
    /// What few change.
    Loop,
    /// Versions.
    Software,
}

/// When a lever is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// Whenever it has a value.
    Always,
    /// Where it is not its default.
    WhereItSays,
}

/// A table of a scenario: a section, or one within it.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Where it stands: `training`, `training.lora`.
    pub path: &'static str,
    /// What it is: the documentation of its struct.
    pub about: &'static str,
    /// What may stand in it, in the order it is written.
    pub entries: &'static [Entry],
    /// Whether this scenario has it.
    pub(crate) is_open: fn(&Scenario) -> bool,
    /// Gives it to the scenario, with every default; where there is one, nothing happens.
    pub(crate) open: fn(&mut Scenario),
    /// Takes it away, where a scenario can be without.
    pub(crate) close: fn(&mut Scenario),
}

/// What may stand in a table.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// A key.
    Lever(&'static Lever),
    /// A table within.
    Table(&'static Table),
}

/// The sections, in the order they are written. Defaults are filled in from the last to the first: what training leaves
/// open goes by the versions, what the input leaves open by the mode.
pub static SECTIONS: [&Table; 7] =
    [&model::MODEL, Input::TABLE, Training::TABLE, Parallel::TABLE, Device::TABLE, Allocator::TABLE, Software::TABLE];

/// The sections in the order links are written.
static LINKED: [&Table; 7] =
    [&model::MODEL, Device::TABLE, Parallel::TABLE, Input::TABLE, Training::TABLE, Allocator::TABLE, Software::TABLE];

/// Every lever, in the order they are written.
pub fn levers() -> impl Iterator<Item = &'static Lever> {
    static ALL: LazyLock<Vec<&'static Lever>> = LazyLock::new(|| SECTIONS.iter().flat_map(|s| s.levers()).collect());
    ALL.iter().copied()
}

/// Every lever, in the order links are written.
pub fn linked() -> impl Iterator<Item = &'static Lever> {
    LINKED.iter().flat_map(|section| section.levers())
}

/// The lever that stands at this path.
pub fn lever(path: &str) -> Option<&'static Lever> {
    levers().find(|lever| lever.path == path)
}

/// The last part of a path.
fn last(path: &'static str) -> &'static str {
    path.rsplit('.').next().unwrap_or(path)
}

impl Table {
    /// As it stands in the table around it: `lora`.
    pub fn name(&self) -> &'static str {
        last(self.path)
    }

    /// The names of what may stand in it.
    pub fn names(&self) -> Vec<&'static str> {
        self.entries.iter().map(Entry::name).collect()
    }

    /// Its levers and those of the tables within.
    pub fn levers(&'static self) -> Vec<&'static Lever> {
        let levers = |entry: &'static Entry| match entry {
            Entry::Lever(lever) => vec![*lever],
            Entry::Table(table) => table.levers(),
        };
        self.entries.iter().flat_map(levers).collect()
    }

    /// It and the tables within.
    fn tables(&'static self) -> Vec<&'static Self> {
        let within = self.entries.iter().filter_map(|entry| match entry {
            Entry::Lever(_) => None,
            Entry::Table(table) => Some(table.tables()),
        });
        std::iter::once(self).chain(within.flatten()).collect()
    }

    /// The table that stands at this path.
    pub(crate) fn at(path: &str) -> Option<&'static Self> {
        SECTIONS.iter().flat_map(|section| section.tables()).find(|table| table.path == path)
    }
}

impl Entry {
    /// As it stands in its table.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Lever(lever) => lever.name(),
            Self::Table(table) => table.name(),
        }
    }
}

impl PartialEq for Lever {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for Lever {}

impl Lever {
    /// The section it stands in.
    pub fn section(&self) -> &'static str {
        self.path.split('.').next().unwrap_or(self.path)
    }

    /// As it stands in its table: `rank`.
    pub fn name(&self) -> &'static str {
        last(self.path)
    }

    /// Whether the scenario has the table it stands in.
    pub fn is_open(&self, scenario: &Scenario) -> bool {
        let table = self.path.rsplit_once('.').and_then(|(table, _)| Table::at(table));
        table.is_none_or(|table| (table.is_open)(scenario))
    }

    /// Its path within the section, with this between the parts: `lora-rank`. What flags and controls are called.
    pub fn id(&self, between: &str) -> String {
        let within = self.path.split_once('.').map_or(self.path, |(_, within)| within);
        within.replace(['.', '_'], between)
    }

    /// The value in this scenario; `None` where it has none.
    pub fn get(&self, scenario: &Scenario) -> Option<Value> {
        (self.get)(scenario)
    }

    /// Gives it a value. Nothing else follows: see [`crate::Change`] for that.
    ///
    /// # Errors
    /// A value of another type, or beyond its bounds.
    pub fn set(&self, scenario: &mut Scenario, value: &Value) -> Result<()> {
        (self.set)(scenario, self, value)
    }

    /// The value of a scenario that says nothing, as long as nothing else is said; `None` where it then has none.
    pub fn constant(&self) -> Option<Value> {
        (self.constant)()
    }

    /// The value it has in this scenario when nothing is said of it.
    pub fn default(&self, scenario: &Scenario) -> Option<Value> {
        self.follows.map_or_else(|| self.constant(), |follows| follows(scenario))
    }

    /// Gives it its default.
    ///
    /// # Errors
    /// None that a default could have.
    pub(crate) fn reset(&self, scenario: &mut Scenario) -> Result<()> {
        let default = self.default(scenario).unwrap_or(Value::Null);
        self.set(scenario, &default)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use plimsoll_catalog::families::{FamilyKeyKind, OWN};

    use super::*;

    #[test]
    fn link_names_are_unique_even_beside_family_keys() {
        let mut links: Vec<&str> = levers().map(|lever| lever.row.link).collect();
        links.extend(["v", "hf", "m"]);
        for family in OWN {
            for key in family.keys() {
                assert!(!links.contains(&key.name), "{} of {} would shadow a scenario key", key.name, family.name);
            }
        }
        let unique: BTreeSet<&str> = links.iter().copied().collect();
        assert_eq!(unique.len(), links.len());
    }

    /// A link does not say whose key it names before it is read.
    #[test]
    fn a_name_means_the_same_kind_in_every_family() {
        let keys = || OWN.iter().flat_map(|family| family.keys());
        let number = |kind| matches!(kind, FamilyKeyKind::Count { .. } | FamilyKeyKind::Fraction { .. });
        let alike = |a, b| {
            number(a) == number(b) && matches!(a, FamilyKeyKind::Flag { .. }) == matches!(b, FamilyKeyKind::Flag { .. })
        };
        for key in keys() {
            assert!(keys().all(|other| other.name != key.name || alike(other.kind, key.kind)), "{}", key.name);
        }
    }

    #[test]
    fn every_row_says_what_every_reader_of_the_table_asks() {
        let mut ids = BTreeSet::new();
        for lever in levers() {
            let row = &lever.row;
            assert!(ids.insert(lever.id("-")), "two flags are called {}", lever.id("-"));
            for text in [row.link, row.label, lever.about] {
                assert!(!text.trim().is_empty() && text.trim() == text, "{}: {text:?}", lever.path);
            }
            assert!(!row.help.ends_with('.') && !row.label.ends_with('.'), "{}: no final stop", lever.path);
            let constant = lever.constant().is_some() && lever.follows.is_none();
            assert!(constant || !row.otherwise.is_empty(), "{}: its default is in no words", lever.path);
            let unbound = matches!(row.kind, Kind::Count { most: u64::MAX } | Kind::Amount { most: u64::MAX, .. });
            assert!(!unbound, "{} has no bound", lever.path);
            assert!(!matches!(row.kind, Kind::Words(words) if words.len() < 2), "{}", lever.path);
        }
        for table in SECTIONS {
            assert!(!table.about.is_empty() && Table::at(table.path).is_some());
        }
        assert!(
            Table::at("training.lora").is_some_and(|lora| lora.names()
                == ["rank", "targets", "dropout", "dora", "autocast_adapter_dtype", "modules_to_save"])
        );
    }
}
