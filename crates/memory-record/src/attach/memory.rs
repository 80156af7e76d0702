//! The mappings and pages of a stopped process.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::ops::Range;

use hksim_linux_probe::page_flags::PageFlags;
use hksim_linux_probe::page_states::{Entry, PageState, PageStates, PagesInState};
use hksim_linux_probe::smaps::{self, Mapping};
use hksim_memory_trace::{
    MapOp, MappingAtStart, MappingKind, MappingTraits, Op, Origin, PAGE_BYTES, PageAtStart, PagesAtStart,
};

use super::target::Target;
use crate::code_map::CodeMap;
use crate::error::AttachError;
use crate::interpreter::ZERO_DEVICE;
use crate::spaces::{Space, ThpState};

/// Pages of a huge page.
const HUGE_PAGES: u64 = 512;
/// Bytes of a huge page.
const HUGE_BYTES: u64 = HUGE_PAGES * PAGE_BYTES;
/// First address above those that programs can have.
const ADDRESSES_END: u64 = 1 << 47;
/// Pages whose entries are read at once.
const ENTRIES_AT_ONCE: u64 = 1 << 16;
/// `MAP_DROPPABLE`.
const MAP_DROPPABLE: u32 = 0x08;

/// What is read while the process is stopped: as little as possible. smaps is not: it looks at each page, which takes 5
/// times as long as a scan of the page tables.
#[derive(Debug)]
pub struct AtStop {
    /// The mappings as in maps: addresses, mode and name.
    mappings: Vec<Mapping>,
    /// The pages of those that are certainly anonymous; `None` for others.
    scanned: Vec<Option<Vec<PagesInState>>>,
    states: PageStates,
}

impl AtStop {
    /// Reads the memory of a process that is stopped.
    ///
    /// # Errors
    /// /proc cannot be read, or this kernel cannot scan page tables (before Linux 6.7).
    pub fn read(target: &Target) -> Result<Self, AttachError> {
        let mut mappings = read_mappings(target, "maps")?;
        mappings.retain(|mapping| mapping.addresses.end <= ADDRESSES_END);
        let states = PageStates::of_process(target.pid).map_err(|why| pages_unread(target, why))?;
        let scan = |mapping: &Mapping| mapping.is_anonymous().then(|| states.in_range(pages_of(mapping))).transpose();
        let scanned = mappings.iter().map(scan).collect::<io::Result<_>>();
        Ok(Self { scanned: scanned.map_err(|why| pages_unread(target, why))?, mappings, states })
    }

    /// Reads the rest, when the process runs on: the advice and locks of mappings, and which pages are shared or given up.
    /// What changes meanwhile is recorded as well.
    ///
    /// # Errors
    /// The process has ended.
    pub fn complete(self, target: &Target) -> Result<MemoryAtStart, AttachError> {
        let Self { mut mappings, scanned, states } = self;
        let later = read_mappings(target, "smaps")?;
        mappings.iter_mut().for_each(|mapping| learn(mapping, &later));
        let mut reader = Reader { states, flags: PageFlags::open().ok(), lazy_unknown_bytes: 0 };
        let mut memory = MemoryAtStart::default();
        for (mapping, scanned) in mappings.iter().zip(scanned) {
            let pages = reader.pages(mapping, scanned).map_err(|why| pages_unread(target, why))?;
            memory.add(mapping, pages);
        }
        memory.lazy_unknown_bytes = reader.lazy_unknown_bytes;
        Ok(memory)
    }
}

fn read_mappings(target: &Target, file: &str) -> Result<Vec<Mapping>, AttachError> {
    let path = format!("/proc/{}/{file}", target.pid);
    // Names of files need not be UTF-8.
    let text = fs::read(&path).map_err(|source| match source.raw_os_error() {
        Some(libc::ESRCH | libc::ENOENT) => target.ended(),
        _ => AttachError::Read { path, source },
    })?;
    Ok(smaps::parse(&String::from_utf8_lossy(&text)))
}

fn pages_unread(target: &Target, source: io::Error) -> AttachError {
    match source.raw_os_error() {
        Some(libc::ENOTTY | libc::EINVAL) => AttachError::NoPageScan,
        Some(libc::ESRCH | libc::ENOENT) => target.ended(),
        _ => AttachError::Read { path: format!("/proc/{}/pagemap", target.pid), source },
    }
}

