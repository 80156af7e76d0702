//! The rounds.

use std::time::Instant;

use fastrand::Rng;
use hksim_linux_probe::core_sharing::CoreWatch;

use crate::arrangement::Arrangement;
use crate::estimate::{Estimate, median_with_interval};
use crate::sample::{Sample, Subject};
use crate::stop::{Effort, Ended};
use crate::verdict::Verdict;

/// How subjects are timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// When the rounds end.
    pub effort: Effort,
    /// Rounds before the first counted one, which warm the file cache and the kernel's free memory.
    pub warm_up_rounds: u32,
    /// Which runs happen at the same time.
    pub arrangement: Arrangement,
    /// The seed of the order of runs.
    pub seed: u64,
}

/// A seed for a user who did not choose one, short enough to type.
pub fn random_seed() -> u64 {
    fastrand::u64(..1_000_000)
}

/// The runs of a subject.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed<E> {
    /// The counted runs.
    pub samples: Vec<Sample>,
    /// Its processor time divided by that of the first subject, one for each round in which both ran. For the first
    /// subject: 1.
    pub ratios: Vec<f64>,
    /// Why it was not run to the end, if it failed.
    pub failure: Option<E>,
}

/// The runs of all subjects.
#[derive(Clone, Debug, PartialEq)]
pub struct Timings<E> {
    /// The subjects, in order.
    pub subjects: Vec<Timed<E>>,
    /// The ratios of the second run of the first subject in each round to its first run.
    pub same_again: Vec<f64>,
    /// Counted rounds.
    pub rounds: u32,
    /// Why there are no more.
    pub ended: Ended,
    /// The share of looks, one before each run, that found other work on the core of the processor on which this thread
    /// waits for the runs ([`core_sharing`](hksim_linux_probe::core_sharing)). Times beside such work are up to three times
    /// as long. 0 also if it never paused; `None` without runs, and if nothing shows it on this processor.
    pub core_shared_share: Option<f64>,
}

impl<E> Timed<E> {
    fn new() -> Timed<E> {
        Timed { samples: Vec::new(), ratios: Vec::new(), failure: None }
    }

    /// Processor nanoseconds per call: the median of the runs.
    pub fn cpu_ns_per_call(&self) -> Option<Estimate> {
        median_with_interval(self.samples.iter().map(Sample::cpu_ns_per_call))
    }

    /// Processor time relative to the first subject: the median of the rounds' ratios.
    pub fn ratio_to_first(&self) -> Option<Estimate> {
        median_with_interval(self.ratios.iter().copied())
    }

    /// Counted runs.
    pub fn rounds(&self) -> u32 {
        self.samples.len() as u32
    }
}

impl<E> Timings<E> {
    /// The A/A ratio: the first subject relative to itself. Its interval is the method's own error.
    pub fn same_again(&self) -> Option<Estimate> {
        median_with_interval(self.same_again.iter().copied())
    }

    /// The verdict on a subject; `None` for the first, and below seven rounds.
    pub fn verdict(&self, subject: usize) -> Option<Verdict> {
        let ratio = self.subjects[subject].ratio_to_first().filter(|_| subject > 0)?;
        Verdict::of(&ratio, &self.same_again()?)
    }

    /// The worst precision of all ratios; `None` if one has no interval yet.
    fn precision(&self) -> Option<f64> {
        let others = self.subjects.iter().skip(1).filter(|subject| subject.failure.is_none());
        let others = others.map(|subject| subject.ratio_to_first().and_then(|ratio| ratio.precision()));
        let own = self.same_again().and_then(|ratio| ratio.precision());
        std::iter::once(own).chain(others).try_fold(0f64, |worst, precision| Some(worst.max(precision?)))
    }
}

/// Runs the rounds. `done` is called after each round with the number of rounds so far, warm-up rounds included.
pub fn time<S: Subject>(subjects: &[&S], plan: &Plan, done: &mut dyn FnMut(u32)) -> Timings<S::Error> {
    let timings = Timings {
        subjects: subjects.iter().map(|_| Timed::new()).collect(),
        same_again: Vec::new(),
        rounds: 0,
        ended: Ended::Failed,
        core_shared_share: None,
    };
    let (random, core) = (Rng::with_seed(plan.seed), CoreWatch::default());
    let mut rounds = Rounds { subjects, arrangement: plan.arrangement, random, core, timings };
    let warm_up_rounds = if subjects.is_empty() { 0 } else { plan.warm_up_rounds };
    for round in 0..warm_up_rounds {
        rounds.run();
        done(round + 1);
    }
    rounds.forget_samples();
    let start = Instant::now();
    while rounds.timings.subjects.first().is_some_and(|first| first.failure.is_none()) {
        rounds.run();
        rounds.timings.rounds += 1;
        let count = rounds.timings.rounds;
        done(plan.warm_up_rounds + count);
        if let Some(ended) = plan.effort.ended(count, start.elapsed(), || rounds.timings.precision()) {
            rounds.timings.ended = ended;
            break;
        }
    }
    Timings { core_shared_share: rounds.core.shared_share(), ..rounds.timings }
}

