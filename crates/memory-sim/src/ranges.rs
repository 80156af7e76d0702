//! A map from ranges of pages to values.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges of pages that do not overlap, each with a value.
#[derive(Clone, Debug)]
pub(crate) struct Ranges<T>(BTreeMap<u64, (u64, T)>);

impl<T> Default for Ranges<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Copy> Ranges<T> {
    /// The value at a page.
    pub fn at(&self, page: u64) -> Option<T> {
        let (_, &(end, value)) = self.0.range(..=page).next_back()?;
        (page < end).then_some(value)
    }

    /// The value of the first range that begins at a page or after it.
    pub fn beginning_from(&self, page: u64) -> Option<T> {
        self.0.range(page..).next().map(|(_, &(_, value))| value)
    }

    /// Gives a range a value in place of those that it has.
    pub fn insert(&mut self, pages: Range<u64>, value: T) {
        self.remove(&pages);
        if !pages.is_empty() {
            self.0.insert(pages.start, (pages.end, value));
        }
    }

    /// Removes the values of a range.
    pub fn remove(&mut self, pages: &Range<u64>) {
        for (range, value) in self.overlapping(pages) {
            self.0.remove(&range.start);
            for rest in [range.start..pages.start.min(range.end), pages.end.max(range.start)..range.end] {
                if !rest.is_empty() {
                    self.0.insert(rest.start, (rest.end, value));
                }
            }
        }
    }

    /// The ranges that overlap `pages`, whole, in ascending order.
    pub fn overlapping(&self, pages: &Range<u64>) -> Vec<(Range<u64>, T)> {
        let first = self.0.range(..=pages.start).next_back().filter(|(_, (end, _))| *end > pages.start);
        let first = first.map_or(pages.start, |(&start, _)| start);
        self.0.range(first..pages.end.max(first)).map(|(&start, &(end, value))| (start..end, value)).collect()
    }

    /// All ranges, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = (Range<u64>, T)> {
        self.0.iter().map(|(&start, &(end, value))| (start..end, value))
    }

    /// Moves the values of `old` to `new`, as far as they fit. `keeps_source`: they stay at `old`, too.
    pub fn relocate(&mut self, old: &Range<u64>, new: &Range<u64>, keeps_source: bool) {
        let found = self.overlapping(old);
        if !keeps_source {
            self.remove(old);
        }
        self.remove(new);
        for (range, value) in found {
            let start = range.start.max(old.start) - old.start + new.start;
            let end = (range.end.min(old.end) - old.start + new.start).min(new.end);
            if start < end {
                self.0.insert(start, (end, value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_values_replace_parts() {
        let mut ranges = Ranges::default();
        ranges.insert(100..200, 'a');
        ranges.insert(150..160, 'b');
        ranges.remove(&(120..130));
        let all: Vec<_> = ranges.iter().collect();
        assert_eq!(all, [(100..120, 'a'), (130..150, 'a'), (150..160, 'b'), (160..200, 'a')]);
        ranges.relocate(&(140..170), &(1000..1015), false);
        assert_eq!([140, 169, 170, 1005, 1014, 1015].map(|page| ranges.at(page)), {
            [None, None, Some('a'), Some('a'), Some('b'), None]
        });
    }
}
