//! LZ4 frames, decompressed while they are read. Checksums are skipped: what they would find is found further on, as text or
//! records that make no sense.

use std::io::{self, Read};

/// First bytes of a frame.
pub(super) const MAGIC: [u8; 4] = 0x184D_2204u32.to_le_bytes();
/// First bytes of a frame to be skipped, but for the low four bits.
const MAGIC_SKIPPED: u32 = 0x184D_2A50;
/// How far back a match may lie.
const WINDOW_BYTES: usize = 64 << 10;
/// Matches are this long at least.
const MATCH_BYTES_MIN: usize = 4;

/// Bits of a frame's first byte.
const HAS_BLOCK_CHECKSUMS: u8 = 1 << 4;
const HAS_CONTENT_BYTES: u8 = 1 << 3;
const HAS_CONTENT_CHECKSUM: u8 = 1 << 2;
const HAS_DICTIONARY: u8 = 1;

/// A reader of one frame after another.
pub(super) struct Lz4<R> {
    source: R,
    /// The frame that is being read.
    frame: Option<Frame>,
    packed: Vec<u8>,
    /// The last bytes written, and behind them those not yet read.
    out: Vec<u8>,
    read: usize,
}

#[derive(Clone, Copy)]
struct Frame {
    flags: u8,
    block_bytes_max: usize,
}

fn damaged(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("lz4: {why}"))
}

impl<R: Read> Lz4<R> {
    pub(super) fn new(source: R) -> Self {
        Lz4 { source, frame: None, packed: Vec::new(), out: Vec::new(), read: 0 }
    }

    fn bytes<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.source.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn skip(&mut self, bytes: u64) -> io::Result<()> {
        let skipped = io::copy(&mut (&mut self.source).take(bytes), &mut io::sink())?;
        if skipped == bytes { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    /// The next frame's head; `None` at the end of the source.
    fn next_frame(&mut self) -> io::Result<Option<Frame>> {
        loop {
            let mut magic = Vec::new();
            (&mut self.source).take(4).read_to_end(&mut magic)?;
            let Ok(magic) = <[u8; 4]>::try_from(magic.as_slice()) else {
                return if magic.is_empty() { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
            };
            if u32::from_le_bytes(magic) & !0xF == MAGIC_SKIPPED {
                let bytes = u32::from_le_bytes(self.bytes()?);
                self.skip(bytes.into())?;
                continue;
            }
            if magic != MAGIC {
                return Err(damaged("no frame begins where the last one ended"));
            }
            let [flags, sizes] = self.bytes()?;
            let size_log4 = sizes >> 4 & 7;
            if flags >> 6 != 1 || size_log4 < 4 {
                return Err(damaged("the frame's head is of no known version"));
            }
            if flags & HAS_DICTIONARY != 0 {
                return Err(damaged("the frame needs a dictionary"));
            }
            self.skip(if flags & HAS_CONTENT_BYTES != 0 { 8 + 1 } else { 1 })?; // and the head's checksum
            return Ok(Some(Frame { flags, block_bytes_max: 1 << (8 + 2 * u32::from(size_log4)) }));
        }
    }

    /// Decompresses the next block; false at the end of the source.
    fn next_block(&mut self) -> io::Result<bool> {
        let frame = match self.frame {
            Some(frame) => frame,
            None => {
                let Some(frame) = self.next_frame()? else { return Ok(false) };
                (self.out, self.read) = (Vec::new(), 0);
                *self.frame.insert(frame)
            }
        };
        let size = u32::from_le_bytes(self.bytes()?);
        if size == 0 {
            self.frame = None;
            if frame.flags & HAS_CONTENT_CHECKSUM != 0 {
                self.skip(4)?;
            }
            return Ok(true);
        }
        let (stored, bytes) = (size >> 31 == 1, (size & (u32::MAX >> 1)) as usize);
        if bytes > frame.block_bytes_max {
            return Err(damaged("a block is larger than the frame's head says"));
        }
        self.packed.resize(bytes, 0);
        self.source.read_exact(&mut self.packed)?;
        if frame.flags & HAS_BLOCK_CHECKSUMS != 0 {
            self.skip(4)?;
        }
        let old = self.out.len().saturating_sub(WINDOW_BYTES);
        self.out.drain(..old);
        self.read = self.out.len();
        match stored {
            true => self.out.extend_from_slice(&self.packed),
            false => {
                let end = self.read + frame.block_bytes_max;
                unpack(&self.packed, &mut self.out, end).ok_or_else(|| damaged("a block makes no sense"))?;
            }
        }
        Ok(true)
    }
}

/// Appends a block's contents, as long as `out` stays at most `end` bytes long.
fn unpack(mut block: &[u8], out: &mut Vec<u8>, end: usize) -> Option<()> {
    while let Some((&token, rest)) = block.split_first() {
        block = rest;
        let literals = length(usize::from(token >> 4), &mut block)?;
        let (copied, rest) = block.split_at_checked(literals)?;
        if copied.len() > end - out.len() {
            return None;
        }
        out.extend_from_slice(copied);
        block = rest;
        if block.is_empty() {
            return Some(()); // the last sequence has no match
        }
        let (&[low, high], rest) = block.split_first_chunk()?;
        block = rest;
        let distance = usize::from(u16::from_le_bytes([low, high]));
        let bytes = length(usize::from(token & 15), &mut block)?.checked_add(MATCH_BYTES_MIN)?;
        let from = out.len().checked_sub(distance).filter(|_| distance > 0)?;
        if bytes > end - out.len() {
            return None;
        }
        // A match may reach into what it writes.
        for at in from..from + bytes {
            out.push(out[at]);
        }
    }
    Some(())
}

/// A length that goes on in further bytes, up to one below 255, if its four bits are set.
fn length(first: usize, block: &mut &[u8]) -> Option<usize> {
    let mut length = first;
    let mut more = first == 15;
    while more {
        let (&byte, rest) = block.split_first()?;
        *block = rest;
        length = length.checked_add(byte.into())?;
        more = byte == 255;
    }
    Some(length)
}

impl<R: Read> Read for Lz4<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        while self.read == self.out.len() && self.next_block()? {}
        let bytes = to.len().min(self.out.len() - self.read);
        to[..bytes].copy_from_slice(&self.out[self.read..self.read + bytes]);
        self.read += bytes;
        Ok(bytes)
    }
}
