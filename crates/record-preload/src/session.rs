//! The session of this process: its directory, and the page that starts and stops the recording.
//!
//! Both are opened once, when the image begins, and forked children inherit them. So a child that has changed its root
//! directory or its user can still use them.

use core::cell::UnsafeCell;
use core::ffi::CStr;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use libc::{c_char, c_int};

use crate::descriptor::Descriptor;
use crate::event_log::{
    CHUNK_BYTES, CONTROL_BYTES, FILTERS_VARIABLE, ORIGIN_ATTACHED, ORIGIN_EXEC, SESSION_ENDED, SESSION_FILE,
    SESSION_MAGIC, SESSION_RECORDING, SESSION_STOPPED, SESSION_VARIABLE, SessionPage,
};
use crate::{clock, sys};

/// Longest path of a session in bytes, its zero byte included.
pub const PATH_BYTES: usize = 4096;

static PATH: AtomicPtr<c_char> = AtomicPtr::new(null_mut());
static PAGE: AtomicPtr<SessionPage> = AtomicPtr::new(null_mut());
/// Whether the process may write the page. A program that another user executes may only read that of root.
static MAY_WRITE: AtomicBool = AtomicBool::new(false);
static DIRECTORY: Descriptor = Descriptor::none();
/// The path of a session that is not in the environment.
static ATTACHED_PATH: AttachedPath = AttachedPath(UnsafeCell::new([0; PATH_BYTES]));

struct AttachedPath(UnsafeCell<[u8; PATH_BYTES]>);

// SAFETY: written only while nothing is recorded.
unsafe impl Sync for AttachedPath {}

/// The path of the session, once its page is mapped; `None` if there is no session. It is read from the environment at
/// the first call, so later changes of the environment do not matter.
pub fn path() -> Option<&'static CStr> {
    let mut known = PATH.load(Ordering::Acquire);
    if known.is_null() {
        const NAME: [u8; SESSION_VARIABLE.len() + 1] = zero_ended(SESSION_VARIABLE);
        known = keep(variable(&NAME))?;
        // SAFETY: `keep` returned a C string that lives forever.
        if !open(unsafe { CStr::from_ptr(known) }) {
            return None;
        }
        PATH.store(known, Ordering::Release);
    }
    // SAFETY: as above.
    Some(unsafe { CStr::from_ptr(known) })
}

/// Joins the session at `path`, in a process that is not being recorded. False if it cannot be opened.
pub fn attach(path: &CStr) -> bool {
    let bytes = path.to_bytes_with_nul();
    // SAFETY: nothing is recorded, so no other thread reads the path.
    let Some(kept) = (unsafe { (*ATTACHED_PATH.0.get()).get_mut(..bytes.len()) }) else {
        return false;
    };
    kept.copy_from_slice(bytes);
    DIRECTORY.close();
    PATH.store(ATTACHED_PATH.0.get().cast(), Ordering::Release);
    open(path)
}

/// Closes the session's directory. Its page stays mapped: it says that the recording has ended.
pub fn leave() {
    end();
    DIRECTORY.close();
}

