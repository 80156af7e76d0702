//! System-call filters (seccomp): the recorder makes no system call that the program's own filters forbid.
//!
//! A filter may kill the program at the recorder's first call, or trap into a handler of the program. So the recorder
//! copies each filter when the program installs it. Before each of its own calls, the recorder evaluates all copies
//! with the call's arguments, as the kernel does. If the result is not `SECCOMP_RET_ALLOW`, the recorder does not make
//! the call; it fails with `EPERM`. The kernel keeps filters per thread; the recorder applies them to the process.
//!
//! A filter that was installed before `exec` cannot be read. Such a process is not recorded, unless `hksim` runs under
//! the same filters.

use core::mem::offset_of;
use core::ptr::null_mut;
use core::slice;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};

use hksim_linux_probe::PAGE_BYTES;
use libc::{c_long, sock_filter, sock_fprog};

use crate::process::{self, Process};
use crate::{clock, session, sys};

/// `AUDIT_ARCH_X86_64`.
const ARCH: u32 = 0xC000_003E;
/// Maximum number of instructions that the kernel accepts.
const INSTRUCTIONS_MAX: usize = 4096;
/// Number of words in a filter's memory.
const MEMORY_WORDS: usize = 16;
/// Number of words in a filter's input: call number, architecture, instruction pointer, and six arguments.
const DATA_WORDS: usize = 16;
/// Result of a filter for an allowed call.
const ALLOW: u32 = 0x7fff_0000;
/// The part of a result that decides about the call.
const ACTION: u32 = 0xffff_0000;
/// Maximum number of times that the installation of a filter checks whether other threads' sections have ended.
const WAITS_MAX: u32 = 1 << 20;

/// A call, in the form of a filter's input.
#[derive(Clone, Copy)]
pub struct Call([u32; DATA_WORDS]);

impl Call {
    /// The call with this number, made by the instruction before `instruction`.
    pub fn new(number: c_long, instruction: u64, arguments: &[u64; 6]) -> Self {
        let mut words = [0; DATA_WORDS];
        words[..2].copy_from_slice(&[number as u32, ARCH]);
        let longs = core::iter::once(&instruction).chain(arguments);
        for (pair, &long) in words[2..].chunks_exact_mut(2).zip(longs) {
            pair.copy_from_slice(&[long as u32, (long >> 32) as u32]);
        }
        Self(words)
    }
}

/// A filter of the process; its instructions follow in memory. It never changes.
#[repr(C)]
struct Filter {
    /// The filter installed before this one.
    before: *mut Filter,
    /// Number of instructions; a filter with none allows nothing.
    instructions: usize,
}

/// The most recently installed filter; initially [`UNKNOWN`]. A forked child inherits it, as in the kernel.
static FILTERS: AtomicPtr<Filter> = AtomicPtr::new((&raw const UNKNOWN).cast::<Filter>().cast_mut());
/// Stands for the filters that the process may have inherited.
static UNKNOWN: [usize; 2] = [1, 0];
/// Stands for a filter that cannot be read or copied: it allows nothing.
static NOTHING: [usize; 2] = [0; 2];
/// Number of threads in a [`Section`].
static SECTIONS: AtomicU32 = AtomicU32::new(0);

/// Whether the process may make a call, according to its known filters.
#[inline]
pub fn allow(call: impl FnOnce() -> Call) -> bool {
    let last = FILTERS.load(Ordering::Acquire);
    last.is_null() || all_allow(known(last), &call())
}

#[cold]
fn all_allow(mut filter: *mut Filter, call: &Call) -> bool {
    // SAFETY: null or a filter, which stays mapped and unchanged.
    while let Some(known) = unsafe { filter.as_ref() } {
        if !known.allows(call) {
            return false;
        }
        filter = known.before;
    }
    true
}

/// A section of the recorder's work in one thread. The installation of a filter waits until it ends.
pub struct Section(());

