//! The search on a bench whose candidates have known times and sizes, with noise.

use std::collections::BTreeMap;

use fastrand::Rng;
use hksim_choose::{Bench, Candidate, ChooseError, Counted, Counts, Family, Request, choose};
use hksim_explore::figures::Figure;
use hksim_explore::question::{Goal, Question, Tie, Weights};
use hksim_linux_mm::ThpMode;
use hksim_replay::compare::Outcome;
use hksim_results::choice::{Choice, Verdict};
use hksim_timing::{Effort, Ended, Sample, Timed, Timings};

/// Nanoseconds and bytes of a candidate on a trace.
type Truth = dyn Fn(&Candidate, usize) -> Option<(f64, u64)>;

/// Nanoseconds that a process takes to start and to end, if they are measured.
type StartEnd = fn(&Candidate) -> Option<u64>;

struct Known<'a> {
    traces: usize,
    truth: &'a Truth,
    start_end_ns: StartEnd,
    random: Rng,
    /// By how much a run's own disturbance lengthens it at most.
    noise: f64,
    /// Timed runs, by candidate.
    runs: BTreeMap<String, u32>,
}

/// Calls of each trace.
const CALLS: u64 = 1_000_000;

impl Bench for Known<'_> {
    fn traces(&self) -> Vec<(String, f64)> {
        (0..self.traces).map(|trace| (format!("trace{trace}"), 1.0)).collect()
    }

    fn count(&mut self, candidate: &Candidate) -> Counted {
        let counts = (0..self.traces).map(|trace| {
            let (_, bytes) = (self.truth)(candidate, trace).ok_or((Outcome::Skipped, "not here".to_string()))?;
            Ok(Counts { rss_bytes_peak: Some(bytes), rss_bytes_end: Some(bytes / 2), faults: Some(bytes / 4096) })
        });
        let apply = vec![format!("USE={}", candidate.word)];
        Counted { library: None, version: None, apply, counts: counts.collect(), predicted: None }
    }

    fn time(&mut self, candidates: &[Candidate], effort: Effort) -> Vec<Timings<String>> {
        let rounds = effort.rounds_max.min(40);
        let of_trace = |trace: usize| {
            let mut subjects: Vec<Timed<String>> =
                candidates.iter().map(|_| Timed { samples: Vec::new(), ratios: Vec::new(), failure: None }).collect();
            let mut same_again = Vec::new();
            let core_shared_share = Some(if trace == 0 { 0.2 } else { 0.6 });
            for _ in 0..rounds {
                // A round's disturbance is common to all; each run has one of its own.
                let common = 1.0 + self.random.f64();
                let mut sample = |candidate: &Candidate| {
                    *self.runs.entry(candidate.word.clone()).or_default() += 1;
                    let (ns, _) = (self.truth)(candidate, trace).expect("it was counted");
                    ns * common * (1.0 + self.noise * self.random.f64())
                };
                let first = sample(&candidates[0]);
                same_again.push(sample(&candidates[0]) / first);
                for (subject, candidate) in subjects.iter_mut().zip(candidates) {
                    let own = if candidate == &candidates[0] { first } else { sample(candidate) };
                    let start_end_ns = (self.start_end_ns)(candidate);
                    let cpu_ns = (own * CALLS as f64) as u64;
                    subject.samples.push(Sample { cpu_ns, wall_ns: 1, calls: CALLS, start_end_ns });
                    subject.ratios.push(own / first);
                }
            }
            Timings { subjects, same_again, rounds, ended: Ended::Rounds, core_shared_share }
        };
        (0..self.traces).map(of_trace).collect()
    }
}

fn family(word: &str, axes: &[&[&str]]) -> Family {
    let axis = |axis: &&[&str]| axis.iter().map(ToString::to_string).collect();
    Family { word: word.to_string(), axes: axes.iter().map(axis).collect() }
}

/// A search, with the number of timed runs of each candidate.
struct Asked<'a> {
    goal: Figure,
    limits: &'a [&'a str],
    families: Vec<Family>,
    modes: &'a [ThpMode],
    traces: usize,
    noise: f64,
    start_end_ns: StartEnd,
    seed: u64,
}

