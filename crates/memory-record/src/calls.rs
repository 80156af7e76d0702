//! The system calls that change memory: their numbers, and what a completed call did.

use std::ops::Range;

use hksim_linux_probe::resident::MAP_HARNESS;
use hksim_memory_trace::{MapOp, MappingKind, Op, Origin, PAGE_BYTES};

/// Arguments of a system call.
pub type Arguments = [u64; 6];

/// When a call takes effect for other threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// At its entry: it gives memory up, and another thread may get that memory before the call returns.
    AtEntry,
    /// At its exit: it makes memory available, which no other thread knows before the call returns.
    AtExit,
}

const CALLS: [(i64, &str); 25] = [
    (libc::SYS_mmap, "mmap"),
    (libc::SYS_mprotect, "mprotect"),
    (libc::SYS_munmap, "munmap"),
    (libc::SYS_brk, "brk"),
    (libc::SYS_mremap, "mremap"),
    (libc::SYS_madvise, "madvise"),
    (libc::SYS_shmat, "shmat"),
    (libc::SYS_shmdt, "shmdt"),
    (libc::SYS_execve, "execve"),
    (libc::SYS_execveat, "execveat"),
    (libc::SYS_mlock, "mlock"),
    (libc::SYS_munlock, "munlock"),
    (libc::SYS_mlockall, "mlockall"),
    (libc::SYS_munlockall, "munlockall"),
    (libc::SYS_mlock2, "mlock2"),
    (libc::SYS_prctl, "prctl"),
    (libc::SYS_pkey_mprotect, "pkey_mprotect"),
    (libc::SYS_remap_file_pages, "remap_file_pages"),
    (libc::SYS_mbind, "mbind"),
    (libc::SYS_migrate_pages, "migrate_pages"),
    (libc::SYS_move_pages, "move_pages"),
    (libc::SYS_userfaultfd, "userfaultfd"),
    (libc::SYS_process_madvise, "process_madvise"),
    (libc::SYS_io_destroy, "io_destroy"),
    (libc::SYS_mseal, "mseal"),
];

/// The numbers of all calls that must be observed.
pub fn numbers() -> impl Iterator<Item = i64> {
    CALLS.into_iter().map(|(number, _)| number)
}

/// Whether a call makes or moves mappings, so that its call site is of interest.
pub fn has_site(number: i64) -> bool {
    matches!(number, libc::SYS_mmap | libc::SYS_brk | libc::SYS_mremap)
}

/// Advice that asks for huge pages: the call sites of these calls of madvise are of interest.
pub const ADVICE_WITH_SITE: [i32; 2] = [libc::MADV_HUGEPAGE, MADV_COLLAPSE];
const MADV_COLLAPSE: i32 = 25;

/// Whether the call site of a call with these arguments is of interest.
pub fn wants_site(number: i64, arguments: &Arguments) -> bool {
    let is_advice = number == libc::SYS_madvise && ADVICE_WITH_SITE.contains(&(arguments[2] as i32));
    has_site(number) || is_advice
}

/// The name of a call whose effect is not recorded, if this call is one.
pub fn unrecorded(number: i64) -> Option<&'static str> {
    let is_unrecorded = matches!(
        number,
        libc::SYS_remap_file_pages
            | libc::SYS_mbind
            | libc::SYS_migrate_pages
            | libc::SYS_move_pages
            | libc::SYS_userfaultfd
            | libc::SYS_process_madvise
            | libc::SYS_io_destroy
            | libc::SYS_mseal
    );
    CALLS.into_iter().find(|&(other, _)| is_unrecorded && other == number).map(|(_, name)| name)
}

/// Whether a call can make pages absent. Between such calls a process's memory only grows.
pub fn gives_memory_up(number: i64, arguments: &Arguments) -> bool {
    match number {
        libc::SYS_munmap | libc::SYS_madvise | libc::SYS_mremap | libc::SYS_brk => true,
        libc::SYS_mmap => arguments[3] & libc::MAP_FIXED as u64 != 0,
        _ => is_exec(number),
    }
}

/// Whether a call executes a program.
pub fn is_exec(number: i64) -> bool {
    matches!(number, libc::SYS_execve | libc::SYS_execveat)
}