impl Section {
    /// Begins a section.
    pub fn begin() -> Self {
        SECTIONS.fetch_add(1, Ordering::SeqCst);
        Self(())
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        SECTIONS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The filter that the program requests from the kernel.
pub enum NewFilter {
    /// Only `read`, `write` and `exit` are allowed.
    Strict,
    /// The filter described at this address, which may be invalid.
    Program(u64),
}

/// Prepares the recorder for a filter, then calls `install`, which returns -1 if the kernel refuses the filter.
pub fn install(wanted: NewFilter, install: impl FnOnce() -> c_long) -> c_long {
    let before = known(FILTERS.load(Ordering::Acquire));
    let new = prepare(&wanted, before);
    let result = install();
    if result != -1 {
        process::note_filter();
    } else if !new.is_null() {
        // If another thread has installed a filter in the meantime, the refused filter stays in the list too. Then the
        // recorder may avoid some allowed calls, but makes no forbidden call.
        let _ = FILTERS.compare_exchange(new, before, Ordering::AcqRel, Ordering::Relaxed);
    }
    result
}

/// Copies the filter and adds it to the list. Returns null, without effect, if the kernel will refuse the filter.
fn prepare(wanted: &NewFilter, before: *mut Filter) -> *mut Filter {
    let _errno = sys::Errno::save();
    let new = match wanted {
        NewFilter::Strict => Filter::keep(before, &[]),
        // An earlier filter may forbid the call that checks whether memory is readable.
        NewFilter::Program(_) if !sys::is_readable((&raw const *wanted) as u64) => Filter::keep(before, &[]),
        NewFilter::Program(address) => match instructions_at(*address) {
            Some(instructions) => Filter::keep(before, instructions),
            None => return null_mut(),
        },
    };
    // SAFETY: the filter was just created, and stays mapped and unchanged.
    if let (Some(process), Some(new)) = (Process::current(), unsafe { new.as_ref() }) {
        let _signals = sys::SignalsBlocked::new();
        process.prepare_for_filter(|call| new.allows(call));
    }
    if matches!(wanted, NewFilter::Strict) {
        clock::give_up();
    }
    FILTERS.store(new, Ordering::SeqCst);
    for _ in 0..WAITS_MAX {
        if SECTIONS.load(Ordering::SeqCst) == 0 {
            break;
        }
        core::hint::spin_loop();
    }
    new
}

/// The instructions of the `sock_fprog` at `address`; `None` if they are not readable or the kernel rejects their
/// number.
fn instructions_at(address: u64) -> Option<&'static [sock_filter]> {
    let is_readable = |start: u64, bytes: u64| {
        let last = start.checked_add(bytes - 1)? / PAGE_BYTES;
        (start / PAGE_BYTES..=last).all(|page| sys::is_readable(start.max(page * PAGE_BYTES) & !7)).then_some(())
    };
    is_readable(address, size_of::<sock_fprog>() as u64)?;
    let described = address as *const sock_fprog;
    // SAFETY: these bytes can be read; every value is valid.
    let (count, first) = unsafe {
        let count = described.byte_add(offset_of!(sock_fprog, len)).cast::<u16>().read_unaligned();
        (usize::from(count), described.byte_add(offset_of!(sock_fprog, filter)).cast::<u64>().read_unaligned())
    };
    if count == 0 || count > INSTRUCTIONS_MAX {
        return None;
    }
    is_readable(first, (count * size_of::<sock_filter>()) as u64)?;
    // SAFETY: as above. They are copied during the program's call, while the program does not change them.
    Some(unsafe { slice::from_raw_parts(first as *const sock_filter, count) })
}

impl Filter {
    fn nothing() -> *mut Self {
        (&raw const NOTHING).cast::<Self>().cast_mut()
    }

    fn keep(before: *mut Self, instructions: &[sock_filter]) -> *mut Self {
        let memory = sys::map_private(size_of::<Self>() + size_of_val(instructions)).cast::<Self>();
        if memory.is_null() {
            return Self::nothing();
        }
        // SAFETY: the memory was just mapped, and is large enough for the filter and its instructions.
        unsafe {
            memory.write(Self { before, instructions: instructions.len() });
            memory.add(1).cast::<sock_filter>().copy_from_nonoverlapping(instructions.as_ptr(), instructions.len());
        }
        memory
    }

