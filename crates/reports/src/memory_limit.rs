//! Whether a program survives the limit of its memory control group, in words.

use hksim_linux_mm::{MemoryLimit, OutOfMemory};
use hksim_policy::PAGE_BYTES;
use hksim_results::replay::LimitedReport;
use hksim_text::units::{bytes, count, of, time};

/// The lines about a limit.
pub fn lines(limit: &MemoryLimit) -> Vec<String> {
    let mut lines = vec![outcome(limit)];
    lines.extend(limit.least_limit_bytes.map(least));
    let met = &limit.pressure;
    let refused = || format!("{} did not fit, and smaller ones were used", of(met.folios_refused, "large folio"));
    let reclaimed = || format!("{} freed by MADV_FREE were reclaimed", bytes(met.lazy_free_bytes_reclaimed));
    let split = || format!("{} split for their unmapped pages", of(met.folios_split, "large folio"));
    let pressure: Vec<String> = [
        (met.folios_refused > 0).then(refused),
        (met.lazy_free_bytes_reclaimed > 0).then(reclaimed),
        (met.folios_split > 0).then(split),
    ]
    .into_iter()
    .flatten()
    .collect();
    lines.extend((!pressure.is_empty()).then(|| format!("at the limit: {}", pressure.join("; "))));
    lines
}

/// What became of a replay under a limit.
pub fn replayed(report: &LimitedReport) -> String {
    let size = bytes(report.limit_bytes);
    let outcome = match (&report.skipped, report.event) {
        (Some(reason), _) => format!("skipped: {reason}"),
        (None, Some(event)) => format!("killed at event {}", count(event)),
        (None, None) => "survives".to_string(),
    };
    format!("{} on a memory limit of {size} for its heap: {outcome}\n", report.allocator)
}

fn outcome(limit: &MemoryLimit) -> String {
    let size = bytes(limit.limit_bytes);
    let Some(OutOfMemory { page, bytes: needed }) = limit.pressure.out_of_memory else {
        return format!("memory limit {size}: survives; at most {} charged", bytes(limit.pressure.charged_bytes_peak));
    };
    let event = limit.event.map_or(String::new(), |event| format!(" at event {}", count(event)));
    let moment = limit.moment_ns.map_or(String::new(), |ns| format!(", {}", time(ns)));
    let by = limit.by.as_ref().map_or(String::new(), |by| format!(", by {by}"));
    let page = page.map_or(String::new(), |page| format!(" for the page at {:#x}", page * PAGE_BYTES));
    format!(
        "memory limit {size}: killed{event}{moment}{by}: {} would be charged{page}; other figures are those with the \
         limit lifted there",
        bytes(needed)
    )
}

fn least(least_bytes: u64) -> String {
    format!("limits from {} ({} pages) on are survived", bytes(least_bytes), count(least_bytes / PAGE_BYTES))
}
