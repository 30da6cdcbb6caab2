//! Closed vocabularies: an enum whose text form is the scenario's own, declared once for reading, printing and asking.

/// One word of a vocabulary, as it is written and as people read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Word {
    /// The scenario's spelling.
    pub key: &'static str,
    /// What a button says.
    pub label: &'static str,
    /// What it means: the value's own documentation.
    pub about: &'static str,
}

/// An enum whose values are words of the scenario.
pub trait Vocabulary: Copy + PartialEq + 'static {
    /// Every value, in the order they are offered to people.
    const VALUES: &'static [Self];

    /// Their words, in the same order.
    const WORDS: &'static [Word];

    /// The scenario's spelling.
    fn word(self) -> &'static str;
}

/// Declares an enum with its scenario spellings, so that parsing, printing and "use one of ..." share one list. A value
/// that reads otherwise on a button says so behind `as`; its documentation is what people are told it means.
///
/// ```
/// plimsoll_ground::vocabulary!(
///     /// How much sail is set.
///     Sail {
///         /// None at all.
///         Bare = "bare" as "bare poles",
///         /// All there is.
///         Full = "full",
///     }
/// );
/// assert_eq!(Sail::parse("full"), Some(Sail::Full));
/// assert_eq!(Sail::Bare.to_string(), "bare");
/// assert_eq!(Sail::Bare.in_words().label, "bare poles");
/// assert_eq!(Sail::Full.in_words().about, "All there is.");
/// ```
#[macro_export]
macro_rules! vocabulary {
    ($(#[$doc:meta])* $name:ident {
        $($(#[doc = $about:literal])+ $variant:ident = $text:literal $(as $label:literal)?,)+
    }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[doc = $about])+ $variant,)+ }

        impl $name {
            /// Every value, in the order they are offered to people.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The scenario's spelling.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }

            /// The value spelled `text`, if there is one.
            pub fn parse(text: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|v| v.as_str() == text)
            }

            /// How people read it.
            pub const fn in_words(self) -> $crate::Word {
                match self {
                    $(Self::$variant => {
                        let label = $text;
                        $(let label = $label;)?
                        $crate::Word { key: $text, label, about: concat!($($about),+).trim_ascii() }
                    })+
                }
            }
        }

        impl $crate::Vocabulary for $name {
            const VALUES: &'static [Self] = Self::ALL;
            const WORDS: &'static [$crate::Word] = &[$(Self::$variant.in_words(),)+];

            fn word(self) -> &'static str {
                self.as_str()
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
