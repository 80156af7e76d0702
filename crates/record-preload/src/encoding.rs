//! The encoding of events: 8 bytes for nearly all, 40 bytes for the rest.
//!
//! This file is compiled into the preloaded object, which encodes, and into `hksim-record`, which decodes. So both
//! always agree. It uses `core` only.
//!
//! A *compact* record is one word, from the low bit up:
//!
//! | bits | field |
//! |---|---|
//! | 2 | operation: 1 malloc, 2 free, 3 calloc (0: escape) |
//! | 3 | region: index into the table of 32 GiB regions |
//! | 11 | time since the previous record, in units of 4 ticks |
//! | 16 | size in bytes |
//! | 32 | address inside its region, in units of 8 bytes |
//!
//! Every event that does not fit is an *escape* of [`ESCAPE_WORDS`] words with all fields in full. An escape also sets
//! the region table's entry for its address. Each fill starts from [`Regions::new`], so it can be read without the
//! previous fill.

/// Number of words in an escape: head (kind from bit 8, alignment from bit 16, duration from bit 24), time, address,
/// old address, size.
pub const ESCAPE_WORDS: usize = 5;

const OPERATION_BITS: u32 = 2;
const REGION_BITS: u32 = 3;
const TIME_BITS: u32 = 11;
const SIZE_BITS: u32 = 16;

const REGION_SHIFT: u32 = OPERATION_BITS;
const TIME_SHIFT: u32 = REGION_SHIFT + REGION_BITS;
const SIZE_SHIFT: u32 = TIME_SHIFT + TIME_BITS;
const ADDRESS_SHIFT: u32 = SIZE_SHIFT + SIZE_BITS;
const ADDRESS_BITS: u32 = u64::BITS - ADDRESS_SHIFT;

/// Ticks per unit of the compact time field, as a shift.
const TICK_SHIFT: u32 = 2;
/// Shift of event numbers that replace ticks. Compact records do not store the bits below it.
pub const NUMBER_SHIFT: u32 = TICK_SHIFT;
/// Bytes per unit of the compact address field, as a shift: the smallest alignment that any malloc returns.
const GRAIN_SHIFT: u32 = 3;
/// log2 of the region size: 32 bits of 8-byte units.
const REGION_BYTES_LOG2: u32 = 32 + GRAIN_SHIFT;
const REGIONS: usize = 1 << REGION_BITS;
/// Longest duration that a record can store.
pub const DURATION_MAX: u64 = (1 << 40) - 1;
/// Low 16 bits of an escape that names a thread.
const THREAD_HEAD: u64 = (Kind::Thread as u64) << 8;
/// Bytes of a mark's name in one record.
pub const MARK_PIECE_BYTES: usize = 24;
/// In `align_log2` of a mark: the thread's next record continues the name.
pub const MARK_GOES_ON: u8 = 0x80;
/// Memory policy: the result of `PR_GET_THP_DISABLE`.
pub const POLICY_THP_DISABLE: u64 = 0;
/// Memory policy: the flags of `mlockall`, 0 for `munlockall`.
pub const POLICY_LOCK_ALL: u64 = 1;
/// Memory policy: the personality.
pub const POLICY_PERSONALITY: u64 = 2;
/// Low byte of a word whose high half is the call site of the record that follows.
const SITE_TAG: u64 = 0x80;
/// Maximum number of words that a record takes: a call site and an escape.
pub const RECORD_WORDS: usize = 1 + ESCAPE_WORDS;
/// A region number that no address has.
const NO_REGION: u64 = u64::MAX;
/// Value of `likely` before the first record: no address is in this region.
const NO_LIKELY: u64 = u64::MAX;

const _: () = assert!(ADDRESS_SHIFT == 32, "the address must end at bit 63");

