//! Replays a trace on the allocator in a shared object: `replay_on_object OBJECT.so TRACE.hkt TOUCH WINDOW`.
//! `TOUCH` is `none` or `all`: whether the program writes to its blocks.
//!
//! The object is loaded beside the process's own allocator, so its heaps hold the blocks of the trace and nothing else.
//! Events run in the order of the trace, each on an OS thread of its own trace thread, and the object's clock is that of
//! the trace. So the allocator does exactly what a simulation counts. Before the first event and after every `WINDOW`
//! events [`hksim_window`] is called, where callgrind can be told to write its counts (`--dump-before=hksim_window`).

use std::convert::Infallible;
use std::error::Error;
use std::ffi::{CString, c_int, c_void};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use hksim_engine::{Heaps, Object, TouchRule, perform};
use hksim_trace::event::{AllocCall, Event, Op, ReallocCall, ThreadId};
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;
use libc::size_t;

/// The time of the current event.
static NOW_NS: AtomicU64 = AtomicU64::new(0);

/// The clock of the loaded object: executables come before the C library in the order in which symbols are searched.
///
/// # Safety
/// `time` is valid to write to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clock_gettime(_clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
    let now_ns = NOW_NS.load(Ordering::Relaxed);
    let now = libc::timespec { tv_sec: (now_ns / 1_000_000_000) as i64, tv_nsec: (now_ns % 1_000_000_000) as i64 };
    // SAFETY: the caller's promise.
    unsafe { time.write(now) };
    0
}

/// Marks the end of a window for callgrind.
#[unsafe(no_mangle)]
#[inline(never)]
pub extern "C" fn hksim_window() {
    std::hint::black_box(NOW_NS.load(Ordering::Relaxed));
}

/// The functions of the object.
#[derive(Clone, Copy)]
struct Loaded {
    malloc: unsafe extern "C" fn(size_t) -> *mut c_void,
    calloc: unsafe extern "C" fn(size_t, size_t) -> *mut c_void,
    realloc: unsafe extern "C" fn(*mut c_void, size_t) -> *mut c_void,
    reallocarray: unsafe extern "C" fn(*mut c_void, size_t, size_t) -> *mut c_void,
    posix_memalign: unsafe extern "C" fn(*mut *mut c_void, size_t, size_t) -> c_int,
    aligned_alloc: unsafe extern "C" fn(size_t, size_t) -> *mut c_void,
    memalign: unsafe extern "C" fn(size_t, size_t) -> *mut c_void,
    valloc: unsafe extern "C" fn(size_t) -> *mut c_void,
    pvalloc: unsafe extern "C" fn(size_t) -> *mut c_void,
    free: unsafe extern "C" fn(*mut c_void),
    malloc_usable_size: unsafe extern "C" fn(*mut c_void) -> size_t,
}

impl Loaded {
    fn open(object: &str) -> Result<Loaded, Box<dyn Error>> {
        let name = CString::new(object)?;
        // SAFETY: the allocator's constructors have no preconditions.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if handle.is_null() {
            return Err(format!("{object}: cannot be loaded").into());
        }
        /// Looks a function up by the name of its field.
        macro_rules! functions {
            ($($name:ident),*) => {
                Loaded { $($name: {
                    let name = concat!(stringify!($name), "\0").as_ptr();
                    // SAFETY: the handle is open, and the name ends with a zero byte.
                    let function = unsafe { libc::dlsym(handle, name.cast()) };
                    if function.is_null() {
                        return Err(format!("{object}: no function {}", stringify!($name)).into());
                    }
                    // SAFETY: the C library's header declares the function with this type.
                    unsafe { std::mem::transmute::<*mut c_void, _>(function) }
                }),* }
            };
        }
        Ok(functions!(
            malloc, calloc, realloc, reallocarray, posix_memalign, aligned_alloc, memalign, valloc, pvalloc, free,
            malloc_usable_size
        ))
    }
}

/// The address of a block; `None` if the request failed.
fn address(block: *mut c_void) -> Option<usize> {
    (!block.is_null()).then_some(block as usize)
}

impl Heaps for Loaded {
    type Place = usize;
    type Heap = ();

    fn open_heap(&self, _thread: ThreadId) -> Option<()> {
        Some(())
    }

    fn close_heap(&self, _heap: ()) {}

    fn set_now(&self, now_ns: u64) {
        NOW_NS.store(now_ns, Ordering::Relaxed);
    }

    fn allocate(&self, _heap: &mut (), call: AllocCall, bytes: u64, align_log2: u8) -> Option<usize> {
        let (bytes, align) = (bytes as size_t, 1usize << align_log2);
        // SAFETY: allocating functions have no preconditions.
        address(unsafe {
            match call {
                AllocCall::Malloc => (self.malloc)(bytes),
                AllocCall::Calloc => (self.calloc)(1, bytes),
                AllocCall::Realloc => (self.realloc)(std::ptr::null_mut(), bytes),
                AllocCall::Reallocarray => (self.reallocarray)(std::ptr::null_mut(), 1, bytes),
                AllocCall::PosixMemalign => {
                    let mut block = std::ptr::null_mut();
                    (self.posix_memalign)(&mut block, align, bytes);
                    block
                }
                AllocCall::AlignedAlloc => (self.aligned_alloc)(align, bytes),
                AllocCall::Memalign => (self.memalign)(align, bytes),
                AllocCall::Valloc => (self.valloc)(bytes),
                AllocCall::Pvalloc => (self.pvalloc)(bytes),
            }
        })
    }

