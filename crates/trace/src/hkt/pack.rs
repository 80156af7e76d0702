//! Compressing planes: with a search for repetitions or without, whichever did better for the same plane of late.
//!
//! Without the search zstd only gives frequent bytes shorter codes. That is several times faster, both ways, and for planes
//! whose values come in no order (which slot, which size) shorter, too: the few repetitions found cost more than they save.

use zstd::bulk::Compressor;
use zstd::zstd_safe::{CParameter, ParamSwitch, Strategy};

const SEARCH_LEVEL: i32 = 1;
/// The most positions that zstd's fast strategy can pass over: more than a plane has, so it looks at none.
const PASS_OVER: u32 = 1 << 17;
/// Chunks after which both ways are tried again, at the most. The fewer the more often the better way changes.
const TRIAL_CHUNKS_MAX: u8 = 16;
/// Without the search a plane may be longer by this share of it, for the time saved.
const SLACK_SHARE: usize = 128;

/// What compresses the planes of a file; its buffers are re-used.
pub(super) struct Packer {
    zstd: Compressors,
    packed: Vec<u8>,
    /// What the way tried before gave.
    before: Vec<u8>,
}

/// How the planes of a column were compressed best, from the lowest byte up.
#[derive(Debug, Default)]
pub(super) struct ColumnMethods(pub(super) [PlaneMethod; 8]);

/// How a plane was compressed best.
#[derive(Debug, Default)]
pub(super) struct PlaneMethod {
    kind: Method,
    /// Its length then, in 256ths of the plane's.
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
        // No position is looked at, so the table of positions is as small as it can be: it is emptied for each plane.
        entropy_only.set_parameter(CParameter::HashLog(6))?;
        entropy_only.set_parameter(CParameter::LiteralCompressionMode(ParamSwitch::Enable))?;
        let zstd = Compressors { match_search: Compressor::new(SEARCH_LEVEL)?, entropy_only };
        Ok(Packer { zstd, packed: Vec::new(), before: Vec::new() })
    }

    /// The plane compressed; `None` where that saves less than a sixteenth, as undoing it would cost more time than
    /// reading it.
    pub(super) fn pack(&mut self, plane: &[u8], method: &mut PlaneMethod) -> Option<&[u8]> {
        let mut bytes = compress(self.zstd.get(method.kind), plane, &mut self.packed);
        let share = bytes * 256 / plane.len();
        method.chunks_left = method.chunks_left.saturating_sub(1);
        // Where the length changes the contents did, and the habit may be the wrong one.
        if method.chunks_left == 0 || share.abs_diff(method.share) > method.share / 8 {
            bytes = self.try_other(plane, bytes, method);
        }
        (bytes + plane.len() / 16 + 2 < plane.len()).then_some(self.packed.as_slice())
    }

    /// Makes the better way the habit, after the present one gave so many bytes; the length of what is packed then.
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

/// Compresses a plane; its length afterwards, that of the plane where it would grow.
fn compress(zstd: &mut Compressor<'_>, plane: &[u8], packed: &mut Vec<u8>) -> usize {
    packed.clear();
    // A plane that would grow does not fit and is an error of zstd.
    packed.reserve_exact(plane.len());
    zstd.compress_to_buffer(plane, packed).unwrap_or(plane.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes in no order, of so many kinds.
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

    /// A pattern of a thousand bytes again and again.
    fn order() -> Vec<u8> {
        disorder(256).into_iter().take(1000).cycle().take(16_384).collect()
    }

    fn pack(packer: &mut Packer, plane: &[u8], method: &mut PlaneMethod) -> Option<usize> {
        let packed = packer.pack(plane, method)?.to_vec();
        assert_eq!(zstd::bulk::decompress(&packed, plane.len()).unwrap(), plane);
        Some(packed.len())
    }

    #[test]
    fn each_plane_gets_the_way_that_is_shorter() {
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
    fn a_habit_ends_where_the_contents_change() {
        let (mut packer, mut method) = (Packer::new().unwrap(), PlaneMethod::default());
        for round in 0..20 {
            for (plane, bytes_max) in [(disorder(7), 6200), (order(), 1300), (disorder(2), 2300), (order(), 1300)] {
                let bytes = pack(&mut packer, &plane, &mut method);
                assert!(bytes.is_some_and(|bytes| bytes < bytes_max), "round {round}: {bytes:?}");
            }
        }
    }
}
