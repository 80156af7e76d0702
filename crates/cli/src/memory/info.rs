//! `hksim info` for memory recordings.

use std::path::Path;

use anyhow::Result;
use hksim_memory_trace::{Beginning, Calls, End, Faults, Machine, Summary, ThpDisabled, Visibility, summarise};
use serde::Serialize;

use crate::output::table::{Lines, Table, text};
use crate::output::units::{self, bytes, count};
use crate::output::{OutputArgs, plain, warn};
use hksim_memory_sim::losses;
use hksim_results::Stamp;
use hksim_results::info::By;
use hksim_results::info::memory_sites::TopSites;

/// The summary with the stamp of every JSON result.
#[derive(Serialize)]
struct Info<'a> {
    #[serde(flatten)]
    stamp: Stamp,
    file: String,
    /// Whether the recording has its end, and no events were lost.
    complete: bool,
    #[serde(flatten)]
    summary: &'a Summary,
    #[serde(flatten)]
    top: Option<&'a TopSites>,
}

/// Summarises a recording, with its top `sites` call sites if asked for, ranked by `by`.
///
/// # Errors
/// The recording is damaged, or the output cannot be written.
pub fn run(path: &Path, sites: Option<usize>, by: By, output: &OutputArgs) -> Result<()> {
    let summary = summarise(path)?;
    let file = path.display().to_string();
    let has_end = summary.footer.is_some();
    let complete = has_end && lost(&summary) == 0;
    if !has_end {
        warn(&format!("{file}: the end is missing; these are the events before it"));
    }
    let top = sites.map(|count| TopSites::of(path, &summary, count, by)).transpose()?;
    top.iter().flat_map(TopSites::notes).for_each(|line| warn(line));
    let info = Info { stamp: Stamp::here(), file, complete, summary: &summary, top: top.as_ref() };
    let text = || table(&info) + &top.as_ref().map(TopSites::table).unwrap_or_default();
    match &top {
        // The requested rows.
        Some(top) => output.emit(&info, &top.rows(), text),
        None => output.emit(&info, &[&info], text),
    }
}

fn table(info: &Info<'_>) -> String {
    let mut lines = origin(info);
    lines.push(String::new());
    lines.extend(counts(info.summary));
    text(&lines)
}

fn line(name: &str, value: &str) -> String {
    format!("{name:<22}{value}")
}

/// Where the recording comes from, and what it shows.
fn origin(info: &Info<'_>) -> Vec<String> {
    let Summary { header, footer, .. } = info.summary;
    let command = plain(&header.command.join(" ")).into_owned();
    let began = match header.beginning {
        Beginning::Exec => String::new(),
        Beginning::Fork { parent_pid, .. } => format!(", forked by process {parent_pid}"),
    };
    let end = footer.as_ref().map_or("the file is truncated", |footer| match footer.end {
        End::Exit => "the process exited",
        End::Exec => "the process executed another program",
        End::Running => "the recording ended before the process",
    });
    let mut lines = vec![
        line("memory recording of", &format!("{command} (pid {}, image {}){began}", header.pid, header.image)),
        line("recorded by", &format!("{} on {}", plain(&header.producer), machine(&header.machine))),
        line("seen", &visibility(header.visibility)),
        line("complete", &complete(info)),
        line("end", end),
        line("duration", &units::time(info.summary.duration_ns)),
    ];
    if header.inherited.thp_disable != ThpDisabled::Off {
        lines.push(line("inherited", &format!("{} (PR_SET_THP_DISABLE)", header.inherited.thp_disable.words())));
    }
    for (name, value) in &header.environment {
        lines.push(line("environment", &plain(&format!("{name}={value}"))));
    }
    if !header.history.is_empty() {
        lines.push(line("edited by", &plain(&header.history.join(", "))));
    }
    lines
}

fn complete(info: &Info<'_>) -> String {
    match losses(lost(info.summary)) {
        Some(losses) => format!("no: {losses}"),
        None if info.complete => "yes".to_string(),
        None => "no: the end is missing".to_string(),
    }
}

fn machine(machine: &Machine) -> String {
    let thp = if machine.thp_disabled { "huge pages off" } else { "huge pages as the machine's mode says" };
    let mode = machine.thp_mode.as_deref().unwrap_or("without THP");
    let addresses = if machine.addresses_random { "random addresses" } else { "fixed addresses" };
    plain(&format!("Linux {}, {thp} (machine: {mode}), {addresses}", machine.kernel_release)).into_owned()
}

fn visibility(visibility: Visibility) -> String {
    let faults = match visibility.faults {
        Faults::Accesses => "all page faults, as reads and writes",
        Faults::All => "all page faults, without read or write",
        Faults::UserOnly => "page faults outside system calls, without read or write",
    };
    let calls = match visibility.calls {
        Calls::Tracepoints => "memory calls (tracepoints)",
        Calls::Stops => "memory calls (ptrace)",
    };
    format!("{faults}; {calls}")
}

/// Events lost in the whole run, or before the file ends early.
fn lost(summary: &Summary) -> u64 {
    summary.footer.as_ref().map_or(summary.lost_events, |footer| footer.lost_events)
}

fn counts(summary: &Summary) -> Vec<String> {
    let mut table = Table::new(["events", &count(summary.events)], &[0]);
    let mut row = |name: &str, number: u64| table.push([name.to_string(), count(number)]);
    row("threads", summary.threads);
    for (access, touches) in &summary.touches {
        row(&format!("touches, {access}"), *touches);
    }
    for (name, calls) in &summary.calls {
        match *name {
            "exec" | "kernel" => row(&format!("mappings by {name}"), *calls),
            name => row(name, *calls),
        }
    }
    row("forks", summary.forks);
    row("lost events", lost(summary));
    for (end, calls) in summary.stacks.iter().flatten() {
        table.push([format!("call stacks, {}", end.words()), count(*calls)]);
    }
    let mut lines = table.lines();
    let unrecorded = summary.footer.iter().flat_map(|footer| &footer.unrecorded_calls);
    lines.extend(unrecorded.map(|(call, &calls)| match calls {
        Some(calls) => format!("{}: effect not recorded", units::of(calls, call)),
        None => format!("{call}: effect not recorded, and the number of calls in this part is unknown"),
    }));
    lines.push(String::new());
    let mut mapped = Table::new(["mapped", "bytes"], &[0]);
    summary.mapped_bytes.iter().for_each(|(kind, size)| mapped.push([kind.words().to_string(), bytes(*size)]));
    lines.extend(mapped.lines());
    lines
}
