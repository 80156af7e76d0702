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

    /// The median: for an even number of intervals, the mean of the middle two. 0 without intervals.
    pub fn median(&self) -> f64 {
        let mut sorted = self.installs.clone();
        sorted.sort_unstable();
        let middle =
            [sorted.len().saturating_sub(1) / 2, sorted.len() / 2].map(|at| sorted.get(at).copied().unwrap_or(0));
        (middle[0] + middle[1]) as f64 / 2.0
    }

    /// The number of installs that `share` of the intervals do not exceed, 0 to 1; 0 without intervals.
    pub fn quantile(&self, share: f64) -> u64 {
        let mut sorted = self.installs.clone();
        sorted.sort_unstable();
        let rank = (share.clamp(0.0, 1.0) * sorted.len() as f64).ceil() as usize;
        sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn median(installs: &[u64]) -> f64 {
        PerMark { installs: installs.to_vec(), ..PerMark::new(0) }.median()
    }

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!((median(&[]), median(&[7]), median(&[9, 1]), median(&[3, 1, 8])), (0.0, 7.0, 5.0, 3.0));
        assert_eq!(median(&[4, 1, 2, 100]), 3.0);
        assert_eq!(median(&[4, 1, 3, 100]), 3.5);
    }
}