/// Whether a call itself tells which mappings it made or changed. The kernel then reports mappings that are known
/// already.
pub fn tells_mappings(number: i64) -> bool {
    !is_exec(number) && number != libc::SYS_shmat
}

/// When a call takes effect.
pub fn effect(number: i64) -> Effect {
    match number {
        libc::SYS_munmap | libc::SYS_madvise | libc::SYS_shmdt | libc::SYS_mremap => Effect::AtEntry,
        _ => Effect::AtExit,
    }
}

/// The effect of a completed call other than brk and shmdt, which depend on earlier calls. `None` if it changed
/// nothing.
pub fn completed(number: i64, arguments: &Arguments, result: i64) -> Option<Op> {
    let [first, second, third, ..] = *arguments;
    let errno = errno(result);
    let pages = range(first, second);
    match number {
        libc::SYS_mmap if errno == 0 => Some(Op::Map(Box::new(mapped(arguments, result as u64)))),
        libc::SYS_munmap if errno == 0 => Some(Op::Unmap(pages)),
        libc::SYS_mremap if errno == 0 => {
            Some(Op::Remap { old: pages, new: range(result as u64, third), flags: arguments[3] as u32 })
        }
        libc::SYS_mprotect | libc::SYS_pkey_mprotect if is_partial(errno) => {
            Some(Op::Protect { pages, protection: third as u32, errno })
        }
        // Recorded with every error: the mappings before the one that refuses an advice are changed, and an advice that
        // fails because huge pages are off for the recorded process can succeed under other settings.
        libc::SYS_madvise if first % PAGE_BYTES == 0 => Some(Op::Advise { pages, advice: third as u32, errno }),
        libc::SYS_mlock if is_partial(errno) => Some(Op::Lock { pages: around(first, second), flags: 0, errno }),
        libc::SYS_mlock2 if is_partial(errno) => {
            Some(Op::Lock { pages: around(first, second), flags: third as u32, errno })
        }
        libc::SYS_munlock if is_partial(errno) => Some(Op::Unlock(around(first, second))),
        libc::SYS_mlockall if errno == 0 => Some(Op::LockAll(first as u32)),
        libc::SYS_munlockall if errno == 0 => Some(Op::UnlockAll),
        libc::SYS_prctl if errno == 0 => control(arguments),
        _ => None,
    }
}

/// The error of a result; 0 for success.
pub fn errno(result: i64) -> u32 {
    if (-4095..0).contains(&result) { -result as u32 } else { 0 }
}

/// Whether a call with this error may have changed a part of its range.
fn is_partial(errno: u32) -> bool {
    errno == 0 || errno == libc::ENOMEM as u32 || errno == libc::EAGAIN as u32
}

/// The pages of `length` bytes at `start`, rounded up as the kernel does.
pub fn range(start: u64, length: u64) -> Range<u64> {
    let first = start / PAGE_BYTES;
    first..first.saturating_add(length.div_ceil(PAGE_BYTES))
}

/// The pages that hold `length` bytes at `start`, which need not be the start of a page: for mlock and munlock.
fn around(start: u64, length: u64) -> Range<u64> {
    range(start, length.saturating_add(start % PAGE_BYTES))
}

fn mapped(arguments: &Arguments, address: u64) -> MapOp {
    let [hint, length, protection, flags, ..] = *arguments;
    let flags = flags as u32;
    let kind = mapping_kind(flags, flags & libc::MAP_ANONYMOUS as u32 == 0);
    let mut pages = range(address, length);
    if flags & libc::MAP_HUGETLB as u32 != 0 {
        pages.end = pages.start + (pages.end - pages.start).next_multiple_of(hugetlb_pages(flags));
    }
    let (hint_page, protection) = (hint / PAGE_BYTES, protection as u32);
    MapOp { pages, hint_page, kind, origin: Origin::Mmap, protection, flags, name: None }
}

/// Base pages of a hugetlb page, from the flags of mmap.
fn hugetlb_pages(flags: u32) -> u64 {
    match flags >> 26 & 0x3f {
        0 => 512,
        log2_bytes => 1 << log2_bytes.clamp(12, 40).saturating_sub(12),
    }
}

