//! Call sites: each distinct stack of a call that requests memory is stored once in the log. Its place in the log
//! identifies it.

use core::mem::offset_of;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

use hksim_linux_probe::PAGE_BYTES;
use libc::c_long;

use crate::cache::{Cache, mix};
use crate::event_log::{CHUNK_BYTES, ChunkHeader};
use crate::modules::{self, Module};
use crate::process::Process;
use crate::stacks::{
    BUILD_ID_BYTES, CHUNK_SITES, DEPTH_MAX, FIRST_WORD, MODULE_PATH_BYTES, SITE_CHUNK_WORDS, SITE_CHUNKS_MAX,
    TAG_MODULE, TAG_STACK, head, place, place_parts, stack_words,
};
use crate::unwind::{self, Own, Stack};
use crate::{own_stack, session, sys};

/// Maximum number of the log's chunks that hold sites: 256 MiB, about 2 million stacks.
const SITE_CHUNKS: usize = 1024;
/// Slots of the table of stacks.
const SLOTS: usize = 1 << 20;
/// Slots tried before a stack is dropped.
const PROBES: usize = 64;
/// Modules whose places are cached.
const MODULES_KEPT: usize = 1024;

/// Number of stack frames to record; 0 for no call sites.
static DEPTH: AtomicU32 = AtomicU32::new(0);
static OWN_START: AtomicU64 = AtomicU64::new(0);
static OWN_BYTES: AtomicU64 = AtomicU64::new(0);
static SITES: AtomicPtr<Sites> = AtomicPtr::new(null_mut());

/// The call sites of this process. They are in memory that a forked child finds zeroed, so the child starts its own.
#[repr(C)]
struct Sites {
    /// Chunks of an earlier recording, whose addresses are used again.
    retired: [AtomicPtr<u64>; SITE_CHUNKS],
    /// Place of the next free word; 0 before the first.
    next: AtomicU32,
    chunks: [AtomicPtr<u64>; SITE_CHUNKS],
    /// Place of each stored module, by its start address and generation.
    modules: Cache<MODULES_KEPT>,
    /// High half of a stack's hash, and its place; 0 if the slot is free.
    slots: [AtomicU64; SLOTS],
}

const _: () = assert!(SITE_CHUNKS <= SITE_CHUNKS_MAX as usize);
const _: () = assert!(offset_of!(Sites, next).is_multiple_of(PAGE_BYTES as usize) && offset_of!(Sites, retired) == 0);

/// Whether call sites are recorded.
#[inline(always)]
pub fn is_on() -> bool {
    DEPTH.load(Ordering::Relaxed) != 0
}

/// Whether call sites were requested. If they were requested but cannot be recorded, they count as lost.
#[inline(always)]
pub fn is_wanted() -> bool {
    session::stack_depth() != 0
}

/// Enables call sites if the session requests them. Called when the object is loaded; may allocate.
pub fn begin() {
    let depth = session::stack_depth().min(DEPTH_MAX as u32);
    if depth == 0 {
        return;
    }
    modules::begin();
    let here = begin as *const () as u64;
    let Some(own) = modules::find(here) else {
        return;
    };
    OWN_START.store(own.start, Ordering::Relaxed);
    OWN_BYTES.store(own.end - own.start, Ordering::Relaxed);
    let mut sites = SITES.load(Ordering::Relaxed);
    if sites.is_null() {
        sites = sys::map_wiped_on_fork(size_of::<Sites>()).cast();
        SITES.store(sites, Ordering::Relaxed);
    }
    if !sites.is_null() {
        DEPTH.store(depth, Ordering::Release);
    }
}

/// Forgets all call sites, because their recording has ended.
pub fn leave() {
    DEPTH.store(0, Ordering::Release);
    let sites = SITES.load(Ordering::Relaxed);
    // SAFETY: null, or a mapping that is never unmapped and in which every value is valid.
    let Some(known) = (unsafe { sites.as_ref() }) else {
        return;
    };
    for (chunk, retired) in known.chunks.iter().zip(&known.retired) {
        let chunk = chunk.load(Ordering::Acquire);
        if chunk.is_null() {
            break;
        }
        // A thread that still looks for a stack there finds none.
        sys::replace_by_zeros(chunk.cast(), CHUNK_BYTES);
        retired.store(chunk, Ordering::Release);
    }
    let bytes = size_of::<Sites>() - offset_of!(Sites, next);
    sys::give_back(sites.wrapping_byte_add(offset_of!(Sites, next)).cast(), bytes as c_long);
}