/// What was called, or what happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// `malloc`.
    Malloc = 1,
    /// `free` and its C23 and historic variants.
    Free = 2,
    /// `calloc`; the size is the product, `u64::MAX` if it overflows.
    Calloc = 3,
    /// `realloc`.
    Realloc = 4,
    /// `reallocarray`; the size as for calloc.
    Reallocarray = 5,
    /// `posix_memalign`.
    PosixMemalign = 6,
    /// `aligned_alloc`.
    AlignedAlloc = 7,
    /// `memalign`.
    Memalign = 8,
    /// `valloc`.
    Valloc = 9,
    /// `pvalloc`.
    Pvalloc = 10,
    /// `malloc_usable_size`.
    UsableSize = 11,
    /// The following records belong to thread number `size` (from 0, in this process), whose kernel thread id is
    /// `address`. Every fill begins with such a record.
    Thread = 12,
    /// `fork` returned in the parent: `address` is the child's process id.
    Fork = 13,
    /// A piece of a mark's name. The bytes are in `address`, `old` and `size`; `align_log2` has their number, with
    /// [`MARK_GOES_ON`] if another piece follows.
    Mark = 14,
    /// A change of a memory policy of the whole process. `address` names the policy: [`POLICY_THP_DISABLE`],
    /// [`POLICY_LOCK_ALL`] or [`POLICY_PERSONALITY`]. `size` is the new value.
    MemoryPolicy = 15,
}

impl Kind {
    /// The kind with number `value`; `None` if there is none.
    #[must_use]
    pub fn from_number(value: u8) -> Option<Self> {
        const ALL: [Kind; 15] = [
            Kind::Malloc,
            Kind::Free,
            Kind::Calloc,
            Kind::Realloc,
            Kind::Reallocarray,
            Kind::PosixMemalign,
            Kind::AlignedAlloc,
            Kind::Memalign,
            Kind::Valloc,
            Kind::Pvalloc,
            Kind::UsableSize,
            Kind::Thread,
            Kind::Fork,
            Kind::Mark,
            Kind::MemoryPolicy,
        ];
        ALL.get(usize::from(value).wrapping_sub(1)).copied()
    }

    /// Whether the call requests memory; only such calls have a call site.
    #[must_use]
    pub const fn asks_for_memory(self) -> bool {
        !matches!(self, Self::Free | Self::UsableSize | Self::Thread | Self::Fork | Self::Mark | Self::MemoryPolicy)
    }
}

/// One event, as the recorder saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// What was called.
    pub kind: Kind,
    /// log2 of the requested alignment in bytes; 0 if the call has none.
    pub align_log2: u8,
    /// Time stamp counter: before a free or a realloc, after any other call.
    pub ticks: u64,
    /// Ticks that a realloc took, below 2^40; 0 for other calls.
    pub duration: u64,
    /// The block that an allocating call returned (0: the call failed), or that was passed to a freeing call.
    pub address: u64,
    /// The block passed to a realloc; 0 for other calls.
    pub old: u64,
    /// Requested bytes; 0 if the call has none.
    pub size: u64,
    /// Place of the call's stack in the log (`stacks.rs`); 0 if it was not recorded.
    pub site: u32,
}

impl Record {
    /// A record without alignment, duration and old block.
    #[inline(always)]
    #[must_use]
    pub const fn new(kind: Kind, ticks: u64, address: u64, size: u64) -> Self {
        Self { kind, align_log2: 0, ticks, duration: 0, address, old: 0, size, site: 0 }
    }
}

impl Record {
    /// A piece of a mark's name, of at most [`MARK_PIECE_BYTES`]; `more` is [`MARK_GOES_ON`] or 0.
    #[must_use]
    pub fn mark_piece(ticks: u64, piece: &[u8], more: u8) -> Self {
        let mut bytes = [0; MARK_PIECE_BYTES];
        for (to, from) in bytes.iter_mut().zip(piece) {
            *to = *from;
        }
        let [address, old, size] = [0, 8, 16].map(|at| {
            let mut word = [0; 8];
            word.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(word)
        });
        let used = piece.len().min(MARK_PIECE_BYTES) as u8;
        Self { align_log2: used | more, old, ..Self::new(Kind::Mark, ticks, address, size) }
    }

