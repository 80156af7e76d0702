//! Making the process's allocator at its first call.

use std::ffi::CStr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use hksim_policy::layout::Layout;
use hksim_policy::{Allocator, Geometry, RunGeometry};

use super::World;
use super::say::Line;
use super::served::{CHOSEN, CONSTANT, Constant};
use crate::memory::MmapMemory;
use crate::setup::{POLICY_VARIABLE, Setup};
use crate::tally::Counted;

/// Which allocator serves the process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The one with constant geometry.
    Constant = 1,
    /// The one with geometry from the environment.
    Chosen = 2,
}

/// Least arena that is tried, in bytes.
const ARENA_BYTES_MIN: u64 = 32 << 20;
/// Exit status where the environment holds no policy that can be.
const BAD_POLICY: libc::c_int = 2;

static ONCE: Once = Once::new();
/// Whether anybody wants an allocator: a program may contain this crate and never use it.
static WANTED: AtomicBool = AtomicBool::new(false);
/// 0 until there is an allocator.
static STARTED: AtomicU8 = AtomicU8::new(0);

/// Makes the allocator, once; says which it is. `None` where there is no address space for it.
pub(super) fn start() -> Option<Kind> {
    WANTED.store(true, Ordering::Release);
    ONCE.call_once(|| {
        let setup = policy();
        // SAFETY: `call_once` runs once, and nobody knows of either allocator before `STARTED` is set.
        let made = unsafe {
            if setup.shape == Setup::default().shape {
                let made = make(&Constant::default(), &setup);
                made.is_some_and(|made| CONSTANT.put(made)).then_some(Kind::Constant)
            } else {
                // Its shape was checked when it was read.
                let made = RunGeometry::new(setup.shape).ok().and_then(|geometry| make(&geometry, &setup));
                made.is_some_and(|made| CHOSEN.put(made)).then_some(Kind::Chosen)
            }
        };
        STARTED.store(made.map_or(0, |kind| kind as u8), Ordering::Release);
    });
    started()
}

/// As [`start`], where somebody has wanted an allocator already: waits for one that is being made.
pub(super) fn start_if_wanted() -> Option<Kind> {
    if WANTED.load(Ordering::Acquire) { start() } else { None }
}

/// Which allocator serves the process by now.
pub(super) fn started() -> Option<Kind> {
    match STARTED.load(Ordering::Acquire) {
        1 => Some(Kind::Constant),
        2 => Some(Kind::Chosen),
        _ => None,
    }
}

/// The policy of the environment. One that cannot be ends the process: on another one it would mislead.
fn policy() -> Setup {
    let Some(text) = variable(POLICY_VARIABLE) else { return Setup::default() };
    match text.to_str().map(Setup::read) {
        Ok(Ok(setup)) => setup,
        Ok(Err(why)) => refuse(format_args!("HKSIM_NATIVE_POLICY: {why}")),
        Err(_) => refuse(format_args!("HKSIM_NATIVE_POLICY: is no UTF-8 text")),
    }
}

pub(super) fn refuse(words: std::fmt::Arguments<'_>) -> ! {
    Line::of(words).tell();
    // SAFETY: never returns. Not `exit`: handlers would ask for memory.
    unsafe { libc::_exit(BAD_POLICY) }
}

/// A variable of the environment; none in a program that has more rights than its caller.
pub(super) fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: asks for a number; the name ends with a zero byte.
    let value = unsafe {
        if libc::getauxval(libc::AT_SECURE) != 0 {
            return None;
        }
        libc::getenv(name.as_ptr())
    };
    // SAFETY: a string of the environment, which nobody changes while a program starts.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

/// An allocator in the arena that was asked for, or, where address space is limited, in half of the largest that can be
/// had: the program needs maps of its own.
fn make<G: Geometry + Clone>(geometry: &G, setup: &Setup) -> Option<Allocator<World, G>> {
    let reserve = |bytes: u64| {
        let layout = Layout::new(geometry, bytes);
        MmapMemory::new(layout, Counted).ok().map(|memory| (memory, layout))
    };
    let halves =
        |from: u64| std::iter::successors(Some(from), |bytes| Some(bytes / 2).filter(|&b| b >= ARENA_BYTES_MIN));
    let (memory, layout) = reserve(setup.arena_bytes).or_else(|| {
        let largest = halves(setup.arena_bytes / 2).find(|&bytes| reserve(bytes).is_some())?;
        halves(largest / 2).find_map(reserve).or_else(|| reserve(largest))
    })?;
    Some(Allocator::new(memory, geometry.clone(), setup.options, &layout))
}
