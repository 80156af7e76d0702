//! A second design, as different from the bump allocator as it can be in a test: size classes in runs of pages, free lists
//! in the blocks, bins for groups of threads, empty runs given back by madvise, large blocks in mappings of their own that
//! mremap resizes. All its tables are in simulated or real memory.

use hksim_engine::{AddressSpace, Advice, Cause, Design, Errno, Growth, Mapping, PAGE_BYTES, Region, Request, Touch};
use serde::{Deserialize, Serialize};

/// Blocks up to this size are in runs. Classes are the powers of two from 16.
const SMALL_BYTES_MAX: u64 = 4096;
const CLASSES: u64 = 9;
/// A chunk has 64 runs; the first contains the chunk's table instead of blocks.
const CHUNK_BYTES: u64 = 2 << 20;
const RUN_BYTES: u64 = 32 << 10;
/// Threads are divided into this many groups, each with bins of its own.
const GROUPS: u64 = 4;
/// Bytes before a large block: where its mapping begins, and how long it is.
const LARGE_HEADER_BYTES: u64 = 16;

/// Words of a run's entry in its chunk's table.
const ENTRY_WORDS: u64 = 8;
const BIN: u64 = 0;
const USED: u64 = 1;
const FREE: u64 = 2;
const CARVED: u64 = 3;
const NEXT: u64 = 4;
const PREVIOUS: u64 = 5;
/// Words of entry 0, which describes the chunk.
const FREE_RUNS: u64 = 0;
const NEXT_CHUNK: u64 = 1;

/// The settings of [`Runs`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunsSettings {
    /// Whether empty runs are given back with MADV_FREE, or with MADV_DONTNEED.
    pub frees_lazily: bool,
    /// Whether chunks and large blocks are advised to have huge pages.
    pub advises_huge: bool,
    /// Whether large blocks may move when they grow.
    pub moves: bool,
}

/// The allocator. `tables` is the address of its bins, and of a bitmap of chunks.
pub struct Runs {
    settings: RunsSettings,
    tables: u64,
    first_chunk: u64,
}

const BINS_BYTES: u64 = PAGE_BYTES;
const TABLES_BYTES: u64 = BINS_BYTES + Region::BYTES / CHUNK_BYTES / 8;

/// The address of a word of a run's entry.
fn entry(run: u64, word: u64) -> u64 {
    let chunk = run / CHUNK_BYTES * CHUNK_BYTES;
    chunk + ((run - chunk) / RUN_BYTES * ENTRY_WORDS + word) * 8
}

fn get(memory: &mut impl AddressSpace, at: u64) -> u64 {
    memory.read(at, Cause::Metadata)
}

fn set(memory: &mut impl AddressSpace, at: u64, value: u64) {
    memory.write(at, value, Cause::Metadata);
}

fn class_of(bytes: u64) -> u64 {
    u64::from(bytes.max(16).next_power_of_two().ilog2()) - 4
}

impl Runs {
    fn bin_at(&self, bin: u64) -> u64 {
        self.tables + bin * 8
    }

    /// The word and bit of a chunk in the bitmap.
    fn chunk_bit(&self, address: u64) -> (u64, u64) {
        let number = (address - Region::START) / CHUNK_BYTES;
        (self.tables + BINS_BYTES + number / 64 * 8, 1 << (number % 64))
    }

    fn is_small(&self, memory: &mut impl AddressSpace, block: u64) -> bool {
        let (word, bit) = self.chunk_bit(block);
        get(memory, word) & bit != 0
    }

    fn advise_huge(&self, memory: &mut impl AddressSpace, at: u64, bytes: u64) {
        if self.settings.advises_huge {
            // Advice may be refused by a kernel without huge pages.
            let _ = memory.advise(at, bytes, Advice::HugePage);
        }
    }

