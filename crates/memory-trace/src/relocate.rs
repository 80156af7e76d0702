//! Gives a recording the addresses of another run of the same program.
//!
//! With random addresses, no two runs use the same pages. What decides about huge pages is where mappings lie relative
//! to 2 MiB boundaries, so a prediction for one run must use that run's addresses. Both recordings hold the same calls;
//! each mapping of the first corresponds to one of the second.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::path::Path;

use crate::edit::push_renamed;
use crate::error::MemoryTraceError;
use crate::event::{Event, MapOp, MappingKind, Op, Origin};
use crate::header::ProcessId;
use crate::reader::Reader;
use crate::trim::Aligned;
use crate::writer::Writer;

/// The first difference between the calls of two runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallMismatch {
    /// Number of mappings before the difference; they agree.
    pub mappings_equal: u64,
    /// The call of the recording; `None` if it has fewer calls.
    pub ours: Option<String>,
    /// The call of the other run.
    pub theirs: Option<String>,
}

/// A mapping or move of a run: its shape, and where it is.
struct Placed {
    shape: Shape,
    start: u64,
}

/// What must be equal in both runs.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Shape {
    words: &'static str,
    pages: u64,
    protection: u32,
    flags: u32,
}

impl Shape {
    /// The shape of an operation that makes or moves a mapping, and where the mapping begins. `None` for mappings that
    /// differ between kernels.
    fn of(op: &Op) -> Option<(Self, u64)> {
        match op {
            Op::Map(map) if is_special_of_exec(map) || is_stack_growth(map) => None,
            Op::Map(map) => {
                let MapOp { pages, kind, protection, flags, .. } = &**map;
                // The first mapping of a stack depends on its random start.
                let length = if *kind == MappingKind::GrowingStack { 0 } else { pages.end - pages.start };
                Some((Self { words: kind.words(), pages: length, protection: *protection, flags: *flags }, pages.start))
            }
            Op::Remap { new, flags, .. } => {
                let length = new.end - new.start;
                Some((Self { words: "mremap", pages: length, protection: 0, flags: *flags }, new.start))
            }
            _ => None,
        }
    }

    fn text(&self) -> String {
        format!("{} of {} pages (protection {}, flags {:#x})", self.words, self.pages, self.protection, self.flags)
    }
}

/// Whether the kernel extended a stack. When it does so depends on the stack's random start.
fn is_stack_growth(map: &MapOp) -> bool {
    map.kind == MappingKind::GrowingStack && map.origin == Origin::Kernel
}

/// Whether a mapping is the vdso or its data. Kernels have them in different numbers and sizes.
fn is_special_of_exec(map: &MapOp) -> bool {
    map.kind == MappingKind::Special && map.origin == Origin::Exec
}

/// Whether an operation makes or moves a mapping, so that it needs a new place.
fn begins_mapping(op: &Op) -> bool {
    match op {
        Op::Map(map) => !is_stack_growth(map),
        Op::Remap { .. } => true,
        _ => false,
    }
}

/// Decides where the mappings of a rewritten recording begin.
pub trait Placement {
    /// Why the rewriting stops early.
    type Stop;

    /// The first page of the mapping that an operation of the recording makes, or the reason to stop. `moves` says
    /// where earlier mappings are now. Only for operations that make or move a mapping.
    ///
    /// # Errors
    /// The recording cannot be rewritten.
    fn start(&mut self, op: &Op, moves: &Moves) -> Result<u64, Self::Stop>;

    /// The operation was performed, with its new addresses.
    fn performed(&mut self, _op: &Op) {}
}

/// A rewritten recording.
#[derive(Clone, Debug)]
pub struct Rewritten<S> {
    /// Why the rewriting stopped early; the copy is then useless.
    pub stopped: Option<S>,
    /// What each forked child inherits, by its process id in the recording.
    pub forks: BTreeMap<ProcessId, Moves>,
    /// Mappings that the program aligned, by unmapping their ends or by rounding an address within. They are aligned in the
    /// copy, too.
    pub mappings_aligned: u64,
}

/// A recording with the addresses of another run.
pub type Relocated = Rewritten<CallMismatch>;

