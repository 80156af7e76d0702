//! The kinds of events, and the layouts of those that are skipped.

use super::REMEDY;
use super::chunks::Chunks;
use crate::import::failure::Failure;
use crate::import::records::u64_at;

const HEADER: u32 = 0;
pub(super) const ALLOC: u32 = 1;
pub(super) const REALLOC: u32 = 2;
pub(super) const FREE: u32 = 3;
pub(super) const ENVIRONMENT: u32 = 11;
/// Written by `bytehound squeeze` in place of the blocks that it removes.
pub(super) const GROUP_STATISTICS: u32 = 17;
pub(super) const ALLOC_EX: u32 = 20;
pub(super) const REALLOC_EX: u32 = 21;
pub(super) const FREE_EX: u32 = 22;

/// A field, or several fields that are skipped together.
#[derive(Clone, Copy)]
enum Field {
    /// This number of bytes.
    Bytes(u64),
    /// A number of 1 to 9 bytes.
    Varint,
    /// A u32 with the number of items, then the items, each of this number of bytes.
    Items(u64),
    /// Like [`Field::Items`], but the number of items is a u64.
    ManyItems(u64),
    /// A varint with the number of bytes, then the bytes.
    Text,
    /// The sources of a mapping's parts, preceded by their number as a varint.
    Sources,
}

/// A source: address, length, time, backtrace, thread.
const SOURCE: &[Field] = &[Field::Bytes(8), Field::Varint, Field::Bytes(8), Field::Varint, Field::Bytes(4)];

/// The fields of a kind that is skipped; `None` for an unknown kind.
fn layout(kind: u32) -> Option<&'static [Field]> {
    use Field::{Bytes, Items, ManyItems, Sources, Text, Varint};
    Some(match kind {
        4 => &[Bytes(8), Items(1), Items(1)], // a file
        5 => &[Bytes(8), Items(8)],           // a backtrace
        6 => &[Bytes(16), Items(1)],          // contents of memory
        7 => &[Bytes(4)],                     // a marker
        8 => &[Bytes(5 * 8 + 4 * 4 + 8)],     // mmap
        9 => &[Bytes(4 * 8 + 4)],             // munmap
        10 => &[Bytes(2 * 8 + 4 * 4)],        // mallopt
        12 => &[Bytes(3 * 8)],                // the wall clock
        13 => &[Bytes(8 + 2 * 4), Items(8)],  // part of a backtrace
        14 => &[Bytes(4), Items(1)],          // a text
        15 => &[Bytes(8 + 6 * 4 + 1)],        // a frame
        16 => &[Items(4)],                    // a backtrace of frames
        GROUP_STATISTICS => &[Bytes(7 * 8)],
        18 => &[Bytes(8 + 2 * 4), Items(4)],       // part of a backtrace
        19 => &[Bytes(8), Items(4)],               // a backtrace
        23 => &[Bytes(8), Items(1), ManyItems(1)], // a file
        // A mapping: time, id, address, three numbers, device and flags, name.
        24 => &[Bytes(8), Varint, Bytes(8), Varint, Varint, Varint, Bytes(3 * 4), Text],
        25 => &[Bytes(8), Varint, Bytes(8), Varint, Sources], // a removed mapping
        // Residency of a mapping: time, id, address, length, six figures.
        26 => &[Bytes(8), Varint, Bytes(8), Varint, Varint, Varint, Varint, Varint, Varint, Varint],
        // mmap: id, address, two numbers, protection, flags and file, offset, source.
        27 => &[Varint, Bytes(8), Varint, Varint, Bytes(3 * 4), Varint, Bytes(8), Varint, Bytes(4)],
        _ => return None,
    })
}

/// Skips the fields of an event.
pub(super) fn skip(kind: u32, chunks: &mut Chunks) -> Result<(), Failure> {
    let Some(fields) = layout(kind) else {
        let why = format!("event kind {kind} is unknown in bytehound up to version 0.11");
        return Err(Failure::new(why, "take another copy, or use a newer hksim"));
    };
    skip_fields(fields, chunks)
}

fn skip_fields(fields: &[Field], chunks: &mut Chunks) -> Result<(), Failure> {
    for field in fields {
        match *field {
            Field::Bytes(bytes) => chunks.skip(bytes)?,
            Field::Varint => _ = chunks.varint()?,
            Field::Items(bytes) => {
                let [items] = chunks.u32s()?;
                chunks.skip(u64::from(items) * bytes)?;
            }
            Field::ManyItems(bytes) => {
                let [items] = chunks.u64s()?;
                chunks.skip(items.saturating_mul(bytes))?;
            }
            Field::Text => {
                let bytes = chunks.varint()?;
                chunks.skip(bytes)?;
            }
            Field::Sources => {
                for _ in 0..chunks.varint()? {
                    skip_fields(SOURCE, chunks)?;
                }
            }
        }
    }
    Ok(())
}

/// Size of the header up to its first text: kind, id (16), two times, seconds and nanoseconds of the wall clock,
/// process.
pub(super) const HEADER_BYTES_MIN: usize = 4 + 16 + 2 * 8 + 2 * 8 + 4;
const NANOSECONDS_AT: usize = HEADER_BYTES_MIN - 4 - 8;

/// Whether these first bytes of a stream can be those of the header.
pub(super) fn is_header(first: &[u8]) -> bool {
    first.len() >= HEADER_BYTES_MIN
        && first.starts_with(&HEADER.to_le_bytes())
        && u64_at(first, NANOSECONDS_AT) < 1_000_000_000
        && u64_at(first, 20) <= u64_at(first, 28) // time of the start, then of the header
}

/// Reads the header.
pub(super) fn header(chunks: &mut Chunks) -> Result<(), Failure> {
    const IS_LITTLE_ENDIAN: u64 = 1;
    if chunks.is_at_end()? || chunks.u32s()? != [HEADER] {
        return Err(Failure::new("a recording of bytehound begins with a header", REMEDY));
    }
    skip_fields(
        &[Field::Bytes(HEADER_BYTES_MIN as u64 - 4), Field::Items(1), Field::Items(1), Field::Items(1)],
        chunks,
    )?;
    let [flags] = chunks.u64s()?;
    if flags & IS_LITTLE_ENDIAN == 0 {
        return Err(Failure::new("the recording comes from a big-endian machine", "record on x86_64 or aarch64"));
    }
    chunks.skip(1) // the size of a pointer
}
