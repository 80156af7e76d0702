//! `mlockall` for a program whose allocator reserves far more memory than it uses.
//!
//! The kernel's own call would make the whole arena resident: 64 GiB. So every mapping outside the reservation is
//! locked separately. In the reservation, the allocator locks only the SuperSlabs that it has taken.

use std::ops::Range;
use std::ptr::NonNull;

use hksim_policy::Errno;
use hksim_policy::memory::{Locking, Memory, MemoryLock};

use super::ProcessMemory;
use super::process_allocator::{CONFIGURED, CONSTANT, ProcessAllocator, ProcessGeometry};
use super::start::{AllocatorKind, start};
use crate::lock::ForkLock;
use crate::mapped_parts::{Pages, lock_mapped_parts};
use crate::os::{lock, lock_future};

/// Serialises the calls of the program's threads.
static LOCKING: ForkLock<()> = ForkLock::new(());

/// Forgets all locks in the child of a fork, which inherits no locked memory.
///
/// # Safety
/// Called while the child has only one thread, and this thread is not in this module.
pub(super) unsafe fn forget(mem: &ProcessMemory) {
    // SAFETY: the caller's promise.
    unsafe { LOCKING.renew() };
    mem.forget_locks();
}

/// `mlockall`, or `munlockall` if `flags` is 0.
///
/// # Errors
/// The kernel's errors: EINVAL for unknown flags, EPERM or ENOMEM at the limit of locked memory (`ulimit -l`).
pub fn lock_all(flags: i32) -> Result<(), Errno> {
    let is_set = |flag| flags & flag != 0;
    let lock = MemoryLock {
        current: is_set(libc::MCL_CURRENT),
        future: is_set(libc::MCL_FUTURE),
        on_fault: is_set(libc::MCL_ONFAULT),
    };
    let known = libc::MCL_CURRENT | libc::MCL_FUTURE | libc::MCL_ONFAULT;
    if flags & !known != 0 || flags == libc::MCL_ONFAULT {
        return Err(Errno(libc::EINVAL));
    }
    // The reservation must exist before new mappings are locked.
    match start() {
        Some(AllocatorKind::Constant) => lock_with(&CONSTANT, lock),
        Some(AllocatorKind::Configured) => lock_with(&CONFIGURED, lock),
        None => Err(Errno(libc::ENOMEM)),
    }
}

fn lock_with<G: ProcessGeometry>(
    process_allocator: &'static ProcessAllocator<G>,
    lock: MemoryLock,
) -> Result<(), Errno> {
    let guard = LOCKING.lock();
    let allocator = process_allocator.allocator();
    let locked = lock_others(&allocator.mem, lock).and_then(|()| allocator.lock_memory(lock));
    if locked.is_err() && lock.current {
        // Undo the partial lock. This also unlocks memory that was locked before the call.
        let none = MemoryLock::default();
        let _ = lock_future(none).and_then(|()| allocator.lock_memory(none));
    }
    drop(guard);
    locked
}

/// Locks the memory of the process outside the reservation.
fn lock_others(mem: &ProcessMemory, lock: MemoryLock) -> Result<(), Errno> {
    if lock.future {
        lock_future(MemoryLock { current: false, ..lock })?;
    } else if !lock.current || mem.locks_future().is_some() {
        // `MCL_FUTURE` is cleared only by unlocking everything. With `MCL_CURRENT`, memory is locked again below.
        lock_future(MemoryLock::default())?;
    }
    if !lock.current {
        return Ok(());
    }
    let own = mem.base().as_ptr() as u64..mem.base().as_ptr() as u64 + mem.bytes();
    let others = |each: &mut dyn FnMut(Range<u64>) -> Result<(), Errno>| {
        mappings(|map| if map.start < own.end && own.start < map.end { Ok(()) } else { each(map) })
    };
    // Lock on fault first. This makes no page present, so the only possible error is the limit.
    others(&mut |map| lock_mapped_parts(pages_of(&map), Locking::OnFault, &lock_pages))?;
    if !lock.on_fault {
        others(&mut |map| {
            // Inaccessible pages cannot be made present; they stay locked on fault.
            let _ = lock_pages(pages_of(&map), Locking::Present);
            Ok(())
        })?;
    }
    Ok(())
}

