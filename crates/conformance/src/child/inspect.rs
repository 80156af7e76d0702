//! Reads the kernel's view of the arena: totals, page tables, and the state of every page.

use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;

use hksim_linux_mm::PageState;
use hksim_linux_mm::script::ARENA_PAGES;
use hksim_linux_probe::PAGE_BYTES;
use hksim_linux_probe::pagemap::PageMap;
use hksim_linux_probe::procfs::ProcText;
use hksim_linux_probe::resident::Resident;
use hksim_linux_probe::sysfs::THP;

use super::Unsupported;
use super::files;
use super::shortage::Shortage;
use crate::observation::PageRun;
use crate::unobservable::Unobservable;

/// Bits of a frame's flags in `/proc/kpageflags` (`include/uapi/linux/kernel-page-flags.h`).
const COMPOUND_HEAD: u64 = 1 << 15;
const COMPOUND_TAIL: u64 = 1 << 16;
const HUGETLB: u64 = 1 << 17;
const ZERO_PAGE: u64 = 1 << 24;
/// The bit of a `pagemap` entry that marks a present page.
const PRESENT: u64 = 1 << 63;
/// The bits of a `pagemap` entry that contain the frame number.
const FRAME: u64 = (1 << 55) - 1;

const SMAPS_BYTES: usize = 1 << 14;
const STATES: [PageState; 7] = [
    PageState::None,
    PageState::Zero,
    PageState::Base,
    PageState::Mthp,
    PageState::Thp,
    PageState::HugeZero,
    PageState::Hugetlb,
];

/// The open files of `/proc` and `/sys`, and resident buffers for reading them.
pub(super) struct Inspector {
    /// `None` if the kernel does not support page-table scans.
    scans: Option<PageMap>,
    pagemap: File,
    /// `None` if this user may not read the file or may not see frame numbers.
    kpageflags: Option<File>,
    smaps: File,
    status: ProcText,
    vmstat: ProcText,
    collapsed: ProcText,
    shortage: Shortage,
    frames: Resident<u64>,
    flags: Resident<u64>,
    /// Indices into [`STATES`].
    states: Resident<u8>,
    smaps_text: Resident<u8>,
    spare: Resident<u8>,
    page_table_kb_before: u64,
    splits_before: u64,
    collapsed_before: u64,
}

#[derive(Default)]
struct Totals {
    rss_kb: u64,
    huge_kb: u64,
    lazy_kb: u64,
    vmas: u64,
}

impl Inspector {
    /// Opens all files.
    pub(super) fn open() -> Result<Inspector, Unsupported> {
        let open = |path: &'static str| File::open(path).map_err(|why| Unsupported::new(path, why));
        let text = |path: &'static str| ProcText::open(path).map_err(|why| Unsupported::new(path, why));
        let memory = |why| Unsupported::new("memory", why);
        let pages = ARENA_PAGES as usize;
        let collapsed = format!("{THP}/khugepaged/pages_collapsed");
        let mut look = Inspector {
            scans: PageMap::open().ok(),
            pagemap: open("/proc/self/pagemap")?,
            kpageflags: File::open("/proc/kpageflags").ok(),
            smaps: open("/proc/self/smaps")?,
            status: text("/proc/self/status")?,
            vmstat: text("/proc/vmstat")?,
            collapsed: ProcText::open(&collapsed).map_err(|why| Unsupported::new("transparent huge pages", why))?,
            shortage: Shortage::open(),
            frames: Resident::zeroed(pages).map_err(memory)?,
            flags: Resident::zeroed(pages).map_err(memory)?,
            states: Resident::zeroed(pages).map_err(memory)?,
            smaps_text: Resident::zeroed(SMAPS_BYTES).map_err(memory)?,
            spare: Resident::zeroed(PAGE_BYTES as usize).map_err(memory)?,
            page_table_kb_before: 0,
            splits_before: 0,
            collapsed_before: 0,
        };
        if look.frame_of(look.states.as_ptr() as u64).map_err(|why| Unsupported::new("/proc/self/pagemap", why))? == 0 {
            look.kpageflags = None;
        }
        if look.scans.is_none() && look.kpageflags.is_none() {
            let why = io::Error::from_raw_os_error(libc::EPERM);
            return Err(Unsupported::new("neither page-table scans (Linux 6.7) nor frame numbers (root)", why));
        }
        Ok(look)
    }

    fn frame_of(&self, address: u64) -> io::Result<u64> {
        let mut entry = [0; 8];
        self.pagemap.read_exact_at(&mut entry, address / PAGE_BYTES * 8)?;
        Ok(u64::from_ne_bytes(entry) & FRAME)
    }

