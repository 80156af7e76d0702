//! Chunks: a byte with the kind (1: LZ4 block, 2: uncompressed), a u32 with the number of bytes, and the bytes.

use super::REMEDY;
use crate::import::failure::Failure;
use crate::import::input::Input;

const PACKED: u8 = 1;
const PLAIN: u8 = 2;
/// Size of a chunk's header.
const HEAD_BYTES: usize = 5;
/// Maximum size of a chunk: four times the size of the blocks that bytehound compresses.
const CHUNK_BYTES_MAX: usize = 2 << 20;
/// Maximum size of a compressed chunk: incompressible data grows by 1/255 and a few bytes.
const PACKED_BYTES_MAX: usize = CHUNK_BYTES_MAX + CHUNK_BYTES_MAX / 128;
/// Longest text that is kept. Longer ones are not relevant settings.
const TEXT_BYTES_MAX: u64 = 4096;

/// The stream inside the chunks.
pub(super) struct Chunks<'a, 'b> {
    input: &'a mut Input<'b>,
    packed: Vec<u8>,
    /// The contents of the chunk, or a piece of an uncompressed chunk, up to `filled`. Bytes before `at` have been
    /// read.
    contents: Vec<u8>,
    filled: usize,
    at: usize,
    /// Remaining bytes of an uncompressed chunk.
    plain_left: usize,
    is_cut: bool,
}

impl<'a, 'b> Chunks<'a, 'b> {
    pub(super) fn new(input: &'a mut Input<'b>) -> Self {
        let contents = vec![0; CHUNK_BYTES_MAX];
        Chunks { input, packed: Vec::new(), contents, filled: 0, at: 0, plain_left: 0, is_cut: false }
    }

    /// Whether the input ended prematurely.
    pub(super) fn is_cut(&self) -> bool {
        self.is_cut
    }

    fn cut(&mut self) -> Failure {
        self.is_cut = true;
        Failure::new("the file ends within a chunk or an event", REMEDY)
    }

    /// Whether all input was read.
    pub(super) fn is_at_end(&mut self) -> Result<bool, Failure> {
        while self.at == self.filled {
            if !self.next_piece()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Reads the next chunk, or the next piece of an uncompressed chunk; false at the end of the input.
    fn next_piece(&mut self) -> Result<bool, Failure> {
        (self.at, self.filled) = (0, 0);
        if self.plain_left == 0 {
            // Errors report the offset of the chunk that contains the event.
            self.input.begin_record();
            let Some(kind) = self.input.byte()? else { return Ok(false) };
            let mut length = [0; 4];
            if self.input.fill(&mut length)? < length.len() {
                return Err(self.cut());
            }
            let bytes = u32::from_le_bytes(length) as usize;
            match kind {
                PACKED => return self.unpack(bytes).map(|()| true),
                PLAIN => self.plain_left = bytes,
                other => {
                    return Err(Failure::new(format!("chunk kind {other} is unknown"), REMEDY));
                }
            }
        }
        let bytes = self.plain_left.min(self.contents.len());
        self.filled = self.input.fill(&mut self.contents[..bytes])?;
        self.plain_left -= self.filled;
        if self.filled < bytes {
            self.plain_left = 0;
            self.is_cut = true; // the bytes that are present are read first
        }
        Ok(true)
    }

    fn unpack(&mut self, bytes: usize) -> Result<(), Failure> {
        if bytes > PACKED_BYTES_MAX {
            return Err(Failure::new(format!("a chunk of {bytes} bytes is larger than bytehound's"), REMEDY));
        }
        self.packed.resize(bytes, 0);
        if self.input.fill(&mut self.packed)? < bytes {
            return Err(self.cut());
        }
        let unpacked = lz4_flex::block::decompress_into(&self.packed, &mut self.contents);
        self.filled = unpacked.map_err(|why| Failure::new(format!("a chunk is damaged ({why})"), REMEDY))?;
        Ok(())
    }

    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        let mut bytes = [0; N];
        let mut wanted = &mut bytes[..];
        while !wanted.is_empty() {
            if self.is_at_end()? {
                return Err(self.cut());
            }
            let there = wanted.len().min(self.filled - self.at);
            wanted[..there].copy_from_slice(&self.contents[self.at..self.at + there]);
            self.at += there;
            wanted = &mut wanted[there..];
        }
        Ok(bytes)
    }

    /// `N` numbers of 32 bits.
    pub(super) fn u32s<const N: usize>(&mut self) -> Result<[u32; N], Failure> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = u32::from_le_bytes(self.bytes()?);
        }
        Ok(numbers)
    }

    /// `N` numbers of 64 bits.
    pub(super) fn u64s<const N: usize>(&mut self) -> Result<[u64; N], Failure> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = u64::from_le_bytes(self.bytes()?);
        }
        Ok(numbers)
    }

    /// A number of variable length. The number of leading ones of the first byte is the number of further bytes. The
    /// remaining bits of the first byte are the highest bits of the number.
    pub(super) fn varint(&mut self) -> Result<u64, Failure> {
        let [first] = self.bytes()?;
        let more = first.leading_ones();
        let mut number = if more < 7 { u64::from(first) & (0x7F >> more) } else { 0 };
        number = number.checked_shl(8 * more).unwrap_or(0);
        for byte in 0..more {
            number |= u64::from(self.bytes::<1>()?[0]) << (8 * byte);
        }
        Ok(number)
    }

    /// Skips this number of bytes.
    pub(super) fn skip(&mut self, bytes: u64) -> Result<(), Failure> {
        let mut left = bytes;
        while left > 0 {
            if self.is_at_end()? {
                return Err(self.cut());
            }
            let there = left.min((self.filled - self.at) as u64);
            self.at += there as usize;
            left -= there;
        }
        Ok(())
    }

    /// A text after a u32 with its length; empty if it is too long to be relevant.
    pub(super) fn text(&mut self) -> Result<Vec<u8>, Failure> {
        let bytes = u64::from(self.u32s::<1>()?[0]);
        if bytes > TEXT_BYTES_MAX {
            return self.skip(bytes).map(|()| Vec::new());
        }
        (0..bytes).map(|_| Ok(self.bytes::<1>()?[0])).collect()
    }
}

