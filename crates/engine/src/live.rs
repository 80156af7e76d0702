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
