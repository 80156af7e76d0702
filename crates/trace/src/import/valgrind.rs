//! valgrind's `--trace-malloc=yes`: lines `--PID-- name(arguments) = result`, mixed with other lines of valgrind and
//! the program.
//!
//! Nested calls follow the outer call on the same line. A result may be on a separate line if valgrind wrote a warning
//! in between. If the program wrote text without a line end, the text precedes the prefix.

use super::calls::{Function, arguments, number};
use super::failure::Failure;
use super::input::{Head, Input, Lines};
use super::sink::Sink;
use super::{Format, no_times};
use crate::resolve::{RawOp, WaitLimits};

pub(super) const FORMAT: Format = Format {
    name: "valgrind",
    recognise: |head: &Head| {
        head.lines().any(|line| prefixed(line).is_some_and(|(_, text)| Call::parse(text).is_some()))
    },
    clock: no_times,
    window: WaitLimits::CERTAIN,
    unknown: &["threads", "times", "which of posix_memalign, aligned_alloc and valloc a memalign was"],
    convert,
};

/// The pid, and the text after `--PID--` or `--TIME PID--`, anywhere in the line.
fn prefixed(line: &str) -> Option<(u64, &str)> {
    let mut rest = line;
    while let Some(start) = rest.find("--") {
        rest = rest[start + 2..].trim_start_matches('-');
        let Some((prefix, text)) = rest.split_once("--") else { break };
        let pid = prefix.rsplit(' ').next().and_then(|pid| pid.parse().ok());
        if let (Some(pid), true) = (pid, prefix.len() <= 40 && text.starts_with(' ')) {
            return Some((pid, text.trim()));
        }
    }
    None
}

/// `name(arguments)` and the rest of the line.
struct Call<'a> {
    function: Function,
    arguments: [u64; 3],
    rest: &'a str,
}

impl<'a> Call<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (name, rest) = text.split_once('(')?;
        let function = Function::named(name)?;
        let (list, rest) = rest.split_once(')')?;
        // An argument may have a name before its value: `al 256, size 1000`.
        let value = |argument: &str| argument.rsplit(' ').next().and_then(number);
        let arguments = arguments(list, function.arguments(), value)?;
        Some(Call { function, arguments, rest: rest.trim_start() })
    }

    fn op(&self, result: u64) -> Result<RawOp, Failure> {
        Ok(self.function.op(self.arguments, result)?)
    }
}

fn result(text: &str) -> Option<u64> {
    number(text.strip_prefix('=')?.trim())
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    // A call whose result has not been read yet.
    let mut open: Option<(u64, Function, [u64; 3])> = None;
    while let Some(line) = input.line(Lines::Mixed)? {
        let Some((pid, text)) = prefixed(line) else {
            sink.quality.foreign_lines += 1;
            continue;
        };
        if let Some(result) = result(text) {
            // Without an open call, this is the result of a realloc(p, 0), which was handled together with its nested
            // free.
            if let Some((_, function, arguments)) = open.take_if(|(caller, ..)| *caller == pid) {
                sink.push(0, function.op(arguments, result)?)?;
            }
            continue;
        }
        let Some(call) = Call::parse(text) else {
            sink.quality.foreign_lines += 1;
            continue;
        };
        if !sink.takes_process(pid) {
            continue;
        }
        if open.take().is_some() {
            sink.quality.unfinished_calls += 1;
        }
        if let Some(left) = push(call, sink)? {
            open = Some((pid, left.0, left.1));
        }
    }
    sink.quality.unfinished_calls += open.is_some() as u64;
    Ok(())
}

/// Handles the calls of a line. Returns the last one if its result is missing.
fn push(mut call: Call, sink: &mut Sink) -> Result<Option<(Function, [u64; 3])>, Failure> {
    while let Some(inner) = Call::parse(call.rest) {
        match (call.function, inner.function) {
            // realloc(NULL, n) calls malloc, realloc(p, 0) calls free.
            (Function::Realloc, Function::Alloc(_)) => call.rest = inner.rest,
            (Function::Realloc, Function::Free) => {
                sink.quality.nested_calls += 1;
                sink.push(0, call.op(0)?)?;
                return Ok(None);
            }
            // A calloc whose product overflows prints no result.
            (Function::Calloc, _) => {
                sink.push(0, call.op(0)?)?;
                call = inner;
                continue;
            }
            _ => return Err("two calls are on one line".into()),
        }
        sink.quality.nested_calls += 1;
    }
    let result = match call.function {
        Function::Free | Function::UsableSize => Some(0),
        _ => result(call.rest),
    };
    match result {
        Some(result) => sink.push(0, call.op(result)?).map(|()| None),
        None => Ok(Some((call.function, call.arguments))),
    }
}