    /// A run without blocks, from the first chunk that has one.
    fn take_run(&mut self, memory: &mut impl AddressSpace) -> Option<u64> {
        let mut chunk = self.first_chunk;
        while chunk != 0 && get(memory, entry(chunk, FREE_RUNS)) == 0 {
            chunk = get(memory, entry(chunk, NEXT_CHUNK));
        }
        if chunk == 0 {
            chunk = memory.map(CHUNK_BYTES, CHUNK_BYTES, Mapping::Plain).ok()?;
            self.advise_huge(memory, chunk, CHUNK_BYTES);
            set(memory, entry(chunk, FREE_RUNS), u64::MAX - 1);
            set(memory, entry(chunk, NEXT_CHUNK), self.first_chunk);
            self.first_chunk = chunk;
            let (word, bit) = self.chunk_bit(chunk);
            let bits = get(memory, word);
            set(memory, word, bits | bit);
        }
        let free = get(memory, entry(chunk, FREE_RUNS));
        set(memory, entry(chunk, FREE_RUNS), free & (free - 1));
        Some(chunk + u64::from(free.trailing_zeros()) * RUN_BYTES)
    }

    fn push(&self, memory: &mut impl AddressSpace, bin: u64, run: u64) {
        let head = get(memory, self.bin_at(bin));
        set(memory, entry(run, NEXT), head);
        set(memory, entry(run, PREVIOUS), 0);
        if head != 0 {
            set(memory, entry(head, PREVIOUS), run);
        }
        set(memory, self.bin_at(bin), run);
    }

    fn remove(&self, memory: &mut impl AddressSpace, bin: u64, run: u64) {
        let (next, previous) = (get(memory, entry(run, NEXT)), get(memory, entry(run, PREVIOUS)));
        if next != 0 {
            set(memory, entry(next, PREVIOUS), previous);
        }
        let link = if previous != 0 { entry(previous, NEXT) } else { self.bin_at(bin) };
        set(memory, link, next);
    }

    fn allocate_small(&mut self, memory: &mut impl AddressSpace, thread: u32, class: u64) -> Option<u64> {
        let bin = u64::from(thread) % GROUPS * CLASSES + class;
        let (block_bytes, mut run) = (16 << class, get(memory, self.bin_at(bin)));
        if run == 0 {
            run = self.take_run(memory)?;
            for (word, value) in [(BIN, bin), (USED, 0), (FREE, 0), (CARVED, 0)] {
                set(memory, entry(run, word), value);
            }
            self.push(memory, bin, run);
        }
        let mut free = get(memory, entry(run, FREE));
        let mut carved = get(memory, entry(run, CARVED));
        let block = if free != 0 {
            let block = free;
            free = memory.read(block, Cause::FreeList);
            set(memory, entry(run, FREE), free);
            block
        } else {
            carved += block_bytes;
            set(memory, entry(run, CARVED), carved);
            run + carved - block_bytes
        };
        let used = get(memory, entry(run, USED)) + 1;
        set(memory, entry(run, USED), used);
        if free == 0 && carved == RUN_BYTES {
            self.remove(memory, bin, run);
        }
        Some(block)
    }

    fn free_small(&mut self, memory: &mut impl AddressSpace, block: u64) {
        let run = block / RUN_BYTES * RUN_BYTES;
        let (bin, used) = (get(memory, entry(run, BIN)), get(memory, entry(run, USED)) - 1);
        let (free, carved) = (get(memory, entry(run, FREE)), get(memory, entry(run, CARVED)));
        set(memory, entry(run, USED), used);
        if free == 0 && carved == RUN_BYTES {
            self.push(memory, bin, run);
        }
        if used > 0 {
            memory.write(block, free, Cause::FreeList);
            return set(memory, entry(run, FREE), block);
        }
        self.remove(memory, bin, run);
        let chunk = run / CHUNK_BYTES * CHUNK_BYTES;
        let free_runs = get(memory, entry(chunk, FREE_RUNS));
        set(memory, entry(chunk, FREE_RUNS), free_runs | 1 << ((run - chunk) / RUN_BYTES));
        let advice = if self.settings.frees_lazily { Advice::Free } else { Advice::DontNeed };
        // The kernel refuses to free locked memory; the run is then reused as it is.
        let _ = memory.advise(run, RUN_BYTES, advice);
    }

    fn allocate_large(&mut self, memory: &mut impl AddressSpace, bytes: u64, align: u64) -> Option<u64> {
        let offset = align.max(LARGE_HEADER_BYTES);
        // A block of 0 bytes is in its mapping, too: its address says what it belongs to.
        let mapped_bytes = bytes.max(1).checked_add(offset)?.checked_next_multiple_of(PAGE_BYTES)?;
        let mapping = memory.map(mapped_bytes, align.max(PAGE_BYTES), Mapping::Plain).ok()?;
        self.advise_huge(memory, mapping, mapped_bytes);
        let block = mapping + offset;
        memory.write(block - 16, mapping, Cause::Header);
        memory.write(block - 8, mapped_bytes, Cause::Header);
        Some(block)
    }

