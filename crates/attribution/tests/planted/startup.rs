//! Memory that a library takes before the first event, and what a setting gains.

use std::path::Path;

use hksim_attribution::breakdown::CauseKey;
use hksim_attribution::reason::Reason;
use hksim_attribution::remedies::{Question, Remedy, best};
use hksim_attribution::sentences;
use hksim_engine::TouchRule;
use hksim_explore::flags::RunConfig;
use hksim_explore::inputs::Trace;
use hksim_policy::Policy;
use hksim_replay::{HugePages, Measure, ReplaySpec, Target, replay};
use hksim_testkit::compile;
use hksim_trace::ids::ObjectIds;

use crate::{LARGE, Workload, draw, run, trace};

/// Pages that may differ between two runs: the kernel counts resident pages in batches.
const NOISE_PAGES: u64 = 128;

/// The explanation has it as a reason of its own, with as many pages as the library used, and its resident bytes are those of
/// a replay that only measures.
pub fn memory_from_before_the_first_event_counts() -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let (library, path) = (folder.path().join("planted.so"), folder.path().join("planted.hkt"));
    let pages = 500 + draw().below(2000);
    let chosen = format!("-DSTARTUP_PAGES={pages}");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/planted/planted.c");
    compile(source, &library, &["-g", "-O2", "-fPIC", "-shared", "-fno-builtin-malloc", &chosen])
        .ok_or("no C compiler")?;
    let mut ids = ObjectIds::new();
    trace::write(&path, &(0..40).map(|_| trace::allocation(&mut ids, 5000)).collect::<Vec<_>>());
    let spec = spec(&path, Target::Malloc { preload: library.canonicalize().ok(), variables: Vec::new() });
    let explained = run(&spec)?;
    let at_start = explained.breakdown.reason.get(&Reason::StartUp).copied().unwrap_or(0);
    assert!((pages..pages + NOISE_PAGES).contains(&at_start), "{at_start} instead of {pages}");
    let (key, counts) = explained.breakdown.largest_causes()[0];
    let sentence = sentences::cause(&explained, key, counts);
    assert!(sentence.contains("the library takes") && sentence.contains("before the first event"), "{sentence}");
    let measured = replay(&spec).expect("a replay").rss_bytes_peak.expect("it is measured");
    let explained_rss = explained.totals.rss_bytes_peak;
    assert!(explained_rss.abs_diff(measured) <= NOISE_PAGES * 4096, "{explained_rss} instead of {measured}");
    let of_c_library = run(&self::spec(&path, Target::C_LIBRARY))?;
    assert_eq!(of_c_library.breakdown.reason.get(&Reason::StartUp), None);
    Ok(())
}

/// Blocks that glibc maps one by one: a replay with the setting that is named has the faults and the memory that were said.
pub fn a_setting_gains_what_is_said() -> Result<(), String> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("large.hkt");
    trace::write(&path, &Workload { classes: &[LARGE], random: &mut draw() }.events());
    let spec = spec(&path, Target::C_LIBRARY);
    let explained = run(&spec)?;
    let causes: Vec<CauseKey> = explained.breakdown.largest_causes().iter().map(|(key, _)| *key).take(1).collect();
    let trace = Trace::file(&path).expect("a trace");
    let config = RunConfig::of(Policy::DEFAULT);
    let question = Question { trace: &trace, spec: &spec, huge: HugePages::Disabled, config: &config, listener: &() };
    let tried = question.tried(&explained, &causes).expect("remedies").tried;
    let of_cause = explained.breakdown.causes[&causes[0]].installs;
    let (remedy, left) = best(&tried, 0, of_cause, explained.breakdown.total).expect("a remedy");
    let Remedy::Setting(variables) = &remedy.remedy else { panic!("{remedy:?}") };
    assert!(left.is_some_and(|left| left < of_cause / 10), "{left:?} of {of_cause} are left with {variables:?}");
    let on = Target::Malloc { preload: None, variables: variables.clone() };
    let after = replay(&ReplaySpec { on, ..spec }).expect("a replay");
    let (faults, rss) = (after.faults.expect("faults"), after.rss_bytes_peak.expect("resident bytes"));
    assert!(faults.abs_diff(remedy.installs) <= 16, "{faults} instead of {}", remedy.installs);
    assert!(rss.abs_diff(remedy.rss_bytes_peak) <= NOISE_PAGES * 4096, "{rss} instead of {}", remedy.rss_bytes_peak);
    Ok(())
}

fn spec(path: &Path, on: Target) -> ReplaySpec {
    ReplaySpec { measure: Measure::PAGES, ..ReplaySpec::ordered(path, on, TouchRule::All) }
}
