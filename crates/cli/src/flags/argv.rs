//! Options with an optional value: the next word is taken as the value only if it can be nothing else.

use std::ffi::OsString;
use std::path::Path;

use hksim_explore::flags::table::is_huge_value;

/// An option with an optional value.
struct OptionalValue {
    name: &'static str,
    /// Whether a word is a value of this option.
    is_value: fn(&str) -> bool,
}

const OPTIONAL: [OptionalValue; 2] = [
    // A word that is neither a value nor a possible trace is a misspelt value, and the message says so.
    OptionalValue { name: "--huge", is_value: |word| word.split(',').all(is_huge_value) || is_no_file(word) },
    // Any word that does not name a picture is a trace, which must not be overwritten.
    OptionalValue { name: "--plot", is_value: is_picture },
];

/// Whether a word neither names a file nor looks like a file name: `tph`.
fn is_no_file(word: &str) -> bool {
    !word.starts_with('-') && !word.contains(['.', '/']) && !Path::new(word).exists()
}

/// Whether a word names a picture. Unsupported picture formats and standard output count, so that they are refused by
/// name.
fn is_picture(word: &str) -> bool {
    let word = word.to_ascii_lowercase();
    word == "-" || [".svg", ".png", ".pdf", ".jpg", ".jpeg", ".gif", ".webp"].iter().any(|kind| word.ends_with(kind))
}

/// Joins these options with their values: `--huge thp` becomes `--huge=thp`; `--huge app.hkt` stays. Words after `--`
/// are not changed, nor those of `record`, which has no such option: they may be the recorded program's.
pub fn join_optional_values(words: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let words: Vec<OsString> = words.into_iter().collect();
    // The first word may be the program's own name.
    if words.iter().take(2).any(|word| word == "record") {
        return words;
    }
    let mut words = words.into_iter().peekable();
    let mut joined = Vec::new();
    while let Some(mut word) = words.next() {
        if word == "--" {
            joined.push(word);
            joined.extend(words);
            break;
        }
        let option = OPTIONAL.iter().find(|option| word == option.name);
        if let Some(option) = option
            && let Some(value) = words.next_if(|next| next.to_str().is_some_and(option.is_value))
        {
            word.push("=");
            word.push(value);
        }
        joined.push(word);
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    fn joined(line: &str) -> String {
        let words = join_optional_values(line.split(' ').map(OsString::from));
        words.iter().map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_word_is_a_value_only_if_it_can_be_nothing_else() {
        let cases = [
            ("sweep --huge app.hkt", "sweep --huge app.hkt"),
            ("sweep --huge thp app.hkt", "sweep --huge=thp app.hkt"),
            ("sweep --huge never,thp app.hkt", "sweep --huge=never,thp app.hkt"),
            ("sweep --huge never,app.hkt", "sweep --huge never,app.hkt"),
            ("sweep --huge --slab 64K", "sweep --huge --slab 64K"),
            ("sweep --huge=thp never", "sweep --huge=thp never"),
            ("sweep app.hkt --huge", "sweep app.hkt --huge"),
            ("sweep --huge mthp-64K", "sweep --huge=mthp-64K"),
            ("sweep --huge tph app.hkt", "sweep --huge=tph app.hkt"),
            ("sweep --huge thp,tph", "sweep --huge=thp,tph"),
            ("sweep --huge /dev/null", "sweep --huge /dev/null"),
            ("sweep --huge src", "sweep --huge src"),
            ("sweep --plot a.png app.hkt", "sweep --plot=a.png app.hkt"),
            ("sweep --plot a.svg --plot app.hkt", "sweep --plot=a.svg --plot app.hkt"),
            ("record -- app --huge thp", "record -- app --huge thp"),
            ("hksim record -o a.hkt app --huge thp", "hksim record -o a.hkt app --huge thp"),
            ("run --huge thp -- app --huge thp", "run --huge=thp -- app --huge thp"),
        ];
        for (line, expected) in cases {
            assert_eq!(joined(line), expected);
        }
    }
}
