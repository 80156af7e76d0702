//! Traces of CMU's allocator assignment (malloc lab): four numbers (heap size, ids, calls, weight), then the lines of
//! [`super::script`].

use super::failure::Failure;
use super::input::{Head, Input, Lines};
use super::sink::Sink;
use super::{Format, no_times, script};
use crate::resolve::WaitLimits;

pub(super) const FORMAT: Format = Format {
    name: "rep",
    recognise,
    clock: no_times,
    window: WaitLimits::CERTAIN,
    unknown: script::FORMAT.unknown,
    convert,
};

/// Lines before the calls, each a number.
const HEADER_LINES: usize = 4;

fn recognise(head: &Head) -> bool {
    let mut lines = head.lines();
    let header = lines.by_ref().take(HEADER_LINES).filter(|line| line.parse::<u64>().is_ok()).count();
    header == HEADER_LINES && lines.next().is_none_or(|line| script::parse(line).is_ok())
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    let mut header = [0; HEADER_LINES];
    for value in &mut header {
        let number = input.line(Lines::Strict)?.and_then(|line| line.parse::<u64>().ok());
        *value = number.ok_or("expected four numbers before the calls: heap size, ids, calls, weight")?;
    }
    let mut calls = 0;
    while let Some(line) = input.line(Lines::Strict)? {
        script::push(script::parse(line)?, sink)?;
        calls += 1;
    }
    if calls != header[2] {
        sink.note(format!("the header says {} calls, but the file has {calls}", header[2]));
    }
    Ok(())
}
