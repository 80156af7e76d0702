//! Checks random scripts on the running kernel, and shrinks failing ones.

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use hksim_linux_mm::Defrag;
use hksim_linux_mm::script::{Header, Script};
use serde::Serialize;

use crate::generator::Generator;
use crate::machine::maps_hugetlb;
use crate::session::ExecuteError;
use crate::shrink::shrunk;
use crate::suite::{Runner, ScriptOutcome};

/// Configuration of a run of random scripts.
#[derive(Clone, Debug)]
pub struct RandomConfig {
    /// The seed of the first script. Each further script uses the next seed.
    pub seed: u64,
    /// Number of scripts.
    pub scripts: u64,
    /// Maximum number of operations per script.
    pub ops_max: u64,
    /// Sets of modes to use in turn. If empty, the current modes are used.
    pub modes: Vec<Header>,
}

/// The number of consecutive scripts under one set of modes. Changing modes takes longer than a script.
const SCRIPTS_PER_MODES: u64 = 25;

/// Maximum number of failures before a run stops.
const FAILURES_MAX: usize = 5;

/// A script on which model and kernel differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The script's seed.
    pub seed: u64,
    /// The difference in the shrunk script.
    pub difference: String,
    /// The shrunk script.
    pub script: String,
    /// The script as generated.
    pub original: String,
}

/// A script for which kernel and model differed once, but not when tried again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NotReproduced {
    /// The script's seed.
    pub seed: u64,
    /// What differed.
    pub difference: String,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// The first seed.
    pub seed: u64,
    /// Scripts executed and compared.
    pub scripts: u64,
    /// Operations of those scripts.
    pub operations: u64,
    /// Scripts that could not be executed or were disturbed.
    pub skipped: u64,
    /// Number of skipped scripts by reason.
    pub skipped_by_reason: BTreeMap<String, u64>,
    /// Scripts that differed once, but not when tried again.
    pub not_reproduced: Vec<NotReproduced>,
    /// Scripts that differ. The run stops after 5.
    pub failures: Vec<Failure>,
}

/// Sets of modes that determine what a fault installs. They cover each global mode, sizes below 2 MiB, sizes that
/// override the global mode, a disabled huge zero page, a hugetlb pool, and overcommit mode 2.
pub fn all_modes() -> Vec<Header> {
    const SETS: [&str; 15] = [
        "thp madvise",
        "thp always",
        "thp never",
        "thp madvise\nmthp 64 always",
        "thp always\nmthp 16 inherit\nmthp 64 inherit\nmthp 256 inherit",
        "thp madvise\nmthp 1024 madvise\nmthp 32 always",
        "thp never\nmthp 2048 madvise\nmthp 16 always",
        "thp always\nmthp 2048 never\nmthp 128 madvise",
        "thp never\nmthp 512 always\nmthp 2048 always",
        "thp madvise\nzero_page off",
        "thp always\nzero_page off\nmthp 64 always",
        "thp madvise\npool 4",
        "thp always\npool 7",
        "thp madvise\npool 2\nmthp 64 inherit",
        "thp madvise\novercommit never",
    ];
    let parsed = SETS.iter().filter_map(|lines| lines.parse::<Script>().ok());
    let named = parsed.map(|script| script.header.with_all_modes());
    // Settings without an effect in the model vary from set to set.
    let harmless = MAX_PTES_NONE.iter().cycle().zip(DEFRAG.iter().cycle());
    let with_harmless = |(header, (&max_ptes_none, &defrag)): (Header, _)| Header {
        max_ptes_none: Some(max_ptes_none),
        defrag: Some(defrag),
        pool: header.pool.or(Some(0)),
        ..header
    };
    named.zip(harmless).map(with_harmless).collect()
}

const MAX_PTES_NONE: [u64; 3] = [511, 0, 64];
const DEFRAG: [Defrag; 5] = [Defrag::Madvise, Defrag::Always, Defrag::DeferMadvise, Defrag::Never, Defrag::Defer];

/// Maximum pool size for a script with hugetlb whose modes have no pool.
const POOL_MAX: u64 = 7;

/// Runs scripts until all are done, `each` returns `Break`, or five have failed. After each script, `each` is called
/// with the result so far.
///
/// # Errors
/// The executing process died, hung or failed.
pub fn run(
    runner: &mut Runner,
    plan: &RandomConfig,
    mut each: impl FnMut(&Outcome) -> ControlFlow<()>,
) -> Result<Outcome, ExecuteError> {
    let mut outcome = Outcome { seed: plan.seed, ..Outcome::default() };
    for number in 0..plan.scripts {
        let seed = plan.seed.wrapping_add(number);
        let script = plan.script(seed, number);
        match runner.run(&script)? {
            ScriptOutcome::Skipped(reason) => {
                outcome.skipped += 1;
                *outcome.skipped_by_reason.entry(reason).or_default() += 1;
            }
            ScriptOutcome::NotReproduced(difference) => outcome.not_reproduced.push(NotReproduced { seed, difference }),
            ScriptOutcome::Checked(checked) => {
                outcome.scripts += 1;
                outcome.operations += script.steps.len() as u64;
                if checked.difference().is_some() {
                    outcome.failures.push(failure(runner, seed, &script)?);
                }
            }
        }
        if each(&outcome).is_break() || outcome.failures.len() == FAILURES_MAX {
            break;
        }
    }
    Ok(outcome)
}

impl RandomConfig {
    fn script(&self, seed: u64, number: u64) -> Script {
        let mut script = Generator::new(seed).script_of(self.ops_max);
        let turn = (number / SCRIPTS_PER_MODES) as usize;
        if let Some(modes) = self.modes.get(turn % self.modes.len().max(1)) {
            script.header = Header { base: script.header.base, room: script.header.room, ..modes.clone() };
            // Most modes have no pool, which leaves little to test.
            if modes.pool == Some(0) && maps_hugetlb(&script) {
                script.header.pool = Some(seed % (POOL_MAX + 1));
            }
        }
        script
    }
}

fn failure(runner: &mut Runner, seed: u64, script: &Script) -> Result<Failure, ExecuteError> {
    let mut difference = None;
    let small = shrunk(script, |candidate| {
        let found = match runner.run(candidate)? {
            ScriptOutcome::Checked(checked) => checked.difference(),
            ScriptOutcome::Skipped(_) | ScriptOutcome::NotReproduced(_) => None,
        };
        let is_failing = found.is_some();
        difference = found.or(difference.take());
        Ok::<_, ExecuteError>(is_failing)
    })?;
    Ok(Failure {
        seed,
        difference: difference.unwrap_or_else(|| "the script differed once, but not when tried again".into()),
        script: small.to_string(),
        original: script.to_string(),
    })
}
