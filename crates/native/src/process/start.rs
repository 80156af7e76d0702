//! Making the process's allocator at its first call.

use std::ffi::CStr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use hksim_policy::layout::Layout;
use hksim_policy::{Allocator, Geometry, HUGE_PAGE_BYTES, Policy, PreparedPolicy, ProcessConfig, RunGeometry};

use super::process_allocator::{CONFIGURED, CONSTANT, Constant};
use super::stderr::Line;
use super::{World, invalid_free};
use crate::call_counts::Counted;
use crate::config::{NativeConfig, POLICY_VARIABLE};
use crate::memory::MmapMemory;

/// Which allocator serves the process.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The one with constant geometry.
    Constant = 1,
    /// The one with geometry from the environment.
    Configured = 2,
}

/// Smaller arenas, in bytes, get a compact layout.
const ROOMY_BYTES_MIN: u64 = 128 << 20;
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
        let config = policy();
        invalid_free::choose(config.on_invalid_free);
        // SAFETY: `call_once` runs once, and nobody knows of either allocator before `STARTED` is set.
        let made = unsafe {
            // It was checked when it was read.
            config.policy.prepare().ok().and_then(|PreparedPolicy { policy, geometry, .. }| {
                if is_constant(&geometry) {
                    let made = make(&Constant::default(), policy, config.process());
                    made.is_some_and(|made| CONSTANT.put(made)).then_some(Kind::Constant)
                } else {
                    let made = make(&geometry, policy, config.process());
                    made.is_some_and(|made| CONFIGURED.put(made)).then_some(Kind::Configured)
                }
            })
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
        2 => Some(Kind::Configured),
        _ => None,
    }
}

/// Whether this is the geometry that is compiled in.
fn is_constant(geometry: &RunGeometry) -> bool {
    RunGeometry::new(&Policy::default()).is_ok_and(|constant| constant == *geometry)
}

/// The policy of the environment. One that cannot be ends the process: on another one it would mislead.
fn policy() -> NativeConfig {
    let Some(text) = variable(POLICY_VARIABLE) else { return NativeConfig::default() };
    match text.to_str().map(NativeConfig::read) {
        Ok(Ok(config)) => config,
        Ok(Err(why)) => refuse(format_args!("HKSIM_NATIVE_POLICY: {why}")),
        Err(_) => refuse(format_args!("HKSIM_NATIVE_POLICY: is no UTF-8 text")),
    }
}

pub(super) fn refuse(words: std::fmt::Arguments<'_>) -> ! {
    Line::new(words).write();
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

/// An allocator in the arena that was asked for, or, where address space is limited, on the rung below the highest that can
/// be had: the program needs maps of its own.
fn make<G: Geometry + Clone>(geometry: &G, policy: Policy, process: ProcessConfig) -> Option<Allocator<World, G>> {
    let reserve = |layout: Layout| MmapMemory::new(layout, Counted).ok().map(|memory| (memory, layout));
    let first = Layout::new(geometry, policy.arena_bytes);
    let (memory, layout) = reserve(first).or_else(|| {
        let mut below = rungs(geometry, policy.arena_bytes).skip_while(|&layout| reserve(layout).is_none());
        let highest = below.next()?;
        below.find_map(reserve).or_else(|| reserve(highest))
    })?;
    let policy = within(policy, geometry, layout.arena_bytes);
    Some(Allocator::new(memory, geometry.clone(), policy, &layout).in_process(process))
}

/// Ever smaller layouts, each of half the arena of the one before: roomy ones, then compact ones down to one SuperSlab.
fn rungs<G: Geometry>(geometry: &G, asked_bytes: u64) -> impl Iterator<Item = Layout> {
    let least = HUGE_PAGE_BYTES.max(1 << geometry.superslab_shift());
    let halves = std::iter::successors(Some(asked_bytes / 2), |bytes| Some(bytes / 2));
    halves.take_while(move |&bytes| bytes >= least).map(|bytes| {
        if bytes >= ROOMY_BYTES_MIN { Layout::new(geometry, bytes) } else { Layout::compact(geometry, bytes) }
    })
}

/// What is made present at start stays within a quarter of an arena that came out smaller than asked.
fn within(policy: Policy, geometry: &impl Geometry, arena_bytes: u64) -> Policy {
    let superslabs = (arena_bytes / 4) >> geometry.superslab_shift();
    Policy {
        startup_touch_bytes: policy.startup_touch_bytes.min(superslabs << geometry.superslab_shift()),
        prewarm_superslabs: policy.prewarm_superslabs.min(superslabs as u32),
        ..policy
    }
}
