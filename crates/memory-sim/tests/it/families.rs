//! The limit of a family of processes: whichever member's file is asked, it is what all of them need together at one time,
//! and a member's memory is free from its end on. All charges are computed by hand.

use std::path::{Path, PathBuf};

use hksim_linux_mm::{KernelConfig, ThpConfig, ThpMode};
use hksim_memory_sim::{Detail, Family, Prediction, Setting, simulate};
use hksim_memory_trace::{
    Beginning, End, Event, Footer, Header, MapOp, MappingAtStart, MappingKind, MappingTraits, Op, Origin, PageAtStart,
    PagesAtStart, SiteId, TouchKind, Writer,
};
use tempfile::TempDir;

/// A page at a 1 GiB boundary.
const AT: u64 = 0x7f00_0000_0000 / 4096;
/// Kernel pages of a process with one or two mappings and 1 to 2 MiB of memory: two page tables of the last level, one of each
/// level above, and the records of mappings.
const KERNEL_PAGES: u64 = 2 + 2 + 1;

const ATTACHED: Beginning = Beginning::Attached { stopped_ns: 1, lazy_unknown_bytes: 0 };

/// A scripted process: its operations with their times, and the time of its end.
struct Process {
    pid: u32,
    beginning: Beginning,
    ops: Vec<(u64, Op)>,
    end_ns: Option<u64>,
}

fn forked(parent_pid: u32) -> Beginning {
    Beginning::Fork { parent_pid, parent_image: 0 }
}

fn mapping(from: u64, pages: u64) -> MapOp {
    let kind = MappingKind::Anonymous;
    let pages = AT + from..AT + from + pages;
    MapOp { pages, hint_page: 0, kind, origin: Origin::Mmap, protection: 3, flags: 0x22, name: None }
}

fn map(time_ns: u64, from: u64, pages: u64) -> (u64, Op) {
    (time_ns, Op::Map(Box::new(mapping(from, pages))))
}

fn writes(time_ns: u64, pages: std::ops::Range<u64>) -> impl Iterator<Item = (u64, Op)> {
    pages.map(move |page| (time_ns, Op::Touch { page: AT + page, kind: TouchKind::Write }))
}

/// The recordings of processes; the first one is that of the started program.
fn recorded(folder: &TempDir, processes: Vec<Process>) -> Vec<PathBuf> {
    let others = folder.path().join("a.hkm.processes");
    std::fs::create_dir(&others).expect("a folder");
    let mut paths = Vec::new();
    let mut pids = Vec::new();
    for (number, Process { pid, beginning, ops, end_ns }) in processes.into_iter().enumerate() {
        // A process with the id of an earlier one has the next image.
        let image = pids.iter().filter(|&&other| other == pid).count() as u32;
        pids.push(pid);
        let name = format!("a.{pid}-{image}.hkm");
        let path = if number == 0 { folder.path().join("a.hkm") } else { others.join(name) };
        let header = Header { pid, image, beginning, ..Header::example(&["a"]) };
        let mut writer = Writer::create(&path, &header).expect("a file");
        for (time_ns, op) in ops {
            writer.push(Event { time_ns, thread: 0, op, site: SiteId::UNKNOWN }).expect("an event");
        }
        writer.finish(&Footer { end: End::Exit, end_ns, ..Footer::default() }).expect("a file");
        paths.push(path);
    }
    paths
}

/// The prediction for one of the recordings, without new huge pages, under a limit in pages.
fn limited(path: &Path, pages: u64) -> Prediction {
    let (thp, memory_limit_bytes) = (ThpConfig::new(ThpMode::Never), Some(pages * 4096));
    let setting = Setting::recorded(KernelConfig { thp, memory_limit_bytes, ..KernelConfig::default() });
    let result = simulate(Family::open(path).expect("recordings"), &[setting], Detail::Pages);
    result.expect("a result").predictions.remove(0)
}

