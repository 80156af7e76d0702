//! Page-table installs by kind, in the form that predictions and measurements share.

use serde::{Deserialize, Serialize};

use super::outcome::{Counters, InstallKind};

/// A number for each kind of install; by default how many there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ByKind<N = u64> {
    /// Single 4 KiB pages.
    pub base_4k: N,
    /// Folios larger than a page and smaller than a huge page.
    pub mthp: N,
    /// Transparent huge pages, including upgrades of a huge zero page by a write.
    pub thp: N,
    /// Pages of the hugetlb pool.
    pub hugetlb: N,
    /// Zero pages and huge zero pages.
    pub zero: N,
    /// Pages that a write installs in place of a zero page or a shared page.
    pub cow: N,
}

impl<N: Copy> ByKind<N> {
    /// The numbers, in the order of the fields.
    pub fn values(&self) -> [N; 6] {
        [self.base_4k, self.mthp, self.thp, self.hugetlb, self.zero, self.cow]
    }

    /// Combines each number with that of `other`, field by field.
    pub fn with<T: Copy, U>(self, other: ByKind<T>, combine: impl Fn(N, T) -> U) -> ByKind<U> {
        ByKind {
            base_4k: combine(self.base_4k, other.base_4k),
            mthp: combine(self.mthp, other.mthp),
            thp: combine(self.thp, other.thp),
            hugetlb: combine(self.hugetlb, other.hugetlb),
            zero: combine(self.zero, other.zero),
            cow: combine(self.cow, other.cow),
        }
    }
}

impl ByKind {
    /// The sum of all kinds.
    pub fn total(&self) -> u64 {
        self.values().iter().sum()
    }

    /// Counts an install.
    pub fn add(&mut self, kind: InstallKind) {
        *self.of(kind) += 1;
    }

    fn of(&mut self, kind: InstallKind) -> &mut u64 {
        match kind {
            InstallKind::Base4k => &mut self.base_4k,
            InstallKind::Mthp => &mut self.mthp,
            InstallKind::Thp => &mut self.thp,
            InstallKind::Hugetlb => &mut self.hugetlb,
            InstallKind::Zero => &mut self.zero,
            InstallKind::Cow => &mut self.cow,
        }
    }
}

impl From<&Counters> for ByKind {
    fn from(counters: &Counters) -> ByKind {
        let mut by_kind = ByKind::default();
        InstallKind::ALL.into_iter().for_each(|kind| *by_kind.of(kind) = counters.installs_of(kind));
        by_kind
    }
}

/// Page-table installs: in total and by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Installs {
    /// The total over all kinds.
    pub total: u64,
    /// By kind of entry.
    pub by_kind: ByKind,
}

impl From<ByKind> for Installs {
    fn from(by_kind: ByKind) -> Installs {
        Installs { total: by_kind.total(), by_kind }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_field() {
        for (place, kind) in InstallKind::ALL.into_iter().enumerate() {
            let mut counts = ByKind::default();
            counts.add(kind);
            let expected: [u64; 6] = std::array::from_fn(|at| u64::from(at == place));
            assert_eq!((counts.values(), Installs::from(counts).total), (expected, 1), "{kind:?}");
        }
    }
}
