//! Compares the tools that derive traces from other traces with naive models that keep all events in memory.

use crate::support::{Random, random_events, read_all, sample_footer, write_trace};
use hksim_trace::event::*;
use hksim_trace::hkt::TraceReader;
use hksim_trace::memory_policy::{LockAll, MemoryPolicy, ThpDisable};
use hksim_trace::row::op_name;
use hksim_trace::source::EventSource;
use hksim_trace::tools::*;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A random trace in its own folder.
struct Sample {
    folder: tempfile::TempDir,
    path: PathBuf,
    events: Vec<Event>,
}

impl Sample {
    fn new(seed: u64, length: usize) -> Self {
        println!("seed {seed}");
        Self::of(random_events(&mut Random::new(seed), length))
    }

    /// A random trace without ends of forked children, which a part keeps only together with their forks.
    fn without_fork_ends(seed: u64, length: usize) -> Self {
        println!("seed {seed}");
        let mut events = random_events(&mut Random::new(seed), length);
        let ends = events.iter_mut().filter(|event| matches!(event.op, Op::ForkEnd { .. }));
        ends.for_each(|event| event.op = Op::FreeNull);
        Self::of(events)
    }

    fn of(events: Vec<Event>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("in.hkt");
        write_trace(&path, &events);
        Sample { folder, path, events }
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out.hkt")
    }

    fn reader(&self) -> TraceReader {
        TraceReader::open(&self.path).unwrap()
    }

    fn edited(&self, edit: &mut dyn Edit) -> Vec<Event> {
        rewrite(&mut self.reader(), edit, &self.out()).unwrap();
        read(&self.out())
    }
}

fn read(path: &Path) -> Vec<Event> {
    read_all(&mut TraceReader::open(path).unwrap()).unwrap()
}

/// Numbers objects in order of allocation, independently of ids.
#[derive(Default)]
struct ObjectNumbers {
    number_of: HashMap<ObjectId, u64>,
    created: u64,
}

impl ObjectNumbers {
    /// Updates the numbers for an event and returns the number of its object.
    fn follow(&mut self, op: &Op) -> Option<u64> {
        let object = op.object()?;
        if op.creates_object() {
            self.number_of.insert(object, self.created);
            self.created += 1;
        }
        let number = self.number_of[&object];
        if op.frees_object() {
            self.number_of.remove(&object);
        }
        Some(number)
    }
}

/// Events with objects numbered in order of allocation and threads in order of appearance. Renumbering preserves both
/// orders, so edited traces can be compared.
fn unnumbered(events: &[Event]) -> Vec<(u64, u32, SiteId, Op)> {
    let (mut numbers, mut threads) = (ObjectNumbers::default(), Vec::new());
    let one = |event: &Event| {
        let object = numbers.follow(&event.op).map_or(ObjectId(0), |number| ObjectId(number as u32));
        let thread = threads.iter().position(|&thread| thread == event.thread).unwrap_or_else(|| {
            threads.push(event.thread);
            threads.len() - 1
        });
        (event.time_ns, thread as u32, event.site, event.op.with_object(object))
    };
    events.iter().map(one).collect()
}

/// The sizes of all live objects after each event, with the number of objects of each size.
fn live_sizes(events: &[Event]) -> Vec<BTreeMap<u64, u64>> {
    let mut sizes = HashMap::new();
    let after = |event: &Event| {
        match event.op {
            Op::Alloc { object, size, .. }
            | Op::ReallocUnknown { object, size, .. }
            | Op::Realloc { object, size, .. } => {
                sizes.insert(object, size);
            }
            Op::Free { object } | Op::ReallocFree { object, .. } => {
                sizes.remove(&object);
            }
            _ => (),
        }
        let mut counts = BTreeMap::new();
        sizes.values().for_each(|&size| *counts.entry(size).or_insert(0) += 1);
        counts
    };
    events.iter().map(after).collect()
}

fn events_of(range: Range<u64>) -> Part {
    Part { events: range, ..Part::WHOLE }
}

