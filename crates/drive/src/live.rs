//! What is live: the floor that every design is compared with.

/// Live requested bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// Requested bytes of live objects.
    pub bytes: u64,
    /// The highest value of `bytes`.
    pub bytes_peak: u64,
}

impl Live {
    #[inline(always)]
    pub(crate) fn add(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.bytes_peak = self.bytes_peak.max(self.bytes);
    }

    #[inline(always)]
    pub(crate) fn remove(&mut self, bytes: u64) {
        self.bytes -= bytes;
    }
}
