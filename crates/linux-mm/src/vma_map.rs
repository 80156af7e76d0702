//! All mappings of the address space, merged as the kernel merges them.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::Range;

use super::lock::Locked;
use super::rules::AnonVmaMerge;
use super::vma::{AnonId, FileId, Vma, VmaFlags, anon_compatible};

/// The mappings, keyed by first page. They never overlap.
#[derive(Clone, Debug)]
pub(super) struct VmaMap {
    rule: AnonVmaMerge,
    by_start: BTreeMap<u64, Vma>,
    /// Caches the mapping found last, because consecutive accesses often hit the same mapping. Cleared by every change.
    last_found: Option<Vma>,
    anon_count: u64,
    file_count: u32,
    /// Mappings with an anon_vma.
    with_anon: u64,
}

impl VmaMap {
    pub fn new(rule: AnonVmaMerge) -> Self {
        Self { rule, by_start: BTreeMap::new(), last_found: None, anon_count: 0, file_count: 0, with_anon: 0 }
    }

    pub fn len(&self) -> u64 {
        self.by_start.len() as u64
    }

    /// Mappings with an anon_vma.
    pub fn with_anon(&self) -> u64 {
        self.with_anon
    }

    /// The mapping that holds `page`.
    pub fn covering(&mut self, page: u64) -> Option<Vma> {
        self.covering_ref(page).copied()
    }

    /// The mapping that holds `page`, without a copy.
    #[inline]
    pub fn covering_ref(&mut self, page: u64) -> Option<&Vma> {
        if self.last_found.as_ref().is_none_or(|vma| !vma.contains(page)) {
            self.last_found = self.at_or_after(page).filter(|vma| vma.contains(page));
        }
        self.last_found.as_ref()
    }

    /// The first mapping with a page at or after `page`.
    pub fn at_or_after(&self, page: u64) -> Option<Vma> {
        let below = self.by_start.range(..=page).next_back().map(|(_, vma)| *vma);
        below.filter(|vma| vma.contains(page)).or_else(|| self.by_start.range(page..).next().map(|(_, vma)| *vma))
    }

    /// The mappings that overlap `range`, in order.
    pub fn overlapping(&self, range: &Range<u64>) -> Vec<Vma> {
        let Some(first) = self.at_or_after(range.start).filter(|vma| vma.start < range.end) else {
            return Vec::new();
        };
        self.by_start.range(first.start..range.end).map(|(_, vma)| *vma).collect()
    }

    /// The largest gap around `range`, which holds no mapping itself.
    pub fn gap_around(&self, range: &Range<u64>) -> Range<u64> {
        let below = self.by_start.range(..range.start).next_back().map_or(0, |(_, vma)| vma.end);
        let above = self.by_start.range(range.end..).next().map_or(u64::MAX, |(_, vma)| vma.start);
        below..above
    }

    /// First page of a range of `pages` pages at the end of the highest gap that is large enough. Gaps are considered
    /// only below page `top`.
    pub fn highest_gap(&self, pages: u64, top: u64) -> Option<u64> {
        let mut end = top;
        for vma in self.by_start.range(..top).rev().map(|(_, vma)| vma) {
            if end.saturating_sub(vma.end) >= pages {
                break;
            }
            end = vma.start;
        }
        end.checked_sub(pages)
    }

    /// Inserts a mapping into free space, merges it with its neighbours where possible, and returns the result. If both
    /// neighbours could merge with it but not with each other, only the previous one does (R20).
    pub fn insert(&mut self, vma: Vma) -> Vma {
        let left = self.mergeable_prev(&vma);
        let right =
            self.mergeable_next(&vma).filter(|right| left.is_none_or(|left| anon_compatible(left.anon, right.anon)));
        self.join(vma, left, right)
    }

    /// Inserts a mapping that is there already: the kernel has not merged it.
    pub fn insert_known(&mut self, range: &Range<u64>, flags: VmaFlags) {
        let Range { start, end } = *range;
        self.put(Vma { start, end, flags, displacement: 0, anon: None, inherited: false, is_stack: false });
    }

    /// Inserts a mapping without anonymous memory, trying the next neighbour first. The previous neighbour joins only
    /// if it has the same anon_vma as the next one, or if the next one has none.
    pub fn insert_next_first(&mut self, vma: Vma) -> Vma {
        let right = self.mergeable_next(&vma);
        let joins =
            |left: &Vma| right.is_none_or(|right| left.anon == right.anon || right.anon.is_none() && !left.inherited);
        let left = self.mergeable_prev(&vma).filter(joins);
        self.join(vma, left, right)
    }

    /// Inserts memory added by brk. It merges only with a previous mapping that reaches beyond `heap_start`.
    pub fn insert_heap(&mut self, vma: Vma, heap_start: u64) -> Vma {
        let left = self.mergeable_prev(&vma).filter(|left| left.end > heap_start);
        self.join(vma, left, None)
    }

    fn join(&mut self, vma: Vma, left: Option<Vma>, right: Option<Vma>) -> Vma {
        let mut merged = vma;
        for neighbour in [left, right].into_iter().flatten() {
            self.take(neighbour.start);
            merged.start = merged.start.min(neighbour.start);
            merged.end = merged.end.max(neighbour.end);
            merged.anon = merged.anon.or(neighbour.anon);
            merged.inherited |= neighbour.inherited;
            merged.is_stack &= neighbour.is_stack;
        }
        self.put(merged);
        merged
    }