/// The rounds in progress.
struct Rounds<'a, S: Subject> {
    subjects: &'a [&'a S],
    arrangement: Arrangement,
    random: Rng,
    core: CoreWatch,
    timings: Timings<S::Error>,
}

impl<S: Subject> Rounds<'_, S> {
    fn run(&mut self) {
        match self.arrangement {
            Arrangement::InTurn => self.run_in_turn(),
            Arrangement::Duet(cpus) => self.run_duets(cpus),
        }
    }

    fn forget_samples(&mut self) {
        self.timings.same_again.clear();
        self.timings.subjects.iter_mut().for_each(|subject| {
            subject.samples.clear();
            subject.ratios.clear();
        });
    }

    fn look_at_core(&mut self) {
        // The first look after other code is slower.
        self.core.look_again();
        self.core.look();
    }

    /// One run of each subject and a second one of the first, in random order.
    fn run_in_turn(&mut self) {
        let again = self.subjects.len();
        let mut order: Vec<usize> = (0..=again).collect();
        self.random.shuffle(&mut order);
        let mut samples = vec![None; again + 1];
        for at in order {
            let subject = at % again;
            if self.timings.subjects[subject].failure.is_none() {
                self.look_at_core();
                samples[at] = self.note(subject, self.subjects[subject].run(None));
            }
        }
        let Some(first) = samples[0] else { return };
        self.keep(0, Some(first), first);
        self.timings.same_again.extend(samples[again].map(|again| ratio(again, first)));
        (1..again).for_each(|subject| self.keep(subject, samples[subject], first));
    }

    /// A duet of each subject with the first, and one of the first with itself, in random order.
    fn run_duets(&mut self, cpus: [usize; 2]) {
        let mut order: Vec<usize> = (0..self.subjects.len()).collect();
        self.random.shuffle(&mut order);
        for subject in order {
            let has_failed = |of: usize| self.timings.subjects[of].failure.is_some();
            if has_failed(0) || has_failed(subject) {
                continue;
            }
            self.look_at_core();
            let (first, other) = self.duet(subject, cpus);
            let other = self.note(subject, other);
            if let Some(first) = self.note(0, first) {
                match subject {
                    0 => {
                        self.keep(0, Some(first), first);
                        self.timings.same_again.extend(other.map(|other| ratio(other, first)));
                    }
                    _ => self.keep(subject, other, first),
                }
            }
        }
    }

    /// The first subject and another one at the same time.
    fn duet(
        &mut self,
        subject: usize,
        [one, other]: [usize; 2],
    ) -> (Result<Sample, S::Error>, Result<Sample, S::Error>) {
        let (cpu_of_first, cpu) = if self.random.bool() { (one, other) } else { (other, one) };
        let (first, second) = (self.subjects[0], self.subjects[subject]);
        std::thread::scope(|scope| {
            let second = scope.spawn(move || second.run(Some(cpu)));
            let first = first.run(Some(cpu_of_first));
            // A panic of the subject goes on in this thread.
            (first, second.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })
    }

    /// The sample of a run, or `None` if it failed: then the subject does not run again.
    fn note(&mut self, subject: usize, run: Result<Sample, S::Error>) -> Option<Sample> {
        match run {
            Ok(sample) => Some(sample),
            Err(why) => {
                self.timings.subjects[subject].failure = Some(why);
                None
            }
        }
    }

    fn keep(&mut self, subject: usize, sample: Option<Sample>, first: Sample) {
        let timed = &mut self.timings.subjects[subject];
        timed.samples.extend(sample);
        timed.ratios.extend(sample.map(|sample| ratio(sample, first)));
    }
}

fn ratio(sample: Sample, first: Sample) -> f64 {
    sample.cpu_ns_per_call() / first.cpu_ns_per_call().max(f64::MIN_POSITIVE)
}
