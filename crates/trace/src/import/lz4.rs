//! LZ4 files, decompressed while they are read: a sequence of frames, with skippable frames between them.
//!
//! Each frame gets its own [`FrameDecoder`], as the decoder's assertions fail if the block size changes. The decoder
//! also accepts a source that ends between two blocks. A complete frame ends without reading to the end of its source,
//! so [`Source`] records whether the end was reached.

use lz4_flex::frame::{Error, FrameDecoder};
use std::io::{self, BufRead, Read};
use std::mem;

/// First bytes of a frame.
pub(super) const MAGIC: [u8; 4] = 0x184D_2204u32.to_le_bytes();
/// First bytes of a skippable frame, except for the low four bits.
const MAGIC_SKIPPED: u32 = 0x184D_2A50;

/// Whether these bytes begin a skippable frame. zstd uses the same ones.
pub(super) fn is_skipped(magic: [u8; 4]) -> bool {
    u32::from_le_bytes(magic) & !0xF == MAGIC_SKIPPED
}

/// Skips the rest of a skippable frame after its first four bytes.
pub(super) fn skip(mut reader: impl Read) -> io::Result<()> {
    let mut length = [0; 4];
    reader.read_exact(&mut length)?;
    let bytes = u64::from(u32::from_le_bytes(length));
    if io::copy(&mut reader.take(bytes), &mut io::sink())? < bytes {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(())
}

/// Describes an error in words. The decoder's own messages are names of enum variants.
fn in_words(why: &io::Error) -> String {
    let of_decoder = why.get_ref().and_then(|inner| inner.downcast_ref::<Error>());
    match of_decoder {
        Some(Error::ContentLengthError { expected, actual }) => {
            format!("a frame has {actual} bytes of contents, but its header says {expected}")
        }
        Some(Error::ContentChecksumError) => "the checksum of a frame's contents is wrong".into(),
        Some(Error::BlockChecksumError) => "the checksum of a block is wrong".into(),
        Some(Error::HeaderChecksumError) => "the checksum of a frame's header is wrong".into(),
        Some(Error::DecompressionError(inner)) => format!("a block is damaged: {inner}"),
        Some(Error::BlockTooBig | Error::InvalidBlockInfo) => "a block is larger than its frame's header allows".into(),
        Some(Error::UnsupportedBlocksize(_) | Error::ReservedBitsSet) => "a frame's header is damaged".into(),
        Some(Error::UnsupportedVersion(_)) => "a frame's LZ4 version is not 1".into(),
        Some(Error::DictionaryNotSupported) => "a frame needs a dictionary, which is not supported".into(),
        _ => why.to_string(),
    }
}

/// A reader of all frames.
pub(super) struct Lz4<R: BufRead>(State<R>);

enum State<R: BufRead> {
    Between(R),
    Within(FrameDecoder<Source<R>>),
    Ended,
    /// A read failed. All further reads also fail, so that damaged data is never followed by other data.
    Failed(String),
}

/// The input of a decoder.
struct Source<R> {
    /// The frame's first bytes, which have already been read from `reader`.
    magic: io::Cursor<[u8; 4]>,
    reader: R,
    has_ended: bool,
}

impl<R: Read> Read for Source<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        let bytes = match self.magic.read(to)? {
            0 => self.reader.read(to)?,
            bytes => bytes,
        };
        self.has_ended |= bytes == 0 && !to.is_empty();
        Ok(bytes)
    }
}

/// A decoder of the next frame; `None` at the end of the source.
fn next_frame<R: BufRead>(mut reader: R) -> io::Result<Option<FrameDecoder<Source<R>>>> {
    while !reader.fill_buf()?.is_empty() {
        let mut magic = [0; 4];
        reader.read_exact(&mut magic)?;
        if magic == MAGIC {
            return Ok(Some(FrameDecoder::new(Source { magic: io::Cursor::new(magic), reader, has_ended: false })));
        }
        if !is_skipped(magic) {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "there is data after the last frame"));
        }
        skip(&mut reader)?;
    }
    Ok(None)
}

impl<R: BufRead> Lz4<R> {
    pub(super) fn new(source: R) -> Self {
        Lz4(State::Between(source))
    }

    /// Performs one step. Returns the next state and the number of bytes read.
    fn step(state: State<R>, to: &mut [u8]) -> io::Result<(State<R>, usize)> {
        Ok(match state {
            State::Between(reader) => (next_frame(reader)?.map_or(State::Ended, State::Within), 0),
            State::Within(mut decoder) => match decoder.read(to)? {
                0 if decoder.get_ref().has_ended => return Err(io::ErrorKind::UnexpectedEof.into()),
                0 => (State::Between(decoder.into_inner().reader), 0),
                bytes => (State::Within(decoder), bytes),
            },
            State::Ended => (State::Ended, 0),
            State::Failed(why) => return Err(io::Error::new(io::ErrorKind::InvalidData, why)),
        })
    }
}

