//! Memory that a library takes before its first call.

use std::path::PathBuf;
use std::time::Duration;

use hksim_engine::TouchRule;
use hksim_replay::compare::{Allocator, Found, Plan, compare};
use hksim_replay::{Mode, Target, replay};
use hksim_testkit::compile;
use hksim_timing::{Arrangement, Effort};

use crate::common::{Trace, malloc};

/// What the library takes.
const TAKEN: u64 = 8 << 20;
/// The live bytes of the trace.
const LIVE: u64 = 4 << 20;
/// How much the resident bytes of two runs may differ: the kernel counts them in batches.
const NOISE: u64 = 512 << 10;

/// Residency contains it in a replay, and in a comparison whatever other rows there are.
pub fn memory_from_before_the_first_call_counts() -> Result<(), String> {
    let trace = Trace::of([(0, malloc(0, LIVE))]);
    let library = trace.folder().join("startup.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/startup.c");
    let flags = ["-O1", "-fPIC", "-shared", "-fno-builtin-malloc"];
    compile(source, &library, &flags).ok_or("no C compiler")?;
    let on = |preload: Option<PathBuf>| Target::Malloc { preload, variables: Vec::new() };
    for mode in [Mode::Ordered, Mode::Threaded] {
        let spec = |on| hksim_replay::ReplaySpec { mode, ..trace.spec(on, TouchRule::All) };
        let with = replay(&spec(on(Some(library.clone())))).expect("a replay");
        let taken = with.startup_bytes.expect("it is known");
        assert!((TAKEN..TAKEN + NOISE).contains(&taken), "{mode:?}: {taken}");
        is_about(with.rss_bytes_peak, TAKEN + LIVE);
        is_about(with.rss_bytes_end, TAKEN + LIVE);
        if mode == Mode::Ordered {
            is_about(with.marks.last().and_then(|mark| mark.rss_bytes), TAKEN + LIVE);
        }
        let without = replay(&spec(on(None))).expect("a replay");
        assert_eq!(without.startup_bytes, Some(0), "{mode:?}");
        is_about(without.rss_bytes_peak, LIVE);
    }
    let row = |name: &str, preload| Allocator { name: name.into(), own: None, found: Found::Here(on(preload)) };
    let (glibc, other) = (row("glibc", None), row("startup", Some(library)));
    let path = trace.path();
    let plan = Plan {
        trace: &path,
        touch: TouchRule::All,
        mode: Mode::Ordered,
        effort: Effort { precision: 0.0, time_max: Duration::ZERO, rounds_min: 1, rounds_max: 1 },
        arrangement: Arrangement::InTurn,
        seed: 0,
        is_apart: false,
    };
    for rows in [vec![other.clone()], vec![glibc.clone(), other]] {
        let compared = compare(&rows, &plan, &|| ()).expect("a comparison");
        let last = compared.rows.last().expect("a row");
        is_about(last.figures.rss_bytes_peak.as_ref().map(|spread| spread.median), TAKEN + LIVE);
        is_about(last.timeline.last().and_then(|sample| sample.rss_bytes), TAKEN + LIVE);
    }
    Ok(())
}

#[track_caller]
fn is_about(bytes: Option<u64>, expected: u64) {
    assert!(bytes.is_some_and(|bytes| bytes.abs_diff(expected) <= NOISE), "{bytes:?} instead of about {expected}");
}
