//! `record --accesses pages`, compared with programs that print their touches.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};

use hksim_trace::event::{Access, InitialTouch, Op, PageTouches, ThreadId};
use hksim_trace::header::TouchSource;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;
use tempfile::TempDir;

const PAGE_BYTES: u64 = 4096;
/// Minimum size of the program's blocks; smaller blocks belong to the C library and the loader.
const OWN_BYTES_MIN: u64 = 100;

/// Page and access of each touch, by requested size of the block.
type Touches = BTreeMap<u64, BTreeSet<(u64, char)>>;

/// A program of this name, in a directory that any user may write to.
fn compiled_from(name: &str) -> TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), mode).expect("the folder's mode");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../record/tests/c").join(name).with_extension("c");
    let flags = ["-O1", "-fno-builtin", "-Wall", "-pthread"];
    hksim_testkit::compile(source, folder.path().join(name), &flags).expect("a C compiler");
    folder
}

fn compiled() -> TempDir {
    compiled_from("touched")
}

/// Records the program through `wrapper`. Returns its output, or `None` if the wrapper cannot run.
fn record(folder: &Path, wrapper: &[&str], program: &[&str]) -> Option<Touches> {
    let hksim = env!("CARGO_BIN_EXE_hksim");
    let own = [hksim, "record", "--quiet", "--accesses", "pages", "--sample", "1", "-o", "t.hkt", "--", "./touched"];
    let words: Vec<&str> = wrapper.iter().copied().chain(own).chain(program.iter().copied()).collect();
    let run = Command::new(words[0]).args(&words[1..]).current_dir(folder).stdin(Stdio::null()).output();
    let run = run.ok().filter(|run| run.status.success());
    let Some(run) = run else {
        println!("skipped: {} does not run here", wrapper.join(" "));
        return None;
    };
    let mut touches = Touches::new();
    for line in String::from_utf8(run.stdout).expect("text").lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let &[size, page, access] = words.as_slice() else { panic!("{line}") };
        let touch = (page.parse().expect("a page"), access.chars().next().expect("a letter"));
        touches.entry(size.parse().expect("a size")).or_default().insert(touch);
    }
    assert!(touches.len() > 50, "the program prints its touches");
    Some(touches)
}

/// The recorded touches of blocks whose size is `known`, and the threads that touched them.
fn recorded(folder: &Path, known: impl Fn(u64) -> bool) -> (Touches, BTreeMap<u64, BTreeSet<ThreadId>>) {
    let mut reader = TraceReader::open(&folder.join("t.hkt")).expect("a trace");
    assert_eq!(reader.header().touch, TouchSource::Sampled);
    let (mut live, mut touches, mut threads) = (BTreeMap::new(), Touches::new(), BTreeMap::new());
    while let Some(batch) = reader.next_batch().expect("readable") {
        for event in batch {
            match event.op {
                Op::Alloc { object, size, initial_touch, .. } => {
                    assert!(initial_touch == InitialTouch::Watched || size == 0, "{event:?}");
                    live.insert(object, size);
                }
                Op::Free { object } => drop(live.remove(&object).expect("a live object")),
                Op::Touch { object, offset, access, .. } => {
                    let size = live[&object];
                    if known(size) {
                        let access = if access == Access::Read { 'r' } else { 'w' };
                        touches.entry(size).or_default().insert((offset / PAGE_BYTES, access));
                        threads.entry(size).or_insert_with(BTreeSet::new).insert(event.thread);
                    }
                }
                _ => {}
            }
        }
    }
    assert_eq!(reader.footer().quality.uses_dropped, 0);
    (touches, threads)
}

/// Whether the program itself allocates blocks of a size: sizes that it prints, and nearby sizes that it never touches.
fn is_own(threads: u64) -> impl Fn(u64) -> bool {
    move |size| {
        let bases = [100, 700, 2500, 4096, 9000, 70_000, 1 << 20];
        size >= OWN_BYTES_MIN && bases.iter().any(|base| (*base..base + 12 * threads).contains(&size))
    }
}

fn check(wrapper: &[&str], threads: u64, end: &str) {
    check_as(wrapper, threads, end, |touches| touches);
}

