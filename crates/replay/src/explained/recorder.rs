//! The child's recorder: traps, system calls and blocks, in order. It allocates nothing while the window is open.

use std::cell::UnsafeCell;
use std::io;
use std::os::fd::OwnedFd;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use hksim_linux_probe::maps::Maps;
use hksim_linux_probe::pagemap::PageMap;
use hksim_linux_probe::resident::Resident;
use hksim_linux_probe::trap_samples::{TrapSample, TrapSamples};
use hksim_linux_probe::traps::Mode;
use hksim_policy::{HUGE_PAGE_BYTES, PAGE_BYTES};
use libc::c_long;

use super::code::AllocatorCode;
use super::intercept::{self, Intercepted};
use super::record::{CallRecord, Moment, PresentRun, WORDS, WORDS_MAX, When, Words};
use crate::environment;
use crate::protocol::send_log;
use crate::spec::HugePages;

/// Words of the buffer.
const BUFFER_WORDS: usize = 64 << 10;
const HUGE_PAGES: u64 = HUGE_PAGE_BYTES / PAGE_BYTES;

/// What the replay does: the moment, and the event above it.
static NOW: AtomicU64 = AtomicU64::new(0);

/// The recorder of this process, for calls that are intercepted.
static CURRENT: AtomicPtr<Shared> = AtomicPtr::new(ptr::null_mut());

/// Notes the event that is performed from now on.
#[inline]
pub(super) fn begin_event(event: u64) {
    NOW.store(event << 8, Ordering::Relaxed);
}

/// Notes what is done for the event.
#[inline]
pub(super) fn begin(moment: Moment) {
    NOW.store(NOW.load(Ordering::Relaxed) & !0xff | moment as u64, Ordering::Relaxed);
}

fn now() -> When {
    let now = NOW.load(Ordering::Relaxed);
    let moment = match now & 0xff {
        1 => Moment::Call,
        2 => Moment::Touch,
        _ => Moment::Replay,
    };
    When { event: now >> 8, moment }
}

/// The sizes of pages that a fault can install.
enum Sizes {
    /// Those of 4 KiB and of 2 MiB.
    BaseAndHuge(PageMap),
    /// Folios between them too.
    Folios(PageMap),
    /// The kernel cannot tell (before Linux 6.7).
    Unknown,
}