#[test]
fn a_cut_begins_with_the_live_heap() {
    for (seed, from, to) in [(1, 0, 700), (2, 300, 900), (3, 999, 1000), (4, 500, 5000)] {
        let sample = Sample::without_fork_ends(seed, 1000);
        let mut cut = Cut::new(events_of(from..to), LiveAtStart::Allocate);
        let part = sample.edited(&mut cut);
        let (first, end) = (from as usize, (to as usize).min(1000));
        let before = live_sizes(&sample.events);
        let prefix = part.len() - (end - first);
        let after = live_sizes(&part);
        let live_before: u64 = if first == 0 { 0 } else { before[first - 1].values().sum() };
        assert_eq!(cut.counts.live_at_start, live_before);
        assert_eq!(&before[first..end], &after[prefix..], "seed {seed}");
        let base_ns = sample.events[first].time_ns;
        for (was, is) in sample.events[first..end].iter().zip(&part[prefix..]) {
            assert_eq!((was.time_ns - base_ns, was.site), (is.time_ns, is.site));
            assert_eq!(std::mem::discriminant(&was.op), std::mem::discriminant(&is.op));
        }
        assert!(part[..prefix].iter().all(|event| event.time_ns == 0));
    }
}

/// The range of the bytes written, then the range of the bytes read.
type Hulls = [Option<(u64, u64)>; 2];

/// The ranges accessed in each object that is live at the end. They are truncated to the object's size at each resize.
/// A read followed by a write counts as a write.
fn touched(events: &[Event]) -> BTreeMap<u64, Hulls> {
    let hull = |accesses: &[(u64, u64, Access)], wanted: Access| {
        let of_kind = || accesses.iter().filter(|(from, to, access)| from < to && *access == wanted);
        Some((of_kind().map(|access| access.0).min()?, of_kind().map(|access| access.1).max()?))
    };
    let mut numbers = ObjectNumbers::default();
    let mut lives = BTreeMap::<u64, (u64, Vec<(u64, u64, Access)>)>::new();
    for event in events {
        let Some(number) = numbers.follow(&event.op) else { continue };
        let (size, accesses) = lives.entry(number).or_default();
        let whole = |from, to, initial_touch| match initial_touch {
            InitialTouch::All | InitialTouch::ReadThenWrite => Some((from, to, Access::Write)),
            InitialTouch::Read => Some((from, to, Access::Read)),
            _ => None,
        };
        match event.op {
            Op::Alloc { size: asked, initial_touch, .. } => {
                *size = asked;
                accesses.extend(whole(0, asked, initial_touch));
                accesses.extend((initial_touch == InitialTouch::FirstByte).then_some((0, asked.min(1), Access::Write)));
            }
            Op::ReallocUnknown { size: asked, .. } => *size = asked,
            Op::Realloc { size: asked, initial_touch, .. } => {
                // Bytes between two accesses count as accessed, even if the resize removes the bytes of the second
                // access.
                let known = [Access::Write, Access::Read].map(|kind| hull(accesses, kind).map(|(a, b)| (a, b, kind)));
                *accesses = known.into_iter().flatten().map(|(from, to, kind)| (from, to.min(asked), kind)).collect();
                accesses.extend(whole(*size, asked, initial_touch));
                *size = asked;
            }
            Op::Touch { offset, bytes, access, .. } => accesses.push((offset, offset + u64::from(bytes), access)),
            Op::Free { .. } | Op::ReallocFree { .. } => _ = lives.remove(&number),
            _ => (),
        }
    }
    let both = |accesses: &[_]| [hull(accesses, Access::Write), hull(accesses, Access::Read)];
    lives.into_iter().map(|(number, (_, accesses))| (number, both(&accesses))).collect()
}

