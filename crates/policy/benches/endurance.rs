//! Random programs on random designs against the naive model, for as many operations as one likes:
//!
//!     cargo bench -p hksim-policy --bench endurance -- --ops 1000000000 --seed 1
//!     cargo bench -p hksim-policy --bench endurance -- --program 0x4d00000153
//!
//! Prints progress every ten seconds. Ends with status 1 at the first broken promise, which names the seed of its program; a
//! SuperSlab that is still in use when nothing is live is one. `--program` plays the one program of such a seed.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use hksim_testkit::spread::SmallDesign;
use hksim_testkit::{EASY, Failing, Hardship, Limits, Random, Tally, play};

/// Operations of one program.
const PROGRAM_OPERATIONS: u64 = 20_000;
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

struct Args {
    operations: u64,
    seed: u64,
    /// Seed of the one program to play.
    program: Option<u64>,
}

/// A number, decimal or hexadecimal.
fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

fn args() -> Result<Args, String> {
    let mut found = Args { operations: 1_000_000, seed: 1, program: None };
    let mut words = std::env::args().skip(1).filter(|word| word != "--bench"); // cargo's own
    while let Some(word) = words.next() {
        let text = words.next().ok_or(format!("{word}: a number is missing"))?;
        let value = number(&text).ok_or(format!("{word} {text}: this is no number"))?;
        match word.as_str() {
            "--ops" => found.operations = value,
            "--seed" => found.seed = value,
            "--program" => found.program = Some(value),
            _ => return Err(format!("{word}: there are --ops N, --seed N and --program SEED")),
        }
    }
    Ok(found)
}

fn hardship(random: &mut Random) -> Hardship {
    if random.per_mille(667) {
        return EASY;
    }
    Hardship {
        failing: random.pick(&[Failing::PerMille(5), Failing::PerMille(100), Failing::PerMille(1000)]),
        hugetlb_pages: random.pick(&[0, 3, u64::MAX]),
    }
}

/// Plays the program of a seed, at most so many operations of it.
fn play_one(seed: u64, operations_max: u64) -> Result<Tally, String> {
    let mut random = Random::new(seed);
    let design = SmallDesign::random(&mut random);
    let hardship = hardship(&mut random);
    let limits = Limits {
        operations: PROGRAM_OPERATIONS.min(operations_max),
        objects: random.pick(&[8, 60, 400, 2000]),
        threads: random.pick(&[1, 2, 5, 12]),
        validate_every: random.pick(&[64, 512, 4096]),
    };
    play(&design, design.geometry(), hardship, limits, seed)
}

/// What programs came to.
#[derive(Default)]
struct Sum {
    programs: u64,
    operations: u64,
    blocks: u64,
    refused: u64,
    lost: u64,
}

impl Sum {
    fn add(&mut self, tally: &Tally) {
        self.programs += 1;
        self.operations += tally.operations;
        self.blocks += tally.allocated;
        self.refused += tally.refused;
        self.lost += tally.superslabs_lost;
    }

    fn tell(&self, start: Instant) {
        let Sum { programs, operations, blocks, refused, lost } = self;
        let rate = *operations as f64 / start.elapsed().as_secs_f64() / 1000.0;
        println!(
            "{operations} operations on {programs} designs, {rate:.0} k/s: {blocks} blocks, {refused} refused, \
             {lost} SuperSlabs lost to maps that were refused, 0 leaked"
        );
    }
}

fn run(args: &Args) -> Result<(), String> {
    let (start, mut told) = (Instant::now(), Instant::now());
    let mut sum = Sum::default();
    if let Some(seed) = args.program {
        sum.add(&play_one(seed, u64::MAX)?);
        sum.tell(start);
        return Ok(());
    }
    while sum.operations < args.operations {
        let seed = args.seed.wrapping_mul(1 << 32).wrapping_add(sum.programs);
        sum.add(&play_one(seed, args.operations - sum.operations)?);
        if told.elapsed() >= PROGRESS_EVERY || sum.operations >= args.operations {
            told = Instant::now();
            sum.tell(start);
        }
    }
    Ok(())
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
            eprintln!("broken: {why}");
            ExitCode::FAILURE
        }
    }
}
