//! Pairs of a prediction and a measurement.

use hksim_designs::bump::{Bump, BumpSettings};
use hksim_engine::{Comparison, ForkWindow, MemoryPolicyRule, TouchRule};
use hksim_linux_mm::{SizeMode, ThpMode};
use hksim_replay::{Measure, replay};
use hksim_sim::accounting::Reason;
use hksim_sim::explain_design;
use hksim_sim::memory::PageUse;
use hksim_testkit::events::random_trace;
use hksim_trace::event::Op;
use hksim_trace::hkt::TraceReader;
use hksim_trace::memory_policy::{LockAll, MemoryPolicy};

use crate::common::{NoThp, Setup, Trace, events_of, free, malloc};
use crate::runs::{Runs, RunsSettings};

/// Number of random pairs of each design.
fn pairs() -> u64 {
    6 * hksim_testkit::test_scale()
}

/// The rule of a random pair.
fn touch(seed: u64) -> TouchRule {
    [TouchRule::Recorded, TouchRule::All, TouchRule::ReadThenAll, TouchRule::AllAtDeath][seed as usize % 4]
}

fn settings(seed: u64) -> RunsSettings {
    RunsSettings { frees_lazily: seed & 1 != 0, advises_huge: seed & 2 != 0, moves: seed & 4 == 0 }
}

pub fn bump_is_predicted_exactly() -> Result<(), String> {
    let _no_thp = NoThp::new()?;
    for seed in 0..pairs() {
        let trace = Trace::of(&random_trace(1000 + seed, 5_000, 4, 400 << 10).events);
        let setup = Setup::<Bump>::without_thp(BumpSettings { chunk_bytes: 4096 << (seed % 10) }, touch(seed))?;
        let (predicted, _) = setup.check(&trace, &format!("seed {seed}"))?;
        assert!(predicted.report.installs.total > 1000, "seed {seed}");
    }
    Ok(())
}

pub fn runs_are_predicted_exactly() -> Result<(), String> {
    let _no_thp = NoThp::new()?;
    let (mut moved, mut lazy, mut refaults) = (0, 0, 0);
    for seed in 0..2 * pairs() {
        let trace = Trace::of(&random_trace(2000 + seed, 6_000, 5, 400 << 10).events);
        let setup = Setup::<Runs>::without_thp(settings(seed), touch(seed / 2))?;
        let (predicted, measured) = setup.check(&trace, &format!("seed {seed}"))?;
        let lazy_free =
            |mark: u64| measured.marks.iter().find(|theirs| theirs.event == mark).and_then(|mark| mark.lazy_free_bytes);
        for mark in &predicted.marks {
            assert!(lazy_free(mark.event).is_none_or(|bytes| bytes == mark.lazy_free_bytes), "seed {seed}");
            lazy += mark.lazy_free_bytes;
        }
        moved += predicted.report.os_calls.mremap;
        refaults += predicted.report.installs.by_reason.refault_after_purge;
        assert!(predicted.report.os_calls.madvise > 0, "seed {seed}");
    }
    assert!(moved > 100 && lazy > 0 && refaults > 0, "{moved} mremaps, {lazy} bytes free lazily, {refaults} refaults");
    Ok(())
}

