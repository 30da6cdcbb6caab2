//! Tables of names: an enum whose variants are what the ledger refers to by number.

/// Declares an enum with a name for each variant; `Id` is the ledger's number for one.
macro_rules! names {
    ($(#[$doc:meta])* $name:ident: $id:ident { $($variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        #[allow(missing_docs, reason = "each variant is named as PyTorch names it")]
        pub enum $name { $($variant,)+ }

        impl $name {
            /// Every row of the table, by number.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The names, by number.
            const NAMES: &'static [std::borrow::Cow<'static, str>] = &[$(std::borrow::Cow::Borrowed($text),)+];

            /// PyTorch's name.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// Its number in the ledger.
            pub const fn id(self) -> $id {
                $id(self as u16)
            }

            /// The table as the ledger has it.
            pub const fn names() -> Names {
                Names::of(Self::NAMES)
            }
        }
    };
}
pub(crate) use names;