/// Adds to a mapping what smaps said a moment later: of the same mapping, or if that has changed, of one that overlaps it
/// and is of the same kind.
fn learn(mapping: &mut Mapping, later: &[Mapping]) {
    let overlapping = |other: &&Mapping| {
        other.addresses.start < mapping.addresses.end && mapping.addresses.start < other.addresses.end
    };
    let first = later.partition_point(|other| other.addresses.end <= mapping.addresses.start);
    let mut candidates = later[first..].iter().take_while(overlapping);
    let is_alike = |other: &&Mapping| other.mode == mapping.mode && other.inode == mapping.inode;
    let known = candidates.clone().find(|other| is_alike(other) && other.addresses == mapping.addresses);
    let known = known.or_else(|| candidates.find(is_alike));
    *mapping = match known {
        Some(known) => Mapping {
            addresses: mapping.addresses.clone(),
            offset: mapping.offset,
            name: std::mem::take(&mut mapping.name),
            ..known.clone()
        },
        // The kernel charges private memory that can be written.
        None if mapping.is_writable() => Mapping { flags: vec![*b"ac"], ..mapping.clone() },
        None => return,
    };
}

/// What a process has.
#[derive(Debug, Default)]
pub struct MemoryAtStart {
    mappings: Vec<(MappingAtStart, Option<String>, Vec<PagesAtStart>)>,
    code: CodeMap,
    attached: HashMap<u64, u64>,
    brk: Option<u64>,
    /// Bytes that were given up with `MADV_FREE`, or not: it is unknown which of the pages these are.
    pub lazy_unknown_bytes: u64,
}

impl MemoryAtStart {
    fn add(&mut self, mapping: &Mapping, pages: Vec<PagesAtStart>) {
        let name = Some(mapping.name.clone()).filter(|name| !name.is_empty());
        let is_file = mapping.name.starts_with('/');
        let is_executable = mapping.mode.as_bytes().get(2) == Some(&b'x');
        let path = if is_file { Some(mapping.name.as_str()) } else { is_executable.then_some("") };
        if let Some(path) = path {
            self.code.map(mapping.addresses.clone(), Some((path, mapping.offset)));
        }
        if mapping.name.starts_with("/SYSV") {
            self.attached.insert(mapping.addresses.start, mapping.bytes());
        }
        if mapping.name == "[heap]" {
            self.brk = Some(mapping.addresses.end.max(self.brk.unwrap_or_default()));
        }
        let start = MappingAtStart { map: map_of(mapping), traits: traits_of(mapping) };
        self.mappings.push((start, name, pages));
    }

    /// The address space, and the operations that tell what was there.
    pub fn into_space(self, thp: ThpState) -> (Space, Vec<(Op, Option<String>)>) {
        let Self { mappings, code, attached, brk, .. } = self;
        let space = Space { image: 0, forked_from: None, users: 1, has_stack: true, brk, attached, thp, code };
        let operations = mappings.into_iter().flat_map(|(mapping, name, pages)| {
            let mapping = (Op::MappingAtStart(Box::new(mapping)), name);
            [mapping].into_iter().chain(pages.into_iter().map(|pages| (Op::PagesAtStart(pages), None)))
        });
        (space, operations.collect())
    }
}

fn pages_of(mapping: &Mapping) -> Range<u64> {
    mapping.addresses.start / PAGE_BYTES..mapping.addresses.end / PAGE_BYTES
}

fn kind_of(mapping: &Mapping) -> MappingKind {
    let is_shared = mapping.mode.as_bytes().get(3) == Some(&b's');
    match mapping.name.as_str() {
        _ if is_shared => MappingKind::Shared,
        _ if mapping.has(b"ht") && mapping.page_bytes == HUGE_BYTES => MappingKind::Anonymous,
        _ if mapping.has(b"ht") => MappingKind::OtherHugetlb,
        _ if mapping.has(b"gd") => MappingKind::GrowingStack,
        ZERO_DEVICE => MappingKind::Anonymous,
        name if name.starts_with('/') => MappingKind::PrivateFile,
        name if name.starts_with("[v") || name == "[uprobes]" || mapping.has(b"ss") => MappingKind::Special,
        _ => MappingKind::Anonymous,
    }
}