/// In the machine's present mode. A pair is repeated if khugepaged collapsed pages meanwhile, no huge page was free for a
/// fault, or another program changed the modes.
pub fn runs_are_predicted_exactly_with_huge_pages() -> Result<(), String> {
    let _held = hksim_testkit::modes::hold();
    let (mut huge_pages, mut judged) = (0, 0);
    for seed in 0..pairs() {
        let trace = Trace::of(&random_trace(3000 + seed, 5_000, 3, 9 << 20).events);
        let settings = RunsSettings { advises_huge: true, ..settings(seed) };
        let mut setup = Setup::<Runs>::without_thp(settings, touch(seed))?;
        for _ in 0..4 {
            setup.kernel = hksim_conformance::kernel_config().map_err(|why| why.to_string())?;
            let sizes = setup.kernel.thp.sizes;
            if setup.kernel.thp.global == ThpMode::Never || sizes[..9].iter().any(|&size| size != SizeMode::Never) {
                return Err("needs transparent huge pages of 2M, and of no other size".into());
            }
            let (predicted, measured) = (setup.predict(&trace), setup.measure(&trace));
            let comparison = Comparison::of(&predicted.figures(), &measured.figures());
            if comparison.not_measured.contains(&"traps") {
                return Err("traps cannot be counted".into());
            }
            let now = hksim_conformance::kernel_config().map_err(|why| why.to_string())?;
            let by_kernel = [measured.environment.khugepaged_collapses, measured.environment.thp_fallbacks];
            if by_kernel.iter().any(|count| count.unwrap_or(0) > 0) || now.thp != setup.kernel.thp {
                continue;
            }
            let texts: Vec<String> = comparison.differences.iter().map(ToString::to_string).collect();
            assert!(texts.is_empty(), "seed {seed}, {settings:?}: {}", texts.join("\n"));
            (huge_pages, judged) = (huge_pages + predicted.report.installs.by_kind.thp, judged + 1);
            break;
        }
    }
    if judged == 0 {
        return Err("khugepaged or a lack of huge pages disturbed every replay".into());
    }
    assert!(huge_pages > 0, "no huge page was installed");
    Ok(())
}

pub fn threads_and_settings_change_placements() -> Result<(), String> {
    let _no_thp = NoThp::new()?;
    let mut events = events_of((0..2000).map(|object| malloc(object, 100)));
    let setup = Setup::<Runs>::without_thp(settings(0), TouchRule::All)?;
    let digest = |events: &[_]| setup.predict(&Trace::of(events)).report.placement_digest;
    let one_thread = digest(&events);
    events.iter_mut().for_each(|event| event.thread.0 = event.time_ns as u32 / 100 % 4);
    assert_ne!(one_thread, digest(&events), "each group of threads has runs of its own");
    setup.check(&Trace::of(&events), "four threads")?;
    let bump = Setup::<Bump>::without_thp(BumpSettings { chunk_bytes: 4096 }, TouchRule::All)?;
    assert_ne!(digest(&events), bump.predict(&Trace::of(&events)).report.placement_digest);
    Ok(())
}

/// The comparison can fail: a measurement is compared with the prediction for another setting.
pub fn the_pages_of_a_wrong_prediction_differ() -> Result<(), String> {
    let _no_thp = NoThp::new()?;
    let trace = Trace::of(&random_trace(7, 5_000, 2, 100 << 10).events);
    let lazily = Setup::<Runs>::without_thp(settings(1), TouchRule::All)?;
    let eagerly = Setup::<Runs>::without_thp(settings(0), TouchRule::All)?;
    let comparison = Comparison::of(&eagerly.predict(&trace).figures(), &lazily.measure(&trace).figures());
    let names: Vec<&str> = comparison.differences.iter().map(|difference| difference.figure).collect();
    for name in ["installs", "faults", "rss_bytes_end", "pages"] {
        assert!(names.contains(&name), "{name} is equal; {names:?} differ");
    }
    assert!(!names.contains(&"placement_digest"), "the advice does not change where blocks are");
    Ok(())
}

