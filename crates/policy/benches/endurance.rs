//! Random programs on random designs against the naive model, for as many operations as one likes:
//!
//!     cargo bench -p hksim-policy --bench endurance -- --ops 1000000000 --seed 1
//!
//! Prints progress every ten seconds. Ends with status 1 at the first broken promise, which names its seed; a SuperSlab that is
//! still in use when nothing is live is one.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use hksim_testkit::spread::SmallDesign;
use hksim_testkit::{EASY, Failing, Hardship, Limits, Random, play};

/// Operations of one program.
const PROGRAM_OPERATIONS: u64 = 20_000;
const PROGRESS_EVERY: Duration = Duration::from_secs(10);

struct Args {
    operations: u64,
    seed: u64,
}

fn args() -> Result<Args, String> {
    let mut found = Args { operations: 1_000_000, seed: 1 };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let into = match word.as_str() {
            "--bench" => continue, // cargo's own
            "--ops" => &mut found.operations,
            "--seed" => &mut found.seed,
            _ => return Err(format!("{word}: there are --ops N and --seed N")),
        };
        let value = words.next().ok_or(format!("{word}: a number is missing"))?;
        *into = value.parse().map_err(|_| format!("{word} {value}: this is no number"))?;
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

fn run(args: &Args) -> Result<(), String> {
    let (start, mut told) = (Instant::now(), Instant::now());
    let (mut operations, mut programs, mut blocks, mut refused) = (0, 0, 0, 0);
    while operations < args.operations {
        let seed = args.seed.wrapping_mul(1 << 32).wrapping_add(programs);
        let mut random = Random::new(seed);
        let design = SmallDesign::random(&mut random);
        let hardship = hardship(&mut random);
        let limits = Limits {
            operations: PROGRAM_OPERATIONS.min(args.operations - operations),
            objects: random.pick(&[8, 60, 400, 2000]),
            threads: random.pick(&[1, 2, 5, 12]),
            validate_every: random.pick(&[64, 512, 4096]),
        };
        let tally = play(&design, design.geometry(), hardship, limits, seed)?;
        programs += 1;
        operations += tally.operations;
        blocks += tally.allocated;
        refused += tally.refused;
        if told.elapsed() >= PROGRESS_EVERY || operations >= args.operations {
            told = Instant::now();
            let rate = operations as f64 / start.elapsed().as_secs_f64() / 1000.0;
            println!(
                "{operations} operations on {programs} designs, {rate:.0} k/s: {blocks} blocks, {refused} refused, 0 SuperSlabs leaked"
            );
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