/// Whether the recorder has died, so that nobody will end the recording. Checked by the lock that it holds on the page.
pub fn recorder_is_gone() -> bool {
    let Some(directory) = DIRECTORY.get() else {
        return false;
    };
    // SAFETY: the name ends with a zero byte.
    let fd = unsafe { sys::open_in(directory, CONTROL_FILE.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return sys::get_errno() == libc::ENOENT;
    }
    let is_gone = !sys::is_locked(fd);
    sys::close(fd);
    is_gone
}

/// The value of an environment variable, or null. The name must be zero-terminated.
fn variable(name: &[u8]) -> *const c_char {
    // SAFETY: the name ends with a zero byte. This runs when the object is loaded, before anything can change the
    // environment.
    unsafe { libc::getenv(name.as_ptr().cast()) }
}

/// Number of system-call filters of `hksim` itself.
pub fn own_filters() -> u32 {
    const NAME: [u8; FILTERS_VARIABLE.len() + 1] = zero_ended(FILTERS_VARIABLE);
    let value = variable(&NAME);
    // SAFETY: the value is not null, so it is a C string.
    let digits = if value.is_null() { &[] } else { unsafe { CStr::from_ptr(value) }.to_bytes() };
    digits.iter().fold(0_u32, |number, digit| number.wrapping_mul(10).wrapping_add(u32::from(digit.wrapping_sub(b'0'))))
}

/// A copy of the string that outlives `setenv`.
fn keep(value: *const c_char) -> Option<*mut c_char> {
    if value.is_null() {
        return None;
    }
    // SAFETY: not null, so a C string.
    let bytes = unsafe { CStr::from_ptr(value) }.to_bytes_with_nul();
    if bytes.len() > PATH_BYTES {
        return None;
    }
    let copy = sys::map_private(bytes.len()).cast::<u8>();
    if copy.is_null() {
        return None;
    }
    // SAFETY: the mapping holds that many bytes and is fresh.
    unsafe { copy.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
    Some(copy.cast())
}

const fn zero_ended<const N: usize>(text: &str) -> [u8; N] {
    let mut name = [0; N];
    let mut at = 0;
    while at < text.len() {
        name[at] = text.as_bytes()[at];
        at += 1;
    }
    name
}

const CONTROL_FILE: [u8; SESSION_FILE.len() + 1] = zero_ended(SESSION_FILE);

/// Keeps the session's directory open and maps its page, in place of that of an earlier session.
fn open(path: &CStr) -> bool {
    // SAFETY: a C string.
    let directory =
        unsafe { sys::open(path.to_bytes_with_nul().as_ptr(), libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) };
    if !DIRECTORY.keep(directory) {
        return false;
    }
    let Some(directory) = DIRECTORY.get() else {
        return false;
    };
    // SAFETY: the name ends with a zero byte.
    let open_for = |access: c_int| unsafe { sys::open_in(directory, CONTROL_FILE.as_ptr(), access | libc::O_CLOEXEC) };
    let writable = open_for(libc::O_RDWR);
    let fd = if writable >= 0 { writable } else { open_for(libc::O_RDONLY) };
    if fd < 0 {
        return false;
    }
    let earlier = PAGE.load(Ordering::Acquire).cast();
    let page = match writable >= 0 {
        true => sys::map_shared_at(earlier, fd, 0, CONTROL_BYTES),
        false => sys::map_to_read_at(earlier, fd, CONTROL_BYTES),
    };
    let page = page.cast::<SessionPage>();
    sys::close(fd);
    // SAFETY: the page is not null; `hksim` wrote all of it before it started any process.
    if page.is_null() || unsafe { (&raw const (*page).magic).read() } != SESSION_MAGIC {
        return false;
    }
    MAY_WRITE.store(writable >= 0, Ordering::Relaxed);
    PAGE.store(page, Ordering::Release);
    true
}

/// Opens a file of the session. `path` is its whole path, in which the file name begins at `name`. While the directory
/// is open, only the name is used. So this works even if the process has changed its root, directory or user.
///
/// # Safety
/// `path` ends with a zero byte, and `name` is at most its length.
pub unsafe fn open_file(path: &[u8], name: usize, flags: c_int) -> c_int {
    // SAFETY: by the caller's promise.
    unsafe {
        match (DIRECTORY.get(), path.get(name..)) {
            (Some(directory), Some(name)) => sys::open_in(directory, name.as_ptr(), flags),
            _ => sys::open(path.as_ptr(), flags),
        }
    }
}

/// Renames a file of the session. The paths are as for [`open_file`].
///
/// # Safety
/// As for [`open_file`], of both.
pub unsafe fn rename_file(from: &[u8], to: &[u8], name: usize) -> bool {
    // SAFETY: by the caller's promise.
    unsafe {
        match (DIRECTORY.get(), from.get(name..), to.get(name..)) {
            (Some(directory), Some(from), Some(to)) => sys::rename_in(directory, from.as_ptr(), to.as_ptr()),
            _ => sys::rename_in(libc::AT_FDCWD, from.as_ptr(), to.as_ptr()),
        }
    }
}

/// Removes a file of the session. The path is as for [`open_file`].
///
/// # Safety
/// As for [`open_file`].
pub unsafe fn remove_file(path: &[u8], name: usize) {
    // SAFETY: by the caller's promise.
    unsafe {
        match (DIRECTORY.get(), path.get(name..)) {
            (Some(directory), Some(name)) => sys::remove_in(directory, name.as_ptr()),
            _ => sys::remove_in(libc::AT_FDCWD, path.as_ptr()),
        }
    }
}

/// A 32-bit field of the page; `None` before the page is mapped. Other processes change the field, so it is only
/// accessed atomically.
#[inline(always)]
fn word(field: impl FnOnce(*mut SessionPage) -> *mut u32) -> Option<&'static AtomicU32> {
    let page = PAGE.load(Ordering::Relaxed);
    // SAFETY: the page stays mapped, and the field is aligned.
    (!page.is_null()).then(|| unsafe { AtomicU32::from_ptr(field(page)) })
}

/// A 32-bit field of the page to change, as [`word`]; `None` if the process may only read the page.
fn counter(field: impl FnOnce(*mut SessionPage) -> *mut u32) -> Option<&'static AtomicU32> {
    word(field).filter(|_| MAY_WRITE.load(Ordering::Relaxed))
}

/// A 64-bit field of the page to change, as [`counter`].
fn long(field: impl FnOnce(*mut SessionPage) -> *mut u64) -> Option<&'static AtomicU64> {
    let page = PAGE.load(Ordering::Relaxed);
    // SAFETY: as above.
    (!page.is_null() && MAY_WRITE.load(Ordering::Relaxed)).then(|| unsafe { AtomicU64::from_ptr(field(page)) })
}

#[inline(always)]
fn state() -> u32 {
    // SAFETY: takes the address of a field of the mapped page.
    word(|page| unsafe { &raw mut (*page).state }).map_or(SESSION_RECORDING, |state| state.load(Ordering::Relaxed))
}

