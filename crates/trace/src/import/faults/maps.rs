//! A copy of `/proc/PID/maps`.

use super::super::failure::Failure;
use super::super::input::{Input, Lines};
use super::fault_counter::FaultCounter;
use super::line::Mapping;

/// Reads all mappings. They apply from the start of the script.
pub(super) fn read(input: &mut Input, fault_counter: &mut FaultCounter) -> Result<(), Failure> {
    // A mapping is no event, and each line must be one.
    input.any_event().found();
    while let Some(line) = input.line(Lines::Strict)? {
        let mapping = mapping(line);
        let bad = || Failure::new("not a line of /proc/PID/maps", "copy that file while the program runs");
        fault_counter.add_known(mapping.ok_or_else(bad)?)?;
    }
    Ok(())
}

/// `START-END ACCESS OFFSET DEVICE INODE NAME`, addresses in hex.
fn mapping(line: &str) -> Option<Mapping<'_>> {
    let mut rest = line;
    let mut word = || {
        let (word, after) = rest.split_once(' ').unwrap_or((rest, ""));
        rest = after.trim_start();
        (!word.is_empty()).then_some(word)
    };
    let (range, access) = (word()?, word()?);
    let (_offset, _device, _inode) = (word()?, word()?, word()?);
    let (start, end) = range.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let name = if rest.is_empty() { "//anon" } else { rest };
    (start < end).then_some(Mapping { start, end, access, name })
}
