//! What runs in a round: orders, duets, failures.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hksim_timing::{Arrangement, Effort, Ended, Plan, Sample, Subject, time};

#[derive(Default)]
struct Log {
    runs: Mutex<Vec<(char, Option<usize>)>>,
    running: AtomicUsize,
    running_max: AtomicUsize,
}

struct Logged<'a> {
    name: char,
    /// The run that fails.
    fails_at: Option<usize>,
    log: &'a Log,
}

impl Subject for Logged<'_> {
    type Error = &'static str;

    fn run(&self, cpu: Option<usize>) -> Result<Sample, &'static str> {
        let running = self.log.running.fetch_add(1, Ordering::SeqCst) + 1;
        self.log.running_max.fetch_max(running, Ordering::SeqCst);
        if cpu.is_some() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut runs = self.log.runs.lock().expect("no panic");
        let before = runs.iter().filter(|(name, _)| *name == self.name).count();
        runs.push((self.name, cpu));
        drop(runs);
        self.log.running.fetch_sub(1, Ordering::SeqCst);
        if self.fails_at == Some(before) {
            return Err("it crashed");
        }
        let cpu_ns = if self.name == 'a' { 2000 } else { 3000 };
        Ok(Sample { cpu_ns, wall_ns: 2 * cpu_ns, calls: 100, start_end_ns: None })
    }
}

fn plan(rounds_max: u32, arrangement: Arrangement) -> Plan {
    let effort = Effort { precision: 0.0, time_max: Duration::from_secs(3600), rounds_min: 1, rounds_max };
    Plan { effort, warm_up_rounds: 1, arrangement, seed: 5 }
}

fn named(log: &Log, name: char, fails_at: Option<usize>) -> Logged<'_> {
    Logged { name, fails_at, log }
}

#[test]
fn each_round_has_every_subject_once_and_the_first_twice_in_changing_order() {
    let log = Log::default();
    let [a, b, c] = ['a', 'b', 'c'].map(|name| named(&log, name, None));
    let mut seen = Vec::new();
    let timings = time(&[&a, &b, &c], &plan(8, Arrangement::InTurn), &mut |round| seen.push(round));
    assert_eq!(seen, (1..=9).collect::<Vec<u32>>());
    let runs: Vec<char> = log.runs.lock().expect("no panic").iter().map(|(name, _)| *name).collect();
    let rounds: Vec<&[char]> = runs.chunks(4).collect();
    assert_eq!(rounds.len(), 9);
    for round in &rounds {
        let mut sorted = round.to_vec();
        sorted.sort_unstable();
        assert_eq!(sorted, ['a', 'a', 'b', 'c']);
    }
    assert!(rounds.iter().collect::<BTreeSet<_>>().len() > 3, "{rounds:?}");
    assert_eq!((timings.rounds, timings.ended), (8, Ended::Rounds));
    let ratio = timings.subjects[1].ratio_to_first().expect("rounds");
    assert_eq!((ratio.median, ratio.low, ratio.high), (1.5, Some(1.5), Some(1.5)));
    assert_eq!(timings.subjects[1].cpu_ns_per_call().map(|figure| figure.median), Some(30.0));
    assert_eq!(timings.same_again().map(|ratio| ratio.median), Some(1.0));
    assert_eq!(timings.verdict(0), None);
    let shared = timings.core_shared_share;
    assert_eq!(shared.is_some(), cfg!(target_arch = "x86_64"));
    assert!(shared.is_none_or(|share| (0.0..=1.0).contains(&share)), "{shared:?}");
    assert_eq!(log.running_max.load(Ordering::SeqCst), 1, "one at a time");
}

#[test]
fn duets_run_two_at_once_on_two_cpus() {
    let log = Log::default();
    let [a, b] = ['a', 'b'].map(|name| named(&log, name, None));
    let timings = time(&[&a, &b], &plan(7, Arrangement::Duet([3, 4])), &mut |_| {});
    assert_eq!(timings.subjects[1].ratio_to_first().map(|ratio| ratio.median), Some(1.5));
    let runs = log.runs.lock().expect("no panic");
    // Eight rounds of two duets.
    assert_eq!(runs.iter().filter(|(name, _)| *name == 'a').count(), 24);
    assert_eq!(runs.iter().filter(|(name, _)| *name == 'b').count(), 8);
    for name in ['a', 'b'] {
        let cpus: BTreeSet<_> = runs.iter().filter(|(of, _)| *of == name).map(|(_, cpu)| *cpu).collect();
        assert_eq!(cpus, [Some(3), Some(4)].into(), "which CPU it takes is drawn");
    }
    assert!(runs.chunks(2).all(|duet| duet[0].1 != duet[1].1), "{runs:?}");
    assert_eq!(log.running_max.load(Ordering::SeqCst), 2);
}

#[test]
fn a_subject_that_fails_does_not_run_again_and_the_others_do() {
    let log = Log::default();
    let (a, b, c) = (named(&log, 'a', None), named(&log, 'b', Some(3)), named(&log, 'c', None));
    let timings = time(&[&a, &b, &c], &plan(8, Arrangement::InTurn), &mut |_| {});
    assert_eq!(timings.subjects[1].failure, Some("it crashed"));
    assert_eq!(timings.subjects.iter().map(|subject| subject.rounds()).collect::<Vec<_>>(), [8, 2, 8]);
    assert_eq!((timings.rounds, timings.ended), (8, Ended::Rounds));
}

#[test]
fn without_its_first_subject_there_is_nothing_to_compare_with() {
    for arrangement in [Arrangement::InTurn, Arrangement::Duet([0, 1])] {
        let log = Log::default();
        let (a, b) = (named(&log, 'a', Some(4)), named(&log, 'b', None));
        let timings = time(&[&a, &b], &plan(8, arrangement), &mut |_| {});
        assert_eq!((timings.ended, timings.subjects[0].failure), (Ended::Failed, Some("it crashed")));
    }
}

#[test]
fn rounds_end_when_the_time_is_spent() {
    let log = Log::default();
    let a = named(&log, 'a', None);
    let effort = Effort { precision: 0.0, time_max: Duration::ZERO, ..Effort::default() };
    let plan = Plan { effort, ..plan(8, Arrangement::InTurn) };
    let timings = time(&[&a], &plan, &mut |_| {});
    assert_eq!((timings.rounds, timings.ended), (1, Ended::Time));
}
