//! Times faults, populating, and returning memory.

use std::io;
use std::time::Duration;

use hksim_linux_probe::area::{Area, Granule, HUGE_BYTES, faults, timed, warm_up, warm_up_by, warm_up_pool};
use hksim_linux_probe::cpu_modes::ModeSamples;
use hksim_linux_probe::{PAGE_BYTES, sysfs};

use super::samples::Samples;
use super::{MeasureError, flush};
use crate::price::{NEAR_BYTES, POOL_BYTES};
use crate::profile::{FOLIOS, FOOTPRINTS, Operation};

/// Single pages per measurement: 32 MiB. The kernel's records of fewer pages stay in the nearest caches, as they seldom do
/// in programs: marking a page of 8 MiB again by `MADV_FREE` took 44 ns, and a page of 32 MiB 125.
const PAGES: u64 = 8192;
/// Single pages whose records in the kernel stay in the nearest caches: 2 MiB.
const NEAR_PAGES: u64 = 512;
/// Times that memory is written and returned before it counts as near.
const NEAR_TIMES: u32 = 4;
/// Huge pages per measurement.
const HUGE_PAGES: u64 = 16;
/// Pages of the hugetlb pool.
const POOL_PAGES: u64 = POOL_BYTES / HUGE_BYTES;
/// The reason why operations on huge pages were not timed.
pub(super) const NO_HUGE_PAGES: &str = "the kernel installed no huge pages (they are off, or memory is fragmented)";
/// Operations that are timed on present huge pages.
const OF_HUGE_PAGES: [Operation; 6] = [
    Operation::FreeHuge,
    Operation::FreeHugeAgain,
    Operation::DontneedHuge,
    Operation::SplitHuge,
    Operation::DropFolioPage,
    Operation::MunmapHuge,
];
/// Supported since Linux 6.1.
const MADV_COLLAPSE: i32 = 25;

/// Times rewriting and returning single pages.
pub(super) fn base(samples: &mut Samples) -> Result<(), MeasureError> {
    let area = Area::of(Granule::Page, PAGES * PAGE_BYTES)?;
    area.write(PAGE_BYTES);
    samples.time(Operation::MemsetResident, PAGES, || area.fill());
    samples.time(Operation::FreePage, PAGES, || area.advise(libc::MADV_FREE));
    area.write(PAGE_BYTES);
    samples.time(Operation::FreePageAgain, PAGES, || area.advise(libc::MADV_FREE));
    rewritten(samples, &area);
    near(samples, &area);
    flush::costs(samples, &area);
    area.write(PAGE_BYTES);
    samples.time(Operation::DontneedPage, PAGES, || area.advise(libc::MADV_DONTNEED));
    samples.time(Operation::ZeroReadFault, PAGES, || area.read());
    samples.time(Operation::WriteAfterZero, PAGES, || area.write(PAGE_BYTES));
    samples.time(Operation::MunmapPage, PAGES, || area.unmap());
    page_tables(samples)
}

/// Times writes to pages that were marked free just before: as many as the smallest footprint has, whose entries the
/// processor finds in its caches. Those of 128 MiB took it 470 ns each, those of 4 MiB 56.
fn rewritten(samples: &mut Samples, area: &Area) {
    let bytes = FOOTPRINTS[0].bytes;
    let mut spent = Duration::ZERO;
    for _ in 0..NEAR_TIMES {
        area.advise_part(0, bytes, libc::MADV_FREE);
        spent += timed(|| area.write_part(0, bytes, PAGE_BYTES)).1;
    }
    samples.note(Operation::RewriteFreed, u64::from(NEAR_TIMES) * bytes / PAGE_BYTES, spent, ModeSamples::default());
}

/// Times returning the same few pages again and again.
fn near(samples: &mut Samples, area: &Area) {
    let bytes = NEAR_PAGES * PAGE_BYTES;
    for (operation, advice) in
        [(Operation::FreePageAgain, libc::MADV_FREE), (Operation::DontneedPage, libc::MADV_DONTNEED)]
    {
        for _ in 0..NEAR_TIMES {
            area.advise_part(0, bytes, advice);
            area.write_part(0, bytes, PAGE_BYTES);
        }
        samples.time_near(operation, NEAR_PAGES, || area.advise_part(0, bytes, advice));
        area.write_part(0, bytes, PAGE_BYTES);
    }
}

