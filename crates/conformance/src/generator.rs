//! Seeded random page-op scripts, biased to 2 MiB boundaries.

use hksim_linux_mm::script::{ARENA_PAGES, ForkWriter, Header, Op, ScanOf, Script, Step, Thread, Touch};
use hksim_linux_mm::{
    Advice, Backing, LockFlags, MapFlags, PMD_ORDER, PMD_PAGES, Protection, RemapSource, SizeMode, ThpMode,
};

/// The theme of a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Plain,
    TwoThreads,
    /// hugetlb with reservations. Nothing is moved, because mremap of part of such a mapping permanently loses the
    /// reservations of the rest.
    HugetlbReserved,
    HugetlbUnreserved,
    NearlyFull,
    Forks,
    /// Locks and unlocks memory, a range or all, with some forks.
    Locks,
    /// Operates on the same few pages, with some forks: large folios in every state.
    Narrow,
    /// File mappings between anonymous ones, with some forks. Nothing is populated or collapsed, because the pages of
    /// files are not modelled.
    Files,
    /// Every protection and every flag of a mapping, with some forks.
    Flags,
    /// Scans of khugepaged, some with a child, under any limits of khugepaged.
    Scans,
}

impl Kind {
    /// The average number of operations per fork. Scripts with reserved pages do not fork: if the pool is empty, the
    /// kernel unmaps the children's pages in favour of the parent, which is not modelled.
    fn ops_to_a_fork(self) -> Option<u64> {
        match self {
            Kind::Forks | Kind::Flags => Some(4),
            Kind::HugetlbUnreserved
            | Kind::TwoThreads
            | Kind::Narrow
            | Kind::NearlyFull
            | Kind::Locks
            | Kind::Scans
            | Kind::Files => Some(8),
            Kind::Plain | Kind::HugetlbReserved => None,
        }
    }

    /// Whether scripts use advice that sets a flag of a mapping.
    fn has_flags(self) -> bool {
        matches!(self, Kind::Flags | Kind::Files | Kind::HugetlbUnreserved)
    }

    fn is_hugetlb(self) -> bool {
        matches!(self, Kind::HugetlbReserved | Kind::HugetlbUnreserved)
    }
}

/// The kinds, repeated by weight. NearlyFull is rare, because filling the list of mappings takes long.
const KINDS: [Kind; 27] = {
    let mut kinds = [Kind::Plain; 27];
    (kinds[0], kinds[1], kinds[2]) = (Kind::TwoThreads, Kind::TwoThreads, Kind::TwoThreads);
    (kinds[3], kinds[4], kinds[5]) = (Kind::HugetlbReserved, Kind::HugetlbReserved, Kind::HugetlbUnreserved);
    (kinds[6], kinds[7], kinds[8]) = (Kind::Forks, Kind::Forks, Kind::Forks);
    (kinds[9], kinds[10], kinds[11], kinds[12]) = (Kind::Narrow, Kind::Narrow, Kind::Narrow, Kind::Narrow);
    (kinds[13], kinds[14], kinds[15]) = (Kind::NearlyFull, Kind::Locks, Kind::Locks);
    (kinds[16], kinds[17], kinds[18]) = (Kind::Flags, Kind::Flags, Kind::Files);
    (kinds[19], kinds[20]) = (Kind::Files, Kind::Files);
    kinds
};

/// Default for the maximum number of operations of a script.
pub const OPS_MAX: u64 = 24;

/// The flags for `mlockall`: every combination, including the invalid one.
const LOCKS: [LockFlags; 7] = [
    lock_flags(true, false, false),
    lock_flags(true, true, false),
    lock_flags(false, true, false),
    lock_flags(true, false, true),
    lock_flags(true, true, true),
    lock_flags(false, true, true),
    lock_flags(false, false, true),
];

const fn lock_flags(current: bool, future: bool, on_fault: bool) -> LockFlags {
    LockFlags { current, future, on_fault }
}

/// `max_ptes_none` and `max_ptes_shared`: the ends, the defaults, and the limits that scripts reach.
const KHUGEPAGED_LIMITS: [u64; 10] = [511, 511, 511, 510, 448, 256, 255, 63, 1, 0];
/// Folios of 16 kB.
const ORDER_16K: usize = 2;
/// Folios of 64 kB.
const ORDER_64K: usize = 4;

/// The number of pages that a narrow script mostly uses: four folios of 64 kB.
const WINDOW_PAGES: u64 = 64;

