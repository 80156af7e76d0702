//! The buffer of one thread, and how an event is written to it.
//!
//! The frequently used state is in a private page that a forked child finds zeroed. All zero looks like a full buffer,
//! so a child of `fork` or a raw `clone` takes the slow path and gets its own buffer. Records and cursor are in the
//! log's shared mapping, where they survive the process.
//!
//! While a thread works on its buffer, the buffer is *busy*. A signal handler that interrupts this work writes its
//! record to the buffer's nested area. The thread fetches the record from there at its next event.

use core::cell::{Cell, UnsafeCell};
use core::ptr::null_mut;
use core::slice;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, compiler_fence};

use crate::encoding::{self, ESCAPE_WORDS, Kind, RECORD_WORDS, Record, Regions};
use crate::event_log::{
    CHUNK_BUFFER, CHUNK_BYTES, CHUNK_DRAINED, CHUNK_WORDS, ChunkHeader, NESTED_OFFSET, NESTED_RECORDS, WORDS_OFFSET,
    next_fill, words,
};
use crate::process::{self, Process};
use crate::{arch, clock, own_stack, sequence, session, site, sys};

/// The private half of a thread buffer. All zero, as after a fork, means that it has no chunk. The fields that every
/// event uses come first, in one cache line.
#[repr(C, align(64))]
pub struct ThreadBuffer {
    busy: AtomicBool,
    /// Whether this fill already has the record that names its thread.
    names_thread: Cell<bool>,
    /// While fewer words than this are in use, the fast path may write; 0 sends the next event to the slow path. Always
    /// 0 if call sites are recorded, if events are numbered, or if not every event reads the clock.
    limit: AtomicU32,
    /// The buffer's chunk, or null.
    header: Cell<*mut ChunkHeader>,
    /// While fewer words than this are in use, an event reuses the time of the previous event; 0 if each event reads
    /// the clock.
    untimed: AtomicU32,
    /// The session's epoch at the last clock reading, if readings may be reused.
    epoch: Cell<u32>,
    regions: UnsafeCell<Regions>,
    /// While fewer words than this are in use, any record fits; 0 makes the next event check the buffer.
    room: AtomicU32,
    /// Number of the thread in this process.
    thread: Cell<u32>,
    /// Kernel thread id of the owner; other threads read it to find out whether the owner has ended.
    tid: AtomicU32,
    /// 1 + the number of the recording in which the owner has announced itself to the clock; 0 if it has not.
    announced: Cell<u32>,
    /// Whether the owner may not read the clock.
    without_clock: Cell<bool>,
    /// Number of the recording to which the chunk belongs.
    recording: AtomicU32,
    /// The process's next buffer.
    pub next: Cell<*mut ThreadBuffer>,
}

/// Records a call that nearly always fits into one word: a malloc, free or calloc that happens now.
#[inline(always)]
pub fn push_small(kind: Kind, address: u64, size: u64) {
    // SAFETY: the pointer is null or this thread's buffer, which stays mapped as long as the process.
    let buffer = unsafe { arch::buffer().as_ref() };
    if !buffer.is_some_and(|buffer| buffer.push_likely(kind, address, size)) {
        push_other(kind, address, size);
    }
}

/// Slow path of [`push_small`]: a separate function, so that the fast path saves no registers.
#[cold]
#[inline(never)]
fn push_other(kind: Kind, address: u64, size: u64) {
    if !session::is_recording() {
        use_slow_path();
        if session::has_ended() {
            process::note_end();
        }
        return;
    }
    note_epoch();
    push_with_site(&Record::new(kind, clock::ticks(), address, size));
}

/// Notes the epoch of the clock reading that follows.
fn note_epoch() {
    // SAFETY: the pointer is null or this thread's buffer, which stays mapped as long as the process.
    if let Some(buffer) = unsafe { arch::buffer().as_ref() } {
        buffer.epoch.set(session::epoch());
    }
}

