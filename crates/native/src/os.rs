//! The system calls of the allocator. The policy decides which calls are made; each method of [`Os`] makes one call.

use std::ptr::NonNull;

use hksim_policy::memory::{Advice, Locking, Mapping, MemoryLock};
use hksim_policy::{Errno, InvalidFree};

/// The system calls of an allocator, one method per call. All ranges are whole pages of the reservation.
pub trait Os {
    /// Whether SuperSlabs may have separate mappings. A constant, so that the fast paths are compiled without this case
    /// if it cannot occur.
    const OWN_MAPPINGS: bool = true;

    /// `mmap(MAP_FIXED)`, private, anonymous, readable and writable.
    ///
    /// # Safety
    /// The range is in the caller's reservation, and its contents are not needed any more.
    unsafe fn map(&self, at: NonNull<u8>, bytes: usize, mapping: Mapping) -> Result<(), Errno>;

    /// `mmap` of the same kind without a hint.
    fn map_anywhere(&self, bytes: usize, mapping: Mapping) -> Result<NonNull<u8>, Errno>;

    /// `munmap`.
    ///
    /// # Safety
    /// As for [`Os::map`].
    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) -> Result<(), Errno>;

    /// `madvise`.
    ///
    /// # Safety
    /// As for [`Os::map`] if the advice drops contents.
    unsafe fn advise(&self, at: NonNull<u8>, bytes: usize, advice: Advice) -> Result<(), Errno>;

    /// `mremap(MREMAP_MAYMOVE | MREMAP_FIXED)` of equal length.
    ///
    /// # Safety
    /// As for [`Os::map`], for the target; the source is left unmapped.
    unsafe fn remap(&self, from: NonNull<u8>, bytes: usize, to: NonNull<u8>) -> Result<(), Errno>;

    /// `mlock2`.
    ///
    /// # Safety
    /// The range belongs to the caller.
    unsafe fn lock(&self, at: NonNull<u8>, bytes: usize, locking: Locking) -> Result<(), Errno> {
        // SAFETY: the caller's promise.
        unsafe { lock(at, bytes, locking) }
    }

    /// The process-wide part of [`lock_memory`](hksim_policy::Allocator::lock_memory): sets whether new mappings are
    /// locked. Unlocks existing mappings, unless only `MCL_FUTURE` is set.
    fn lock_process(&self, process_lock: MemoryLock) -> Result<(), Errno> {
        lock_future(process_lock)
    }

    /// Nanoseconds on the clock of the purge delay.
    fn now_ns(&self) -> u64;

    /// Reports that the program freed or resized `address`, which is not a live block. The default aborts.
    fn invalid_free(&self, address: NonNull<u8>, superslab: NonNull<u8>, ordinal: u32, what: InvalidFree) {
        eprintln!("hksim: {what:?} of {address:p}, in SuperSlab {ordinal} at {superslab:p}");
        std::process::abort();
    }

    /// Sets the clock, if this is possible. A replay's clock follows the trace.
    #[inline(always)]
    fn set_now(&self, _now_ns: u64) {}
}

/// `mlock2`.
///
/// # Safety
/// The range is whole pages that belong to the caller.
pub(crate) unsafe fn lock(at: NonNull<u8>, bytes: usize, locking: Locking) -> Result<(), Errno> {
    let flags: libc::c_uint = match locking {
        Locking::Present => 0,
        Locking::OnFault => libc::MLOCK_ONFAULT,
    };
    // SAFETY: changes no contents.
    lock_call(unsafe { raw_call(libc::SYS_mlock2, [at.as_ptr().expose_provenance(), bytes, flags as usize]) })
}

/// Sets whether new mappings are locked. Unlocks all existing mappings, unless only `MCL_FUTURE` is set: the only call
/// that clears `MCL_FUTURE` changes all mappings.
pub(crate) fn lock_future(lock: MemoryLock) -> Result<(), Errno> {
    let is_for_future_alone = lock.future && !lock.current;
    if !is_for_future_alone {
        // SAFETY: changes no contents.
        lock_call(unsafe { raw_call(libc::SYS_munlockall, [0; 3]) })?;
    }
    if !lock.future {
        return Ok(());
    }
    let flags = libc::MCL_FUTURE | if lock.on_fault { libc::MCL_ONFAULT } else { 0 };
    // SAFETY: changes no contents.
    lock_call(unsafe { raw_call(libc::SYS_mlockall, [flags as usize, 0, 0]) })
}

