//! The highest level of an amount since any moment.

/// The levels of an amount over time that no later level reaches: enough to tell the highest since any moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Levels(Vec<Level>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Level {
    bytes: u64,
    /// The time of the next change.
    until_ns: u64,
}

impl Levels {
    /// Takes the next change. Its time must not be before that of the last one.
    pub(crate) fn take(&mut self, time_ns: u64, bytes: u64) {
        // The last level is always the present one.
        if let Some(last) = self.0.last_mut() {
            last.until_ns = time_ns;
        }
        while self.0.last().is_some_and(|last| last.bytes <= bytes) {
            self.0.pop();
        }
        self.0.push(Level { bytes, until_ns: u64::MAX });
    }

    /// The highest level since a moment, that of the moment included; `None` without changes.
    pub fn highest_since(&self, time_ns: u64) -> Option<u64> {
        let first = self.0.partition_point(|level| level.until_ns <= time_ns);
        self.0.get(first).map(|level| level.bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_since_a_moment_is_that_of_all_changes() {
        let mut state = 7u64;
        let mut draw = |below: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state % below
        };
        for _ in 0..200 {
            let changes: Vec<(u64, u64)> = (0..30).map(|number| (10 * number + draw(10), draw(12))).collect();
            let mut levels = Levels::default();
            changes.iter().for_each(|&(time, bytes)| levels.take(time, bytes));
            for moment in changes[0].0..310 {
                let after = changes.iter().filter(|(time, _)| *time >= moment).map(|(_, bytes)| *bytes);
                let at = changes.iter().rev().find(|(time, _)| *time <= moment).map(|(_, bytes)| *bytes);
                assert_eq!(levels.highest_since(moment), after.chain(at).max(), "{changes:?} at {moment}");
            }
        }
        assert_eq!(Levels::default().highest_since(0), None);
    }
}