/// Sends the calling thread's next events to the slow path, because nothing is recorded now.
fn use_slow_path() {
    // SAFETY: the pointer is null or this thread's buffer, which stays mapped as long as the process.
    if let Some(buffer) = unsafe { arch::buffer().as_ref() } {
        buffer.limit.store(0, Ordering::Relaxed);
        buffer.untimed.store(0, Ordering::Relaxed);
    }
}

/// Records one event of the calling thread.
#[inline(never)]
pub fn push(record: &Record) {
    push_with_site(record);
}

/// Inlined, because the unwinder must walk through each of the recorder's own stack frames.
#[inline(always)]
fn push_with_site(record: &Record) {
    let asks = record.kind.asks_for_memory();
    if asks && site::is_on() {
        let site = site::of_caller();
        push_to_buffer(&Record { site, ..*record });
        if site != 0 {
            return;
        }
    } else {
        push_to_buffer(record);
    }
    if asks && site::is_wanted() && session::is_recording() {
        process::count_site_lost();
    }
}

fn push_to_buffer(record: &Record) {
    // SAFETY: the pointer is null or this thread's buffer, which stays mapped as long as the process.
    match unsafe { arch::buffer().as_ref() } {
        Some(buffer) => buffer.push(record),
        None => begin_thread(record),
    }
}

/// The calling thread's record counter: it changes with every record.
#[cfg(feature = "operators")]
pub fn written() -> u64 {
    // SAFETY: the pointer is null or this thread's buffer, which stays mapped as long as the process.
    let buffer = unsafe { arch::buffer().as_ref() }.filter(|buffer| !buffer.header.get().is_null());
    buffer.map_or(0, |buffer| buffer.cursor() + u64::from(buffer.nested_count().load(Ordering::Relaxed)))
}

/// Whether the calling thread's events are recorded now, without loss.
#[cfg(feature = "operators")]
pub fn is_recording() -> bool {
    session::is_recording() && !process::is_off()
}

/// Whether the record is to be written now. A change of memory policy always is, because it is still in force when
/// recording resumes.
fn counts(record: &Record) -> bool {
    !session::is_stopped() || record.kind == Kind::MemoryPolicy
}

/// Whether the calling thread may not read the clock.
pub fn is_without_clock() -> bool {
    // SAFETY: the pointer is null or this thread's buffer, which stays mapped as long as the process.
    unsafe { arch::buffer().as_ref() }.is_some_and(|buffer| buffer.without_clock.get())
}

/// Announces the calling thread to the clock before its first event. After a fork the child's only thread may have a
/// buffer that has not announced itself in the child.
#[inline(always)]
pub fn announce_thread() {
    // SAFETY: the pointer is null or this thread's buffer, which stays mapped as long as the process.
    if !unsafe { arch::buffer().as_ref() }.is_some_and(ThreadBuffer::is_announced) {
        announce_first();
    }
}

#[cold]
fn announce_first() {
    if process::is_off() || Process::current().is_none() {
        return;
    }
    let buffer = match arch::buffer() {
        buffer if buffer.is_null() => begin_buffer(),
        buffer => buffer,
    };
    // SAFETY: null or this thread's buffer, which stays mapped.
    if let Some(buffer) = unsafe { buffer.as_ref() } {
        buffer.announce();
    }
}

/// Makes the calling thread's events reuse the last time instead of reading the clock.
pub fn do_without_clock() {
    let buffer = match arch::buffer() {
        buffer if buffer.is_null() => begin_buffer(),
        buffer => buffer,
    };
    // SAFETY: null or this thread's buffer, which stays mapped.
    if let Some(buffer) = unsafe { buffer.as_ref() } {
        buffer.without_clock.set(true);
        buffer.limit.store(0, Ordering::Relaxed);
    }
}

/// The first event of a thread.
#[cold]
#[inline(never)]
fn begin_thread(record: &Record) {
    if process::is_off() || !counts(record) {
        return;
    }
    // SAFETY: null, or a thread buffer that now belongs to this thread alone and stays mapped.
    if let Some(buffer) = unsafe { begin_buffer().as_ref() } {
        buffer.push(record);
    }
}