/// Checks what a family is charged at most, in pages, by the file of each member, and that it is the least limit; and how many
/// pages each has at its end.
fn assert_needs(what: &str, processes: Vec<Process>, needed: u64, at_end: &[u64]) {
    assert_charged(what, processes, [needed, needed], at_end);
}

/// The same where the kernel can reclaim something, so that the least limit, which is the second one, is below the charge.
fn assert_charged(what: &str, processes: Vec<Process>, [most, needed]: [u64; 2], at_end: &[u64]) {
    let folder = tempfile::tempdir().expect("a folder");
    let paths = recorded(&folder, processes);
    assert_eq!(paths.len(), at_end.len());
    for (path, at_end) in paths.iter().zip(at_end) {
        let what = format!("{what}, {}", path.display());
        let prediction = limited(path, 1 << 20);
        let limit = prediction.memory_limit.as_ref().expect("a limit");
        assert_eq!(limit.pressure.charged_bytes_peak / 4096, most, "{what}");
        let present: u64 = prediction.pages.iter().map(|run| run.pages).sum();
        assert_eq!((prediction.rss_bytes_end / 4096, present), (*at_end, *at_end), "{what}");
        assert_eq!(prediction.family.map(|family| family.processes), Some(paths.len() as u64), "{what}");
        let survives = |pages| limited(path, pages).memory_limit.expect("a limit").survives();
        assert!(survives(needed) && !survives(needed - 1), "{what}");
    }
}

/// A process with 600 pages at time 0, which forks at time 1.
fn parent() -> Vec<(u64, Op)> {
    let mut ops = vec![map(0, 0, 1024)];
    ops.extend(writes(0, 0..600));
    ops.push((1, Op::Fork { child_pid: 2 }));
    ops
}

/// The child copies 100 pages, and ends before its parent writes 424 others.
#[test]
fn a_child_that_ends_first_is_not_charged_any_more() {
    for end_ns in [Some(3), None] {
        let mut ops = parent();
        ops.push((3, Op::ChildEnded { child_pid: 2 }));
        ops.extend(writes(4, 600..1024));
        let parent = Process { pid: 1, beginning: Beginning::Exec, ops, end_ns: Some(5) };
        let child = Process { pid: 2, beginning: forked(1), ops: writes(2, 0..100).collect(), end_ns };
        // With the child: 600 + 100, and the kernel's pages of both.
        assert_needs("a child", vec![parent, child], 1024 + KERNEL_PAGES, &[1024, 600]);
    }
}

/// The parent copies 200 pages and ends. Then its child has all of its own 600 pages alone: it writes 300 of them without a
/// copy, and 424 others.
#[test]
fn a_parent_that_ends_first_is_not_charged_any_more() {
    let mut ops = parent();
    ops.extend(writes(2, 0..200));
    let parent = Process { pid: 1, beginning: Beginning::Exec, ops, end_ns: Some(3) };
    let ops = writes(4, 0..300).chain(writes(5, 600..1024)).collect();
    let child = Process { pid: 2, beginning: forked(1), ops, end_ns: Some(6) };
    // Together they have 600 + 200 pages, and the kernel's of both.
    assert_needs("a parent", vec![parent, child], 1024 + KERNEL_PAGES, &[600, 1024]);
}

/// A second child gets the process id of the first one, which has ended: each has its own recording.
#[test]
fn children_of_one_process_id_are_two_processes() {
    let mut ops = parent();
    ops.push((3, Op::ChildEnded { child_pid: 2 }));
    ops.push((4, Op::Fork { child_pid: 2 }));
    ops.push((6, Op::ChildEnded { child_pid: 2 }));
    ops.push((7, Op::Unmap(AT..AT + 512)));
    let parent = Process { pid: 1, beginning: Beginning::Exec, ops, end_ns: Some(8) };
    let first = Process { pid: 2, beginning: forked(1), ops: writes(2, 0..100).collect(), end_ns: Some(3) };
    let second = Process { pid: 2, beginning: forked(1), ops: writes(5, 0..300).collect(), end_ns: Some(6) };
    assert_needs("children", vec![parent, first, second], 600 + 300 + 2 * KERNEL_PAGES, &[88, 600, 600]);
}

