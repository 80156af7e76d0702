//! Call sites of `sites.c`, which keeps the return addresses of its functions in a list of its own, and prints them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use hksim_memory_record::{Options, RecordingReport, Source};
use hksim_memory_trace::{Op, PAGE_BYTES, Reader, StackEnd};
use tempfile::TempDir;

use crate::support::{compiled_with, is_root, options, recorded};

/// The program's frames of a call, innermost first, as addresses in its file, and where the stack ends.
#[derive(Debug, PartialEq)]
struct Found {
    frames: Vec<u64>,
    end: StackEnd,
}

/// What each call of the program printed: return addresses in its file by the number of pages. Only the innermost
/// function is missing, which has not been left. Return addresses outside the program are those of its C library.
fn printed(text: &str, program_bytes: u64) -> BTreeMap<u64, Vec<u64>> {
    let line = |line: &str| {
        let (pages, addresses) = line.split_once(' ').expect("pages and addresses");
        let addresses = addresses.split(' ').map(|address| u64::from_str_radix(address, 16).expect("an address"));
        (pages.parse().expect("a number"), addresses.filter(|address| (1..program_bytes).contains(address)).collect())
    };
    text.lines().map(line).collect()
}

/// The recorded frames in the program of calls that made so many pages.
fn found(path: &Path, program: &Path) -> BTreeMap<u64, Found> {
    let mut reader = Reader::open(path).expect("a recording");
    assert_eq!(reader.header().stack_depth, Some(64));
    let (mut found, mut chunk) = (BTreeMap::new(), Vec::new());
    while reader.next_chunk(&mut chunk).expect("events") {
        for event in &chunk {
            let pages = match &event.op {
                Op::Map(map) => map.pages.end - map.pages.start,
                Op::Remap { new, .. } => new.end - new.start,
                _ => continue,
            };
            let Some(end) = reader.sites().stack(event.site).and_then(|stack| stack.end) else { continue };
            let is_own = |module: &str| Path::new(module) == program;
            let own = reader
                .sites()
                .frames_of(event.site)
                .filter(|frame| reader.sites().module_of(frame).is_some_and(|module| is_own(&module.path)));
            found.insert(pages, Found { frames: own.map(|frame| frame.address).collect(), end });
        }
    }
    found
}

/// Compares the recorded stacks with the printed ones.
fn compare(file: &Path, program: &Path, how: &str) {
    // The program's frames lie in the first addresses of its file; other modules are far away.
    let program_bytes = 1 << 30;
    let printed = printed(&fs::read_to_string(file.with_extension("output")).expect("the output"), program_bytes);
    let found = found(file, program);
    assert_eq!(printed.len(), 9, "{how}");
    for (pages, returns) in &printed {
        let Found { frames, end } = found.get(pages).unwrap_or_else(|| panic!("{how}: no call of {pages} pages"));
        // A frame is the last byte of its call. The innermost one is in the function that made the call; after main
        // comes the program's entry point, and after a thread's function nothing.
        let calls: Vec<u64> = returns.iter().map(|address| address - 1).collect();
        let inner = &frames[1..];
        if *pages == 1009 {
            // Each of 31 frames has 1 KiB, more than the dump.
            assert_eq!(*end, StackEnd::StackCutOff, "{how}");
            assert!(inner.len() >= 12 && inner == &calls[..inner.len()], "{how}: {inner:x?}, {calls:x?}");
            continue;
        }
        assert_eq!(*end, StackEnd::Outermost, "{how}: {pages} pages");
        let outer = if *pages == 1007 { 0 } else { 1 };
        // The signal interrupted the C library: its caller is main, which the list has no return address for.
        let interrupted = usize::from(*pages == 1006);
        assert_eq!(inner.len(), calls.len() + outer + interrupted, "{how}: {pages} pages: {inner:x?}, {calls:x?}");
        assert_eq!(inner[..calls.len()], calls[..], "{how}: {pages} pages: {inner:x?}");
    }
}

fn record(folder: &TempDir, program: &Path, source: Source, stack_depth: Option<u32>) -> Option<RecordingReport> {
    let options = Options { stack_depth, ..options(&folder.path().join("sites.hkm"), source) };
    recorded(&options, program, &[])
}