/// The mapping as if one call had made it.
fn map_of(mapping: &Mapping) -> MapOp {
    let bits = |letters: &[(u8, i32)]| -> u32 {
        let set = letters.iter().filter(|(letter, _)| mapping.mode.as_bytes().contains(letter));
        set.fold(0, |bits, &(_, bit)| bits | bit as u32)
    };
    let protection = bits(&[(b'r', libc::PROT_READ), (b'w', libc::PROT_WRITE), (b'x', libc::PROT_EXEC)]);
    let kind = kind_of(mapping);
    let is_anonymous =
        mapping.name != ZERO_DEVICE && matches!(kind, MappingKind::Anonymous | MappingKind::GrowingStack);
    let flags = [
        (kind == MappingKind::Shared, libc::MAP_SHARED as u32),
        (kind != MappingKind::Shared && !mapping.has(b"dp"), libc::MAP_PRIVATE as u32),
        (mapping.has(b"dp"), MAP_DROPPABLE),
        (is_anonymous, libc::MAP_ANONYMOUS as u32),
        (mapping.has(b"nr"), libc::MAP_NORESERVE as u32),
        (mapping.has(b"ht"), libc::MAP_HUGETLB as u32),
        (kind == MappingKind::GrowingStack, libc::MAP_GROWSDOWN as u32),
    ];
    let flags = flags.into_iter().filter(|(is_set, _)| *is_set).fold(0, |flags, (_, flag)| flags | flag);
    let origin = if mapping.name == "[heap]" { Origin::Brk } else { Origin::Mmap };
    MapOp { pages: pages_of(mapping), hint_page: 0, kind, origin, protection, flags, name: None }
}

fn traits_of(mapping: &Mapping) -> MappingTraits {
    let known = [
        (b"hg", MappingTraits::HUGE_PAGE),
        (b"nh", MappingTraits::NO_HUGE_PAGE),
        (b"lo", MappingTraits::LOCKED),
        (b"lf", MappingTraits::LOCKED_ON_FAULT),
        (b"dc", MappingTraits::DONT_FORK),
        (b"wf", MappingTraits::WIPE_ON_FORK),
        (b"dd", MappingTraits::DONT_DUMP),
        (b"rr", MappingTraits::RANDOM),
        (b"sr", MappingTraits::SEQUENTIAL),
        (b"mg", MappingTraits::MERGEABLE),
        (b"ac", MappingTraits::ACCOUNTED),
    ];
    let set = known.into_iter().filter(|(flag, _)| mapping.has(flag));
    set.fold(MappingTraits::default(), |traits, (_, one)| traits.with(one))
}

/// Reads pages, and what else the kernel tells about them.
struct Reader {
    states: PageStates,
    /// `None` if this user is not root.
    flags: Option<PageFlags>,
    /// By how much the pages that are known to be given up differ from smaps, in all mappings. smaps leaves out those that
    /// were written since, and they cannot be told from the others. Without `flags`, single pages are not known at all.
    lazy_unknown_bytes: u64,
}

impl Reader {
    /// The pages of a mapping that are not absent, with what was scanned while the process was stopped.
    fn pages(&mut self, mapping: &Mapping, scanned: Option<Vec<PagesInState>>) -> io::Result<Vec<PagesAtStart>> {
        match (kind_of(mapping), scanned) {
            (MappingKind::Anonymous | MappingKind::GrowingStack, Some(scanned)) => self.anonymous(mapping, scanned),
            // Memory of the hugetlb pool, and of /dev/zero.
            (MappingKind::Anonymous, None) => {
                let scanned = self.states.in_range(pages_of(mapping))?;
                self.anonymous(mapping, scanned)
            }
            _ => self.tables(mapping),
        }
    }

    /// A page in each 2 MiB range that the mapping shares with others, if it has a page there: the range then has a page
    /// table, which keeps huge pages out.
    fn tables(&self, mapping: &Mapping) -> io::Result<Vec<PagesAtStart>> {
        let pages = pages_of(mapping);
        let head = pages.start..pages.end.min(pages.start.next_multiple_of(HUGE_PAGES));
        let tail = head.end.max(pages.end / HUGE_PAGES * HUGE_PAGES)..pages.end;
        let mut found = Vec::new();
        for edge in [head, tail].into_iter().filter(|edge| !edge.is_empty()) {
            let first = self.states.in_range(edge)?.into_iter().next();
            found.extend(
                first
                    .map(|run| PagesAtStart { pages: run.pages.start..run.pages.start + 1, state: PageAtStart::Small }),
            );
        }
        Ok(found)
    }

