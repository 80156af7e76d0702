//! The families of candidates that words of a command line name.

use hksim_explore::knobs::alternatives;
use hksim_replay::compare::{expanded, meaning, settings_of};
use hksim_replay::library;

use crate::candidate::Family;
use crate::error::ChooseError;

/// A family for each word. A word with settings is tried with these only, one family for each combination of their
/// values; a known allocator without settings, by name or by path, is tried with those that the table of settings
/// (`hksim_explore::knobs`) has for its version.
///
/// # Errors
/// A range of values has none.
pub fn families(words: &[String]) -> Result<Vec<Family>, ChooseError> {
    let family = |word: String| {
        let (kind, settings) = word.split_once(':').map_or((&*word, None), |(kind, settings)| (kind, Some(settings)));
        let kind = meaning(kind).unwrap_or(kind);
        match settings {
            Some(settings) => Family { word: format!("{kind}:{settings}"), axes: Vec::new() },
            None => Family { word: kind.to_string(), axes: axes(kind) },
        }
    };
    let families: Vec<Family> = expanded(words)?.into_iter().map(family).collect();
    let is_repeated = |at: usize| families[..at].iter().any(|earlier| earlier.word == families[at].word);
    match (0..families.len()).find(|&at| is_repeated(at)) {
        Some(at) => Err(ChooseError::Repeated(families[at].word.clone())),
        None => Ok(families),
    }
}

/// The settings of a known allocator, or of a library by its path that is one, grouped: two that set the same variable
/// exclude each other.
fn axes(word: &str) -> Vec<Vec<String>> {
    let library = library::installed(word);
    let allocator = library.as_ref().map_or(word, |library| library.allocator);
    let settings = alternatives(allocator, library.as_ref().map(|library| library.version.as_str()));
    grouped(settings.iter().filter_map(|variables| settings_of(allocator, variables)))
}

fn grouped(settings: impl Iterator<Item = String>) -> Vec<Vec<String>> {
    let keys = |setting: &str| -> Vec<String> {
        setting.split('+').filter_map(|one| Some(one.split_once('=')?.0.to_string())).collect()
    };
    let mut axes: Vec<Vec<String>> = Vec::new();
    for setting in settings {
        let own = keys(&setting);
        let shares_key = |other: &String| keys(other).iter().any(|key| own.contains(key));
        match axes.iter_mut().find(|axis| axis.iter().any(shares_key)) {
            Some(axis) => axis.push(setting),
            None => axes.push(vec![setting]),
        }
    }
    axes
}

#[cfg(test)]
mod tests {
    use hksim_replay::Target;
    use hksim_replay::compare::{Found, lookup};

    use super::*;

    #[test]
    fn settings_of_one_key_are_one_axis() {
        let settings = ["hugetlb=1", "trim_threshold=1", "mmap_threshold=2+trim_threshold=2", "tcache_count=64"];
        let axes = grouped(settings.iter().map(ToString::to_string));
        assert_eq!(
            axes,
            [vec!["hugetlb=1"], vec!["trim_threshold=1", "mmap_threshold=2+trim_threshold=2"], vec!["tcache_count=64"]]
        );
    }

    #[test]
    fn an_allocator_named_twice_is_refused() {
        let named = |words: &[&str]| families(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(named(&["glibc", "tcmalloc", "gperftools"]), Err(ChooseError::Repeated("gperftools".into())));
        assert_eq!(named(&["glibc", "glibc:arena_max=1", "./a.so"]).map(|families| families.len()), Ok(3));
    }

    #[test]
    fn a_library_by_path_has_the_settings_of_the_allocator_that_it_is() {
        for name in ["jemalloc", "mimalloc", "gperftools"] {
            let Ok(Found::Here(Target::Malloc { preload: Some(path), .. })) = lookup(name, "") else {
                println!("skipped: {name}: not installed");
                continue;
            };
            let path = path.display().to_string();
            assert_eq!(axes(&path), axes(name), "{path}");
            let variables = |word: &str, settings: &str| match lookup(word, settings) {
                Ok(Found::Here(Target::Malloc { variables, .. })) => variables,
                other => panic!("{word}: {other:?}"),
            };
            let settings = axes(name).concat().join("+");
            assert_eq!(variables(&path, &settings), variables(name, &settings));
            let own = variables(&path, &format!("MY_OPTION=7+{settings}"));
            assert!(own.len() > 1 && own.contains(&("MY_OPTION".into(), "7".into())), "{own:?}");
        }
    }

    #[test]
    fn a_word_with_settings_has_no_axes_of_its_own() {
        let words = ["glibc", "glibc:arena_max=1,2", "tcmalloc:release_rate=0"].map(String::from);
        let families = families(&words).expect("words");
        let shown: Vec<(&str, bool)> =
            families.iter().map(|family| (family.word.as_str(), family.axes.is_empty())).collect();
        assert_eq!(
            shown,
            [
                ("glibc", false),
                ("glibc:arena_max=1", true),
                ("glibc:arena_max=2", true),
                ("gperftools:release_rate=0", true)
            ]
        );
    }
}