/// At the same time, the child writes 100 pages and the parent unmaps 512. The parent is first, so nothing is copied.
#[test]
fn of_equal_times_the_parent_is_first() {
    let mut ops = parent();
    ops.push((2, Op::Unmap(AT..AT + 512)));
    let parent = Process { pid: 7, beginning: Beginning::Exec, ops, end_ns: Some(3) };
    let child = Process { pid: 2, beginning: forked(7), ops: writes(2, 0..100).collect(), end_ns: Some(3) };
    assert_needs("equal times", vec![parent, child], 600 + 2 * KERNEL_PAGES, &[88, 600]);
}

/// A process that was there, with memory at the start and what it does later.
fn attached(pid: u32, start: &[(std::ops::Range<u64>, PageAtStart)], later: Vec<(u64, Op)>, end_ns: u64) -> Process {
    let traits = MappingTraits::ACCOUNTED;
    let mut ops = vec![(0, Op::MappingAtStart(Box::new(MappingAtStart { map: mapping(0, 1024), traits })))];
    ops.extend(start.iter().map(|(pages, state)| {
        let pages = AT + pages.start..AT + pages.end;
        (0, Op::PagesAtStart(PagesAtStart { pages, state: *state }))
    }));
    ops.extend(later);
    Process { pid, beginning: ATTACHED, ops, end_ns: Some(end_ns) }
}

/// Two processes share a huge page, of which one maps 300 pages only, and 512 small pages. One ends, and the other goes on
/// with 600 pages elsewhere.
#[test]
fn what_was_shared_before_is_charged_once_until_the_last_one_ends() {
    use PageAtStart::{HugeShared, SmallShared};
    let whole = [(0..512, HugeShared), (512..1024, SmallShared)];
    let part = [(0..300, SmallShared), (512..1024, SmallShared)];
    let more = || std::iter::once(map(2, 2048, 1024)).chain(writes(2, 2048..2648)).collect::<Vec<_>>();
    // Two more page tables. The pages that nobody else has any more are written without a copy.
    let with_more = || writes(2, 0..1).chain(writes(2, 600..610)).chain(more()).collect::<Vec<_>>();
    let needed = 1024 + 600 + KERNEL_PAGES + 2;
    for pids in [[1, 2], [2, 1]] {
        let pair = vec![attached(pids[0], &whole, with_more(), 3), attached(pids[1], &part, Vec::new(), 1)];
        assert_needs("the part ends", pair, needed, &[1624, 812]);
        // The huge page stays charged as long as a part of it is mapped, or until the kernel splits it at the limit.
        let pair = vec![attached(pids[0], &whole, Vec::new(), 1), attached(pids[1], &part, more(), 3)];
        assert_charged("the whole ends", pair, [needed, needed - 212], &[1024, 1412]);
    }
}

/// Three processes: two map parts of a huge page, and the third one as a whole. All of it is charged once.
#[test]
fn a_huge_page_can_be_shared_in_several_parts() {
    use PageAtStart::{HugeShared, SmallShared};
    let starts = [(0..512, HugeShared), (0..300, SmallShared), (200..400, SmallShared)];
    for pids in [[1, 2, 3], [3, 2, 1], [2, 3, 1]] {
        let processes = starts.iter().zip(pids);
        let processes =
            processes.map(|(start, pid)| attached(pid, std::slice::from_ref(start), Vec::new(), 1)).collect();
        // One page table of the last level in each.
        assert_needs("three", processes, 512 + 3 * (KERNEL_PAGES - 1), &[512, 300, 200]);
    }
}