    /// The facts that this kernel or this user's rights do not show.
    pub(super) fn unobservable(&self) -> Vec<Unobservable> {
        let entries = self.scans.is_none().then_some(Unobservable::Entries);
        entries.into_iter().chain(self.kpageflags.is_none().then_some(Unobservable::Folios)).collect()
    }

    /// Call this before creating a script's arena.
    pub(super) fn begin(&mut self) {
        self.page_table_kb_before = self.status.number("VmPTE:").unwrap_or(0);
        self.splits_before = self.vmstat.number("thp_split_pmd ").unwrap_or(0);
        self.collapsed_before = self.collapsed.number("").unwrap_or(0);
        self.shortage.begin(&mut self.vmstat);
    }

    /// Collapses by khugepaged since [`Inspector::begin`], machine-wide, without those that were expected.
    pub(super) fn collapsed(&mut self) -> u64 {
        self.collapsed.number("").unwrap_or(0).saturating_sub(self.collapsed_before)
    }

    /// Leaves out collapses that the script waited for.
    pub(super) fn expect_collapses(&mut self, collapses: u64) {
        self.collapsed_before += collapses;
    }

    /// Signs of memory shortage since [`Inspector::begin`], machine-wide; 0 if there were none.
    pub(super) fn shortage(&mut self) -> u64 {
        self.shortage.since(&mut self.vmstat)
    }

    /// Writes the current state: totals, then runs of page states.
    pub(super) fn report(&mut self, arena: Range<u64>, out: &mut impl Write) -> io::Result<()> {
        self.drain();
        let totals = self.totals(&arena)?;
        let page_table_kb = self.status.number("VmPTE:").unwrap_or(0).saturating_sub(self.page_table_kb_before);
        let splits = self.vmstat.number("thp_split_pmd ").unwrap_or(0).saturating_sub(self.splits_before);
        self.read_states(&arena)?;
        for (page, state) in self.states.iter_mut().enumerate() {
            if files::is_mapped(page as u64) {
                *state = 0;
            }
        }
        let Totals { rss_kb, huge_kb, lazy_kb, vmas } = totals;
        write!(out, "st {rss_kb} {huge_kb} {lazy_kb} {vmas} {page_table_kb} {splits}")?;
        for run in self.states.chunk_by(|a, b| a == b) {
            write!(out, " {}", PageRun(STATES[usize::from(run[0])], run.len() as u64))?;
        }
        writeln!(out)
    }

    /// Drains the CPU's batch of lazily freed pages: any MADV_FREE on this CPU flushes the batch.
    fn drain(&mut self) {
        let spare = self.spare.as_mut_ptr().cast();
        // SAFETY: our own page, whose contents are not needed.
        unsafe {
            if libc::madvise(spare, PAGE_BYTES as usize, libc::MADV_FREE) != 0 {
                // A script has locked the spare page.
                libc::munlock(spare, PAGE_BYTES as usize);
                libc::madvise(spare, PAGE_BYTES as usize, libc::MADV_FREE);
            }
        }
    }

    /// Sums the arena's mappings in smaps, and stops reading after them. File mappings are counted, but not their memory.
    fn totals(&mut self, arena: &Range<u64>) -> io::Result<Totals> {
        let mut totals = Totals::default();
        let (mut at, mut held, mut is_inside) = (0, 0, false);
        files::forget_pages();
        loop {
            let got = self.smaps.read_at(&mut self.smaps_text[held..], at)?;
            at += got as u64;
            let text = &self.smaps_text[..held + got];
            let end = text.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
            for line in text[..end].split(|&byte| byte == b'\n') {
                match first_address(line) {
                    Some(start) if start >= arena.end => return Ok(totals),
                    Some(start) => {
                        is_inside = start >= arena.start;
                        totals.vmas += u64::from(is_inside);
                        if is_inside && files::is_first_line(line) {
                            let page = |address: u64| (address.min(arena.end) - arena.start) / PAGE_BYTES;
                            files::note_pages(page(start)..page(end_address(line)));
                            is_inside = false;
                        }
                    }
                    None if is_inside => totals.add(line),
                    None => {}
                }
            }
            if got == 0 {
                return Ok(totals);
            }
            held = text.len() - end;
            let filled = text.len();
            self.smaps_text.copy_within(end..filled, 0);
        }
    }

