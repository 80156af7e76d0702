//! Statistics at exit, on request. They are formatted without allocating and written with one call.

use std::ffi::CStr;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicI32, Ordering};

use hksim_policy::Memory;
use hksim_policy::stats::{ClassStats, HeapStats};

use super::fork::HEAPS_LOST;
use super::invalid_free::IGNORED;
use super::memory_policy::{locked_bytes, thp_disable, thp_disable_text};
use super::process_allocator::{CONFIGURED, CONSTANT, ProcessAllocator, ProcessGeometry};
use super::start::{AllocatorKind, started, variable};
use crate::call_counts::{CALLS, KINDS};

/// The environment variable that requests statistics: `text` or `json`, optionally followed by `:FILE` to append to a
/// file.
pub const STATISTICS_VARIABLE: &CStr = c"HKSIM_NATIVE_STATS";

/// The environment variable with the version that JSON statistics state. Without it they state this crate's.
pub const VERSION_VARIABLE: &CStr = c"HKSIM_NATIVE_VERSION";

/// The copy of standard error gets a descriptor from here on, which few programs use.
const DESCRIPTOR_MIN: libc::c_int = 900;
/// Schema version of the JSON form, that of every JSON result of hksim.
const SCHEMA: u32 = 2;
const STANDARD_ERROR: libc::c_int = 2;
/// Bytes that every output fits into.
const BLOCK_BYTES: usize = 16 << 10;

/// A copy of standard error, made at start, because many programs close standard error before they exit.
static STANDARD_ERROR_AT_START: AtomicI32 = AtomicI32::new(STANDARD_ERROR);

/// The format of the statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Text for people.
    Text,
    /// One line of JSON.
    Json,
}

impl Form {
    /// Parses a request: the format, and the file if the request names one.
    pub fn read(request: &str) -> Option<(Form, Option<&str>)> {
        let (form, file) = match request.split_once(':') {
            Some((form, file)) => (form, Some(file)),
            None => (request, None),
        };
        match (form, file) {
            (_, Some("")) => None,
            ("text", file) => Some((Form::Text, file)),
            ("json", file) => Some((Form::Json, file)),
            _ => None,
        }
    }
}

fn requested() -> Option<(Form, Option<&'static CStr>)> {
    let request = variable(STATISTICS_VARIABLE)?;
    let (form, file) = Form::read(request.to_str().ok()?)?;
    // The file name ends where the variable ends, with a zero byte.
    let file = file.and_then(|_| {
        let colon = request.to_bytes().iter().position(|&byte| byte == b':')?;
        CStr::from_bytes_with_nul(&request.to_bytes_with_nul()[colon + 1..]).ok()
    });
    Some((form, file))
}

/// The version to state. A value that is no version could end the JSON text.
fn version() -> &'static str {
    let is_version = |text: &&str| text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".+-".contains(&byte));
    let given = variable(VERSION_VARIABLE).and_then(|text| text.to_str().ok());
    given.filter(is_version).unwrap_or(env!("CARGO_PKG_VERSION"))
}

extern "C" fn at_load() {
    if let Some((_, None)) = requested() {
        // SAFETY: touches no memory. If it fails, the original descriptor is used.
        let copy = unsafe { libc::fcntl(STANDARD_ERROR, libc::F_DUPFD_CLOEXEC, DESCRIPTOR_MIN) };
        if copy >= 0 {
            STANDARD_ERROR_AT_START.store(copy, Ordering::Relaxed);
        }
    }
}

extern "C" fn at_exit() {
    if let Some((form, file)) = requested() {
        write(form, file);
    }
}

/// Writes the current statistics to standard error, as text.
pub fn write_statistics() {
    write(Form::Text, None);
}

fn write(form: Form, file: Option<&CStr>) {
    let mut block = Block { bytes: [0; BLOCK_BYTES], used: 0 };
    let written = match started() {
        Some(AllocatorKind::Constant) => Report::of(&CONSTANT, "constant").write(form, &mut block),
        Some(AllocatorKind::Configured) => Report::of(&CONFIGURED, "run-time").write(form, &mut block),
        None => return,
    };
    if written.is_ok() {
        block.put(file);
    }
}

