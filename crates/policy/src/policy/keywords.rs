//! Enums whose values each have a keyword, for the command line, the environment and files.

/// Declares an enum with keywords, with `ALL`, `WORDS`, `word` and `from_word`. With the feature `serde`, values are
/// serialised as their keywords. The first value is the default.
macro_rules! words {
    (
        $(#[$doc:meta])* $name:ident {
            $(#[$first_doc:meta])* $first:ident = $first_word:literal,
            $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)*
        }
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
        pub enum $name {
            $(#[$first_doc])*
            #[default]
            #[cfg_attr(feature = "serde", serde(rename = $first_word))]
            $first,
            $($(#[$variant_doc])* #[cfg_attr(feature = "serde", serde(rename = $word))] $variant,)*
        }

        impl $name {
            /// Every value, in the order of the help text.
            pub const ALL: &'static [$name] = &[$name::$first, $($name::$variant,)*];

            /// The keywords of [`ALL`](Self::ALL), in the same order.
            pub const WORDS: &'static [&'static str] = &[$first_word, $($word,)*];

            /// The keyword of this value.
            pub const fn word(self) -> &'static str {
                match self { $name::$first => $first_word, $($name::$variant => $word,)* }
            }

            /// The value that has this keyword.
            pub fn from_word(word: &str) -> Option<$name> {
                match word { $first_word => Some($name::$first), $($word => Some($name::$variant),)* _ => None }
            }
        }
    };
}

pub(crate) use words;