    /// Whether part `range` of a mapping would merge with a neighbour if it had `flags`.
    pub fn would_merge(&self, vma: &Vma, range: &Range<u64>, flags: VmaFlags) -> bool {
        let part = Vma { start: range.start, end: range.end, flags, ..*vma };
        self.mergeable_prev(&part).is_some() || self.mergeable_next(&part).is_some()
    }

    /// The previous mapping, if `vma` can merge with it.
    fn mergeable_prev(&self, vma: &Vma) -> Option<Vma> {
        self.ending_at(vma.start).filter(|left| left.continues_in(vma) && vma.anon_fits(left, self.rule))
    }

    /// The next mapping, if `vma` can merge with it.
    fn mergeable_next(&self, vma: &Vma) -> Option<Vma> {
        let right = self.by_start.get(&vma.end).copied();
        right.filter(|right| vma.continues_in(right) && vma.anon_fits(right, self.rule))
    }

    /// Changes the flags of part `range` of `vma`, merging it with a neighbour where possible.
    pub fn set_flags(&mut self, vma: &Vma, range: &Range<u64>, flags: VmaFlags) {
        let part = self.carve(vma, range);
        let is_stack = part.is_stack && flags.thp == part.flags.thp;
        self.insert(Vma { flags, is_stack, ..part });
    }

    /// Splits the mapping across `at` in two.
    pub fn split(&mut self, at: u64) {
        if let Some(vma) = self.at_or_after(at).filter(|vma| vma.has_inside(at)) {
            self.put(Vma { end: at, ..vma });
            self.put(Vma { start: at, ..vma });
        }
    }

    /// Removes the mapping that starts at `start`.
    pub fn take(&mut self, start: u64) {
        self.last_found = None;
        let removed = self.by_start.remove(&start);
        self.with_anon -= u64::from(removed.is_some_and(|vma| vma.anon.is_some()));
    }

    /// Replaces the mapping with the same start, without merging.
    pub fn replace(&mut self, vma: Vma) {
        self.put(vma);
    }

    /// Gives `vma` an anon_vma if it has none. It shares that of the next mapping or else of the previous mapping if
    /// possible; otherwise it gets a new one (R19).
    pub fn prepare_anon(&mut self, vma: &Vma) {
        if vma.anon.is_some() {
            return;
        }
        let next = self.by_start.get(&vma.end).copied();
        let shared = [next, self.ending_at(vma.start)]
            .into_iter()
            .flatten()
            .find_map(|neighbour| neighbour.anon.filter(|_| neighbour.can_share_anon_with(vma)));
        let anon = shared.unwrap_or_else(|| {
            self.anon_count += 1;
            AnonId(self.anon_count)
        });
        self.put(Vma { anon: Some(anon), inherited: false, ..*vma });
    }

    /// An id for a new mapping of a file. Wraps around after 2^32 - 1 ids.
    pub fn new_file_id(&mut self) -> FileId {
        self.file_count = self.file_count.checked_add(1).unwrap_or(1);
        FileId(NonZeroU32::new(self.file_count).unwrap_or(NonZeroU32::MIN))
    }

    /// The mapping that starts at `page`.
    pub fn starting_at(&self, page: u64) -> Option<Vma> {
        self.by_start.get(&page).copied()
    }

    /// Every mapping, in order.
    pub fn all(&self) -> Vec<Vma> {
        self.by_start.values().copied().collect()
    }

    /// The child's copy at a fork. A mapping with an anon_vma gets a new one, or none if it is wiped. hugetlb
    /// reservations and locks are not inherited.
    pub fn forked(&self) -> Self {
        let (anon_count, file_count) = (self.anon_count, self.file_count);
        let mut child = Self { anon_count, file_count, ..Self::new(self.rule) };
        for mut vma in self.by_start.values().copied().filter(|vma| !vma.flags.other.is_dont_fork()) {
            if vma.flags.other.is_wiped_on_fork() {
                (vma.anon, vma.inherited) = (None, false);
            } else if vma.anon.is_some() {
                child.anon_count += 1;
                vma.anon = Some(AnonId(child.anon_count));
                vma.inherited = true;
            }
            vma.flags.noreserve |= vma.flags.hugetlb;
            vma.flags.locked = Locked::No;
            child.put(vma);
        }
        child
    }

    /// Removes the part of `vma` inside `range` and returns it; the rest stays.
    fn carve(&mut self, vma: &Vma, range: &Range<u64>) -> Vma {
        self.take(vma.start);
        if vma.start < range.start {
            self.put(Vma { end: range.start, ..*vma });
        }
        if range.end < vma.end {
            self.put(Vma { start: range.end, ..*vma });
        }
        Vma { start: range.start, end: range.end, ..*vma }
    }

    /// The mapping that ends at `page`.
    pub fn ending_at(&self, page: u64) -> Option<Vma> {
        self.by_start.range(..page).next_back().map(|(_, vma)| *vma).filter(|vma| vma.end == page)
    }

    fn put(&mut self, vma: Vma) {
        self.last_found = None;
        self.with_anon += u64::from(vma.anon.is_some());
        let replaced = self.by_start.insert(vma.start, vma);
        self.with_anon -= u64::from(replaced.is_some_and(|vma| vma.anon.is_some()));
    }
}
