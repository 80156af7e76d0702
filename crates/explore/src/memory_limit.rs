//! Completes what simulations say about the limit of a memory control group: the call that exceeded it, and the least
//! limit that the program survives.

use hksim_linux_mm::{KernelConfig, MemoryLimit, least_limit};
use hksim_sim::{SimConfig, SimError, SimReport};
use hksim_text::units::bytes;
use hksim_trace::error::TraceError;
use hksim_trace::event::Event;
use hksim_trace::row::Row;

use crate::described::Described;
use crate::inputs::Trace;

/// Limits that are simulated in one pass over the trace: they share their placements.
const LIMITS_AT_A_TIME: u64 = 16;

/// Completes the reports of setups on a trace. Reports without a limit stay as they are.
///
/// # Errors
/// The trace is damaged, or a simulation fails.
pub fn complete<P: Described>(
    trace: &Trace,
    setups: &[SimConfig<P>],
    reports: &mut [SimReport<P>],
) -> Result<(), SimError> {
    let mut known: Vec<(&SimConfig<P>, u64)> = Vec::new();
    for (setup, report) in setups.iter().zip(reports) {
        let Some(limit) = &mut report.memory_limit else { continue };
        if let Some((event, call)) = limit.event.map(|number| event_at(trace, number)).transpose()?.flatten() {
            limit.moment_ns = Some(event.time_ns);
            limit.by = Some(format!("{} in {call}", limit.by.as_deref().unwrap_or_default()));
        }
        let least = match known.iter().find(|(other, _)| differ_in_limit_only(other, setup)) {
            Some(&(_, least)) => least,
            None => least_limit_bytes(trace, setup)?,
        };
        known.push((setup, least));
        limit.least_limit_bytes = Some(least);
    }
    Ok(())
}

/// The least limit that a setup survives on a trace (see [`least_limit`]).
///
/// # Errors
/// The trace is damaged, or a simulation fails.
pub fn least_limit_bytes<P: Described>(trace: &Trace, setup: &SimConfig<P>) -> Result<u64, SimError> {
    let under = |limits: &[u64]| -> Result<Vec<MemoryLimit>, SimError> {
        let limited = |&limit_bytes| SimConfig { kernel: limited(&setup.kernel, limit_bytes), ..setup.clone() };
        let setups: Vec<SimConfig<P>> = limits.iter().map(limited).collect();
        let reports = P::sweep(&trace.input, &setups, &(), &|_, _| {})?;
        Ok(reports.into_iter().filter_map(|report| report.memory_limit).collect())
    };
    let unlimited = under(&[u64::MAX])?;
    let peak_bytes = unlimited.iter().map(|met| met.pressure.charged_bytes_peak).max().unwrap_or_default();
    let pages = least_limit(0, peak_bytes / hksim_linux_mm::PAGE_BYTES, LIMITS_AT_A_TIME, |pages| {
        let limits: Vec<u64> = pages.iter().map(|pages| pages * hksim_linux_mm::PAGE_BYTES).collect();
        Ok::<_, SimError>(under(&limits)?.iter().map(MemoryLimit::survives).collect())
    })?;
    Ok(pages * hksim_linux_mm::PAGE_BYTES)
}

fn limited(kernel: &KernelConfig, limit_bytes: u64) -> KernelConfig {
    KernelConfig { memory_limit_bytes: Some(limit_bytes), ..kernel.clone() }
}

fn differ_in_limit_only<P: Described>(one: &SimConfig<P>, other: &SimConfig<P>) -> bool {
    let program =
        |config: &SimConfig<P>| (config.policy.clone(), config.touch, config.memory_policy, config.forks.clone());
    program(one) == program(other) && limited(&one.kernel, 0) == limited(&other.kernel, 0)
}

/// The event with a number, from 1, and its call in words. `None` if the trace ends before it.
fn event_at(trace: &Trace, number: u64) -> Result<Option<(Event, String)>, TraceError> {
    let mut source = (trace.input.open)()?;
    let mut passed = 0;
    while let Some(batch) = source.next_batch()? {
        let here = number.checked_sub(passed + 1).and_then(|index| batch.get(index as usize));
        if let Some(&event) = here {
            return Ok(Some((event, words(&event))));
        }
        passed += batch.len() as u64;
    }
    Ok(None)
}

fn words(event: &Event) -> String {
    let row = Row::of(event);
    let size = row.size.map_or(String::new(), |size| format!(" of {}", bytes(size)));
    let site = row.site.filter(|&site| site != 0).map_or(String::new(), |site| format!(", call site {site}"));
    format!("{}{size} by thread {}{site}", row.call.unwrap_or(row.op), event.thread.0)
}
