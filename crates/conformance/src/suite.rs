//! Scripts and rules, checked on this machine with what the user allows.

use hksim_linux_mm::script::Script;
use serde::Serialize;

use crate::catalogue::{CASES, Case, Figure, MEASURED_ON, WITHOUT_SCRIPT};
use crate::check::{Checked, Verdict, check};
use crate::host::may_lock_memory;
use crate::machine::{Machine, MachineError};
use crate::modes::{ModeError, SetModes};
use crate::session::ExecuteError;
use crate::unobservable::Unobservable;

/// How often a script is tried that differs: somebody else may change the machine's modes.
const TRIES: usize = 3;

/// Checks scripts, each under the modes that it names.
pub struct Runner {
    machine: Machine,
    modes: Option<SetModes>,
}

/// What became of a script.
pub enum ScriptOutcome {
    /// It was executed and compared.
    Checked(Checked),
    /// Model and kernel differed once, as is said here, and not when it was tried again: something else was at work.
    NotReproduced(String),
    /// It could not be executed here: why.
    Skipped(String),
}

impl Runner {
    /// A runner that may change the machine's modes where it is given `modes`. Then khugepaged is kept asleep too.
    ///
    /// # Errors
    /// This machine or this user cannot execute scripts.
    pub fn new(mut modes: Option<SetModes>) -> Result<Runner, MachineError> {
        let mut machine = Machine::open()?;
        if let Some(modes) = &mut modes {
            // Where it cannot be told to sleep, what it did is noticed.
            let _ = modes.pause_khugepaged();
            machine.reread_modes()?;
        }
        Ok(Runner { machine, modes })
    }

    /// What is not compared here.
    pub fn unobservable(&self) -> &[Unobservable] {
        self.machine.unobservable()
    }

    /// Executes a script and compares.
    ///
    /// # Errors
    /// The process that executes died, hung or could not go on.
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
                    return Ok(ScriptOutcome::Skipped("somebody else keeps changing the machine's modes".into()));
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
            Verdict::Disturbed(why) => ScriptOutcome::Skipped(format!("disturbed again and again: {why}")),
            Verdict::Equal | Verdict::EqualButSplits | Verdict::Differs(_) => ScriptOutcome::Checked(checked),
        })
    }

    /// Whether somebody else changed the machine's modes since they were read; they are read again then.
    fn modes_changed(&mut self) -> bool {
        let before = self.machine.host().clone();
        self.machine.reread_modes().is_ok() && *self.machine.host() != before
    }

    /// Sets the modes that a script names, where they are not there already. `Some` is why that cannot be.
    fn prepare(&mut self, script: &Script) -> Option<String> {
        if script.steps.iter().any(|step| step.op.locks()) && !may_lock_memory() {
            return Some("locking memory is not allowed without limit (needs root, or `ulimit -l unlimited`)".into());
        }
        let host = self.machine.host();
        let mut wanted = script.header.applied_to(host);
        wanted.vmas_elsewhere = host.vmas_elsewhere;
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

/// The lines of a script's header that this machine does not fulfil.
fn differing(script: &Script, machine: &Machine) -> String {
    let host = machine.host();
    let lines = script.header.to_string();
    let unlike = lines.lines().filter(|line| {
        let alone: Result<Script, _> = line.parse();
        alone.is_ok_and(|alone| alone.header.room.is_none() && alone.header.applied_to(host) != *host)
    });
    unlike.collect::<Vec<_>>().join(", ")
}

/// What became of a rule's script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RuleVerdict {
    /// The kernel does what the model says, and the figures are those that the rule was established by.
    Pass,
    /// It does not.
    Fail,
    /// It could not be tried here.
    Skipped,
}

/// One script of one rule, tried.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleRow {
    /// `R9a`
    pub rule: &'static str,
    /// What it shows.
    pub about: &'static str,
    /// The outcome.
    pub verdict: RuleVerdict,
    /// Why it failed or was skipped.
    pub reason: Option<String>,
    /// What was executed.
    pub script: String,
}

/// Tries every rule; `each` hears of each as soon as it is known.
///
/// # Errors
/// The process that executes died, hung or could not go on.
pub fn rules(runner: &mut Runner, mut each: impl FnMut(&RuleRow)) -> Result<Vec<RuleRow>, ExecuteError> {
    let mut rows = Vec::new();
    let mut push = |row: RuleRow| {
        each(&row);
        rows.push(row);
    };
    for case in CASES {
        push(rule(runner, case)?);
    }
    for &(rule, about, reason) in WITHOUT_SCRIPT {
        let (verdict, script) = (RuleVerdict::Skipped, String::new());
        push(RuleRow { rule, about, verdict, reason: Some(reason.into()), script });
    }
    Ok(rows)
}

/// Every rule, skipped for one reason.
pub fn skipped_rules(reason: &str) -> Vec<RuleRow> {
    let cases = CASES.iter().map(|case| (case.rule, case.about, reason));
    let row = |(rule, about, reason): (_, _, &str)| {
        let (verdict, script) = (RuleVerdict::Skipped, String::new());
        RuleRow { rule, about, verdict, reason: Some(reason.into()), script }
    };
    cases.chain(WITHOUT_SCRIPT.iter().copied()).map(row).collect()
}

fn rule(runner: &mut Runner, case: &Case) -> Result<RuleRow, ExecuteError> {
    let row = |verdict, reason, script| RuleRow { rule: case.rule, about: case.about, verdict, reason, script };
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
        ScriptOutcome::Checked(checked) => match unlike(case, &checked, runner) {
            Some(reason) => row(RuleVerdict::Fail, Some(reason), text),
            None => row(RuleVerdict::Pass, None, text),
        },
    })
}

/// How the kernel is unlike the rule's figures, or the model. The figures are those of the version that they were
/// measured on; on others the model says what they are.
fn unlike(case: &Case, checked: &Checked, runner: &Runner) -> Option<String> {
    let last = checked.measured.last()?;
    let sees = |figure| figure != Figure::Traps || !runner.unobservable().contains(&Unobservable::KernelTraps);
    if runner.machine.host().rules.version == MEASURED_ON {
        for &(figure, expected) in case.figures.iter().filter(|(figure, _)| sees(*figure)) {
            let measured = figure.of(last);
            if measured != expected {
                return Some(format!("{figure:?} is {measured}, and not {expected}"));
            }
        }
    }
    checked.difference()
}
