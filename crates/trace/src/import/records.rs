//! Fixed-size records of binary formats.

use super::failure::Failure;
use super::input::Input;

/// The next record of `N` bytes; `None` at the end of the input.
pub(super) fn next<const N: usize>(input: &mut Input) -> Result<Option<[u8; N]>, Failure> {
    let mut record = [0; N];
    input.begin_record();
    match input.fill(&mut record)? {
        0 => Ok(None),
        filled if filled == N => Ok(Some(record)),
        _ => Err(Failure::new(
            "the file ends within a record",
            "use another copy, or cut it after its last whole record",
        )),
    }
}

/// The little-endian 64-bit number at byte `at`; 0 beyond the end.
pub(super) fn u64_at(record: &[u8], at: usize) -> u64 {
    let bytes = record.get(at..at + 8).and_then(|bytes| bytes.try_into().ok());
    bytes.map_or(0, u64::from_le_bytes)
}

/// log2 of an alignment, which is rounded up to a power of two as allocators do.
pub(super) fn align_log2(align: u64) -> Result<u8, Failure> {
    let align = align.max(1).checked_next_power_of_two().ok_or("the alignment is above 2^63")?;
    Ok(align.ilog2() as u8)
}
