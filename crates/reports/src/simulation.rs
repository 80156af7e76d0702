//! The figures of a simulation as text.

use hksim_explore::runs::BRACKET;
use hksim_policy::PAGE_BYTES;
use hksim_sim::SimReport;
use hksim_sim::forks::ForkReport;
use hksim_sim::miss_curves::{MissCurves, MissPoint};
use hksim_sim::reach::{ReachSample, TlbReport};
use hksim_text::table::{Table, beside};
use hksim_text::units::{bytes, count, percent};
use serde::Serialize;
use serde_json::Value;

use crate::{khugepaged, memory_limit};

/// All figures, each group below an empty line, in tables of at most this many columns.
pub fn lines<P>(report: &SimReport<P>, columns: Option<usize>) -> Vec<String> {
    let fitted = |table: Table| table.fitted(columns.unwrap_or(usize::MAX));
    let mut lines = vec![String::new()];
    lines.extend(beside(&fitted(installs(report)), &fitted(memory(report))));
    lines.push(String::new());
    lines.extend(beside(&fitted(reasons(report)), &fitted(calls(report))));
    lines.extend(khugepaged::lines(report));
    lines.extend(report.memory_limit.iter().flat_map(memory_limit::lines));
    lines.extend(forks(&report.forks));
    if !report.by_touch_rule.is_empty() {
        lines.push(String::new());
        lines.extend(fitted(bracket(report)));
    }
    if let Some(tlb) = &report.tlb {
        lines.extend([String::new(), format!("TLB of {} ({})", tlb.core.name, tlb.core.source)]);
        lines.extend(fitted(reach(tlb)));
        lines.extend(misses(tlb, &fitted));
    }
    lines
}

/// Installs by kind, with the floor.
fn installs<P>(report: &SimReport<P>) -> Table {
    let total = report.installs.total;
    let mut table = Table::new(["installs by kind", "", ""], &[0]);
    for (name, installs) in counts(&report.installs.by_kind) {
        table.push([name, count(installs), percent(installs, total)]);
    }
    table.push(["total".to_string(), count(total), String::new()]);
    table.push(["faults".to_string(), count(report.faults), String::new()]);
    table.push(["traps".to_string(), count(report.traps), String::new()]);
    table.push(["floor: pages of live bytes".to_string(), count(report.floor_pages), String::new()]);
    table.push(["floor: pages of touched bytes".to_string(), count(report.floor_touched_pages), String::new()]);
    table
}

/// Installs by reason.
fn reasons<P>(report: &SimReport<P>) -> Table {
    let mut table = Table::new(["installs by reason", "", ""], &[0]);
    for (name, installs) in counts(&report.installs.by_reason) {
        table.push([name, count(installs), percent(installs, report.installs.total)]);
    }
    table
}

/// Whether the allocator has SuperSlabs, and figures about them.
fn has_superslabs<P>(report: &SimReport<P>) -> bool {
    report.superslabs_peak > 0
}

/// Residency, huge pages, mappings.
fn memory<P>(report: &SimReport<P>) -> Table {
    let mut table = Table::new(["memory", ""], &[0]);
    let floor = report.floor_pages * PAGE_BYTES;
    let ratio = if floor == 0 { "-".into() } else { format!("{:.2}", report.rss_bytes_peak as f64 / floor as f64) };
    let rows = [
        ("RSS peak", bytes(report.rss_bytes_peak)),
        ("RSS end", bytes(report.rss_bytes_end)),
        ("live bytes peak", bytes(report.live_bytes_peak)),
        ("RSS peak / floor", ratio),
        ("in huge pages, of RSS peak", percent(huge_bytes_peak(report), report.rss_bytes_peak)),
        ("THP peak", count(report.huge_pages_peak)),
        ("hugetlb peak", bytes(report.hugetlb_bytes_peak)),
        ("PMD splits", count(report.pmd_splits)),
        ("SuperSlabs peak", count(report.superslabs_peak)),
        ("VMAs peak", count(report.vmas_peak)),
        ("page tables peak", bytes(report.page_table_bytes_peak)),
    ];
    let is_had = |(name, _): &(&str, String)| has_superslabs(report) || *name != "SuperSlabs peak";
    rows.into_iter().filter(is_had).for_each(|(name, value)| table.push([name.to_string(), value]));
    table
}

/// OS calls, and failures.
fn calls<P>(report: &SimReport<P>) -> Table {
    let mut table = Table::new(["OS calls", ""], &[0]);
    for (name, calls) in counts(&report.os_calls) {
        table.push([name, count(calls)]);
    }
    table.push(["requests failed".to_string(), count(report.requests_failed)]);
    if has_superslabs(report) {
        table.push(["fallbacks to THP".to_string(), count(report.fallbacks.to_thp)]);
        table.push(["fallbacks to 4K pages".to_string(), count(report.fallbacks.to_4k)]);
    }
    if report.addresses.is_some() {
        table.push(["fallbacks to trimming".to_string(), count(report.fallbacks.to_trim)]);
    }
    table
}

