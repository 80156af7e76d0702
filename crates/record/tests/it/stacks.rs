//! Call sites of real processes: what was recorded against the program's source, with binutils' addr2line for names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hksim_record::{Options, RecordReport, RecordedTrace, record};
use hksim_trace::event::{Event, Op, SiteId};
use hksim_trace::hkt::TraceReader;
use hksim_trace::sites::Sites;
use hksim_trace::source::EventSource;

use crate::support::{compile, events, have, scratch};

/// Lines of C source by their mark: `// asks: NAME` or `// calls: NAME`.
fn marked_lines(name: &str) -> BTreeMap<String, u32> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
    let text = fs::read_to_string(path).expect("the source");
    let marked = text.lines().zip(1..).filter_map(|(line, number)| {
        let (_, mark) = line.split_once("; // ")?;
        Some((mark.to_string(), number))
    });
    marked.collect()
}

fn recorded(dir: &Path, depth: u32, words: &[PathBuf]) -> RecordReport {
    let options = Options { output: dir.join("app.hkt"), stack_depth: Some(depth), ..Options::default() };
    let words: Vec<_> = words.iter().map(|word| word.clone().into_os_string()).collect();
    record(&options, &words).expect("a recording")
}

/// Sites of the calls that asked for `size` bytes.
fn sites_of(events: &[Event], size: u64) -> Vec<SiteId> {
    let asked = |event: &&Event| match event.op {
        Op::Alloc { size: asked, .. } | Op::Realloc { size: asked, .. } => asked == size,
        _ => false,
    };
    events.iter().filter(asked).map(|event| event.site).collect()
}

fn sites(trace: &RecordedTrace) -> Sites {
    TraceReader::open(&trace.path).expect("a trace").footer().sites.clone()
}

/// `function:line` of each frame that lies in `file`, as addr2line has it; other frames are `?`.
fn names(sites: &Sites, site: SiteId, file: &Path) -> Vec<String> {
    let of_file = |frame: &&hksim_trace::sites::Frame| {
        sites.module_of(frame).is_some_and(|module| Path::new(&module.path) == file)
    };
    let name = |frame: &hksim_trace::sites::Frame| match of_file(&frame) {
        true => look_up(file, frame.address),
        false => "?".to_string(),
    };
    sites.frames_of(site).map(name).collect()
}

fn look_up(file: &Path, address: u64) -> String {
    let output =
        Command::new("addr2line").arg("-fe").arg(file).arg(format!("{address:#x}")).output().expect("addr2line");
    let text = String::from_utf8(output.stdout).expect("text");
    let mut lines = text.lines();
    let (function, place) = (lines.next().expect("a function"), lines.next().expect("a place"));
    let line = place.rsplit(':').next().unwrap_or_default().split(' ').next().unwrap_or_default();
    format!("{function}:{line}")
}

/// The one site of all calls of that size, after their number was checked.
fn the_site(events: &[Event], size: u64, calls: usize) -> SiteId {
    let sites = sites_of(events, size);
    assert_eq!(sites.len(), calls, "calls of {size} bytes");
    assert!(sites.iter().all(|&site| site == sites[0] && site != SiteId::UNKNOWN), "{size} bytes: {sites:?}");
    sites[0]
}

fn check(flags: &[&str]) {
    if !have("addr2line") {
        return;
    }
    let dir = scratch();
    let program = compile(dir.path(), "chains", &[flags, &["-ldl"]].concat());
    let report = recorded(dir.path(), 8, std::slice::from_ref(&program));
    assert_eq!(report.traces.len(), 2, "program and child");
    let (all, known, lines) = (events(&report.traces[0]), sites(&report.traces[0]), marked_lines("chains"));
    let at = |function: &str, mark: &str| format!("{function}:{}", lines[mark]);
    let chain = |size, calls| names(&known, the_site(&all, size, calls), &program);
    let begins = |size, calls, expected: &[String]| {
        let found = chain(size, calls);
        assert_eq!(found.get(..expected.len()), Some(expected), "{size} bytes, {flags:?}: {found:?}");
    };
    let leaf = at("leaf", "asks: leaf");
    begins(101, 100, &[leaf.clone(), at("first", "calls: first"), at("main", "calls: main_first")]);
    begins(102, 50, &[leaf, at("second", "calls: second"), at("main", "calls: main_second")]);
    let below = at("deeper", "calls: deeper");
    begins(103, 1, &[at("deeper", "asks: deeper"), below.clone(), below.clone(), below]);
    begins(104, 7, &[at("flexible", "asks: flexible")]);
    assert!(chain(104, 7)[1].starts_with("main:"), "over a frame of unknown size: {:?}", chain(104, 7));
    begins(105, 1, &[at("grows", "asks: grows")]);
    begins(50105, 1, &[at("grows", "asks: grows_more")]);
    begins(106, 1, &[at("aligns", "asks: aligns")]);
    begins(108, 100, &[at("worker", "asks: worker")]);
    let handler = chain(107, 1);
    assert_eq!(handler[0], at("handler", "asks: handler"));
    let interrupted = at("interrupted", "calls: interrupted");
    assert!(handler.contains(&interrupted), "through the signal's frame: {handler:?}");

    let (of_child, known) = (events(&report.traces[1]), sites(&report.traces[1]));
    let chain = names(&known, the_site(&of_child, 109, 9), &program);
    assert_eq!(chain[0], at("of_child", "asks: of_child"));
    assert!(chain[1].starts_with("main:"), "{chain:?}");
}

#[test]
fn chains_are_those_of_the_source() {
    check(&["-O2"]);
}

#[test]
fn chains_with_frame_pointers_are_those_of_the_source() {
    check(&["-O2", "-fno-omit-frame-pointer"]);
}

#[test]
fn code_without_tables_is_walked_by_frame_pointers() {
    check(&["-O2", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
}

#[test]
fn a_library_in_the_place_of_another_has_its_own_name() {
    if !have("addr2line") {
        return;
    }
    let dir = scratch();
    let program = compile(dir.path(), "chains", &["-O2", "-ldl"]);
    let library = |name: &str, size: &str| {
        let built = compile(dir.path(), "plugin", &["-O2", "-shared", "-fPIC", &format!("-DSIZE={size}")]);
        let path = dir.path().join(name);
        fs::rename(built, &path).expect("a name");
        path
    };
    let (one, other) = (library("one.so", "201"), library("other.so", "202"));
    let report = recorded(dir.path(), 4, &[program.clone(), one.clone(), other.clone()]);
    let (all, known, lines) = (events(&report.traces[0]), sites(&report.traces[0]), marked_lines("plugin"));
    for (size, path) in [(201, &one), (202, &other)] {
        let site = the_site(&all, size, 5);
        let found = names(&known, site, path);
        assert_eq!(found[0], format!("plugged:{}", lines["asks: plugged"]), "{}", path.display());
        let callers = names(&known, site, &program);
        assert_eq!(callers[1], format!("plug:{}", marked_lines("chains")["calls: plug"]));
        assert_eq!(callers.len(), 4, "depth 4");
    }
}

#[test]
fn a_recording_without_call_sites_has_none() {
    let dir = scratch();
    let program = compile(dir.path(), "chains", &["-O2", "-ldl"]);
    let options = Options { output: dir.path().join("app.hkt"), ..Options::default() };
    let report = record(&options, &[program.into_os_string()]).expect("a recording");
    assert!(sites(&report.traces[0]).is_empty());
    assert!(events(&report.traces[0]).iter().all(|event| event.site == SiteId::UNKNOWN));
}
