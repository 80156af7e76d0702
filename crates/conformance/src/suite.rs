//! Checks scripts and rules on this machine, within the user's rights.

use hksim_linux_mm::script::Script;
use serde::Serialize;

use crate::catalogue::{Case, Figure, MEASURED_ON, WITHOUT_SCRIPT, cases};
use crate::check::{Checked, Verdict, check};
use crate::host::{may_lock_memory, may_name_mappings};
use crate::machine::{Machine, MachineError};
use crate::modes::{ModeError, SetModes};
use crate::session::ExecuteError;
use crate::unobservable::Unobservable;

/// Maximum number of attempts for a differing script, because another process may change the machine's modes.
const TRIES: usize = 3;

/// Checks scripts, each under the modes that its header names.
pub struct Runner {
    machine: Machine,
    modes: Option<SetModes>,
}

/// The outcome of a script.
pub enum ScriptOutcome {
    /// The script was executed and compared.
    Checked(Checked),
    /// Model and kernel differed once, but not when tried again: something else interfered. The text is the difference.
    NotReproduced(String),
    /// The script could not be executed here. The text is the reason.
    Skipped(String),
}

impl Runner {
    /// A runner for this machine. With `modes` it sets the modes that a script needs, and it pauses khugepaged.
    ///
    /// # Errors
    /// Scripts cannot be executed on this machine or by this user.
    pub fn new(mut modes: Option<SetModes>) -> Result<Runner, MachineError> {
        let mut machine = Machine::open()?;
        if let Some(modes) = &mut modes {
            // If khugepaged cannot be paused, its effects are detected.
            let _ = modes.pause_khugepaged();
            machine.reread_modes()?;
        }
        Ok(Runner { machine, modes })
    }

    /// The facts that cannot be observed here, and so are not compared.
    pub fn unobservable(&self) -> &[Unobservable] {
        self.machine.unobservable()
    }

    /// Executes a script and compares the kernel with the model.
    ///
    /// # Errors
    /// The executing process died, hung or failed.
    pub fn run(&mut self, script: &Script) -> Result<ScriptOutcome, ExecuteError> {
        let (mut tries, mut unsteady) = (1, None);
        let checked = loop {
            if let Some(reason) = self.prepare(script) {
                return Ok(ScriptOutcome::Skipped(reason));
            }
            let checked = check(&mut self.machine, script)?;
            let differs = matches!(checked.verdict, Verdict::Differs(_));
            if !differs {
                break checked;
            }
            match (self.modes_changed(), tries == TRIES) {
                (true, true) => {
                    return Ok(ScriptOutcome::Skipped("another process keeps changing the machine's modes".into()));
                }
                (true, false) => {}
                (false, true) => break checked,
                (false, false) => unsteady = checked.difference(),
            }
            tries += 1;
        };
        if let (Some(difference), false) = (unsteady, matches!(checked.verdict, Verdict::Differs(_))) {
            return Ok(ScriptOutcome::NotReproduced(difference));
        }
        Ok(match checked.verdict {
            Verdict::Disturbed(why) => ScriptOutcome::Skipped(format!("disturbed at every try: {why}")),
            Verdict::Equal | Verdict::EqualButSplits | Verdict::Differs(_) => ScriptOutcome::Checked(checked),
        })
    }

    /// Reads the machine's modes again. Returns whether another process has changed them.
    fn modes_changed(&mut self) -> bool {
        let before = self.machine.host().clone();
        self.machine.reread_modes().is_ok() && *self.machine.host() != before
    }

    /// Sets the modes that a script names, if they differ. Returns the reason if that fails.
    fn prepare(&mut self, script: &Script) -> Option<String> {
        if script.steps.iter().any(|step| step.op.locks()) && !may_lock_memory() {
            return Some("locking memory is not allowed without limit (needs root, or `ulimit -l unlimited`)".into());
        }
        if script.steps.iter().any(|step| step.op.names()) && !may_name_mappings() {
            return Some("this kernel does not support names of mappings (CONFIG_ANON_VMA_NAME)".into());
        }
        if script.steps.iter().any(|step| step.op.scans()) && self.modes.is_none() {
            return Some("scans of khugepaged need another pace of it; --set-modes sets it".into());
        }
        let host = self.machine.host();
        let mut wanted = script.header.applied_to(host);
        wanted.vmas_outside_heap = host.vmas_outside_heap;
        if wanted == *host {
            return None;
        }
        let Some(modes) = &mut self.modes else {
            return Some(format!("needs other modes ({}); --set-modes sets them", differing(script, &self.machine)));
        };
        let set = modes.apply(&script.header).map_err(|why: ModeError| why.to_string());
        let reread = self.machine.reread_modes().map_err(|why| why.to_string());
        set.and(reread).err()
    }
}

