//! `mlockall` of a program whose allocator has reserved far more than it uses.
//!
//! The kernel's own call would make all of the arena present: 64 GiB. So each mapping of the process is locked for itself but the
//! reservation, of which the allocator locks what it has taken.

use std::ops::Range;
use std::ptr::NonNull;

use hksim_policy::Errno;
use hksim_policy::memory::{Locking, Memory, MemoryLock};

use super::World;
use super::process_allocator::{CONFIGURED, CONSTANT, ProcessAllocator, ProcessGeometry};
use super::start::{Kind, start};
use crate::lock::ForkLock;
use crate::mapped_parts::{Pages, lock_mapped_parts};
use crate::os::{lock, lock_future};

/// One program's thread locks at a time.
static LOCKING: ForkLock<()> = ForkLock::new(());

/// In the child of a fork, which inherits no locked memory.
///
/// # Safety
/// Called while it has one thread, which locks nothing.
pub(super) unsafe fn forget(mem: &World) {
    // SAFETY: the caller's promise.
    unsafe { LOCKING.renew() };
    mem.forget_locks();
}

/// `mlockall`, or `munlockall` where `flags` are 0.
///
/// # Errors
/// The kernel's errors: EINVAL for flags that it does not know, EPERM or ENOMEM where the limit of locked memory (`ulimit -l`) forbids it.
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
    // The reservation must be there before maps are locked as they are made.
    match start() {
        Some(Kind::Constant) => lock_with(&CONSTANT, lock),
        Some(Kind::Configured) => lock_with(&CONFIGURED, lock),
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
        // As if it had not been tried; what was locked before is unlocked, too.
        let none = MemoryLock::default();
        let _ = lock_future(none).and_then(|()| allocator.lock_memory(none));
    }
    drop(guard);
    locked
}

/// Locks what is not the allocator's.
fn lock_others(mem: &World, lock: MemoryLock) -> Result<(), Errno> {
    if lock.future {
        lock_future(MemoryLock { current: false, ..lock })?;
    } else if !lock.current || mem.locks_future().is_some() {
        // All is unlocked; with `MCL_CURRENT` it is locked again below, as nothing else ends what `MCL_FUTURE` began.
        lock_future(MemoryLock::default())?;
    }
    if !lock.current {
        return Ok(());
    }
    let own = mem.base().as_ptr() as u64..mem.base().as_ptr() as u64 + mem.bytes();
    let others = |each: &mut dyn FnMut(Range<u64>) -> Result<(), Errno>| {
        mappings(|map| if map.start < own.end && own.start < map.end { Ok(()) } else { each(map) })
    };
    // First on fault, which makes nothing present: an error is that of a limit, and nothing has happened yet.
    others(&mut |map| lock_mapped_parts(pages_of(&map), Locking::OnFault, &lock_pages))?;
    if !lock.on_fault {
        others(&mut |map| {
            // What may not be accessed cannot be made present, and is locked all the same.
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

/// Bytes of the kernel's list that are read at once: a line is shorter.
const TEXT_BYTES: usize = 16 << 10;

/// Calls `each` for every mapping of the process, without allocating. The list goes on behind the last address that was read, so it may
/// change meanwhile.
fn mappings(mut each: impl FnMut(Range<u64>) -> Result<(), Errno>) -> Result<(), Errno> {
    let mut text = [0u8; TEXT_BYTES];
    let mut held = 0;
    let list = List::open()?;
    loop {
        let got = list.read(&mut text[held..])?;
        let filled = held + got;
        let end = text[..filled].iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        for line in text[..end].split(|&byte| byte == b'\n') {
            // The kernel's own page is listed, and is no mapping of the process.
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

/// The addresses that a line begins with.
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
        // Without the list nothing can be locked: the error is one that `mlockall` knows.
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
        // SAFETY: a descriptor of our own.
        unsafe { libc::close(self.0) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_list_are_read() {
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