/// The site of the call that the program is making now: the place of its stack; 0 if unknown.
#[inline(always)]
pub fn of_caller() -> u32 {
    let depth = DEPTH.load(Ordering::Acquire) as usize;
    // SAFETY: null, or a mapping that is never unmapped and in which every value is valid.
    let Some(sites) = (unsafe { SITES.load(Ordering::Relaxed).as_ref() }) else {
        return 0;
    };
    if depth == 0 {
        return 0;
    }
    let own = Own { start: OWN_START.load(Ordering::Relaxed), bytes: OWN_BYTES.load(Ordering::Relaxed) };
    let mut stack = Stack::new();
    unwind::walk(depth, own, &mut stack);
    sites.place_of(&stack)
}

impl Sites {
    #[inline(always)]
    fn place_of(&self, stack: &Stack) -> u32 {
        let frames = stack.frames();
        if frames.is_empty() {
            return 0;
        }
        let generation = modules::generation();
        let hash = frames.iter().fold(mix(generation + 1), |hash, &frame| mix(hash.rotate_left(29) ^ frame));
        // The high bits are mixed best, so they select the slot. The bits below them distinguish the stacks in a slot.
        let first = (hash >> (u64::BITS - SLOTS.trailing_zeros())) as usize;
        let mark = (hash >> 8) as u32;
        for probe in 0..PROBES {
            // SAFETY: masked to the number of slots.
            let slot = unsafe { self.slots.get_unchecked((first + probe) & (SLOTS - 1)) };
            let found = slot.load(Ordering::Acquire);
            if found == 0 {
                return self.add(stack, generation, slot, mark);
            }
            if (found >> 32) as u32 == mark && self.holds(found as u32, frames, generation) {
                return found as u32;
            }
        }
        0
    }

    /// Whether the stack at `place` equals this one.
    #[inline(always)]
    fn holds(&self, place: u32, frames: &[u64], generation: u64) -> bool {
        let (sequence, word) = place_parts(place);
        let Some(chunk) = self.chunks.get(sequence as usize) else {
            return false;
        };
        // SAFETY: a place in a slot is that of a complete stack, in a chunk that stays mapped. Its head contains the
        // number of words.
        unsafe {
            let words = chunk.load(Ordering::Relaxed).add(word as usize);
            *words == head(TAG_STACK, frames.len(), generation as usize)
                && core::slice::from_raw_parts(words.add(1), frames.len()) == frames
        }
    }

    /// Writes a new stack and adds it to a free slot.
    #[cold]
    #[inline(never)]
    fn add(&self, stack: &Stack, generation: u64, slot: &AtomicU64, mark: u32) -> u32 {
        // A signal handler that ran meanwhile could write the same stack a second time.
        let Some(place) = own_stack::run(|| self.write_stack(stack.frames(), generation)) else {
            return 0;
        };
        // If another thread was faster, the stack is stored twice, and both places are valid.
        let entry = u64::from(mark) << 32 | u64::from(place);
        let _ = slot.compare_exchange(0, entry, Ordering::Release, Ordering::Relaxed);
        place
    }

    fn write_stack(&self, frames: &[u64], generation: u64) -> Option<u32> {
        let mut places = [0_u32; DEPTH_MAX + 1];
        for (place, &address) in places.iter_mut().zip(frames) {
            if let Some(module) = modules::find(address) {
                *place = self.place_of_module(&module, generation)?;
            }
        }
        let (words, place) = self.room(stack_words(frames.len()))?;
        // SAFETY: `room` reserved these words for this call alone.
        unsafe {
            words.write(head(TAG_STACK, frames.len(), generation as usize));
            words.add(1).copy_from_nonoverlapping(frames.as_ptr(), frames.len());
            let modules = words.add(1 + frames.len());
            for (at, pair) in places.chunks_exact(2).take(frames.len().div_ceil(2)).enumerate() {
                modules.add(at).write(u64::from(pair[0]) | u64::from(pair[1]) << 32);
            }
        }
        Some(place)
    }