#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = at_load;

#[cfg(not(miri))]
#[used]
#[unsafe(link_section = ".fini_array")]
static AT_EXIT: extern "C" fn() = at_exit;

/// A text buffer, stored inline.
struct Block {
    bytes: [u8; BLOCK_BYTES],
    used: usize,
}

impl Write for Block {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = self.bytes.get_mut(self.used..self.used + text.len()).ok_or(fmt::Error)?;
        room.copy_from_slice(text.as_bytes());
        self.used += text.len();
        Ok(())
    }
}

impl Block {
    /// Appends the text to a file, or writes it to standard error. Errors cannot be reported anywhere.
    fn put(&self, file: Option<&CStr>) {
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        // SAFETY: the path is a C string, the buffer has `used` bytes, and an opened descriptor is closed.
        unsafe {
            match file {
                Some(path) => {
                    let opened = libc::open(path.as_ptr(), flags, 0o644);
                    libc::write(opened, self.bytes.as_ptr().cast(), self.used);
                    libc::close(opened);
                }
                None => {
                    let error = STANDARD_ERROR_AT_START.load(Ordering::Relaxed);
                    libc::write(error, self.bytes.as_ptr().cast(), self.used);
                }
            }
        }
    }
}

/// The statistics, except for the system calls, which are in [`CALLS`].
struct Report {
    geometry: &'static str,
    superslab_bytes: u64,
    slab_bytes: u64,
    numbers: [(&'static str, u64); 23],
    stats: HeapStats,
    strides: [u32; hksim_policy::classes::CLASSES_MAX],
}

impl Report {
    fn of<G: ProcessGeometry>(process_allocator: &'static ProcessAllocator<G>, geometry: &'static str) -> Report {
        let allocator = process_allocator.allocator();
        let mut stats = HeapStats::new();
        let own = process_allocator.heap();
        if let Some(heap) = own {
            // SAFETY: the calling thread's own heap.
            allocator.add_heap_stats(unsafe { heap.as_ref() }, &mut stats);
        }
        allocator.add_abandoned_stats(&mut stats);
        let common_calls = process_allocator.common().calls;
        let guard = allocator.mem.lock();
        let pool = allocator.mem.pool();
        let heaps = (0..allocator.mem.heaps()).filter(|&heap| allocator.is_open(heap)).count();
        let numbers = [
            ("arena_bytes", allocator.mem.arena_bytes() as u64),
            ("superslabs", u64::from(pool.superslabs.get())),
            ("superslabs_of_huge_blocks", u64::from(pool.huge_superslabs.get())),
            ("superslabs_peak", u64::from(pool.superslabs_peak.get())),
            ("superslabs_idle", u64::from(pool.idle.count.get())),
            ("superslabs_abandoned", u64::from(pool.abandoned.count.get())),
            ("superslabs_from_cache", pool.taken_idle.get()),
            ("superslabs_new", pool.taken_free.get()),
            ("huge_blocks_from_cache", pool.huge_taken_idle.get()),
            ("huge_blocks_new", pool.huge_taken_free.get()),
            ("huge_cache_runs", u64::from(pool.huge_idle.count.get())),
            ("huge_cache_bytes", pool.huge_idle_bytes.get()),
            ("fallbacks_to_thp", u64::from(pool.fallbacks_to_thp.get())),
            ("fallbacks_to_4k", u64::from(pool.fallbacks_to_4k.get())),
            ("superslabs_lost", u64::from(pool.lost_superslabs.get())),
            ("heaps_max", u64::from(allocator.mem.heaps())),
            ("heaps_open", heaps as u64),
            ("shared_heap_calls", common_calls),
            ("heaps_not_counted", (heaps - usize::from(own.is_some())) as u64),
            ("heaps_lost_in_fork", u64::from(HEAPS_LOST.load(Ordering::Relaxed))),
            ("invalid_frees_ignored", IGNORED.load(Ordering::Relaxed)),
            ("thp_disable", thp_disable()),
            ("locked_bytes", locked_bytes()),
        ];
        drop(guard);
        let classes = allocator.geometry.classes();
        let stride = |class| if class < classes.count() { classes.stride(class) } else { 0 };
        Report {
            geometry,
            superslab_bytes: 1 << allocator.geometry.superslab_shift(),
            slab_bytes: 1 << allocator.geometry.slice_shift(),
            numbers,
            stats,
            strides: std::array::from_fn(stride),
        }
    }

    fn write(&self, form: Form, out: &mut impl Write) -> fmt::Result {
        match form {
            Form::Text => self.text(out),
            Form::Json => self.json(out),
        }
    }

    /// Classes that are not empty, with their stride.
    fn classes(&self) -> impl Iterator<Item = (u32, &ClassStats)> {
        let class_stats = self.strides.iter().copied().zip(&self.stats.classes);
        class_stats.filter(|(_, class_stats)| **class_stats != ClassStats::default())
    }

    fn text(&self, out: &mut impl Write) -> fmt::Result {
        // SAFETY: has no precondition.
        writeln!(out, "hksim: statistics of process {}", unsafe { libc::getpid() })?;
        let (superslab, slab) = (self.superslab_bytes >> 10, self.slab_bytes >> 10);
        writeln!(out, "  {} geometry, SuperSlabs of {superslab} KiB, slabs of {slab} KiB", self.geometry)?;
        for (name, count) in KINDS.iter().zip(&CALLS) {
            let (ok, failed) = (count.ok.load(Ordering::Relaxed), count.failed.load(Ordering::Relaxed));
            if ok + failed > 0 {
                writeln!(out, "  {name:<24} {ok:>12} ok {failed:>8} failed")?;
            }
        }
        for (name, value) in self.numbers {
            writeln!(out, "  {name:<24} {value:>12}")?;
        }
        if let Some(words) = thp_disable_text(thp_disable()) {
            writeln!(out, "  {words}")?;
        }
        for (stride, ClassStats { slabs, carved, live, .. }) in self.classes() {
            writeln!(out, "  class of {stride:>6} bytes    {slabs:>12} slabs {live:>10} live of {carved} blocks")?;
        }
        let ClassStats { slabs, .. } = self.stats.large;
        writeln!(out, "  large blocks             {slabs:>12}")
    }

    fn json(&self, out: &mut impl Write) -> fmt::Result {
        write!(out, "{{\"schema\":{SCHEMA},\"hksim_version\":\"{}\"", version())?;
        // SAFETY: has no precondition.
        write!(out, ",\"pid\":{},\"geometry\":\"{}\"", unsafe { libc::getpid() }, self.geometry)?;
        write!(out, ",\"superslab_bytes\":{},\"slab_bytes\":{}", self.superslab_bytes, self.slab_bytes)?;
        for (index, (name, count)) in KINDS.iter().zip(&CALLS).enumerate() {
            let comma = if index == 0 { ",\"os_calls\":{" } else { "," };
            let (ok, failed) = (count.ok.load(Ordering::Relaxed), count.failed.load(Ordering::Relaxed));
            write!(out, "{comma}\"{name}\":{{\"ok\":{ok},\"failed\":{failed}}}")?;
        }
        write!(out, "}}")?;
        for (name, value) in self.numbers {
            write!(out, ",\"{name}\":{value}")?;
        }
        write!(out, ",\"large_blocks\":{},\"classes\":[", self.stats.large.slabs)?;
        for (index, (stride, ClassStats { slabs, carved, live, .. })) in self.classes().enumerate() {
            let comma = if index == 0 { "" } else { "," };
            write!(out, "{comma}{{\"block_bytes\":{stride},\"slabs\":{slabs}")?;
            write!(out, ",\"carved_blocks\":{carved},\"live_blocks\":{live}}}")?;
        }
        writeln!(out, "]}}")
    }
}