/// The cost of children: one line for each of the first few, and the total.
fn forks(forks: &[ForkReport]) -> Vec<String> {
    const ROWS_MAX: usize = 8;
    let mut lines: Vec<String> = forks.iter().take(ROWS_MAX).map(fork).collect();
    if forks.len() > ROWS_MAX {
        let sum = |of: fn(&ForkReport) -> u64| forks.iter().map(of).sum::<u64>();
        lines.push(format!(
            "all {} forks: {} copied by {} writes, {} huge pages split, {} faults that only restored write permission",
            count(forks.len() as u64),
            bytes(sum(|fork| fork.copied_bytes)),
            count(sum(|fork| fork.cow_copies)),
            count(sum(|fork| fork.pmd_splits)),
            count(sum(|fork| fork.cow_reuses))
        ));
    }
    lines
}

/// The cost of a child.
fn fork(fork: &ForkReport) -> String {
    let until = fork.until_event.map_or("to the end".into(), |event| format!("to event {}", count(event)));
    let huge = match fork.shared_huge_pages + fork.shared_hugetlb_pages {
        0 => String::new(),
        huge => format!(" and {} huge ones", count(huge)),
    };
    format!(
        "fork after event {}, {until}: {} pages{huge} shared, page tables {}; {} copied by {} writes, {} huge pages split, \
         {} faults that only took a permission back",
        count(fork.from_event),
        count(fork.shared_pages),
        bytes(fork.page_table_bytes),
        bytes(fork.copied_bytes),
        count(fork.cow_copies),
        count(fork.pmd_splits),
        count(fork.cow_reuses)
    )
}

/// The figures under other touch rules.
fn bracket<P>(report: &SimReport<P>) -> Table {
    let mut table = Table::new(["if the program touches", "installs", "faults", "RSS peak"], &[0]);
    for rule in BRACKET {
        let Some(figures) = report.by_touch_rule.get(rule.word()) else { continue };
        let mark = if rule == report.touch.rule { " (above)" } else { "" };
        let name = format!("{}{mark}", rule.word());
        table.push([name, count(figures.installs), count(figures.faults), bytes(figures.rss_bytes_peak)]);
    }
    table
}

/// The part of the live set that the TLB covers; JSON has every point.
fn reach(tlb: &TlbReport) -> Table {
    const ROWS_MAX: usize = 6;
    let head =
        ["TLB reach, after event", "live 4K pages", "live huge pages", "in huge pages", "L1 covers", "L2 covers"];
    let mut table = Table::new(head, &[]);
    let step = tlb.reach.len().div_ceil(ROWS_MAX).max(1);
    // Counted from the end, so that the last point is shown.
    let shown: Vec<&ReachSample> = tlb.reach.iter().rev().step_by(step).collect();
    for sample in shown.into_iter().rev() {
        let share = |share: f64| format!("{:.1} %", share * 100.0);
        table.push([
            count(sample.event),
            count(sample.live.base_pages),
            count(sample.live.huge_pages),
            share(sample.huge_coverage),
            share(sample.l1.live_share_covered),
            share(sample.l2.live_share_covered),
        ]);
    }
    table
}

/// TLB misses, or why they are unknown.
fn misses(tlb: &TlbReport, fitted: &dyn Fn(Table) -> Vec<String>) -> Vec<String> {
    let Some(misses) = &tlb.lookups else {
        return vec![format!("TLB misses: skipped: {}", tlb.lookups_skipped.unwrap_or_default())];
    };
    let mut table = Table::new(["TLB, accesses by", "L1 hits", "L2 hits", "misses", ""], &[0]);
    for (name, counts) in [("application", misses.application), ("allocator", misses.allocator)] {
        let all = counts.l1_hits + counts.l2_hits + counts.misses;
        let figures = [counts.l1_hits, counts.l2_hits, counts.misses].map(count);
        table.push([name.to_string()].into_iter().chain(figures).chain([percent(counts.misses, all)]));
    }
    let tables = [Some(table), tlb.miss_curves.as_ref().map(miss_curves)];
    tables.into_iter().flatten().flat_map(|table| [vec![String::new()], fitted(table)].concat()).collect()
}

/// Misses by size, for a few sizes.
fn miss_curves(curves: &MissCurves) -> Table {
    const SHOWN: [usize; 5] = [16, 64, 256, 1024, 4096];
    // A curve ends where more entries no longer help.
    let at = |curve: &[MissPoint], entries: usize| {
        let point = curve.iter().find(|point| point.entries >= entries).or(curve.last());
        point.map_or_else(String::new, |point| count(point.misses))
    };
    let mut table = Table::new(["entries, any place, LRU", "misses as mapped", "all 4K", "all 2M"], &[0]);
    for entries in SHOWN {
        let misses = [&curves.as_mapped, &curves.all_4k, &curves.all_2m].map(|curve| at(curve, entries));
        table.push(std::iter::once(entries.to_string()).chain(misses));
    }
    table
}

/// The named counts of a part of the report that are not 0, in its order.
fn counts(part: &impl Serialize) -> Vec<(String, u64)> {
    let Ok(Value::Object(fields)) = serde_json::to_value(part) else { return Vec::new() };
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.replace('_', " "), value.as_u64()?)));
    fields.filter(|(_, count)| *count > 0).collect()
}

/// Peak bytes in THPs and hugetlb pages. The peaks may be at different times, so the sum is limited to the peak RSS.
pub fn huge_bytes_peak<P>(report: &SimReport<P>) -> u64 {
    let thp = report.huge_pages_peak.saturating_mul(hksim_policy::HUGE_PAGE_BYTES);
    thp.saturating_add(report.hugetlb_bytes_peak).min(report.rss_bytes_peak)
}