#[test]
fn bytes_touched_before_a_cut_are_touched_at_its_start() {
    let (mut grown, mut read) = (0, 0);
    for seed in 12..16 {
        let sample = Sample::without_fork_ends(seed, 2000);
        let part = sample.edited(&mut Cut::new(events_of(1500..2000), LiveAtStart::Allocate));
        let prefix = part.len() - 500;
        // Both are in order of allocation. The ids differ, so the order identifies the objects.
        let (before, start) = (touched(&sample.events[..1500]), touched(&part[..prefix]));
        assert_eq!(before.len(), start.len(), "seed {seed}");
        for ([written, was_read], [writes, reads]) in before.values().zip(start.values()) {
            assert_eq!(written, writes, "seed {seed}");
            let within = |(from, to): (u64, u64)| written.is_some_and(|(first, end)| first <= from && to <= end);
            match was_read {
                Some(hull) if !within(*hull) => {
                    assert_eq!(reads, was_read, "seed {seed}");
                    read += 1;
                }
                _ => assert!(reads.is_none_or(within), "seed {seed}: {reads:?}, written {written:?}"),
            }
        }
        let resized_whole = |event: &&Event| matches!(event.op, Op::Realloc { initial_touch: InitialTouch::All, .. });
        grown += sample.events[..1500].iter().filter(resized_whole).count();
    }
    assert!(grown > 50 && read > 50, "{grown} resizes, {read} reads");
}

/// All events except memory policies and ends of forked children, which concern the process and not an object.
fn calls(events: Vec<Event>) -> Vec<Event> {
    let is_call = |event: &Event| !matches!(event.op, Op::MemoryPolicy { .. } | Op::ForkEnd { .. });
    events.into_iter().filter(is_call).collect()
}

#[test]
fn a_part_keeps_the_ends_of_its_children_and_reports_those_that_outlive_it() {
    let event = |time_ns, op| Event::new(time_ns, ThreadId(0), op);
    let (fork, end) = (|child_pid| Op::Fork { child_pid }, |child_pid| Op::ForkEnd { child_pid, outlives: false });
    let events = vec![
        event(0, fork(7)),
        event(10, fork(8)),
        event(20, fork(9)),
        event(30, end(7)),
        event(40, end(9)),
        event(50, fork(9)),
        event(60, fork(10)),
        event(70, end(9)),
        event(80, Op::ForkEnd { child_pid: 8, outlives: true }),
    ];
    let trace = Sample::of(events);
    let ops = |events: Range<u64>| -> Vec<Op> {
        let cut = trace.edited(&mut Cut::new(Part { events, ..Part::WHOLE }, LiveAtStart::Allocate));
        cut.into_iter().map(|event| event.op).collect()
    };
    let outlives = |child_pid| Op::ForkEnd { child_pid, outlives: true };
    let part = [fork(8), fork(9), end(9), fork(9), fork(10), outlives(9), outlives(8)];
    assert_eq!(ops(1..7), part, "7 is forked before the part, and the end of 10 is unknown");
    assert_eq!(ops(5..9), [fork(9), fork(10), end(9)]);
}

#[test]
fn a_part_begins_with_the_memory_policies_in_force() {
    let policy = |time_ns, thread, policy| {
        Event::new(
            time_ns,
            ThreadId(thread),
            Op::MemoryPolicy { policy: MemoryPolicy::ThpDisable(policy), inherited: false },
        )
    };
    let lock = MemoryPolicy::LockAll(LockAll { future: true, ..LockAll::NONE });
    let events = vec![
        Event::new(0, ThreadId(0), Op::FreeNull),
        policy(20, 1, ThpDisable::ExceptAdvised),
        policy(30, 1, ThpDisable::All),
        Event::new(40, ThreadId(1), Op::MemoryPolicy { policy: lock, inherited: false }),
        Event::new(50, ThreadId(0), Op::FreeNull),
        policy(60, 1, ThpDisable::Off),
        Event::new(70, ThreadId(0), Op::FreeNull),
    ];
    let sample = Sample::of(events);
    let policies = |events: &[Event]| -> Vec<(u64, String, bool)> {
        let one = |event: &Event| match event.op {
            Op::MemoryPolicy { policy, inherited } => Some((event.time_ns, policy.to_string(), inherited)),
            _ => None,
        };
        events.iter().filter_map(one).collect()
    };
    // The last policy before the part applies to the whole process: also to a part without the thread that set it.
    for (threads, live) in [(None, LiveAtStart::Allocate), (Some(vec![0]), LiveAtStart::LeaveOut)] {
        let part = sample.edited(&mut Cut::new(Part { events: 4..7, threads, ..Part::WHOLE }, live));
        let expected = [
            (0, MemoryPolicy::ThpDisable(ThpDisable::All), true),
            (0, lock, true),
            (10, MemoryPolicy::ThpDisable(ThpDisable::Off), false),
        ];
        assert_eq!(
            policies(&part),
            expected.map(|(time_ns, policy, inherited)| (time_ns, policy.to_string(), inherited))
        );
        assert_eq!(calls(part).len(), 2);
    }
    let whole = sample.edited(&mut Cut::new(Part::WHOLE, LiveAtStart::Allocate));
    assert_eq!(policies(&whole).len(), 4, "nothing is in force before the first event");
}

