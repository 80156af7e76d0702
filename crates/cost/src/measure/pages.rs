//! Faults, populating, and giving back.

use hksim_linux::{PAGE_BYTES, sysfs};

use super::area::{Area, HUGE_BYTES, faults, timed};
use super::{MeasureError, Samples};
use crate::profile::Operation;

/// Single pages are measured on so many at once: 8 MiB.
const PAGES: u64 = 2048;
/// Huge pages on so many.
const HUGE_PAGES: u64 = 16;
/// Pages of the hugetlb pool.
const POOL_PAGES: u64 = 4;

/// Single pages: touched, written, given back.
pub(super) fn base(samples: &mut Samples) -> Result<(), MeasureError> {
    let area = Area::new(PAGES * PAGE_BYTES)?;
    area.advise(libc::MADV_NOHUGEPAGE);
    let mut note = |operation, spent| samples.add(operation, PAGES, spent);
    note(Operation::WriteFault, timed(|| area.write(PAGE_BYTES)).1);
    note(Operation::MemsetResident, timed(|| area.fill()).1);
    note(Operation::FreePage, timed(|| area.advise(libc::MADV_FREE)).1);
    note(Operation::RewriteFreed, timed(|| area.write(PAGE_BYTES)).1);
    note(Operation::DontneedPage, timed(|| area.advise(libc::MADV_DONTNEED)).1);
    note(Operation::Refault, timed(|| area.write(PAGE_BYTES)).1);
    area.advise(libc::MADV_DONTNEED);
    note(Operation::ZeroReadFault, timed(|| area.read()).1);
    note(Operation::WriteAfterZero, timed(|| area.write(PAGE_BYTES)).1);
    note(Operation::MunmapPage, timed(|| area.unmap()).1);
    Ok(())
}

/// Single pages that the kernel makes present, or a `memset`.
pub(super) fn populated(samples: &mut Samples) -> Result<(), MeasureError> {
    let (area, spent) = timed(|| Area::populated(PAGES * PAGE_BYTES));
    area?.unmap();
    samples.add(Operation::MapPopulate, PAGES, spent);
    let area = Area::new(PAGES * PAGE_BYTES)?;
    area.advise(libc::MADV_NOHUGEPAGE);
    match timed(|| area.advise(libc::MADV_POPULATE_WRITE)) {
        (true, spent) => samples.add(Operation::PopulateWrite, PAGES, spent),
        (false, _) => samples.skip(Operation::PopulateWrite, "the kernel has no MADV_POPULATE_WRITE"),
    }
    area.advise(libc::MADV_DONTNEED);
    samples.add(Operation::MemsetUntouched, PAGES, timed(|| area.fill()).1);
    Ok(())
}

/// Huge pages: touched, split, given back. One fault each proves that they were huge.
pub(super) fn huge(samples: &mut Samples) -> Result<(), MeasureError> {
    const OPERATIONS: [Operation; 5] = [
        Operation::HugeFault,
        Operation::HugeRefault,
        Operation::DontneedHuge,
        Operation::SplitHuge,
        Operation::MunmapHuge,
    ];
    let area = Area::new(HUGE_PAGES * HUGE_BYTES)?;
    let mut note = |operation, spent| samples.add(operation, HUGE_PAGES, spent);
    area.advise(libc::MADV_HUGEPAGE);
    let before = faults();
    let fault = timed(|| area.write(HUGE_BYTES)).1;
    if faults() - before != HUGE_PAGES || area.advise(libc::MADV_POPULATE_WRITE) && faults() - before != HUGE_PAGES {
        for operation in OPERATIONS {
            samples.skip(operation, "the kernel gave no huge pages (off, or memory is short)");
        }
        return Ok(());
    }
    note(Operation::HugeFault, fault);
    note(Operation::DontneedHuge, timed(|| area.advise(libc::MADV_DONTNEED)).1);
    note(Operation::HugeRefault, timed(|| area.write(HUGE_BYTES)).1);
    let split = || {
        for offset in (0..HUGE_PAGES).map(|huge| huge * HUGE_BYTES) {
            area.advise_part(offset, PAGE_BYTES, libc::MADV_DONTNEED);
        }
    };
    note(Operation::SplitHuge, timed(split).1);
    area.advise(libc::MADV_DONTNEED);
    area.write(HUGE_BYTES);
    note(Operation::MunmapHuge, timed(|| area.unmap()).1);
    Ok(())
}

/// The largest size between the two that is on: in mappings too small for a huge page.
pub(super) fn mid_sizes(samples: &mut Samples) -> Result<(), MeasureError> {
    const SIZES: [(Operation, u64); 4] = [
        (Operation::MthpFault1m, 1 << 20),
        (Operation::MthpFault256k, 256 << 10),
        (Operation::MthpFault64k, 64 << 10),
        (Operation::MthpFault16k, 16 << 10),
    ];
    /// Holds 16 folios of any of the sizes, and no huge page.
    const BYTES: u64 = 1 << 20;
    for (operation, size) in SIZES {
        let mode = sysfs::choice(&format!("{}/hugepages-{}kB/enabled", sysfs::THP, size >> 10));
        if !matches!(mode.as_deref(), Some("always" | "madvise")) {
            samples.skip(operation, "this size is off");
            continue;
        }
        let area = Area::new(BYTES)?;
        area.advise(libc::MADV_HUGEPAGE);
        let before = faults();
        let spent = timed(|| area.write(PAGE_BYTES)).1;
        if faults() - before == area.pages() * PAGE_BYTES / size {
            samples.add(operation, BYTES / size, spent);
        } else {
            samples.skip(operation, "it is not the largest size that is on");
        }
    }
    Ok(())
}

/// Pages of the pool.
pub(super) fn hugetlb(samples: &mut Samples) -> Result<(), MeasureError> {
    match Area::of_pool(POOL_PAGES * HUGE_BYTES)? {
        Some(area) => samples.add(Operation::HugetlbFault, POOL_PAGES, timed(|| area.write(HUGE_BYTES)).1),
        None => {
            samples.skip(Operation::HugetlbFault, format!("no {POOL_PAGES} free pages in the pool (vm.nr_hugepages)"))
        }
    }
    Ok(())
}
