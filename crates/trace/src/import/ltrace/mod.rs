//! The output of ltrace.
//!
//! Calls by glibc's own functions are left out, as ltrace gives them wrong names (glibc's realloc is shown as
//! `calloc`). ltrace also shows calls inside other calls and, with `-x`, repeats them for each library. Only the
//! outermost call of each thread is used. ltrace never shows the block that posix_memalign returns. Such a block gets a
//! generated address, and the first free of an unknown address with a suitable alignment is taken to free it.

mod line;

use super::Format;
use super::calls::Function;
use super::failure::Failure;
use super::input::{Head, Input, Lines};
use super::sink::Sink;
use super::times::Days;
use super::unseen::Unseen;
use crate::event::AllocCall;
use crate::header::Clock;
use crate::resolve::{RawOp, WaitLimits};
use line::{Called, Caller, Line, Stamp, What, parse};
use std::collections::{HashMap, HashSet};

pub(super) const FORMAT: Format = Format {
    name: "ltrace",
    recognise: |head: &Head| head.lines().any(|line| matches!(parse(line).what, What::Whole(..) | What::Begun(_))),
    clock,
    // ltrace stops a thread at the begin and the return of each call, so lines are in true order, with one exception. A
    // realloc is taken at its return, so another thread's reuse of its old block may come before it. Each stop takes
    // about 100 us.
    window: WaitLimits { events: 4096, alloc_wait_ns: 1_000_000_000, free_wait_ns: 10_000, free_delay_ns: 0 },
    unknown: &[
        "calls that do not go through the PLT (-fno-plt, within a library) unless ltrace was run with -x; any in static programs",
        "the process to which a thread belongs (-f)",
    ],
    convert,
};

/// Maximum number of nested calls of one thread. Beyond that the open calls are counted as unfinished.
const DEPTH_MAX: usize = 64;

fn clock(head: &Head) -> Clock {
    let timed = head.lines().any(|line| parse(line).stamp.is_some());
    if timed { Clock::Measured } else { Clock::PerEvent }
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    let mut calls = Calls::default();
    while let Some(text) = input.line(Lines::Mixed)? {
        calls.line(parse(text), sink)?;
    }
    sink.quality.unfinished_calls += calls.open.values().map(|open| unfinished(open)).sum::<u64>();
    if calls.killed {
        sink.note("the program was killed by a signal; ltrace itself can break programs with threads".to_string());
    }
    if sink.quality.misnamed_calls > 0 {
        let count = sink.quality.misnamed_calls;
        sink.note(format!(
            "{count} calls `libc.so->...` left out: ltrace misnames them; frees of their blocks are unknown"
        ));
    }
    if calls.left > 0 {
        sink.note("the program called exec: the trace ends there".to_string());
    }
    Ok(())
}

/// The open calls of all threads.
#[derive(Default)]
struct Calls {
    open: HashMap<u64, Vec<Open>>,
    /// Processes that have called exec.
    replaced: HashSet<u64>,
    unseen: Unseen,
    days: Days,
    time_ns: u64,
    /// Calls after an exec, which are left out.
    left: u64,
    /// Whether a signal ended the program.
    killed: bool,
}

#[derive(Clone, Copy)]
struct Open {
    called: Called,
    /// Whether the call was already handled at its begin: used or left out.
    taken: bool,
}

/// Number of open calls that have not been handled yet.
fn unfinished(open: &[Open]) -> u64 {
    open.iter().filter(|open| !open.taken).count() as u64
}

/// Whether the next call is nested in another call. Calls by glibc do not count, so that calls nested in them are used.
fn within(open: &[Open]) -> bool {
    open.iter().any(|open| open.called.caller == Caller::Program)
}

impl Calls {
    fn line(&mut self, line: Line, sink: &mut Sink) -> Result<(), Failure> {
        match line.stamp {
            Some(Stamp::OfDay(of_day_ns)) => self.time_ns = self.days.time_ns(of_day_ns),
            Some(Stamp::Absolute(time_ns)) => self.time_ns = time_ns,
            Some(Stamp::Delta(delta_ns)) => self.time_ns = self.time_ns.saturating_add(delta_ns),
            None => (),
        }
        let tid = line.tid.unwrap_or(0);
        if self.replaced.contains(&tid) && !matches!(line.what, What::Exit | What::Killed) {
            self.left += 1;
            sink.quality.other_process_events += 1;
            return Ok(());
        }
        let nested = self.open.get(&tid).is_some_and(|open| within(open));
        match line.what {
            What::Whole(..) if nested => sink.quality.nested_calls += 1,
            What::Whole(Called { caller: Caller::Glibc, .. }, _) => self.leave_out(sink),
            What::Whole(called, result) => self.take(tid, called, result, sink)?,
            What::Begun(called) => {
                // A free takes effect when it begins.
                let taken = !nested && (called.function == Function::Free || called.caller == Caller::Glibc);
                match called.caller {
                    Caller::Glibc if taken => self.leave_out(sink),
                    Caller::Program if taken => self.take(tid, called, 0, sink)?,
                    _ => (),
                }
                let open = self.open.entry(tid).or_default();
                if open.len() == DEPTH_MAX {
                    sink.quality.unfinished_calls += unfinished(open);
                    open.clear();
                }
                open.push(Open { called, taken });
            }
            What::Resumed(function, result) => self.resume(tid, function, result, sink)?,
            What::Exit | What::Killed => {
                self.killed |= line.what == What::Killed;
                sink.quality.unfinished_calls += unfinished(&self.open.remove(&tid).unwrap_or_default());
                self.replaced.remove(&tid);
                self.push(tid, RawOp::ThreadExit, sink)?;
            }
            What::Exec => {
                self.open.remove(&tid);
                self.replaced.insert(tid);
            }
            What::Other | What::Foreign => sink.quality.foreign_lines += 1,
        }
        Ok(())
    }

    /// Counts an outermost call by glibc.
    fn leave_out(&mut self, sink: &mut Sink) {
        sink.quality.misnamed_calls += 1;
    }

    fn resume(&mut self, tid: u64, function: Function, result: u64, sink: &mut Sink) -> Result<(), Failure> {
        let open = self.open.entry(tid).or_default();
        let Some(at) = open.iter().rposition(|open| open.called.function == function) else {
            sink.quality.unfinished_calls += 1; // its first half is missing
            return Ok(());
        };
        sink.quality.unfinished_calls += unfinished(&open[at + 1..]);
        open.truncate(at + 1);
        let ended = open.pop();
        match ended {
            Some(_) if within(open) => sink.quality.nested_calls += 1,
            Some(Open { called, taken: false }) => self.take(tid, called, result, sink)?,
            _ => (),
        }
        Ok(())
    }

    /// Handles an outermost call.
    fn take(&mut self, tid: u64, called: Called, result: u64, sink: &mut Sink) -> Result<(), Failure> {
        let Called { function, arguments, .. } = called;
        let op = match function {
            Function::Aligned(AllocCall::PosixMemalign) => {
                // `result` is an error number. The first argument points to where the block's address is stored.
                let [_, align, size] = arguments;
                let made = if result == 0 { self.unseen.new_address(align) } else { 0 };
                function.op([align, size, 0], made)?
            }
            _ => self.unseen.found(function.op(arguments, result)?, sink),
        };
        self.push(tid, op, sink)
    }

    fn push(&self, tid: u64, op: RawOp, sink: &mut Sink) -> Result<(), Failure> {
        match sink.clock() {
            Clock::Measured => sink.push_in_order(self.time_ns, tid, op),
            Clock::PerEvent => sink.push(tid, op),
        }
    }
}
