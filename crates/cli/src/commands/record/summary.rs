//! The summary that `hksim record` prints at the end.

use std::path::Path;

use hksim_record::control::EndReason;
use hksim_record::{Attachment, Exit, Probed, RecordReport, RecordedTrace, Touches};
use hksim_reports::trace_info::quality_lines;

use crate::output::plain;
use crate::output::table::{self, Lines, Table};
use crate::output::trace::totals as totals_of_trace;
use crate::output::units;

/// Maximum number of processes listed; a shell script can start hundreds.
const TRACES_SHOWN: usize = 20;
/// Maximum characters of a command line.
const COMMAND_SHOWN: usize = 48;

/// Whether the program succeeded, and everything that it did was recorded.
pub fn is_as_expected(report: &RecordReport) -> bool {
    let RecordReport { unrecorded_processes, seccomp_processes, damaged, static_malloc, probed, .. } = report;
    let has_foreign_arguments =
        probed.iter().flat_map(|probed| &probed.functions).any(|function| function.impossible_calls > 0);
    let is_lossless = report.traces.iter().all(|trace| trace.quality.events_lost == 0 && trace.quality.sites_lost == 0);
    matches!(report.exit, Some(Exit::Code(0)))
        && is_lossless
        && !has_foreign_arguments
        && *unrecorded_processes == 0
        && *seccomp_processes == 0
        && damaged.is_empty()
        && static_malloc.is_empty()
        && report.unseen_programs.is_empty()
        && report.outliving.is_empty()
        && report.unseen_operators.is_empty()
        && report.unseen_calls.is_empty()
        && report.session_kept.is_none()
        && report.preload_object_kept.is_none()
}

/// The summary, as lines.
pub fn text(report: &RecordReport) -> String {
    let mut text = String::new();
    match report.exit {
        Some(Exit::Code(0)) | None => (),
        Some(Exit::Code(code)) => text += &format!("the program exited with {code}\n"),
        Some(Exit::Signal(signal)) => text += &format!("signal {signal} ended the program\n"),
    }
    match report.end_reason {
        Some(EndReason::Duration) => text += "the recording ended at --duration, before the program\n",
        Some(EndReason::Size) => text += "the recording ended at --max-size, before the program\n",
        Some(EndReason::Request | EndReason::Recorder) | None => (),
    }
    if let Some((own, others)) = report.traces.split_first() {
        let path = own.path.to_string_lossy();
        text += &format!("{}: {}\n", plain(&path), totals_of_trace(own.events, own.threads, own.objects_peak));
        text += &quality_lines(&own.quality);
        text += &touch_lines(own.touches.as_ref());
        if !others.is_empty() {
            text += &beside(others);
        }
        text += &totals(report);
    }
    text + &attached(report) + &probed(report) + &left_running(report) + &unseen(report)
}

fn touch_lines(touches: Option<&Touches>) -> String {
    let Some(touches) = touches else {
        return String::new();
    };
    let [reads, writes, events] = [touches.reads, touches.writes, touches.events].map(units::count);
    let mut text = format!("accesses to live blocks: {reads} reads, {writes} writes, in {events} events\n");
    if touches.calls_without_stream > 0 {
        let calls = units::count(touches.calls_without_stream);
        text += &format!("accesses of the last {calls} calls are missing\n");
    }
    text
}

fn beside(others: &[RecordedTrace]) -> String {
    let count = others.len();
    let folder = others.first().and_then(|trace| trace.path.parent()).unwrap_or(Path::new(""));
    let mut text = format!(
        "in {}: {count} {} of other processes and programs\n",
        plain(&folder.to_string_lossy()),
        plural(count, "trace", "traces")
    );
    let mut table = Table::new(["trace", "events", "threads", "lost", "command"], &[0, 4]);
    for trace in others.iter().take(TRACES_SHOWN) {
        let name = trace.path.file_name().unwrap_or_default().to_string_lossy();
        let how = if trace.forked { "forked: " } else { "" };
        table.push([
            plain(&name).into_owned(),
            units::count(trace.events),
            trace.threads.to_string(),
            units::count(trace.quality.events_lost),
            format!("{how}{}", shortened(&trace.command.join(" "))),
        ]);
    }
    text += &table::text(&table.lines());
    if let Some(more) = count.checked_sub(TRACES_SHOWN).filter(|&more| more > 0) {
        text += &format!("and {more} more; --format json lists all\n");
    }
    text
}