/// Writes a copy of a recording in which mappings begin where `placement` says. The mappings of a forked process began
/// at `inherited`. `step` names the change in the copy's header.
///
/// # Errors
/// The recording cannot be read or is damaged, or the copy cannot be written.
pub fn rewrite<P: Placement>(
    from: &Path,
    to: &Path,
    step: &str,
    placement: &mut P,
    inherited: Moves,
) -> Result<Rewritten<P::Stop>, MemoryTraceError> {
    let mut aligned = Aligned::of(from)?;
    let mappings_aligned = aligned.mappings();
    let mut reader = Reader::open(from)?;
    let mut header = reader.header().clone();
    header.history.push(step.to_string());
    let mut writer = Writer::create(to, &header)?;
    let (mut moves, mut forks) = (inherited, BTreeMap::new());
    let (mut events, mut rewritten, mut number) = (Vec::new(), Vec::new(), 0);
    while reader.next_chunk(&mut events)? {
        for event in events.drain(..) {
            let start = match begins_mapping(&event.op) {
                true => match placement.start(&event.op, &moves) {
                    Ok(start) => start,
                    Err(stop) => return Ok(Rewritten { stopped: Some(stop), forks, mappings_aligned }),
                },
                false => 0,
            };
            aligned.apply(number, event, start, &mut moves, &mut rewritten);
            number += 1;
            for event in rewritten.drain(..) {
                placement.performed(&event.op);
                if let Op::Fork { child_pid } = event.op {
                    forks.insert(child_pid, moves.clone());
                }
                push_renamed(&reader, &mut writer, event)?;
            }
        }
    }
    writer.finish(&reader.footer().cloned().unwrap_or_default())?;
    Ok(Rewritten { stopped: None, forks, mappings_aligned })
}

/// Writes a copy of the recording `from` with the addresses of the run that `like` recorded. Returns the first
/// difference if the two runs made different mappings; the copy is then useless.
///
/// # Errors
/// A recording cannot be read or is damaged, or the copy cannot be written.
pub fn relocate(from: &Path, like: &Path, to: &Path) -> Result<Option<CallMismatch>, MemoryTraceError> {
    Ok(relocate_forked(from, like, to, Moves::default())?.stopped)
}

/// [`relocate`] for a process that began with the mappings of its parent, which are at `inherited`.
///
/// # Errors
/// As for [`relocate`].
pub fn relocate_forked(from: &Path, like: &Path, to: &Path, inherited: Moves) -> Result<Relocated, MemoryTraceError> {
    let mut theirs = Other::of(like)?;
    let mut relocated = rewrite(from, to, "relocate", &mut theirs, inherited)?;
    if relocated.stopped.is_none() {
        let rest = theirs.placed.pop_front().map(|rest| rest.shape.text());
        let mismatch = |rest| CallMismatch { mappings_equal: theirs.equal, ours: None, theirs: Some(rest) };
        relocated.stopped = rest.map(mismatch);
    }
    Ok(relocated)
}

/// The mappings of another run, from the next one on.
struct Other {
    placed: VecDeque<Placed>,
    /// First pages of the vdso and its data.
    special: VecDeque<u64>,
    equal: u64,
}

impl Other {
    fn of(path: &Path) -> Result<Self, MemoryTraceError> {
        let mut reader = Reader::open(path)?;
        let mut other = Self { placed: VecDeque::new(), special: VecDeque::new(), equal: 0 };
        let mut events = Vec::new();
        while reader.next_chunk(&mut events)? {
            for Event { op, .. } in &events {
                match op {
                    Op::Map(map) if is_special_of_exec(map) => other.special.push_back(map.pages.start),
                    _ => other.placed.extend(Shape::of(op).map(|(shape, start)| Placed { shape, start })),
                }
            }
        }
        Ok(other)
    }

    /// The place of the next part of the vdso. If the other kernel has fewer parts, the last ones share a place: the
    /// program has no memory there.
    fn special_start(&mut self) -> Option<u64> {
        match self.special.len() {
            0 | 1 => self.special.front().copied(),
            _ => self.special.pop_front(),
        }
    }
}

impl Placement for Other {
    type Stop = CallMismatch;

    fn start(&mut self, op: &Op, _moves: &Moves) -> Result<u64, CallMismatch> {
        if let Op::Map(map) = op
            && is_special_of_exec(map)
        {
            return Ok(self.special_start().unwrap_or(map.pages.start));
        }
        let (ours, theirs) = (Shape::of(op).map(|(shape, _)| shape), self.placed.pop_front());
        match theirs {
            Some(theirs) if Some(&theirs.shape) == ours.as_ref() => {
                self.equal += 1;
                Ok(theirs.start)
            }
            theirs => Err(CallMismatch {
                mappings_equal: self.equal,
                ours: ours.map(|shape| shape.text()),
                theirs: theirs.map(|theirs| theirs.shape.text()),
            }),
        }
    }
}

/// Where the pages of the recording are in its copy: by first page, the end and the new first page.
#[derive(Clone, Debug, Default)]
pub struct Moves(BTreeMap<u64, (u64, u64)>);