/// The first bytes of the stream, up to the end of the file's head. `None` if the file does not begin with a chunk.
pub(super) fn first_bytes(head: &[u8], bytes_max: usize) -> Option<Vec<u8>> {
    let (head, contents) = head.split_at_checked(HEAD_BYTES)?;
    let bytes = u32::from_le_bytes([head[1], head[2], head[3], head[4]]) as usize;
    let contents = contents.get(..bytes).unwrap_or(contents);
    match head[0] {
        PACKED if (1..=PACKED_BYTES_MAX).contains(&bytes) => Some(first_of_block(contents, bytes_max)),
        PLAIN => Some(contents[..contents.len().min(bytes_max)].to_vec()),
        _ => None,
    }
}

/// Decompresses the first bytes of an LZ4 block that may be incomplete. (`lz4_flex` requires complete blocks.)
fn first_of_block(mut block: &[u8], bytes_max: usize) -> Vec<u8> {
    let mut out = Vec::new();
    while out.len() < bytes_max && append_sequence(&mut block, &mut out, bytes_max).is_some() {}
    out.truncate(bytes_max);
    out
}

/// Appends one LZ4 sequence: literals, then a match. Each part is truncated to `bytes_max`. `None` at the end of the
/// block.
fn append_sequence(block: &mut &[u8], out: &mut Vec<u8>, bytes_max: usize) -> Option<()> {
    let token = *block.split_off_first()?;
    let literals = length(token >> 4, block)?;
    let copied = block.get(..literals).unwrap_or(block);
    out.extend_from_slice(&copied[..copied.len().min(bytes_max)]);
    *block = block.get(literals..)?;
    let distance = usize::from(u16::from_le_bytes([*block.split_off_first()?, *block.split_off_first()?]));
    let bytes = length(token & 15, block)?.saturating_add(4);
    for _ in 0..bytes.min(bytes_max) {
        let from = out.len().checked_sub(distance).filter(|_| distance > 0)?;
        out.push(out[from]);
    }
    Some(())
}

/// A length of an LZ4 sequence, which continues in further bytes if its four bits are set.
fn length(first: u8, block: &mut &[u8]) -> Option<usize> {
    let mut length = usize::from(first);
    let mut byte = if first == 15 { u8::MAX } else { 0 };
    while byte == u8::MAX {
        byte = *block.split_off_first()?;
        length += usize::from(byte);
    }
    Some(length)
}