/// Gives the calling thread a buffer. Returns null if there is none; the event then counts as lost.
fn begin_buffer() -> *mut ThreadBuffer {
    // With signals enabled, a signal handler could give this thread a second buffer.
    own_stack::run(|| {
        let Some(process) = Process::current() else {
            return null_mut();
        };
        let buffer = process.adopt_buffer().unwrap_or_else(|| process.new_buffer());
        if buffer.is_null() {
            process.count_lost(1);
        }
        arch::set_buffer(buffer);
        buffer
    })
}

impl ThreadBuffer {
    /// Writes the call as one word; false, without effect, if the call needs the slow path.
    #[inline(always)]
    fn push_likely(&self, kind: Kind, address: u64, size: u64) -> bool {
        if self.busy.load(Ordering::Relaxed) {
            return false;
        }
        self.set_busy(true);
        let header = self.header.get();
        let done = !header.is_null() && self.write_likely(header, kind, address, size);
        self.set_busy(false);
        done
    }

    #[inline(always)]
    fn write_likely(&self, header: *mut ChunkHeader, kind: Kind, address: u64, size: u64) -> bool {
        // SAFETY: the header is in the buffer's mapped chunk. Its cursor's low half holds the words of this fill.
        let published = unsafe { AtomicU32::from_ptr((&raw mut (*header).cursor).cast()) };
        let used = published.load(Ordering::Relaxed);
        // SAFETY: only the owner touches its regions, and only while busy.
        let regions = unsafe { &mut *self.regions.get() };
        let ticks = if used < self.limit.load(Ordering::Relaxed) {
            arch::ticks()
        } else if used < self.untimed.load(Ordering::Relaxed) && clock::is_coarse_since(self.epoch.get()) {
            regions.last_ticks()
        } else {
            return false;
        };
        let Some(word) = regions.compact_likely(kind, ticks, address, size) else {
            return false;
        };
        // SAFETY: `used` is below one of the limits, so the word is in this buffer's chunk.
        unsafe { words_of(header).add(used as usize).write(word) };
        published.store(used + 1, Ordering::Release);
        true
    }

    fn push(&self, record: &Record) {
        if self.busy.load(Ordering::Relaxed) {
            return self.push_nested(record);
        }
        self.set_busy(true);
        let has_room =
            !self.header.get().is_null() && words(self.cursor()) < self.room.load(Ordering::Relaxed) as usize;
        let has_room = has_room && !process::is_check_due(record.ticks);
        // The session's state is checked here and at the end of a fill, but not for compact records. These follow each
        // other within about 3 us, so a thread notices a stop after at most 0.1 s. The reader drops the records that
        // the thread has written since the stop.
        if has_room && session::is_recording() {
            self.append(&sequence::numbered(record));
            self.note_clock_read();
        } else if self.make_room(record) {
            self.append(&sequence::numbered(record));
            self.note_clock_read();
            if record.kind == Kind::MemoryPolicy && session::is_stopped() {
                self.set_room(0); // the next event checks again
            } else {
                // This comes after the record, whose clock reading may be older than the other threads' last events.
                self.try_alone();
            }
        }
        self.set_busy(false);
    }

