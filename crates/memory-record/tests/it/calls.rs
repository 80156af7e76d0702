//! The number of calls that strace counts.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use hksim_memory_record::Source;
use hksim_memory_trace::{Op, Origin};

use crate::support::{operations, options, recorded, with_program};

/// Successful calls of a program and its children by name; `None`, with the reason printed, without strace.
fn counted(program: &Path, name: &str, file: &Path) -> Option<BTreeMap<&'static str, u64>> {
    let mut strace = Command::new("strace");
    strace.args(["-f", "-e", "trace=mmap,munmap,mprotect,madvise", "-o"]).arg(file);
    match strace.arg(program).arg(name).stdout(Stdio::null()).status() {
        Ok(status) if status.success() => {}
        failed => {
            eprintln!("skipped: strace: {failed:?}");
            return None;
        }
    }
    let text = std::fs::read_to_string(file).expect("the output of strace");
    let mut counts = BTreeMap::new();
    for call in ["mmap", "munmap", "mprotect", "madvise"] {
        let has_ended = |line: &&str| {
            let is_call = line.contains(&format!(" {call}(")) && !line.contains("<unfinished");
            is_call || line.contains(&format!("<... {call} resumed>"))
        };
        let has_failed = |line: &&str| line.contains(" = -1 ") && call != "madvise";
        counts.insert(call, text.lines().filter(|line| has_ended(line) && !has_failed(line)).count() as u64);
    }
    Some(counts)
}

#[test]
fn as_many_calls_as_strace_counts() {
    let Some((directory, program)) = with_program("behaviour.c") else { return };
    for name in ["children", "many_threads", "own_filter"] {
        let Some(counted) = counted(&program, name, &directory.path().join("strace")) else { return };
        let file = directory.path().join(format!("{name}.hkm"));
        let Some(report) = recorded(&options(&file, Source::Stops), &program, &[name]) else { return };
        let mut shown = BTreeMap::from([("mmap", 0), ("munmap", 0), ("mprotect", 0), ("madvise", 0)]);
        for op in report.files.iter().flat_map(|file| operations(&file.path)) {
            let call = match op {
                Op::Map(map) if map.origin == Origin::Mmap => "mmap",
                Op::Unmap(_) => "munmap",
                Op::Protect { .. } => "mprotect",
                Op::Advise { .. } => "madvise",
                _ => continue,
            };
            *shown.entry(call).or_default() += 1;
        }
        assert_eq!(shown, counted, "{name}");
    }
}
