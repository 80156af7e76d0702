//! Looks up allocators by name, for `--allocators` and `--on`.

use anyhow::{Context, Result};
use hksim_embedded::{ALLOCATOR, cached};
use hksim_native::config::{NativeConfig, POLICY_VARIABLE};
use hksim_native::process::has_constant_geometry;
use hksim_policy::Policy;
use hksim_replay::Target;
use hksim_replay::compare::{Allocator, Code, Found, LookupError, Own, lookup, meaning};

use crate::flags::{PolicyArgs, RunConfig};
use crate::host;
use crate::output::note;

/// Looks up a word of a flag: `glibc`, a known allocator, `native`, `native:POLICY`, or the path of a library. All
/// but native may be followed by settings: `jemalloc:thp=always`, `glibc:hugetlb=1+arena_max=1`.
///
/// # Errors
/// The word is none of these, the policy is invalid, or the file does not exist.
pub fn named(flag: &str, word: &str) -> Result<Allocator> {
    let (kind, settings) = word.split_once(':').unwrap_or((word, ""));
    if kind == "native" {
        let policy = || -> Result<Policy> { Ok(PolicyArgs::of_word(settings)?.config()?.policy) };
        return policy().and_then(|policy| native(word, policy)).with_context(|| format!("--{flag} {word}"));
    }
    if let Some(meant) = meaning(kind) {
        note(&format!("--{flag} {kind}: this is {meant}; Google's TCMalloc is another allocator"));
    }
    let found = match lookup(kind, settings) {
        // The path is the whole message.
        Err(why @ (LookupError::NoFile { .. } | LookupError::OtherFile(_))) => return Err(why.into()),
        Err(why @ LookupError::Unknown { .. }) => return Err(why).with_context(|| format!("--{flag} {kind}")),
        found => found.with_context(|| format!("--{flag} {word}"))?,
    };
    Ok(Allocator { name: word.to_string(), own: None, found })
}

/// hksim's own allocator, inside the replay.
///
/// # Errors
/// The kernel's modes cannot be read.
pub fn native(name: &str, policy: Policy) -> Result<Allocator> {
    let found = match host::lacks_for(&policy)? {
        Some(lack) => Found::Missing(lack),
        None => Found::Here(Target::Native(Box::new(policy))),
    };
    Ok(Allocator { name: name.to_string(), own: Some(Own { policy, code: Code::InReplay }), found })
}

/// The allocator as a program has it: hksim's own becomes the preloaded object of `hksim run`, if a program can run on
/// its policy.
///
/// # Errors
/// The object cannot be stored.
pub fn as_programs_have_it(allocator: Allocator) -> Result<Allocator> {
    let (Some(Own { policy, .. }), Found::Here(_)) = (allocator.own, &allocator.found) else { return Ok(allocator) };
    let words = RunConfig::of(policy).native_words();
    if NativeConfig::read(&words).is_err() {
        return Ok(allocator);
    }
    let code = if has_constant_geometry(&policy) { Code::Constant } else { Code::RunTime };
    let variables = vec![(POLICY_VARIABLE.to_string_lossy().into_owned(), words)];
    let on = Target::Malloc { preload: Some(cached("native", ALLOCATOR)?), variables };
    Ok(Allocator { own: Some(Own { policy, code }), found: Found::Here(on), ..allocator })
}
