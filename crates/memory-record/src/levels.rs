//! An amount over time.

use std::ops::RangeInclusive;

/// Changes that are kept; of a process with more, nothing is.
const CHANGES_MAX: usize = 1 << 22;

/// An amount of memory over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Levels {
    /// The time and the new level of each change, in order.
    changes: Vec<(u64, u64)>,
    has_too_many: bool,
}

impl Levels {
    /// Takes the next change. Its time must not be before that of the last one.
    pub(crate) fn take(&mut self, time_ns: u64, bytes: u64) {
        if self.has_too_many {
            return;
        }
        self.changes.push((time_ns, bytes));
        if self.changes.len() > CHANGES_MAX {
            *self = Levels { has_too_many: true, ..Levels::default() };
        }
    }

    /// The level at a time; `None` before the first change.
    pub fn at(&self, time_ns: u64) -> Option<u64> {
        let after = self.changes.partition_point(|&(time, _)| time <= time_ns);
        Some(self.changes[after.checked_sub(1)?].1)
    }

    /// The sum of all rises after a time.
    pub fn rises_after(&self, time_ns: u64) -> u64 {
        let after = self.changes.partition_point(|&(time, _)| time <= time_ns);
        let since = self.changes[after.saturating_sub(1)..].windows(2);
        since.map(|pair| pair[1].1.saturating_sub(pair[0].1)).sum()
    }

    /// The highest level within a time, that at its begin included; `None` if the first change is later.
    pub fn highest_within(&self, time_ns: RangeInclusive<u64>) -> Option<u64> {
        let at_begin = self.at(*time_ns.start())?;
        let first = self.changes.partition_point(|(time, _)| time <= time_ns.start());
        let changes = self.changes[first..].iter().take_while(|(time, _)| time <= time_ns.end());
        Some(changes.map(|(_, bytes)| *bytes).fold(at_begin, u64::max))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_level_is_that_of_the_time_asked_for() {
        let mut levels = Levels::default();
        [(10, 4), (20, 9), (20, 2), (30, 6), (40, 1)].iter().for_each(|&(time, bytes)| levels.take(time, bytes));
        assert_eq!([9, 10, 19, 20, 45].map(|time| levels.at(time)), [None, Some(4), Some(4), Some(2), Some(1)]);
        let highest = |from, until| levels.highest_within(from..=until);
        assert_eq!([highest(10, 19), highest(15, 20), highest(21, 29)], [Some(4), Some(9), Some(2)]);
        assert_eq!([9, 10, 19, 20, 40].map(|time| levels.rises_after(time)), [9, 9, 9, 4, 0]);
        assert_eq!([highest(21, 50), highest(40, 50), highest(0, 50)], [Some(6), Some(1), None]);
        (0..CHANGES_MAX as u64).for_each(|time| levels.take(50 + time, 1));
        assert_eq!(levels.at(45), None, "too many");
    }
}
