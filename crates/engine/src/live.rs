//! What is live: the floor that every design is compared with.

/// Live requested bytes, and how many of them were touched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Requested bytes of live objects.
    pub bytes: u64,
    /// The highest value of `bytes`.
    pub bytes_peak: u64,
    /// Distinct bytes of live objects that were touched. Without [`crate::Driver::counting_scattered`], of an object that was
    /// touched in several places only those that follow its first byte without a gap.
    pub touched_bytes: u64,
    /// The highest value of `touched_bytes`.
    pub touched_bytes_peak: u64,
}

impl Live {
    #[inline(always)]
    pub(crate) fn add(&mut self, bytes: u64, touched_bytes: u64) {
        self.bytes += bytes;
        self.bytes_peak = self.bytes_peak.max(self.bytes);
        self.touched_bytes += touched_bytes;
        self.touched_bytes_peak = self.touched_bytes_peak.max(self.touched_bytes);
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, bytes: u64, touched_bytes: u64) {
        self.bytes -= bytes;
        self.touched_bytes -= touched_bytes;
    }
}
