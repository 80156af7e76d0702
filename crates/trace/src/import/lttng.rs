//! Events of LTTng's libc wrapper, as `babeltrace2` prints them:
//! `[TIME] (+DELTA) HOST lttng_ust_libc:NAME: { cpu_id = 1 }, { vpid = 7, vtid = 7 }, { FIELDS }`.

use super::Format;
use super::calls::{Function, number};
use super::failure::Failure;
use super::input::{Head, Input, Lines};
use super::sink::Sink;
use super::times::{Days, seconds_ns, time_of_day_ns};
use crate::event::AllocCall;
use crate::header::Clock;
use crate::resolve::{RawOp, WaitLimits};
use std::collections::BTreeSet;

pub(super) const FORMAT: Format = Format {
    name: "lttng",
    recognise: |head: &Head| head.lines().any(|line| line.contains(PROVIDER)),
    clock: |_| Clock::Measured,
    window: WaitLimits::UNLOCKED_STAMPS,
    unknown: &[
        "calls of aligned_alloc, valloc, pvalloc and C++'s aligned operator new, which the wrapper does not record",
    ],
    convert,
};

const PROVIDER: &str = " lttng_ust_libc:";

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    let mut days = Days::default();
    let mut threadless = false;
    let mut names = BTreeSet::new();
    let mut processless = false;
    while let Some(line) = input.line(Lines::Mixed)? {
        let Some((before, event)) = line.split_once(PROVIDER) else {
            match discarded(line) {
                Some(events) => sink.quality.events_lost = sink.quality.events_lost.saturating_add(events),
                None => sink.quality.foreign_lines += 1,
            }
            continue;
        };
        let time_ns = time_ns(before, &mut days).ok_or("the line does not begin with a time in brackets")?;
        let (name, fields) = event.split_once(": ").ok_or("expected `NAME: { FIELDS }`")?;
        let Some(op) = op(name, fields)? else {
            sink.quality.foreign_lines += 1;
            continue;
        };
        let (pid, tid) = (field(fields, "vpid"), field(fields, "vtid"));
        threadless |= tid.is_none();
        if pid.is_none() {
            processless = true;
            note_name(fields, &mut names);
        }
        if pid.is_none_or(|pid| sink.takes_process(pid)) {
            sink.push_at(time_ns, tid.or(pid).unwrap_or(0), op)?;
        }
    }
    let remedy = "record with `lttng add-context -u -t vpid -t vtid`";
    if names.len() > 1 {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        sink.doubt(format!("events of several processes or threads ({}) do not say their process (vpid), so their addresses mix: {remedy}", names.join(", ")));
    } else if processless {
        sink.note(format!("the trace does not distinguish processes: if there were several, {remedy}"));
    }
    if threadless {
        sink.note(format!("the trace does not distinguish threads: {remedy}"));
    }
    Ok(())
}

/// `[HH:MM:SS.NNNNNNNNN]`, optionally with a date before the time, or `[SECONDS.NNNNNNNNN]`.
fn time_ns(before: &str, days: &mut Days) -> Option<u64> {
    let stamp = before.split_once('[')?.1.split_once(']')?.0;
    let time = stamp.rsplit(' ').next()?;
    match time_of_day_ns(time) {
        Some(of_day_ns) => Some(days.time_ns(of_day_ns)),
        None => seconds_ns(time),
    }
}

/// Adds the name in `procname = "NAME"`, up to a limit.
fn note_name(fields: &str, names: &mut BTreeSet<String>) {
    const NAMES_MAX: usize = 4;
    let name = fields.split_once("procname = \"").and_then(|(_, rest)| rest.split_once('"'));
    if let Some((name, _)) = name
        && names.len() < NAMES_MAX
        && !names.contains(name)
    {
        names.insert(name.to_string());
    }
}

/// The number after `name = `.
fn field(fields: &str, name: &str) -> Option<u64> {
    fields.split([',', '{', '}']).find_map(|field| {
        let (found, value) = field.split_once('=')?;
        (found.trim() == name).then(|| number(value.trim()))?
    })
}

/// The call of an event; `None` for an event that is not a supported call.
fn op(name: &str, fields: &str) -> Result<Option<RawOp>, Failure> {
    let Some(function) = Function::named(name) else { return Ok(None) };
    let names: &[&str] = match function {
        Function::Alloc(_) => &["size"],
        Function::Calloc => &["nmemb", "size"],
        Function::Aligned(_) => &["alignment", "size"],
        Function::Realloc => &["in_ptr", "size"],
        Function::Free => &["ptr"],
        Function::AlignedNew | Function::Reallocarray | Function::UsableSize => return Ok(None),
    };
    let get = |name: &str| field(fields, name).ok_or("a field is missing or not a number");
    let mut arguments = [0; 3];
    for (to, name) in arguments.iter_mut().zip(names) {
        *to = get(name)?;
    }
    let result = match function {
        Function::Free => 0,
        Function::Aligned(AllocCall::PosixMemalign) if get("result")? != 0 => 0,
        Function::Aligned(AllocCall::PosixMemalign) => get("out_ptr")?,
        _ => get("ptr")?,
    };
    Ok(Some(function.op(arguments, result)?))
}

/// babeltrace2's `Tracer discarded N events between ...`, and the older `... discarded N events`.
fn discarded(line: &str) -> Option<u64> {
    let mut words = line.split_once(" discarded ")?.1.split(' ');
    let count = words.next()?.parse().ok()?;
    words.next()?.starts_with("event").then_some(count)
}
