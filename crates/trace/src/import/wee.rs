//! wee_alloc's traces: lines `Alloc(BYTES),` and `Free(N),`, where N is the index of the allocation, from 0.

use super::failure::Failure;
use super::input::{Head, Input, Lines};
use super::script::{Call, push};
use super::sink::Sink;
use super::{Format, no_times};
use crate::resolve::WaitLimits;

pub(super) const FORMAT: Format = Format {
    name: "wee",
    recognise: |head: &Head| head.lines().next().is_some_and(|line| parse(line).is_ok()),
    clock: no_times,
    window: WaitLimits::CERTAIN,
    unknown: &["threads", "times", "alignment", "which blocks were requested zeroed", "which blocks were resized"],
    convert,
};

enum Line {
    Alloc(u64),
    Free(u64),
}

fn parse(line: &str) -> Result<Line, &'static str> {
    const EXPECTED: &str = "expected `Alloc(BYTES),` or `Free(N),` with decimal numbers";
    let line = line.strip_suffix(',').unwrap_or(line);
    let (name, rest) = line.split_once('(').ok_or(EXPECTED)?;
    let number = rest.strip_suffix(')').and_then(|digits| digits.parse().ok()).ok_or(EXPECTED)?;
    match name {
        "Alloc" => Ok(Line::Alloc(number)),
        "Free" => Ok(Line::Free(number)),
        _ => Err(EXPECTED),
    }
}

fn convert(input: &mut Input, sink: &mut Sink) -> Result<(), Failure> {
    let mut allocations = 0;
    while let Some(line) = input.line(Lines::Strict)? {
        match parse(line)? {
            Line::Alloc(size) => {
                push(Call::Alloc { id: allocations, size }, sink)?;
                allocations += 1;
            }
            Line::Free(id) => push(Call::Free { id }, sink)?,
        }
    }
    Ok(())
}