    /// Sets the flag, with a compiler barrier: a signal handler sees the buffer either busy or consistent.
    #[inline(always)]
    fn set_busy(&self, busy: bool) {
        compiler_fence(Ordering::SeqCst);
        self.busy.store(busy, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
    }

    /// Writes one record; the caller has checked that it fits even as an escape.
    fn append(&self, record: &Record) {
        let mut cursor = self.cursor();
        // SAFETY: only the owner touches its regions, and only while busy.
        let regions = unsafe { &mut *self.regions.get() };
        // SAFETY: the cursor is below the limit, so the next RECORD_WORDS words are in this buffer's chunk.
        unsafe {
            let mut at = words_of(self.header.get()).add(words(cursor));
            if record.site != 0 {
                at.write(encoding::site_word(record.site));
                (at, cursor) = (at.add(1), cursor + 1);
            }
            match regions.compact(record) {
                Some(word) => {
                    at.write(word);
                    cursor += 1;
                }
                None => {
                    at.cast::<[u64; ESCAPE_WORDS]>().write(regions.escape(record));
                    cursor += ESCAPE_WORDS as u64;
                }
            }
        }
        self.set_cursor(cursor);
    }

    /// Lets the next events reuse the clock reading just made, if reuse is on.
    fn note_clock_read(&self) {
        let events = clock::untimed_events();
        if events != 0 {
            let until = words(self.cursor()) as u32 + events;
            self.untimed.store(until.min(self.room.load(Ordering::Relaxed)), Ordering::Relaxed);
        } else if self.limit.load(Ordering::Relaxed) == 0 && self.is_plain() {
            self.limit.store(self.room.load(Ordering::Relaxed), Ordering::Relaxed);
        }
    }

    /// Resumes the reuse of clock readings, from the next reading on, if no other thread is left.
    fn try_alone(&self) {
        let _errno = sys::Errno::save();
        let is_alone = clock::try_alone(|| Process::current().map_or(0, |process| process.count_ended(self)));
        if is_alone {
            self.limit.store(0, Ordering::Relaxed);
            self.untimed.store(0, Ordering::Relaxed);
        }
    }

    /// Whether events have no call site and no number, and each reads the clock.
    fn is_plain(&self) -> bool {
        let is_timed = clock::untimed_events() == 0 && !self.without_clock.get();
        !site::is_wanted() && !sequence::is_on() && is_timed
    }

    /// Sets the number of words that a record may start at.
    fn set_room(&self, room: u32) {
        self.room.store(room, Ordering::Relaxed);
        self.untimed.store(0, Ordering::Relaxed);
        // With a limit of 0 each event takes the slow path, where it gets its site, its number, or the previous time.
        self.limit.store(if self.is_plain() { room } else { 0 }, Ordering::Relaxed);
    }

    /// The cursor of a buffer that has a chunk.
    fn cursor(&self) -> u64 {
        self.published().load(Ordering::Relaxed)
    }

    /// Publishes the cursor: the words before it survive the process.
    fn set_cursor(&self, cursor: u64) {
        self.published().store(cursor, Ordering::Release);
    }

    fn published(&self) -> &AtomicU64 {
        // SAFETY: called only on a thread buffer with a chunk, whose mapping stays.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.header.get()).cursor) }
    }

    /// Prepares the buffer for one more record: attaches a chunk, names the thread, fetches nested records, drains a
    /// full chunk. Signals are blocked meanwhile. If the program's filters forbid that, a handler may write another
    /// nested record at any point. Returns false if no chunk is available; the record then counts as lost.
    #[cold]
    #[inline(never)]
    fn make_room(&self, record: &Record) -> bool {
        if process::is_off() || !counts(record) {
            self.set_room(0);
            return false;
        }
        own_stack::run(|| self.make_room_now(record))
    }

    fn make_room_now(&self, record: &Record) -> bool {
        let Some(process) =
            Process::current().filter(|process| process.goes_on() || session::is_stopped() && counts(record))
        else {
            return false;
        };
        if (self.header.get().is_null() || !self.is_current()) && !self.attach(process) {
            process.count_lost(1);
            return false;
        }
        let waiting = self.nested_count().load(Ordering::Relaxed) != 0;
        let pending = 1 + usize::from(!self.names_thread.get()) + if waiting { NESTED_RECORDS } else { 0 };
        if words(self.cursor()) + 1 + pending * ESCAPE_WORDS > CHUNK_WORDS {
            self.drain(process);
        }
        if !self.names_thread.replace(true) {
            let (address, size) = (u64::from(self.tid.load(Ordering::Relaxed)), u64::from(self.thread.get()));
            self.append(&Record::new(Kind::Thread, record.ticks, address, size));
        }
        if waiting {
            self.fetch_nested(process);
        }
        self.set_room((CHUNK_WORDS - RECORD_WORDS + 1) as u32);
        if self.nested_count().load(Ordering::Relaxed) != 0 {
            self.set_room(0);
        }
        true
    }

    /// Whether the chunk belongs to the present recording.
    pub fn is_current(&self) -> bool {
        self.recording.load(Ordering::Relaxed) == process::recording()
    }

    /// Takes the chunk from the buffer, because its recording has ended. The owner gets another at its next event.
    pub fn retire(&self) {
        let ended_ticks = self.ended().load(Ordering::Acquire);
        sys::replace_by_zeros(self.header.get().cast(), CHUNK_BYTES);
        if ended_ticks != 0 {
            // Another thread can still take over the buffer.
            self.ended().store(ended_ticks, Ordering::Release);
        }
        self.room.store(0, Ordering::Relaxed);
        self.untimed.store(0, Ordering::Relaxed);
        self.limit.store(0, Ordering::Relaxed);
    }

    /// Gives the buffer a chunk of the log, in place of that of an earlier recording; false if none is available.
    fn attach(&self, process: &Process) -> bool {
        if process.waits_to_retry() {
            return false;
        }
        let earlier = self.header.get();
        let Some((number, chunk)) = process.new_chunk(earlier.cast()) else {
            return false;
        };
        // SAFETY: the chunk was just mapped, page-aligned, CHUNK_BYTES long, and only this buffer uses it.
        unsafe {
            let header = chunk.cast::<ChunkHeader>();
            header.write(ChunkHeader {
                kind: CHUNK_BUFFER,
                buffer: number,
                cursor: 0,
                nested: 0,
                unused: 0,
                ended_ticks: 0,
            });
            *self.regions.get() = Regions::new();
            self.header.set(header);
        }
        self.set_cursor(0);
        self.recording.store(process::recording(), Ordering::Relaxed);
        self.take_over(process);
        if earlier.is_null() {
            process.register(self);
        }
        true
    }

    /// Whether the owner has certainly ended.
    pub fn has_ended(&self) -> bool {
        self.ended().load(Ordering::Acquire) != 0 && sys::has_ended(self.tid.load(Ordering::Relaxed))
    }

    /// Makes the calling thread the owner if the present owner has certainly ended. Returns false if the owner may
    /// still run, or if another thread was faster.
    pub fn adopt(&self, process: &Process) -> bool {
        let ended_ticks = self.ended().load(Ordering::Acquire);
        if !self.has_ended() {
            return false;
        }
        // The new owner changes this word first, and no other owner can end at the same tick.
        if self.ended().compare_exchange(ended_ticks, 0, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        self.busy.store(false, Ordering::Relaxed);
        // In the present recording, a chunk of an earlier one has had no thread. The new owner replaces it.
        if self.is_current() {
            clock::thread_replaced();
            self.announced.set(0);
            self.take_over(process);
        }
        true
    }

    #[inline(always)]
    fn is_announced(&self) -> bool {
        self.announced.get() == process::recording() + 1
    }

    fn announce(&self) {
        if self.announced.replace(process::recording() + 1) != process::recording() + 1 {
            clock::thread_begins();
        }
    }

    fn take_over(&self, process: &Process) {
        self.tid.store(sys::tid(), Ordering::Relaxed);
        self.thread.set(process.number_thread());
        self.announce();
        self.names_thread.set(false);
        self.set_room(0);
        process::call_at_thread_end(self);
    }

    /// Notes that the owner is about to end. It may still free blocks afterwards.
    pub fn note_end(&self) {
        if !self.header.get().is_null() {
            self.ended().store(clock::ticks(), Ordering::Relaxed);
        }
    }

    fn ended(&self) -> &AtomicU64 {
        // SAFETY: called only on a thread buffer with a chunk, whose mapping stays.
        unsafe { AtomicU64::from_ptr(&raw mut (*self.header.get()).ended_ticks) }
    }

    fn nested_count(&self) -> &AtomicU32 {
        // SAFETY: called only on a thread buffer with a chunk, whose mapping stays.
        unsafe { AtomicU32::from_ptr(&raw mut (*self.header.get()).nested) }
    }

    /// Copies the fill to a drained chunk of the log and starts the next fill. `event_log.rs` explains the order.
    fn drain(&self, process: &Process) {
        let (cursor, header) = (self.cursor(), self.header.get());
        // SAFETY: the chunk is mapped. A signal handler writes only to the nested area, which the reader of a drained
        // chunk ignores.
        let chunk = unsafe { slice::from_raw_parts(header.cast::<u8>(), CHUNK_BYTES) };
        // SAFETY: as above.
        let header = ChunkHeader { kind: CHUNK_DRAINED, ..unsafe { *header } };
        if !process.write_drained(&header, chunk) {
            // SAFETY: these words of the buffer's own chunk are written.
            let filled = unsafe { slice::from_raw_parts(words_of(self.header.get()), words(cursor)) };
            process.count_lost(encoding::count_calls(filled));
        }
        // SAFETY: only the owner touches its regions, and only while busy.
        unsafe { *self.regions.get() = Regions::new() };
        self.names_thread.set(false);
        self.set_cursor(next_fill(cursor));
    }

    fn nested_at(&self, index: usize) -> *mut [u64; ESCAPE_WORDS] {
        debug_assert!(index < NESTED_RECORDS, "the nested area has that many records");
        // SAFETY: the nested area is in the buffer's chunk.
        unsafe { self.header.get().cast::<u8>().add(NESTED_OFFSET).cast::<[u64; ESCAPE_WORDS]>().add(index) }
    }

    /// Records an event of a signal handler that interrupted this thread's work on the buffer.
    #[cold]
    #[inline(never)]
    fn push_nested(&self, record: &Record) {
        if !session::is_recording() {
            return;
        }
        let _errno = sys::Errno::save();
        if self.header.get().is_null() {
            return process::count_lost_early();
        }
        // Handlers may interrupt each other, so each takes a separate slot.
        let index = self.nested_count().fetch_add(1, Ordering::Relaxed) as usize;
        if index < NESTED_RECORDS {
            // SAFETY: the slot is in the area, and only this call uses it.
            unsafe { self.nested_at(index).write(Regions::new().escape(&sequence::numbered(record))) };
        }
        self.set_room(0);
    }

    /// Moves the nested records into the chunk, which has room for all of them. If handlers write more records
    /// meanwhile, these are moved too. The slots become free only when no new record has arrived.
    fn fetch_nested(&self, process: &Process) {
        let mut moved = 0;
        loop {
            let count = self.nested_count().load(Ordering::Relaxed);
            for index in moved..(count as usize).min(NESTED_RECORDS) {
                // SAFETY: the slot is in the area, and the handler that filled it has ended.
                let words = unsafe { self.nested_at(index).replace([0; ESCAPE_WORDS]) };
                if let Some(nested) = encoding::read_escape(&words) {
                    self.append(&nested);
                }
            }
            moved = (count as usize).min(NESTED_RECORDS);
            if self.nested_count().compare_exchange(count, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return process.count_lost((count as usize).saturating_sub(NESTED_RECORDS) as u64);
            }
        }
    }
}

/// Pointer to the first word of a thread buffer's chunk.
#[inline(always)]
fn words_of(header: *mut ChunkHeader) -> *mut u64 {
    header.wrapping_byte_add(WORDS_OFFSET).cast()
}

const _: () = assert!(size_of::<ThreadBuffer>() <= 4096 && CHUNK_BYTES.is_multiple_of(4096));
const _: () = assert!(align_of::<ThreadBuffer>() <= 4096);
