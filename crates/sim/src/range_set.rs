//! A set of numbers, stored as ranges, so that adding a long range is one step.

use std::collections::BTreeMap;
use std::ops::Range;

/// A set of page numbers, or of other numbers that occur in ranges.
#[derive(Clone, Debug, Default)]
pub(crate) struct RangeSet {
    /// The end of each range, by its start. No two ranges touch.
    ranges: BTreeMap<u64, u64>,
}

impl RangeSet {
    /// Whether any number of a range is in the set.
    pub(crate) fn meets(&self, range: &Range<u64>) -> bool {
        !range.is_empty() && self.ranges.range(..range.end).next_back().is_some_and(|(_, &end)| end > range.start)
    }

    /// Whether a number is in the set.
    pub(crate) fn contains(&self, number: u64) -> bool {
        self.meets(&(number..number + 1))
    }

    /// The ranges, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&start, &end)| start..end)
    }

    /// Number of elements of a range that are in the set.
    pub(crate) fn count_in(&self, range: &Range<u64>) -> u64 {
        let ends_after = |&(_, &end): &(&u64, &u64)| end > range.start;
        let overlapping = self.ranges.range(..range.end).rev().take_while(ends_after);
        overlapping.map(|(&start, &end)| end.min(range.end) - start.max(range.start)).sum()
    }

    /// Adds a range.
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let Range { mut start, mut end } = range;
        while let Some((&first, &last)) = self.ranges.range(..=end).next_back().filter(|&(_, &last)| last >= start) {
            self.ranges.remove(&first);
            (start, end) = (start.min(first), end.max(last));
        }
        self.ranges.insert(start, end);
    }

    /// Removes a range.
    pub(crate) fn remove(&mut self, range: &Range<u64>) {
        if range.is_empty() {
            return;
        }
        while let Some((&first, &last)) =
            self.ranges.range(..range.end).next_back().filter(|&(_, &last)| last > range.start)
        {
            self.ranges.remove(&first);
            if first < range.start {
                self.ranges.insert(first, range.start);
            }
            if last > range.end {
                self.ranges.insert(range.end, last);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn a_range_set_equals_a_set_of_single_numbers() {
        let (mut ranges, mut plain, mut state) = (RangeSet::default(), HashSet::new(), 7u64);
        for step in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let start = state >> 58;
            let range = start..start + ((state >> 40) & 15);
            match (state >> 50) & 3 {
                0 => range.clone().for_each(|number| _ = plain.insert(number)),
                1 => plain.retain(|number| !range.contains(number)),
                _ => {}
            }
            match (state >> 50) & 3 {
                0 => ranges.insert(range.clone()),
                1 => ranges.remove(&range),
                _ => {}
            }
            let expected = range.clone().any(|number| plain.contains(&number));
            assert_eq!(ranges.meets(&range), expected, "step {step}: {range:?} of {ranges:?}");
            assert_eq!(ranges.contains(start), plain.contains(&start), "step {step}");
            let count = range.clone().filter(|number| plain.contains(number)).count();
            assert_eq!(ranges.count_in(&range), count as u64, "step {step}: {range:?} of {ranges:?}");
            assert!(ranges.iter().flatten().all(|number| plain.contains(&number)), "step {step}");
            assert_eq!(ranges.iter().flatten().count(), plain.len(), "step {step}");
            let apart = ranges.ranges.iter().zip(ranges.ranges.keys().skip(1)).all(|((_, end), next)| end < next);
            assert!(apart, "step {step}: {ranges:?}");
        }
    }
}