    /// The bytes of a mark's name in this record, and how many of them are valid.
    #[must_use]
    pub fn mark_bytes(&self) -> ([u8; MARK_PIECE_BYTES], usize) {
        let mut bytes = [0; MARK_PIECE_BYTES];
        for (to, word) in bytes.chunks_exact_mut(8).zip([self.address, self.old, self.size]) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        (bytes, usize::from(self.align_log2 & !MARK_GOES_ON).min(MARK_PIECE_BYTES))
    }
}

/// Context of compact records: the regions and the previous time. Writer and reader keep equal copies.
#[derive(Clone, Debug)]
#[repr(C)]
pub struct Regions {
    /// Time of the last record, in units of `1 << TICK_SHIFT` ticks.
    units: u64,
    /// First address of the region tried first; only the writer uses it.
    likely: u64,
    /// The number of the `likely` region in the table, shifted to its position in a word.
    likely_field: u64,
    regions: [u64; REGIONS],
}

impl Default for Regions {
    fn default() -> Self {
        Self::new()
    }
}

impl Regions {
    /// The state at the start of every fill: no region is known, so the first record is an escape.
    #[must_use]
    pub const fn new() -> Self {
        Self { units: 1 << 63, likely: NO_LIKELY, likely_field: 0, regions: [NO_REGION; REGIONS] }
    }

    /// The table entry that an address may use. Bit 45 separates a program's brk heap (0x55..) from its mappings
    /// (0x7f..); the low bits separate neighbours.
    #[inline(always)]
    const fn entry(address: u64) -> usize {
        (((address >> REGION_BYTES_LOG2) & 3) | ((address >> 43) & 4)) as usize
    }

    /// The time of the last record.
    #[must_use]
    pub const fn last_ticks(&self) -> u64 {
        self.units << TICK_SHIFT
    }

    /// The compact word for a call in the region tried first; `None` otherwise, when the caller uses
    /// [`Regions::compact`].
    #[inline(always)]
    pub fn compact_likely(&mut self, kind: Kind, ticks: u64, address: u64, size: u64) -> Option<u64> {
        let units = ticks >> TICK_SHIFT;
        let passed = units.wrapping_sub(self.units);
        // The rotation moves the low bits, which must be 0, to the top.
        let grains = address.wrapping_sub(self.likely).rotate_right(GRAIN_SHIFT);
        if passed >> TIME_BITS != 0 || size >> SIZE_BITS != 0 || grains >> ADDRESS_BITS != 0 {
            return None;
        }
        self.units = units;
        Some(kind as u64 | self.likely_field | passed << TIME_SHIFT | size << SIZE_SHIFT | grains << ADDRESS_SHIFT)
    }

    /// The compact word for `record`; `None` if it needs an escape.
    pub fn compact(&mut self, record: &Record) -> Option<u64> {
        if !matches!(record.kind, Kind::Malloc | Kind::Free | Kind::Calloc) {
            return None;
        }
        let (entry, region) = (Self::entry(record.address), record.address >> REGION_BYTES_LOG2);
        if self.regions[entry] != region {
            return None;
        }
        let before = (self.likely, self.likely_field);
        self.make_likely(entry, region);
        let word = self.compact_likely(record.kind, record.ticks, record.address, record.size);
        // Only an allocation selects the region to try first: more allocations there are likely. Frees are scattered.
        if word.is_none() || record.kind == Kind::Free {
            (self.likely, self.likely_field) = before;
        }
        word
    }

    fn make_likely(&mut self, entry: usize, region: u64) {
        self.likely = region << REGION_BYTES_LOG2;
        self.likely_field = (entry as u64) << REGION_SHIFT;
    }

    /// The escape for `record`.
    #[inline]
    pub fn escape(&mut self, record: &Record) -> [u64; ESCAPE_WORDS] {
        self.learn(record);
        let duration = record.duration.min(DURATION_MAX);
        let head = u64::from(record.kind as u8) << 8 | u64::from(record.align_log2) << 16 | duration << 24;
        [head, record.ticks, record.address, record.old, record.size]
    }

