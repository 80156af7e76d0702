//! The shared state of the threads of one process image: the log, and the registry of thread buffers.
//!
//! A forked child finds this memory zeroed, so it begins its own log and never touches its parent's.

use core::cell::{Cell, UnsafeCell};
use core::ffi::CStr;
use core::ptr::null_mut;
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use libc::{c_int, c_void};

use crate::descriptor::Descriptor;
use crate::event_log::{
    ALLOCATOR_BYTES, CHUNK_BYTES, CONTROL_BYTES, ChunkHeader, Control, LOG_SUFFIX, ORIGIN_ATTACHED, ORIGIN_EXEC,
    ORIGIN_FORK, STREAM_SUFFIX, Window,
};
use crate::filters::Call;
use crate::log_file::{chunk_offset, decimal, fill_control, write_path};
use crate::own_stack::{self, InUse};
use crate::reserve::Reserve;
use crate::sequence::{self, Counters};
use crate::session::PATH_BYTES;
use crate::thread_buffer::ThreadBuffer;
use crate::{arch, attached, clock, filter_hooks, memory_policy, real, session, site, sys};

/// Maximum number of logs of one process id (one per exec or reused id).
const LOGS_PER_PID: u32 = 10_000;
/// Events between two attempts to allocate a chunk of a full log.
const EVENTS_BETWEEN_ATTEMPTS: u32 = 4096;
/// Thread-specific values with keys below this one need no allocation in glibc.
const KEYS_WITHOUT_ALLOCATION: u32 = 32;

/// Not started; a forked child finds this state.
const NEW: u32 = 0;
/// A thread is opening the log.
const STARTING: u32 = 1;
/// The log is open.
const READY: u32 = 2;
/// There is no session, or the log could not be opened.
const OFF: u32 = 3;

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(null_mut());
/// The log's descriptor. In a forked child it is the descriptor of the parent's log, until the child begins its own.
static LOG: Descriptor = Descriptor::none();
/// Number of events before the log was open.
static LOST_EARLY: AtomicU64 = AtomicU64::new(0);
/// Whether recording has already started in this image. If it is set when a process starts, the process is a fork.
static BEGUN: AtomicBool = AtomicBool::new(false);
/// Number of the recording: a process may be recorded several times, each time by a recorder that attaches to it.
static RECORDING: AtomicU32 = AtomicU32::new(0);
/// Ticks after which a thread checks whether the recorder still exists. Only an attached recorder must.
static CHECK_DUE: AtomicU64 = AtomicU64::new(u64::MAX);
/// Ticks between two checks: about a second.
const CHECK_TICKS: u64 = 1 << 31;
/// 1 + the key whose destructor notes the end of a thread; 0 if there is none.
static END_KEY: AtomicU32 = AtomicU32::new(0);

/// State of the recorder in this process.
#[repr(C)]
pub struct Process {
    state: AtomicU32,
    /// Number of events to skip before the next attempt to allocate a chunk.
    attempts_pause: AtomicU32,
    /// The thread buffer registered last. Buffers are never removed, so the list is read without a lock.
    buffers: AtomicPtr<ThreadBuffer>,
    reserve: Reserve,
    own_stacks: InUse,
    /// Whether the process itself installed a system-call filter, in addition to inherited filters.
    has_filter: AtomicBool,
    counters: Counters,
    control: Cell<*mut Control>,
    path: UnsafeCell<[u8; PATH_BYTES]>,
    /// Offset of the log's name in the path.
    name: Cell<usize>,
    /// Children forked so far.
    forks: AtomicU32,
}

/// Opens the log when the object is loaded, so that a process without events has a log too.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = {
    extern "C" fn at_load() {
        own_stack::run(|| {
            attached::note_loading();
            if attached::is_attached() {
                return;
            }
            memory_policy::begin();
            filter_hooks::begin();
            if let Some(process) = Process::current() {
                process.describe_image();
                site::begin();
            }
        });
    }
    at_load
};

