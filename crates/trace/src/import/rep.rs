//! Traces of CMU's allocator assignment (malloc lab): four numbers (heap size, ids, calls, weight), or only two of them
//! (ids, calls), then the lines of [`super::script`].

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

/// The number of calls in a header.
fn calls_of(header: &[u64]) -> Option<u64> {
    match *header {
        [_heap_bytes, _ids, calls, _weight] => Some(calls),
        [_ids, calls] => Some(calls),
        _ => None,
    }
}

fn recognise(head: &Head) -> bool {
    let mut lines = head.lines().peekable();
    let header: Vec<u64> = std::iter::from_fn(|| lines.next_if(|line| number(line).is_some()))
        .filter_map(number)
        .take(HEADER_LINES_MAX + 1)
        .collect();
    calls_of(&header).is_some() && lines.next().is_none_or(|line| script::parse(line).is_ok())
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    const EXPECTED: &str = "expected four numbers before the calls (heap size, ids, calls, weight) or two (ids, calls)";
    let (mut header, mut calls) = (Vec::new(), 0);
    while let Some(line) = input.line(Lines::Strict)? {
        match number(line) {
            Some(number) if calls == 0 && header.len() < HEADER_LINES_MAX => header.push(number),
            _ if calls_of(&header).is_none() => return Err(EXPECTED.into()),
            _ => {
                script::push(script::parse(line)?, sink)?;
                calls += 1;
            }
        }
    }
    match calls_of(&header) {
        None => return Err(EXPECTED.into()),
        Some(said) if said != calls => sink.note(format!("the header says {said} calls, but the file has {calls}")),
        Some(_) => (),
    }
    Ok(())
}

/// Maximum number of lines before the calls, each a number.
const HEADER_LINES_MAX: usize = 4;

fn number(line: &str) -> Option<u64> {
    line.parse().ok()
}
