//! Explains libraries with planted decisions. Which decisions, for which size classes and in which order is drawn at
//! random; the library counts what each costs, and the explanation must name it first, with exactly that count.
//!
//! This program has its own test runner, because the children of a replay execute the program again.

mod startup;
mod trace;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use hksim_attribution::pages::Removal;
use hksim_attribution::reason::Reason;
use hksim_attribution::{AttributionError, Explained, explain, sentences};
use hksim_engine::TouchRule;
use hksim_replay::{CHILD_ARGUMENT, HarnessMemory, HugePages, ReplayError, ReplaySpec, Target, child_main};
use hksim_testkit::cases::{self, Case};
use hksim_testkit::{Random, compile};
use hksim_trace::ids::ObjectIds;

use trace::Workload;

#[global_allocator]
static MEMORY: HarnessMemory = HarnessMemory;

const CASES: &[(&str, Case)] = &[
    ("each_planted_decision_is_named_with_its_count", each_planted_decision_is_named_with_its_count),
    ("several_planted_decisions_are_told_apart", several_planted_decisions_are_told_apart),
    ("halves_and_cleared_blocks_are_told_apart", halves_and_cleared_blocks_are_told_apart),
    ("advised_mappings_get_huge_pages", advised_mappings_get_huge_pages),
    ("pages_of_a_trimmed_heap_fault_again", pages_of_a_trimmed_heap_fault_again),
    ("a_setting_gains_what_is_said", startup::a_setting_gains_what_is_said),
    ("memory_from_before_the_first_event_counts", startup::memory_from_before_the_first_event_counts),
    ("every_key_sums_to_the_faults_of_the_kernel", every_key_sums_to_the_faults_of_the_kernel),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.first().is_some_and(|first| first == CHILD_ARGUMENT) {
        return child_main();
    }
    cases::run(CASES, &arguments)
}

/// A decision of the library: its name there, the macro that chooses it, and how it must be explained.
struct Decision {
    name: &'static str,
    chosen_by: &'static str,
    reason: Reason,
    function: &'static str,
    /// Classes that can have it, by index: 16 << index bytes.
    classes: std::ops::RangeInclusive<u64>,
}

/// The index that stands for blocks above all classes.
const LARGE: u64 = 12;

const DECISIONS: [Decision; 7] = [
    Decision {
        name: "header",
        chosen_by: "HEADER_CLASS",
        reason: Reason::Header,
        function: "header_write",
        classes: 7..=8,
    },
    Decision {
        name: "carve",
        chosen_by: "CARVE_CLASS",
        reason: Reason::FreeList,
        function: "carve_slab",
        classes: 5..=8,
    },
    Decision {
        name: "prefault",
        chosen_by: "PREFAULT_CLASS",
        reason: Reason::Prefault,
        function: "prefault_slab",
        classes: 5..=9,
    },
    Decision {
        name: "purge",
        chosen_by: "PURGE_CLASS",
        reason: Reason::RefaultAfterPurge,
        function: "purge_slab",
        classes: 6..=10,
    },
    Decision {
        name: "flush",
        chosen_by: "FLUSH_CLASS",
        reason: Reason::RefaultAfterPurge,
        function: "cache_flush",
        classes: 8..=9,
    },
    Decision {
        name: "unmap",
        chosen_by: "UNMAP_CLASS",
        reason: Reason::RefaultAfterUnmap,
        function: "unmap_slab",
        classes: 6..=10,
    },
    Decision {
        name: "mapping",
        chosen_by: "MAPPING",
        reason: Reason::MappingPerBlock,
        function: "large_alloc",
        classes: LARGE..=LARGE,
    },
];