/// Records the program and compares the touches with its output, filtered by `visible`.
fn check_as(wrapper: &[&str], threads: u64, end: &str, visible: impl Fn(Touches) -> Touches) {
    let folder = compiled();
    let Some(printed) = record(folder.path(), wrapper, &[&threads.to_string(), end]).map(visible) else { return };
    let (seen, by_thread) = recorded(folder.path(), is_own(threads));
    for size in printed.keys().chain(seen.keys()).collect::<BTreeSet<_>>() {
        assert_eq!(seen.get(size), printed.get(size), "{wrapper:?} {threads} {end}: the block of {size} bytes");
    }
    if wrapper.is_empty() {
        let others = by_thread.get(&(70_000 + 8)).expect("touched by another thread");
        assert!(!others.contains(&ThreadId(0)), "{others:?}");
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|data| std::os::unix::fs::MetadataExt::uid(&data) == 0)
}

#[test]
fn touches_match_the_program() {
    check(&[], 1, "exit");
    check(&[], 4, "exit");
}

#[test]
fn faults_of_children_and_after_a_kill_are_not_recorded() {
    if !is_root() {
        println!("skipped: only root can see whether a fault is a read or a write");
        return;
    }
    check(&[], 2, "fork");
    check(&[], 2, "kill");
}

#[test]
fn an_unprivileged_user_records_the_same_touches() {
    if !is_root() {
        println!("skipped: the other tests run as an ordinary user already");
        return;
    }
    check(&["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"], 2, "exit");
}

/// The touches that a later scan can find. It cannot show that a written page was read before.
fn without_reads_of_written_pages(mut touches: Touches) -> Touches {
    for of_block in touches.values_mut() {
        let written: Vec<u64> = of_block.iter().filter(|(_, access)| *access == 'w').map(|&(page, _)| page).collect();
        of_block.retain(|(page, access)| *access == 'w' || !written.contains(page));
    }
    touches
}

#[test]
fn without_fault_events_pages_are_scanned() {
    let refuse = "inject=perf_event_open:error=EACCES";
    let wrapper = ["strace", "-o", "/dev/null", "-e", "trace=perf_event_open", "-e", refuse];
    check_as(&wrapper, 2, "exit", without_reads_of_written_pages);
}

/// If the end of a block that spans two pages is read first, its second page takes two faults. The trace records the
/// number of such blocks, and simulation and replay repeat it.
#[test]
fn each_page_of_a_block_has_its_own_first_access() {
    if !is_root() {
        println!("skipped: only root can see whether a fault is a read or a write");
        return;
    }
    let folder = compiled_from("straddle");
    let hksim = |words: &str| {
        let run = Command::new(env!("CARGO_BIN_EXE_hksim")).args(words.split(' ')).current_dir(folder.path()).output();
        let run = run.expect("hksim starts");
        assert!(run.status.success(), "{words}: {run:?}");
        run.stdout
    };
    hksim("record --quiet --accesses pages --sample 20 -o t.hkt -- ./straddle");
    let reader = TraceReader::open(&folder.path().join("t.hkt")).expect("a trace");
    let of_class = |bytes| {
        let profiles = reader.footer().profiles.iter();
        *profiles
            .clone()
            .find(|profile| profile.bytes_max == bytes && profile.zeroed)
            .expect("watched blocks of this size")
    };
    let (soon, late) = (of_class(144), of_class(80));
    assert!(soon.written > 100 && late.written > 100, "{soon:?} {late:?}");
    // The last byte is after the page boundary, wherever that boundary is.
    assert_eq!(soon.apart[PageTouches::WriteReadWrite as usize], soon.written, "{soon:?}");
    // Only the last block may lack neighbours.
    assert!(late.apart.iter().sum::<u64>() <= 1, "{late:?}");
    let report: serde_json::Value =
        serde_json::from_slice(&hksim("sim t.hkt --huge never --purge none --format json")).expect("JSON");
    let read_first = report["installs"]["by_kind"]["cow"].as_u64().expect("a count");
    // Blocks of 144 bytes are 160 bytes apart, so blocks span four of five page boundaries. The C library adds a few
    // pages.
    let pages = 4000 * 160 / 4096;
    assert!((pages * 7 / 10..pages + 8).contains(&read_first), "{read_first} of {pages} pages");
    let validated: serde_json::Value = serde_json::from_slice(&hksim(
        "validate t.hkt --huge never,thp --purge none,dontneed --purge-delay 0 --align arena,trim --format json",
    ))
    .expect("JSON");
    for row in validated["rows"].as_array().expect("rows") {
        assert_eq!(row["verdict"], "ok", "{row}");
    }
}