/// Whether recording is permanently off in this process.
pub fn is_off() -> bool {
    // SAFETY: null or the one Process, never unmapped.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
        .is_some_and(|process| process.state.load(Ordering::Relaxed) == OFF)
}

/// Whether the process is being recorded, or was recorded by a preloaded recorder.
pub fn is_on() -> bool {
    // SAFETY: null or the one Process, never unmapped.
    unsafe { PROCESS.load(Ordering::Acquire).as_ref() }
        .is_some_and(|process| matches!(process.state.load(Ordering::Acquire), STARTING | READY))
}

/// The number of the present recording.
pub fn recording() -> u32 {
    RECORDING.load(Ordering::Relaxed)
}

/// Notes that the recording has ended: an attached recorder leaves the process.
#[cold]
pub fn note_end() {
    if !is_off() {
        own_stack::run(|| Process::current().map(Process::goes_on));
    }
}

/// Whether to check whether the recorder still exists, at this time.
#[inline(always)]
pub fn is_check_due(ticks: u64) -> bool {
    ticks > CHECK_DUE.load(Ordering::Relaxed)
}

/// Returns what a recording that has ended uses.
pub fn leave() {
    CHECK_DUE.store(u64::MAX, Ordering::Relaxed);
    // SAFETY: null or the one Process, never unmapped.
    if let Some(process) = unsafe { PROCESS.load(Ordering::Acquire).as_ref() } {
        process.state.store(OFF, Ordering::Release);
        process.retire_buffers();
        let control = process.control.get();
        if !control.is_null() {
            sys::replace_by_zeros(control.cast(), CONTROL_BYTES);
        }
    }
    LOG.close();
}

/// Which of the recorder's own stacks this process uses; `None` without memory.
pub fn own_stacks() -> Option<&'static InUse> {
    Process::shared().map(|process| &process.own_stacks)
}

/// Counts an event that has no log.
pub fn count_lost_early() {
    LOST_EARLY.fetch_add(1, Ordering::Relaxed);
}

/// Counts a recorded call whose call site is unknown.
#[cold]
pub fn count_site_lost() {
    // SAFETY: null or the one Process, never unmapped.
    let process = unsafe { PROCESS.load(Ordering::Acquire).as_ref() };
    if let Some(process) = process.filter(|process| process.state.load(Ordering::Acquire) == READY) {
        // SAFETY: as in `control_u32`.
        let lost = unsafe { AtomicU64::from_ptr(&raw mut (*process.control.get()).sites_lost) };
        lost.fetch_add(1, Ordering::Relaxed);
    }
}

/// Notes that the process has installed a system-call filter.
pub fn note_filter() {
    // SAFETY: null or the one Process, never unmapped.
    let process = unsafe { PROCESS.load(Ordering::Acquire).as_ref() };
    if process.is_some_and(|process| !process.has_filter.swap(true, Ordering::Relaxed)) {
        session::count_filtered();
    }
}

/// Makes [`ThreadBuffer::note_end`] run when the calling thread runs its destructors.
pub fn call_at_thread_end(buffer: &ThreadBuffer) {
    if let Some(key) = END_KEY.load(Ordering::Relaxed).checked_sub(1) {
        // SAFETY: the key exists, and the destructor takes a thread buffer, which stays mapped.
        unsafe { libc::pthread_setspecific(key, (&raw const *buffer).cast()) };
    }
}

unsafe extern "C" fn thread_ends(buffer: *mut c_void) {
    // SAFETY: the value of the key is null or the ending thread's buffer.
    if let Some(buffer) = unsafe { buffer.cast::<ThreadBuffer>().as_ref() } {
        buffer.note_end();
    }
}

fn make_end_key() {
    if END_KEY.load(Ordering::Relaxed) != 0 {
        return;
    }
    let mut key = 0;
    // SAFETY: plain out-argument; the destructor has the right type.
    let made = unsafe { libc::pthread_key_create(&raw mut key, Some(thread_ends)) } == 0;
    if made && key < KEYS_WITHOUT_ALLOCATION {
        END_KEY.store(key + 1, Ordering::Relaxed);
    }
}