#[test]
fn a_cut_between_two_events_keeps_the_live_objects() {
    let sample = Sample::new(21, 1000);
    let gap = |pair: &[Event]| pair[1].time_ns - pair[0].time_ns > 2;
    let at = 500 + sample.events[500..].windows(2).position(gap).unwrap();
    let from_ns = sample.events[at].time_ns + 1;
    let between = |events: Range<u64>| Part { events, time_ns: from_ns..from_ns + 1, threads: None };
    let mut cut = Cut::new(between(0..u64::MAX), LiveAtStart::Allocate);
    let part = sample.edited(&mut cut);
    assert_eq!(live_sizes(&part).last(), Some(&live_sizes(&sample.events)[at]));
    assert!(cut.counts.live_at_start > 10 && part.iter().all(|event| event.time_ns == 0));
    // These parts are empty: no event is in both ranges, live objects are left out, or the part is after the last
    // event.
    assert_eq!(sample.edited(&mut Cut::new(between(0..10), LiveAtStart::Allocate)), []);
    assert_eq!(calls(sample.edited(&mut Cut::new(between(0..u64::MAX), LiveAtStart::LeaveOut))), []);
    let after_end = Part { time_ns: u64::MAX - 1..u64::MAX, ..Part::WHOLE };
    assert_eq!(sample.edited(&mut Cut::new(after_end, LiveAtStart::Allocate)), []);
}

#[test]
fn a_cut_can_leave_out_objects_allocated_before_it() {
    let sample = Sample::new(5, 2000);
    let mut cut = Cut::new(events_of(1000..2000), LiveAtStart::LeaveOut);
    let part = calls(sample.edited(&mut cut));
    let mut known = std::collections::HashSet::new();
    let (mut unknown, mut left_out) = (0, 0);
    for event in &sample.events[1000..] {
        let Some(object) = event.op.object() else { continue };
        match event.op {
            _ if event.op.creates_object() => {
                known.insert(object);
            }
            _ if known.contains(&object) => {
                if event.op.frees_object() {
                    known.remove(&object);
                }
            }
            Op::Free { .. } | Op::ReallocFree { .. } => unknown += 1,
            Op::Realloc { .. } => {
                unknown += 1;
                known.insert(object);
            }
            _ => left_out += 1,
        }
    }
    assert!(unknown > 0 && left_out > 0);
    assert_eq!((cut.counts.unknown_pointer_calls, cut.counts.dropped_events), (unknown, left_out));
    let kept = calls(sample.events[1000..].to_vec()).len() as u64;
    assert_eq!(part.len() as u64, kept - left_out);
    let footer = TraceReader::open(&sample.out()).unwrap().footer().clone();
    assert_eq!(footer.quality.unknown_frees, sample_footer().quality.unknown_frees + unknown);
}

