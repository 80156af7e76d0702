//! Random scripts, compared after every operation. `HKSIM_KERNEL_SCRIPTS` and `HKSIM_KERNEL_SEED` choose how many and which.

use hksim_rules::{Generator, Ran, Runner, predict, shrunk};
use hksim_sim::kernel::script::Script;
use hksim_sim::kernel::{EmptyTables, KernelConfig, Rules};

const SCRIPTS_DEFAULT: u64 = 300;
const SEED_DEFAULT: u64 = 0x5EED_0001;

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable}: {text}")))
}

pub fn random_scripts_match_the_running_kernel() -> Result<(), String> {
    let mut runner = Runner::new(None).map_err(|why| why.to_string())?;
    let first = number_from("HKSIM_KERNEL_SEED", SEED_DEFAULT);
    let count = number_from("HKSIM_KERNEL_SCRIPTS", SCRIPTS_DEFAULT);
    let (mut operations, mut skipped, mut differing) = (0, 0, Vec::new());
    for seed in first..first + count {
        let script = Generator::new(seed).script();
        operations += script.steps.len();
        match runner.run(&script).unwrap_or_else(|why| panic!("seed {seed}: {why}")) {
            Ran::Skipped(why) => {
                eprintln!("skipped: seed {seed}: {why}");
                skipped += 1;
            }
            Ran::Unsteady(difference) => {
                eprintln!("skipped: seed {seed}: differed once, and not when tried again: {difference}");
                skipped += 1;
            }
            Ran::Checked(checked) => {
                if let Some(difference) = checked.difference() {
                    eprintln!("seed {seed}: {difference}; the script:\n{script}");
                    differing.push(seed);
                }
            }
        }
    }
    eprintln!("{count} scripts from seed {first}, {operations} operations, {skipped} skipped");
    assert!(differing.is_empty(), "seeds that differ: {differing:?}");
    assert!(skipped * 10 <= count, "too many were skipped to say anything");
    Ok(())
}

/// The model with one rule of an older kernel must be found out, by a script that shrinks to the rule's own.
pub fn a_wrong_model_is_found_and_shrunk() -> Result<(), String> {
    let right = KernelConfig::default();
    let wrong = KernelConfig { rules: Rules { empty_tables: EmptyTables::Keep, ..right.rules }, ..right.clone() };
    let differs = |script: &Script| predict(&right, script) != predict(&wrong, script);
    let script = (1..).map(|seed| Generator::new(seed).script()).find(|script| differs(script)).expect("endless");
    let small = shrunk(&script, |script| Ok::<_, std::convert::Infallible>(differs(script))).expect("infallible");
    assert!(differs(&small));
    assert_eq!(small.steps.len(), 2, "a table is made, and the whole block dropped:\n{small}");
    Ok(())
}