/// Whether calls are recorded now.
#[inline(always)]
pub fn is_recording() -> bool {
    state() == SESSION_RECORDING
}

/// Whether recording is paused.
pub fn is_stopped() -> bool {
    state() == SESSION_STOPPED
}

/// Whether recording has ended permanently.
pub fn has_ended() -> bool {
    state() == SESSION_ENDED
}

/// Frames of a call's stack to record; 0 for no call sites.
pub fn stack_depth() -> u32 {
    // SAFETY: takes the address of a field of the mapped page.
    word(|page| unsafe { &raw mut (*page).stack_depth }).map_or(0, |depth| depth.load(Ordering::Relaxed))
}

/// Whether events are numbered for a stream of accesses.
pub fn numbers_events() -> bool {
    // SAFETY: takes the address of a field of the mapped page.
    word(|page| unsafe { &raw mut (*page).numbered }).is_some_and(|numbered| numbered.load(Ordering::Relaxed) != 0)
}

/// Number of events that may reuse one reading of the clock.
pub fn untimed_events() -> u32 {
    // SAFETY: takes the address of a field of the mapped page.
    word(|page| unsafe { &raw mut (*page).untimed_events }).map_or(0, |events| events.load(Ordering::Relaxed))
}

/// A number that changes when earlier clock readings become too old.
#[inline(always)]
pub fn epoch() -> u32 {
    // SAFETY: takes the address of a field of the mapped page.
    word(|page| unsafe { &raw mut (*page).epoch }).map_or(0, |epoch| epoch.load(Ordering::Relaxed))
}

/// Whether to record a process with this origin and parent. Counts the process if it is not recorded.
pub fn wants(origin: u32, parent: u32) -> bool {
    // SAFETY: takes the address of a field of the mapped page.
    let recorder = word(|page| unsafe { &raw mut (*page).only_child_of }).map_or(0, |pid| pid.load(Ordering::Relaxed));
    let is_root = origin == ORIGIN_ATTACHED || (origin == ORIGIN_EXEC && parent == recorder);
    let is_wanted = (recorder == 0 || is_root) && wants_program();
    // SAFETY: as above.
    if let Some(count) = counter(|page| unsafe { &raw mut (*page).left_out }).filter(|_| !is_wanted) {
        count.fetch_add(1, Ordering::Relaxed);
    }
    is_wanted
}

/// Whether the program's file, or the first word of its command, has one of the selected names.
fn wants_program() -> bool {
    // SAFETY: null, or the session's page. These fields do not change after the first process has started.
    let Some(page) = (unsafe { PAGE.load(Ordering::Acquire).as_ref() }) else {
        return true;
    };
    let names = page.only.get(..page.only_bytes as usize).unwrap_or(&page.only);
    if names.is_empty() {
        return true;
    }
    let (mut file, mut command) = ([0; PATH_BYTES], [0; PATH_BYTES]);
    let file_bytes = sys::read_link(c"/proc/self/exe", &mut file);
    let command_bytes = sys::read_unfiltered(c"/proc/self/cmdline", &mut command);
    let own =
        [file.get(..file_bytes), command.get(..command_bytes).and_then(|words| words.split(|&byte| byte == 0).next())];
    names
        .split(|&byte| byte == 0)
        .filter(|name| !name.is_empty())
        .any(|name| own.iter().flatten().any(|path| path.rsplit(|&byte| byte == b'/').next() == Some(name)))
}

/// Counts a process that could not create a log.
pub fn count_unrecorded() {
    // SAFETY: takes the address of a field of the mapped page.
    if let Some(count) = counter(|page| unsafe { &raw mut (*page).unrecorded }) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a process that installed a system-call filter.
pub fn count_filtered() {
    // SAFETY: takes the address of a field of the mapped page.
    if let Some(count) = counter(|page| unsafe { &raw mut (*page).filtered }) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Counts a chunk. The chunk that reaches the session's limit ends the recording, but is still written.
pub fn count_chunk() {
    // SAFETY: takes the address of a field of the mapped page.
    let Some(taken) = long(|page| unsafe { &raw mut (*page).bytes }) else {
        return;
    };
    let bytes = taken.fetch_add(CHUNK_BYTES as u64, Ordering::Relaxed) + CHUNK_BYTES as u64;
    // SAFETY: as above.
    let most = long(|page| unsafe { &raw mut (*page).bytes_max }).map_or(0, |most| most.load(Ordering::Relaxed));
    if most != 0 && bytes >= most {
        end();
    }
}

/// Ends the recording permanently, for all processes of the session.
pub fn end() {
    // SAFETY: takes the addresses of fields of the mapped page.
    let (ended, state) = unsafe { (long(|page| &raw mut (*page).ended_ticks), counter(|page| &raw mut (*page).state)) };
    if let (Some(ended), Some(state)) = (ended, state) {
        let _ = ended.compare_exchange(0, clock::ticks(), Ordering::Relaxed, Ordering::Relaxed);
        state.store(SESSION_ENDED, Ordering::Relaxed);
    }
}