impl Asked<'_> {
    fn choose(&self, truth: &Truth) -> (Result<Choice, ChooseError>, BTreeMap<String, u32>) {
        let question = Question { goal: Goal(self.goal), tie: Tie(0.01), weights: Weights::default() };
        let limits: Vec<_> = self.limits.iter().map(|limit| limit.parse().expect("a limit")).collect();
        let request = Request {
            question: &question,
            limits: &limits,
            present: "glibc",
            families: &self.families,
            modes: self.modes,
            candidates_max: 100,
            effort: Effort { rounds_max: 30, ..Effort::default() },
        };
        let mut bench = Known {
            traces: self.traces,
            truth,
            start_end_ns: self.start_end_ns,
            random: Rng::with_seed(self.seed),
            noise: self.noise,
            runs: BTreeMap::new(),
        };
        let found = choose(&mut bench, &request);
        (found, bench.runs)
    }

    fn of(goal: Figure, families: Vec<Family>, seed: u64) -> Asked<'static> {
        Asked { goal, limits: &[], families, modes: &[], traces: 1, noise: 0.02, start_end_ns: |_| None, seed }
    }
}

fn name(choice: &Choice) -> &str {
    choice.choice.map_or("none", |row| &choice.rows[row].allocator)
}

fn has(candidate: &Candidate, setting: &str) -> bool {
    candidate.word.split([':', '+']).any(|one| one == setting)
}

const MIB: u64 = 1 << 20;

#[test]
fn equal_allocators_are_a_tie_and_nothing_is_worth_changing() {
    for seed in 0..20 {
        let asked =
            Asked::of(Figure::Time, vec![family("one", &[&["a=1", "a=2"], &["b=1"]]), family("two", &[])], seed);
        let (found, _) = asked.choose(&|_, _| Some((20.0, MIB)));
        let found = found.expect("a choice");
        assert_eq!((found.choice, found.verdict), (Some(0), Verdict::NothingToChange), "seed {seed}: {:?}", found.text);
        assert!(found.text[0].starts_with("Nothing is worth changing"), "{:?}", found.text);
        assert!(!found.tied.is_empty() && found.apply.is_empty(), "seed {seed}");
        assert!(
            found.rows[0].is_on_front && found.rows.iter().filter(|row| row.is_on_front).count() == 1,
            "seed {seed}"
        );
    }
}

/// Two settings of one allocator gain 20 % each and together 36 %; others cost.
#[test]
fn settings_that_help_are_found_alone_and_combined() {
    let truth = |candidate: &Candidate, _: usize| {
        let factor = |setting, factor| if has(candidate, setting) { factor } else { 1.0 };
        let slow = if candidate.word.starts_with("slow") { 1.5 } else { 1.0 };
        Some((20.0 * slow * factor("a=2", 0.8) * factor("b=1", 0.8) * factor("c=1", 1.3), MIB))
    };
    for seed in 0..20 {
        let axes: &[&[&str]] = &[&["a=1", "a=2", "a=3"], &["b=1"], &["c=1"], &["d=1", "d=2"]];
        let (found, runs) =
            Asked::of(Figure::Time, vec![family("fast", axes), family("slow", axes)], seed).choose(&truth);
        let found = found.expect("a choice");
        assert_eq!((name(&found), found.verdict), ("fast:a=2+b=1", Verdict::Change), "seed {seed}: {:?}", found.text);
        assert_eq!(found.apply, ["USE=fast:a=2+b=1"]);
        let ratio = found.rows[found.choice.expect("one")].ratio_to_present.expect("a ratio");
        assert!((ratio.median - 0.64).abs() < 0.03, "{ratio:?}");
        assert!(runs["slow:c=1"] < runs["fast:a=2+b=1"], "rounds go to the best: {runs:?}");
        assert!(
            found.stages.len() >= 3 && found.stages[0].rounds_max < found.stages[1].rounds_max,
            "{:?}",
            found.stages
        );
    }
}