impl Moves {
    /// Moves the addresses of an event. A mapping or move goes to `start`.
    pub(crate) fn apply(&mut self, event: &mut Event, start: u64) {
        match &mut event.op {
            Op::Touch { page, .. } => *page = self.page(*page),
            Op::Map(map) if is_stack_growth(map) => {
                let moved = self.range(&map.pages);
                self.place(&map.pages, moved.start);
                map.pages = moved;
            }
            Op::Map(map) => {
                self.place(&map.pages, start);
                map.hint_page = if map.hint_page == map.pages.start { start } else { map.hint_page };
                map.pages = start..start + (map.pages.end - map.pages.start);
            }
            Op::Remap { old, new, .. } => {
                let moved = self.range(old);
                if old.start != new.start {
                    self.remove(old);
                }
                self.place(new, start);
                *old = moved;
                *new = start..start + (new.end - new.start);
            }
            Op::Unmap(pages) => {
                let moved = self.range(pages);
                self.remove(pages);
                *pages = moved;
            }
            Op::Protect { pages, .. }
            | Op::Advise { pages, .. }
            | Op::Lock { pages, .. }
            | Op::Unlock(pages)
            | Op::NameMapping { pages, .. } => *pages = self.range(pages),
            // A recording that begins in the middle keeps its addresses.
            Op::MappingAtStart(_)
            | Op::PagesAtStart(_)
            | Op::LockAll(_)
            | Op::UnlockAll
            | Op::DisableThp { .. }
            | Op::Fork { .. }
            | Op::ChildEnded { .. }
            | Op::Lost { .. } => {}
        }
    }

    /// The new number of a page.
    pub fn page(&self, page: u64) -> u64 {
        if let Some((&start, &(end, to))) = self.0.range(..=page).next_back()
            && page < end
        {
            return to + (page - start);
        }
        // Below a stack that is about to grow; otherwise nothing is mapped, and the page stays.
        match self.0.range(page..).next() {
            Some((&start, &(_, to))) => to.saturating_sub(start - page),
            None => page,
        }
    }

    /// The new numbers of pages that are mapped together.
    pub fn range(&self, pages: &Range<u64>) -> Range<u64> {
        let start = self.page(pages.start);
        start..start + (pages.end - pages.start)
    }

    /// Whether something is mapped at a page of the recording.
    pub fn is_mapped(&self, page: u64) -> bool {
        self.0.range(..=page).next_back().is_some_and(|(_, (end, _))| page < *end)
    }

    pub(crate) fn place(&mut self, pages: &Range<u64>, start: u64) {
        self.remove(pages);
        self.0.insert(pages.start, (pages.end, start));
    }

    pub(crate) fn remove(&mut self, pages: &Range<u64>) {
        let first = self.0.range(..=pages.start).next_back().filter(|(_, (end, _))| *end > pages.start);
        let first = first.map_or(pages.start, |(&start, _)| start);
        let overlapping: Vec<(u64, (u64, u64))> =
            self.0.range(first..pages.end.max(first)).map(|(&start, &rest)| (start, rest)).collect();
        for (start, (end, to)) in overlapping {
            self.0.remove(&start);
            if start < pages.start {
                self.0.insert(start, (pages.start, to));
            }
            if pages.end < end {
                self.0.insert(pages.end, (end, to + (pages.end - start)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use hksim_call_sites::SiteId;

    use super::*;

    #[test]
    fn a_stack_grows_below_its_new_place() {
        let stack = |pages, origin| {
            let (hint_page, kind, flags, name) = (0, MappingKind::GrowingStack, 2, None);
            Event {
                time_ns: 0,
                thread: 0,
                op: Op::Map(Box::new(MapOp { pages, hint_page, kind, origin, protection: 3, flags, name })),
                site: SiteId::UNKNOWN,
            }
        };
        let mut moves = Moves::default();
        moves.apply(&mut stack(900..1000, Origin::Exec), 5900);
        let mut grown = stack(880..1000, Origin::Kernel);
        assert!(Shape::of(&grown.op).is_none(), "the other run may grow in other steps");
        moves.apply(&mut grown, 0);
        assert_eq!(grown, stack(5880..6000, Origin::Kernel));
        assert_eq!(moves.page(870), 5870);
    }

    #[test]
    fn pages_follow_their_mapping() {
        let mut moves = Moves::default();
        moves.place(&(100..200), 1100);
        moves.place(&(150..160), 5000);
        assert_eq!([100, 149, 150, 159, 160, 199].map(|page| moves.page(page)), [1100, 1149, 5000, 5009, 1160, 1199]);
        assert_eq!(moves.page(95), 1095, "below a mapping");
        moves.remove(&(100..150));
        assert_eq!(moves.page(140), 4990);
    }
}
