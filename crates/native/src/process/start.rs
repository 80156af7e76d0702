//! Creates the process's allocator at the first call.

use std::ffi::CStr;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use hksim_policy::geometry::is_same;
use hksim_policy::layout::Layout;
use hksim_policy::{Allocator, Geometry, HUGE_PAGE_BYTES, Policy, PreparedPolicy, ProcessConfig, RunGeometry};

use super::process_allocator::{CONFIGURED, CONSTANT, Constant};
use super::stderr::Line;
use super::{ProcessMemory, invalid_free};
use crate::call_counts::CountedSyscalls;
use crate::config::{NativeConfig, POLICY_VARIABLE};
use crate::memory::MmapMemory;

/// One of the two allocators.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AllocatorKind {
    /// The allocator with constant geometry.
    Constant = 1,
    /// The allocator with geometry from the environment.
    Configured = 2,
}

/// Arenas smaller than this many bytes get a compact layout.
const ROOMY_BYTES_MIN: u64 = 128 << 20;
/// Exit status for an invalid policy in the environment.
const BAD_POLICY: libc::c_int = 2;

static ONCE: Once = Once::new();
/// Whether the allocator was ever requested. A program may contain this crate and never use it.
static WANTED: AtomicBool = AtomicBool::new(false);
/// The [`AllocatorKind`] in use; 0 until the allocator exists.
static STARTED: AtomicU8 = AtomicU8::new(0);

/// Creates the allocator on the first call; returns which of the two allocators is in use. `None` if there is not
/// enough address space.
pub(super) fn start() -> Option<AllocatorKind> {
    WANTED.store(true, Ordering::Release);
    ONCE.call_once(|| {
        let config = policy();
        invalid_free::choose(config.on_invalid_free);
        // SAFETY: `call_once` runs once, and no thread uses either allocator before `STARTED` is set.
        let made = unsafe {
            // The policy was checked when it was parsed, so this does not fail.
            config.policy.prepare().ok().and_then(|PreparedPolicy { policy, geometry, .. }| {
                if is_constant(&geometry) {
                    let made = make(&Constant::default(), policy, config.process());
                    made.is_some_and(|made| CONSTANT.init(made)).then_some(AllocatorKind::Constant)
                } else {
                    let made = make(&geometry, policy, config.process());
                    made.is_some_and(|made| CONFIGURED.init(made)).then_some(AllocatorKind::Configured)
                }
            })
        };
        STARTED.store(made.map_or(0, |kind| kind as u8), Ordering::Release);
    });
    started()
}

/// As [`start`], but only if the allocator was requested before. Waits for an allocator that is being created.
pub(super) fn start_if_wanted() -> Option<AllocatorKind> {
    if WANTED.load(Ordering::Acquire) { start() } else { None }
}

/// The allocator in use, if it exists yet.
pub(super) fn started() -> Option<AllocatorKind> {
    match STARTED.load(Ordering::Acquire) {
        1 => Some(AllocatorKind::Constant),
        2 => Some(AllocatorKind::Configured),
        _ => None,
    }
}

/// Whether a process on this policy has the geometry of the default policy, which is compiled in: sizes of SuperSlabs
/// and slices are constants in its code. False if the policy is invalid.
pub fn has_constant_geometry(policy: &Policy) -> bool {
    policy.prepare().is_ok_and(|prepared| is_constant(&prepared.geometry))
}

/// Whether this is the compiled-in geometry.
fn is_constant(geometry: &RunGeometry) -> bool {
    is_same(geometry, &Constant::default())
}

/// The configuration from the environment. An invalid configuration ends the process: running with another policy would
/// be misleading.
fn policy() -> NativeConfig {
    let Some(text) = variable(POLICY_VARIABLE) else { return NativeConfig::default() };
    match text.to_str().map(NativeConfig::read) {
        Ok(Ok(config)) => config,
        Ok(Err(why)) => refuse(format_args!("HKSIM_NATIVE_POLICY: {why}")),
        Err(_) => refuse(format_args!("HKSIM_NATIVE_POLICY: is not valid UTF-8")),
    }
}

pub(super) fn refuse(words: std::fmt::Arguments<'_>) -> ! {
    Line::new(words).write();
    // SAFETY: never returns. `exit` would run handlers, which allocate.
    unsafe { libc::_exit(BAD_POLICY) }
}

/// An environment variable. `None` in a program with elevated privileges (AT_SECURE).
pub(super) fn variable(name: &CStr) -> Option<&'static CStr> {
    // SAFETY: `getauxval` only returns a number; the name ends with a zero byte.
    let value = unsafe {
        if libc::getauxval(libc::AT_SECURE) != 0 {
            return None;
        }
        libc::getenv(name.as_ptr())
    };
    // SAFETY: a C string of the environment, which does not change while the program starts.
    (!value.is_null()).then(|| unsafe { CStr::from_ptr(value) })
}

/// Creates an allocator with the requested arena. If the address space is limited, takes the layout one step below the
/// largest layout that fits, so that the program can still map memory.
fn make<G: Geometry + Clone>(
    geometry: &G,
    policy: Policy,
    process: ProcessConfig,
) -> Option<Allocator<ProcessMemory, G>> {
    let reserve = |layout: Layout| MmapMemory::new(layout, CountedSyscalls).ok().map(|memory| (memory, layout));
    let first = Layout::new(geometry, policy.arena_bytes);
    let (memory, layout) = reserve(first).or_else(|| {
        let mut below = rungs(geometry, policy.arena_bytes).skip_while(|&layout| reserve(layout).is_none());
        let highest = below.next()?;
        below.find_map(reserve).or_else(|| reserve(highest))
    })?;
    let policy = within(policy, geometry, layout.arena_bytes);
    Some(Allocator::new(memory, geometry.clone(), policy, &layout).in_process(process))
}

/// Layouts of decreasing size, each with half the arena of the previous layout, down to one SuperSlab. Small layouts
/// are compact.
fn rungs<G: Geometry>(geometry: &G, asked_bytes: u64) -> impl Iterator<Item = Layout> {
    let least = HUGE_PAGE_BYTES.max(1 << geometry.superslab_shift());
    let halves = std::iter::successors(Some(asked_bytes / 2), |bytes| Some(bytes / 2));
    halves.take_while(move |&bytes| bytes >= least).map(|bytes| {
        if bytes >= ROOMY_BYTES_MIN { Layout::new(geometry, bytes) } else { Layout::compact(geometry, bytes) }
    })
}

/// Limits the memory that is made present at start to a quarter of the arena: the arena may be smaller than requested.
fn within(policy: Policy, geometry: &impl Geometry, arena_bytes: u64) -> Policy {
    let superslabs = (arena_bytes / 4) >> geometry.superslab_shift();
    Policy {
        startup_touch_bytes: policy.startup_touch_bytes.min(superslabs << geometry.superslab_shift()),
        prewarm_superslabs: policy.prewarm_superslabs.min(superslabs as u32),
        ..policy
    }
}
