//! Runs random programs on random designs, and compares the results with the naive model:
//!
//!     cargo bench -p hksim-policy --bench endurance -- --ops 1000000000 --seed 1 --jobs 2
//!     cargo bench -p hksim-policy --bench endurance -- --program 0x4d00000153
//!
//! Prints progress every ten seconds. Exits with status 1 at the first failure, and names the seed of the failing
//! program. A SuperSlab that is still in use when no block is live is also a failure. `--program` runs only the program
//! with this seed. Programs are independent, so the results and the first failure depend only on `--ops` and `--seed`.
//! `--jobs` (default: all cores) only changes the running time. The digest covers the addresses of all allocated
//! blocks.

use std::panic::catch_unwind;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

use hksim_testkit::spread::SmallDesign;
use hksim_testkit::{CheckSchedule, Failing, FaultPlan, Limits, NO_FAULTS, PlayerCounts, Random, play};

/// Operations of one program.
const PROGRAM_OPERATIONS: u64 = 20_000;
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

struct Args {
    operations: u64,
    seed: u64,
    /// Seed of the single program to run.
    program: Option<u64>,
    /// Number of programs that run in parallel.
    jobs: u64,
}

/// A number, decimal or hexadecimal.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn args() -> Result<Args, String> {
    let cores = available_parallelism().map_or(1, |cores| cores.get() as u64);
    let mut found = Args { operations: 1_000_000, seed: 1, program: None, jobs: cores };
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench"); // cargo's own
    while let Some(word) = words.next() {
        let text = words.next().ok_or(format!("{word}: needs a number"))?;
        let value = number(&text).ok_or(format!("{word} {text}: not a number"))?;
        match word.as_str() {
            "--ops" => found.operations = value,
            "--seed" => found.seed = value,
            "--program" => found.program = Some(value),
            "--jobs" if value > 0 => found.jobs = value,
            "--jobs" => return Err(format!("{word} {text}: must be at least 1")),
            _ => {
                return Err(format!(
                    "{word}: unknown option; the options are --ops N, --seed N, --jobs N and --program SEED"
                ));
            }
        }
    }
    Ok(found)
}

fn faults(random: &mut Random) -> FaultPlan {
    if random.per_mille(667) {
        return NO_FAULTS;
    }
    FaultPlan {
        failing: random.pick(&[Failing::PerMille(5), Failing::PerMille(100), Failing::PerMille(1000)]),
        hugetlb_pages: random.pick(&[0, 3, u64::MAX]),
    }
}

/// Runs the program with this seed, for at most `operations_max` operations.
fn play_one(seed: u64, operations_max: u64) -> Result<PlayerCounts, String> {
    let mut random = Random::new(seed);
    let design = SmallDesign::random(&mut random);
    let faults = faults(&mut random);
    let limits = Limits {
        operations: PROGRAM_OPERATIONS.min(operations_max),
        objects: random.pick(&[8, 60, 400, 2000]),
        threads: random.pick(&[1, 2, 5, 12]),
        validate_every: random.pick(&[64, 512, 4096]),
        schedule: CheckSchedule::Spaced,
    };
    play(&design, design.geometry(), faults, limits, seed)
}

/// Totals over all programs.
#[derive(Default)]
struct Sum {
    programs: u64,
    operations: u64,
    blocks: u64,
    refused: u64,
    lost: u64,
    digest: u64,
}

impl Sum {
    fn add(&mut self, counts: &PlayerCounts) {
        self.programs += 1;
        self.operations += counts.operations;
        self.blocks += counts.allocated;
        self.refused += counts.refused;
        self.lost += counts.superslabs_lost;
        // A sum does not depend on the order; programs run in parallel.
        self.digest = self.digest.wrapping_add(counts.digest);
    }

    fn print(&self, start: Instant) {
        let Sum { programs, operations, blocks, refused, lost, digest } = self;
        let rate = *operations as f64 / start.elapsed().as_secs_f64() / 1000.0;
        println!(
            "{operations} operations on {programs} designs, {rate:.0} k/s: {blocks} blocks, {refused} refused, \
             {lost} SuperSlabs lost to refused mappings, 0 leaked, digest {digest:#018x}"
        );
    }
}

/// The number and the result of a program.
type Played = (u64, Result<PlayerCounts, String>);

/// The programs of a run, numbered from 0, each with its own seed.
struct Programs {
    operations: u64,
    seed: u64,
    next: AtomicU64,
    /// The lowest number of a failed program.
    failed: AtomicU64,
}

impl Programs {
    fn play(&self, number: u64) -> Result<PlayerCounts, String> {
        let seed = self.seed.wrapping_mul(1 << 32).wrapping_add(number);
        let played = catch_unwind(|| play_one(seed, self.operations - number * PROGRAM_OPERATIONS));
        played.unwrap_or_else(|_| Err(format!("seed {seed:#x} panicked; see the message above")))
    }

    /// Runs one program after another until no program is left or one has failed. Numbers are taken in order, so the
    /// failing program with the lowest number always runs to its end, even if a later program fails first.
    fn play_in_turn(&self, played: &Sender<Played>) {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let is_over = number >= self.operations.div_ceil(PROGRAM_OPERATIONS);
            if is_over || self.failed.load(Ordering::Relaxed) < number {
                return;
            }
            let result = self.play(number);
            if result.is_err() {
                self.failed.fetch_min(number, Ordering::Relaxed);
            }
            // Sending fails only if the receiver is gone.
            let Ok(()) = played.send((number, result)) else { return };
        }
    }
}

/// Adds up the results of programs and prints progress.
fn count(played: &Receiver<Played>, operations: u64) -> Result<(), String> {
    let (start, mut printed) = (Instant::now(), Instant::now());
    let mut sum = Sum::default();
    let mut failure: Option<(u64, String)> = None;
    for (number, result) in played {
        match result {
            Ok(counts) => sum.add(&counts),
            Err(why) if failure.as_ref().is_none_or(|(first, _)| number < *first) => failure = Some((number, why)),
            Err(_) => {}
        }
        if failure.is_none() && (printed.elapsed() >= PROGRESS_EVERY || sum.operations >= operations) {
            printed = Instant::now();
            sum.print(start);
        }
    }
    failure.map_or(Ok(()), |(_, why)| Err(why))
}

fn run(args: &Args) -> Result<(), String> {
    if let Some(seed) = args.program {
        let start = Instant::now();
        let mut sum = Sum::default();
        sum.add(&play_one(seed, u64::MAX)?);
        sum.print(start);
        return Ok(());
    }
    let Args { operations, seed, .. } = *args;
    let programs = Programs { operations, seed, next: AtomicU64::new(0), failed: AtomicU64::new(u64::MAX) };
    let (sender, played) = channel();
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            let (programs, sender) = (&programs, sender.clone());
            scope.spawn(move || programs.play_in_turn(&sender));
        }
        drop(sender); // so that the channel closes when the last thread ends
        count(&played, operations)
    })
}

fn main() -> ExitCode {
    let args = match args() {
        Ok(args) => args,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    match run(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("failed: {why}");
            ExitCode::FAILURE
        }
    }
}
