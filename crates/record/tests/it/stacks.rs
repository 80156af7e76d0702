//! Call sites of real processes, compared with the program's source. binutils' addr2line supplies the names.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hksim_record::{Exit, Options, RecordReport, RecordedTrace, record};
use hksim_trace::event::{Event, Op, SiteId};
use hksim_trace::hkt::TraceReader;
use hksim_trace::sites::Sites;
use hksim_trace::source::EventSource;

use crate::support::{compile, events, have, scratch};

/// Line numbers in the C source by their mark: `// asks: NAME` or `// calls: NAME`.
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

/// Call sites of the calls that requested `size` bytes.
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

/// `function:line` of each frame in `file`, from addr2line; other frames are `?`.
fn names(sites: &Sites, site: SiteId, file: &Path) -> Vec<String> {
    let of_file = |frame: &&hksim_trace::sites::Frame| {
        sites.module_of(frame).is_some_and(|module| Path::new(&*module.path) == file)
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

/// The common site of all calls of that size. Checks that it is the only site, and the number of calls.
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
    assert!(chain(104, 7)[1].starts_with("main:"), "walk past a frame of unknown size: {:?}", chain(104, 7));
    begins(105, 1, &[at("grows", "asks: grows")]);
    begins(50105, 1, &[at("grows", "asks: grows_more")]);
    begins(106, 1, &[at("aligns", "asks: aligns")]);
    begins(108, 100, &[at("worker", "asks: worker")]);
    let handler = chain(107, 1);
    assert_eq!(handler[0], at("handler", "asks: handler"));
    let interrupted = at("interrupted", "calls: interrupted");
    assert!(handler.contains(&interrupted), "walk through the signal frame: {handler:?}");

    let (of_child, known) = (events(&report.traces[1]), sites(&report.traces[1]));
    let chain = names(&known, the_site(&of_child, 109, 9), &program);
    assert_eq!(chain[0], at("of_child", "asks: of_child"));
    assert!(chain[1].starts_with("main:"), "{chain:?}");
}

#[test]
fn call_chains_match_the_source() {
    check(&["-O2"]);
}

#[test]
fn call_chains_with_frame_pointers_match_the_source() {
    check(&["-O2", "-fno-omit-frame-pointer"]);
}

#[test]
fn code_without_tables_is_walked_by_frame_pointers() {
    check(&["-O2", "-fno-omit-frame-pointer", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"]);
}

#[test]
fn a_program_with_a_gap_between_its_segments_has_tables_and_build_id() {
    if !have("readelf") {
        return;
    }
    let flags = ["-O2", "-no-pie", "-DAPART", "-Wl,--build-id", "-Wl,--section-start=apart=0x900000"];
    check(&flags);
    let dir = scratch();
    let program = compile(dir.path(), "chains", &[&flags[..], &["-ldl"]].concat());
    let report = recorded(dir.path(), 4, std::slice::from_ref(&program));
    check_build_id(&sites(&report.traces[0]), &program);
}

/// Checks that the module's build id equals the one that readelf prints.
fn check_build_id(sites: &Sites, path: &Path) {
    let output = Command::new("readelf").arg("-n").arg(path).output().expect("readelf");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let expected = text.lines().find_map(|line| line.split_once("Build ID: ")).map(|(_, id)| id.trim().to_string());
    let module = sites.modules.iter().find(|module| Path::new(&*module.path) == path).expect("the program's module");
    assert_eq!(module.build_id, expected, "{}", path.display());
}

/// With glibc before 2.35, modules are looked up under the dynamic linker's lock.
#[test]
fn call_chains_match_the_source_on_an_older_glibc() {
    check(&["-O2", "-rdynamic", "-DNO_FIND_OBJECT", "-Wl,--defsym=_dl_find_object=0"]);
}

/// Generated code has no unwind tables. If a walk leads from a file's code to generated code, the stack ends there; the
/// inner frames are correct.
#[test]
fn stacks_through_generated_code_have_correct_inner_frames() {
    if !have("node") || !have("readelf") {
        return;
    }
    let dir = scratch();
    let script = dir.path().join("job.js");
    let text = "function grow(n) { return new Uint8Array(n); }\n\
                let sum = 0;\n\
                for (let i = 0; i < 20000; i++) sum += grow(20011).length;\n\
                if (sum != 20000 * 20011) process.exit(1);\n";
    fs::write(&script, text).expect("the script");
    let found = Command::new("node").args(["-p", "process.execPath"]).output().expect("node");
    let node = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim());
    let report = recorded(dir.path(), 16, &[node.clone(), script]);
    assert_eq!(report.exit, Some(Exit::Code(0)));
    let (all, known) = (events(&report.traces[0]), sites(&report.traces[0]));
    check_build_id(&known, &node);
    let asked = sites_of(&all, 20011);
    assert!(asked.len() >= 20000 && !asked.contains(&SiteId::UNKNOWN), "{}", asked.len());
    let stacks: BTreeMap<SiteId, Vec<u64>> = asked
        .iter()
        .map(|&site| (site, known.frames_of(site).map(|frame| frame.address).collect::<Vec<_>>()))
        .collect();
    let of_node =
        |site| known.frames_of(site).next().and_then(|frame| known.module_of(frame)).map(|module| &module.path);
    assert!(stacks.keys().all(|&site| of_node(site).is_some_and(|path| Path::new(&**path) == node)));
    // The innermost functions are the same, whether the script was interpreted or compiled at run time.
    let first = &stacks[&asked[0]];
    assert!(stacks.values().all(|stack| stack.len() >= 3 && stack[..3] == first[..3]), "{stacks:x?}");
}

#[test]
fn calls_without_a_site_are_counted() {
    let dir = scratch();
    let library = compile(dir.path(), "early", &["-shared", "-fPIC"]);
    let flags = ["-O2", "-ldl", "-Wl,--no-as-needed", library.to_str().expect("UTF-8")];
    let program = compile(dir.path(), "chains", &flags);
    let report = recorded(dir.path(), 8, std::slice::from_ref(&program));
    let all = events(&report.traces[0]);
    assert_eq!(sites_of(&all, 4242), [SiteId::UNKNOWN; 7]);
    let lost = all.iter().filter(|event| event.op.asks_for_memory() && event.site == SiteId::UNKNOWN).count();
    assert_eq!(report.traces[0].quality.sites_lost, lost as u64);
    assert_eq!(report.traces[1].quality.sites_lost, 0, "call sites are lost in a forked child");
}

/// The program is killed while it writes new stacks. Every stack to which a record refers must be complete and correct.
#[test]
fn stacks_are_complete_whenever_the_program_is_killed() {
    if !have("nm") {
        return;
    }
    let dir = scratch();
    let program = compile(dir.path(), "paths", &["-O2", "-fno-ipa-icf"]);
    let symbols = function_starts(&program);
    let mut checked = 0;
    for run in 0..12_u32 {
        // Most new stacks appear in the first few milliseconds.
        let after_us = 1 + run * run * 150;
        let report = recorded(dir.path(), 40, &[program.clone(), after_us.to_string().into()]);
        assert_eq!(report.exit, Some(Exit::Signal(libc::SIGKILL)));
        let (all, known) = (events(&report.traces[0]), sites(&report.traces[0]));
        for event in &all {
            let Op::Alloc { size, .. } = event.op else { continue };
            let Some(path) = size.checked_sub(PATH_SIZE).filter(|&path| path < 1 << PATH_LEVELS) else { continue };
            assert_ne!(event.site, SiteId::UNKNOWN);
            let function = |address| symbols.range(..=address).next_back().map_or("", |(_, name)| name.as_str());
            let names: Vec<&str> = known.frames_of(event.site).map(|frame| function(frame.address)).collect();
            let turns: Vec<&str> = names.iter().copied().filter(|name| matches!(*name, "zero" | "one")).rev().collect();
            let expected = (0..PATH_LEVELS).map(|level| if path >> level & 1 == 1 { "one" } else { "zero" });
            assert!(turns.iter().copied().eq(expected), "{path:b}: {names:?}");
            checked += 1;
        }
    }
    assert!(checked > 1000, "{checked} stacks checked");
}

/// The size that `paths.c` allocates.
const PATH_SIZE: u64 = 10_000;
const PATH_LEVELS: u32 = 12;

/// Start of each function of a program, from nm.
fn function_starts(program: &Path) -> BTreeMap<u64, String> {
    let output = Command::new("nm").arg(program).output().expect("nm");
    let text = String::from_utf8(output.stdout).expect("text");
    let function = |line: &str| {
        let mut words = line.split(' ');
        let (at, kind, name) = (words.next()?, words.next()?, words.next()?);
        (kind.eq_ignore_ascii_case("t")).then(|| Some((u64::from_str_radix(at, 16).ok()?, name.to_string())))?
    };
    text.lines().filter_map(function).collect()
}

#[test]
fn a_library_loaded_at_a_reused_address_has_its_own_name() {
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
    assert_eq!(report.traces[0].quality.sites_lost, 0, "no call site was requested");
}