fn pages_of(map: &Range<u64>) -> Pages {
    Pages::of_bytes(map.start as usize, (map.end - map.start) as usize)
}

fn lock_pages(pages: Pages, locking: Locking) -> Result<(), Errno> {
    let at = NonNull::new(std::ptr::with_exposed_provenance_mut(pages.start)).ok_or(Errno(libc::EINVAL))?;
    // SAFETY: locking changes no contents.
    unsafe { lock(at, pages.bytes(), locking) }
}

/// Bytes of the kernel's list that are read at a time. Every line is shorter.
const TEXT_BYTES: usize = 16 << 10;

/// Calls `each` for every mapping of the process, without allocating. Mappings may change during the calls: each read
/// continues after the last address that was listed.
fn mappings(mut each: impl FnMut(Range<u64>) -> Result<(), Errno>) -> Result<(), Errno> {
    let mut text = [0u8; TEXT_BYTES];
    let mut held = 0;
    let list = List::open()?;
    loop {
        let got = list.read(&mut text[held..])?;
        let filled = held + got;
        let end = text[..filled].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        for line in text[..end].split(|&byte| byte == b'\n') {
            // Skip the vsyscall page: it is listed, but belongs to the kernel.
            if let Some(map) = range_of(line).filter(|map| map.start < 1 << 63) {
                each(map)?;
            }
        }
        if got == 0 {
            return Ok(());
        }
        text.copy_within(end..filled, 0);
        held = filled - end;
    }
}

/// The address range at the start of a line.
fn range_of(line: &[u8]) -> Option<Range<u64>> {
    let mut numbers = line.split(|&byte| byte == b'-' || byte == b' ');
    let mut number = || {
        let digits = std::str::from_utf8(numbers.next()?).ok()?;
        u64::from_str_radix(digits, 16).ok()
    };
    Some(number()?..number()?)
}

/// The kernel's list of the process's mappings.
struct List(libc::c_int);

impl List {
    fn open() -> Result<List, Errno> {
        // SAFETY: the path is a string.
        let descriptor = unsafe { libc::open(c"/proc/self/maps".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
        // Nothing can be locked without the list. ENOMEM is an error that `mlockall` documents.
        if descriptor < 0 { Err(Errno(libc::ENOMEM)) } else { Ok(List(descriptor)) }
    }

    fn read(&self, into: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: the kernel writes at most as many bytes as `into` has.
        let got = unsafe { libc::read(self.0, into.as_mut_ptr().cast(), into.len()) };
        usize::try_from(got).map_err(|_| Errno(libc::ENOMEM))
    }
}

impl Drop for List {
    fn drop(&mut self) {
        // SAFETY: `open` opened the descriptor.
        unsafe { libc::close(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps_are_parsed() {
        let line = b"7f0000001000-7f0000003000 rw-p 00000000 00:00 0 [heap]";
        assert_eq!(range_of(line), Some(0x7f00_0000_1000..0x7f00_0000_3000));
        assert_eq!(range_of(b""), None);
        assert_eq!(
            range_of(b"ffffffffff600000-ffffffffff601000 --xp"),
            Some(0xffff_ffff_ff60_0000..0xffff_ffff_ff60_1000)
        );
    }

    #[test]
    #[cfg(not(miri))]
    fn every_mapping_is_found_once() {
        let mut found = Vec::with_capacity(4096);
        assert_eq!(
            mappings(|map| {
                found.push(map);
                Ok(())
            }),
            Ok(())
        );
        assert!(found.windows(2).all(|pair| pair[0].end <= pair[1].start), "{found:?}");
        let here = &raw const found as u64;
        assert!(found.iter().any(|map| map.contains(&here)), "the stack is a mapping");
        assert!(found.iter().any(|map| map.contains(&(range_of as *const () as u64))), "so is code");
    }
}
