//! Installs after each mark of a name: what one request of a server costs, if the program sets a mark at each.

/// Installs from each mark of one name to the next mark of any name, as phases are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PerMark {
    name: u32,
    /// Whether the last mark has this name.
    is_inside: bool,
    /// Installs before the first mark of the name.
    pub installs_before: u64,
    /// Installs after each mark of the name, up to the next mark of any name or the end.
    pub installs: Vec<u64>,
    /// Installs after marks of other names that follow the first mark of the name.
    pub installs_elsewhere: u64,
}

impl PerMark {
    pub(super) fn new(name: u32) -> PerMark {
        PerMark { name, is_inside: false, installs_before: 0, installs: Vec::new(), installs_elsewhere: 0 }
    }

    /// A mark was passed.
    pub(super) fn passed(&mut self, name: u32) {
        self.is_inside = name == self.name;
        if self.is_inside {
            self.installs.push(0);
        }
    }

    pub(super) fn add(&mut self, installs: u64) {
        let count = match self.installs.last_mut() {
            None => &mut self.installs_before,
            Some(window) if self.is_inside => window,
            Some(_) => &mut self.installs_elsewhere,
        };
        *count += installs;
    }

    /// The number of installs that `share` of the intervals do not exceed, 0 to 1; 0 without intervals.
    pub fn quantile(&self, share: f64) -> u64 {
        let mut sorted = self.installs.clone();
        sorted.sort_unstable();
        let rank = (share.clamp(0.0, 1.0) * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }
}