    fn anonymous(&mut self, mapping: &Mapping, scanned: Vec<PagesInState>) -> io::Result<Vec<PagesAtStart>> {
        let is_all_lazy = mapping.lazy_free_bytes > 0 && mapping.lazy_free_bytes == mapping.rss_bytes;
        let has_details = mapping.shared_bytes > 0 || mapping.lazy_free_bytes > 0 && !is_all_lazy;
        let mut found = Vec::new();
        for run in scanned {
            match run.state {
                PageState::Small | PageState::Huge if has_details => self.detailed(mapping, &run, &mut found)?,
                PageState::Small | PageState::Huge if is_all_lazy => push(&mut found, run.pages, lazy(run.state)),
                state => push(&mut found, run.pages, plain(state)),
            }
        }
        let is_lazy = |pages: &&PagesAtStart| matches!(pages.state, PageAtStart::SmallLazy | PageAtStart::HugeLazy);
        let lazy_pages: u64 = found.iter().filter(is_lazy).map(|run| run.pages.end - run.pages.start).sum();
        self.lazy_unknown_bytes += mapping.lazy_free_bytes.abs_diff(lazy_pages * PAGE_BYTES);
        Ok(found)
    }

    /// Pages of a mapping of which some are shared or given up.
    fn detailed(&self, mapping: &Mapping, run: &PagesInState, found: &mut Vec<PagesAtStart>) -> io::Result<()> {
        let step = if run.state == PageState::Huge { HUGE_PAGES } else { 1 };
        for start in run.pages.clone().step_by(ENTRIES_AT_ONCE as usize) {
            let part = start..run.pages.end.min(start + ENTRIES_AT_ONCE);
            let entries = self.states.entries(part.clone())?;
            let entries: Vec<Entry> = entries.chunks(step as usize).filter_map(of_whole).collect();
            let given_up = self.given_up(mapping, &entries);
            for (page, (entry, is_given_up)) in part.clone().step_by(step as usize).zip(entries.iter().zip(given_up)) {
                let state = match (run.state, entry.is_exclusive()) {
                    // It was dropped since, which is recorded.
                    (state, _) if !entry.is_present() => plain(state),
                    (PageState::Huge, false) => PageAtStart::HugeShared,
                    (_, false) => PageAtStart::SmallShared,
                    (state, true) if is_given_up => lazy(state),
                    (state, true) => plain(state),
                };
                push(found, page..part.end.min(page + step), state);
            }
        }
        Ok(())
    }

    /// Which pages of a mapping are given up, as far as that can be read: none otherwise.
    fn given_up(&self, mapping: &Mapping, entries: &[Entry]) -> Vec<bool> {
        let flags = self.flags.as_ref().filter(|_| mapping.lazy_free_bytes > 0);
        // Frame 0 is never anonymous memory.
        let frames = entries.iter().map(|entry| entry.frame_number().unwrap_or_default()).collect::<Vec<_>>();
        let read = flags.and_then(|flags| flags.lazily_freed(&frames).ok());
        read.unwrap_or_else(|| vec![false; entries.len()])
    }
}

/// The entry that tells the state of a page, given those of its parts: another process can map some parts of a huge page only.
fn of_whole(parts: &[Entry]) -> Option<Entry> {
    let is_shared = |part: &&Entry| part.is_present() && !part.is_exclusive();
    parts.iter().find(is_shared).or(parts.first()).copied()
}

fn plain(state: PageState) -> PageAtStart {
    match state {
        PageState::Small => PageAtStart::Small,
        PageState::Huge => PageAtStart::Huge,
        PageState::Zero => PageAtStart::Zero,
        PageState::HugeZero => PageAtStart::HugeZero,
        PageState::Swapped => PageAtStart::Swapped,
        PageState::Guard => PageAtStart::Guard,
    }
}

fn lazy(state: PageState) -> PageAtStart {
    if state == PageState::Huge { PageAtStart::HugeLazy } else { PageAtStart::SmallLazy }
}

/// Adds pages after the earlier ones.
fn push(found: &mut Vec<PagesAtStart>, pages: Range<u64>, state: PageAtStart) {
    match found.last_mut() {
        Some(last) if last.state == state && last.pages.end == pages.start => last.pages.end = pages.end,
        _ => found.push(PagesAtStart { pages, state }),
    }
}
