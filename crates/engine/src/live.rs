//! Live bytes: the lower bound that every design is compared with.

/// Requested bytes of live objects, and how many of them were touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Requested bytes of live objects.
    pub bytes: u64,
    /// The highest value of `bytes`.
    pub bytes_peak: u64,
    /// Distinct touched bytes of live objects. Without [`crate::Driver::counting_scattered`], only those in the touched
    /// prefix of each object.
    pub touched_bytes: u64,
    /// The highest value of `touched_bytes`.
    pub touched_bytes_peak: u64,
}

/// Counts [`Live`].
#[derive(Default)]
pub(crate) struct LiveCounter {
    bytes: PeakCounter,
    touched_bytes: PeakCounter,
}

impl LiveCounter {
    #[inline(always)]
    pub(crate) fn add(&mut self, bytes: u64, touched_bytes: u64) {
        self.bytes.add(bytes);
        self.touched_bytes.add(touched_bytes);
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, bytes: u64, touched_bytes: u64) {
        self.bytes.below_peak += bytes;
        self.touched_bytes.below_peak += touched_bytes;
    }

    pub(crate) fn get(&self) -> Live {
        Live {
            bytes: self.bytes.peak - self.bytes.below_peak,
            bytes_peak: self.bytes.peak,
            touched_bytes: self.touched_bytes.peak - self.touched_bytes.below_peak,
            touched_bytes_peak: self.touched_bytes.peak,
        }
    }
}

/// A number and its peak, stored so that most changes are one subtraction or addition.
#[derive(Default)]
struct PeakCounter {
    peak: u64,
    below_peak: u64,
}

impl PeakCounter {
    #[inline(always)]
    fn add(&mut self, more: u64) {
        match self.below_peak.checked_sub(more) {
            Some(below) => self.below_peak = below,
            None => {
                self.peak += more - self.below_peak;
                self.below_peak = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_the_highest_values() {
        let (mut counter, mut expected, mut seed) = (LiveCounter::default(), Live::default(), 7u64);
        let mut objects: Vec<(u64, u64)> = Vec::new();
        for _ in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let draw = seed >> 33;
            if draw % 100 < 52 || objects.is_empty() {
                let (bytes, touched_bytes) = (draw % 5000, draw % 7);
                objects.push((bytes, touched_bytes));
                counter.add(bytes, touched_bytes);
                expected.bytes += bytes;
                expected.touched_bytes += touched_bytes;
            } else {
                let (bytes, touched_bytes) = objects.swap_remove(draw as usize % objects.len());
                counter.remove(bytes, touched_bytes);
                expected.bytes -= bytes;
                expected.touched_bytes -= touched_bytes;
            }
            expected.bytes_peak = expected.bytes_peak.max(expected.bytes);
            expected.touched_bytes_peak = expected.touched_bytes_peak.max(expected.touched_bytes);
            assert_eq!(counter.get(), expected);
        }
    }
}