    /// The mapping of a large block: its address and bytes.
    fn mapping(memory: &mut impl AddressSpace, block: u64) -> (u64, u64) {
        (memory.read(block - 16, Cause::Header), memory.read(block - 8, Cause::Header))
    }

    /// Resizes a mapping, in place or by moving it.
    fn resize_large(&mut self, memory: &mut impl AddressSpace, block: u64, bytes: u64) -> Option<u64> {
        let (mapping, old_bytes) = Runs::mapping(memory, block);
        let offset = block - mapping;
        let new_bytes = bytes.max(1).checked_add(offset)?.checked_next_multiple_of(PAGE_BYTES)?;
        if new_bytes == old_bytes {
            return Some(block);
        }
        // A block keeps its alignment only where it is, or at a multiple of its offset.
        let growth = match self.settings.moves {
            true => Growth::Move { align: offset.next_power_of_two().max(PAGE_BYTES) },
            false => Growth::InPlace,
        };
        let mapping = memory.remap(mapping, old_bytes, new_bytes, growth).ok()?;
        let block = mapping + offset;
        memory.write(block - 16, mapping, Cause::Header);
        memory.write(block - 8, new_bytes, Cause::Header);
        Some(block)
    }
}

impl Design for Runs {
    const NAME: &'static str = "runs";
    type Settings = RunsSettings;

    fn start(settings: &RunsSettings, memory: &mut impl AddressSpace) -> Result<Runs, Errno> {
        let tables = memory.map(TABLES_BYTES, PAGE_BYTES, Mapping::Plain)?;
        Ok(Runs { settings: *settings, tables, first_chunk: 0 })
    }

    fn allocate(&mut self, memory: &mut impl AddressSpace, thread: u32, request: Request) -> Option<u64> {
        let bytes = request.bytes.max(request.align);
        if bytes > SMALL_BYTES_MAX {
            return self.allocate_large(memory, request.bytes, request.align);
        }
        let block = self.allocate_small(memory, thread, class_of(bytes))?;
        if request.zeroed {
            memory.touch(block, request.bytes, Touch::WriteZero, Cause::Zeroing);
        }
        Some(block)
    }

    fn free(&mut self, memory: &mut impl AddressSpace, _thread: u32, block: u64) {
        if self.is_small(memory, block) {
            return self.free_small(memory, block);
        }
        let (mapping, bytes) = Runs::mapping(memory, block);
        // The kernel's limits may prevent a hole; the mapping is then lost.
        let _ = memory.unmap(mapping, bytes);
    }

    fn usable_bytes(&mut self, memory: &mut impl AddressSpace, block: u64) -> u64 {
        if self.is_small(memory, block) {
            let bin = get(memory, entry(block / RUN_BYTES * RUN_BYTES, BIN));
            return 16 << (bin % CLASSES);
        }
        let (mapping, bytes) = Runs::mapping(memory, block);
        mapping + bytes - block
    }

    fn resize(&mut self, memory: &mut impl AddressSpace, thread: u32, block: u64, bytes: u64) -> Option<u64> {
        let (is_small, usable_bytes) = (self.is_small(memory, block), self.usable_bytes(memory, block));
        let stays = bytes <= usable_bytes && (is_small || bytes > SMALL_BYTES_MAX);
        if is_small && stays {
            return Some(block);
        }
        if !is_small
            && bytes > SMALL_BYTES_MAX
            && let Some(resized) = self.resize_large(memory, block, bytes)
        {
            return Some(resized);
        }
        let new = self.allocate(memory, thread, Request::plain(bytes))?;
        memory.copy(new, block, usable_bytes.min(bytes));
        self.free(memory, thread, block);
        Some(new)
    }

    /// A thread that ends leaves its bins to the other threads of its group.
    fn thread_exit(&mut self, memory: &mut impl AddressSpace, thread: u32) {
        std::hint::black_box(get(memory, self.bin_at(u64::from(thread) % GROUPS * CLASSES)));
    }
}
