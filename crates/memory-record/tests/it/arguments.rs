//! The arguments and results of memory calls, against those that strace prints.

use std::path::Path;
use std::process::{Command, Stdio};

use hksim_memory_record::Source;
use hksim_memory_trace::{Op, Origin, PAGE_BYTES};

use crate::support::{MAPPINGS, operations, options, recorded, with_program};

const CASES: [&str; 10] = ["remap", "fixed", "reserve", "unmap", "lock", "advice", "refused", "brk", "protect", "zero"];
const CALLS: &str = "trace=mmap,munmap,mremap,mprotect,madvise,brk,mlock,mlock2,munlock,mlockall,munlockall";

/// What a call did: its name, and numbers that depend on the name.
type Done = (&'static str, Vec<u64>);

/// The calls of a program with fixed addresses, as strace prints them; `None`, with the reason printed, without strace.
fn traced(program: &Path, case: &str, file: &Path) -> Option<Vec<Done>> {
    let mut strace = Command::new("setarch");
    strace.args(["-R", "strace", "-e", CALLS, "-e", "raw=all", "-o"]).arg(file).arg(program).arg(case);
    match strace.stdout(Stdio::null()).status() {
        Ok(status) if status.success() => {}
        failed => {
            eprintln!("skipped: strace: {failed:?}");
            return None;
        }
    }
    let text = std::fs::read_to_string(file).expect("the output of strace");
    let mut heap_end = None;
    Some(text.lines().filter_map(|line| done(line, &mut heap_end)).collect())
}

/// A line `CALL(ARGUMENT, ...) = RESULT`, if the call changed something.
fn done(line: &str, heap_end: &mut Option<u64>) -> Option<Done> {
    let (call, rest) = line.split_once('(')?;
    // The result is aligned.
    let (arguments, result) = rest.rsplit_once(" = ")?;
    let arguments = arguments.trim_end().strip_suffix(')')?;
    let number = |word: &str| {
        let word = word.trim();
        word.strip_prefix("0x").map_or_else(|| word.parse().ok(), |digits| u64::from_str_radix(digits, 16).ok())
    };
    let numbers: Vec<u64> = arguments.split(',').filter_map(number).collect();
    let at = |index: usize| numbers.get(index).copied().unwrap_or(0);
    let result = result.trim_start().split(' ').next()?;
    let has_failed = result.starts_with('-');
    let result = number(result).unwrap_or(0);
    let pages = |start: u64, bytes: u64| (start / PAGE_BYTES, (start + bytes).div_ceil(PAGE_BYTES));
    let range = |start, bytes| vec![pages(start, bytes).0, pages(start, bytes).1];
    let with = |mut range: Vec<u64>, last| {
        range.push(last);
        range
    };
    match call {
        "brk" => {
            let before = heap_end.replace(result)?;
            let (old, new) = (before.div_ceil(PAGE_BYTES), result.div_ceil(PAGE_BYTES));
            match new.cmp(&old) {
                std::cmp::Ordering::Less => Some(("unmap", vec![new, old])),
                std::cmp::Ordering::Equal => None,
                std::cmp::Ordering::Greater => Some(("heap", vec![old, new])),
            }
        }
        // Advice is recorded whatever it returns, unless its start is not aligned.
        "madvise" => (at(0) % PAGE_BYTES == 0).then(|| ("advise", with(range(at(0), at(1)), at(2)))),
        // A hole is an error, after the mappings before it were changed.
        "mprotect" => Some(("protect", with(range(at(0), at(1)), at(2)))),
        _ if has_failed => None,
        "mmap" => Some(("map", [range(result, at(1)), vec![at(2), at(3)]].concat())),
        "munmap" => Some(("unmap", range(at(0), at(1)))),
        "mremap" => Some(("remap", [range(at(0), at(1)), range(result, at(2)), vec![at(3)]].concat())),
        "mlock" => Some(("lock", with(range(at(0), at(1)), 0))),
        "mlock2" => Some(("lock", with(range(at(0), at(1)), at(2)))),
        "munlock" => Some(("unlock", range(at(0), at(1)))),
        "mlockall" => Some(("lock all", vec![at(0)])),
        "munlockall" => Some(("unlock all", Vec::new())),
        _ => None,
    }
}

/// The same from a recording.
fn shown(op: Op) -> Option<Done> {
    Some(match op {
        Op::Map(map) => match map.origin {
            Origin::Mmap => {
                ("map", vec![map.pages.start, map.pages.end, u64::from(map.protection), u64::from(map.flags)])
            }
            Origin::Brk => ("heap", vec![map.pages.start, map.pages.end]),
            Origin::Exec | Origin::Kernel => return None,
        },
        Op::Unmap(pages) => ("unmap", vec![pages.start, pages.end]),
        Op::Remap { old, new, flags } => ("remap", vec![old.start, old.end, new.start, new.end, u64::from(flags)]),
        Op::Protect { pages, protection, .. } => ("protect", vec![pages.start, pages.end, u64::from(protection)]),
        Op::Advise { pages, advice, .. } => ("advise", vec![pages.start, pages.end, u64::from(advice)]),
        Op::Lock { pages, flags, .. } => ("lock", vec![pages.start, pages.end, u64::from(flags)]),
        Op::Unlock(pages) => ("unlock", vec![pages.start, pages.end]),
        Op::LockAll(flags) => ("lock all", vec![u64::from(flags)]),
        Op::UnlockAll => ("unlock all", Vec::new()),
        _ => return None,
    })
}

#[test]
fn calls_have_the_arguments_that_strace_prints() {
    let Some((directory, program)) = with_program(MAPPINGS) else { return };
    for case in CASES {
        let Some(traced) = traced(&program, case, &directory.path().join("strace")) else { return };
        assert!(traced.len() > 8, "{case}: {traced:?}");
        for source in [Source::Tracepoints, Source::Stops] {
            let file = directory.path().join(format!("{case}.hkm"));
            let Some(report) = recorded(&options(&file, source), &program, &[case]) else { continue };
            let shown: Vec<Done> = operations(&report.files[0].path).into_iter().filter_map(shown).collect();
            for (index, (shown, traced)) in shown.iter().zip(&traced).enumerate() {
                assert_eq!(shown, traced, "{case}, {source:?}, call {index}");
            }
            assert_eq!(shown.len(), traced.len(), "{case}, {source:?}");
        }
    }
}