    fn learn(&mut self, record: &Record) {
        self.units = record.ticks >> TICK_SHIFT;
        let (entry, region) = (Self::entry(record.address), record.address >> REGION_BYTES_LOG2);
        self.regions[entry] = region;
        // Keep `likely` in step with the table.
        if self.likely == NO_LIKELY || self.likely_field == (entry as u64) << REGION_SHIFT {
            self.make_likely(entry, region);
        }
    }

    /// The record at the start of `words` and its length in words; `None` if no valid record starts there (a damaged
    /// log).
    #[must_use]
    pub fn decode(&mut self, words: &[u64]) -> Option<(Record, usize)> {
        let first = *words.first()?;
        if first & ((1 << OPERATION_BITS) - 1) == 0 {
            if first & 0xff == SITE_TAG {
                return self.decode_with_site(first, words.get(1..)?);
            }
            let record = read_escape(words.get(..ESCAPE_WORDS)?)?;
            self.learn(&record);
            return Some((record, ESCAPE_WORDS));
        }
        self.decode_compact(first).map(|record| (record, 1))
    }

    /// The compact record in `word`; `None` if an escape begins here, or if the word is invalid (a damaged log).
    #[inline(always)]
    #[must_use]
    pub fn decode_compact(&mut self, word: u64) -> Option<Record> {
        // A table, because a branch on the kind is unpredictable.
        const KINDS: [Kind; 3] = [Kind::Malloc, Kind::Free, Kind::Calloc];
        let operation = word as usize & ((1 << OPERATION_BITS) - 1);
        let kind = *KINDS.get(operation.wrapping_sub(1))?;
        let region = self.regions[((word >> REGION_SHIFT) & ((1 << REGION_BITS) - 1)) as usize];
        if region == NO_REGION {
            return None;
        }
        self.units = self.units.wrapping_add((word >> TIME_SHIFT) & ((1 << TIME_BITS) - 1));
        let address = region << REGION_BYTES_LOG2 | (word >> ADDRESS_SHIFT) << GRAIN_SHIFT;
        let size = (word >> SIZE_SHIFT) & ((1 << SIZE_BITS) - 1);
        Some(Record::new(kind, self.last_ticks(), address, size))
    }

    /// The record after a word that holds its call site.
    #[cold]
    fn decode_with_site(&mut self, site: u64, words: &[u64]) -> Option<(Record, usize)> {
        if *words.first()? & 0xff == SITE_TAG {
            return None;
        }
        let (record, used) = self.decode(words)?;
        Some((Record { site: (site >> 32) as u32, ..record }, 1 + used))
    }
}

/// The word that precedes a record and holds its call site.
#[must_use]
pub const fn site_word(site: u32) -> u64 {
    (site as u64) << 32 | SITE_TAG
}

/// The record that an escape holds; `None` if `words` is not an escape.
#[must_use]
pub fn read_escape(words: &[u64]) -> Option<Record> {
    let &[head, ticks, address, old, size] = words else {
        return None;
    };
    let kind = Kind::from_number((head >> 8) as u8)?;
    let (align_log2, duration) = ((head >> 16) as u8, head >> 24);
    Some(Record { align_log2, duration, old, ..Record::new(kind, ticks, address, size) })
}

/// The number of calls in `words`: all records except those that name a thread.
#[must_use]
pub fn count_calls(words: &[u64]) -> u64 {
    let mut rest = words;
    let mut calls = 0;
    while let Some(first) = rest.first() {
        let is_site = first & 0xff == SITE_TAG;
        let is_escape = first & ((1 << OPERATION_BITS) - 1) == 0 && !is_site;
        rest = rest.get(if is_escape { ESCAPE_WORDS } else { 1 }..).unwrap_or_default();
        calls += u64::from(!is_site && first & 0xffff != THREAD_HEAD);
    }
    calls
}
