//! Converts times of page faults to times of events.

use std::path::Path;

use crate::clock::{ClockPair, TickRate};
use crate::error::RecordError;

/// Bytes of a pair of readings in a file: ticks, then nanoseconds, little-endian.
pub const PAIR_BYTES: usize = 16;

/// The file format of a pair of readings.
pub fn to_bytes(pair: ClockPair) -> [u8; PAIR_BYTES] {
    let mut bytes = [0; PAIR_BYTES];
    bytes[..8].copy_from_slice(&pair.ticks.to_le_bytes());
    bytes[8..].copy_from_slice(&pair.ns.to_le_bytes());
    bytes
}

/// Pairs of readings of both clocks, taken at intervals while the program ran. Between two pairs both clocks are
/// assumed to run at constant rates.
pub struct Clocks {
    pairs: Vec<ClockPair>,
    rate: TickRate,
    start_ticks: u64,
}

impl Clocks {
    /// Reads the pairs of a session. Times are relative to `start_ticks`; `rate` is used before the first pair and
    /// after the last.
    ///
    /// # Errors
    /// The file cannot be read or has no pair.
    pub fn read(path: &Path, rate: TickRate, start_ticks: u64) -> Result<Self, RecordError> {
        let bytes = std::fs::read(path).map_err(RecordError::io(path, "read"))?;
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap_or_default());
        let pair = |bytes: &[u8]| ClockPair { ticks: word(&bytes[..8]), ns: word(&bytes[8..]) };
        let mut pairs: Vec<ClockPair> = bytes.chunks_exact(PAIR_BYTES).map(pair).collect();
        pairs.dedup_by(|later, earlier| later.ns <= earlier.ns || later.ticks <= earlier.ticks);
        if pairs.is_empty() {
            let why = "it has no clock readings".to_string();
            return Err(RecordError::BadSession { path: path.to_path_buf(), why });
        }
        Ok(Self { pairs, rate, start_ticks })
    }

    /// Converts CLOCK_MONOTONIC to nanoseconds since the start; `None` for times before it.
    pub fn since_start(&self, monotonic_ns: u64) -> Option<u64> {
        Some(self.rate.ns(self.ticks(monotonic_ns).checked_sub(self.start_ticks)?))
    }

    fn ticks(&self, monotonic_ns: u64) -> u64 {
        let after = self.pairs.partition_point(|pair| pair.ns <= monotonic_ns);
        let first = self.pairs[0];
        let Some(before) = after.checked_sub(1).map(|at| self.pairs[at]) else {
            return first.ticks.saturating_sub(self.rate.ticks(first.ns - monotonic_ns));
        };
        let elapsed_ns = monotonic_ns - before.ns;
        match self.pairs.get(after) {
            Some(next) => {
                let (ticks, ns) = (next.ticks - before.ticks, next.ns - before.ns);
                before.ticks + (u128::from(elapsed_ns) * u128::from(ticks) / u128::from(ns)) as u64
            }
            None => before.ticks.saturating_add(self.rate.ticks(elapsed_ns)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Clocks, to_bytes};
    use crate::clock::{ClockPair, TickRate};

    #[test]
    fn a_time_is_interpolated_between_the_readings_around_it() {
        // 2 ticks per nanosecond at first, then 3.
        let pairs = [(1_000, 500), (3_000, 1_500), (6_000, 2_500)].map(|(ticks, ns)| ClockPair { ticks, ns });
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), pairs.map(to_bytes).concat()).expect("writable");
        let rate =
            TickRate::between(ClockPair { ticks: 0, ns: 0 }, ClockPair { ticks: 2_000, ns: 1_000 }).expect("a rate");
        let clocks = Clocks::read(file.path(), rate, 600).expect("clocks");
        let seen = [200, 400, 500, 1_000, 1_500, 2_000, 2_500, 2_600].map(|ns| clocks.since_start(ns));
        let wanted = [None, Some(100), Some(200), Some(700), Some(1_200), Some(1_950), Some(2_700), Some(2_800)];
        assert_eq!(seen, wanted);
    }
}
