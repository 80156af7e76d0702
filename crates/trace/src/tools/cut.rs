//! A part of a trace: a stretch of time or events, some threads.

use super::Edit;
use super::touched::Touched;
use crate::error::TraceError;
use crate::event::{Access, Event, InitialTouch, ObjectId, Op, SiteId, ThreadId};
use crate::header::{Footer, Header, HistoryStep};
use crate::memory_policy::MemoryPolicy;
use crate::source::EventSource;
use serde::Serialize;
use serde_json::json;
use std::ops::Range;

/// Which events to keep: those in every range given, by the threads given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Event numbers, from 0.
    pub events: Range<u64>,
    /// Times in nanoseconds.
    pub time_ns: Range<u64>,
    /// Threads; `None` for all.
    pub threads: Option<Vec<u32>>,
}

impl Part {
    /// The whole trace.
    pub const WHOLE: Part = Part { events: 0..u64::MAX, time_ns: 0..u64::MAX, threads: None };
}

/// What happens to objects that are live where the part begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LiveAtStart {
    /// They are allocated first, at time 0, in the order of their births, with the sizes they have by then, and what was touched
    /// of them is touched: so that the part runs on the heap it had.
    Allocate,
    /// They are left out; what the part does with them becomes calls on unknown pointers.
    LeaveOut,
}

/// What a cut had to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CutCounts {
    /// Objects allocated at the start because they were live there.
    pub live_at_start: u64,
    /// Frees and resizes of objects that are not in the part: they became calls on unknown pointers.
    pub became_unknown: u64,
    /// Frees and resizes by threads left out, done by the object's own thread instead.
    pub taken_over: u64,
    /// Touches, failed resizes and usable-size calls left out, as their object or thread is.
    pub left_out: u64,
}

/// The edit.
#[derive(Clone, Debug)]
pub struct Cut {
    part: Part,
    live_at_start: LiveAtStart,
    parameters: HistoryStep,
    number: u64,
    begun: bool,
    base_ns: u64,
    births: u64,
    objects: Vec<Option<Live>>,
    /// The last change of each memory policy, by kind.
    policies: [Option<Event>; MemoryPolicy::KINDS],
    /// Children forked in the part whose end has not come.
    forked: Vec<u32>,
    /// Time of the last event emitted.
    last_ns: u64,
    /// What was changed so far.
    pub counts: CutCounts,
}

/// A live object of the source.
#[derive(Clone, Copy, Debug)]
struct Live {
    /// The call that made it, with its present size.
    born: Event,
    order: u64,
    /// What its birth does not say.
    touched: Touched,
    in_part: bool,
}

impl Live {
    /// The call that made it is given the new size. What it says of the bytes of the old one is kept apart, as it may not hold
    /// of those that came with the resize.
    fn resize(&mut self, new: u64, tail: InitialTouch) {
        let old = match &mut self.born.op {
            Op::Alloc { size, initial_touch, .. } => {
                if *initial_touch != InitialTouch::None || tail == InitialTouch::Watched {
                    self.touched.born(*size, *initial_touch);
                    *initial_touch = InitialTouch::Watched;
                }
                std::mem::replace(size, new)
            }
            Op::ReallocUnknown { size, .. } => std::mem::replace(size, new),
            _ => return,
        };
        self.touched.resized(old, new, tail);
    }
}

impl Cut {
    /// Cuts `part` out. `parameters` go into the history.
    pub fn new(part: Part, live_at_start: LiveAtStart) -> Self {
        let bound = |end: u64| if end == u64::MAX { serde_json::Value::Null } else { json!(end) };
        let parameters = HistoryStep::new(
            "cut",
            [
                ("events_from", json!(part.events.start)),
                ("events_to", bound(part.events.end)),
                ("time_from_ns", json!(part.time_ns.start)),
                ("time_to_ns", bound(part.time_ns.end)),
                ("threads", json!(part.threads)),
                ("live_at_start", json!(live_at_start == LiveAtStart::Allocate)),
            ],
        );
        let counts = CutCounts::default();
        let (number, begun, base_ns, births, objects) = (0, false, 0, 0, Vec::new());
        let policies = [None; MemoryPolicy::KINDS];
        Cut {
            part,
            live_at_start,
            parameters,
            number,
            begun,
            base_ns,
            births,
            objects,
            policies,
            forked: Vec::new(),
            last_ns: 0,
            counts,
        }
    }

    fn has_thread(&self, thread: ThreadId) -> bool {
        self.part.threads.as_ref().is_none_or(|threads| threads.contains(&thread.0))
    }

