//! A user's script: predicted, and executed if possible.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use hksim_conformance::{Checked, Observation, ScriptOutcome, predict};
use hksim_linux_mm::script::{Script, Step};
use hksim_linux_mm::{KernelConfig, KernelVersion, Rules};

use super::report::{Line, ScriptReport};
use super::{Args, runner, view};
use crate::host;
use hksim_results::Stamp;

/// Maximum length of a script. The state of every page after every operation is kept, so the limit bounds memory use.
const SCRIPT_BYTES_MAX: u64 = 1 << 20;
const OPERATIONS_MAX: usize = 4000;

/// Reads, predicts, executes and prints a script; true if prediction and kernel differ.
pub fn run(args: &Args, path: &Path) -> Result<bool> {
    let script = read(path)?;
    let report = if args.predict_only {
        let predicted = predict(&predicted_kernel(args.kernel.as_deref())?, &script);
        report(&script, predicted, &[], "predicted", None)
    } else {
        executed(args, &script)?
    };
    args.output.emit(&report, &report.ops, || view::script(&report))?;
    Ok(report.verdict == "differs")
}

fn executed(args: &Args, script: &Script) -> Result<ScriptReport> {
    let skipped = |reason: String| -> Result<ScriptReport> {
        let config = host::kernel_config()?;
        Ok(report(script, predict(&config, script), &[], "skipped", Some(reason)))
    };
    let mut runner = match runner(args)? {
        Ok(runner) => runner,
        Err(reason) => return skipped(reason),
    };
    match runner.run(script)? {
        ScriptOutcome::Skipped(reason) => skipped(reason),
        ScriptOutcome::NotReproduced(difference) => {
            skipped(format!("differed once, and not when tried again: {difference}"))
        }
        ScriptOutcome::Checked(checked) => {
            let difference = checked.difference();
            let verdict = if difference.is_some() { "differs" } else { "equal" };
            let Checked { predicted, measured, .. } = checked;
            Ok(report(script, predicted, &measured, verdict, difference))
        }
    }
}

fn report(
    script: &Script,
    predicted: Vec<Observation>,
    measured: &[Observation],
    verdict: &'static str,
    reason: Option<String>,
) -> ScriptReport {
    let line = |(at, (step, predicted)): (usize, (&Step, &Observation))| Line {
        op: step.to_string(),
        predicted: predicted.did,
        measured: measured.get(at).map(|seen| seen.did),
    };
    let ops = script.steps.iter().zip(&predicted).enumerate().map(line).collect();
    let measured = measured.last().map(|last| last.left.clone());
    let predicted = predicted.into_iter().next_back().unwrap_or_default().left;
    ScriptReport { stamp: Stamp::here(), script: script.to_string(), verdict, reason, ops, predicted, measured }
}

/// The kernel that a prediction assumes: default modes, which scripts can change, or this machine's modes.
fn predicted_kernel(word: Option<&str>) -> Result<KernelConfig> {
    match word {
        None => Ok(KernelConfig::default()),
        Some("host") => host::kernel_config(),
        Some(word) => {
            let version = KernelVersion::from_word(word).ok_or_else(|| {
                let known: Vec<&str> = KernelVersion::ALL.iter().map(|version| version.word()).collect();
                anyhow!("--kernel {word}: unknown version; choose from {}, host", known.join(", "))
            })?;
            Ok(KernelConfig { rules: Rules::of(version), ..KernelConfig::default() })
        }
    }
}

fn read(path: &Path) -> Result<Script> {
    let name = path.display();
    let input: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(io::stdin().lock()),
        _ => Box::new(File::open(path).with_context(|| format!("{name}: cannot open"))?),
    };
    let mut text = String::new();
    let bytes =
        input.take(SCRIPT_BYTES_MAX + 1).read_to_string(&mut text).with_context(|| format!("{name}: cannot read"))?;
    if bytes as u64 > SCRIPT_BYTES_MAX {
        bail!("{name}: the script is larger than 1 MiB; split it");
    }
    let script: Script = text.parse().with_context(|| name.to_string())?;
    if script.steps.is_empty() {
        bail!("{name}: the script has no operations");
    }
    if script.steps.len() > OPERATIONS_MAX {
        bail!("{name}: the script has {} operations, more than {OPERATIONS_MAX}; split it", script.steps.len());
    }
    Ok(script)
}