    /// Place of the module in the log; writes the module if needed.
    fn place_of_module(&self, module: &Module, generation: u64) -> Option<u32> {
        let key = module.start | generation << 47;
        if let Some(place) = self.modules.get(key) {
            return Some(place as u32);
        }
        let mut buffer = [0; MODULE_PATH_BYTES];
        let path = path_of(module, &mut buffer);
        let id = module.build_id();
        let id = id.get(..BUILD_ID_BYTES).unwrap_or(id);
        let id_words = id.len().div_ceil(8);
        let (words, place) = self.room(2 + id_words + path.len().div_ceil(8))?;
        // SAFETY: `room` reserved these zeroed words for this call alone.
        unsafe {
            words.write(head(TAG_MODULE, id.len(), path.len()));
            words.add(1).write(module.bias);
            words.add(2).cast::<u8>().copy_from_nonoverlapping(id.as_ptr(), id.len());
            words.add(2 + id_words).cast::<u8>().copy_from_nonoverlapping(path.as_ptr(), path.len());
        }
        self.modules.put(key, u64::from(place));
        Some(place)
    }

    /// `count` fresh words and their place; `None` if the log has no space for more sites.
    fn room(&self, count: usize) -> Option<(*mut u64, u32)> {
        loop {
            let next = self.next.load(Ordering::Acquire);
            let (sequence, word) = place_parts(next);
            let word = word.max(FIRST_WORD);
            let chunk = self.chunk(sequence)?;
            let fits = word as usize + count <= SITE_CHUNK_WORDS as usize;
            let (at, after) = match (fits, word + count as u32) {
                (true, SITE_CHUNK_WORDS) | (false, _) => (word, place(sequence + 1, 0)),
                (true, end) => (word, place(sequence, end)),
            };
            if self.next.compare_exchange(next, after, Ordering::AcqRel, Ordering::Acquire).is_ok() && fits {
                // SAFETY: the words are inside the chunk.
                return Some((unsafe { chunk.add(at as usize) }, place(sequence, at)));
            }
        }
    }

    /// The chunk with this sequence number; allocates it if needed.
    fn chunk(&self, sequence: u32) -> Option<*mut u64> {
        let known = self.chunks.get(sequence as usize)?;
        let chunk = known.load(Ordering::Acquire);
        if !chunk.is_null() {
            return Some(chunk);
        }
        let process = Process::current().filter(|process| !process.waits_to_retry())?;
        let retired = self.retired.get(sequence as usize)?.swap(null_mut(), Ordering::AcqRel);
        let (_, fresh) = process.new_chunk(retired.cast())?;
        let header =
            ChunkHeader { kind: CHUNK_SITES, buffer: sequence, cursor: 0, nested: 0, unused: 0, ended_ticks: 0 };
        // SAFETY: the chunk was just mapped, page-aligned and longer than its header, and only this call uses it.
        unsafe { fresh.cast::<ChunkHeader>().write(header) };
        let fresh = fresh.cast::<u64>();
        match known.compare_exchange(null_mut(), fresh, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Some(fresh),
            // Another thread was faster. The reader recognises the unused chunk, because it is empty.
            Err(other) => Some(other),
        }
    }
}

/// The module's path, made absolute.
fn path_of<'a>(module: &Module, buffer: &'a mut [u8; MODULE_PATH_BYTES]) -> &'a [u8] {
    let name = module.name().to_bytes();
    let used = match name {
        [] => sys::read_link(c"/proc/self/exe", buffer),
        [b'/', ..] => 0,
        // The vDSO has a name without a slash.
        _ if !name.contains(&b'/') => 0,
        _ => sys::read_link(c"/proc/self/cwd", buffer),
    };
    let mut end = used;
    let separator: &[u8] = if used > 0 && !name.is_empty() { b"/" } else { b"" };
    for &byte in separator.iter().chain(name) {
        if let Some(place) = buffer.get_mut(end) {
            *place = byte;
            end += 1;
        }
    }
    buffer.get(..end).unwrap_or_default()
}
