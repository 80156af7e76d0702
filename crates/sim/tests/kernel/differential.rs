//! Random page-op scripts, compared after every operation. `HKSIM_KERNEL_SCRIPTS` and `HKSIM_KERNEL_SEED` choose how
//! many scripts and which.

use super::executor::{Executor, Observed, Verdict, compare};
use super::generator::Generator;
use hksim_sim::kernel::script::Op;

const SCRIPTS_DEFAULT: u64 = 300;
const SEED_DEFAULT: u64 = 0x5EED_0001;

/// Scripts per run of the executor, so that its output stays small.
const BATCH: usize = 100;

/// How often a script is tried again when something else disturbed it.
const RETRIES: usize = 5;

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable}: {text}")))
}

/// Compares scripts with what was observed; returns those to try again because they were disturbed.
fn check(
    executor: &Executor,
    scripts: &[(u64, Vec<Op>)],
    observed: &[Observed],
    failures: &mut Vec<u64>,
) -> Vec<usize> {
    let mut again = Vec::new();
    for (at, ((seed, ops), seen)) in scripts.iter().zip(observed).enumerate() {
        match compare(&executor.config, ops, seen) {
            Verdict::Equal => {}
            Verdict::Disturbed => again.push(at),
            Verdict::Differs(report) => {
                if failures.len() < 10 {
                    eprintln!("seed {seed}: {report}");
                }
                failures.push(*seed);
            }
        }
    }
    again
}

#[test]
fn random_scripts_match_the_running_kernel() {
    let Some(executor) = Executor::new() else { return };
    let first = number_from("HKSIM_KERNEL_SEED", SEED_DEFAULT);
    let count = number_from("HKSIM_KERNEL_SCRIPTS", SCRIPTS_DEFAULT);
    let seeds: Vec<u64> = (first..first + count).collect();
    let mut failures = Vec::new();
    let mut operations = 0;
    for chunk in seeds.chunks(BATCH) {
        let mut scripts: Vec<(u64, Vec<Op>)> =
            chunk.iter().map(|&seed| (seed, Generator::new(seed).script())).collect();
        operations += scripts.iter().map(|(_, ops)| ops.len()).sum::<usize>();
        for _ in 0..RETRIES {
            let observed = executor.run(scripts.iter().map(|(_, ops)| ops.as_slice()));
            let again = check(&executor, &scripts, &observed, &mut failures);
            scripts = again.into_iter().map(|at| scripts[at].clone()).collect();
            if scripts.is_empty() {
                break;
            }
        }
        assert!(scripts.is_empty(), "disturbed {RETRIES} times; seeds from {}", scripts[0].0);
    }
    eprintln!("{count} scripts from seed {first}, {operations} operations, {} scripts differ", failures.len());
    assert!(failures.is_empty(), "seeds that differ: {failures:?}");
}
