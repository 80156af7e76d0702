//! One or more scripts for every kernel rule, with the figures that establish the rule.
//!
//! The figures were measured on Linux 6.18 before the model was written, and are literals here. The rules are
//! documented in `docs/reference/kernel-rules.md`.

mod khugepaged;
mod mappings;

use hksim_linux_mm::KernelVersion;
use hksim_linux_mm::script::{Script, ScriptError};

use crate::observation::Observation;
use Figure::{AnonHugeKb, Err, LazyFreeKb, Minflt, PageTableKb, Ret, RssKb, Traps, Vmas};

/// The version that the figures were measured on.
pub const MEASURED_ON: KernelVersion = KernelVersion::V6_18;

/// A figure that is read after the last operation of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// The return value.
    Ret,
    /// The error number.
    Err,
    /// Faults charged.
    Minflt,
    /// Exceptions taken.
    Traps,
    /// Resident memory.
    RssKb,
    /// Huge pages.
    AnonHugeKb,
    /// Lazily freed memory.
    LazyFreeKb,
    /// Mappings.
    Vmas,
    /// Page tables.
    PageTableKb,
}

impl Figure {
    /// The figure's value in an observation.
    pub fn of(self, seen: &Observation) -> i64 {
        let (did, left) = (&seen.did, &seen.left);
        // In the catalogue the figures stand as the kernel prints them.
        let kilobytes = |bytes: u64| (bytes / 1024) as i64;
        match self {
            Ret => did.ret,
            Err => i64::from(did.errno),
            Minflt => did.faults as i64,
            Traps => did.traps as i64,
            RssKb => kilobytes(left.rss_bytes),
            AnonHugeKb => kilobytes(left.anon_huge_bytes),
            LazyFreeKb => kilobytes(left.lazy_free_bytes),
            Vmas => left.vmas as i64,
            PageTableKb => kilobytes(left.page_table_bytes),
        }
    }
}

/// One script of one rule.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// `R9a`
    pub rule: &'static str,
    /// What the script shows.
    pub title: &'static str,
    /// The script's lines, separated by `; `.
    lines: &'static str,
    /// Expected figures after the last operation.
    pub figures: &'static [(Figure, i64)],
}

impl Case {
    /// The parsed script. Modes that it does not set get the kernel's boot defaults, with THP in mode madvise.
    ///
    /// # Errors
    /// A line is malformed. A test ensures that this catalogue has no such line.
    pub fn script(&self) -> Result<Script, ScriptError> {
        let mut script: Script = self.lines.replace("; ", "\n").parse()?;
        script.header = script.header.with_all_modes();
        Ok(script)
    }
}

const fn case(rule: &'static str, title: &'static str, lines: &'static str, figures: &'static [(Figure, i64)]) -> Case {
    Case { rule, title, lines, figures }
}

/// Rules that no script can show: rule, what it says, and the reason.
pub const WITHOUT_SCRIPT: &[(&str, &str, &str)] = &[
    ("R2", "defrag applies when no huge page is free", "needs memory so fragmented that the allocation fails"),
    ("R17", "fault-around", "applies to files only; the arena is anonymous memory"),
];

const EINVAL: i64 = libc::EINVAL as i64;
const ENOMEM: i64 = libc::ENOMEM as i64;
const EFAULT: i64 = libc::EFAULT as i64;
const EAGAIN: i64 = libc::EAGAIN as i64;
const EBADF: i64 = libc::EBADF as i64;

/// Every script, by rule.
pub fn cases() -> impl Iterator<Item = &'static Case> {
    PAGES.iter().chain(khugepaged::KHUGEPAGED).chain(mappings::MAPPINGS)
}