    fn read_states(&mut self, arena: &Range<u64>) -> io::Result<()> {
        let first = arena.start / PAGE_BYTES;
        self.states.fill(0);
        let Some(scans) = &mut self.scans else { return self.read_states_by_frame(first) };
        for seen in scans.scan(first, arena.end / PAGE_BYTES) {
            let pages = (seen.first_page - first) as usize..(seen.end_page - first) as usize;
            match (seen.is_zero, seen.is_huge, &self.kpageflags) {
                (true, false, _) => self.states[pages].fill(1),
                (true, true, _) => self.states[pages].fill(5),
                (false, is_huge, None) => self.states[pages].fill(if is_huge { 4 } else { 2 }),
                (false, is_huge, Some(kpageflags)) => {
                    let flags = &mut self.flags[pages.clone()];
                    let frames = &mut self.frames[pages.clone()];
                    read_words(&self.pagemap, seen.first_page, frames)?;
                    read_flags(kpageflags, frames, flags)?;
                    for (state, flags) in self.states[pages].iter_mut().zip(flags) {
                        *state = state_of(*flags, is_huge);
                    }
                }
            }
        }
        if scans.failures() > 0 {
            return Err(io::Error::other("the kernel did not complete a page-table scan"));
        }
        Ok(())
    }

    /// Reads the states without page-table scans, from the flags of the frames only. Pages mapped by huge entries look
    /// like other pages of large folios.
    fn read_states_by_frame(&mut self, first_page: u64) -> io::Result<()> {
        let Some(kpageflags) = &self.kpageflags else { return Err(io::ErrorKind::Unsupported.into()) };
        read_words(&self.pagemap, first_page, &mut self.frames)?;
        let mut at = 0;
        for run in self.frames.chunk_by(|a, b| (a ^ b) & PRESENT == 0) {
            let pages = at..at + run.len();
            at = pages.end;
            if run[0] & PRESENT == 0 {
                continue;
            }
            let flags = &mut self.flags[pages.clone()];
            read_flags(kpageflags, run, flags)?;
            for (state, flags) in self.states[pages].iter_mut().zip(flags) {
                *state = if *flags & ZERO_PAGE != 0 { 1 } else { state_of(*flags, false) };
            }
        }
        Ok(())
    }
}

/// The index of a state, from the flags of a frame that is not a zero page.
fn state_of(flags: u64, is_huge: bool) -> u8 {
    match flags {
        flags if flags & HUGETLB != 0 => 6,
        _ if is_huge => 4,
        flags if flags & (COMPOUND_HEAD | COMPOUND_TAIL) != 0 => 3,
        _ => 2,
    }
}

/// Reads the frame flags of a run of present pages.
fn read_flags(kpageflags: &File, frames: &[u64], flags: &mut [u64]) -> io::Result<()> {
    let mut at = 0;
    while at < frames.len() {
        let first = frames[at] & FRAME;
        let in_row = frames[at..].iter().zip(first..).take_while(|(entry, frame)| *entry & FRAME == *frame).count();
        read_words(kpageflags, first, &mut flags[at..at + in_row])?;
        at += in_row;
    }
    Ok(())
}

/// Reads 64-bit words of a file, from word `index` on.
fn read_words(file: &File, index: u64, into: &mut [u64]) -> io::Result<()> {
    let (bytes, offset) = (size_of_val(into), (index * 8) as libc::off_t);
    // SAFETY: the kernel writes at most as many bytes as `into` has.
    match unsafe { libc::pread(file.as_raw_fd(), into.as_mut_ptr().cast(), bytes, offset) } {
        got if got == bytes as isize => Ok(()),
        got if got < 0 => Err(io::Error::last_os_error()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

impl Totals {
    fn add(&mut self, line: &[u8]) {
        for (key, sum) in [
            (&b"Rss:"[..], &mut self.rss_kb),
            (b"AnonHugePages:", &mut self.huge_kb),
            (b"LazyFree:", &mut self.lazy_kb),
        ] {
            if let Some(rest) = line.strip_prefix(key) {
                let digits = rest.iter().skip_while(|byte| **byte == b' ').take_while(|byte| byte.is_ascii_digit());
                *sum += digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0'));
            }
        }
    }
}

/// The start address in the first line of a mapping.
fn first_address(line: &[u8]) -> Option<u64> {
    let digits = line.iter().position(|&byte| byte == b'-')?;
    hexadecimal(&line[..digits])
}

/// The end address in the first line of a mapping; 0 in other lines.
fn end_address(line: &[u8]) -> u64 {
    let mut words = line.split(|&byte| byte == b'-' || byte == b' ');
    words.nth(1).and_then(hexadecimal).unwrap_or(0)
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let digit = |byte: &u8| (*byte as char).to_digit(16).map(u64::from);
    digits.iter().try_fold(0u64, |number, byte| Some(number << 4 | digit(byte)?))
}