/// What a mapping with these `MAP_*` flags maps.
pub fn mapping_kind(flags: u32, has_file: bool) -> MappingKind {
    const MAP_TYPE: u32 = 0x0f;
    /// Private anonymous memory that the kernel may drop (Linux 6.11).
    const MAP_DROPPABLE: u32 = 0x08;
    let has = |flag: i32| flags & flag as u32 != 0;
    let is_private = flags & MAP_TYPE == libc::MAP_PRIVATE as u32 || flags & MAP_TYPE == MAP_DROPPABLE && !has_file;
    if !is_private {
        MappingKind::Shared
    } else if has_file {
        MappingKind::PrivateFile
    } else if has(MAP_HARNESS) {
        MappingKind::Harness
    } else if has(libc::MAP_GROWSDOWN) {
        MappingKind::GrowingStack
    } else if has(libc::MAP_HUGETLB) && hugetlb_pages(flags) != 512 {
        MappingKind::OtherHugetlb
    } else {
        MappingKind::Anonymous
    }
}

fn control(arguments: &Arguments) -> Option<Op> {
    const PR_SET_VMA: u64 = 0x5356_4d41;
    const PR_SET_VMA_ANON_NAME: u64 = 0;
    let [option, second, third, fourth, fifth, _] = *arguments;
    match option {
        PR_SET_VMA if second == PR_SET_VMA_ANON_NAME => {
            Some(Op::NameMapping { pages: range(third, fourth), name_address: fifth })
        }
        _ if option == libc::PR_SET_THP_DISABLE as u64 => {
            Some(Op::DisableThp { value: second as u32, flags: third as u32 })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_to_pages() {
        assert_eq!(range(0x7000, 1), 7..8);
        assert_eq!(range(0x7000, 0x1000), 7..8);
        assert_eq!(range(0x7000, 0x1001), 7..9);
        let huge = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB) as u64;
        match completed(libc::SYS_mmap, &[0, 5000, 3, huge, 0, 0], 0x20_0000) {
            Some(Op::Map(map)) => assert_eq!((map.pages, map.kind), (512..1024, MappingKind::Anonymous)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn locks_cover_every_page_of_their_bytes() {
        let lock = |start, bytes| match completed(libc::SYS_mlock, &[start, bytes, 0, 0, 0, 0], 0) {
            Some(Op::Lock { pages, .. }) => pages,
            other => panic!("{other:?}"),
        };
        assert_eq!([lock(0x7000, 0x1000), lock(0x7fff, 2), lock(0x7010, 0x1000)], [7..8, 7..9, 7..9]);
    }

    #[test]
    fn failed_calls_change_nothing_except_parts() {
        let failed = |number, errno: i32| completed(number, &[0x1000, 0x1000, 1, 0, 0, 0], -i64::from(errno));
        assert_eq!(failed(libc::SYS_munmap, libc::EINVAL), None);
        assert_eq!(failed(libc::SYS_mmap, libc::ENOMEM), None);
        assert!(failed(libc::SYS_mprotect, libc::ENOMEM).is_some());
        assert_eq!(failed(libc::SYS_mprotect, libc::EACCES), None);
    }

    #[test]
    fn kinds_of_mappings() {
        let private = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u32;
        assert_eq!(mapping_kind(private, false), MappingKind::Anonymous);
        assert_eq!(mapping_kind(private | libc::MAP_GROWSDOWN as u32, false), MappingKind::GrowingStack);
        assert_eq!(mapping_kind(libc::MAP_SHARED as u32, false), MappingKind::Shared);
        assert_eq!(mapping_kind(libc::MAP_PRIVATE as u32, true), MappingKind::PrivateFile);
        assert_eq!(mapping_kind(8 | libc::MAP_ANONYMOUS as u32, false), MappingKind::Anonymous, "MAP_DROPPABLE");
        let gibibyte = private | libc::MAP_HUGETLB as u32 | 30 << 26;
        assert_eq!(mapping_kind(gibibyte, false), MappingKind::OtherHugetlb);
    }
}
