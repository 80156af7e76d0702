//! Makes this process's code, data and stack present, as the last step before a window opens.

use std::path::Path;
use std::time::Instant;

use hksim_policy::PAGE_BYTES;

use hksim_linux_probe::maps::Maps;
use hksim_linux_probe::resident::make_resident;

/// The heap that is measured, which [`prefault`] leaves unchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum MeasuredHeap<'a> {
    /// The replay's own reservation, which is created later. All existing memory is made present.
    Reservation,
    /// The process's `malloc`. Its existing memory, and the data of the library that provides it, are left unchanged.
    /// The library's code is made present: how many pages of code a fault maps depends on the page cache.
    Process {
        /// The preloaded library.
        library: Option<&'a Path>,
    },
}

/// Makes all memory present that the window may use. Call it last, on the thread that performs the events.
pub(crate) fn prefault(heap: MeasuredHeap<'_>) {
    touch_stack();
    // The vDSO's clock page: the kernel maps it at its first use, and no call populates it.
    std::hint::black_box(Instant::now());
    // If this list cannot be read, pages are faulted in during the window, and the control run reports the faults.
    let Ok(maps) = Maps::read() else { return };
    let (mut file, mut file_end) = ("", 0);
    for map in maps.iter() {
        let is_file = map.name.starts_with('/');
        // The zero-initialised data of a program or library is an unnamed mapping right after that of its file.
        let is_data = is_file || (map.name.is_empty() && map.start == file_end);
        if is_file {
            (file, file_end) = (map.name, map.start + map.bytes);
        }
        let is_measured = match heap {
            MeasuredHeap::Reservation => false,
            MeasuredHeap::Process { library } => {
                let is_library = library.is_some_and(|library| library == Path::new(file));
                !is_data || (is_library && map.is_writable)
            }
        };
        if is_measured || !(is_data || map.name == "[heap]") {
            continue;
        }
        if map.is_writable {
            make_resident(map.start as *const u8, map.bytes);
        } else if map.is_readable {
            // SAFETY: populating for reading changes no contents.
            unsafe { libc::madvise(map.start as *mut libc::c_void, map.bytes, libc::MADV_POPULATE_READ) };
        }
    }
}

/// Bytes of stack that a window may use.
const STACK_BYTES: usize = 192 << 10;

/// Makes the stack below the caller present.
#[inline(never)]
fn touch_stack() {
    let mut stack = [0u8; STACK_BYTES];
    for byte in stack.iter_mut().step_by(PAGE_BYTES as usize) {
        // SAFETY: a byte of the array above.
        unsafe { std::ptr::from_mut(byte).write_volatile(1) };
    }
    std::hint::black_box(&stack);
}
