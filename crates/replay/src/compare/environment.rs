//! The environment of a comparison: the machine, and the variables that allocators read.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;

use serde::{Deserialize, Serialize};

use crate::Environment;

/// Prefixes of the variables that allocators read: those of glibc, jemalloc, mimalloc, gperftools, tbbmalloc and hksim,
/// and the library path of the loader.
const SHAPING: [&str; 8] = [
    "GLIBC_TUNABLES",
    "MALLOC_",
    "_RJEM_MALLOC_",
    "MIMALLOC_",
    "TCMALLOC_",
    "TBB_MALLOC_",
    "HKSIM_",
    "LD_LIBRARY_PATH",
];

/// The machine during a comparison.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Surroundings {
    /// The environment of the first counted run; null without one.
    #[serde(flatten)]
    machine: Option<Environment>,
    /// The variables that allocators read.
    pub variables: BTreeMap<String, String>,
    /// Modes and limits that changed during the comparison: the run, the old value and the new value.
    pub modes_changed: Vec<String>,
}

impl Surroundings {
    /// The environments of counted runs, in order.
    pub fn of(runs: &[Run<'_>]) -> Surroundings {
        let machine = runs.first().map(|run| Environment { modes_changed: Vec::new(), ..run.environment.clone() });
        let modes_changed = (0..runs.len()).flat_map(|at| changes(runs, at)).collect();
        Surroundings { machine, variables: shaping(env::vars_os()), modes_changed }
    }
}

/// A counted run.
#[derive(Clone, Copy, Debug)]
pub struct Run<'a> {
    /// From 1.
    pub round: usize,
    /// Its name on the command line.
    pub allocator: &'a str,
    /// The machine at the start of the run, and changes until its end.
    pub environment: &'a Environment,
}

/// Changes between a run and the previous one, and during the run.
fn changes(runs: &[Run<'_>], at: usize) -> Vec<String> {
    let Run { round, allocator, environment } = runs[at];
    let before = at.checked_sub(1).map(|before| runs[before].environment);
    let between = before.map_or(Vec::new(), |before| environment.changed_since(before));
    let is_new = |change: &String| before.is_none_or(|before| !before.modes_changed.contains(change));
    let changed = between.into_iter().filter(is_new).chain(environment.modes_changed.iter().cloned());
    changed.map(|change| format!("round {round}, {allocator}: {change}")).collect()
}

/// The variables among `all` that allocators read.
fn shaping(all: impl Iterator<Item = (OsString, OsString)>) -> BTreeMap<String, String> {
    let text = |word: OsString| word.to_string_lossy().into_owned();
    let all = all.map(|(name, value)| (text(name), text(value)));
    all.filter(|(name, _)| SHAPING.iter().any(|start| name.starts_with(start))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_told_once_at_the_run_that_saw_it() {
        let machine = |thp: &str, changed: &[&str]| Environment {
            thp_enabled: Some(thp.into()),
            modes_changed: changed.iter().map(ToString::to_string).collect(),
            ..Environment::default()
        };
        let while_it_ran = "thp_enabled: always, then never";
        let machines = [machine("madvise", &[]), machine("always", &[while_it_ran]), machine("never", &[])];
        let runs: Vec<Run> = machines.iter().map(|environment| Run { round: 1, allocator: "a", environment }).collect();
        let expected = ["round 1, a: thp_enabled: madvise, then always", "round 1, a: thp_enabled: always, then never"];
        assert_eq!(Surroundings::of(&runs).modes_changed, expected);
        assert_eq!(Surroundings::of(&runs[..1]).modes_changed, [""; 0]);
    }

    #[test]
    fn variables_of_allocators_are_kept_and_no_others() {
        let all = ["GLIBC_TUNABLES", "MALLOC_CONF", "MALLOC_ARENA_MAX", "HOME", "SECRET", "MIMALLOC_VERBOSE"];
        let kept = shaping(all.iter().map(|name| (name.into(), "x".into())));
        let kept: Vec<&str> = kept.keys().map(String::as_str).collect();
        assert_eq!(kept, ["GLIBC_TUNABLES", "MALLOC_ARENA_MAX", "MALLOC_CONF", "MIMALLOC_VERBOSE"]);
    }
}