/// Generates scripts from a seed.
#[derive(Clone, Debug)]
pub struct Generator {
    state: u64,
    kind: Kind,
    /// First page of a narrow script.
    window: u64,
}

impl Generator {
    /// A generator for this seed.
    pub fn new(seed: u64) -> Self {
        // Mix the seed, so that nearby seeds do not give similar scripts.
        Self {
            state: (seed ^ 0x9E37_79B9_7F4A_7C15).wrapping_mul(0xD129_0D3F_1CE5_5A6B) | 1,
            kind: Kind::Plain,
            window: 0,
        }
    }

    /// A script of 4 to 24 operations. Most begin with advice. Some use rare features: a second thread, the hugetlb
    /// pool, an arena that is not 2 MiB-aligned, a nearly full list of mappings, forks, locked memory, or the same few
    /// pages repeatedly, unusual protections, or file mappings.
    pub fn script(&mut self) -> Script {
        self.script_of(OPS_MAX)
    }

    /// A script of at most `ops_max` operations (and at least one).
    pub fn script_of(&mut self, ops_max: u64) -> Script {
        let kind = self.pick(&KINDS);
        self.script_of_kind(kind, ops_max)
    }

    /// A script with scans of khugepaged.
    pub fn script_with_scans(&mut self) -> Script {
        let mut script = self.script_of_kind(Kind::Scans, OPS_MAX - 1);
        script.steps.push(self.scan().into());
        script
    }

    fn script_of_kind(&mut self, kind: Kind, ops_max: u64) -> Script {
        self.kind = kind;
        self.window = self.start() / WINDOW_PAGES * WINDOW_PAGES;
        let ops_max = ops_max.max(1);
        let least = ops_max.min(4);
        let length = least + self.below(ops_max - least + 1);
        let mut script = Script::default();
        if self.below(10) == 0 {
            script.header.base = self.pick(&[1, 16, 100, 256, 511]);
        }
        if self.kind == Kind::NearlyFull {
            script.header.room = Some(self.below(6));
        }
        if self.kind == Kind::Scans {
            script.header = self.scan_header(script.header);
        }
        if length > 1 && self.below(4) > 0 {
            script.steps.push(self.first().into());
        }
        while (script.steps.len() as u64) < length {
            let is_fork = self.kind.ops_to_a_fork().is_some_and(|ops| self.below(ops) == 0);
            let is_lock = !is_fork && self.kind == Kind::Locks && self.below(4) == 0;
            let is_flag = !is_fork && self.kind.has_flags() && self.below(4) == 0;
            let is_file = !is_fork && self.kind == Kind::Files && self.below(3) == 0;
            let op = if self.kind == Kind::Scans && self.below(6) == 0 {
                let (start, length) = self.large_range();
                script.steps.push(Op::Advise(Advice::HugePage, start, length).into());
                self.scan()
            } else if is_fork {
                self.fork()
            } else if is_file {
                self.file()
            } else if is_flag {
                self.flag()
            } else if is_lock {
                self.lock()
            } else {
                self.op()
            };
            let is_second = self.kind == Kind::TwoThreads && !is_fork && self.below(2) == 0;
            script.steps.push(Step { op, thread: if is_second { Thread::Second } else { Thread::First } });
        }
        script
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        (self.state >> 11) % limit
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }

    /// The first operation of most scripts: a hugetlb mapping or MADV_HUGEPAGE.
    fn first(&mut self) -> Op {
        let (start, length) = self.large_range();
        // Small pages first, which later advice allows to become huge.
        if self.kind == Kind::Scans && self.below(2) == 0 {
            return Op::Advise(Advice::NoHugePage, start, length);
        }
        if self.kind.is_hugetlb() {
            let flags = MapFlags { hugetlb: true, noreserve: self.kind == Kind::HugetlbUnreserved, ..self.map_flags() };
            return Op::Map(start, length.min(4 * PMD_PAGES), flags);
        }
        Op::Advise(Advice::HugePage, start, length)
    }

