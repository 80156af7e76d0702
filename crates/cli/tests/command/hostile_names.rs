//! Names in traces, results, budgets and bundles, which hksim opens: they lead to regular files, and in a bundle not out
//! of it.

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use hksim_trace::event::{AllocCall, Event, InitialTouch, ObjectId, Op, SiteId, ThreadId};
use hksim_trace::header::{Clock, Footer, Header, Origin, TouchSource};
use hksim_trace::hkt::TraceWriter;
use hksim_trace::sites::{Frame, Module, Sites};

use crate::support::recordings::can_record;
use crate::support::{Bench, json_of};

/// Above the need of any command here, and below that of a file without an end.
const MEMORY_BYTES_MAX: u64 = 4 << 30;

/// Runs a command with limited memory and time. Returns its exit status and what it printed.
fn bounded(bench: &Bench, line: &str) -> (Option<i32>, String) {
    let mut command = std::process::Command::new("prlimit");
    command.arg(format!("--as={MEMORY_BYTES_MAX}")).arg(env!("CARGO_BIN_EXE_hksim")).args(line.split(' '));
    command.current_dir(bench.folder()).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("prlimit starts");
    let started = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if started.elapsed() > Duration::from_secs(60) {
            child.kill().expect("the child is killed");
            panic!("{line}: waits");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = child.wait_with_output().expect("the child ended");
    let text = [ended.stdout, ended.stderr].concat();
    (ended.status.code(), String::from_utf8_lossy(&text).into_owned())
}

fn pipe(bench: &Bench, name: &str) {
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mknodat(rustix::fs::CWD, bench.path(name), rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
}

/// A trace of one allocation, whose call site is in a file of this name.
fn write_trace(bench: &Bench, module: &str) {
    let origin = Origin::Imported { format: "test".into(), file: "test".into() };
    let header = Header::new(origin, TouchSource::Assumed, Clock::PerEvent);
    let mut writer = TraceWriter::create(&bench.path("t.hkt"), &header).expect("a trace");
    let op = Op::Alloc {
        object: ObjectId(0),
        size: 100_000,
        align_log2: 0,
        call: AllocCall::Malloc,
        initial_touch: InitialTouch::None,
    };
    writer.push(&Event { time_ns: 0, thread: ThreadId(0), site: SiteId(1), op }).expect("an event");
    let sites = Sites {
        modules: vec![Module { path: module.into(), build_id: None }],
        frames: vec![Frame { module: Some(0), address: 16, function: None, source: None }],
        stacks: vec![vec![0].into()],
    };
    writer.finish(&Footer { sites, ..Footer::default() }).expect("a trace");
}

#[test]
fn modules_of_a_trace_are_regular_files() {
    let bench = Bench::new();
    pipe(&bench, "pipe");
    let pipe = bench.path("pipe").display().to_string();
    for module in ["/dev/zero", "/dev/tty", "/proc/self/mem", "/", &pipe] {
        write_trace(&bench, module);
        for line in ["explain t.hkt", "info t.hkt --sites", "trace symbolise t.hkt -o named.hkt"] {
            let (code, text) = bounded(&bench, line);
            assert_eq!(code, Some(0), "{module}: {line}: {text}");
        }
    }
}

/// An ELF file of one part, which is far larger than those of any program and takes no space on the disk.
fn sparse_elf(path: &Path, kind: u32, name: &[u8]) {
    const PART_AT: u64 = 4096;
    let bytes: u64 = 6 << 30;
    let names = [b"\0.shstrtab\0", name, b"\0"].concat();
    let [names_at, sections_at] = [2048u64, 64];
    let mut header = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    header.extend([3u16, 62].into_iter().flat_map(u16::to_le_bytes));
    header.extend(1u32.to_le_bytes());
    header.extend([0, 0, sections_at].into_iter().flat_map(u64::to_le_bytes));
    header.extend(0u32.to_le_bytes());
    header.extend([64u16, 56, 0, 64, 3, 1].into_iter().flat_map(u16::to_le_bytes));
    let section = |name: u32, kind: u32, at: u64, bytes: u64| {
        let mut section = [name, kind].into_iter().flat_map(u32::to_le_bytes).collect::<Vec<u8>>();
        section.extend([0, 0, at, bytes].into_iter().flat_map(u64::to_le_bytes));
        section.extend([1u32, 0].into_iter().flat_map(u32::to_le_bytes));
        section.extend([1u64, 24].into_iter().flat_map(u64::to_le_bytes));
        section
    };
    header.extend(section(0, 0, 0, 0));
    header.extend(section(1, 3, names_at, names.len() as u64));
    header.extend(section(11, kind, PART_AT, bytes / 24 * 24));
    let file = fs::File::create(path).expect("a file");
    file.write_all_at(&header, 0).expect("the header");
    file.write_all_at(&names, names_at).expect("the names");
    file.set_len(PART_AT + bytes).expect("a sparse file");
}

/// The commands end without reading the part: with less memory and, in a debug build, far sooner.
#[test]
fn forged_modules_are_not_read() {
    let bench = Bench::new();
    let module = bench.path("forged");
    write_trace(&bench, &module.display().to_string());
    for (kind, name) in [(7, ".note.gnu.build-id"), (2, ".symtab"), (11, ".dynsym")] {
        sparse_elf(&module, kind, name.as_bytes());
        let (code, text) = bounded(&bench, "info t.hkt --sites");
        assert!(code == Some(0) && text.contains("far larger than those of any program"), "{name}: {code:?} {text}");
    }
}

/// The library that looks up names opens a file next to the module.
#[test]
fn a_pipe_next_to_a_module_is_not_waited_for() {
    let bench = Bench::new();
    let module = bench.path("app");
    let stripped = std::process::Command::new("objcopy")
        .args(["-R", ".note.gnu.build-id"])
        .arg(env!("CARGO_BIN_EXE_hksim"))
        .arg(&module)
        .status();
    if !stripped.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: no objcopy");
    }
    pipe(&bench, "app.dwp");
    write_trace(&bench, &module.display().to_string());
    let (code, text) = bounded(&bench, "info t.hkt --sites");
    assert_eq!(code, Some(0), "{text}");
}

#[test]
fn a_pipe_in_a_folder_to_import_is_not_waited_for() {
    let bench = Bench::new();
    fs::create_dir(bench.path("lttng")).expect("a folder");
    pipe(&bench, "lttng/metadata");
    let (code, text) = bounded(&bench, "import lttng -o t.hkt");
    assert_eq!(code, Some(2), "{text}");
}

#[test]
fn files_that_the_user_names_are_read_to_a_limit() {
    let bench = Bench::with_trace();
    for line in ["report /dev/zero -o r.html", "merge /dev/zero", "check /dev/zero", "explain --fit /dev/zero"] {
        let (code, text) = bounded(&bench, line);
        assert!(code == Some(2) && text.contains("longer than 1 GiB"), "{line}: {code:?} {text}");
    }
    let (code, text) = bounded(&bench, "sim rm.hkt --policy /dev/zero");
    assert!(code == Some(2) && text.contains("not a regular file"), "{code:?} {text}");
    // It is read more than once: from a pipe, the default would be simulated.
    let ran = bench.shell("", "hksim sim rm.hkt --policy <(echo 'huge = \"never\"')");
    assert!(ran.code == Some(2) && ran.stderr.contains("not a regular file"), "{}", ran.stderr);
    bench.ok("sim rm.hkt --format json -o sim.json");
    let ran = bench.shell("", "hksim plot <(cat sim.json) -o p.svg");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn names_in_budgets_lead_to_regular_files() {
    let bench = Bench::with_trace();
    pipe(&bench, "pipe");
    pipe(&bench, "pipe.toml");
    for (trace, result, policy) in [
        ("pipe", "r.json", "default"),
        ("rm.hkt", "pipe", "default"),
        ("rm.hkt", "r.json", "pipe.toml"),
        ("rm.hkt", "/dev/zero", "default"),
        ("/dev/zero", "r.json", "default"),
    ] {
        let budget =
            format!("result = \"{result}\"\ntraces = [\"{trace}\"]\n[design.a]\npolicy = \"{policy}\"\nvmas = 2\n");
        fs::write(bench.path("budget.toml"), budget).expect("a budget");
        let (code, text) = bounded(&bench, "check budget.toml");
        assert!(code == Some(2) && text.contains("regular file"), "{trace} {result} {policy}: {code:?} {text}");
    }
}

#[test]
fn commands_in_results_make_nothing_read() {
    let bench = Bench::with_trace();
    pipe(&bench, "pipe");
    pipe(&bench, "pipe.toml");
    bench.ok("sim rm.hkt --format json -o sim.json");
    bench.ok("explain rm.hkt --against hakmem --format json -o explain.json");
    bench.ok("bundle sim.json explain.json -o study");
    bench.ok("repeat study");
    for (name, words) in [
        ("sim", vec!["sim", "rm.hkt", "--policy", "/dev/zero"]),
        ("sim", vec!["sim", "rm.hkt", "--policy", "pipe"]),
        ("sim", vec!["sim", "rm.hkt", "--policy=/dev/zero"]),
        ("sim", vec!["sim", "rm.hkt", "--profile", "pipe"]),
        ("sim", vec!["sim", "pipe"]),
        ("explain", vec!["explain", "rm.hkt", "--against", "pipe.toml"]),
        ("explain", vec!["explain", "--fit", "pipe"]),
    ] {
        let place = format!("study/results/{name}.json");
        let kept = fs::read(bench.path(&place)).expect("a result");
        let mut result = json_of(&bench.path(&place));
        result["command"] = words.clone().into();
        fs::write(bench.path(&place), result.to_string()).expect("a result");
        for line in ["repeat study".to_string(), format!("bundle {place} -o new"), format!("report {place} -o r.html")]
        {
            let (code, text) = bounded(&bench, &line);
            let is_report = line.starts_with("report");
            assert!(code == Some(2) || is_report && code == Some(0), "{words:?}: {line}: {code:?} {text}");
        }
        fs::write(bench.path(&place), kept).expect("a result");
    }
}

/// A bundle is shared, so a result of somebody else must not choose which files get into it.
#[test]
fn only_inputs_are_copied_into_a_bundle() {
    let bench = Bench::with_trace();
    fs::write(bench.path("secret"), "root:x:0:0").expect("a file");
    bench.ok("sim rm.hkt --format json -o sim.json");
    let result = json_of(&bench.path("sim.json"));
    for words in [
        vec!["sim", "secret"],
        vec!["sim", "rm.hkt", "--profile", "secret"],
        vec!["sim", "rm.hkt", "--policy", "secret"],
    ] {
        let mut result = result.clone();
        result["command"] = words.into();
        fs::write(bench.path("other.json"), result.to_string()).expect("a result");
        let said = bench.refused("bundle other.json -o new");
        assert!(said.contains("its input secret is no trace"), "{said}");
    }
    let mut labelled = result;
    labelled["trace"]["file"] = "secret".into();
    fs::write(bench.path("other.json"), labelled.to_string()).expect("a result");
    assert!(bench.refused("bundle other.json -o new").contains("its input secret is no trace"));
}

#[test]
fn links_do_not_lead_out_of_a_bundle() {
    let bench = Bench::with_trace();
    bench.ok("sim rm.hkt --format json -o sim.json");
    bench.ok("bundle sim.json -o study");
    for file in ["inputs/rm.hkt", "results/sim.json", "bundle.json"] {
        let (inside, outside) = (bench.path(&format!("study/{file}")), bench.path("outside"));
        fs::rename(&inside, &outside).expect("a file");
        symlink(&outside, &inside).expect("a link");
        let said = bench.refused("repeat study");
        assert!(said.contains(file) && said.contains("leads out of the folder"), "{file}: {said}");
        fs::remove_file(&inside).expect("a link");
        fs::rename(&outside, &inside).expect("a file");
    }
    let (inside, outside) = (bench.path("study/inputs"), bench.path("outside"));
    fs::rename(&inside, &outside).expect("a folder");
    symlink(&outside, &inside).expect("a link");
    assert!(bench.refused("repeat study").contains("leads out of the folder"));
    fs::remove_file(&inside).expect("a link");
    fs::rename(&outside, &inside).expect("a folder");
    // A file that only the checksums name is reported as changed.
    fs::remove_file(bench.path("study/README.md")).expect("a file");
    symlink("/dev/zero", bench.path("study/README.md")).expect("a link");
    let (code, text) = bounded(&bench, "repeat study");
    assert!(code == Some(1) && text.contains("README.md"), "{code:?} {text}");
    let before = bench.run("info study/inputs/rm.hkt");
    assert_eq!(before.code, Some(0));
}

/// The recorder reads the files that a program has mapped, after the program may have put a pipe in their place.
#[test]
fn a_pipe_instead_of_a_mapped_file_is_not_waited_for() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    fs::copy("/bin/sleep", bench.path("prog")).expect("a program");
    fs::write(bench.path("job.sh"), "(exec ./prog 1) & sleep 0.03; rm prog; mkfifo prog; wait").expect("a script");
    let (code, text) = bounded(&bench, "record --memory --stacks -o app.hkm sh job.sh");
    assert_eq!(code, Some(0), "{text}");
}
