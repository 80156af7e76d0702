//! Looks up allocators by name, for `--allocators` and `--on`.

use anyhow::{Context, Result};
use hksim_replay::Target;
use hksim_replay::compare::{Allocator, Found, LookupError, lookup, meaning};

use crate::flags::PolicyArgs;
use crate::host;
use crate::output::note;

/// Looks up a word of a flag: `glibc`, a known allocator, `native`, `native:POLICY`, or the path of a library. All
/// but native may be followed by settings: `jemalloc:thp=always`, `glibc:hugetlb=1+arena_max=1`.
///
/// # Errors
/// The word is none of these, the policy is invalid, or the file does not exist.
pub fn named(flag: &str, word: &str) -> Result<Allocator> {
    let (kind, settings) = word.split_once(':').unwrap_or((word, ""));
    if let Some(meant) = meaning(kind) {
        note(&format!("--{flag} {kind}: this is {meant}; Google's TCMalloc is another allocator"));
    }
    let found = match kind {
        "native" => native(settings).with_context(|| format!("--{flag} {word}"))?,
        name => match lookup(name, settings) {
            // The path is the whole message.
            Err(why @ (LookupError::NoFile { .. } | LookupError::OtherFile(_))) => return Err(why.into()),
            Err(why @ LookupError::Unknown { .. }) => return Err(why).with_context(|| format!("--{flag} {name}")),
            found => found.with_context(|| format!("--{flag} {word}"))?,
        },
    };
    Ok(Allocator { name: word.to_string(), found })
}

fn native(policy: &str) -> Result<Found> {
    let policy = PolicyArgs::of_word(policy)?.config()?.policy;
    Ok(match host::lacks_for(&policy)? {
        Some(lack) => Found::Missing(lack),
        None => Found::Here(Target::Native(Box::new(policy))),
    })
}