#[test]
fn a_cut_of_threads_frees_objects_that_others_freed() {
    let sample = Sample::new(6, 3000);
    let kept = [0, 2];
    let part = Part { threads: Some(kept.to_vec()), ..Part::WHOLE };
    let mut cut = Cut::new(part, LiveAtStart::Allocate);
    let events = sample.edited(&mut cut);
    let by_kept = |event: &&Event| kept.contains(&event.thread.0);
    let allocations = |events: &[Event]| events.iter().filter(|event| matches!(event.op, Op::Alloc { .. })).count();
    assert_eq!(
        allocations(&events),
        sample.events.iter().filter(by_kept).filter(|e| matches!(e.op, Op::Alloc { .. })).count()
    );
    assert!(cut.counts.reassigned_calls > 0 && cut.counts.unknown_pointer_calls > 0);
    let mut threads: Vec<u32> = events.iter().map(|event| event.thread.0).collect();
    threads.sort_unstable();
    threads.dedup();
    assert_eq!(threads, [0, 1]);
    // Objects live at the end are those that the kept threads allocated or resized, and that no thread freed.
    let mut owned = std::collections::HashSet::new();
    for event in &sample.events {
        let Some(object) = event.op.object() else { continue };
        let is_kept = by_kept(&event);
        match event.op {
            _ if event.op.frees_object() => {
                owned.remove(&object);
            }
            Op::Alloc { .. } | Op::ReallocUnknown { .. } | Op::Realloc { .. } if is_kept => {
                owned.insert(object);
            }
            _ => (),
        }
    }
    assert_eq!(live_sizes(&events).last().unwrap().values().sum::<u64>(), owned.len() as u64);
}

#[test]
fn a_part_between_marks_is_found_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("marks.hkt");
    let mark = |name| Op::Mark { name };
    let ops = [Op::FreeNull, mark(1), mark(0), Op::FreeNull, mark(1), mark(0), mark(1)];
    let events: Vec<Event> = ops.map(|op| Event::new(0, ThreadId(0), op)).to_vec();
    write_trace(&path, &events); // names: main, end
    let mut reader = TraceReader::open(&path).unwrap();
    assert_eq!(named_part(&mut reader, "main", Some("end")).unwrap(), 2..5);
    assert_eq!(named_part(&mut reader, "end", None).unwrap(), 1..u64::MAX);
    let why = named_part(&mut reader, "nowhere", None).unwrap_err().to_string();
    assert!(why.contains("nowhere") && why.contains("main, end"), "{why}");
}

#[test]
fn merged_traces_keep_the_order_of_their_events() {
    let samples = [Sample::new(7, 3000), Sample::new(8, 20), Sample::new(9, 2000)];
    let offsets = [0, 1 << 33, 500];
    let merging = samples.iter().zip(offsets).map(|(sample, offset_ns)| {
        let source: Box<dyn EventSource> = Box::new(sample.reader());
        MergeInput { source, offset_ns }
    });
    let out = samples[0].out();
    let summary = merge(merging.collect(), &out).unwrap();
    let merged = read(&out);
    assert_eq!(summary.events, 5020);
    assert!(merged.is_sorted_by_key(|event| event.time_ns));
    // The naive result: the events of all traces with distinct ids, sorted by shifted time with a stable sort.
    let mut all: Vec<(u64, usize, Event)> = Vec::new();
    for (at, sample) in samples.iter().enumerate() {
        all.extend(sample.events.iter().map(|event| (event.time_ns + offsets[at], at, *event)));
    }
    all.sort_by_key(|&(time_ns, at, _)| (time_ns, at));
    let apart = all.iter().map(|&(time_ns, at, event)| {
        let object = |object: ObjectId| ObjectId(object.0 + 1_000_000 * at as u32);
        let op = event.op.object().map_or(event.op, |own| event.op.with_object(object(own)));
        // Random marks and most random sites have no entry in the footer, and so none in the result.
        let op = if let Op::Mark { .. } = op { Op::Mark { name: u32::MAX } } else { op };
        let site = SiteId(if event.site.0 <= 2 { event.site.0 } else { 0 });
        Event { time_ns, thread: ThreadId(event.thread.0 + 1000 * at as u32), site, op }
    });
    assert_eq!(unnumbered(&merged), unnumbered(&apart.collect::<Vec<_>>()));
    let footer = TraceReader::open(&out).unwrap().footer().clone();
    let one = sample_footer();
    assert_eq!((footer.mark_names, footer.sites), (one.mark_names, one.sites));
    assert_eq!(footer.quality.parked, 3 * one.quality.parked);
    assert_eq!(footer.profiles[0].written, 3 * one.profiles[0].written);
}