/// Records, behind a lock: threads of the library make calls too.
#[derive(Clone, Copy)]
pub(super) struct Recorder(&'static Shared);

struct Shared {
    lock: AtomicBool,
    state: UnsafeCell<State>,
}

// SAFETY: only the holder of the lock uses the state.
unsafe impl Sync for Shared {}

struct State {
    out: OwnedFd,
    buffer: Resident<u64>,
    used: usize,
    samples: TrapSamples,
    sizes: Sizes,
    code: AllocatorCode,
    huge: HugePages,
    thread: libc::pid_t,
    /// The end of the heap of brk.
    heap_end: u64,
    /// The first error of the channel, after which nothing is recorded.
    failure: Option<io::Error>,
    capacity: u64,
}

/// What the recorder knows at the end.
pub(super) struct Ended {
    pub(super) traps: u64,
    pub(super) traps_lost: u64,
    pub(super) mode: Mode,
    pub(super) knows_sizes: bool,
}

impl Recorder {
    /// A recorder of the calling thread, which writes to `out`. It never ends, because library threads may use it.
    pub(super) fn open(out: OwnedFd, huge: HugePages, samples: TrapSamples) -> io::Result<Recorder> {
        let maps = Maps::read()?;
        let sizes = match PageMap::open() {
            Ok(map) if environment::folio_pages().is_empty() => Sizes::BaseAndHuge(map),
            Ok(map) => Sizes::Folios(map),
            Err(_) => Sizes::Unknown,
        };
        let state = State {
            out,
            buffer: Resident::zeroed(BUFFER_WORDS)?,
            used: 0,
            capacity: samples.capacity() as u64,
            samples,
            sizes,
            code: AllocatorCode::find(&maps),
            huge,
            // SAFETY: returns a number.
            thread: unsafe { libc::gettid() },
            // SAFETY: asks for the end of the heap.
            heap_end: unsafe { libc::sbrk(0) }.addr() as u64,
            failure: None,
        };
        let shared: &'static Shared =
            Box::leak(Box::new(Shared { lock: AtomicBool::new(false), state: UnsafeCell::new(state) }));
        Ok(Recorder(shared))
    }

    /// Pages that may fault between two calls of [`drain`](Recorder::drain).
    pub(super) fn capacity(self) -> u64 {
        self.locked(|state| state.capacity)
    }

    /// Records the mappings, advises those of the allocator if huge pages are asked for, and intercepts calls from now
    /// on.
    pub(super) fn begin(self) -> io::Result<()> {
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        self.locked(|state| {
            state.push(Words::maps(maps.len()).as_slice());
            for chunk in maps.as_bytes().chunks(8) {
                let mut word = [0; 8];
                word[..chunk.len()].copy_from_slice(chunk);
                state.push(&[u64::from_ne_bytes(word)]);
            }
            state.push_present(&maps);
        });
        if self.locked(|state| state.huge) == HugePages::Advised {
            super::advice::advise_existing()?;
        }
        CURRENT.store(ptr::from_ref(self.0).cast_mut(), Ordering::Release);
        intercept::intercept(on_call)?;
        self.locked(|state| state.samples.counter().enable());
        Ok(())
    }

    /// Records the traps since the last call.
    #[inline]
    pub(super) fn drain(self) {
        self.locked(|state| {
            if !state.samples.is_empty() {
                state.drain(now());
            }
        });
    }

    /// Records where the block of an event is; 0 if there is none.
    #[inline]
    pub(super) fn placed(self, address: u64) {
        self.locked(|state| state.push(Words::placed(now().event, address).as_slice()));
    }

    /// Ends the recording: no trap is counted from now on.
    pub(super) fn end(self) -> io::Result<Ended> {
        begin(Moment::Replay);
        self.locked(|state| {
            state.samples.counter().disable();
            state.drain(now());
            state.flush();
            let (traps, traps_lost) = (state.samples.counter().count(), state.samples.lost());
            let knows_sizes = !matches!(state.sizes, Sizes::Unknown);
            match state.failure.take() {
                Some(why) => Err(why),
                None => Ok(Ended { traps, traps_lost, mode: state.samples.mode(), knows_sizes }),
            }
        })
    }

    /// The thread that holds the lock makes no call that is intercepted, so it never waits for itself.
    #[inline]
    fn locked<T>(self, work: impl FnOnce(&mut State) -> T) -> T {
        let Shared { lock, state } = self.0;
        while lock.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            // SAFETY: lets another thread run.
            unsafe { libc::sched_yield() };
        }
        // SAFETY: the lock is held.
        let done = work(unsafe { &mut *state.get() });
        lock.store(false, Ordering::Release);
        done
    }
}

/// Performs an intercepted call.
fn on_call(call: &Intercepted) -> c_long {
    // SAFETY: set before calls are intercepted, to a value that is never freed.
    let shared = unsafe { &*CURRENT.load(Ordering::Acquire) };
    Recorder(shared).locked(|state| state.perform(call))
}

/// Faults that the kernel has charged to the calling thread.
pub(super) fn thread_faults() -> u64 {
    // SAFETY: `rusage` is valid when zeroed, and the kernel only writes to it.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage.ru_minflt as u64
    }
}

impl State {
    fn push(&mut self, words: &[u64]) {
        if self.used + words.len() > BUFFER_WORDS {
            self.flush();
        }
        self.buffer[self.used..self.used + words.len()].copy_from_slice(words);
        self.used += words.len();
    }

    fn flush(&mut self) {
        let used = std::mem::take(&mut self.used);
        if self.failure.is_none() && used > 0 {
            self.failure = send_log(&self.out, &self.buffer[..used]).err();
        }
    }

    /// Records the pages of the mappings that are not files.
    fn push_present(&mut self, maps: &str) {
        let lines = maps.lines().filter_map(|line| line.split_once(' ')?.0.split_once('-'));
        for (start, end) in lines {
            let page = |text| u64::from_str_radix(text, 16).map(|address| address / PAGE_BYTES);
            let (Ok(start), Ok(end)) = (page(start), page(end)) else { continue };
            let mut at = start;
            while at < end {
                // A record of each run; the buffer may be sent between two of them.
                let (Sizes::BaseAndHuge(map) | Sizes::Folios(map)) = &mut self.sizes else { return };
                let Some(run) = map.scan(at, end).next() else { break };
                at = run.end_page;
                self.push(Words::present(run.first_page, run.end_page - run.first_page).as_slice());
            }
        }
    }

