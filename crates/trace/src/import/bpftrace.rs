//! Output of `traces/malloc.bt`: a line that names the format, then lines `NSECS TID name(arguments)=result`.

use super::Format;
use super::calls::{Function, arguments, number};
use super::failure::Failure;
use super::input::{Head, Input, Lines};
use super::sink::Sink;
use crate::header::Clock;
use crate::resolve::{RawOp, WaitLimits};

pub(super) const FORMAT: Format = Format {
    name: "bpftrace",
    recognise: |head: &Head| head.lines().any(|line| line == SIGNATURE),
    clock: |_| Clock::Measured,
    window: WaitLimits::UNLOCKED_STAMPS,
    unknown: &["calls before the probes were attached"],
    convert,
};

const SIGNATURE: &str = "hksim-bpftrace 1";

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    while let Some(line) = input.line(Lines::Mixed)? {
        if line == SIGNATURE {
            continue;
        }
        match parse(line)? {
            Line::Call { time_ns, tid, op } => sink.push_at(time_ns, tid, op)?,
            Line::Lost(events) => sink.quality.events_lost = sink.quality.events_lost.saturating_add(events),
            Line::Nested(calls) => sink.quality.nested_calls = sink.quality.nested_calls.saturating_add(calls),
            Line::Foreign => sink.quality.foreign_lines += 1,
        }
    }
    Ok(())
}

enum Line {
    Call { time_ns: u64, tid: u64, op: RawOp },
    Lost(u64),
    Nested(u64),
    Foreign,
}

fn parse(line: &str) -> Result<Line, Failure> {
    let mut words = line.splitn(3, ' ');
    let (Some(first), Some(second)) = (words.next(), words.next()) else { return Ok(Line::Foreign) };
    match (first, second.parse(), words.next()) {
        ("Lost", Ok(events), Some("events")) => Ok(Line::Lost(events)),
        ("@nested:", Ok(calls), None) => Ok(Line::Nested(calls)),
        (_, Ok(tid), Some(call)) => {
            let Some((time_ns, op)) = first.parse().ok().zip(op(call)?) else { return Ok(Line::Foreign) };
            Ok(Line::Call { time_ns, tid, op })
        }
        _ => Ok(Line::Foreign),
    }
}

fn op(call: &str) -> Result<Option<RawOp>, Failure> {
    if call == "exit" {
        return Ok(Some(RawOp::ThreadExit));
    }
    let Some((name, rest)) = call.split_once('(') else { return Ok(None) };
    let Some((function, (list, result))) = Function::named(name).zip(rest.split_once(')')) else { return Ok(None) };
    let result = match function {
        Function::Free | Function::UsableSize => Some(0),
        _ => result.strip_prefix('=').and_then(number),
    };
    let Some((arguments, result)) = arguments(list, function.arguments(), number).zip(result) else { return Ok(None) };
    Ok(Some(function.op(arguments, result)?))
}