    fn resize(&self, _heap: &mut (), place: usize, bytes: u64, call: ReallocCall) -> Option<usize> {
        let (block, bytes) = (place as *mut c_void, bytes as size_t);
        // SAFETY: a live block of the object.
        address(unsafe {
            match call {
                ReallocCall::Realloc => (self.realloc)(block, bytes),
                ReallocCall::Reallocarray => (self.reallocarray)(block, 1, bytes),
            }
        })
    }

    fn free(&self, _heap: &mut (), place: usize) {
        // SAFETY: a live block of the object, not used afterwards.
        unsafe { (self.free)(place as *mut c_void) };
    }

    fn free_by_resize(&self, heap: &mut (), place: usize, call: ReallocCall) {
        self.resize(heap, place, 0, call);
    }

    fn usable_bytes(&self, place: usize) -> u64 {
        // SAFETY: a live block of the object.
        unsafe { (self.malloc_usable_size)(place as *mut c_void) as u64 }
    }

    fn address(&self, place: usize) -> u64 {
        place as u64
    }

    fn identity(&self, place: usize) -> u64 {
        place as u64
    }

    fn read(&self, place: usize, offset: u64, bytes: u64) {
        for at in offset..offset + bytes {
            // SAFETY: the block holds the byte.
            unsafe { (place as *const u8).add(at as usize).read_volatile() };
        }
    }

    fn write(&self, place: usize, offset: u64, bytes: u64) {
        // SAFETY: the block holds the bytes.
        unsafe { (place as *mut u8).add(offset as usize).write_bytes(0xA5, bytes as usize) };
    }
}

/// How the trace is replayed.
#[derive(Clone, Copy)]
struct Rules {
    touch: TouchRule,
    window: u64,
}

/// What the threads share, in turn.
struct Shared {
    objects: Vec<Object<usize>>,
    done: u64,
}

impl Shared {
    fn finish_event(&mut self, window: u64) {
        self.done += 1;
        if self.done.is_multiple_of(window) {
            hksim_window();
        }
    }
}

/// Events of one thread.
type Turn = (Shared, Vec<Event>);

/// The thread of a trace thread.
struct Worker {
    turns: Sender<Turn>,
    thread: JoinHandle<()>,
}

impl Worker {
    fn start(loaded: Loaded, rules: Rules, returns: Sender<Shared>) -> Worker {
        let (turns, given) = channel();
        Worker { turns, thread: std::thread::spawn(move || work(loaded, rules, &given, &returns)) }
    }
}

fn work(loaded: Loaded, rules: Rules, turns: &Receiver<Turn>, returns: &Sender<Shared>) {
    while let Ok((mut shared, events)) = turns.recv() {
        for event in events {
            loaded.set_now(event.time_ns);
            let (mut heap, objects) = ((), &mut shared.objects);
            // A request that fails here fails in the simulation, too.
            let _: Result<_, Infallible> = perform(
                &loaded,
                || Ok(&mut heap),
                |id| &mut objects[id.0 as usize],
                &event.op,
                rules.touch,
                &mut (),
            );
            shared.finish_event(rules.window);
        }
        if returns.send(shared).is_err() {
            return;
        }
    }
}

fn is_exit(event: &Event) -> bool {
    matches!(event.op, Op::ThreadExit)
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [object, trace, touch, window] = arguments.as_slice() else {
        return Err("usage: replay_on_object OBJECT.so TRACE.hkt none|all WINDOW".into());
    };
    let touch = if touch == "all" { TouchRule::All } else { TouchRule::None };
    let rules = Rules { touch, window: window.parse::<u64>()?.max(1) };
    let loaded = Loaded::open(object)?;
    let mut source = TraceReader::open(Path::new(trace))?;
    let summary = *source.summary();
    let mut workers: Vec<Option<Worker>> = (0..summary.threads).map(|_| None).collect();
    let (returns, returned) = channel();
    let mut shared = Shared { objects: vec![Object::DEAD; summary.objects_peak as usize], done: 0 };
    hksim_window();
    while let Some(batch) = source.next_batch()? {
        for run in batch.chunk_by(|one, next| one.thread == next.thread && !is_exit(one) && !is_exit(next)) {
            let worker = &mut workers[run[0].thread.0 as usize];
            if is_exit(&run[0]) {
                loaded.set_now(run[0].time_ns);
                if let Some(Worker { turns, thread }) = worker.take() {
                    drop(turns);
                    thread.join().map_err(|_| "a thread panicked")?;
                }
                shared.finish_event(rules.window);
                continue;
            }
            let worker = worker.get_or_insert_with(|| Worker::start(loaded, rules, returns.clone()));
            worker.turns.send((shared, run.to_vec()))?;
            shared = returned.recv()?;
        }
    }
    if !shared.done.is_multiple_of(rules.window) {
        hksim_window();
    }
    // The threads of the trace that have not ended do not end now, either.
    std::process::exit(0)
}
