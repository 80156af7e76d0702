//! Compares pages at the exit.

use std::collections::BTreeMap;

use hksim_linux_mm::{PageState, StateRun};
use hksim_linux_probe::pagemap::PresentPages;

/// What both sides can tell about a present page: whether it is a zero page, and whether a 2 MiB entry maps it.
type Seen = (bool, bool);

/// Pages whose state differs: predicted only, measured only.
pub fn differing_pages(predicted: &[StateRun], measured: &[PresentPages]) -> [u64; 2] {
    let predicted = predicted.iter().map(|run| {
        let seen: Seen = match run.state {
            PageState::Zero => (true, false),
            PageState::HugeZero => (true, true),
            PageState::Thp | PageState::Hugetlb => (false, true),
            PageState::Base | PageState::Mthp | PageState::None => (false, false),
        };
        (run.first_page, run.first_page + run.pages, seen)
    });
    let measured = measured.iter().map(|run| (run.first_page, run.end_page, (run.is_zero, run.is_huge)));
    let (ours, theirs) = (joined(predicted), joined(measured));
    let total = |runs: &[(u64, u64, Seen)]| runs.iter().map(|(start, end, _)| end - start).sum::<u64>();
    let common = common_pages(&ours, &theirs);
    [total(&ours) - common, total(&theirs) - common]
}

/// Present pages of the measurement that the prediction lacks, and that no fault of the measured run touched: system
/// calls that pin memory made them present.
pub fn pinned_pages(predicted: &[StateRun], measured: &[PresentPages], touches: &BTreeMap<u64, [u64; 2]>) -> u64 {
    let is_predicted = |page: u64| {
        let after = predicted.partition_point(|run| run.first_page <= page);
        after > 0 && page < predicted[after - 1].first_page + predicted[after - 1].pages
    };
    let pages = measured.iter().flat_map(|run| run.first_page..run.end_page);
    pages.filter(|page| !is_predicted(*page) && !touches.contains_key(page)).count() as u64
}

/// Joins adjacent runs in the same state.
fn joined(runs: impl Iterator<Item = (u64, u64, Seen)>) -> Vec<(u64, u64, Seen)> {
    let mut joined: Vec<(u64, u64, Seen)> = Vec::new();
    for (start, end, seen) in runs {
        match joined.last_mut() {
            Some(last) if last.1 == start && last.2 == seen => last.1 = end,
            _ => joined.push((start, end, seen)),
        }
    }
    joined
}

/// Pages that are in the same state in both lists, which are in ascending order.
fn common_pages(ours: &[(u64, u64, Seen)], theirs: &[(u64, u64, Seen)]) -> u64 {
    let (mut pages, mut at) = (0, 0);
    for &(start, end, seen) in ours {
        while at < theirs.len() && theirs[at].1 <= start {
            at += 1;
        }
        let overlapping = theirs[at..].iter().take_while(|other| other.0 < end).filter(|other| other.2 == seen);
        pages += overlapping.map(|other| end.min(other.1) - start.max(other.0)).sum::<u64>();
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_compared_by_state() {
        let run = |first_page, pages, state| StateRun { first_page, pages, state };
        let seen = |first_page, end_page, is_huge, is_zero| PresentPages { first_page, end_page, is_huge, is_zero };
        let predicted = [run(0, 10, PageState::Base), run(10, 5, PageState::Zero), run(512, 512, PageState::Thp)];
        let measured = [seen(0, 10, false, false), seen(10, 15, false, true), seen(512, 1024, true, false)];
        assert_eq!(differing_pages(&predicted, &measured), [0, 0]);
        let measured = [seen(0, 12, false, false), seen(512, 1024, false, false)];
        assert_eq!(differing_pages(&predicted, &measured), [5 + 512, 2 + 512]);
        assert_eq!(differing_pages(&[], &measured), [0, 12 + 512]);
        let touches = BTreeMap::from([(3, [0, 1]), (600, [1, 0])]);
        assert_eq!(pinned_pages(&predicted[2..], &measured, &touches), 11);
    }
}