    /// That thread, or one of the part in its place: a memory policy is the whole process's.
    fn thread_in_part(&self, thread: ThreadId) -> ThreadId {
        match &self.part.threads {
            Some(threads) if !threads.contains(&thread.0) => threads.first().map_or(thread, |&first| ThreadId(first)),
            _ => thread,
        }
    }

    fn live(&mut self, object: ObjectId) -> &mut Option<Live> {
        let at = object.0 as usize;
        if self.objects.len() <= at {
            self.objects.resize(at + 1, None);
        }
        &mut self.objects[at]
    }

    /// Keeps the table of live objects up to date, whether or not the event is in the part.
    fn follow(&mut self, event: &Event, in_part: bool) {
        if let Op::MemoryPolicy { policy, .. } = event.op
            && let Some(last) = self.policies.get_mut(usize::from(policy.numbers().0))
        {
            *last = Some(*event);
        }
        let Some(object) = event.op.object() else { return };
        if event.op.creates_object() {
            let order = self.births;
            self.births += 1;
            *self.live(object) = Some(Live { born: *event, order, touched: Touched::default(), in_part });
            return;
        }
        if event.op.frees_object() {
            *self.live(object) = None;
            return;
        }
        let Some(live) = self.live(object) else { return };
        match event.op {
            Op::Realloc { size, initial_touch, .. } => live.resize(size, initial_touch),
            Op::Touch { offset, bytes, access, .. } => {
                live.touched.access(offset..offset.saturating_add(u64::from(bytes)), access);
            }
            _ => (),
        }
    }

    /// The end of a child that the part forked; behind the part, that it outlives it. Children forked before the part are not in it.
    fn end_of_child(&mut self, event: &Event, in_time: bool) -> Option<Event> {
        let Op::ForkEnd { child_pid, outlives } = event.op else { return None };
        let at = self.forked.iter().rposition(|&forked| forked == child_pid)?;
        self.forked.remove(at);
        let time_ns = if in_time { event.time_ns - self.base_ns } else { self.last_ns };
        let op = Op::ForkEnd { child_pid, outlives: outlives || !in_time };
        Some(Event { time_ns, thread: self.thread_in_part(event.thread), op, ..*event })
    }

    /// Puts the memory policies of the part's start in force, and allocates what is live there.
    fn begin(&mut self, event: &Event, emit: &mut dyn FnMut(Event)) {
        self.begun = true;
        self.base_ns = event.time_ns;
        for (event, policy) in self.policies.into_iter().flatten().filter_map(|event| Some((event, policy_of(&event)?)))
        {
            let op = Op::MemoryPolicy { policy, inherited: true };
            emit(Event { time_ns: 0, thread: self.thread_in_part(event.thread), op, ..event });
        }
        if self.live_at_start == LiveAtStart::LeaveOut {
            return;
        }
        let mut live: Vec<(u64, usize)> =
            self.objects.iter().enumerate().filter_map(|(at, live)| Some((live.as_ref()?.order, at))).collect();
        live.sort_unstable();
        for (_, at) in live {
            let Some(Live { born, touched, .. }) = self.objects[at] else { continue };
            if !self.has_thread(born.thread) {
                continue;
            }
            if let Some(live) = &mut self.objects[at] {
                live.in_part = true;
            }
            self.counts.live_at_start += 1;
            emit(Event { time_ns: 0, op: allocating(born.op), ..born });
            touched.accesses().for_each(|(bytes, access)| touch_at_once(&born, bytes, access, emit));
        }
    }

    /// An event of the part about an object that is not in it.
    fn foreign(&mut self, event: &Event, emit: &mut dyn FnMut(Event)) {
        let (op, is_now_in_part) = match event.op {
            Op::Free { .. } | Op::ReallocFree { .. } => (Op::FreeUnknown, false),
            Op::Realloc { object, size, call, .. } => (Op::ReallocUnknown { object, size, call }, true),
            _ => {
                self.counts.left_out += 1;
                return;
            }
        };
        self.counts.became_unknown += 1;
        if let (true, Some(object)) = (is_now_in_part, event.op.object())
            && let Some(live) = self.live(object)
        {
            live.in_part = true;
            live.born.thread = event.thread;
        }
        let site = if op.asks_for_memory() { event.site } else { SiteId::UNKNOWN };
        emit(Event { time_ns: event.time_ns - self.base_ns, op, site, ..*event });
    }
}

