//! Rules and scripts as text.

use hksim_conformance::random::Outcome;
use hksim_conformance::{CallResult, RuleVerdict};

use super::Report;
use super::report::ScriptReport;
use crate::output::table::{Lines, Table, text};
use crate::output::units::bytes;

/// One line per script, followed by the reason if it did not pass.
pub fn rules(report: &Report) -> String {
    let mut table = Table::new(["rule", "what", "verdict"], &[0, 1, 2]);
    for row in &report.rules {
        let verdict = match (row.verdict, &row.reason) {
            (RuleVerdict::Pass, _) => "pass".to_string(),
            (RuleVerdict::Fail, _) => "FAILED".to_string(),
            (RuleVerdict::Skipped, reason) => format!("skipped: {}", reason.as_deref().unwrap_or("no reason")),
        };
        table.push([row.rule.to_string(), row.title.to_string(), verdict]);
    }
    let mut lines = table.lines();
    for row in report.rules.iter().filter(|row| row.verdict == RuleVerdict::Fail) {
        lines.push(String::new());
        lines.push(format!("{} {}: {}", row.rule, row.title, row.reason.as_deref().unwrap_or_default()));
        lines.extend(indented(&row.script));
    }
    lines.push(String::new());
    let Report { kernel_release: kernel, passed, failed, skipped, .. } = report;
    lines.push(format!("kernel {kernel}: {passed} scripts pass, {failed} fail, {skipped} skipped"));
    text(&lines)
}

fn indented(script: &str) -> impl Iterator<Item = String> {
    script.lines().map(|line| format!("    {line}"))
}

/// One line per operation, then the state at the end.
pub fn script(report: &ScriptReport) -> String {
    let head = ["operation", "ret", "errno", "faults", "traps", "ret", "errno", "faults", "traps"];
    let is_measured = report.measured.is_some();
    let columns = if is_measured { 9 } else { 5 };
    let mut table = Table::new(head.into_iter().take(columns), &[0]);
    for line in &report.ops {
        let figures = |did: &CallResult| [did.ret, i64::from(did.errno), did.faults as i64, did.traps as i64];
        let numbers = figures(&line.predicted).into_iter().chain(line.measured.iter().flat_map(figures));
        table.push([line.op.clone()].into_iter().chain(numbers.map(|number| number.to_string())));
    }
    let mut lines = table.lines();
    lines.push(String::new());
    if is_measured {
        lines.push("the first four figures are predicted, the last four measured".into());
    }
    for (who, left) in [("predicted", Some(&report.predicted)), ("measured", report.measured.as_ref())] {
        let Some(left) = left else { continue };
        lines.push(format!(
            "{who}: Rss {}, huge {}, lazily freed {}, {} mappings, page tables {}",
            bytes(left.rss_bytes),
            bytes(left.anon_huge_bytes),
            bytes(left.lazy_free_bytes),
            left.vmas,
            bytes(left.page_table_bytes)
        ));
        let runs: Vec<String> = left.pages.iter().map(|run| format!("{:?} {}", run.0, run.1)).collect();
        lines.push(format!("    pages: {}", runs.join(", ")));
    }
    let reason = report.reason.as_ref().map_or(String::new(), |reason| format!(": {reason}"));
    lines.push(format!("verdict: {}{reason}", report.verdict));
    text(&lines)
}

/// The counts, then every failing script after shrinking, in the form that `--script` reads.
pub fn random(outcome: &Outcome) -> String {
    let mut lines = Vec::new();
    for failure in &outcome.failures {
        lines.push(format!("# seed {}: {}", failure.seed, failure.difference));
        lines.extend(failure.script.lines().map(str::to_string));
        lines.extend(["end".to_string(), String::new()]);
    }
    let Outcome { seed, scripts, operations, skipped, skipped_by_reason, not_reproduced, failures } = outcome;
    for once in not_reproduced {
        lines.push(format!("seed {}: differed once, and not when tried again: {}", once.seed, once.difference));
    }
    lines.push(format!(
        "seed {seed}: {scripts} scripts, {operations} operations, {} differ, {} not reproduced, {skipped} skipped",
        failures.len(),
        not_reproduced.len()
    ));
    lines.extend(skipped_by_reason.iter().map(|(reason, scripts)| format!("skipped {scripts}: {reason}")));
    text(&lines)
}