/// The header lines that this machine does not satisfy.
fn differing(script: &Script, machine: &Machine) -> String {
    let host = machine.host();
    let lines = script.header.to_string();
    let unsatisfied = lines.lines().filter(|line| {
        let alone: Result<Script, _> = line.parse();
        alone.is_ok_and(|alone| alone.header.room.is_none() && alone.header.applied_to(host) != *host)
    });
    unsatisfied.collect::<Vec<_>>().join(", ")
}

/// The verdict on a rule's script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleVerdict {
    /// The kernel matches the model, and the figures are those that the rule expects.
    Pass,
    /// The kernel or the figures differ.
    Fail,
    /// The script could not be executed here.
    Skipped,
}

/// The result of one script of one rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleRow {
    /// `R9a`
    pub rule: &'static str,
    /// What the script shows.
    pub title: &'static str,
    /// The outcome.
    pub verdict: RuleVerdict,
    /// The reason of a failure or skip.
    pub reason: Option<String>,
    /// The executed script.
    pub script: String,
}

/// Checks every rule. `each` is called with each row as soon as it is known.
///
/// # Errors
/// The executing process died, hung or failed.
pub fn rules(runner: &mut Runner, mut each: impl FnMut(&RuleRow)) -> Result<Vec<RuleRow>, ExecuteError> {
    let mut rows = Vec::new();
    let mut push = |row: RuleRow| {
        each(&row);
        rows.push(row);
    };
    for case in cases() {
        push(rule(runner, case)?);
    }
    for &(rule, title, reason) in WITHOUT_SCRIPT {
        let (verdict, script) = (RuleVerdict::Skipped, String::new());
        push(RuleRow { rule, title, verdict, reason: Some(reason.into()), script });
    }
    Ok(rows)
}

/// A skipped row for every script, with the same reason. Rules without a script keep their own reason.
pub fn skipped_rules(reason: &str) -> Vec<RuleRow> {
    let cases = cases().map(|case| (case.rule, case.title, reason));
    let row = |(rule, title, reason): (_, _, &str)| {
        let (verdict, script) = (RuleVerdict::Skipped, String::new());
        RuleRow { rule, title, verdict, reason: Some(reason.into()), script }
    };
    cases.chain(WITHOUT_SCRIPT.iter().copied()).map(row).collect()
}

fn rule(runner: &mut Runner, case: &Case) -> Result<RuleRow, ExecuteError> {
    let row = |verdict, reason, script| RuleRow { rule: case.rule, title: case.title, verdict, reason, script };
    let script = match case.script() {
        Ok(script) => script,
        Err(why) => return Ok(row(RuleVerdict::Fail, Some(why.to_string()), String::new())),
    };
    let text = script.to_string();
    Ok(match runner.run(&script)? {
        ScriptOutcome::Skipped(reason) => row(RuleVerdict::Skipped, Some(reason), text),
        ScriptOutcome::NotReproduced(difference) => {
            row(RuleVerdict::Skipped, Some(format!("differed once, and not when tried again: {difference}")), text)
        }
        ScriptOutcome::Checked(checked) => match failure_of(case, &checked, runner) {
            Some(reason) => row(RuleVerdict::Fail, Some(reason), text),
            None => row(RuleVerdict::Pass, None, text),
        },
    })
}

/// How the kernel differs from the rule's figures or from the model, if it does. The figures are compared only on the
/// kernel version they were measured on; other versions are compared only with the model.
fn failure_of(case: &Case, checked: &Checked, runner: &Runner) -> Option<String> {
    let last = checked.measured.last()?;
    let sees = |figure| figure != Figure::Traps || !runner.unobservable().contains(&Unobservable::KernelTraps);
    if runner.machine.host().rules.version == MEASURED_ON {
        for &(figure, expected) in case.figures.iter().filter(|(figure, _)| sees(*figure)) {
            let measured = figure.of(last);
            if measured != expected {
                return Some(format!("{figure:?} is {measured}, expected {expected}"));
            }
        }
    }
    checked.difference()
}
