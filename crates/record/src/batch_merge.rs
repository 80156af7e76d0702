//! Merges common calls of several thread buffers in batches. Which buffer has the next call is unpredictable, so the loop
//! does not branch on it.

use std::hint::select_unpredictable;

use hksim_trace::resolve::Plain;

/// Runs of calls, one after the other.
#[derive(Default)]
pub(super) struct BatchMerge {
    calls: Vec<Plain>,
    /// Where each run ends.
    ends: Vec<usize>,
    spare: (Vec<Plain>, Vec<usize>),
}

impl BatchMerge {
    /// Forgets all calls.
    pub(super) fn clear(&mut self) {
        self.calls.clear();
        self.ends.clear();
    }

    /// Adds a run, whose calls are in order of time.
    pub(super) fn add(&mut self, run: &[Plain]) {
        if !run.is_empty() {
            self.calls.extend_from_slice(run);
            self.ends.push(self.calls.len());
        }
    }

    /// All calls in order of time; of equal times, the run added first is first.
    pub(super) fn in_order(&mut self) -> &[Plain] {
        while self.ends.len() > 1 {
            let (merged, merged_ends) = &mut self.spare;
            merged.clear();
            merged_ends.clear();
            let mut start = 0;
            for pair in self.ends.chunks(2) {
                let (middle, end) = (pair[0], pair[pair.len() - 1]);
                merge(&self.calls[start..middle], &self.calls[middle..end], merged);
                merged_ends.push(end);
                start = end;
            }
            std::mem::swap(&mut self.calls, merged);
            std::mem::swap(&mut self.ends, merged_ends);
        }
        &self.calls
    }
}

/// Appends two runs in order of time; of equal times, `low` is first.
fn merge(low: &[Plain], high: &[Plain], merged: &mut Vec<Plain>) {
    merged.reserve(low.len() + high.len());
    let (mut from_low, mut from_high) = (0, 0);
    while let (Some(next_low), Some(next_high)) = (low.get(from_low), high.get(from_high)) {
        let low_first = next_low.time_ns() <= next_high.time_ns();
        merged.push(*select_unpredictable(low_first, next_low, next_high));
        from_low += usize::from(low_first);
        from_high += usize::from(!low_first);
    }
    merged.extend_from_slice(&low[from_low..]);
    merged.extend_from_slice(&high[from_high..]);
}

#[cfg(test)]
mod tests {
    use super::BatchMerge;
    use hksim_testkit::Random;
    use hksim_trace::resolve::{Plain, PlainCall};

    #[test]
    fn runs_are_merged_as_by_a_stable_sort() {
        let mut random = Random::new(88_172);
        let mut next = |below: u64| random.below(below);
        let mut gathered = BatchMerge::default();
        for _ in 0..500 {
            gathered.clear();
            let mut all = Vec::new();
            for thread in 0..next(9) as u32 {
                let mut times: Vec<u64> = (0..next(20)).map(|_| next(30)).collect();
                times.sort_unstable();
                let call = |time_ns| Plain::new(time_ns, thread, PlainCall::Free, 16, 0);
                let run: Vec<Plain> = times.into_iter().filter_map(call).collect();
                gathered.add(&run);
                all.extend(run);
            }
            all.sort_by_key(Plain::time_ns);
            assert_eq!(gathered.in_order(), all);
        }
    }
}
