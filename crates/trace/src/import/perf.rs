//! Output of `perf script` for probes on the allocator functions and their returns:
//! `COMM [PID/]TID [CPU] TIME: probe_libc:malloc: (ADDRESS) size=100` and, later,
//! `COMM [PID/]TID [CPU] TIME: probe_libc:malloc__return: (ADDRESS <- CALLER) result=0x5581a0`.
//!
//! Users name the values as they like, so values are identified by position: their order is that of the function's
//! arguments.

use super::Format;
use super::calls::{Function, number};
use super::failure::Failure;
use super::input::{Head, Input, Lines};
use super::sink::Sink;
use super::times::seconds_ns;
use super::unseen::Unseen;
use crate::event::AllocCall;
use crate::header::Clock;
use crate::resolve::WaitLimits;
use std::collections::HashMap;

pub(super) const FORMAT: Format = Format {
    name: "perf",
    recognise: |head: &Head| head.lines().any(|line| matches!(parse(line), Some(Line::Probe(_)))),
    clock: |_| Clock::Measured,
    window: WaitLimits::UNLOCKED_STAMPS,
    unknown: &[
        "which aligned function was called, if several share an address",
        "addresses of posix_memalign's blocks",
    ],
    convert,
};

const REMEDY: &str = "set the probes with docs/reference/malloc-probes.sh";

/// A parsed line of a probe.
struct Probe<'a> {
    pid: Option<u64>,
    tid: u64,
    time_ns: u64,
    function: Function,
    is_return: bool,
    /// `name=value`, ...
    values: &'a str,
}

enum Line<'a> {
    Probe(Probe<'a>),
    Lost(u64),
}

/// `None` for a line that is neither.
fn parse(line: &str) -> Option<Line<'_>> {
    if let Some((_, lost)) = line.split_once("PERF_RECORD_LOST lost ") {
        return lost.split_whitespace().next()?.parse().ok().map(Line::Lost);
    }
    let (before, event) = line.split_once(" probe_")?;
    let (_, event) = event.split_once(':')?;
    let (name, rest) = event.split_once(": (")?;
    let (_, values) = rest.split_once(')')?;
    let (name, is_return) = name.strip_suffix("__return").map_or((name, false), |name| (name, true));
    let function = Function::named(name.strip_prefix("__libc_").unwrap_or(name))?;
    let mut words = before.split_ascii_whitespace().rev();
    let time_ns = seconds_ns(words.next()?.strip_suffix(':')?)?;
    let thread = words.find(|word| !word.starts_with('['))?;
    let (pid, tid) = match thread.split_once('/') {
        Some((pid, tid)) => (Some(pid.parse().ok()?), tid),
        None => (None, thread),
    };
    Some(Line::Probe(Probe { pid, tid: tid.parse().ok()?, time_ns, function, is_return, values }))
}

/// The first `count` values.
fn values(list: &str, count: usize) -> Option<[u64; 3]> {
    let mut values = [0; 3];
    let mut words = list.split_ascii_whitespace();
    for to in values.iter_mut().take(count) {
        *to = number(words.next()?.split_once('=')?.1)?;
    }
    Some(values)
}

/// Number of values of a function's probe. posix_memalign's first value points to where the block's address is stored.
fn arguments(function: Function) -> usize {
    function.arguments() + usize::from(function == Function::Aligned(AllocCall::PosixMemalign))
}

/// A call that has not returned yet.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Open {
    function: Function,
    arguments: [u64; 3],
}

#[derive(Default)]
struct Calls {
    open: HashMap<u64, Open>,
    unseen: Unseen,
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    let mut calls = Calls::default();
    while let Some(line) = input.line(Lines::Mixed)? {
        match parse(line) {
            None => sink.quality.foreign_lines += 1,
            Some(Line::Lost(events)) => sink.quality.events_lost = sink.quality.events_lost.saturating_add(events),
            Some(Line::Probe(probe)) => {
                if probe.pid.is_none_or(|pid| sink.takes_process(pid)) {
                    calls.take(&probe, sink)?;
                }
            }
        }
    }
    sink.quality.unfinished_calls += calls.open.len() as u64;
    Ok(())
}

impl Calls {
    fn take(&mut self, probe: &Probe, sink: &mut Sink) -> Result<(), Failure> {
        let function = probe.function;
        if probe.is_return {
            return match self.open.get(&probe.tid) {
                Some(open) if open.function == function => self.returned(probe, *open, sink),
                // The return of a nested call, which was counted at its begin, or of a call that began before the
                // recording.
                _ => Ok(()),
            };
        }
        let missing = || Failure::new("the probe shows fewer values than the function has arguments", REMEDY);
        let arguments = values(probe.values, arguments(function)).ok_or_else(missing)?;
        let call = Open { function, arguments };
        match self.open.get_mut(&probe.tid) {
            None if function == Function::Free => {
                let op = self.unseen.found(function.op(arguments, 0)?, sink);
                return sink.push_in_order(probe.time_ns, probe.tid, op);
            }
            None => _ = self.open.insert(probe.tid, call),
            // A duplicate probe: on calloc and on its entry in the library's PLT.
            Some(open) if *open == call => (),
            Some(open) if open.function == function => {
                sink.quality.unfinished_calls += 1; // the return was lost
                *open = call;
            }
            // perf mistakes the PLT entry of realloc for calloc. calloc never calls realloc, so this is the real call.
            Some(open) if (open.function, function) == (Function::Calloc, Function::Realloc) => *open = call,
            Some(_) => sink.quality.nested_calls += 1,
        }
        Ok(())
    }

    fn returned(&mut self, probe: &Probe, open: Open, sink: &mut Sink) -> Result<(), Failure> {
        self.open.remove(&probe.tid);
        let missing = || Failure::new("the probe does not show what the function returned", REMEDY);
        let [result, ..] = values(probe.values, 1).ok_or_else(missing)?;
        let op = match open.function {
            Function::Aligned(AllocCall::PosixMemalign) => {
                // `result` is an error number.
                let [_, align, size] = open.arguments;
                let made = if result as u32 == 0 { self.unseen.new_address(align) } else { 0 };
                open.function.op([align, size, 0], made)?
            }
            function => self.unseen.found(function.op(open.arguments, result)?, sink),
        };
        sink.push_in_order(probe.time_ns, probe.tid, op)
    }
}
