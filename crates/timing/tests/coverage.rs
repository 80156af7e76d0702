//! The intervals on synthetic times whose truth is known. Each draw is a whole measurement, from the first round to the
//! stop rule.
//!
//! `HKSIM_TEST_SCALE` multiplies the number of draws; `HKSIM_TEST_SEED` is the seed of the first one.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fastrand::Rng;
use hksim_timing::{Arrangement, Effort, Ended, Plan, Sample, Subject, Timings, Verdict, time};

/// Noise of the machine: a run takes this many times its true time.
#[derive(Clone, Copy, Debug)]
enum Noise {
    /// Log-normal.
    Normal,
    /// A half-Cauchy tail: no mean, no variance.
    HeavyTail,
    /// Log-normal, and one run in twenty takes 1.5 to 3 times as long.
    Outliers,
    /// Log-normal, and the machine becomes slower and faster by half over the runs.
    Drift,
    /// Log-normal, and every third run, whichever it is, pays for cold memory.
    ColdRuns,
}

const NOISES: [Noise; 5] = [Noise::Normal, Noise::HeavyTail, Noise::Outliers, Noise::Drift, Noise::ColdRuns];

/// The machine: seeded noise, and how many runs it has made.
struct Machine {
    noise: Noise,
    /// The spread of the noise.
    scale: f64,
    random: Mutex<Rng>,
    runs: AtomicU64,
}

impl Machine {
    fn uniform(&self) -> f64 {
        let bits = self.random.lock().expect("no panic").u64(..1 << 53);
        (bits as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn normal(&self) -> f64 {
        (-2.0 * self.uniform().ln()).sqrt() * (std::f64::consts::TAU * self.uniform()).cos()
    }

    fn factor(&self) -> f64 {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let normal = (self.scale * self.normal()).exp();
        match self.noise {
            Noise::Normal => normal,
            Noise::HeavyTail => 1.0 + self.scale * (std::f64::consts::FRAC_PI_2 * self.uniform()).tan(),
            Noise::Outliers if self.uniform() < 0.05 => normal * (1.5 + 1.5 * self.uniform()),
            Noise::Outliers => normal,
            Noise::Drift => normal * (1.0 + 0.5 * (run as f64 / 40.0).sin()),
            Noise::ColdRuns => normal * if run.is_multiple_of(3) { 1.2 } else { 1.0 },
        }
    }
}

/// Work whose true time is known.
struct Work<'a> {
    machine: &'a Machine,
    true_ns: f64,
}

impl Subject for Work<'_> {
    type Error = std::convert::Infallible;

    fn run(&self, _cpu: Option<usize>) -> Result<Sample, Self::Error> {
        let ns = (self.true_ns * self.machine.factor()) as u64;
        Ok(Sample { cpu_ns: ns, wall_ns: ns, calls: 1000, start_end_ns: None })
    }
}

/// A measurement of work and of work that takes `ratio` times as long.
fn measurement(noise: Noise, scale: f64, ratio: f64, seed: u64) -> Timings<std::convert::Infallible> {
    let machine = Machine { noise, scale, random: Mutex::new(Rng::with_seed(seed)), runs: AtomicU64::new(0) };
    let work = |ratio| Work { machine: &machine, true_ns: 3e7 * ratio };
    let effort = Effort { precision: 0.01, time_max: Duration::from_secs(3600), rounds_min: 1, rounds_max: 400 };
    let plan = Plan { effort, warm_up_rounds: 1, arrangement: Arrangement::InTurn, seed };
    time(&[&work(1.0), &work(ratio)], &plan, &mut |_| {})
}

fn seed() -> u64 {
    let seed = std::env::var("HKSIM_TEST_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(29);
    println!("seed {seed}");
    seed
}

fn draws(least: u64) -> u64 {
    least * std::env::var("HKSIM_TEST_SCALE").ok().and_then(|scale| scale.parse().ok()).unwrap_or(1)
}

/// The share of draws for which `holds`, and the mean number of rounds.
fn share(noise: Noise, scale: f64, ratio: f64, holds: impl Fn(&Timings<std::convert::Infallible>) -> bool) -> f64 {
    let (first_seed, draws) = (seed(), draws(1000));
    let (mut held, mut rounds) = (0, 0);
    for draw in 0..draws {
        let timings = measurement(noise, scale, ratio, first_seed.wrapping_mul(1_000_003).wrapping_add(draw));
        held += u64::from(holds(&timings));
        rounds += u64::from(timings.rounds);
    }
    let share = held as f64 / draws as f64;
    println!("{noise:?}, noise {scale}, ratio {ratio}: {share:.3} of {draws}, {} rounds", rounds / draws);
    share
}

/// The level, minus what chance may take from 1 000 draws of a share of 95 %: one standard deviation is 0.7 %. The
/// expected share is above 96 %.
const LEAST: f64 = 0.95;

#[test]
fn the_interval_of_the_same_work_contains_1() {
    for noise in NOISES {
        for scale in [0.004, 0.012] {
            let contains = |timings: &Timings<_>| {
                timings.same_again().and_then(|ratio| ratio.contains(1.0)).expect("at least eleven rounds")
            };
            assert!(share(noise, scale, 1.0, contains) >= LEAST, "{noise:?}, noise {scale}");
        }
    }
}

#[test]
fn the_interval_of_slower_work_contains_its_ratio() {
    for noise in NOISES {
        let ratio = 1.04;
        let contains = |timings: &Timings<_>| {
            let found = timings.subjects[1].ratio_to_first().and_then(|found| found.contains(ratio));
            found.expect("at least eleven rounds")
        };
        assert!(share(noise, 0.012, ratio, contains) >= LEAST, "{noise:?}");
    }
}

#[test]
fn rounds_end_when_the_ratios_are_precise_and_tell_work_apart() {
    let slower = |timings: &Timings<_>| {
        let is_precise = timings.ended == Ended::Precise
            && timings.subjects[1].ratio_to_first().and_then(|ratio| ratio.precision()) <= Some(0.01);
        is_precise && timings.verdict(1) == Some(Verdict::Slower)
    };
    assert!(share(Noise::Normal, 0.01, 1.03, slower) > 0.99);
    let tie = |timings: &Timings<_>| timings.verdict(1) == Some(Verdict::Tie);
    assert!(share(Noise::Normal, 0.01, 1.0, tie) >= LEAST);
}
