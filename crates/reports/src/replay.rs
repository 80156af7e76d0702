//! A replay as text.

use hksim_explore::described::allocator_lines;
use hksim_explore::origin::origin_text;
use hksim_results::replay::{ReplayReport, nanoseconds};
use hksim_text::table::{Table, beside, text};
use hksim_text::units::{bytes, count};
use hksim_timing::Estimate;

use crate::comparison::shared_core;

/// The whole report, in tables of at most this many columns.
pub fn table(report: &ReplayReport, columns: Option<usize>) -> String {
    let columns = columns.unwrap_or(usize::MAX);
    let mut lines = head(report);
    lines.push(String::new());
    lines.extend(beside(&measured(report).fitted(columns), &run(report).fitted(columns)));
    lines.extend(
        report.replayed.environment.modes_changed.iter().map(|change| format!("changed during the replay: {change}")),
    );
    lines.extend(shared_core(report.core_shared_share));
    lines.extend(report.replayed.rss_bytes_start.map(|start| {
        format!(
            "RSS is growth: {} of the process were resident before the first call, and blocks that lie there add nothing",
            bytes(start)
        )
    }));
    lines.extend(
        report
            .replayed
            .startup_bytes
            .filter(|&startup| startup > 0)
            .map(|startup| format!("RSS contains {} that the allocator took before the first call", bytes(startup))),
    );
    for skipped in &report.replayed.skipped {
        lines.push(format!("skipped: {}: {}", skipped.figure, skipped.reason));
    }
    text(&lines)
}

fn head(report: &ReplayReport) -> Vec<String> {
    let file = report.trace.file.as_deref().unwrap_or_default();
    let events = count(report.replayed.events);
    let mut lines = vec![format!("trace    {file}, {}; {events} events", origin_text(&report.trace.origin))];
    let mode = format!("{:?}", report.mode).to_lowercase();
    lines.push(format!("on       {}, {mode}", report.allocator));
    if let Some(design) = &report.policy {
        lines.extend(allocator_lines(design));
    }
    if let Some(design) = &report.design {
        lines.extend(allocator_lines(design));
    }
    lines.push(format!("touches  {}", report.touch.rule.word()));
    lines.extend(report.replayed.addresses.as_deref().and_then(addresses));
    lines
}

/// Where the kernel placed the mappings of SuperSlabs.
fn addresses(given: &[u64]) -> Option<String> {
    let (lowest, highest) = (given.iter().min()?, given.iter().max()?);
    Some(format!(
        "mappings {} at addresses chosen by the kernel, {lowest:#x} to {highest:#x} (--format json has all)",
        count(given.len() as u64)
    ))
}

/// The kernel's figures; `-` if not measured.
fn measured(report: &ReplayReport) -> Table {
    let replayed = &report.replayed;
    let counted = |figure: Option<u64>| figure.map_or("-".to_string(), count);
    let sized = |figure: Option<u64>| figure.map_or("-".to_string(), bytes);
    let mut table = Table::new(["measured", ""], &[0]);
    let mut push = |name: &str, value: String| table.push([name.to_string(), value]);
    if let Some(installs) = &replayed.installs {
        let kinds = &installs.by_kind;
        let kinds = [
            ("4K", kinds.base_4k),
            ("mTHP", kinds.mthp),
            ("THP", kinds.thp),
            ("hugetlb", kinds.hugetlb),
            ("zero", kinds.zero),
            ("COW", kinds.cow),
        ];
        for (name, installs) in kinds.into_iter().filter(|(_, installs)| *installs > 0) {
            push(&format!("installs {name}"), count(installs));
        }
    }
    push("installs", counted(replayed.installs.map(|installs| installs.total)));
    push("faults", counted(replayed.faults));
    push("traps", counted(replayed.traps));
    push("RSS peak", sized(replayed.rss_bytes_peak));
    push("RSS end", sized(replayed.rss_bytes_end));
    push("VMAs peak", counted(replayed.vmas_peak));
    push("page tables peak", sized(replayed.page_table_bytes_peak));
    table
}

/// Times and failures of the run.
fn run(report: &ReplayReport) -> Table {
    let replayed = &report.replayed;
    let mut table = Table::new(["run", ""], &[0]);
    let mut push = |name: &str, value: String| table.push([name.to_string(), value]);
    let times = &report.times;
    let per_call = |time: &Option<Estimate>| time.as_ref().map_or("-".to_string(), nanoseconds) + " ns/call";
    push("processor time", per_call(&times.cpu_ns_per_call));
    push("in user mode", per_call(&times.user_ns_per_call));
    push("in the kernel", per_call(&times.system_ns_per_call));
    push("timed runs", count(u64::from(times.rounds)));
    push("speed", replayed.ops_per_s.map_or("-".to_string(), |ops| format!("{:.2} M calls/s", ops / 1e6)));
    if let Some(events) = &replayed.dtlb {
        let events = [
            ("dTLB loads", events.loads),
            ("dTLB load misses", events.load_misses),
            ("dTLB store misses", events.store_misses),
        ];
        events.into_iter().for_each(|(name, events)| push(name, events.map_or("-".to_string(), count)));
    }
    if let Some(calls) = &replayed.os_calls {
        let calls =
            [("mmap", calls.mmap), ("munmap", calls.munmap), ("madvise", calls.madvise), ("mremap", calls.mremap)];
        calls.into_iter().for_each(|(name, calls)| push(name, count(calls)));
    }
    push("OS calls failed", replayed.os_calls_failed.map_or("-".to_string(), count));
    if let Some(fallbacks) = &replayed.fallbacks.filter(|fallbacks| fallbacks.values() != [0; 3]) {
        push("fallbacks to THP", count(fallbacks.to_thp));
        push("fallbacks to 4K pages", count(fallbacks.to_4k));
        push("fallbacks to trimming", count(fallbacks.to_trim));
    }
    push("requests failed", count(replayed.requests_failed));
    push("control: faults without a heap", count(replayed.control.faults));
    push("control: traps without a heap", replayed.control.traps.map_or("-".to_string(), count));
    if let Some(pages) = replayed.unclassified_pages.filter(|&pages| pages > 0) {
        push("unclassified pages", count(pages));
    }
    table
}
