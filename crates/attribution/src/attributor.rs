//! Attributes the records of an explained run, in order.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use hksim_linux_probe::maps::Maps;
use hksim_policy::{HUGE_PAGE_BYTES, PAGE_BYTES};
use hksim_replay::explained::{CallRecord, Moment, Record, TrapRecord};
use hksim_trace::error::TraceError;
use hksim_trace::event::ObjectId;

use crate::blocks::Blocks;
use crate::breakdown::{Breakdown, During, What};
use crate::calls::{Effect, effect};
use crate::classify::{Access, Linkers, reason_of};
use crate::current::{Current, Object};
use crate::events::Events;
use crate::folio::folio;
use crate::functions::{Found, FunctionId, Functions};
use crate::mappings::{MappingId, Mappings, Source};
use crate::pages::{History, Pages, Removal, Removed};
use crate::reason::Reason;

/// Bytes before a block in which its link may be while it is free.
const LINK_BYTES: u64 = 16;

/// A trap whose page is installed, but whose reason is not yet known.
struct Pending {
    trap: TrapRecord,
    history: History,
    mapping: Range<u64>,
    function: FunctionId,
    fills: bool,
    clears: bool,
}

/// What an explained run showed.
#[derive(Default)]
pub struct Attributor {
    pub(crate) breakdown: Breakdown,
    pub(crate) functions: Functions,
    pub(crate) mappings: Mappings,
    /// Faults of the replay's own work.
    pub(crate) faults_of_replay: u64,
    library: Option<PathBuf>,
    pages: Pages,
    blocks: Blocks,
    linkers: Linkers,
    /// Where instructions of the allocator accessed memory without blocks: a block that is placed there later shows that they
    /// linked free blocks.
    without_block: BTreeMap<u64, u64>,
    objects: Vec<Object>,
    pending: Vec<Pending>,
    heap_end: u64,
}

impl Attributor {
    /// An attributor for a trace with at most so many live objects. `library` is the allocator's file; `None` for the C
    /// library.
    pub fn new(objects_peak: u32, library: Option<&Path>) -> Attributor {
        let objects = vec![Object::default(); objects_peak as usize];
        Attributor { objects, library: library.map(Path::to_path_buf), ..Attributor::default() }
    }

