//! Firefox's logalloc: lines `PID TID name(arguments)=result`, with addresses, or with slots (`#1`) if the file was
//! munged.

use super::calls::{Function, arguments, number};
use super::failure::Failure;
use super::input::{Head, Input, Lines};
use super::sink::Sink;
use super::{Format, no_times};
use crate::resolve::{RawOp, WaitLimits};

pub(super) const FORMAT: Format = Format {
    name: "logalloc",
    recognise: |head: &Head| head.lines().next().is_some_and(|line| parse(line).is_ok()),
    clock: no_times,
    window: WaitLimits::DEFAULT,
    unknown: &["times"],
    convert,
};

struct Line {
    pid: u64,
    tid: u64,
    /// `None` for a call that neither allocates nor frees, such as `jemalloc_stats()`.
    op: Option<RawOp>,
}

fn parse(line: &str) -> Result<Line, &'static str> {
    const EXPECTED: &str = "expected `PID TID name(arguments)=result`";
    let mut words = line.splitn(3, ' ');
    let mut decimal = || words.next().and_then(|word| word.parse().ok());
    let (pid, tid) = decimal().zip(decimal()).ok_or(EXPECTED)?;
    let (name, rest) = words.next().and_then(|call| call.split_once('(')).ok_or(EXPECTED)?;
    let (list, result) = rest.split_once(')').ok_or(EXPECTED)?;
    if name.is_empty() || name.contains(|byte: char| !byte.is_ascii_alphanumeric() && byte != '_') {
        return Err(EXPECTED);
    }
    let Some(function) = Function::named(name) else { return Ok(Line { pid, tid, op: None }) };
    let arguments = arguments(list, function.arguments(), value).ok_or("an argument is missing or not a number")?;
    let result = match (function, result.strip_prefix('=')) {
        (Function::Free | Function::UsableSize, _) => 0,
        (_, Some(result)) => value(result).ok_or("the result is not an address")?,
        (_, None) => return Err("the result is missing"),
    };
    Ok(Line { pid, tid, op: Some(function.op(arguments, result)?) })
}

/// A number or a slot. A slot is used as an address; `#0` is NULL.
fn value(word: &str) -> Option<u64> {
    match word.strip_prefix('#') {
        Some(slot) => slot.parse().ok(),
        None => number(word),
    }
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    while let Some(text) = input.line(Lines::Strict)? {
        let line = parse(text)?;
        match line.op {
            None => sink.quality.foreign_lines += 1,
            Some(op) if sink.takes_process(line.pid) => sink.push(line.tid, op)?,
            Some(_) => (),
        }
    }
    Ok(())
}
