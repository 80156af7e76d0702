//! Records `calls.c` with the recording tools that are installed, and imports the results.

use super::recordings::{check_valgrind_summary, data};
use crate::support::importing::{Folder, compare_counts};
use hksim_trace::info::Info;
use std::path::Path;
use std::process::{Command, Stdio};

const FUNCTIONS: &str = "malloc+free+calloc+realloc+reallocarray+posix_memalign+aligned_alloc+memalign+valloc+pvalloc";

/// Compiles `calls.c` in the folder. If this is not possible, prints the reason and returns `None`.
fn program(folder: &Folder) -> Option<()> {
    let mut cc = Command::new("cc");
    cc.args(["-O0", "-fno-builtin", "-o", "calls"]).arg(data("calls.c")).args(["-lpthread", "-l:libstdc++.so.6"]);
    run(&mut cc, folder, "cc").map(|_| ())
}

/// Runs the command and returns its standard error. If the command fails or cannot run, prints the reason and returns
/// `None`.
fn run(command: &mut Command, folder: &Folder, name: &str) -> Option<String> {
    match command.current_dir(folder.path()).stdin(Stdio::null()).stdout(Stdio::null()).output() {
        Ok(output) if output.status.success() => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Ok(output) => {
            println!("skipped: {name} cannot run here: {}", String::from_utf8_lossy(&output.stderr).trim());
            None
        }
        Err(why) => {
            println!("skipped: {name}: {why}");
            None
        }
    }
}

fn compare(folder: &Folder, format: &str, path: &Path) -> Info {
    compare_counts(folder, format, path, None, "live")
}

#[test]
fn a_recording_by_ltrace_is_imported() {
    let folder = Folder::new();
    let mut ltrace = Command::new("ltrace");
    ltrace.args(["-f", "-ttt", "-o", "out.txt", "-e", FUNCTIONS, "./calls"]);
    if program(&folder).and_then(|()| run(&mut ltrace, &folder, "ltrace")).is_some() {
        let info = compare(&folder, "ltrace", &folder.path().join("out.txt"));
        // ltrace shows calls through a PLT. A program linked without one shows fewer calls, but they must add up.
        assert!(info.mallocs > 0 && info.unknown_frees == 0, "{info:?}");
        assert_eq!(info.threads, 3);
    }
}

#[test]
fn a_recording_by_valgrind_is_imported() {
    let folder = Folder::new();
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["--trace-malloc=yes", "./calls", "v"]);
    let Some(said) = program(&folder).and_then(|()| run(&mut valgrind, &folder, "valgrind")) else { return };
    let path = folder.file("out.txt", &said);
    let info = compare(&folder, "valgrind", &path);
    assert_eq!((info.aligned_allocs, info.reallocs, info.requests_failed), (6, 4, 1));
    check_valgrind_summary(&folder, &path, &said);
}

#[test]
fn a_recording_by_mtrace_is_imported() {
    let folder = Folder::new();
    let mut calls = Command::new("./calls");
    calls.env("MALLOC_TRACE", "out.txt").env("LD_PRELOAD", "libc_malloc_debug.so.0");
    if program(&folder).and_then(|()| run(&mut calls, &folder, "mtrace")).is_none() {
        return;
    }
    let path = folder.path().join("out.txt");
    if !path.exists() {
        println!("skipped: mtrace: glibc has no libc_malloc_debug.so.0 here");
        return;
    }
    let info = compare(&folder, "mtrace", &path);
    assert_eq!((info.requests_failed, info.unknown_frees, info.live_objects_end), (1, 0, 1));
    // mtrace distinguishes only resizes of live blocks to more than 0 bytes from other calls.
    assert_eq!(info.reallocs, 2);
}

#[test]
fn a_recording_by_bpftrace_is_imported() {
    let folder = Folder::new();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/malloc.bt");
    let mut bpftrace = Command::new("bpftrace");
    bpftrace.args(["-q", "-o", "out.txt", "-c", "./calls"]).arg(script);
    if program(&folder).and_then(|()| run(&mut bpftrace, &folder, "bpftrace")).is_none() {
        return;
    }
    let path = folder.path().join("out.txt");
    if !std::fs::read_to_string(&path).is_ok_and(|text| text.contains("malloc(1234)=")) {
        println!("skipped: bpftrace: its probes recorded no calls here");
        return;
    }
    let info = compare(&folder, "bpftrace", &path);
    assert_eq!((info.threads, info.reallocs, info.aligned_allocs, info.requests_failed), (3, 4, 6, 1));
}