#[test]
fn a_forked_child_begins_at_its_fork() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("parent.hkt");
    let fork = |time_ns, child_pid| Event::new(time_ns, ThreadId(0), Op::Fork { child_pid });
    write_trace(&path, &[fork(5, 76), fork(9, 77)]);
    let mut parent = TraceReader::open(&path).unwrap();
    let child = crate::support::sample_header(); // process 77
    assert_eq!(child_offset_ns(&mut parent, &child).unwrap(), Some(9));
}

#[test]
fn scaling_multiplies_times_and_sizes() {
    let sample = Sample::new(10, 2000);
    let factor = |value| Factor::new(value).unwrap();
    let slow = sample.edited(&mut ScaleTime(factor(2.5)));
    for (was, is) in sample.events.iter().zip(&slow) {
        assert_eq!(is.time_ns, was.time_ns * 5 / 2);
        assert_eq!((was.op, was.thread, was.site), (is.op, is.thread, is.site));
    }
    let large = sample.edited(&mut ScaleSizes(factor(1.5)));
    for (was, is) in sample.events.iter().zip(&large) {
        let grown = |size: u64| ((u128::from(size) * 3).div_ceil(2) as u64).min((1 << 47) - 1);
        match (was.op, is.op) {
            (Op::Alloc { size: a, .. }, Op::Alloc { size: b, .. }) => assert_eq!(b, grown(a)),
            (Op::Realloc { size: a, .. }, Op::Realloc { size: b, .. }) => assert_eq!(b, grown(a)),
            (Op::Touch { offset: a, .. }, Op::Touch { offset: b, .. }) => assert_eq!(b, a + a / 2),
            _ => assert_eq!(std::mem::discriminant(&was.op), std::mem::discriminant(&is.op)),
        }
    }
    assert!([0.0, -1.0, f64::NAN, 1e7].iter().all(|&value| Factor::new(value).is_none()));
}

#[test]
fn an_anonymised_trace_contains_no_names() {
    let sample = Sample::new(11, 3000);
    for sizes in [SizeDetail::Exact, SizeDetail::Classes] {
        let anonymous = sample.edited(&mut Anonymise::new(sizes));
        let bytes = std::fs::read(sample.out()).unwrap();
        for secret in ["./app", "-x", "main", "/bin/app", "00ff", "\"end\"", "8192"] {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{secret} is still in the file");
        }
        let untouched = |event: &&Event| !matches!(event.op, Op::Touch { .. });
        let calls = sample.events.iter().filter(untouched);
        assert_eq!(calls.clone().count(), anonymous.iter().filter(untouched).count());
        for (was, is) in calls.zip(anonymous.iter().filter(untouched)) {
            let (Op::Alloc { size: was, .. }, Op::Alloc { size: is, .. }) = (was.op, is.op) else { continue };
            match sizes {
                SizeDetail::Exact => assert_eq!(was, is),
                SizeDetail::Classes => {
                    assert!(is >= was && (is <= was + 15 || is - was < was.div_ceil(4)), "{was} {is}")
                }
            }
        }
    }
}

/// The events of an object that grows from one size to another. The program touches all its bytes, and the added bytes
/// immediately.
fn touched_to_the_end(first: u64, second: u64, stride: u64) -> Vec<Event> {
    let object = ObjectId(0);
    let allocated =
        Op::Alloc { object, size: first, align_log2: 0, call: AllocCall::Malloc, initial_touch: InitialTouch::Watched };
    let grown = Op::Realloc { object, size: second, call: ReallocCall::Realloc, initial_touch: InitialTouch::Watched };
    let touch = move |offset, bytes, access| Op::Touch { object, offset, bytes: bytes as u32, access };
    let touches = |to: u64, access| {
        (0..to).step_by(stride as usize).map(move |offset| touch(offset, stride.min(to - offset), access))
    };
    let ops = [allocated].into_iter().chain(touches(first, Access::Write)).chain([grown]);
    let ops = ops.chain([touch(first, second - first, Access::Write)]).chain(touches(second, Access::Read));
    ops.chain([Op::Free { object }]).map(|op| Event::new(0, ThreadId(0), op)).collect()
}