impl Process {
    /// The state of this process, started if needed; `None` if nothing can be recorded now.
    pub fn current() -> Option<&'static Self> {
        let process = Self::shared()?;
        match process.state.compare_exchange(NEW, STARTING, Ordering::Acquire, Ordering::Acquire) {
            Ok(_) => own_stack::run(|| process.start()),
            Err(STARTING) => count_lost_early(),
            Err(_) => {}
        }
        (process.state.load(Ordering::Acquire) == READY).then_some(process)
    }

    fn shared() -> Option<&'static Self> {
        let known = PROCESS.load(Ordering::Acquire);
        // SAFETY: null or the one Process, never unmapped; all zero is a valid value.
        if let Some(process) = unsafe { known.as_ref() } {
            return Some(process);
        }
        let fresh = sys::map_wiped_on_fork(size_of::<Self>()).cast::<Self>();
        let winner = match PROCESS.compare_exchange(null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => fresh,
            Err(other) => {
                sys::unmap(fresh.cast(), size_of::<Self>());
                other
            }
        };
        // SAFETY: as above.
        unsafe { winner.as_ref() }
    }

    /// Begins another recording of a process that is not being recorded; `None` if it cannot.
    pub fn restart() -> Option<&'static Self> {
        let process = Self::shared()?;
        RECORDING.fetch_add(1, Ordering::Relaxed);
        BEGUN.store(false, Ordering::Relaxed);
        // Threads that had not noticed the end of an earlier recording have by now.
        process.retire_buffers();
        process.state.store(NEW, Ordering::Release);
        let started = Self::current();
        CHECK_DUE.store(arch::ticks() + CHECK_TICKS, Ordering::Relaxed);
        started
    }

    fn start(&'static self) {
        let Some(session) = session::path() else {
            self.state.store(OFF, Ordering::Release);
            return;
        };
        // valgrind's launcher runs before valgrind and is not recorded.
        let origin = match (BEGUN.swap(true, Ordering::Relaxed), attached::begins()) {
            (_, true) => ORIGIN_ATTACHED,
            (true, false) => ORIGIN_FORK,
            (false, false) => ORIGIN_EXEC,
        };
        let is_wanted = (!session::numbers_events() || sequence::in_valgrind())
            && (session::has_ended() || session::wants(origin, sys::parent_pid()));
        let state = if is_wanted && !session::has_ended() && self.open_log(session, origin) { READY } else { OFF };
        if state == READY {
            make_end_key();
            clock::begin();
            if session::numbers_events() {
                self.begin_numbers();
            }
            self.count_lost(LOST_EARLY.swap(0, Ordering::Relaxed));
        }
        self.state.store(state, Ordering::Release);
        if state == OFF {
            attached::leave();
        }
    }

    fn open_log(&self, session: &CStr, origin: u32) -> bool {
        let opened = self.create_log(session, origin);
        if !opened {
            session::count_unrecorded();
        }
        opened
    }

    fn create_log(&self, session: &CStr, origin: u32) -> bool {
        LOG.close();
        let Some(pid) = sys::pid() else {
            return false;
        };
        let mut fd = -1;
        self.name.set(session.to_bytes().len() + 1);
        for number in 0..LOGS_PER_PID {
            // SAFETY: only the starting thread writes the path, and no other thread reads it before READY.
            if !write_path(unsafe { &mut *self.path.get() }, session, pid, number) {
                return false;
            }
            fd = self.open_path(libc::O_RDWR | libc::O_CREAT | libc::O_EXCL | libc::O_CLOEXEC);
            if fd >= 0 || sys::get_errno() != libc::EEXIST {
                break;
            }
        }
        if !LOG.keep(fd) {
            return false;
        }
        let Some(fd) = LOG.get().filter(|&fd| sys::reserve(fd, 0, CONTROL_BYTES)) else {
            return false;
        };
        let control = sys::map_shared_at(self.control.get().cast(), fd, 0, CONTROL_BYTES).cast::<Control>();
        if control.is_null() {
            return false;
        }
        self.control.set(control);
        // SAFETY: the page was just mapped and is zero; no other thread knows it yet.
        unsafe { fill_control(&mut *control, pid, origin) };
        true
    }

    fn open_path(&self, flags: c_int) -> c_int {
        // SAFETY: the path is written by the starting thread before any thread reads it, and ends with a zero byte.
        unsafe { session::open_file(&*self.path.get(), self.name.get(), flags) }
    }

    /// Starts numbering events. The valgrind tool writes the stream of accesses to a file next to the log.
    fn begin_numbers(&'static self) {
        // SAFETY: only the starting thread calls this, after the path was written.
        let mut path = unsafe { *self.path.get() };
        let length = path.iter().position(|&byte| byte == 0).unwrap_or_default();
        let suffix = length.checked_sub(LOG_SUFFIX.len()).and_then(|at| path.get_mut(at..length));
        let Some(suffix) = suffix else {
            return;
        };
        suffix.copy_from_slice(STREAM_SUFFIX.as_bytes());
        if let Ok(path) = CStr::from_bytes_until_nul(&path) {
            // SAFETY: the control page is mapped, and no other code in this process uses the field.
            unsafe { (&raw mut (*self.control.get()).counters).write((&raw const self.counters) as u64) };
            sequence::begin(&self.counters, path);
        }
    }

    /// The log's descriptor. If the program has closed it, the log is reopened.
    fn fd(&self) -> Option<c_int> {
        LOG.get().or_else(|| LOG.keep_again(self.open_path(libc::O_RDWR | libc::O_CLOEXEC)))
    }

    /// Stores in the control page which `malloc` the image uses, for the log's reader.
    pub fn describe_image(&self) {
        let path = real::allocator().unwrap_or_default().to_bytes();
        let kept = path.get(..ALLOCATOR_BYTES).unwrap_or(path);
        let control = self.control.get();
        // SAFETY: the page is mapped, the path fits its field, and no other code in this process uses these fields.
        unsafe {
            (&raw mut (*control).own_malloc).write(u32::from(!real::is_called()));
            (&raw mut (*control).allocator).cast::<u8>().copy_from_nonoverlapping(kept.as_ptr(), kept.len());
            (&raw mut (*control).allocator_bytes).write(kept.len() as u32);
        }
    }

    /// Opens another file of this process next to its log, with another suffix; negative on failure.
    pub fn open_next_to_log(&self, suffix: &str) -> c_int {
        // SAFETY: the path was written before READY and does not change.
        let mut path = unsafe { *self.path.get() };
        let end = path.iter().position(|&byte| byte == 0).unwrap_or(0);
        let start = end.saturating_sub(LOG_SUFFIX.len());
        let Some(place) = path.get_mut(start..start + suffix.len() + 1) else {
            return -1;
        };
        let (name, zero) = place.split_at_mut(suffix.len());
        name.copy_from_slice(suffix.as_bytes());
        zero.fill(0);
        // SAFETY: the path ends with a zero byte.
        unsafe { sys::open(path.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC) }
    }

    /// A number for the next child.
    pub fn number_fork(&self) -> u32 {
        self.forks.fetch_add(1, Ordering::Relaxed)
    }

    /// Offset of the file name in the path of a session's file.
    pub fn name_start(&self) -> usize {
        self.name.get()
    }

    /// Zero-terminated path of another file of this process next to its log, with a number and another suffix.
    pub fn numbered_path(&self, number: u32, suffix: &str) -> Option<[u8; PATH_BYTES]> {
        // SAFETY: the path was written before READY and does not change.
        let mut path = unsafe { *self.path.get() };
        let end = path.iter().position(|&byte| byte == 0)?;
        let mut rest = path.get_mut(end.checked_sub(LOG_SUFFIX.len())?..)?;
        let mut digits = [0; 10];
        for part in [&b"-"[..], decimal(number, &mut digits), suffix.as_bytes(), b"\0"] {
            let (to, after) = rest.split_at_mut_checked(part.len())?;
            to.copy_from_slice(part);
            rest = after;
        }
        Some(path)
    }

    fn control_u32(&self, field: impl FnOnce(*mut Control) -> *mut u32) -> &AtomicU32 {
        // SAFETY: a process that other threads can see has a control page, which is never unmapped; the fields are only
        // accessed atomically.
        unsafe { AtomicU32::from_ptr(field(self.control.get())) }
    }

    fn next_chunk(&self) -> u32 {
        session::count_chunk();
        // SAFETY: takes the address of a field of the mapped page.
        self.control_u32(|control| unsafe { &raw mut (*control).chunks }).fetch_add(1, Ordering::Relaxed)
    }

    /// A number for a new thread.
    pub fn number_thread(&self) -> u32 {
        // SAFETY: takes the address of a field of the mapped page.
        self.control_u32(|control| unsafe { &raw mut (*control).threads }).fetch_add(1, Ordering::Relaxed)
    }

    /// Whether calls are recorded now. Once the recording has ended, no call is recorded until a recorder attaches.
    pub fn goes_on(&self) -> bool {
        let now = clock::ticks();
        if is_check_due(now) {
            CHECK_DUE.store(now + CHECK_TICKS, Ordering::Relaxed);
            if session::recorder_is_gone() {
                session::end();
            }
        }
        if session::has_ended() {
            self.state.store(OFF, Ordering::Release);
            attached::leave();
        }
        session::is_recording()
    }

    /// Counts lost events.
    pub fn count_lost(&self, events: u64) {
        // SAFETY: as in `control_u32`.
        let lost = unsafe { AtomicU64::from_ptr(&raw mut (*self.control.get()).events_lost) };
        lost.fetch_add(events, Ordering::Relaxed);
    }

    /// Whether the last attempt to allocate a chunk failed too recently for this event to try again.
    pub fn waits_to_retry(&self) -> bool {
        self.attempts_pause.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }

    /// Number and mapping of a new chunk, in place of a chunk of an earlier recording at `at`; null for none. `None` if the
    /// log is full or cannot be reached.
    pub fn new_chunk(&self, at: *mut u8) -> Option<(u32, *mut u8)> {
        let chunk = self.map_new_chunk(at).or_else(|| self.reserve.take_chunk(self.window()));
        if chunk.is_none() {
            self.attempts_pause.store(EVENTS_BETWEEN_ATTEMPTS, Ordering::Relaxed);
        }
        chunk
    }

    /// A new thread buffer; null if there is no memory.
    pub fn new_buffer(&self) -> *mut ThreadBuffer {
        let buffer = sys::map_wiped_on_fork(size_of::<ThreadBuffer>()).cast::<ThreadBuffer>();
        if buffer.is_null() { self.reserve.take_buffer() } else { buffer }
    }

    fn window(&self) -> *mut Window {
        // SAFETY: takes the address of a field of the mapped page.
        unsafe { &raw mut (*self.control.get()).window }
    }

    /// Allocates chunks and buffers in advance, if a filter that is about to be installed would forbid it later.
    pub fn prepare_for_filter(&self, allows: impl Fn(&Call) -> bool) {
        let Some(fd) = self.fd() else {
            return;
        };
        if sys::calls_for_chunks(fd).iter().all(allows) {
            return;
        }
        // SAFETY: takes the address of a field of the mapped page.
        let chunks = self.control_u32(|control| unsafe { &raw mut (*control).chunks });
        self.reserve.prefill(fd, self.window(), |count| chunks.fetch_add(count, Ordering::Relaxed));
    }

    fn map_new_chunk(&self, at: *mut u8) -> Option<(u32, *mut u8)> {
        let fd = self.fd()?;
        let number = self.next_chunk();
        let offset = chunk_offset(number);
        if !sys::reserve(fd, offset, CHUNK_BYTES) {
            return None;
        }
        let chunk = sys::map_shared_at(at.cast(), fd, offset, CHUNK_BYTES).cast::<u8>();
        (!chunk.is_null()).then_some((number, chunk))
    }

    /// Writes a copy of a thread buffer's `chunk` as a drained chunk. False on failure; the copy then has no header.
    pub fn write_drained(&self, header: &ChunkHeader, chunk: &[u8]) -> bool {
        self.write_to_file(header, chunk) || self.write_to_reserve(header, chunk)
    }

    fn write_to_file(&self, header: &ChunkHeader, chunk: &[u8]) -> bool {
        let Some(fd) = self.fd() else {
            return false;
        };
        let offset = chunk_offset(self.next_chunk());
        // SAFETY: a header is plain integers without padding.
        let header = unsafe { slice::from_raw_parts((&raw const *header).cast::<u8>(), size_of::<ChunkHeader>()) };
        let rest = chunk.get(header.len()..).unwrap_or_default();
        if sys::write_both_at(fd, header, rest, offset) {
            return true;
        }
        sys::write_all_at(fd, &[0; size_of::<ChunkHeader>()], offset);
        false
    }

    fn write_to_reserve(&self, header: &ChunkHeader, chunk: &[u8]) -> bool {
        let Some((_, drained)) = self.reserve.take_chunk(self.window()) else {
            return false;
        };
        let rest = chunk.get(size_of::<ChunkHeader>()..).unwrap_or_default();
        // SAFETY: the chunk is mapped, CHUNK_BYTES long like a thread buffer's chunk, and only this call uses it. The
        // header is written last, because a chunk counts only once it has a kind.
        unsafe {
            drained.add(size_of::<ChunkHeader>()).copy_from_nonoverlapping(rest.as_ptr(), rest.len());
            let to = drained.cast::<ChunkHeader>();
            to.write(ChunkHeader { kind: 0, ..*header });
            AtomicU32::from_ptr(&raw mut (*to).kind).store(header.kind, Ordering::Release);
        }
        true
    }

    /// Registers a thread buffer whose chunk was just attached.
    pub fn register(&self, buffer: &ThreadBuffer) {
        let buffer_pointer = (&raw const *buffer).cast_mut();
        let _ = self.buffers.fetch_update(Ordering::AcqRel, Ordering::Acquire, |first| {
            buffer.next.set(first);
            Some(buffer_pointer)
        });
    }

    /// Takes the chunks from all thread buffers. Threads that still write to them write to memory that is not read.
    fn retire_buffers(&self) {
        let mut at = self.buffers.load(Ordering::Acquire);
        // SAFETY: registered buffers stay mapped and have a chunk.
        while let Some(buffer) = unsafe { at.as_ref() } {
            buffer.retire();
            at = buffer.next.get();
        }
    }

    /// Counts the buffers of this recording whose owner has ended. Stops at the first buffer, except `own`, whose owner
    /// still runs.
    pub fn count_ended(&self, own: &ThreadBuffer) -> u32 {
        let mut count = 0;
        let mut at = self.buffers.load(Ordering::Acquire);
        // SAFETY: registered buffers stay mapped and have a chunk.
        while let Some(buffer) = unsafe { at.as_ref() } {
            if !core::ptr::eq(buffer, own) && buffer.is_current() {
                if !buffer.has_ended() {
                    return count;
                }
                count += 1;
            }
            at = buffer.next.get();
        }
        count
    }

    /// Takes over a thread buffer whose thread has ended; `None` if there is none.
    pub fn adopt_buffer(&self) -> Option<*mut ThreadBuffer> {
        let mut at = self.buffers.load(Ordering::Acquire);
        // SAFETY: registered buffers stay mapped and have a chunk.
        while let Some(buffer) = unsafe { at.as_ref() } {
            if buffer.adopt(self) {
                return Some(at);
            }
            at = buffer.next.get();
        }
        None
    }
}
