//! Call sites in the log: stacks of call addresses, and the modules that contain these addresses.
//!
//! They are in chunks of kind [`CHUNK_SITES`], whose header holds a sequence number in `buffer`. A *place* is a `u32`:
//! the sequence number of the chunk in the high bits, the index of a word in the chunk in the low bits. A site is the
//! place of its stack. A stack is written before the first record that refers to it, and never changes.
//!
//! | words | stack |
//! |---|---|
//! | 1 | [`TAG_STACK`], from bit 8 the number of frames n, from bit 16 the generation of the modules |
//! | n | call addresses, innermost first |
//! | (n + 1) / 2 | place of each frame's module, two per word, the first in the low half; 0 for code that is in no file |
//!
//! | words | module |
//! |---|---|
//! | 1 | [`TAG_MODULE`], from bit 8 the bytes of the build id, from bit 16 those of the path |
//! | 1 | load bias: address in the process minus address in the file |
//! | ... | build id, padded to whole words |
//! | ... | path, padded to whole words |
//!
//! This file is compiled into the preloaded object and into `hksim-record`. It uses `core` only.

use crate::event_log::CHUNK_BYTES;

/// `kind` of a chunk that holds stacks and modules.
pub const CHUNK_SITES: u32 = u32::from_le_bytes(*b"SITE");
/// Maximum number of frames of a stack.
pub const DEPTH_MAX: usize = 64;
/// Longest path of a module in bytes.
pub const MODULE_PATH_BYTES: usize = 4096;
/// Longest build id in bytes.
pub const BUILD_ID_BYTES: usize = 64;
/// The low byte of a stack's first word.
pub const TAG_STACK: u8 = b'S';
/// The low byte of a module's first word.
pub const TAG_MODULE: u8 = b'M';
/// Index of a chunk's first word after its header.
pub const FIRST_WORD: u32 = 8;
/// Words of a chunk, its header included.
pub const SITE_CHUNK_WORDS: u32 = (CHUNK_BYTES / 8) as u32;

const WORD_BITS: u32 = SITE_CHUNK_WORDS.trailing_zeros();

const _: () = assert!(SITE_CHUNK_WORDS.is_power_of_two());

/// Maximum number of chunks of sites that places can address.
pub const SITE_CHUNKS_MAX: u32 = 1 << (u32::BITS - WORD_BITS);

/// The place of a word.
#[must_use]
pub const fn place(sequence: u32, word: u32) -> u32 {
    sequence << WORD_BITS | word
}

/// The chunk's sequence number and the word's index in a place.
#[must_use]
pub const fn place_parts(place: u32) -> (u32, u32) {
    (place >> WORD_BITS, place & (SITE_CHUNK_WORDS - 1))
}

/// The first word of a stack or module: its tag, a number of 8 bits and one of 16 bits.
#[must_use]
pub const fn head(tag: u8, short: usize, long: usize) -> u64 {
    tag as u64 | ((short & 0xff) as u64) << 8 | ((long & 0xffff) as u64) << 16
}

/// The two numbers in a first word, if it has this tag.
#[must_use]
pub const fn head_parts(word: u64, tag: u8) -> Option<(usize, usize)> {
    if word as u8 != tag {
        return None;
    }
    Some(((word >> 8 & 0xff) as usize, (word >> 16 & 0xffff) as usize))
}

/// Words of a stack of `frames` frames.
#[must_use]
pub const fn stack_words(frames: usize) -> usize {
    1 + frames + frames.div_ceil(2)
}