    fn op(&mut self) -> Op {
        match self.below(100) {
            0..40 => self.touch(),
            40..68 => {
                let advice = self.advice();
                // A collapse has little effect except on whole PMD ranges.
                let is_large = advice == Advice::Collapse && self.below(2) == 0;
                let (start, length) = if is_large { self.large_range() } else { self.range() };
                Op::Advise(advice, start, length)
            }
            68..76 => {
                let (start, length) = self.range();
                let flags = self.map_flags();
                // Mostly aligned, because an unaligned hugetlb mapping is refused.
                let start = if flags.hugetlb && self.below(8) > 0 { start / PMD_PAGES * PMD_PAGES } else { start };
                Op::Map(start, length, flags)
            }
            76..81 => {
                let (start, length) = self.range();
                Op::Unmap(start, length)
            }
            81..89 => {
                let (start, length) = self.range();
                Op::Protect(start, length, self.protection())
            }
            89..97 if self.kind != Kind::HugetlbReserved => self.remap(),
            _ => {
                let (start, old) = self.range();
                let new = (self.below(600) + 1).min(ARENA_PAGES - start);
                Op::Resize(start, old, new)
            }
        }
    }

    fn touch(&mut self) -> Op {
        let touch = self.pick(&[Touch::Read, Touch::WriteOne, Touch::WriteOne, Touch::WriteZero, Touch::SystemCall]);
        let (start, length) = self.range();
        let stride = self.pick(&[1, 1, 2, 7, 16, 64, 512]);
        Op::Touch(touch, start, length, stride)
    }

    fn advice(&mut self) -> Advice {
        const ADVICES: [Advice; 10] = [
            Advice::HugePage,
            Advice::NoHugePage,
            Advice::DontNeed,
            Advice::DontNeed,
            Advice::Free,
            Advice::Free,
            Advice::Cold,
            Advice::PopulateRead,
            Advice::PopulateWrite,
            Advice::Collapse,
        ];
        match self.kind {
            Kind::Files => self.pick(&ADVICES[..7]),
            Kind::Locks => {
                let usual = self.pick(&ADVICES);
                self.pick(&[usual, usual, usual, usual, Advice::DontNeedLocked, Advice::GuardInstall])
            }
            Kind::Flags => {
                let usual = self.pick(&ADVICES);
                self.pick(&[usual, usual, Advice::GuardInstall, Advice::GuardRemove])
            }
            _ => self.pick(&ADVICES),
        }
    }

    /// Advice that sets a flag of a mapping.
    fn flag(&mut self) -> Op {
        let (start, length) = self.range();
        let advice = self.pick(&[
            Advice::DontFork,
            Advice::DontFork,
            Advice::DoFork,
            Advice::WipeOnFork,
            Advice::WipeOnFork,
            Advice::KeepOnFork,
            Advice::DontDump,
            Advice::DoDump,
            Advice::Random,
            Advice::Sequential,
            Advice::Normal,
            Advice::Mergeable,
            Advice::Unmergeable,
            Advice::WillNeed,
        ]);
        Op::Advise(advice, start, length)
    }

    fn file(&mut self) -> Op {
        let (start, length) = self.range();
        match self.below(2) {
            0 => Op::MapFile(start, length.min(1 + self.below(2 * PMD_PAGES))),
            _ => Op::TouchFile(start, length, self.pick(&[1, 7, 64, 512])),
        }
    }

    fn fork(&mut self) -> Op {
        let writer = self.pick(&[ForkWriter::Child, ForkWriter::Parent]);
        let (start, length) = self.range();
        Op::Fork(writer, start, length, self.pick(&[1, 1, 7, 64, 512]))
    }

    fn scan(&mut self) -> Op {
        Op::Scan(self.pick(&[ScanOf::Process, ScanOf::Process, ScanOf::ProcessAndChild]), 1)
    }

    /// Modes under which small pages and larger folios become huge. Not `always`: khugepaged would scan the memory of all
    /// processes, which takes long on a busy machine.
    fn scan_header(&mut self, header: Header) -> Header {
        let mut header = Header {
            thp: Some(self.pick(&[ThpMode::Madvise, ThpMode::Madvise, ThpMode::Never])),
            max_ptes_none: Some(self.pick(&KHUGEPAGED_LIMITS)),
            max_ptes_shared: Some(self.pick(&KHUGEPAGED_LIMITS)),
            ..header
        };
        header.sizes[PMD_ORDER] = Some(self.pick(&[
            SizeMode::Inherit,
            SizeMode::Inherit,
            SizeMode::Madvise,
            SizeMode::Madvise,
            SizeMode::Never,
        ]));
        header.sizes[ORDER_64K] = Some(self.pick(&[SizeMode::Never, SizeMode::Never, SizeMode::Always]));
        // khugepaged makes them from Linux 7.2 on.
        if self.below(2) == 0 {
            for _ in 0..1 + self.below(3) {
                let order = ORDER_16K + self.below((PMD_ORDER - ORDER_16K) as u64) as usize;
                header.sizes[order] = Some(self.pick(&[SizeMode::Madvise, SizeMode::Madvise, SizeMode::Always]));
            }
        }
        header.with_all_modes()
    }