    /// Takes a record.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn record(&mut self, record: Record, events: &mut Events) -> Result<(), TraceError> {
        match record {
            Record::Maps(text) => self.take_maps(&text),
            Record::Present { first_page, pages } => self.pages.install(first_page..first_page + pages, false),
            Record::Placed { event, address } => {
                self.advance(event, events)?;
                self.place(events, address);
            }
            Record::Trap(trap) => {
                self.advance(trap.when.event, events)?;
                self.trap(&trap, events);
            }
            Record::Call(call) => {
                self.advance(call.when.event, events)?;
                self.call(&call, events);
            }
        }
        Ok(())
    }

    /// Performs the rest of the trace.
    ///
    /// # Errors
    /// The trace cannot be read.
    pub fn finish(&mut self, events: &mut Events) -> Result<(), TraceError> {
        self.advance(u64::MAX, events)?;
        self.breakdown.settle();
        let names = self.functions.settle();
        self.breakdown.rename(&names);
        self.mappings.rename(&names);
        Ok(())
    }

    /// Accesses in this range are not known to be to memory without blocks any more. Returns their instructions.
    fn forget_without_block(&mut self, range: Range<u64>) -> Vec<u64> {
        let found: Vec<(u64, u64)> = self.without_block.range(range).map(|(&at, &by)| (at, by)).collect();
        for (at, _) in &found {
            self.without_block.remove(at);
        }
        found.into_iter().map(|(_, by)| by).collect()
    }

    fn take_maps(&mut self, text: &str) {
        let maps = Maps::of_text(text);
        self.functions = Functions::new(maps.iter(), self.library.as_deref());
        let mut file = None;
        for map in maps.iter() {
            let range = map.start as u64..(map.start + map.bytes) as u64;
            let own_file = self.functions.file_at(range.start);
            // The zero-initialised data of a file follows it without a name.
            let after_file = file.filter(|&(_, end)| map.name.is_empty() && end == range.start);
            let of_file = own_file.or(after_file.map(|(file, _)| file));
            file = of_file.map(|file| (file, range.end));
            let source = match of_file {
                _ if map.name == "[heap]" => Source::Heap(FunctionId::START),
                Some(file) => Source::Data(file),
                None => Source::Earlier,
            };
            if map.name == "[heap]" {
                self.heap_end = range.end;
            }
            self.mappings.map(range, source, None);
        }
    }

    /// Completes the events before an event, and begins it.
    fn advance(&mut self, event: u64, events: &mut Events) -> Result<(), TraceError> {
        while events.next_number() <= event {
            if let Some(current) = events.take_current() {
                self.complete(&current, events);
            }
            let objects = &self.objects;
            let object = |id: ObjectId| objects.get(id.0 as usize).copied().unwrap_or_default();
            if !events.begin_next(object)? {
                break;
            }
        }
        Ok(())
    }

    /// The event is over: its pending traps are judged, and its object is what the event made of it.
    fn complete(&mut self, current: &Current, events: &Events) {
        self.judge(current, events);
        let Some(object) = current.object().and_then(|id| self.objects.get_mut(id.0 as usize)) else { return };
        if current.event.op.frees_object()
            && let Some(start) = object.start.take()
        {
            self.blocks.free(start);
        }
    }

    /// The allocator returned a block.
    fn place(&mut self, events: &mut Events, address: u64) {
        let Some(current) = events.current_mut() else { return };
        let (Some(id), Some(bytes)) = (current.object(), current.request_bytes) else { return };
        let mut found = 0..0;
        if address != 0 {
            let range = address..address + bytes;
            if let Some(before) = current.before.as_ref().filter(|before| before.start != address) {
                self.blocks.free(before.start);
            }
            self.blocks.place(range.clone(), id);
            self.mappings.placed(range.clone(), id, current.number);
            found = range.start.saturating_sub(LINK_BYTES)..range.end;
            current.placed = Some(range);
        }
        if let Some(object) = self.objects.get_mut(id.0 as usize)
            && (address != 0 || current.before.is_none())
        {
            *object = Object { start: (address != 0).then_some(address), bytes, site: current.site };
        }
        for instruction in self.forget_without_block(found) {
            self.breakdown.is_before_block(instruction);
        }
        if let Some(current) = events.current() {
            self.judge(current, events);
        }
    }

    /// A function of the allocator, or the one that the program called if only functions of the C library are known.
    fn or_entry(&mut self, function: Option<FunctionId>, current: Option<&Current>) -> FunctionId {
        function.unwrap_or_else(|| match current.map(Current::call) {
            Some(During::Call(name)) => self.functions.named(name.to_string()),
            Some(During::Touch | During::Start) | None => FunctionId::START,
        })
    }

    fn trap(&mut self, trap: &TrapRecord, events: &Events) {
        let moment = |pending: &Pending| pending.trap.when.moment;
        if self.pending.last().is_some_and(|last| moment(last) != trap.when.moment)
            && let Some(current) = events.current()
        {
            self.judge(current, events);
        }
        let page = trap.address / PAGE_BYTES;
        let Found { function, fills, clears } = self.functions.at(&trap.place);
        let function = self.or_entry(function, events.current());
        let mapping = self.mappings.at(trap.address).map_or(0..0, |(range, _)| range);
        let history = self.pages.history(page);
        let present = trap.present;
        match present.is_huge {
            true => self.pages.install(present.first_page..present.first_page + present.pages, true),
            false => self.pages.install(page..page + 1, false),
        }
        self.pending.push(Pending { trap: *trap, history, mapping, function, fills, clears });
    }

    /// Finds the reasons of the pending traps.
    fn judge(&mut self, current: &Current, events: &Events) {
        let pending = std::mem::take(&mut self.pending);
        let reasons = self.reasons(&pending, current);
        let mut trapped: Vec<u64> = pending.iter().map(|pending| pending.trap.address / PAGE_BYTES).collect();
        trapped.sort_unstable();
        for trap in &pending {
            let installed = folio(trap.trap.address / PAGE_BYTES, trap.trap.present, &trapped, &self.pages);
            let page_bytes = installed.as_ref().map(|pages| (pages.end - pages.start) * PAGE_BYTES);
            if let Some(pages) = installed {
                self.pages.install(pages, trap.trap.present.is_huge);
            }
            let during = match trap.trap.when.moment {
                Moment::Replay => {
                    self.faults_of_replay += 1;
                    continue;
                }
                Moment::Touch => During::Touch,
                Moment::Call => current.call(),
            };
            let mapping = self.mappings.at(trap.trap.address).map(|(_, id)| id);
            let (reason, function, after) = self.reason(trap, mapping, &reasons);
            let mapping = mapping.map(|id| self.mappings.source(id));
            let instruction = Some(trap.trap.place.instruction).filter(|_| !trap.fills && is_conclusion(reason));
            let key = events.key(current, What { reason, function, mapping, page_bytes, after, during, instruction });
            self.breakdown.add(key, 1);
            if let (Reason::Metadata, Some(instruction)) = (reason, instruction) {
                self.without_block.insert(trap.trap.address, instruction);
            }
        }
    }

    /// What the allocator did in the current call, by instruction.
    fn reasons(&mut self, pending: &[Pending], current: &Current) -> HashMap<u64, Reason> {
        let mut groups: HashMap<u64, Vec<Access>> = HashMap::new();
        for trap in pending.iter().filter(|pending| pending.trap.when.moment == Moment::Call) {
            let TrapRecord { address, words, place, .. } = trap.trap;
            let (mapping, fills, clears) = (trap.mapping.clone(), trap.fills, trap.clears);
            let access = Access { address, words, mapping, fills, clears };
            groups.entry(place.instruction).or_default().push(access);
        }
        let Attributor { linkers, blocks, .. } = self;
        let reason = |(instruction, group): (u64, Vec<Access>)| {
            (instruction, reason_of((instruction, &group), linkers, current, blocks))
        };
        groups.into_iter().map(reason).collect()
    }

    /// Why a trap was taken, the responsible function, and the call that removed the page before.
    fn reason(
        &self,
        trap: &Pending,
        mapping: Option<MappingId>,
        reasons: &HashMap<u64, Reason>,
    ) -> (Reason, FunctionId, Option<Removed>) {
        let maker = match mapping.map(|id| self.mappings.source(id)) {
            Some(Source::Heap(function) | Source::Mmap(function)) => function,
            Some(Source::Earlier | Source::Data(_)) => FunctionId::START,
            // A mapping that ended within the call is not known any more.
            None => trap.function,
        };
        let (after, was_huge) = match trap.history {
            History::Removed { removed, was_huge } => (Some(removed), was_huge),
            History::Never | History::Present => (None, false),
        };
        let is_per_block = mapping.is_some_and(|id| self.mappings.is_per_block(id));
        match after {
            Some(Removed { how: Removal::Advice(_), by }) => {
                let is_split = was_huge && !trap.trap.present.is_huge;
                let reason = if is_split { Reason::RefaultAfterSplit } else { Reason::RefaultAfterPurge };
                return (reason, by, after);
            }
            _ if is_per_block => return (Reason::MappingPerBlock, maker, after),
            Some(Removed { how: Removal::Unmapped, by }) => return (Reason::RefaultAfterUnmap, by, after),
            Some(Removed { how: Removal::HeapShrunk, by }) => return (Reason::RefaultAfterTrim, by, after),
            Some(Removed { how: Removal::Moved, .. }) | None => {}
        }
        let of_call = reasons.get(&trap.trap.place.instruction).filter(|_| trap.trap.when.moment == Moment::Call);
        let function = if of_call.is_some() { trap.function } else { maker };
        let reason = match of_call {
            _ if trap.history == History::Present => Reason::WriteAfterZeroPage,
            Some(&reason) => reason,
            None => Reason::Application,
        };
        (reason, function, after)
    }

    fn call(&mut self, call: &CallRecord, events: &Events) {
        let function = self.functions.maker(&call.place);
        let function = self.or_entry(function, events.current().filter(|_| call.when.moment == Moment::Call));
        let effect = effect(call, self.heap_end);
        self.apply(&effect, function, call, events);
        if call.faults == 0 || !call.is_of_replay_thread {
            return;
        }
        let Some(current) = events.current().filter(|_| call.when.moment == Moment::Call) else {
            self.faults_of_replay += call.faults;
            return;
        };
        let range = effect.populated();
        self.pages.install(range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES), call.huge_pages > 0);
        let mapping = self.mappings.at(range.start).map(|(_, id)| self.mappings.source(id));
        let huge = call.huge_pages.min(call.faults);
        for (faults, page_bytes) in [(huge, HUGE_PAGE_BYTES), (call.faults - huge, PAGE_BYTES)] {
            let (page_bytes, during) = (Some(page_bytes), current.call());
            let (reason, after, instruction) = (Reason::Populated, None, None);
            let what = What { reason, function, mapping, page_bytes, after, during, instruction };
            if faults > 0 {
                self.breakdown.add(events.key(current, what), faults);
            }
        }
    }

    /// Changes mappings and pages as a call did.
    fn apply(&mut self, effect: &Effect, by: FunctionId, call: &CallRecord, events: &Events) {
        let pages = |range: &Range<u64>| range.start / PAGE_BYTES..range.end.div_ceil(PAGE_BYTES);
        let event =
            (call.when.moment == Moment::Call).then(|| events.current().map(|current| current.number)).flatten();
        match effect {
            Effect::Nothing | Effect::Populated(_) => {}
            Effect::Mapped(range) => {
                self.pages.remove(pages(range), Removed { how: Removal::Unmapped, by });
                self.mappings.map(range.clone(), Source::Mmap(by), event);
            }
            Effect::Unmapped(range) => {
                self.forget_without_block(range.clone());
                self.pages.remove(pages(range), Removed { how: Removal::Unmapped, by });
                self.mappings.unmap(range.clone());
            }
            Effect::Moved { from, to } => {
                if from.start == to.start {
                    let rest = to.end.min(from.end)..from.end;
                    self.pages.remove(pages(&rest), Removed { how: Removal::Unmapped, by });
                } else {
                    self.pages.relocate(pages(from), to.start / PAGE_BYTES, by);
                }
                self.mappings.relocate(from.clone(), to.clone());
            }
            Effect::Purged { range, advice } => {
                self.pages.remove(pages(range), Removed { how: Removal::Advice(*advice), by });
            }
            Effect::HeapGrown(range) => {
                self.heap_end = range.end;
                self.mappings.map(range.clone(), Source::Heap(by), None);
            }
            Effect::HeapShrunk(range) => {
                self.heap_end = range.start;
                self.pages.remove(pages(range), Removed { how: Removal::HeapShrunk, by });
                self.mappings.unmap(range.clone());
            }
        }
    }
}

/// Whether a reason is a conclusion from the accesses of an instruction, which all accesses of the instruction share.
fn is_conclusion(reason: Reason) -> bool {
    use Reason::{Copy, FreeList, Header, LiveBlock, Metadata, Prefault, Zeroing};
    matches!(reason, Copy | FreeList | Header | LiveBlock | Metadata | Prefault | Zeroing)
}