fn lock_call(result: isize) -> Result<(), Errno> {
    if result < 0 { Err(Errno(-result as i32)) } else { Ok(()) }
}

/// Makes a system call with the `syscall` instruction, not through the C library. The preloaded object itself defines
/// `mlockall`, and a recorder that is also preloaded intercepts the C library's `syscall`.
///
/// # Safety
/// As for the system call.
#[cfg(not(miri))]
unsafe fn raw_call(number: libc::c_long, arguments: [usize; 3]) -> isize {
    let result: isize;
    // SAFETY: the caller guarantees the call's effects; the instruction itself changes only these registers.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => result,
            in("rdi") arguments[0],
            in("rsi") arguments[1],
            in("rdx") arguments[2],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    result
}

/// Miri cannot lock memory.
#[cfg(miri)]
unsafe fn raw_call(_: libc::c_long, _: [usize; 3]) -> isize {
    -libc::ENOSYS as isize
}

/// Makes the real system calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Syscalls;

/// `MAP_HUGE_2MB`: log2 of the page size, shifted left by `MAP_HUGE_SHIFT`.
const MAP_HUGE_2MB: libc::c_int = 21 << libc::MAP_HUGE_SHIFT;

/// Since Linux 6.1; earlier kernels return EINVAL.
const MADV_COLLAPSE: libc::c_int = 25;

fn errno() -> Errno {
    Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EINVAL))
}

fn checked(result: libc::c_int) -> Result<(), Errno> {
    if result == 0 { Ok(()) } else { Err(errno()) }
}

fn map_flags(mapping: Mapping) -> libc::c_int {
    let more = match mapping {
        Mapping::Plain => libc::MAP_NORESERVE,
        Mapping::Populated => libc::MAP_NORESERVE | libc::MAP_POPULATE,
        Mapping::Hugetlb => libc::MAP_HUGETLB | MAP_HUGE_2MB,
        Mapping::HugetlbPopulated => libc::MAP_HUGETLB | MAP_HUGE_2MB | libc::MAP_POPULATE,
    };
    libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | more
}

impl Os for Syscalls {
    unsafe fn map(&self, at: NonNull<u8>, bytes: usize, mapping: Mapping) -> Result<(), Errno> {
        let flags = libc::MAP_FIXED | map_flags(mapping);
        // SAFETY: the caller owns the range and needs nothing in it.
        let got = unsafe { libc::mmap(at.as_ptr().cast(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        if got == libc::MAP_FAILED { Err(errno()) } else { Ok(()) }
    }

    fn map_anywhere(&self, bytes: usize, mapping: Mapping) -> Result<NonNull<u8>, Errno> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, over no existing one.
        let got = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, map_flags(mapping), -1, 0) };
        if got == libc::MAP_FAILED { Err(errno()) } else { NonNull::new(got.cast()).ok_or(Errno(libc::ENOMEM)) }
    }

    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
        // SAFETY: the caller owns the range and needs nothing in it.
        checked(unsafe { libc::munmap(at.as_ptr().cast(), bytes) })
    }

    unsafe fn advise(&self, at: NonNull<u8>, bytes: usize, advice: Advice) -> Result<(), Errno> {
        let advice = match advice {
            Advice::HugePage => libc::MADV_HUGEPAGE,
            Advice::NoHugePage => libc::MADV_NOHUGEPAGE,
            Advice::DontNeed => libc::MADV_DONTNEED,
            Advice::Free => libc::MADV_FREE,
            Advice::PopulateRead => libc::MADV_POPULATE_READ,
            Advice::PopulateWrite => libc::MADV_POPULATE_WRITE,
            Advice::Collapse => MADV_COLLAPSE,
        };
        // SAFETY: the caller owns the range and needs nothing that the advice drops.
        checked(unsafe { libc::madvise(at.as_ptr().cast(), bytes, advice) })
    }

    unsafe fn remap(&self, from: NonNull<u8>, bytes: usize, to: NonNull<u8>) -> Result<(), Errno> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        // SAFETY: the caller owns both ranges and needs nothing in the target.
        let got = unsafe { libc::mremap(from.as_ptr().cast(), bytes, bytes, flags, to.as_ptr()) };
        if got == libc::MAP_FAILED { Err(errno()) } else { Ok(()) }
    }

    fn now_ns(&self) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: `time` is a valid timespec to write to.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
        (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
    }
}
