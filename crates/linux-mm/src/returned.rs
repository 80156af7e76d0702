//! Memory that a process returned to the kernel, in the order in which it is taken again.

/// Levels of resident memory that the process has left, as intervals from low to high: each ends at `top`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Levels {
    top: u64,
    /// The least resident memory since the process left these levels.
    least: u64,
}

/// What a process returned and has not taken again. The kernel hands out the memory first that it got last, so memory
/// that is taken at some level of resident memory is what was returned when the process last left that level.
#[derive(Clone, Debug, Default)]
pub(super) struct Returned {
    resident_bytes: u64,
    /// From high to low levels: the last are the first to be taken again. `least` grows from the first to the last.
    left: Vec<Levels>,
}

impl Returned {
    /// Takes `bytes` at the level that was noted last. Returns how many bytes passed through the caches since this memory
    /// was returned, itself included: what was returned after it and has been taken again. `None` if some of the memory is
    /// new.
    pub(super) fn take(&mut self, bytes: u64) -> Option<u64> {
        let after = self.resident_bytes + bytes;
        self.rise(after).map(|least| after - least)
    }

    /// Notes the level of resident memory. What was returned is known from the levels, so they are noted before each
    /// [`Returned::take`], and after whatever else makes resident memory grow.
    pub(super) fn reach(&mut self, resident_bytes: u64) {
        if resident_bytes < self.resident_bytes {
            self.fall(resident_bytes);
        } else {
            self.rise(resident_bytes);
        }
    }

    /// Resident memory falls to `level`.
    fn fall(&mut self, level: u64) {
        let mut top = self.resident_bytes;
        while let Some(levels) = self.left.pop_if(|levels| levels.least >= level) {
            top = levels.top;
        }
        self.left.push(Levels { top, least: level });
        self.resident_bytes = level;
    }

    /// Resident memory rises to `level`. Returns the least resident memory since the process left that level.
    fn rise(&mut self, level: u64) -> Option<u64> {
        let mut reached = None;
        while let Some(levels) = self.left.pop_if(|levels| levels.top <= level) {
            reached = (levels.top == level).then_some(levels.least);
        }
        self.resident_bytes = level;
        reached.or(self.left.last().map(|levels| levels.least))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, from the whole history of resident memory.
    fn least_since_left(history: &[u64], level: u64) -> Option<u64> {
        let left = history.iter().rposition(|&resident| resident >= level)?;
        history[left + 1..].iter().min().copied()
    }

    fn taken(returned: &mut Returned, resident_bytes: u64, bytes: u64) -> Option<u64> {
        returned.reach(resident_bytes);
        returned.take(bytes)
    }

    #[test]
    fn a_loop_that_maps_and_unmaps_takes_what_it_returned_last() {
        let mut returned = Returned::default();
        let mut take = |resident, bytes| taken(&mut returned, resident, bytes);
        assert_eq!(take(0, 96), None, "new");
        // 96 were returned at the start. Then 2 are taken and returned again and again.
        assert_eq!([take(0, 1), take(1, 1)], [Some(1), Some(2)]);
        assert_eq!([take(0, 1), take(1, 1)], [Some(1), Some(2)]);
        assert_eq!([take(2, 90), take(92, 4), take(96, 1)], [Some(92), Some(96), None]);
    }

    /// Continues a history in every way by up to `steps` takes and returns.
    fn check_all(returned: &Returned, history: &[u64], steps: u32) {
        let Some(steps) = steps.checked_sub(1) else { return };
        let resident = history.last().copied().unwrap_or(0);
        let extended = |level| [history, &[level]].concat();
        (0..resident).for_each(|level| check_all(returned, &extended(level), steps));
        for bytes in 1..=3 {
            let (mut returned, after) = (returned.clone(), resident + bytes);
            let expected = least_since_left(history, after).map(|least| after - least);
            assert_eq!(taken(&mut returned, resident, bytes), expected, "{history:?} and {bytes}");
            check_all(&returned, &extended(after), steps);
        }
    }

    #[test]
    fn depths_are_those_of_every_short_history() {
        check_all(&Returned::default(), &[0], 7);
    }
}