fn shortened(command: &str) -> String {
    let plain = command.replace(char::is_control, " ");
    match plain.char_indices().nth(COMMAND_SHOWN) {
        Some((end, _)) => format!("{}...", plain.get(..end).unwrap_or_default()),
        None => plain,
    }
}

/// The totals of all traces.
fn totals(report: &RecordReport) -> String {
    let sum = |of: fn(&RecordedTrace) -> u64| report.traces.iter().map(of).sum::<u64>();
    let (events, bytes) = (sum(|trace| trace.events), sum(|trace| trace.trace_bytes));
    let mut pids: Vec<u32> = report.traces.iter().map(|trace| trace.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    let ahead = match report.events_converted_live {
        0 => String::new(),
        ahead => format!(" ({} while the program ran)", units::of(ahead, "event")),
    };
    let time = report.recorded_s.map_or(String::new(), |seconds| format!(" in {seconds:.2} s"));
    format!(
        "all: {} events of {} {}{time}; {}, {:.2} bytes per event, written in {:.2} s{}; {} lost{}, {} frees inserted\n",
        units::count(events),
        pids.len(),
        plural(pids.len(), "process", "processes"),
        units::bytes(bytes),
        bytes as f64 / events.max(1) as f64,
        report.converted_s,
        ahead,
        units::count(sum(|trace| trace.quality.events_lost)),
        missing(report),
        units::count(sum(|trace| trace.quality.reuse_repaired)),
    )
}

/// What the count of lost events does not include.
fn missing(report: &RecordReport) -> String {
    let programs = report.unseen_programs.len() + usize::from(has_executed(report));
    let processes = report.outliving.len();
    let mut parts = Vec::new();
    if programs > 0 {
        parts.push(format!("{programs} {} without the recorder", plural(programs, "program", "programs")));
    }
    if processes > 0 {
        parts.push(format!("{processes} {}", plural(processes, "process that still runs", "processes that still run")));
    }
    if parts.is_empty() { String::new() } else { format!(" besides {}", parts.join(" and ")) }
}

/// Whether the process to which the recorder attached executed another program.
fn has_executed(report: &RecordReport) -> bool {
    report.attached.is_some_and(|attached| attached.executed)
}

/// What a process to which the recorder attached keeps.
fn attached(report: &RecordReport) -> String {
    let Some(Attachment { pid, restored, executed, .. }) = report.attached else { return String::new() };
    if executed {
        return format!(
            "process {pid} ran already: blocks from before are unknown; it executed another program meanwhile, which is not \
             recorded: the trace ends there\n"
        );
    }
    let now = if restored { "" } else { "; its calls go through it until its next call" };
    format!(
        "process {pid} ran already: blocks from before are unknown, and so are calls through function pointers obtained \
         before; it keeps the recorder's library loaded, idle{now}\n"
    )
}

/// What the probes on functions saw, and what they cost.
fn probed(report: &RecordReport) -> String {
    let Some(Probed { pid, functions, call_cost_ns, records_lost, foreign_calls }) = &report.probed else {
        return String::new();
    };
    let mut text = format!(
        "process {pid} ran already: blocks from before are unknown; its probes are removed\n\
         a probed call and its return took about {} longer than unprobed (measured on hksim itself)\n",
        units::time(*call_cost_ns as u64)
    );
    let mut table = Table::new(["function", "recorded as", "calls", "file"], &[0, 1, 3]);
    for function in functions {
        let file = plain(&function.file).into_owned();
        table.push([plain(&function.name).into_owned(), function.role.into(), units::count(function.calls), file]);
    }
    text += &table::text(&table.lines());
    for function in functions.iter().filter(|function| function.impossible_calls > 0) {
        text += &format!(
            "{}: {} are left out, since their arguments are not those of {}; give the number of its first argument \
             ({}={}@2), or another role\n",
            plain(&function.name),
            units::of(function.impossible_calls, "call"),
            function.role,
            plain(&function.name),
            function.role
        );
    }
    if *records_lost > 0 {
        text += &format!(
            "{} did not reach hksim in time, each an entry or a return; the trace says where blocks are in doubt\n",
            units::of(*records_lost, "record")
        );
    }
    if *foreign_calls > 0 {
        text += &format!(
            "{} of other processes that execute the same files were slowed, and are left out\n",
            units::of(*foreign_calls, "call")
        );
    }
    text
}

/// Processes that still run, and the preloaded object that is kept for them.
fn left_running(report: &RecordReport) -> String {
    let mut text = String::new();
    let own = report.attached.map(|attached| attached.pid).or(report.probed.as_ref().map(|probed| probed.pid));
    let is_expected = |trace: &&RecordedTrace| own == Some(trace.pid);
    let running: Vec<&RecordedTrace> =
        report.traces.iter().filter(|trace| trace.still_running && !is_expected(trace)).collect();
    for trace in running.iter().take(TRACES_SHOWN) {
        let command = shortened(&trace.command.join(" "));
        text += &format!(
            "process {}, `{command}`, still runs: its trace ends here, and it is no longer recorded\n",
            trace.pid
        );
    }
    if let Some(more) = running.len().checked_sub(TRACES_SHOWN).filter(|&more| more > 0) {
        text += &format!("and {more} more still run\n");
    }
    if let Some(object) = &report.preload_object_kept {
        let object = object.to_string_lossy();
        text += &format!("{} is kept for processes that still run; a later hksim record removes it\n", plain(&object));
    }
    text
}

/// Logs that cannot be read.
fn damaged(report: &RecordReport) -> String {
    let lines = report.damaged.iter().map(|spool| {
        let path = spool.path.to_string_lossy();
        format!("no trace of {}: damaged at byte {}: {}\n", plain(&path), spool.offset, spool.why)
    });
    let text: String = lines.collect();
    match &report.session_kept {
        Some(session) => text + &format!("the recording is kept in {}\n", plain(&session.to_string_lossy())),
        None => text,
    }
}

/// Known gaps of the recording.
fn unseen(report: &RecordReport) -> String {
    let mut text = damaged(report);
    if report.excluded_processes > 0 {
        let count = report.excluded_processes as usize;
        text += &format!(
            "{count} {} not recorded because of --only or --no-children (each exec of a process counts)\n",
            plural(count, "program", "programs")
        );
    }
    if report.unrecorded_processes > 0 {
        let count = report.unrecorded_processes as usize;
        text += &format!(
            "{count} {} could not be recorded: the trace's file system is full, its permissions or a system-call filter forbid writing, or no file can be opened{}\n",
            plural(count, "process", "processes"),
            listed(&report.unrecorded_pids)
        );
    }
    if report.seccomp_processes > 0 {
        let count = report.seccomp_processes as usize;
        text += &format!(
            "{count} {} installed a system-call filter: programs executed afterwards are not recorded, nor are children \
             that the filter forbids to create files\n",
            plural(count, "process", "processes")
        );
    }
    text += &without_recorder(report);
    for image in report.static_malloc.iter().take(TRACES_SHOWN) {
        let command = shortened(&image.command.join(" "));
        text +=
            &format!("not recorded: process {}, `{command}`: its executable has an allocator of its own\n", image.pid);
    }
    if let Some((first, others)) = report.unseen_operators.split_first() {
        text += &format!(
            "process {} and {} others: their allocator may serve operator new and delete without malloc; record with --operators\n",
            first.pid,
            others.len()
        );
    }
    if !report.unseen_calls.is_empty() {
        let names = report.unseen_calls.join(", ");
        text += &format!("the program calls {names}, which are not recorded\n");
    }
    text
}

/// Programs executed without the recorder, and processes that outlived the program.
fn without_recorder(report: &RecordReport) -> String {
    let mut text = String::new();
    for image in report.unseen_programs.iter().take(TRACES_SHOWN) {
        text += &format!("not recorded: process {}, `{}`\n", image.pid, shortened(&image.command.join(" ")));
    }
    if let Some(more) = report.unseen_programs.len().checked_sub(TRACES_SHOWN).filter(|&more| more > 0) {
        text += &format!("and {more} more programs; --format json lists all\n");
    }
    if !report.unseen_programs.is_empty() {
        text += "a program is not recorded if its environment was cleared, if another LD_PRELOAD replaced the recorder, if it \
                 is static or set-user-ID, or if it ended before the recorder was loaded\n";
    }
    let is_listed = |pid: u32| report.traces.iter().any(|trace| trace.still_running && trace.pid == pid);
    for image in report.outliving.iter().filter(|image| !is_listed(image.pid)).take(TRACES_SHOWN) {
        let command = shortened(&image.command.join(" "));
        text += &format!("process {}, `{command}`, still runs, and is no longer recorded\n", image.pid);
    }
    if let Some(why) = &report.unobserved {
        text += &format!("programs without the recorder are not noticed: {}\n", plain(why));
    }
    text
}

/// The known process ids.
fn listed(pids: &[u32]) -> String {
    if pids.is_empty() { String::new() } else { format!(" {pids:?}") }
}

fn plural<'a>(count: usize, one: &'a str, many: &'a str) -> &'a str {
    if count == 1 { one } else { many }
}