pub fn installs_of_a_design_are_explained() -> Result<(), String> {
    let trace = Trace::of(&random_trace(11, 8_000, 3, 200 << 10).events);
    let setup = Setup::<Runs>::without_thp(settings(0), TouchRule::Recorded)?;
    let mut source = TraceReader::open(&trace.path()).expect("a trace");
    let explained = explain_design::<Runs>(&mut source, &setup.config(), None).expect("a simulation");
    let (report, breakdown) = (&explained.report, &explained.breakdown);
    assert_eq!(report.installs, setup.predict(&trace).report.installs);
    assert_eq!((report.policy.design.as_str(), report.policy.settings), ("runs", settings(0)));
    let total = report.installs.total;
    let sums = [
        breakdown.reason.values().sum::<u64>(),
        breakdown.page_use.values().sum(),
        breakdown.superslab.values().sum(),
        breakdown.site.values().sum(),
        breakdown.thread.values().sum(),
        breakdown.phase.values().sum(),
        breakdown.time.iter().sum(),
        breakdown.causes.values().sum(),
    ];
    assert_eq!(sums, [total; 8]);
    let reasons: Vec<Reason> = breakdown.reason.keys().copied().collect();
    for reason in [Reason::Application, Reason::Header, Reason::Metadata, Reason::RefaultAfterPurge] {
        assert!(reasons.contains(&reason), "{reason:?} is missing among {reasons:?}");
        assert_eq!(breakdown.reason[&reason], report.installs.by_reason.of(reason));
    }
    assert!(breakdown.page_use.keys().all(|page_use| matches!(page_use, PageUse::Undescribed | PageUse::Unused)));
    assert!(breakdown.superslab.keys().all(Option::is_none) && explained.occupancy.is_empty());
    assert!(explained.page_map.rows.iter().any(|row| row.states.len() == 128));
    // Results are JSON, and are read back.
    let json = serde_json::to_string(report).expect("JSON");
    let again: hksim_sim::SimReport<hksim_engine::DesignLabel<RunsSettings>> =
        serde_json::from_str(&json).expect("a report");
    assert_eq!((again.policy, again.placement_digest), (report.policy.clone(), report.placement_digest.clone()));
    Ok(())
}

pub fn locked_memory_is_predicted() -> Result<(), String> {
    let _no_thp = NoThp::new()?;
    let lock = |lock: LockAll| Op::MemoryPolicy { policy: MemoryPolicy::LockAll(lock), inherited: false };
    let block = |object: u32| malloc(object, 500 + u64::from(object) * 60);
    let blocks = |from: u32| (from..from + 60).map(block);
    let all = LockAll { current: true, future: true, on_fault: false };
    let ops = blocks(0).chain([lock(all)]).chain(blocks(60)).chain((20..80).map(free)).chain([lock(LockAll::NONE)]);
    // Objects have the ids that were freed last.
    let trace = Trace::of_ops(ops.chain((20..80).rev().map(block)));
    let setup = Setup::<Runs>::without_thp(settings(0), TouchRule::None)?;
    let measured = setup.measure(&trace);
    if let Some(skipped) = measured.skipped.iter().find(|skipped| skipped.figure == "installs, marks") {
        return Err(skipped.reason.clone());
    }
    let (predicted, _) = setup.check(&trace, "mlockall")?;
    assert!(predicted.report.installs.by_reason.populated > 100);
    assert!(predicted.report.os_calls_failed > 0, "the kernel refuses to drop locked pages");
    let mut spec = setup.spec(&trace);
    spec.memory_policy = MemoryPolicyRule::Ignored;
    let ignored = replay(&spec).expect("a replay");
    assert!(ignored.faults < measured.faults);
    Ok(())
}

pub fn a_forked_child_is_predicted() -> Result<(), String> {
    let _no_thp = NoThp::new()?;
    let trace = Trace::of(&random_trace(5, 4_000, 2, 60 << 10).events);
    let mut setup = Setup::<Runs>::without_thp(settings(0), TouchRule::All)?;
    setup.forks = vec![ForkWindow { from_event: 2_000, until_event: 3_000 }];
    let measured = setup.measure(&trace);
    if let Some(skipped) = measured.skipped.iter().find(|skipped| skipped.figure.starts_with("installs")) {
        return Err(skipped.reason.clone());
    }
    let (predicted, _) = setup.check(&trace, "a fork")?;
    assert!(predicted.report.forks[0].cow_copies > 10, "{:?}", predicted.report.forks);
    Ok(())
}

pub fn a_design_is_timed() -> Result<(), String> {
    let trace = Trace::of(&random_trace(3, 4_000, 2, 60 << 10).events);
    let mut spec = Setup::<Bump>::without_thp(BumpSettings { chunk_bytes: 1 << 20 }, TouchRule::All)?.spec(&trace);
    spec.measure = Measure { pages: false, time: true };
    let timed = replay(&spec).expect("a replay");
    assert!(timed.ops_per_s.is_some_and(|ops| ops > 0.0) && timed.faults.is_none());
    Ok(())
}