    fn allows(&self, call: &Call) -> bool {
        // SAFETY: this number of instructions follows.
        let program = unsafe { slice::from_raw_parts((&raw const *self).add(1).cast(), self.instructions) };
        run(program, call).is_some_and(|result| result & ACTION == ALLOW)
    }
}

const _: () =
    assert!(size_of::<Filter>() == size_of_val(&UNKNOWN) && align_of::<Filter>() >= align_of::<sock_filter>());

/// Result of the filter for a call; `None` if the program is invalid, which allows nothing.
fn run(program: &[sock_filter], Call(data): &Call) -> Option<u32> {
    let (mut a, mut x, mut at) = (0_u32, 0_u32, 0_usize);
    let mut memory = [0_u32; MEMORY_WORDS];
    loop {
        // Jumps only go forward, so the loop ends.
        let &sock_filter { code, jt, jf, k } = program.get(at)?;
        at += 1;
        let (mode, place) = (code & 0xe0, k as usize);
        match code & 7 {
            class @ (0 | 1) => {
                let value = match mode {
                    0x00 => k,
                    0x20 if k.is_multiple_of(4) => *data.get(place / 4)?,
                    0x60 => *memory.get(place)?,
                    0x80 => size_of_val(data) as u32,
                    _ => return None,
                };
                *(if class == 0 { &mut a } else { &mut x }) = value;
            }
            2 => *memory.get_mut(place)? = a,
            3 => *memory.get_mut(place)? = x,
            4 => a = calculate(code, a, if code & 8 == 0 { k } else { x })?,
            5 => {
                let other = if code & 8 == 0 { k } else { x };
                at += match code & 0xf0 {
                    0x00 => place,
                    0x10 => usize::from(if a == other { jt } else { jf }),
                    0x20 => usize::from(if a > other { jt } else { jf }),
                    0x30 => usize::from(if a >= other { jt } else { jf }),
                    0x40 => usize::from(if a & other != 0 { jt } else { jf }),
                    _ => return None,
                };
            }
            6 => return Some(if code & 0x18 == 0x10 { a } else { k }),
            _ if code & 0xf8 == 0 => x = a,
            _ => a = x,
        }
    }
}

fn calculate(code: u16, a: u32, other: u32) -> Option<u32> {
    Some(match code & 0xf0 {
        0x00 => a.wrapping_add(other),
        0x10 => a.wrapping_sub(other),
        0x20 => a.wrapping_mul(other),
        0x30 => a.checked_div(other)?,
        0x40 => a | other,
        0x50 => a & other,
        0x60 => a.wrapping_shl(other),
        0x70 => a.wrapping_shr(other),
        0x80 => a.wrapping_neg(),
        0xa0 => a ^ other,
        _ => return None,
    })
}

/// The list of filters, after checking for inherited filters.
fn known(last: *mut Filter) -> *mut Filter {
    if last != (&raw const UNKNOWN).cast::<Filter>().cast_mut() {
        return last;
    }
    let found = if has_only_known_filters() { null_mut() } else { Filter::nothing() };
    match FILTERS.compare_exchange(last, found, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => found,
        Err(other) => other,
    }
}

/// Whether the process inherited no more filters than `hksim` itself has.
fn has_only_known_filters() -> bool {
    let _errno = sys::Errno::save();
    let mut text = [0; 4096];
    // The dynamic linker has just made the same system calls, so the inherited filters allow them.
    let bytes = sys::read_unfiltered(c"/proc/self/status", &mut text);
    filters_in(text.get(..bytes).unwrap_or_default()) <= session::own_filters()
}

/// Number of filters according to `/proc/PID/status`. Older kernels report only whether there are any.
fn filters_in(status: &[u8]) -> u32 {
    let number = |name: &[u8]| {
        let line = status.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(name))?;
        let digits = line.iter().filter(|byte| byte.is_ascii_digit());
        Some(digits.fold(0_u32, |number, digit| number.wrapping_mul(10).wrapping_add(u32::from(digit - b'0'))))
    };
    number(b"Seccomp_filters:").or_else(|| number(b"Seccomp:").map(|mode| mode.min(1))).unwrap_or(0)
}
