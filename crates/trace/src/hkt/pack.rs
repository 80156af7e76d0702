//! Compresses planes by one of two methods: match search, or entropy coding alone. Each plane uses the method that was
//! better in recent chunks.
//!
//! Without match search zstd only assigns shorter codes to frequent bytes. Compression and decompression are several
//! times faster. If a plane's values are in random order (such as sizes), the result is also shorter: the few matches
//! cost more than they save.

use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, ParamSwitch, Strategy};

const SEARCH_LEVEL: i32 = 1;
/// The largest step of zstd's fast strategy. It is larger than a plane, so zstd searches no position.
const PASS_OVER: u32 = 1 << 17;
/// Maximum number of chunks until both methods are tried again. The interval is shorter if the better method changes
/// often.
const TRIAL_CHUNKS_MAX: u8 = 16;
/// Entropy coding alone is faster, so it is preferred even if its result is longer by up to 1/128 of the plane's
/// length.
const SLACK_SHARE: usize = 128;

/// Compresses the planes of a file; its buffers are reused.
pub(super) struct Packer {
    zstd: Compressors,
    packed: Vec<u8>,
    /// While both methods are tried: the result of the first.
    before: Vec<u8>,
}

/// The methods of the planes of a column, lowest byte first.
#[derive(Debug, Default)]
pub(super) struct ColumnMethods(pub(super) [PlaneMethod; 8]);

/// The method of a plane, and when to try the other.
#[derive(Debug, Default)]
pub(super) struct PlaneMethod {
    kind: Method,
    /// The compressed length at the last trial, in 256ths of the plane's length.
    share: usize,
    /// Chunks from the last trial to the next, and how many of them are left.
    trial_chunks: u8,
    chunks_left: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Method {
    #[default]
    MatchSearch,
    EntropyOnly,
}

impl Packer {
    pub(super) fn new() -> std::io::Result<Self> {
        let mut entropy_only = Compressor::new(SEARCH_LEVEL)?;
        entropy_only.set_parameter(CParameter::Strategy(Strategy::ZSTD_fast))?;
        entropy_only.set_parameter(CParameter::TargetLength(PASS_OVER))?;
        // The hash table is cleared for each plane. No position is searched, so the smallest size is enough.
        entropy_only.set_parameter(CParameter::HashLog(6))?;
        entropy_only.set_parameter(CParameter::LiteralCompressionMode(ParamSwitch::Enable))?;
        let zstd = Compressors { match_search: Compressor::new(SEARCH_LEVEL)?, entropy_only };
        Ok(Packer { zstd, packed: Vec::new(), before: Vec::new() })
    }

    /// The compressed plane. `None` if compression saves less than a sixteenth: decompression would take longer than
    /// reading the uncompressed bytes.
    pub(super) fn pack(&mut self, plane: &[u8], method: &mut PlaneMethod) -> Option<&[u8]> {
        let mut bytes = compress(self.zstd.get(method.kind), plane, &mut self.packed);
        let share = bytes * 256 / plane.len();
        method.chunks_left = method.chunks_left.saturating_sub(1);
        // If the length changed, the contents changed too, and the other method may be better.
        if method.chunks_left == 0 || share.abs_diff(method.share) > method.share / 8 {
            bytes = self.try_other(plane, bytes, method);
        }
        (bytes + plane.len() / 16 + 2 < plane.len()).then_some(self.packed.as_slice())
    }

    /// Tries the other method and keeps the better one. `bytes` is the length of the current method's result. Returns
    /// the length of the better result.
    #[cold]
    fn try_other(&mut self, plane: &[u8], bytes: usize, method: &mut PlaneMethod) -> usize {
        let other = match method.kind {
            Method::MatchSearch => Method::EntropyOnly,
            Method::EntropyOnly => Method::MatchSearch,
        };
        std::mem::swap(&mut self.packed, &mut self.before);
        let other_bytes = compress(self.zstd.get(other), plane, &mut self.packed);
        let slack = plane.len() / SLACK_SHARE;
        let other_wins = match other {
            Method::EntropyOnly => other_bytes <= bytes + slack,
            Method::MatchSearch => other_bytes + slack < bytes,
        };
        let (kind, bytes, trial_chunks) = if other_wins {
            (other, other_bytes, 1)
        } else {
            std::mem::swap(&mut self.packed, &mut self.before);
            (method.kind, bytes, (2 * method.trial_chunks).clamp(1, TRIAL_CHUNKS_MAX))
        };
        *method = PlaneMethod { kind, share: bytes * 256 / plane.len(), trial_chunks, chunks_left: trial_chunks };
        bytes
    }
}

struct Compressors {
    match_search: Compressor<'static>,
    entropy_only: Compressor<'static>,
}

impl Compressors {
    fn get(&mut self, kind: Method) -> &mut Compressor<'static> {
        match kind {
            Method::MatchSearch => &mut self.match_search,
            Method::EntropyOnly => &mut self.entropy_only,
        }
    }
}

/// Compresses a plane. Returns the compressed length, or the plane's own length if compression would make it longer.
fn compress(zstd: &mut Compressor<'_>, plane: &[u8], packed: &mut Vec<u8>) -> usize {
    packed.clear();
    // A longer result would not fit, and zstd returns an error.
    packed.reserve_exact(plane.len());
    zstd.compress_to_buffer(plane, packed).unwrap_or(plane.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Random bytes with `kinds` different values.
    fn disorder(kinds: u64) -> Vec<u8> {
        let mut random = 88_172_645_463_325_252u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random >> 32) % kinds
        };
        (0..16_384).map(|_| next() as u8).collect()
    }

    /// A thousand random bytes, repeated.
    fn order() -> Vec<u8> {
        disorder(256).into_iter().take(1000).cycle().take(16_384).collect()
    }

    fn pack(packer: &mut Packer, plane: &[u8], method: &mut PlaneMethod) -> Option<usize> {
        let packed = packer.pack(plane, method)?.to_vec();
        assert_eq!(zstd::bulk::decompress(&packed, plane.len()).unwrap(), plane);
        Some(packed.len())
    }

    #[test]
    fn each_plane_gets_the_method_with_the_shorter_result() {
        let mut packer = Packer::new().unwrap();
        for (plane, kind, bytes_max) in [(disorder(2), Method::EntropyOnly, 2300), (order(), Method::MatchSearch, 1300)]
        {
            let mut method = PlaneMethod::default();
            for chunk in 0..40 {
                let bytes = pack(&mut packer, &plane, &mut method);
                assert!(bytes.is_some_and(|bytes| bytes < bytes_max), "chunk {chunk}: {bytes:?}");
                assert_eq!(method.kind, kind, "chunk {chunk}");
            }
        }
        assert_eq!(pack(&mut packer, &disorder(256), &mut PlaneMethod::default()), None);
    }

    #[test]
    fn the_method_changes_with_the_contents() {
        let (mut packer, mut method) = (Packer::new().unwrap(), PlaneMethod::default());
        for round in 0..20 {
            for (plane, bytes_max) in [(disorder(7), 6200), (order(), 1300), (disorder(2), 2300), (order(), 1300)] {
                let bytes = pack(&mut packer, &plane, &mut method);
                assert!(bytes.is_some_and(|bytes| bytes < bytes_max), "round {round}: {bytes:?}");
            }
        }
    }
}