#[test]
fn touches_do_not_reveal_the_exact_size() {
    let anonymous = |first, second, stride| {
        let sample = Sample::of(touched_to_the_end(first, second, stride));
        sample.edited(&mut Anonymise::new(SizeDetail::Classes))
    };
    // Ranges of sizes that are in one class each, and the number of bytes of a touch.
    for (first, second, stride) in [(1..=16, 17..=32, 8), (81..=96, 193..=224, 8), (2561..=3072, 9000..=9100, 64)] {
        let expected = anonymous(*first.end(), *second.end(), stride);
        for less in [1, 3, 7, 11, 15] {
            let sizes = (first.end() - less, second.end() - less);
            assert_eq!(anonymous(sizes.0, sizes.1, stride), expected, "{sizes:?} against {first:?}, {second:?}");
        }
    }
    // Touches of a large object do not change, except those of its last bytes.
    let large = anonymous(5 << 20, 7 << 20, 4096);
    let pages = large.iter().filter(|event| matches!(event.op, Op::Touch { bytes: 4096, .. })).count();
    // The classes of both sizes begin at 4 and 6 MiB. Touches from 4 to 5 MiB and from 6 to 7 MiB are combined.
    assert_eq!(pages, 1024 + 5 * 256, "touches of single pages");
}

#[test]
fn kept_lifetimes_have_all_their_events() {
    let sample = Sample::new(13, 3000);
    let total = sample.events.iter().filter(|event| event.op.creates_object()).count() as u64;
    let mut kept = LifetimeSet::all(total);
    let mut random = Random::new(14);
    (0..total).filter(|_| random.chance(60)).collect::<Vec<_>>().into_iter().for_each(|number| kept.remove(number));
    assert_eq!(kept.count(), kept.iter().count() as u64);
    let mut numbers = ObjectNumbers::default();
    let without = [Op::FreeNull, Op::ThreadStart].map(|op| op_name(&op)).to_vec();
    let naive: Vec<Event> = sample
        .events
        .iter()
        .filter(|event| !matches!(event.op, Op::FreeNull | Op::ThreadStart))
        .filter(|event| numbers.follow(&event.op).is_none_or(|number| kept.contains(number)))
        .copied()
        .collect();
    let mut edited =
        Edited::new(sample.reader(), Keep::new(Selection { lifetimes: Arc::new(kept), without }, Vec::new())).unwrap();
    let (first, summary) = (read_all(&mut edited).unwrap(), *edited.summary());
    assert_eq!(unnumbered(&first), unnumbered(&naive));
    assert_eq!((summary.events, summary.duration_ns), (naive.len() as u64, naive.last().unwrap().time_ns));
    edited.rewind().unwrap();
    assert!(read_all(&mut edited).unwrap() == first);
    copy(&mut edited, &sample.out()).unwrap();
    assert!(read(&sample.out()) == first);
    assert_eq!(TraceReader::open(&sample.out()).unwrap().summary().objects_peak, summary.objects_peak);
}

#[test]
fn all_damage_is_detected_and_the_events_before_it_are_kept() {
    let sample = Sample::new(15, 50_000);
    let whole = std::fs::read(&sample.path).unwrap();
    assert!(verify(&sample.path).unwrap().valid);
    let (damaged, repaired) = (sample.folder.path().join("damaged.hkt"), sample.out());
    let mut random = Random::new(16);
    let header_end = 1000; // beyond the file header, as damage within it cannot be repaired
    for _ in 0..60 {
        let mut bytes = whole.clone();
        if random.chance(30) {
            bytes.truncate(header_end + random.below((whole.len() - header_end) as u64) as usize);
        } else {
            let at = header_end + random.below((whole.len() - header_end) as u64) as usize;
            bytes[at] ^= 1 << random.below(8);
        }
        std::fs::write(&damaged, &bytes).unwrap();
        let verified = verify(&damaged).unwrap();
        assert!(!verified.valid && verified.damage.is_some());
        let summary = repair(&damaged, &repaired).unwrap();
        assert_eq!(summary.events, verified.events);
        assert!(verify(&repaired).unwrap().valid);
        assert!(read(&repaired) == sample.events[..summary.events as usize]);
    }
}