fn policy_of(event: &Event) -> Option<MemoryPolicy> {
    if let Op::MemoryPolicy { policy, .. } = event.op { Some(policy) } else { None }
}

/// The allocation that makes such an object; what a resize of an unknown pointer gave back before the part is nobody's
/// business in it.
fn allocating(initial_touch: Op) -> Op {
    match initial_touch {
        Op::ReallocUnknown { object, size, call } => {
            Op::Alloc { object, size, align_log2: 0, call: call.of_null(), initial_touch: InitialTouch::None }
        }
        op => op,
    }
}

/// One or more accesses that cover the range of an object.
fn touch_at_once(born: &Event, range: Range<u64>, access: Access, emit: &mut dyn FnMut(Event)) {
    let Some(object) = born.op.object() else { return };
    let mut offset = range.start;
    while offset < range.end {
        let bytes = u32::try_from(range.end - offset).unwrap_or(u32::MAX);
        let op = Op::Touch { object, offset, bytes, access };
        emit(Event { time_ns: 0, site: SiteId::UNKNOWN, op, ..*born });
        offset += u64::from(bytes);
    }
}

impl Edit for Cut {
    fn edit(&mut self, event: &Event, emit: &mut dyn FnMut(Event)) {
        let number = self.number;
        self.number += 1;
        let in_time = self.part.events.contains(&number) && self.part.time_ns.contains(&event.time_ns);
        // A part without events, between two of the trace, begins at the one behind it: with what is live there.
        let is_behind_start = self.part.events.contains(&number) && event.time_ns >= self.part.time_ns.start;
        if is_behind_start && !self.begun {
            self.begin(event, emit);
        }
        let has_thread = self.has_thread(event.thread);
        let object = event.op.object();
        let known = object.and_then(|object| *self.live(object)).filter(|_| !event.op.creates_object());
        let owner = known.filter(|live| live.in_part).map(|live| live.born.thread);
        self.follow(event, in_time && has_thread);
        if let Op::ForkEnd { .. } = event.op {
            return self.end_of_child(event, in_time).into_iter().for_each(emit);
        }
        if !in_time {
            return;
        }
        let time_ns = event.time_ns - self.base_ns;
        self.last_ns = time_ns;
        if let (true, Op::Fork { child_pid }) = (has_thread, event.op) {
            self.forked.push(child_pid);
        }
        match (has_thread, object, owner) {
            (true, Some(_), None) if !event.op.creates_object() => self.foreign(event, emit),
            (true, ..) => emit(Event { time_ns, ..*event }),
            (false, Some(_), Some(owner)) if event.op.frees_object() || matches!(event.op, Op::Realloc { .. }) => {
                self.counts.taken_over += 1;
                emit(Event { time_ns, thread: owner, ..*event });
            }
            (false, Some(_), Some(_)) => self.counts.left_out += 1,
            (false, None, _) if policy_of(event).is_some() => {
                emit(Event { time_ns, thread: self.thread_in_part(event.thread), ..*event });
            }
            (false, ..) => (),
        }
    }

    fn header(&self, source: &Header) -> Header {
        let mut header = source.clone();
        header.history.push(self.parameters.clone());
        header
    }

    fn footer(&self, source: &Footer) -> Footer {
        let mut footer = source.clone();
        footer.quality.unknown_frees += self.counts.became_unknown;
        footer
    }
}

/// The events from the first mark called `from` to the first mark called `to` behind it (without one: to the end), marks
/// included. The source is rewound before.
///
/// # Errors
/// Those of the source; [`TraceError::NoMark`].
pub fn named_part(source: &mut dyn EventSource, from: &str, to: Option<&str>) -> Result<Range<u64>, TraceError> {
    source.rewind()?;
    let names = source.footer().mark_names.clone();
    let is = |name: u32, wanted: &str| names.get(name as usize).is_some_and(|found| found == wanted);
    let (mut number, mut first) = (0, None);
    while let Some(batch) = source.next_batch()? {
        for event in batch {
            number += 1;
            let Op::Mark { name } = event.op else { continue };
            match (first, to) {
                (None, _) if is(name, from) => first = Some(number - 1),
                (Some(first), Some(to)) if is(name, to) => return Ok(first..number),
                _ => (),
            }
        }
    }
    let missing = if first.is_some() { to } else { Some(from) };
    match (first, missing) {
        (Some(first), None) => Ok(first..u64::MAX),
        (_, missing) => Err(TraceError::NoMark { name: missing.unwrap_or(from).to_string(), known: names.join(", ") }),
    }
}
