//! Additional faults by outdated TLB entries of a virtual machine ([`stale_entries`]).
//!
//! The replay counts more traps in huge pages than any rule of the kernel explains, and nothing else differs. The row is
//! then bounded, if the same happens in a test of one huge page on this machine.

use hksim_engine::{ByKind, PageState};
use hksim_linux_probe::stale_entries::{self, Cause};
use hksim_policy::{HUGE_PAGE_BYTES, PAGE_BYTES};
use hksim_replay::{Replayed, Unclassified};

use crate::residual::Residual;

/// Additional faults of a huge page: all its small pages but the one whose fault changes the page table.
const FAULTS_MAX: u64 = HUGE_PAGE_BYTES / PAGE_BYTES - 1;

/// Additional faults in huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StaleEntries {
    cause: Cause,
    faults: u64,
    huge_pages: u64,
}

/// Faults that a rule of the kernel can explain in a huge page that changed in this way; `None` if the page is no huge page
/// that is made writable again.
fn faults_by_rule(odd: &Unclassified) -> Option<u64> {
    match (odd.before, odd.after) {
        (None, Some(PageState::Hugetlb)) => Some(2),
        (Some(PageState::Hugetlb), Some(PageState::Hugetlb)) | (Some(PageState::Thp), Some(PageState::Thp)) => Some(1),
        _ => None,
    }
}

impl StaleEntries {
    /// The additional faults, if they can explain all differences. `is_forked`: the program forks.
    pub fn find(is_forked: bool, measured: &Replayed, residual: &Residual) -> Option<Self> {
        let odd = &measured.unclassified;
        if odd.is_empty() || measured.unclassified_pages != Some(odd.len() as u64) {
            return None;
        }
        let is_pool = odd.iter().all(|odd| odd.after == Some(PageState::Hugetlb));
        let cause = match (is_pool, is_forked) {
            (true, false) => Cause::PoolPageRead,
            (false, false) => return None,
            (_, true) => Cause::Fork,
        };
        let by_rule: u64 = odd.iter().map(faults_by_rule).sum::<Option<u64>>()?;
        let counted: u64 = odd.iter().map(|odd| odd.traps).sum();
        let faults = residual.faults?.checked_neg().and_then(|more| u64::try_from(more).ok())?;
        // Pages whose faults cannot be told apart have no installs in the measurement.
        let installs = residual.installs.and_then(|fewer| u64::try_from(fewer).ok())?;
        let hugetlb = ByKind { hugetlb: installs as i64, ..ByKind::default() };
        let rest = Residual {
            installs: Some(0),
            installs_by_kind: residual.installs_by_kind.filter(|kinds| *kinds != hugetlb),
            faults: Some(0),
            traps: Some(0),
            ..*residual
        };
        let is_possible = rest.is_zero()
            && residual.traps == residual.faults
            && installs <= by_rule
            && (counted.saturating_sub(by_rule)..=counted.min(FAULTS_MAX * odd.len() as u64)).contains(&faults);
        (is_possible && faults > 0).then_some(Self { cause, faults, huge_pages: odd.len() as u64 })
    }

    /// Whether this machine shows them, in words; `Err` if it does not.
    pub fn confirm(&self, test: impl Fn(Cause) -> Option<u64>) -> Result<String, String> {
        let Self { cause, faults, huge_pages } = *self;
        let when = match cause {
            Cause::Fork => "after a fork",
            Cause::PoolPageRead => "in pages of the hugetlb pool that are read before they are written",
        };
        let text =
            format!("{faults} more faults than predicted in {huge_pages} huge pages {when}, and no other difference");
        match test(cause) {
            Some(found) if found > 0 => Ok(format!(
                "{text}: this virtual machine keeps outdated TLB entries ({found} more faults in a test of one huge page)"
            )),
            Some(_) => Err(format!("{text}; a test of one huge page shows no outdated TLB entries")),
            None => Err(format!("{text}; outdated TLB entries cannot be tested for lack of a free huge page")),
        }
    }

    /// [`StaleEntries::confirm`] with a test of this machine.
    pub fn confirm_here(&self) -> Result<String, String> {
        self.confirm(stale_entries::additional_faults)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replayed(odd: &[(Option<PageState>, PageState, u64)]) -> Replayed {
        let page = |(at, &(before, after, traps)): (usize, &(Option<PageState>, PageState, u64))| Unclassified {
            page: 512 * at as u64,
            before,
            after: Some(after),
            traps,
        };
        let unclassified: Vec<Unclassified> = odd.iter().enumerate().map(page).collect();
        Replayed { unclassified_pages: Some(unclassified.len() as u64), unclassified, ..Replayed::default() }
    }

    fn residual(installs: i64, hugetlb: i64, faults: i64) -> Residual {
        let kinds = ByKind { hugetlb, base_4k: installs - hugetlb, ..ByKind::default() };
        Residual {
            installs: Some(installs),
            installs_by_kind: Some(kinds),
            faults: Some(faults),
            traps: Some(faults),
            ..Residual::default()
        }
    }

    const POOL: PageState = PageState::Hugetlb;

    /// The reported row: one object of 6 MB in pages of the pool, read and then written. 4 pages are the allocator's.
    #[test]
    fn pool_pages_that_were_read_first_have_more_faults_and_no_other_difference() {
        let measured = replayed(&[(None, POOL, 60), (None, POOL, 40), (None, POOL, 20)]);
        let find = |installs, hugetlb, faults| {
            let residual = residual(installs, hugetlb, faults);
            StaleEntries::find(false, &measured, &residual).map(|stale| stale.faults)
        };
        assert_eq!(find(6, 6, -114), Some(114));
        assert_eq!(find(6, 6, -120), Some(120), "up to all faults that were counted");
        assert_eq!([find(6, 6, -113), find(6, 6, -121)], [None, None]);
        assert_eq!([find(7, 7, -114), find(6, 5, -114)], [None, None], "other installs differ");
        assert_eq!(find(6, 6, 0), None);
        let elsewhere = Residual { pages_only_measured: Some(1), ..residual(6, 6, -114) };
        assert_eq!(StaleEntries::find(false, &measured, &elsewhere), None);
        let other = replayed(&[(None, POOL, 60), (None, PageState::Base, 3)]);
        assert_eq!(StaleEntries::find(false, &other, &residual(6, 6, -61)), None);
        let too_many = Replayed { unclassified_pages: Some(65), ..replayed(&[(None, POOL, 60)]) };
        assert_eq!(StaleEntries::find(false, &too_many, &residual(2, 2, -58)), None);
    }

    #[test]
    fn huge_pages_have_more_faults_only_after_a_fork_and_on_a_machine_that_shows_it() {
        let thp = PageState::Thp;
        let measured = replayed(&[(Some(thp), thp, 500)]);
        let residual = residual(0, 0, -499);
        assert_eq!(StaleEntries::find(false, &measured, &residual), None);
        let stale = StaleEntries::find(true, &measured, &residual).expect("additional faults");
        assert_eq!((stale.cause, stale.faults, stale.huge_pages), (Cause::Fork, 499, 1));
        assert!(stale.confirm(|_| Some(511)).is_ok_and(|text| text.contains("511 more faults in a test")));
        assert!(stale.confirm(|_| Some(0)).is_err_and(|text| text.contains("shows no outdated")));
        assert!(stale.confirm(|_| None).is_err_and(|text| text.contains("cannot be tested")));
    }
}