    fn lock(&mut self) -> Op {
        let (start, length) = self.range();
        match self.below(10) {
            0..5 => Op::LockAll(self.pick(&LOCKS)),
            5 => Op::UnlockAll,
            6..9 => Op::Lock(start, length, self.below(3) == 0),
            _ => Op::Unlock(start, length),
        }
    }

    fn remap(&mut self) -> Op {
        let (old, length) = self.range();
        let shift = self.pick(&[0, 0, 0, 1, 256]);
        let is_resized = self.below(4) == 0;
        let new_length = if is_resized { self.range().1 } else { length };
        // Equal offsets inside the PMD ranges move whole tables; other offsets move single entries.
        let new = (self.below(8) * PMD_PAGES + old % PMD_PAGES + shift).min(ARENA_PAGES - new_length);
        if is_resized {
            return Op::Mremap(old, length, new, new_length);
        }
        let source = self.pick(&[RemapSource::Unmapped, RemapSource::Unmapped, RemapSource::Kept]);
        // The kernel leaves large folios marked as locked when `MREMAP_DONTUNMAP` unlocks them. This is not modelled.
        let source = if self.kind == Kind::Locks { RemapSource::Unmapped } else { source };
        Op::Remap(old, length, new, source)
    }

    fn protection(&mut self) -> Protection {
        if self.kind == Kind::Flags && self.below(2) == 0 {
            return Protection::from_prot(self.below(2) > 0, self.below(2) > 0, self.below(2) > 0);
        }
        self.pick(&[Protection::None, Protection::Read, Protection::ReadWrite, Protection::ReadWrite])
    }

    fn map_flags(&mut self) -> MapFlags {
        let is_hugetlb = self.kind.is_hugetlb() && self.below(4) > 0;
        MapFlags {
            protection: self.protection(),
            noreserve: if is_hugetlb { self.kind == Kind::HugetlbUnreserved } else { self.below(2) == 0 },
            populate: self.below(4) == 0,
            hugetlb: is_hugetlb,
            stack: self.kind == Kind::Flags && self.below(3) == 0,
            backing: Backing::Anonymous,
        }
    }

    fn start(&mut self) -> u64 {
        let pmd_start = self.below(8) * PMD_PAGES;
        pmd_start
            + match self.below(6) {
                0..3 => 0,
                3 => self.pick(&[1, 16, 100, 256, 496, 511]),
                4 => self.below(32) * 16,
                _ => self.below(PMD_PAGES),
            }
    }

    fn range(&mut self) -> (u64, u64) {
        if self.kind == Kind::Narrow && self.below(8) > 0 {
            return self.narrow_range();
        }
        if self.below(5) == 0 {
            return self.large_range();
        }
        let start = self.start();
        let to_boundary = PMD_PAGES - start % PMD_PAGES;
        let length = match self.below(6) {
            0 => 1,
            1 => self.pick(&[2, 8, 16, 64, 256]),
            2 => to_boundary,
            3 => to_boundary + PMD_PAGES * self.below(3),
            4 => 1 + self.below(PMD_PAGES),
            _ => 1 + self.below(3 * PMD_PAGES),
        };
        (start, length.min(ARENA_PAGES - start))
    }

    fn large_range(&mut self) -> (u64, u64) {
        let start = self.below(7) * PMD_PAGES;
        let length = (1 + self.below(8)) * PMD_PAGES;
        (start, length.min(ARENA_PAGES - start))
    }

    fn narrow_range(&mut self) -> (u64, u64) {
        let start = match self.below(3) {
            0 => self.window,
            1 => self.window + self.below(WINDOW_PAGES / 16) * 16,
            _ => self.window + self.below(WINDOW_PAGES),
        };
        let length = match self.below(4) {
            0 => 1,
            1 => self.pick(&[4, 8, 16, 32, 64]),
            2 => 1 + self.below(WINDOW_PAGES),
            // Up to the end of the window.
            _ => WINDOW_PAGES - (start - self.window),
        };
        (start, length.min(ARENA_PAGES - start))
    }
}