/// Times writes to pages that were dropped just before: as many as the smallest footprint has, and few.
pub(super) fn refaults(samples: &mut Samples) -> Result<(), MeasureError> {
    for (operation, bytes) in [(Operation::Refault, FOOTPRINTS[0].bytes), (Operation::RefaultNear, NEAR_BYTES)] {
        let area = Area::of(Granule::Page, bytes)?;
        for _ in 0..NEAR_TIMES {
            area.write(PAGE_BYTES);
            area.advise(libc::MADV_DONTNEED);
        }
        samples.time(operation, area.pages(), || area.write(PAGE_BYTES));
    }
    Ok(())
}

/// Times two writes into each of several empty PMD ranges. Only the first write allocates a page table, so the
/// difference is its cost.
fn page_tables(samples: &mut Samples) -> Result<(), MeasureError> {
    let bytes = HUGE_PAGES * HUGE_BYTES;
    let area = Area::of(Granule::Page, bytes)?;
    let first = timed(|| area.write(HUGE_BYTES)).1;
    let second = timed(|| area.write_part(PAGE_BYTES, bytes - PAGE_BYTES, HUGE_BYTES)).1;
    samples.note(Operation::PageTable, HUGE_PAGES, first.saturating_sub(second), ModeSamples::default());
    Ok(())
}

/// Times populating single pages by a system call and by `memset`.
pub(super) fn populated(samples: &mut Samples) -> Result<(), MeasureError> {
    samples.time(Operation::MapPopulate, PAGES, || Area::populated(PAGES * PAGE_BYTES))?.unmap();
    // With the smallest footprint: what a larger one adds is priced apart.
    let bytes = FOOTPRINTS[0].bytes;
    warm_up(Granule::Page, bytes)?;
    let area = Area::of(Granule::Page, bytes)?;
    let populate = || area.advise(libc::MADV_POPULATE_WRITE);
    if !samples.time_if(Operation::PopulateWrite, area.pages(), populate, |done| done) {
        samples.skip(Operation::PopulateWrite, "the kernel has no MADV_POPULATE_WRITE");
    }
    area.advise(libc::MADV_DONTNEED);
    samples.time(Operation::MemsetUntouched, area.pages(), || area.fill());
    Ok(())
}

/// Present huge pages, or `None` if the kernel installs none. The pages are huge if each takes exactly one fault.
pub(super) fn huge_pages(number: u64) -> Result<Option<Area>, MeasureError> {
    let area = Area::of(Granule::Huge, number * HUGE_BYTES)?;
    let before = faults();
    area.write(HUGE_BYTES);
    let is_whole = faults() - before == number;
    Ok((is_whole && area.advise(libc::MADV_POPULATE_WRITE) && faults() - before == number).then_some(area))
}

/// Times splitting and returning huge pages.
pub(super) fn huge(samples: &mut Samples) -> Result<(), MeasureError> {
    let Some(area) = huge_pages(HUGE_PAGES)? else {
        for operation in OF_HUGE_PAGES {
            samples.skip(operation, NO_HUGE_PAGES);
        }
        return Ok(());
    };
    samples.time(Operation::FreeHuge, HUGE_PAGES, || area.advise(libc::MADV_FREE));
    area.write(PAGE_BYTES);
    samples.time(Operation::FreeHugeAgain, HUGE_PAGES, || area.advise(libc::MADV_FREE));
    near_huge(samples, &area);
    samples.time(Operation::DontneedHuge, HUGE_PAGES, || area.advise(libc::MADV_DONTNEED));
    area.write(HUGE_BYTES);
    samples.time(Operation::SplitHuge, HUGE_PAGES, || {
        for offset in (0..HUGE_PAGES).map(|huge| huge * HUGE_BYTES) {
            area.advise_part(offset, PAGE_BYTES, libc::MADV_DONTNEED);
        }
    });
    samples.time(Operation::DropFolioPage, HUGE_PAGES * (HUGE_BYTES / PAGE_BYTES - 1), || {
        area.advise(libc::MADV_DONTNEED);
    });
    area.write(HUGE_BYTES);
    samples.time(Operation::MunmapHuge, HUGE_PAGES, || area.unmap());
    Ok(())
}

