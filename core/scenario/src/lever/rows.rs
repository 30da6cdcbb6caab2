//! How the table is written: a struct and its rows in one place.

use super::Table;
use crate::Scenario;

/// A table of a scenario, found from the scenario.
pub(crate) trait Place: Sized {
    /// It, where the scenario has it.
    fn of(scenario: &Scenario) -> Option<&Self>;

    /// It; where there is none, one with every default is put there.
    fn within(scenario: &mut Scenario) -> &mut Self;
}

/// A struct whose fields are rows of the table.
pub(crate) trait Rows: Place {
    /// Its rows.
    const TABLE: &'static Table;
}

/// A field that holds a table: always, or maybe.
pub(crate) trait Slot<T> {
    /// The table, where there is one.
    fn get(&self) -> Option<&T>;

    /// The table; where there is none, one with every default is put there.
    fn open(&mut self) -> &mut T;

    /// Takes it away, where that is possible.
    fn close(&mut self);
}

impl<T: Place> Slot<T> for T {
    fn get(&self) -> Option<&T> {
        Some(self)
    }

    fn open(&mut self) -> &mut T {
        self
    }

    fn close(&mut self) {}
}

impl<T: Place + Default> Slot<T> for Option<T> {
    fn get(&self) -> Option<&T> {
        self.as_ref()
    }

    fn open(&mut self) -> &mut T {
        self.get_or_insert_default()
    }

    fn close(&mut self) {
        *self = None;
    }
}

impl Place for Scenario {
    fn of(scenario: &Scenario) -> Option<&Self> {
        Some(scenario)
    }

    fn within(scenario: &mut Scenario) -> &mut Self {
        scenario
    }
}

/// Declares a table of a scenario: the struct, its defaults, and the rows that everything else is made of.
///
/// ```ignore
/// levers! {
///     /// `[training.lora]`: low-rank adapters.
///     pub struct Lora = "training.lora", lora of Training {
///         /// Rank of the adapters.
///         pub rank: u64 = 8 => { link: "lora", kind: Kind::Count { most: limits::RANK }, label: "Rank" }
///     }
/// }
/// ```
///
/// A row is a field with its documentation, its default, and what [`super::Row`] has; what it leaves out has that struct's own
/// default. `= 8, or follow` says that the value of a scenario that does not say goes by the rest, as the function `follow`
/// has it. `=> [Lora]` in the place of a row is a table within, declared by a `levers!` of its own; its field holds the struct,
/// or an `Option` of it where a scenario can be without. `rows of` in the place of `pub struct` names a struct that stands
/// elsewhere.
macro_rules! levers {
    (
        $(#[doc = $about:literal])+
        pub struct $Type:ident = $path:literal, $slot:ident of $Parent:ident {
            $(
                $(#[doc = $doc:literal])+
                pub $name:ident: $ty:ty = $default:expr $(, or $follows:path)? => $row:tt
            )+
        }
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug, PartialEq)]
        pub struct $Type {
            $($(#[doc = $doc])+ pub $name: $ty,)+
        }

        impl Default for $Type {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        $crate::lever::levers! {
            $(#[doc = $about])+
            rows of $Type = $path, $slot of $Parent {
                $(
                    $(#[doc = $doc])+
                    pub $name: $ty = $default $(, or $follows)? => $row
                )+
            }
        }
    };
    (
        $(#[doc = $about:literal])+
        rows of $Type:ident = $path:literal, $slot:ident of $Parent:ident {
            $(
                $(#[doc = $doc:literal])+
                pub $name:ident: $ty:ty = $default:expr $(, or $follows:path)? => $row:tt
            )+
        }
    ) => {
        /// Where each of these levers stands.
        #[allow(non_upper_case_globals, reason = "they are called as the fields are")]
        pub mod at {
            $($(#[doc = $doc])+ pub const $name: &str = concat!($path, ".", stringify!($name));)+
        }

        impl $crate::lever::Place for $Type {
            fn of(scenario: &$crate::Scenario) -> Option<&Self> {
                <$Parent as $crate::lever::Place>::of(scenario).and_then(|parent| $crate::lever::Slot::get(&parent.$slot))
            }

            fn within(scenario: &mut $crate::Scenario) -> &mut Self {
                $crate::lever::Slot::open(&mut <$Parent as $crate::lever::Place>::within(scenario).$slot)
            }
        }

        impl $crate::lever::Rows for $Type {
            const TABLE: &'static $crate::lever::Table = &$crate::lever::Table {
                path: $path,
                about: concat!($($about),+).trim_ascii(),
                entries: &[
                    $($crate::lever::entry!(
                        $Type, $path, [$($doc)+], $name, $ty, $default, [$($follows)?], $row
                    ),)+
                ],
                is_open: |scenario| <$Type as $crate::lever::Place>::of(scenario).is_some(),
                open: |scenario| {
                    <$Type as $crate::lever::Place>::within(scenario);
                },
                close: |scenario| {
                    if <$Type as $crate::lever::Place>::of(scenario).is_some() {
                        let parent = <$Parent as $crate::lever::Place>::within(scenario);
                        $crate::lever::Slot::<$Type>::close(&mut parent.$slot);
                    }
                },
            };
        }
    };
}

/// One entry of a table: a lever, or a table within.
macro_rules! entry {
    ($Type:ident, $path:literal, [$($doc:literal)+], $name:ident, $ty:ty, $default:expr, [], [$Table:ty]) => {
        $crate::lever::Entry::Table(<$Table as $crate::lever::Rows>::TABLE)
    };
    (
        $Type:ident, $path:literal, [$($doc:literal)+], $name:ident, $ty:ty, $default:expr, [$($follows:path)?],
        { $($key:ident: $value:expr),* $(,)? }
    ) => {
        $crate::lever::Entry::Lever(&$crate::lever::Lever {
            path: concat!($path, ".", stringify!($name)),
            about: concat!($($doc),+).trim_ascii(),
            row: $crate::lever::Row {
                $($key: $value,)*
                ..$crate::lever::Row::of(<$ty as $crate::lever::Field>::KIND)
            },
            get: |scenario| {
                let table = <$Type as $crate::lever::Place>::of(scenario)?;
                $crate::lever::Field::write(&table.$name)
            },
            set: |scenario, lever, value| {
                let value: $ty = $crate::lever::Field::read(lever, value)?;
                <$Type as $crate::lever::Place>::within(scenario).$name = value;
                Ok(())
            },
            valid: |scenario, lever| match <$Type as $crate::lever::Place>::of(scenario) {
                Some(table) => $crate::lever::Field::valid(&table.$name, lever),
                None => Ok(()),
            },
            constant: || {
                let default: $ty = $default;
                $crate::lever::Field::write(&default)
            },
            follows: $crate::lever::entry!(@follows $($follows)?),
        })
    };
    (@follows) => { None };
    (@follows $follows:path) => { Some(|scenario| $crate::lever::Field::write(&$follows(scenario))) };
}

pub(crate) use {entry, levers};