    fn drain(&mut self, when: When) {
        while let Some(sample) = self.samples.take() {
            let place = self.code.place(sample.instruction, sample.stack);
            let words = if when.moment == Moment::Call { words_at(sample.address) } else { [0; WORDS] };
            let present = self.present(&sample);
            self.push(Words::trap(when, &sample, &place, &words, present).as_slice());
        }
    }

    /// What is present around a trap.
    fn present(&mut self, sample: &TrapSample) -> PresentRun {
        let page = sample.address / PAGE_BYTES;
        let range = page / HUGE_PAGES * HUGE_PAGES..(page / HUGE_PAGES + 1) * HUGE_PAGES;
        let (map, searched) = match &mut self.sizes {
            Sizes::Unknown => return PresentRun::default(),
            Sizes::BaseAndHuge(map) => (map, page..page + 1),
            Sizes::Folios(map) => (map, range.clone()),
        };
        let found = map.scan(searched.start, searched.end).find(|run| (run.first_page..run.end_page).contains(&page));
        match found {
            Some(run) if run.is_huge => PresentRun { first_page: range.start, pages: HUGE_PAGES, is_huge: true },
            Some(run) => {
                PresentRun { first_page: run.first_page, pages: run.end_page - run.first_page, is_huge: false }
            }
            // Gone again already.
            None => PresentRun { first_page: page, pages: 1, is_huge: false },
        }
    }

    /// Makes a call, and records it after the traps before it.
    fn perform(&mut self, call: &Intercepted) -> c_long {
        let when = now();
        // SAFETY: returns a number.
        let is_of_replay_thread = unsafe { libc::gettid() } == self.thread;
        if is_of_replay_thread {
            self.drain(when);
        }
        let before = thread_faults();
        // SAFETY: the call that the interrupted code makes.
        let result = unsafe { intercept::call(call.number, call.arguments) };
        let faults = thread_faults() - before;
        let heap_before = self.heap_end;
        if call.number == libc::SYS_brk && result > 0 {
            self.heap_end = result as u64;
        }
        if self.huge == HugePages::Advised {
            super::advice::advise_result(call, result, heap_before);
        }
        let [a, b, c, d, e, _] = call.arguments;
        let record = CallRecord {
            when,
            is_of_replay_thread,
            number: call.number,
            arguments: [a, b, c, d, e],
            result,
            faults,
            huge_pages: if faults > 0 { self.huge_pages(call, result) } else { 0 },
            place: match is_of_replay_thread {
                true => self.code.place(call.instruction, self.code.stack_words(call.stack_pointer)),
                // The end of another thread's stack is not known.
                false => self.code.place(call.instruction, []),
            },
        };
        self.push(Words::call(&record).as_slice());
        result
    }

    /// The huge pages of the range that a call populated.
    fn huge_pages(&mut self, call: &Intercepted, result: c_long) -> u64 {
        let (Sizes::BaseAndHuge(map) | Sizes::Folios(map)) = &mut self.sizes else { return 0 };
        let start = if call.number == libc::SYS_mmap { result as u64 } else { call.arguments[0] };
        let end = start.saturating_add(call.arguments[1]).div_ceil(PAGE_BYTES);
        let huge = map.scan(start / PAGE_BYTES, end).filter(|run| run.is_huge);
        huge.map(|run| (run.end_page - run.first_page).div_ceil(HUGE_PAGES)).sum()
    }
}

/// The words of a page from an address on; zeros after its end, and if it is not mapped any more.
fn words_at(address: u64) -> [u64; WORDS] {
    let start = address & !7;
    let bytes = (PAGE_BYTES - start % PAGE_BYTES).min(8 * WORDS as u64) as usize;
    let mut words = [0u64; WORDS];
    let local = libc::iovec { iov_base: words.as_mut_ptr().cast(), iov_len: bytes };
    let remote = libc::iovec { iov_base: start as *mut libc::c_void, iov_len: bytes };
    // SAFETY: the kernel writes at most `bytes` bytes to `words`, and copies nothing from where nothing is mapped.
    unsafe { libc::process_vm_readv(libc::getpid(), &raw const local, 1, &raw const remote, 1, 0) };
    words
}

const _: () = assert!(WORDS_MAX < BUFFER_WORDS);