/// The fastest breaks the limit; the second keeps it; a third that never frees has the most memory.
#[test]
fn limits_are_those_of_the_present_allocator_and_bind() {
    let truth = |candidate: &Candidate, _: usize| match candidate.word.as_str() {
        "glibc" => Some((20.0, 10 * MIB)),
        "fast" => Some((10.0, 12 * MIB)),
        "good" => Some((15.0, 10 * MIB)),
        "leaky" => Some((20.0, 100 * MIB)),
        _ => None,
    };
    let families = || ["fast", "good", "leaky", "absent"].map(|word| family(word, &[])).to_vec();
    let asked = |goal, limits| Asked { limits, ..Asked::of(goal, families(), 7) };
    let (free, _) = asked(Figure::Time, &[]).choose(&truth);
    assert_eq!(name(&free.expect("a choice")), "fast");
    let (bound, _) = asked(Figure::Time, &["rss+10%"]).choose(&truth);
    let bound = bound.expect("a choice");
    assert_eq!(name(&bound), "good", "{:?}", bound.text);
    assert!(bound.text.iter().any(|line| line.contains("2 of 5")), "glibc and good meet it: {:?}", bound.text);
    let absent = bound.rows.iter().find(|row| row.allocator == "absent").expect("a row");
    assert_eq!((absent.outcome, absent.reason.as_deref()), (Outcome::Skipped, Some("not here")));
    let (rss, _) = asked(Figure::Rss, &["time+0%"]).choose(&truth);
    assert_eq!(rss.expect("a choice").verdict, Verdict::NothingToChange, "none has less memory");
    let (none, _) = asked(Figure::Time, &["rss 1M"]).choose(&truth);
    let none = none.expect("an answer");
    assert_eq!((none.choice, none.verdict), (None, Verdict::NoneWithinLimits));
    let (other, _) = asked(Figure::Time, &["vmas 1000"]).choose(&truth);
    assert_eq!(other.expect_err("not measured"), ChooseError::Figure(Figure::Vmas));
}

#[test]
fn modes_are_tried_with_every_allocator_and_a_fixed_one_binds() {
    let truth = |candidate: &Candidate, _: usize| {
        Some((if candidate.mode == Some(ThpMode::Always) { 10.0 } else { 20.0 }, MIB))
    };
    let asked = |modes| Asked { modes, ..Asked::of(Figure::Time, vec![family("glibc", &[])], 3) };
    let (both, _) = asked(&[ThpMode::Never, ThpMode::Always]).choose(&truth);
    let both = both.expect("a choice");
    assert_eq!(both.rows[both.choice.expect("one")].setting.as_deref(), Some("thp=always"));
    let (never, _) = asked(&[ThpMode::Never]).choose(&truth);
    let never = never.expect("a choice");
    assert_eq!(never.verdict, Verdict::NothingToChange);
    assert!(never.rows.iter().all(|row| row.setting.as_deref() != Some("thp=always")));
}

/// One allocator is better on three traces, and half as fast on the fourth.
#[test]
fn a_trace_that_is_held_out_shows_the_regret() {
    let truth = |candidate: &Candidate, trace: usize| {
        let is_other = candidate.word == "other";
        Some((if is_other == (trace < 3) { 10.0 } else { 20.0 }, MIB))
    };
    let (found, _) = Asked { traces: 4, ..Asked::of(Figure::Time, vec![family("other", &[])], 11) }.choose(&truth);
    let found = found.expect("a choice");
    assert_eq!(name(&found), "other", "{:?}", found.text);
    let regrets: Vec<f64> = found.held_out.iter().map(|held| held.regret.expect("a regret")).collect();
    assert_eq!(regrets.len(), 4);
    assert!(regrets[..3].iter().all(|&regret| regret < 0.05), "{regrets:?}");
    assert!((regrets[3] - 1.0).abs() < 0.1, "twice the time there: {regrets:?}");
    assert!(found.held_out[3].ratio_to_present.is_some_and(|ratio| (ratio - 2.0).abs() < 0.1));
}

/// On a noisy machine few rounds tell little: rows that the search left early must neither be chosen for a trace that is
/// held out nor be taken for the best there.
#[test]
fn rows_left_early_have_no_part_in_the_regret() {
    let truth = |candidate: &Candidate, _: usize| Some((if has(candidate, "a=1") { 15.0 } else { 20.0 }, MIB));
    for seed in 0..20 {
        let others = (1..=12).map(|number| family(&format!("other{number}"), &[]));
        let families = std::iter::once(family("fast", &[&["a=1"]])).chain(others).collect();
        let asked = Asked { traces: 5, noise: 0.5, ..Asked::of(Figure::Time, families, seed) };
        let found = asked.choose(&truth).0.expect("a choice");
        assert_eq!(name(&found), "fast:a=1", "seed {seed}: {:?}", found.text);
        for held in &found.held_out {
            assert_eq!((held.chosen, held.regret), (found.choice, Some(0.0)), "seed {seed}: {held:?}");
        }
    }
}