/// Rules of pages: R1 to R13.
#[rustfmt::skip]
const PAGES: &[Case] = &[
    case("R1", "huge page at first touch",
        "adv HUGEPAGE 0 512; w 7 1 1",
        &[(Minflt, 1), (Traps, 1), (RssKb, 2048), (AnonHugeKb, 2048)]),
    case("R1b", "mode always installs a huge page without advice",
        "thp always; w 0 1 1",
        &[(AnonHugeKb, 2048)]),
    case("R1b", "mode always installs no huge page with NOHUGEPAGE",
        "thp always; adv NOHUGEPAGE 0 512; w 0 1 1",
        &[(RssKb, 4)]),
    case("R1b", "mode madvise installs no huge page without advice",
        "w 0 1 1",
        &[(RssKb, 4)]),
    case("R1b", "mode never installs no huge page despite advice",
        "thp never; adv HUGEPAGE 0 512; w 0 1 1",
        &[(RssKb, 4)]),
    case("R1b", "2 MiB always overrides never",
        "thp never; mthp 2048 always; w 0 1 1",
        &[(AnonHugeKb, 2048)]),
    case("R1b", "2 MiB never overrides always",
        "thp always; mthp 2048 never; w 0 1 1",
        &[(RssKb, 4)]),
    case("R1", "huge page at first touch by the second thread",
        "adv HUGEPAGE 0 512; t w 7 1 1",
        &[(Minflt, 1), (Traps, 1), (RssKb, 2048)]),
    case("R1", "2 MiB ranges do not depend on the start of the arena",
        "base 100; adv HUGEPAGE 0 1024; w 411 1 1; w 412 1 1",
        &[(Minflt, 1), (RssKb, 2052)]),
    case("R1", "defrag has no effect if a huge page is free",
        "defrag never; adv HUGEPAGE 0 512; w 0 1 1",
        &[(Minflt, 1), (AnonHugeKb, 2048)]),
    case("R1a", "no huge page where a page table exists",
        "w 0 1 1; adv HUGEPAGE 0 512; w 1 511 1",
        &[(Minflt, 511), (AnonHugeKb, 0)]),
    case("R1c", "no huge page where the mapping ends inside the 2 MiB range",
        "unmap 511 1; adv HUGEPAGE 0 511; w 0 1 1",
        &[(RssKb, 4)]),
    case("R3", "64 KiB in mode always",
        "mthp 64 always; w 17 1 1",
        &[(Minflt, 1), (RssKb, 64)]),
    case("R3", "64 KiB only where no page is mapped yet",
        "mthp 64 always; r 16 1 1; w 17 1 1",
        &[(RssKb, 4)]),
    case("R3", "no 64 KiB for reads, and for writes after them",
        "mthp 64 always; r 17 1 1; w 17 1 1",
        &[(Minflt, 1), (RssKb, 4)]),
    case("R3", "64 KiB in mode madvise, not advised",
        "mthp 64 madvise; w 17 1 1",
        &[(RssKb, 4)]),
    case("R3", "the largest folio that fits",
        "mthp 64 always; mthp 256 always; unmap 100 1; w 70 1 1; w 90 1 1",
        &[(Minflt, 1), (RssKb, 128)]),
    case("R4", "reads map the zero page",
        "r 0 256 1",
        &[(Minflt, 256), (Traps, 256), (RssKb, 0)]),
    case("R4", "a write after a read is a second fault",
        "r 0 256 1; w 0 256 1",
        &[(Minflt, 256), (RssKb, 1024)]),
    case("R4", "one read maps the huge zero page",
        "adv HUGEPAGE 0 512; r 0 512 1",
        &[(Minflt, 1), (RssKb, 0)]),
    case("R4a", "a write to the huge zero page ignores NOHUGEPAGE",
        "adv HUGEPAGE 0 512; r 0 1 1; adv NOHUGEPAGE 0 512; w 0 1 1",
        &[(Minflt, 1), (RssKb, 2048), (AnonHugeKb, 2048)]),
    case("R4b", "a populate for reading maps the huge zero page",
        "adv HUGEPAGE 0 512; adv POPULATE_READ 0 512",
        &[(Minflt, 1), (Traps, 0), (RssKb, 0)]),
    case("R4b", "dropping part of a huge zero page splits it",
        "adv HUGEPAGE 0 512; r 0 1 1; adv DONTNEED 0 16; w 0 512 1",
        &[(Minflt, 512), (AnonHugeKb, 0)]),
    case("R4c", "a read with the huge zero page disabled",
        "zero_page off; adv HUGEPAGE 0 512; r 0 1 1",
        &[(Minflt, 1), (RssKb, 2048)]),
    case("R6", "two halves, both advised before the touch",
        "unmap 0 512; map 0 256 w N; map 256 256 w N; adv HUGEPAGE 0 256; adv HUGEPAGE 256 256; w 0 512 1",
        &[(Minflt, 1), (RssKb, 2048)]),
    case("R6", "two halves, the first touched before the second is mapped",
        "unmap 0 1024; map 0 256 w N; adv HUGEPAGE 0 256; w 0 256 1; map 256 256 w N; adv HUGEPAGE 256 256; w 256 256 1",
        &[(Minflt, 256), (AnonHugeKb, 0)]),
    case("R6", "advice about accesses and core dumps splits a mapping, cancelled advice merges it",
        "adv RANDOM 0 16; adv DONTDUMP 32 16; adv SEQUENTIAL 64 16; adv MERGEABLE 96 16; adv NORMAL 0 16; adv DODUMP 0 4096",
        &[(Ret, 0), (Vmas, 5)]),
    case("R6", "MADV_WILLNEED does nothing to anonymous memory",
        "w 0 16 1; adv WILLNEED 0 4096",
        &[(Ret, 0), (Vmas, 1), (RssKb, 64)]),
    case("R6", "mappings with different names do not merge",
        "name 0 16 1; name 16 16 1; name 32 16 2; name 48 16 -",
        &[(Ret, 0), (Vmas, 3)]),
    case("R6", "file mappings have no names",
        "mapfile 16 16; name 0 64 1",
        &[(Err, EBADF), (Vmas, 3)]),
    case("R7", "dropping a whole huge page",
        "adv HUGEPAGE 0 512; w 0 1 1; adv DONTNEED 0 512; w 0 512 1",
        &[(Minflt, 1), (AnonHugeKb, 2048)]),
    case("R7", "dropping part of a huge page",
        "adv HUGEPAGE 0 512; w 0 1 1; adv DONTNEED 0 16",
        &[(RssKb, 1984), (AnonHugeKb, 0)]),
    case("R7", "dropped pages of a huge page refault one by one",
        "adv HUGEPAGE 0 512; w 0 1 1; adv DONTNEED 0 16; w 0 512 1",
        &[(Minflt, 16)]),
    case("R8", "dropping two halves frees no table",
        "adv HUGEPAGE 0 512; w 0 1 1; adv DONTNEED 0 256; adv DONTNEED 256 256; w 0 512 1",
        &[(Minflt, 512)]),
    case("R8", "only tables of whole 2 MiB ranges are freed",
        "w 256 1 1; w 512 1 1; w 1024 1 1; adv HUGEPAGE 0 1536; adv DONTNEED 256 1024; w 0 1536 64",
        &[(Minflt, 17), (AnonHugeKb, 2048)]),
    case("R8", "no table is freed if a range spans mappings",
        "w 512 1 1; prot 600 1 r; adv DONTNEED 512 512",
        &[(PageTableKb, 12)]),
    case("R9", "writing a lazily freed page again costs no fault",
        "w 0 256 1; adv FREE 0 256; w 0 256 1",
        &[(Minflt, 0), (RssKb, 1024), (LazyFreeKb, 0)]),
    case("R9", "lazily freed pages stay resident",
        "w 0 256 1; adv FREE 0 256",
        &[(RssKb, 1024), (LazyFreeKb, 1024)]),
    case("R9d", "lazily freed pages stay lazily freed while a child exists",
        "adv HUGEPAGE 0 512; w 0 1 1; adv FREE 0 512; forkw 0 512 64",
        &[(Ret, 8), (LazyFreeKb, 2016)]),
    case("R9", "pages that an exited child left dirty become lazily freed",
        "adv HUGEPAGE 0 512; w 0 1 1; fork 0 1 1; adv FREE 0 512",
        &[(LazyFreeKb, 2048)]),
    case("R9d", "pages that were left dirty stay lazily freed while another child exists",
        "adv HUGEPAGE 0 512; w 0 1 1; fork 0 1 1; adv FREE 0 512; forkw 0 1 1",
        &[(Ret, 1), (LazyFreeKb, 2044)]),
    case("R9a", "freeing part of a folio mapped by PTEs splits it",
        "adv HUGEPAGE 0 512; w 0 64 1; prot 500 1 r; adv FREE 100 1",
        &[(RssKb, 256)]),
    case("R9b", "the other pages of a split folio stay dirty",
        "adv HUGEPAGE 0 512; w 0 512 1; adv FREE 0 16",
        &[(RssKb, 2048), (LazyFreeKb, 64)]),
    case("R9c", "a populate cancels lazy freeing",
        "w 0 16 1; adv FREE 0 16; adv POPULATE_WRITE 0 16",
        &[(Minflt, 0), (LazyFreeKb, 0)]),
    case("R10", "a folio split drops pages of zeros",
        "adv HUGEPAGE 0 512; w 0 64 1; adv FREE 511 1",
        &[(RssKb, 256)]),
    case("R10", "dropped pages of zeros fault again",
        "adv HUGEPAGE 0 512; w 0 64 1; adv FREE 511 1; w 0 512 1",
        &[(Minflt, 448)]),
    case("R10", "the contents at the split decide, not earlier contents",
        "adv HUGEPAGE 0 512; w 0 64 1; z 0 64 1; adv FREE 511 1",
        &[(RssKb, 0)]),
    case("R10", "a split drops pages of zeros in every part of a moved folio",
        "adv HUGEPAGE 0 512; w 0 1 1; remap 256 256 1280 0; adv FREE 1280 256; w 1 3 1",
        &[(Minflt, 3), (RssKb, 16)]),
    case("R12", "collapse of one page",
        "w 0 1 1; adv COLLAPSE 0 512",
        &[(Ret, 0), (Minflt, 0), (Traps, 0), (RssKb, 2048), (AnonHugeKb, 2048)]),
    case("R12", "max_ptes_none does not affect a collapse",
        "max_ptes_none 0; w 0 1 1; adv COLLAPSE 0 512",
        &[(Ret, 0), (AnonHugeKb, 2048)]),
    case("R12", "collapse of an empty table",
        "w 0 1 1; adv DONTNEED 0 1; adv COLLAPSE 0 512",
        &[(Ret, 0), (RssKb, 2048)]),
    case("R12", "a 2 MiB range without a page table stops a collapse",
        "w 0 1 1; w 1024 1 1; adv COLLAPSE 0 1536",
        &[(Err, EINVAL), (AnonHugeKb, 2048)]),
    case("R12", "a hole does not stop a collapse",
        "w 0 1 1; w 1024 1 1; unmap 512 512; adv COLLAPSE 0 1536",
        &[(Err, ENOMEM), (AnonHugeKb, 4096)]),
    case("R12", "collapse with both ends in one 2 MiB range",
        "w 0 1 1; adv COLLAPSE 1 2",
        &[(Err, EINVAL)]),
    case("R12", "collapse of parts of two 2 MiB ranges",
        "w 0 1 1; adv COLLAPSE 256 512",
        &[(Ret, 0), (AnonHugeKb, 0)]),
    case("R12", "collapse that ends one page before the 2 MiB range does",
        "w 0 1 1; adv COLLAPSE 0 511",
        &[(Ret, 0), (AnonHugeKb, 0)]),
    case("R12", "collapse of memory that was never written",
        "r 0 16 1; adv COLLAPSE 0 512",
        &[(Err, EINVAL), (RssKb, 0)]),
    case("R12", "collapse with NOHUGEPAGE",
        "w 0 16 1; adv NOHUGEPAGE 0 4096; adv COLLAPSE 0 512",
        &[(Err, EINVAL), (RssKb, 64)]),
    case("R12", "collapse of read-only memory",
        "w 0 16 1; prot 0 4096 r; adv COLLAPSE 0 512",
        &[(Ret, 0), (AnonHugeKb, 2048)]),
    case("R12", "a collapse keeps lazily freed pages",
        "w 0 16 1; adv FREE 0 16; adv COLLAPSE 0 512",
        &[(LazyFreeKb, 0), (RssKb, 2048)]),
    case("R13", "a hugetlb page takes one fault and is not in Rss",
        "pool 4; map 0 2048 w H; w 0 1536 512",
        &[(Minflt, 3), (RssKb, 0)]),
    case("R13", "a write after a read faults again",
        "pool 4; map 0 1024 w H; r 0 1 1; w 0 1 1",
        &[(Minflt, 1)]),
    case("R13", "a mapping larger than the pool is refused",
        "pool 4; map 0 2560 w H",
        &[(Err, ENOMEM)]),
    case("R13a", "a touch with no page reserved or free: SIGBUS",
        "pool 4; map 0 2048 w H; map 2048 512 w HN; w 2048 1 1",
        &[(Ret, 1), (Minflt, 0), (Traps, 1)]),
    case("R13a", "a populate with no page reserved or free: EFAULT",
        "pool 4; map 0 2048 w H; map 2048 512 w HN; adv POPULATE_WRITE 2048 512",
        &[(Err, EFAULT)]),
    case("R13b", "the pool has no page for a copy: the child loses its page",
        "pool 2; map 0 1024 w H; w 0 1024 512; forkw 0 1024 512",
        &[(Ret, 2), (Minflt, 2)]),
    case("R13f", "lazy freeing of hugetlb is refused",
        "pool 4; map 0 1024 w H; w 0 1 1; adv FREE 0 512",
        &[(Err, EINVAL)]),
    case("R13c", "unmapping part of a page is refused",
        "pool 4; map 0 1024 w H; unmap 100 100",
        &[(Err, EINVAL)]),
    case("R13f", "DONTNEED on part of a page drops nothing",
        "pool 4; map 0 1024 w H; w 0 1 1; adv DONTNEED 0 4; w 0 1 1",
        &[(Minflt, 0)]),
    case("R13f", "DONTNEED rounds the length down",
        "pool 4; map 0 1024 w H; w 0 1 1; adv DONTNEED 0 516; w 0 1 1",
        &[(Minflt, 1)]),
    case("R13", "a populate installs every page",
        "pool 4; map 0 2048 w Hp; w 0 2048 512",
        &[(Minflt, 0), (RssKb, 0)]),
    case("R13c", "munmap refused at its end leaves the split at its start",
        "pool 0; map 512 768 r NH; unmap 1024 1",
        &[(Err, EINVAL), (Vmas, 4)]),
    case("R13a", "a failed fault leaves the upper page tables",
        "pool 0; map 0 512 w NH; w 0 1 1",
        &[(Ret, 1), (PageTableKb, 8)]),
    case("R13d", "mremap moves whole pages",
        "pool 0; map 1536 2048 w NH; remap 2560 1 3072 0",
        &[(Ret, 0), (Vmas, 4)]),
    case("R13d", "mremap from inside a page is refused",
        "pool 0; map 1536 2048 w NH; remap 2561 1 512 0",
        &[(Err, EINVAL), (Vmas, 3)]),
    case("R13c", "mmap over part of a page is refused",
        "map 1024 512 w NH; map 1024 1 w N",
        &[(Err, EINVAL), (Vmas, 3)]),
];