#[test]
fn call_sites_are_those_that_the_program_keeps() {
    let folder = TempDir::new().expect("a directory");
    // Frame pointers are omitted in all of them; without tables, only the second one has frame pointers.
    let ways: [&[&str]; 4] = [
        &["-O2", "-fomit-frame-pointer"],
        &["-O0", "-fno-omit-frame-pointer"],
        &["-O2", "-fomit-frame-pointer", "-no-pie", "-DSTART=0"],
        &["-O2", "-fomit-frame-pointer", "-s"],
    ];
    for flags in ways {
        let Some(program) = compiled_with(folder.path(), "sites.c", flags) else { return };
        for source in [Source::Tracepoints, Source::Stops] {
            let Some(report) = record(&folder, &program, source, Some(64)) else { continue };
            assert_eq!(report.stacks_incomplete, Some(1), "{flags:?}, {source:?}");
            compare(&report.files[0].path, &program, &format!("{flags:?}, {source:?}"));
        }
    }
}

/// A static program: all frames are its own.
#[test]
fn static_programs_have_call_sites() {
    let folder = TempDir::new().expect("a directory");
    let Some(program) = compiled_with(folder.path(), "sites.c", &["-O2", "-static", "-DSTART=0"]) else { return };
    for source in [Source::Tracepoints, Source::Stops] {
        let Some(report) = record(&folder, &program, source, Some(64)) else { continue };
        let file = &report.files[0].path;
        let printed = printed(&fs::read_to_string(file.with_extension("output")).expect("the output"), 1 << 30);
        for (pages, Found { frames, end }) in found(file, &program).range(1001..1009) {
            assert_eq!(*end, StackEnd::Outermost, "{source:?}: {pages} pages");
            // The C library is in the program, so its frames lie between.
            let mut rest = frames.iter();
            for address in &printed[pages] {
                assert!(
                    rest.any(|frame| *frame == address - 1),
                    "{source:?}: {pages} pages: no {address:x}: {frames:x?}"
                );
            }
        }
    }
}

#[test]
fn the_depth_limits_frames_and_recordings_without_stacks_have_none() {
    let folder = TempDir::new().expect("a directory");
    let Some(program) = compiled_with(folder.path(), "sites.c", &["-O2"]) else { return };
    for source in [Source::Tracepoints, Source::Stops] {
        let Some(report) = record(&folder, &program, source, Some(3)) else { continue };
        let mut reader = Reader::open(&report.files[0].path).expect("a recording");
        let mut chunk = Vec::new();
        while reader.next_chunk(&mut chunk).expect("events") {}
        let stacks = &reader.sites().stacks;
        assert!(stacks.len() > 5 && stacks.iter().all(|stack| stack.frames.len() <= 3), "{source:?}");
        assert!(stacks.iter().any(|stack| stack.end == Some(StackEnd::Depth)), "{source:?}");
        let plain = record(&folder, &program, source, None).expect("a recording");
        assert_eq!(plain.stacks_incomplete, None);
        assert_eq!(fs::read(&plain.files[0].path).expect("the file")[8..12], [1, 0, 0, 0], "version 1");
    }
}

/// gdb stops the program at its first call of 1002 pages and prints the return addresses.
#[test]
fn gdb_finds_the_same_callers() {
    let folder = TempDir::new().expect("a directory");
    let Some(program) = compiled_with(folder.path(), "sites.c", &["-O2", "-no-pie", "-DSTART=0"]) else { return };
    let Some(report) = record(&folder, &program, Source::Auto, Some(64)) else { return };
    let condition = format!("condition 1 $rsi == {}", 1002 * PAGE_BYTES);
    let script = ["catch syscall mmap", &condition, "set backtrace past-main on", "run > /dev/null", "backtrace"];
    let words = script.into_iter().flat_map(|line| ["-ex", line]);
    let output = match Command::new("gdb").args(["-q", "-batch", "-nx"]).args(words).arg(&program).output() {
        Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
        Err(why) => return eprintln!("skipped: no gdb: {why}"),
    };
    if !output.contains("#0") {
        return eprintln!("skipped: gdb cannot run the program here (root: {}): {output}", is_root());
    }
    // Frames: `#3  0x0000000000401234 in by_malloc ()`; the program's own lie below 0x1000000.
    let address = |line: &str| {
        let word = line.split_whitespace().nth(1)?.strip_prefix("0x")?;
        u64::from_str_radix(word, 16).ok().filter(|&address| address < 0x100_0000)
    };
    let theirs: Vec<u64> = output.lines().filter(|line| line.starts_with('#')).filter_map(address).collect();
    let ours = found(&report.files[0].path, &program).remove(&1002).expect("the call");
    assert_eq!(ours.frames.iter().map(|frame| frame + 1).collect::<Vec<_>>(), theirs, "{output}");
}