/// A setting that only one trace needs, and that costs much on the others.
#[test]
fn the_best_row_of_a_trace_stays_until_its_regret_is_known() {
    let truth = |candidate: &Candidate, trace: usize| {
        let number = candidate.word.strip_prefix("other").map_or(9, |number| number.parse().expect("a number"));
        let ns = if candidate.word == "special" { [5.0, 80.0][usize::from(trace > 0)] } else { 20.0 + number as f64 };
        Some((ns, MIB))
    };
    let mut families: Vec<Family> = (0..9).map(|number| family(&format!("other{number}"), &[])).collect();
    families.push(family("special", &[]));
    let found = Asked { traces: 4, ..Asked::of(Figure::Time, families, 5) }.choose(&truth).0.expect("a choice");
    assert_eq!(name(&found), "other0", "{:?}", found.text);
    let regrets: Vec<f64> = found.held_out.iter().map(|held| held.regret.expect("a regret")).collect();
    assert!((regrets[0] - 3.0).abs() < 0.2 && regrets[1..] == [0.0; 3], "{regrets:?}");
}

#[test]
fn a_present_allocator_that_cannot_be_measured_ends_the_search() {
    let (found, _) = Asked::of(Figure::Time, vec![family("other", &[])], 1)
        .choose(&|candidate, _| (candidate.word != "glibc").then_some((1.0, MIB)));
    assert!(matches!(found, Err(ChooseError::Present { .. })), "{found:?}");
}

/// Calls that take 30 ms less with one allocator (of 60, in rounds that take up to twice as long), whose process takes 1 ms or
/// 100 ms longer to start.
#[test]
fn an_allocator_that_starts_longer_than_its_calls_save_is_not_chosen_and_the_reason_is_told() {
    let truth = |candidate: &Candidate, _: usize| {
        let ns = if has(candidate, "fast") { 30.0 } else { 60.0 };
        Some((ns, MIB))
    };
    let asked = |start_end_ns: StartEnd| {
        let asked = Asked { start_end_ns, ..Asked::of(Figure::Time, vec![family("fast", &[])], 5) };
        asked.choose(&truth).0.expect("a choice")
    };
    let early = asked(|candidate| Some(if has(candidate, "fast") { 4_000_000 } else { 3_000_000 }));
    assert_eq!(name(&early), "fast");
    assert!(early.text.iter().any(|line| line.contains("1.0 ms more to start and to end")), "{:?}", early.text);
    assert!(early.text.iter().any(|line| line.contains("less than 100.0 ms")), "{:?}", early.text);
    let change = early.rows[1].traces[0].start_end_s_change.expect("a change");
    assert_eq!((change.median, change.low, change.high), (0.001, Some(0.001), Some(0.001)));

    let late = asked(|candidate| Some(if has(candidate, "fast") { 103_000_000 } else { 3_000_000 }));
    assert_eq!((late.choice, late.verdict, &late.tied[..]), (Some(0), Verdict::NothingToChange, &[][..]));
    assert!(late.text[0].starts_with("Nothing is worth changing"), "{:?}", late.text);
    assert!(late.text[1].contains("fast") && late.text[1].contains("100.0 ms more"), "{:?}", late.text);
}

/// Half the time is twice as fast, in whichever direction two rows are compared: a row that is not chosen because it is a tie is
/// not chosen because it is better, either.
#[test]
fn a_large_error_of_the_method_does_not_make_a_late_start_worth_it() {
    let truth = |candidate: &Candidate, _: usize| Some((if has(candidate, "fast") { 30.0 } else { 60.0 }, MIB));
    let start_end_ns: StartEnd = |candidate| Some(if has(candidate, "fast") { 10_003_000_000 } else { 3_000_000 });
    for seed in 0..40 {
        for noise in [2.0, 4.0, 8.0] {
            let asked = Asked { start_end_ns, noise, ..Asked::of(Figure::Time, vec![family("fast", &[])], seed) };
            let found = asked.choose(&truth).0.expect("a choice");
            assert_eq!(found.choice, Some(0), "seed {seed}, noise {noise}: {:?}", found.text);
        }
    }
}

/// On one of two traces the calls save more than that.
#[test]
fn one_long_trace_outweighs_the_start() {
    let truth = |candidate: &Candidate, trace: usize| {
        let ns = if trace == 0 { 600.0 } else { 6.0 };
        Some((if has(candidate, "fast") { ns / 2.0 } else { ns }, MIB))
    };
    let start_end_ns: StartEnd = |candidate| Some(if has(candidate, "fast") { 103_000_000 } else { 3_000_000 });
    let asked = Asked { start_end_ns, traces: 2, ..Asked::of(Figure::Time, vec![family("fast", &[])], 5) };
    let choice = asked.choose(&truth).0.expect("a choice");
    assert_eq!(name(&choice), "fast");
    // As many rounds of the trace with 0.2 as of the one with 0.6.
    let shared = choice.core_shared_share.expect("rounds");
    assert!((shared - 0.4).abs() < 1e-9, "{shared}");
}
