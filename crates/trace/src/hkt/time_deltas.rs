//! The times between consecutive events of a chunk.
//!
//! They are often all equal: in generated traces, and in those that were imported from a format without times. Then
//! nothing has to be added up, and a chunk with the same time as the one before leaves the values as they are.

use super::column::{ColumnDecoder, Flaw};
use std::ops::Range;

/// Nanoseconds since the previous event, by event.
#[derive(Default)]
pub(super) struct TimeDeltas {
    each_ns: Vec<u64>,
    /// The value of all, if it is known that they are equal.
    every_ns: Option<u64>,
}

impl TimeDeltas {
    pub(super) fn with_capacity(events: usize) -> Self {
        TimeDeltas { each_ns: Vec::with_capacity(events), every_ns: None }
    }

    pub(super) fn as_slice(&self) -> &[u64] {
        &self.each_ns
    }

    pub(super) fn clear(&mut self) {
        self.each_ns.clear();
        self.every_ns = None;
    }

    pub(super) fn push(&mut self, delta_ns: u64) {
        self.each_ns.push(delta_ns);
        self.every_ns = None;
    }

    /// Adds `events` deltas of 0, for the caller to set.
    pub(super) fn extend(&mut self, events: usize) -> &mut [u64] {
        self.every_ns = None;
        let before = self.each_ns.len();
        self.each_ns.resize(before + events, 0);
        &mut self.each_ns[before..]
    }

    /// Replaces the deltas by those of a column.
    pub(super) fn decode(&mut self, decoder: &mut ColumnDecoder, input: &mut &[u8]) -> Result<(), Flaw> {
        let every_ns = decoder.decode_over(input, &mut self.each_ns, self.every_ns);
        self.every_ns = every_ns.as_ref().ok().copied().flatten();
        every_ns.map(|_| ())
    }

    /// The sum of a range, wrapping.
    pub(super) fn sum_ns(&self, events: Range<usize>) -> u64 {
        match self.every_ns {
            Some(every_ns) => every_ns.wrapping_mul((events.end - events.start) as u64),
            None => self.each_ns[events].iter().fold(0, |sum, delta| sum.wrapping_add(*delta)),
        }
    }

    /// The sum of all; `None` if it overflows.
    pub(super) fn duration_ns(&self) -> Option<u64> {
        if let Some(every_ns) = self.every_ns {
            return every_ns.checked_mul(self.each_ns.len() as u64);
        }
        // Below 2^50, the deltas of a chunk cannot overflow, and the sum of 64-bit numbers is several times faster.
        let add = |(bits, sum): (u64, u64), delta: &u64| (bits | delta, sum.wrapping_add(*delta));
        let (bits, sum) = self.each_ns.iter().fold((0, 0), add);
        if bits < 1 << 50 {
            return Some(sum);
        }
        let total: u128 = self.each_ns.iter().map(|&delta| u128::from(delta)).sum();
        u64::try_from(total).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hkt::CHUNK_EVENTS_MAX;
    use crate::hkt::column::ColumnEncoder;
    use crate::hkt::pack::ColumnMethods;

    /// Columns of all kinds, read one after another into the same deltas. The oracle adds each column up.
    #[test]
    fn columns_follow_each_other() {
        let mut state = 0x2545_F491_4F6C_DD1Du64;
        let mut draw = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let mut deltas = TimeDeltas::with_capacity(CHUNK_EVENTS_MAX);
        let (mut encoder, mut decoder) = (ColumnEncoder::new().unwrap(), ColumnDecoder::new(CHUNK_EVENTS_MAX).unwrap());
        for round in 0..600 {
            let events = [1, 2, 1000, CHUNK_EVENTS_MAX][draw(4) as usize];
            let every_ns = [0, 100, 100, 1 << 33, u64::MAX / 1000][draw(5) as usize];
            let mut column = vec![every_ns; events];
            match draw(4) {
                0 => column.iter_mut().for_each(|delta| *delta = draw(300)),
                1 => column[draw(events as u64) as usize] = draw(1 << 40),
                _ => {}
            }
            let mut stored = Vec::new();
            encoder.encode(&column, &mut ColumnMethods::default(), &mut stored);
            match draw(10) {
                0 => {
                    assert!(deltas.decode(&mut decoder, &mut &stored[..stored.len() - 1]).is_err());
                }
                1 => {
                    deltas.clear();
                    deltas.push(7);
                    deltas.extend(1)[0] = 8;
                    assert_eq!((deltas.as_slice(), deltas.duration_ns()), ([7, 8].as_slice(), Some(15)));
                }
                _ => {}
            }
            deltas.decode(&mut decoder, &mut stored.as_slice()).unwrap();
            assert!(deltas.as_slice() == column, "round {round}");
            let sum = |range: &[u64]| range.iter().map(|&delta| u128::from(delta)).sum::<u128>();
            assert_eq!(deltas.duration_ns(), u64::try_from(sum(&column)).ok(), "round {round}");
            let (start, end) = (draw(events as u64 + 1) as usize, draw(events as u64 + 1) as usize);
            let range = start.min(end)..start.max(end);
            assert_eq!(deltas.sum_ns(range.clone()), sum(&column[range]) as u64, "round {round}");
        }
    }
}