/// A library with some decisions, and a trace on which they show.
struct Planted {
    folder: tempfile::TempDir,
    decisions: Vec<(&'static Decision, u64)>,
}

impl Planted {
    /// Draws a class of its own for each decision, compiles the library, and writes the trace.
    fn new(decisions: &[&'static Decision], random: &mut Random) -> Result<Planted, String> {
        let folder = tempfile::tempdir().expect("a folder");
        let mut drawn: Vec<(&'static Decision, u64)> = Vec::new();
        // Those with fewest classes are drawn first, so that a class is left for each.
        let mut decisions = decisions.to_vec();
        decisions.sort_by_key(|one| one.classes.end() - one.classes.start());
        for decision in decisions {
            let free = decision.classes.clone().filter(|class| drawn.iter().all(|(_, other)| other != class));
            drawn.push((decision, random.pick(&free.collect::<Vec<u64>>())));
        }
        let mut flags: Vec<String> = drawn.iter().map(|(one, class)| format!("-D{}={class}", one.chosen_by)).collect();
        flags.extend(["-g", "-O2", "-fPIC", "-shared", "-fno-builtin-malloc"].map(String::from));
        flags.push(format!("-DFLUSH_BLOCKS={}", 8 + random.below(24)));
        // In half of the libraries one function makes all system calls: it is not the one to name.
        flags.extend((random.below(2) == 0).then(|| "-DWRAPPED".to_string()));
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/planted/planted.c");
        compile(source, folder.path().join("planted.so"), &flags).ok_or("no C compiler")?;
        let classes = drawn.iter().map(|&(_, class)| class).collect::<Vec<u64>>();
        trace::write(&folder.path().join("planted.hkt"), &Workload { classes: &classes, random }.events());
        Ok(Planted { folder, decisions: drawn })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The explanation, and the library's own counts.
    fn explained(&self) -> Result<(Explained, BTreeMap<String, u64>), String> {
        let counts = self.path("counts");
        let library = self.path("planted.so").canonicalize().expect("the library");
        let variables = vec![("PLANTED_COUNTS".to_string(), counts.display().to_string())];
        let spec = spec(&self.path("planted.hkt"), Target::Malloc { preload: Some(library), variables });
        let explained = run(&spec)?;
        let text = std::fs::read_to_string(&counts).expect("the library's counts");
        let pairs = text.lines().filter_map(|line| line.split_once(' '));
        let counts = pairs.map(|(name, count)| (name.to_string(), count.parse().expect("a count"))).collect();
        Ok((explained, counts))
    }

    /// Checks that each decision is explained with its own count, and that the causes come in the order of the counts.
    fn check(&self) -> Result<(), String> {
        let (explained, counts) = self.explained()?;
        let expected: Vec<(Reason, &str, u64)> =
            self.decisions.iter().map(|(one, _)| (one.reason, one.function, counts[one.name])).collect();
        let drawn: Vec<(&str, u64)> = self.decisions.iter().map(|(one, class)| (one.name, *class)).collect();
        check_causes(&explained, expected, 100, &format!("{drawn:?}"));
        Ok(())
    }
}

/// Checks that the largest causes but the program's own are these, in the order of their counts, each above `least`.
fn check_causes(explained: &Explained, mut expected: Vec<(Reason, &str, u64)>, least: u64, what: &str) {
    let rank = |&(reason, function, count): &(Reason, &str, u64)| (Reverse(count), reason, function.to_string());
    expected.sort_by_key(rank);
    let causes = explained.breakdown.largest_causes();
    let sentences: Vec<String> = causes.iter().map(|&(key, counts)| sentences::cause(explained, key, counts)).collect();
    // What the program uses for the first time is no decision; what the library uses before the first event is not counted
    // by it.
    let decided = causes.iter().filter(|(key, _)| !matches!(key.reason, Reason::Application | Reason::StartUp));
    let mut named: Vec<(Reason, &str, u64)> =
        decided.map(|(key, counts)| (key.reason, explained.functions.name(key.function), counts.installs)).collect();
    fold_others(&mut named, &expected);
    // Causes with equal counts have no order.
    named.sort_by_key(rank);
    named.truncate(expected.len());
    assert!(expected.iter().all(|&(.., count)| count > least), "{expected:?} of {what}");
    assert_eq!(named, expected, "{what}: {sentences:#?}");
}

/// Counts causes that no decision has for the function that others of their reason have. Behind a wrapper, a return address
/// of a call that is over can be taken for that of its caller, or fill the few that are kept; that may be so for one call of
/// ten.
fn fold_others(named: &mut Vec<(Reason, &str, u64)>, expected: &[(Reason, &str, u64)]) {
    let is_expected =
        |&(reason, function, _): &(Reason, &str, u64)| expected.iter().any(|one| (one.0, one.1) == (reason, function));
    let (mut decided, others): (Vec<_>, Vec<_>) = named.drain(..).partition(is_expected);
    for other in others {
        let same = decided.iter_mut().find(|one| one.0 == other.0 && other.2 * 10 <= one.2);
        match same {
            Some(same) => same.2 += other.2,
            None => decided.push(other),
        }
    }
    *named = decided;
}

fn spec(trace: &Path, on: Target) -> ReplaySpec {
    ReplaySpec::ordered(trace, on, TouchRule::All)
}

/// Explains a replay without huge pages; the error is why this machine cannot.
fn run(spec: &ReplaySpec) -> Result<Explained, String> {
    run_with(spec, HugePages::Disabled)
}

fn run_with(spec: &ReplaySpec, huge: HugePages) -> Result<Explained, String> {
    match explain(spec, huge) {
        Ok(explained) => Ok(explained),
        Err(AttributionError::Replay(ReplayError::Refused { message })) => Err(message),
        Err(why) => panic!("{why}"),
    }
}

fn draw() -> Random {
    let seed = std::env::var("HKSIM_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("HKSIM_SEED={seed}");
    Random::new(seed)
}

fn each_planted_decision_is_named_with_its_count() -> Result<(), String> {
    let mut random = draw();
    DECISIONS.iter().try_for_each(|decision| Planted::new(&[decision], &mut random)?.check())
}

fn several_planted_decisions_are_told_apart() -> Result<(), String> {
    let mut random = draw();
    for _ in 0..4 {
        let mut decisions: Vec<&Decision> = DECISIONS.iter().collect();
        for at in (1..decisions.len()).rev() {
            decisions.swap(at, random.below(at as u64 + 1) as usize);
        }
        decisions.truncate(2 + random.below(3) as usize);
        Planted::new(&decisions, &mut random)?.check()?;
    }
    Ok(())
}

/// The links of a buddy allocator are null mostly, and few in each call; the pages that it clears are beyond the request.
fn halves_and_cleared_blocks_are_told_apart() -> Result<(), String> {
    let mut random = draw();
    for _ in 0..3 {
        let planted = Planted { folder: tempfile::tempdir().expect("a folder"), decisions: Vec::new() };
        let flags = ["-g", "-O2", "-fPIC", "-shared", "-fno-builtin-malloc"];
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/planted/buddy.c");
        compile(source, planted.path("planted.so"), &flags).ok_or("no C compiler")?;
        // The largest have pages beyond the request; a larger one could draw the request that begins the count.
        let classes: Vec<u64> = (0..4).map(|_| 5 + random.below(6)).chain([9, 10, 10]).collect();
        let events = Workload { classes: &classes, random: &mut random }.events();
        trace::write(&planted.path("planted.hkt"), &events);
        let (explained, counts) = planted.explained()?;
        let expected = vec![
            (Reason::FreeList, "link_half", counts["halves"]),
            (Reason::Clearing, "fill_freed", counts["cleared"]),
        ];
        check_causes(&explained, expected, 5, &format!("{classes:?}"));
    }
    Ok(())
}

/// As under mode `always`: a mapping of 8 MiB and a header has at least three whole ranges of 2 MiB.
fn advised_mappings_get_huge_pages() -> Result<(), String> {
    const HUGE_BYTES: u64 = 2 << 20;
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if mode.contains("[never]") || mode.is_empty() {
        return Err("the kernel's THP mode is never".into());
    }
    let planted = Planted::new(&[&DECISIONS[6]], &mut draw())?;
    let path = planted.path("huge.hkt");
    trace::write(&path, &[trace::allocation(&mut ObjectIds::new(), 8 << 20)]);
    let on = || Target::Malloc { preload: planted.path("planted.so").canonicalize().ok(), variables: Vec::new() };
    let faults = |huge| -> Result<(u64, u64), String> {
        let explained = run_with(&spec(&path, on()), huge)?;
        let of_size = |bytes| explained.breakdown.page_bytes.get(&Some(bytes)).copied().unwrap_or(0);
        Ok((of_size(HUGE_BYTES), of_size(4096)))
    };
    assert_eq!(faults(HugePages::Disabled)?.0, 0);
    let (huge, base) = faults(HugePages::Advised)?;
    assert!((3..=4).contains(&huge) && base < 600, "{huge} huge pages, {base} others");
    Ok(())
}

/// glibc returns the top of its heap when a burst is over; each later burst takes it again.
fn pages_of_a_trimmed_heap_fault_again() -> Result<(), String> {
    let (folder, mut random) = (tempfile::tempdir().expect("a folder"), draw());
    let path = folder.path().join("bursts.hkt");
    trace::write(&path, &Workload { classes: &[6, 7, 8], random: &mut random }.events());
    let explained = run(&spec(&path, Target::C_LIBRARY))?;
    let after = explained
        .breakdown
        .after
        .iter()
        .filter(|(after, _)| after.is_some_and(|removed| removed.how == Removal::HeapShrunk));
    let trimmed: u64 = after.map(|(_, faults)| faults).sum();
    let of_reason = explained.breakdown.reason.get(&Reason::RefaultAfterTrim).copied().unwrap_or(0);
    assert!(trimmed > 100, "{:?}", explained.breakdown.after);
    assert_eq!(of_reason, trimmed);
    let (key, counts) = explained.breakdown.largest_causes()[0];
    let sentence = sentences::cause(&explained, key, counts);
    assert!(
        sentence.contains("pages of the heap are used again") && sentence.contains("trimmed it (brk)"),
        "{sentence}"
    );
    Ok(())
}

fn every_key_sums_to_the_faults_of_the_kernel() -> Result<(), String> {
    let mut random = draw();
    let planted = Planted::new(&DECISIONS.iter().skip(1).collect::<Vec<_>>(), &mut random)?;
    let trace = planted.path("planted.hkt");
    for explained in [planted.explained()?.0, run(&spec(&trace, Target::C_LIBRARY))?] {
        let breakdown = &explained.breakdown;
        assert_eq!(explained.totals.traps_lost, 0);
        assert!(explained.totals.faults > 1000, "{:?}", explained.totals);
        if explained.totals.skipped.is_empty() {
            assert_eq!(explained.faults_unseen(), 0, "{:?}", explained.totals);
        }
        let sums = [
            breakdown.reason.values().sum::<u64>(),
            breakdown.class.values().sum(),
            breakdown.site.values().sum(),
            breakdown.thread.values().sum(),
            breakdown.phase.values().sum(),
            breakdown.time.iter().sum(),
            breakdown.function.values().sum(),
            breakdown.mapping.values().sum(),
            breakdown.page_bytes.values().sum(),
            breakdown.after.values().sum(),
            breakdown.during.values().sum(),
            breakdown.causes.values().map(|counts| counts.installs).sum(),
        ];
        assert!(sums.iter().all(|&sum| sum == breakdown.total), "{sums:?} of {}", breakdown.total);
        assert_eq!(breakdown.page_bytes.keys().collect::<Vec<_>>(), [&Some(4096)], "huge pages are off");
    }
    Ok(())
}
