//! Executes operations on the arena by system calls and touches.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use hksim_linux_mm::script::{ARENA_PAGES, Op, Touch};
use hksim_linux_mm::{Advice, LockFlags, MapFlags, PMD_PAGES, Protection, RemapSource};
use hksim_linux_probe::PAGE_BYTES;
use libc::c_int;

use super::files::{self, MappedFile};
use super::touch;

/// The arena's address. Nothing else is mapped in its 512 GiB, so the upper page tables there map only the arena.
const PLACE: u64 = 0x1000_0000_0000;
/// The address of filler mappings, which only use up `max_map_count`. It is above the arena, so smaps lists them later.
const FILLER: u64 = 0x2000_0000_0000;
const FILLER_BYTES: u64 = 1 << 32;

/// The result of an operation.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Returned {
    pub(super) ret: i64,
    /// 0 if there was no error.
    pub(super) errno: i32,
}

impl Returned {
    /// khugepaged did not finish its scans in time.
    pub(super) const TIMED_OUT: Self = Self { ret: -1, errno: libc::ETIMEDOUT };
}

/// The arena of a script.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arena {
    base: u64,
    zero: c_int,
    file: c_int,
}

impl Arena {
    /// The arena of a script with this base; `zero` is `/dev/zero`.
    pub(super) fn new(base_pages: u64, zero: &File, file: &MappedFile) -> Self {
        Self { base: PLACE + base_pages * PAGE_BYTES, zero: zero.as_raw_fd(), file: file.descriptor() }
    }

    /// Addresses of the arena.
    pub(super) fn addresses(&self) -> std::ops::Range<u64> {
        self.base..self.base + ARENA_PAGES * PAGE_BYTES
    }

    fn at(&self, page: u64) -> *mut libc::c_void {
        (self.base + page * PAGE_BYTES) as *mut libc::c_void
    }

    /// Unmaps everything that scripts left, in the arena and in the filler.
    pub(super) fn clear() {
        // SAFETY: only arenas and fillers are mapped there.
        unsafe {
            libc::munmap(PLACE as *mut libc::c_void, ((ARENA_PAGES + PMD_PAGES) * PAGE_BYTES) as usize);
            libc::munmap(FILLER as *mut libc::c_void, FILLER_BYTES as usize);
        }
    }

