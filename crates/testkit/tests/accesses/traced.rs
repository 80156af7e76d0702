//! The native memory under access tracing: pages start without access rights, and a SIGSEGV handler grants and records
//! each access.
//!
//! The processor and the kernel report the accesses, independently of the code of the allocator and the simulator.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use hksim_native::{Os, Syscalls};
use hksim_policy::memory::{Advice, Mapping};
use hksim_policy::{Errno, PAGE_BYTES};

/// The bit of a page fault's error code that marks a write.
const WRITE_FAULT: i64 = 2;
/// Maximum number of traced faults per operation.
const LOG_MAX: usize = 1 << 16;
/// Marks an entry of the log as a write. The other bits are the offset from the base.
const WRITE: usize = 1 << (usize::BITS - 1);

/// Address and size of the traced memory. Both are 0 before the first call of [`begin`].
static BASE: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);
static LOG: [AtomicUsize; LOG_MAX] = [const { AtomicUsize::new(0) }; LOG_MAX];
static LOGGED: AtomicUsize = AtomicUsize::new(0);
static HAS_HANDLER: AtomicBool = AtomicBool::new(false);

/// How an operation accessed a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Whether the first access read.
    pub reads_first: bool,
    /// Whether any access wrote.
    pub writes: bool,
    /// Offset in the page of the last traced access: the first write, if there was one.
    pub offset: usize,
}

extern "C" fn on_fault(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes both to a handler that was installed with SA_SIGINFO.
    let (at, error) = unsafe {
        let context = &*context.cast::<libc::ucontext_t>();
        ((*info).si_addr() as usize, context.uc_mcontext.gregs[libc::REG_ERR as usize])
    };
    let from_base = at.wrapping_sub(BASE.load(Ordering::Relaxed));
    let number = LOGGED.fetch_add(1, Ordering::Relaxed);
    if from_base >= BYTES.load(Ordering::Relaxed) || number >= LOG_MAX {
        // SAFETY: restores the default action, so that an access outside the traced memory crashes on return.
        unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
        return;
    }
    let page = from_base / PAGE_BYTES as usize;
    let is_write = error & WRITE_FAULT != 0;
    LOG[number].store(from_base | if is_write { WRITE } else { 0 }, Ordering::Relaxed);
    protect(page, 1, if is_write { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ });
}

fn protect(page: usize, pages: usize, protection: libc::c_int) {
    let page_bytes = PAGE_BYTES as usize;
    let at = BASE.load(Ordering::Relaxed) + page * page_bytes;
    // SAFETY: the traced memory is the test's, and faults on it are handled.
    let result = unsafe { libc::mprotect(at as *mut libc::c_void, pages * page_bytes, protection) };
    if result != 0 {
        // SAFETY: async-signal-safe. The test cannot continue.
        unsafe { libc::abort() };
    }
}

/// Begins to trace `bytes` bytes at `base`.
pub fn begin(base: NonNull<u8>, bytes: u64) {
    if !HAS_HANDLER.swap(true, Ordering::Relaxed) {
        // SAFETY: an all-zero sigaction is valid; the handler is async-signal-safe.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_fault as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER;
            assert_eq!(libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()), 0);
        }
    }
    BASE.store(base.as_ptr() as usize, Ordering::Relaxed);
    BYTES.store(bytes as usize, Ordering::Relaxed);
    LOGGED.store(0, Ordering::Relaxed);
    protect(0, bytes as usize / PAGE_BYTES as usize, libc::PROT_NONE);
}

/// The accesses since the last call, by page number relative to the base. Revokes the access rights of these pages.
pub fn take() -> BTreeMap<u64, Access> {
    let mut accesses = BTreeMap::new();
    for entry in &LOG[..LOGGED.swap(0, Ordering::Relaxed)] {
        let entry = entry.load(Ordering::Relaxed);
        let (at, is_write) = (entry & !WRITE, entry & WRITE != 0);
        let (page, offset) = (at / PAGE_BYTES as usize, at % PAGE_BYTES as usize);
        let access = accesses.entry(page as u64).or_insert(Access { reads_first: !is_write, writes: false, offset });
        access.writes |= is_write;
        access.offset = offset;
        protect(page, 1, libc::PROT_NONE);
    }
    accesses
}

/// Performs only the system calls that change the contents of memory. Residency does not matter here.
#[derive(Default)]
pub struct Traced {
    now_ns: Cell<u64>,
}

impl Traced {
    /// Revokes all access rights to a new mapping. Has no effect before tracing begins.
    fn hide(&self, at: NonNull<u8>, bytes: usize) {
        if let Some(from_base) = (at.as_ptr() as usize).checked_sub(BASE.load(Ordering::Relaxed))
            && from_base < BYTES.load(Ordering::Relaxed)
        {
            protect(from_base / PAGE_BYTES as usize, bytes / PAGE_BYTES as usize, libc::PROT_NONE);
        }
    }
}

impl Os for Traced {
    unsafe fn map(&self, at: NonNull<u8>, bytes: usize, mapping: Mapping) -> Result<(), Errno> {
        if matches!(mapping, Mapping::Hugetlb | Mapping::HugetlbPopulated) {
            return Err(Errno(libc::ENOMEM));
        }
        // SAFETY: guaranteed by the caller.
        unsafe { Syscalls.map(at, bytes, Mapping::Plain) }?;
        self.hide(at, bytes);
        Ok(())
    }

    fn map_anywhere(&self, _: usize, _: Mapping) -> Result<NonNull<u8>, Errno> {
        unreachable!("all SuperSlabs are in the arena")
    }

    unsafe fn unmap(&self, at: NonNull<u8>, bytes: usize) -> Result<(), Errno> {
        // SAFETY: guaranteed by the caller.
        unsafe { Syscalls.unmap(at, bytes) }
    }

    unsafe fn advise(&self, at: NonNull<u8>, bytes: usize, advice: Advice) -> Result<(), Errno> {
        match advice {
            // SAFETY: guaranteed by the caller.
            Advice::DontNeed | Advice::Free => unsafe { Syscalls.advise(at, bytes, advice) },
            Advice::HugePage | Advice::NoHugePage | Advice::PopulateRead | Advice::PopulateWrite | Advice::Collapse => {
                Ok(())
            }
        }
    }

    unsafe fn remap(&self, from: NonNull<u8>, bytes: usize, to: NonNull<u8>) -> Result<(), Errno> {
        // Makes the range one mapping again, which mremap requires: accessed pages have different rights.
        self.hide(from, bytes);
        // SAFETY: guaranteed by the caller.
        unsafe { Syscalls.remap(from, bytes, to) }
    }

    fn now_ns(&self) -> u64 {
        self.now_ns.get()
    }

    fn set_now(&self, now_ns: u64) {
        self.now_ns.set(now_ns);
    }
}