/// Times marking the same huge pages again and again. A call takes longer than a page, so a call for one page is compared
/// with a call for all.
fn near_huge(samples: &mut Samples, area: &Area) {
    let [mut one, mut all] = [Duration::ZERO; 2];
    for _ in 0..NEAR_TIMES {
        area.write(HUGE_BYTES);
        one = timed(|| area.advise_part(0, HUGE_BYTES, libc::MADV_FREE)).1;
        area.write(HUGE_BYTES);
        all = timed(|| area.advise(libc::MADV_FREE)).1;
    }
    let ns = all.saturating_sub(one).as_nanos() as f64 / (HUGE_PAGES - 1) as f64;
    samples.note_near(Operation::FreeHugeAgain, ns);
}

/// Times `MADV_COLLAPSE` of a PMD range with one page, and of a full PMD range.
pub(super) fn collapse(samples: &mut Samples) -> Result<(), MeasureError> {
    // The pages to collapse and the huge pages that replace them must have backing by a host.
    warm_up(Granule::Huge, 2 * HUGE_PAGES * HUGE_BYTES)?;
    for (operation, stride) in [(Operation::CollapseSparse, HUGE_BYTES), (Operation::CollapseFull, PAGE_BYTES)] {
        let area = Area::of(Granule::Page, HUGE_PAGES * HUGE_BYTES)?;
        area.write(stride);
        area.advise(libc::MADV_HUGEPAGE);
        let collapse = || area.advise(MADV_COLLAPSE);
        if !samples.time_if(operation, HUGE_PAGES, collapse, |done| done) {
            samples.skip(operation, "the kernel refused MADV_COLLAPSE (older than 6.1, or memory is fragmented)");
        }
    }
    Ok(())
}

/// Times the largest folio size below 2 MiB that is on, in mappings that are too small for a huge page.
pub(super) fn mid_sizes(samples: &mut Samples) -> Result<(), MeasureError> {
    /// Room for folios of any of these sizes, but not for a huge page.
    const BYTES: u64 = 1 << 20;
    /// Number of areas with the total size of the smallest footprint.
    const AREAS: u64 = FOOTPRINTS[0].bytes / BYTES;
    for (size, operation) in FOLIOS {
        let mode = sysfs::choice(&format!("{}/hugepages-{}kB/enabled", sysfs::THP, size >> 10));
        if !matches!(mode.as_deref(), Some("always" | "madvise")) {
            samples.skip(operation, "this size is off");
            continue;
        }
        let areas = || (0..AREAS).map(|_| Area::of(Granule::Between(size), BYTES)).collect::<io::Result<Vec<Area>>>();
        let touch = |areas: &[Area]| areas.iter().for_each(|area| area.write(PAGE_BYTES));
        warm_up_by(AREAS * BYTES, || {
            let areas = areas()?;
            Ok(timed(|| touch(&areas)).1)
        })?;
        let areas = areas()?;
        let (before, number) = (faults(), AREAS * BYTES / size);
        if !samples.time_if(operation, number, || touch(&areas), |()| faults() - before == number) {
            samples.skip(operation, "it is not the largest size that is on");
        }
    }
    Ok(())
}

/// Times pages of the hugetlb pool.
pub(super) fn hugetlb(samples: &mut Samples) -> Result<(), MeasureError> {
    let pool = || Area::of_pool(POOL_BYTES);
    if pool()?.is_none() {
        for operation in [Operation::HugetlbFault, Operation::HugetlbDrop] {
            samples.skip(operation, format!("no {POOL_PAGES} free pages in the pool (vm.nr_hugepages)"));
        }
        return Ok(());
    }
    warm_up_pool(POOL_BYTES)?;
    let Some(area) = pool()? else { return Ok(()) };
    samples.time(Operation::HugetlbFault, POOL_PAGES, || area.write(HUGE_BYTES));
    samples.time(Operation::HugetlbDrop, POOL_PAGES, || area.unmap());
    Ok(())
}