    /// Creates the mapping that every script starts with.
    pub(super) fn map_whole(&self) -> io::Result<()> {
        let flags = MapFlags { noreserve: true, ..MapFlags::READ_WRITE };
        let start = self.at(0);
        // SAFETY: MAP_FIXED_NOREPLACE replaces no mapping.
        let got = unsafe {
            let flags = (map_flags(flags) & !libc::MAP_FIXED) | libc::MAP_FIXED_NOREPLACE;
            libc::mmap(start, bytes(ARENA_PAGES), protection(Protection::ReadWrite), flags, -1, 0)
        };
        if got == start { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Executes one operation, except forks and scans, which need more than the arena.
    #[inline(never)]
    pub(super) fn perform(&self, op: &Op) -> Returned {
        // SAFETY: scripts stay inside the arena, which contains no data of this program.
        let ret = unsafe {
            match *op {
                Op::Map(start, length, flags) => {
                    let protection = protection(flags.protection);
                    mapped(libc::mmap(self.at(start), bytes(length), protection, map_flags(flags), -1, 0))
                }
                Op::Unmap(start, length) => libc::munmap(self.at(start), bytes(length)),
                Op::Advise(what, start, length) => libc::madvise(self.at(start), bytes(length), advice(what)),
                Op::Protect(start, length, what) => libc::mprotect(self.at(start), bytes(length), protection(what)),
                Op::Remap(old, length, new, source) => {
                    let kept = if source == RemapSource::Kept { libc::MREMAP_DONTUNMAP } else { 0 };
                    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | kept;
                    mapped(libc::mremap(self.at(old), bytes(length), bytes(length), flags, self.at(new)))
                }
                Op::Resize(start, old, new) => mapped(libc::mremap(self.at(start), bytes(old), bytes(new), 0)),
                Op::Mremap(old, length, new, new_length) => {
                    let flags = if old == new { 0 } else { libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED };
                    mapped(libc::mremap(self.at(old), bytes(length), bytes(new_length), flags, self.at(new)))
                }
                Op::LockAll(flags) => libc::mlockall(lock_flags(flags)),
                Op::UnlockAll => libc::munlockall(),
                Op::Lock(start, length, on_fault) => {
                    let flags = if on_fault { libc::MLOCK_ONFAULT } else { 0 };
                    libc::syscall(libc::SYS_mlock2, self.at(start), bytes(length), flags) as c_int
                }
                Op::Unlock(start, length) => libc::munlock(self.at(start), bytes(length)),
                Op::Touch(how, start, length, stride) => {
                    return Returned { ret: self.touch(how, start, length, stride), errno: 0 };
                }
                Op::Name(start, length, name) => {
                    let mut text = [0; NAME_BYTES];
                    let text = name.map_or(std::ptr::null(), |name| name_of(name, &mut text));
                    libc::prctl(libc::PR_SET_VMA, libc::PR_SET_VMA_ANON_NAME, self.at(start), bytes(length), text)
                }
                Op::MapFile(start, length) => {
                    let (flags, offset) = (libc::MAP_PRIVATE | libc::MAP_FIXED, files::next_offset());
                    mapped(libc::mmap(self.at(start), bytes(length), libc::PROT_READ, flags, self.file, offset))
                }
                Op::TouchFile(start, length, stride) => {
                    self.touch_each(start, length, stride, files::is_mapped, |address| touch::read(address));
                    0
                }
                Op::Fork(..) | Op::Scan(..) => return Returned { ret: -1, errno: libc::ENOSYS },
            }
        };
        let errno = if ret == -1 { io::Error::last_os_error().raw_os_error().unwrap_or(0) } else { 0 };
        Returned { ret: i64::from(ret), errno }
    }

    /// Touches pages that map no file. Returns the number of pages that failed.
    pub(super) fn touch(&self, how: Touch, start: u64, length: u64, stride: u64) -> i64 {
        // SAFETY: the page is in the arena, which contains no data of this program.
        let touched = |address: *mut u8| unsafe {
            match how {
                Touch::Read => touch::read(address),
                Touch::WriteOne => touch::write(address, 1),
                Touch::WriteZero => touch::write(address, 0),
                Touch::SystemCall => libc::read(self.zero, address.cast(), 1) == 1,
            }
        };
        self.touch_each(start, length, stride, |page| !files::is_mapped(page), touched)
    }

    /// Calls `touch` for every selected page. Returns the number of pages that failed.
    fn touch_each(
        &self,
        start: u64,
        length: u64,
        stride: u64,
        is_selected: impl Fn(u64) -> bool,
        touch: impl Fn(*mut u8) -> bool,
    ) -> i64 {
        let mut failed = 0;
        let mut page = 0;
        while page < length {
            if is_selected(start + page) {
                failed += i64::from(!touch(self.at(start + page).cast::<u8>()));
            }
            page += stride;
        }
        failed
    }
}

/// Creates filler mappings until `max_map_count` permits exactly `room` more mappings. `own` is the number of mappings
/// that the process already has.
pub(super) fn fill(room: u64, own: u64) -> io::Result<()> {
    let limit = hksim_linux_probe::sysfs::number("/proc/sys/vm/max_map_count").ok_or(io::ErrorKind::NotFound)?;
    for page in own..limit.saturating_sub(room) {
        // Alternating protections prevent merging.
        let protection = if page % 2 == 0 { libc::PROT_NONE } else { libc::PROT_READ };
        let place = (FILLER + page * PAGE_BYTES) as *mut libc::c_void;
        let flags = map_flags(MapFlags { noreserve: true, ..MapFlags::READ_WRITE });
        // SAFETY: only fillers are mapped there. The limit is far below the filler's pages, or mmap fails first.
        if unsafe { libc::mmap(place, PAGE_BYTES as usize, protection, flags, -1, 0) } == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Enough for a `u32` in hexadecimal and a zero byte.
const NAME_BYTES: usize = 9;

/// A name made from a number, as a C string in `text`.
fn name_of(number: u32, text: &mut [u8; NAME_BYTES]) -> *const u8 {
    for (digit, byte) in text[..NAME_BYTES - 1].iter_mut().enumerate() {
        *byte = b'a' + (number >> (4 * digit) & 15) as u8;
    }
    text.as_ptr()
}

fn bytes(pages: u64) -> usize {
    (pages * PAGE_BYTES) as usize
}

fn mapped(at: *mut libc::c_void) -> c_int {
    if at == libc::MAP_FAILED { -1 } else { 0 }
}

fn protection(protection: Protection) -> c_int {
    match protection {
        Protection::None => libc::PROT_NONE,
        Protection::Read => libc::PROT_READ,
        Protection::Write => libc::PROT_WRITE,
        Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        Protection::Execute => libc::PROT_EXEC,
        Protection::ReadExecute => libc::PROT_READ | libc::PROT_EXEC,
        Protection::WriteExecute => libc::PROT_WRITE | libc::PROT_EXEC,
        Protection::ReadWriteExecute => libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
    }
}

fn map_flags(flags: MapFlags) -> c_int {
    let letters = [
        (flags.populate, libc::MAP_POPULATE),
        (flags.noreserve, libc::MAP_NORESERVE),
        (flags.hugetlb, libc::MAP_HUGETLB),
        (flags.stack, libc::MAP_STACK),
    ];
    let set = letters.iter().filter(|(on, _)| *on).fold(0, |set, (_, flag)| set | flag);
    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | set
}

fn lock_flags(flags: LockFlags) -> c_int {
    let letters =
        [(flags.current, libc::MCL_CURRENT), (flags.future, libc::MCL_FUTURE), (flags.on_fault, libc::MCL_ONFAULT)];
    letters.iter().filter(|(on, _)| *on).fold(0, |set, (_, flag)| set | flag)
}

/// Missing in libc.
const MADV_DONTNEED_LOCKED: c_int = 24;
const MADV_GUARD_INSTALL: c_int = 102;
const MADV_GUARD_REMOVE: c_int = 103;

fn advice(advice: Advice) -> c_int {
    match advice {
        Advice::HugePage => libc::MADV_HUGEPAGE,
        Advice::NoHugePage => libc::MADV_NOHUGEPAGE,
        Advice::DontNeed => libc::MADV_DONTNEED,
        Advice::Free => libc::MADV_FREE,
        Advice::Cold => libc::MADV_COLD,
        Advice::PopulateRead => libc::MADV_POPULATE_READ,
        Advice::PopulateWrite => libc::MADV_POPULATE_WRITE,
        Advice::Collapse => libc::MADV_COLLAPSE,
        Advice::DontNeedLocked => MADV_DONTNEED_LOCKED,
        Advice::WillNeed => libc::MADV_WILLNEED,
        Advice::Normal => libc::MADV_NORMAL,
        Advice::Random => libc::MADV_RANDOM,
        Advice::Sequential => libc::MADV_SEQUENTIAL,
        Advice::DontFork => libc::MADV_DONTFORK,
        Advice::DoFork => libc::MADV_DOFORK,
        Advice::WipeOnFork => libc::MADV_WIPEONFORK,
        Advice::KeepOnFork => libc::MADV_KEEPONFORK,
        Advice::DontDump => libc::MADV_DONTDUMP,
        Advice::DoDump => libc::MADV_DODUMP,
        Advice::Mergeable => libc::MADV_MERGEABLE,
        Advice::Unmergeable => libc::MADV_UNMERGEABLE,
        Advice::GuardInstall => MADV_GUARD_INSTALL,
        Advice::GuardRemove => MADV_GUARD_REMOVE,
    }
}