impl<R: BufRead> Read for Lz4<R> {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        loop {
            let state = mem::replace(&mut self.0, State::Ended);
            if to.is_empty() || matches!(state, State::Ended) {
                self.0 = state;
                return Ok(0);
            }
            let (state, bytes) = Self::step(state, to).map_err(|why| {
                let text = in_words(&why);
                self.0 = State::Failed(text.clone());
                io::Error::new(why.kind(), format!("lz4: {text}"))
            })?;
            self.0 = state;
            if bytes > 0 {
                return Ok(bytes);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use lz4_flex::frame::{BlockMode, BlockSize, FrameEncoder, FrameInfo};
    use std::io::Write;

    fn frame(info: FrameInfo, contents: &[u8]) -> Vec<u8> {
        let mut encoder = FrameEncoder::with_frame_info(info, Vec::new());
        encoder.write_all(contents).unwrap();
        encoder.finish().unwrap()
    }

    fn unpacked(packed: &[u8]) -> io::Result<Vec<u8>> {
        let mut contents = Vec::new();
        Lz4::new(packed).read_to_end(&mut contents).map(|_| contents)
    }

    #[test]
    fn frames_with_different_block_sizes_can_follow_each_other() {
        let contents: Vec<u8> = (0..300_000u32).flat_map(|number| (number / 7).to_le_bytes()).collect();
        let sizes = [BlockSize::Max4MB, BlockSize::Max64KB, BlockSize::Max1MB, BlockSize::Max256KB];
        let (mut packed, mut expected) = (Vec::new(), Vec::new());
        for (size, mode) in sizes.into_iter().zip([BlockMode::Linked, BlockMode::Independent].into_iter().cycle()) {
            let info = FrameInfo::new().block_size(size).block_mode(mode).block_checksums(true).content_checksum(true);
            packed.extend(frame(info, &contents));
            expected.extend_from_slice(&contents);
        }
        assert!(unpacked(&packed).unwrap() == expected);
    }

    #[test]
    fn every_truncation_is_an_error_on_each_read() {
        let contents: Vec<u8> = (0..70_000u64).map(|number| ((number * number) >> 7) as u8).collect();
        let first = frame(FrameInfo::new().block_size(BlockSize::Max64KB), &contents);
        let mut packed = first.clone();
        packed.extend([0x51, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3]);
        let second = packed.len();
        packed.extend(frame(FrameInfo::new().content_size(Some(20)), &contents[..20]));
        let boundaries = [0, first.len(), second, packed.len()];
        let near =
            |cut: &usize| cut.is_multiple_of(997) || boundaries.iter().any(|boundary| boundary.abs_diff(*cut) < 30);
        // The last cut is between the two blocks of the first frame.
        let block_bytes = u32::from_le_bytes(first[7..11].try_into().unwrap()) & (u32::MAX >> 1);
        let cuts = (0..=packed.len()).filter(near).chain([7 + 4 + block_bytes as usize]);
        for cut in cuts {
            let mut reader = Lz4::new(&packed[..cut]);
            let done = io::copy(&mut reader, &mut io::sink());
            assert_eq!(done.is_ok(), boundaries.contains(&cut), "cut at {cut}: {done:?}");
            assert_eq!(reader.read(&mut [0]).is_ok(), done.is_ok(), "a second read after a cut at {cut}");
        }
    }

    #[test]
    fn errors_describe_the_damage() {
        let whole = frame(FrameInfo::new().content_checksum(true), b"some text");
        let mut checksum = whole.clone();
        *checksum.last_mut().unwrap() ^= 1;
        let mut large = whole.clone();
        large[7..11].copy_from_slice(&(u32::MAX >> 1).to_le_bytes());
        let foreign = [&whole[..], b"text"].concat();
        // Frame descriptor: magic, flags, block size, content size, checksum of these.
        let mut sized = frame(FrameInfo::new().content_size(Some(9)), b"some text");
        sized.truncate(sized.len() - 4 - 9 - 4);
        sized.extend([0; 4]);
        let why = unpacked(&sized).expect_err("a frame without contents was accepted").to_string();
        assert_eq!(why, "lz4: a frame has 0 bytes of contents, but its header says 9");
        let skipped = [0x50, 0x2A, 0x4D, 0x18, 0xFF, 0xFF, 0xFF, 0xFF, 1];
        for packed in [&checksum[..], &large, &foreign, &skipped] {
            let why = unpacked(packed).expect_err("a damaged file was accepted").to_string();
            assert!(why.starts_with("lz4: ") && !why.contains("Error"), "{why}");
        }
    }
}
