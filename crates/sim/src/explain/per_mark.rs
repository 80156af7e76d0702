//! Installs after each mark of a name: what one request of a server costs, if the program sets a mark at each.

/// Installs between consecutive marks of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerMark {
    name: u32,
    /// Installs before the first mark of the name.
    pub installs_before: u64,
    /// Installs after each mark of the name, up to the next one or the end.
    pub installs: Vec<u64>,
}

impl PerMark {
    pub(super) fn new(name: u32) -> PerMark {
        PerMark { name, installs_before: 0, installs: Vec::new() }
    }

    /// A mark was passed.
    pub(super) fn passed(&mut self, name: u32) {
        if name == self.name {
            self.installs.push(0);
        }
    }

    pub(super) fn add(&mut self, installs: u64) {
        *self.installs.last_mut().unwrap_or(&mut self.installs_before) += installs;
    }

    /// The number of installs that `share` of the intervals do not exceed, 0 to 1; 0 without intervals.
    pub fn quantile(&self, share: f64) -> u64 {
        let mut sorted = self.installs.clone();
        sorted.sort_unstable();
        let rank = (share.clamp(0.0, 1.0) * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }
}
