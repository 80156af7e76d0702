//! C programs on the native allocator: their output must equal that on glibc's allocator.

mod limits;
mod memory_locks;
mod memory_policy;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

mod misuse;

/// Policies with different code paths: constant and run-time geometry, headers, metadata, purges, huge pages.
const POLICIES: [&[&str]; 5] = [
    &[],
    &["--huge", "never", "--purge-delay", "0"],
    &["--meta", "sidecar", "--superslab", "1M", "--carve", "bump"],
    &["--header", "full", "--header-bytes", "16", "--purge", "unmap", "--purge-delay", "0"],
    &["--huge", "hugetlb", "--superslab", "4M", "--cache", "0"],
];

/// Compiled programs, in their own directory.
struct Programs {
    folder: TempDir,
}

impl Programs {
    /// Prints a note and returns `None` without a C compiler.
    fn new() -> Option<Programs> {
        if Command::new("cc").arg("--version").output().is_err() {
            eprintln!("skipped: no C compiler (cc) is installed");
            return None;
        }
        Some(Programs { folder: TempDir::with_prefix("hksim-native-").expect("a temporary folder") })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn build(&self, source: &str, options: &[&str]) -> PathBuf {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/native/c").join(source);
        let out = self.folder.path().join(source.file_stem().expect("a source"));
        // No built-in malloc: otherwise the compiler may remove pairs of calls or assume their results.
        let common: &[&str] = &["-O1", "-g", "-w", "-fno-builtin", "-pthread"];
        hksim_testkit::compile(source, &out, &[common, options].concat()).expect("cc runs");
        out
    }

    fn on_native(&self, policy: &[&str], program: &Path, words: &[&Path]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hksim"));
        // Without notes, so that what is printed is the program's and the allocator's own, whichever mode the machine has.
        command
            .args(["--quiet", "run"])
            .args(policy)
            .arg("--")
            .arg(program)
            .args(words)
            .env("XDG_CACHE_HOME", self.folder.path());
        command.output().expect("hksim starts")
    }

    /// Runs a program on glibc's allocator and on the native one under every policy.
    fn compare(&self, program: &Path, words: &[&Path]) {
        let expected = Command::new(program).args(words).output().expect("the program starts");
        assert!(expected.status.success(), "on glibc: {expected:?}");
        for policy in POLICIES {
            let ran = self.on_native(policy, program, words);
            assert_eq!(ran.status.code(), Some(0), "{policy:?}: {ran:?}");
            let (stdout, wanted) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&expected.stdout));
            assert_eq!(stdout, wanted, "{policy:?}");
            assert_eq!(String::from_utf8_lossy(&ran.stderr), "", "{policy:?}");
        }
    }
}

#[test]
fn the_c_interface_behaves_like_glibc() {
    let Some(programs) = Programs::new() else { return };
    programs.compare(&programs.build("interface.c", &[]), &[]);
}

/// The recorder's test of small stacks, and its arguments.
const SMALL_STACKS: &str = "../../../../record/tests/c/small_stacks.c";
const STACKS: [&str; 4] = ["handler", "coroutine", "child", "threads"];

#[test]
fn programs_may_have_small_stacks() {
    let Some(programs) = Programs::new() else { return };
    let program = programs.build(SMALL_STACKS, &["-Wl,-z,now"]);
    for stack in STACKS {
        programs.compare(&program, &[Path::new(stack)]);
    }
}

#[test]
fn heap_statistics_of_libc_describe_the_native_heap() {
    let Some(programs) = Programs::new() else { return };
    programs.compare(&programs.build("questions.c", &[]), &[]);
    // The statistics, requested by the program.
    let program = programs.build("asks.c", &[]);
    let printed = programs.on_native(&[], &program, &[]);
    let text = String::from_utf8_lossy(&printed.stderr);
    assert!(text.starts_with("hksim: statistics of process ") && text.contains(" 500 live "), "{printed:?}");
}

#[test]
fn forked_children_allocate_and_free() {
    let Some(programs) = Programs::new() else { return };
    programs.compare(&programs.build("fork.c", &[]), &[]);
}

#[test]
fn forked_children_fork_again_while_threads_come_and_go() {
    let Some(programs) = Programs::new() else { return };
    programs.compare(&programs.build("generations.c", &[]), &[]);
}

#[test]
fn forks_and_stream_locks_do_not_deadlock() {
    let Some(programs) = Programs::new() else { return };
    programs.compare(&programs.build("streams.c", &[]), &[]);
}

#[test]
fn programs_survive_signals_and_exec() {
    let Some(programs) = Programs::new() else { return };
    programs.compare(&programs.build("handlers.c", &[]), &[]);
}

#[test]
fn libraries_can_be_opened_at_run_time() {
    let Some(programs) = Programs::new() else { return };
    let library = programs.build("library.c", &["-shared", "-fPIC"]);
    programs.compare(&programs.build("opens.c", &["-ldl"]), &[&library]);
}

/// If thread-local storage needs a call into the C library, that call may allocate. (The standard library has one such
/// variable, for panics.)
#[test]
fn the_object_reaches_its_thread_local_storage_without_a_call() {
    let Some(programs) = Programs::new() else { return };
    let object = programs.path("native.so");
    std::fs::write(&object, hksim_embedded::ALLOCATOR).expect("written");
    let Ok(read) = Command::new("readelf").args(["-rW"]).arg(&object).output() else {
        eprintln!("skipped: readelf (binutils) is not installed");
        return;
    };
    let relocations = String::from_utf8_lossy(&read.stdout);
    let heaps = relocations.lines().filter(|line| line.contains("R_X86_64_TPOFF64")).count();
    assert_eq!(heaps, 2, "one thread-local pointer for each of the two allocators: {relocations}");
}

/// Runs the faster part of the script; the whole script takes about ten minutes.
#[test]
fn real_programs_behave_as_on_glibc() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tools/native-programs.sh");
    let mut run = Command::new("sh");
    run.arg(script).arg(env!("CARGO_BIN_EXE_hksim")).args(["sqlite", "ruby"]);
    let ran = run.output().expect("sh runs");
    let printed = String::from_utf8_lossy(&ran.stdout);
    eprint!("{printed}");
    assert!(ran.status.success(), "{printed}");
}

fn statistics(programs: &Programs, words: &[&str], program: &Path) -> serde_json::Value {
    let ran = programs.on_native(words, program, &[]);
    assert!(ran.status.success(), "{ran:?}");
    serde_json::from_slice(&ran.stderr).unwrap_or_else(|why| panic!("{why}: {ran:?}"))
}

#[test]
fn statistics_count_the_live_blocks_of_a_program() {
    let Some(programs) = Programs::new() else { return };
    let program = programs.build("holds.c", &[]);
    for policy in [&["--stats", "json"][..], &["--stats", "json", "--meta", "sidecar", "--superslab", "4M"]] {
        let printed = statistics(&programs, policy, &program);
        let classes = printed["classes"].as_array().expect("classes");
        let class = classes.iter().find(|class| class["block_bytes"] == 112).expect("the class of 100 bytes");
        assert_eq!(class["live_blocks"], 500, "{printed}");
        assert_eq!((&printed["large_blocks"], &printed["huge_blocks_new"]), (&1.into(), &1.into()), "{printed}");
        assert_eq!((&printed["heaps_open"], &printed["heaps_not_counted"]), (&1.into(), &0.into()), "{printed}");
    }
}

/// The simulator has the same rule and a test for it.
#[test]
fn threads_that_have_no_block_have_no_heap() {
    let Some(programs) = Programs::new() else { return };
    let program = programs.build("idle.c", &[]);
    for policy in [&["--stats", "json"][..], &["--stats", "json", "--meta", "sidecar"]] {
        let printed = statistics(&programs, policy, &program);
        assert_eq!(printed["heaps_open"], 1, "{printed}");
    }
}

#[test]
fn statistics_are_appended_to_a_file_by_every_process() {
    let Some(programs) = Programs::new() else { return };
    let program = programs.build("holds.c", &[]);
    let file = programs.path("printed.txt");
    for form in ["text", "json"] {
        let request = format!("{form}:{}", file.display());
        let ran = programs.on_native(&["--stats", &request], &program, &[]);
        assert!(ran.status.success() && ran.stderr.is_empty(), "{ran:?}");
    }
    let printed = std::fs::read_to_string(&file).expect("the file");
    assert!(printed.starts_with("hksim: statistics of process "), "{printed}");
    assert!(
        printed.lines().any(|line| line.contains("class of    112 bytes") && line.contains(" 500 live ")),
        "{printed}"
    );
    let last = printed.lines().last().expect("a line");
    assert!(serde_json::from_str::<serde_json::Value>(last).is_ok(), "{last}");
    let refused = programs.on_native(&["--stats", "xml"], &program, &[]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

#[test]
fn an_empty_pool_of_huge_pages_is_counted() {
    let Some(programs) = Programs::new() else { return };
    let pool = std::fs::read_to_string("/proc/meminfo").expect("meminfo");
    if !pool.lines().any(|line| line.starts_with("HugePages_Total:") && line.ends_with(" 0")) {
        eprintln!("skipped: this machine has reserved huge pages");
        return;
    }
    let program = programs.build("holds.c", &[]);
    let printed = statistics(&programs, &["--stats", "json", "--huge", "hugetlb"], &program);
    assert_eq!(printed["os_calls"]["mmap_hugetlb"]["ok"], 0, "{printed}");
    // One SuperSlab for slabs, three for the huge block.
    assert_eq!((&printed["fallbacks_to_thp"], &printed["fallbacks_to_4k"]), (&4.into(), &0.into()), "{printed}");
    let printed = statistics(&programs, &["--stats", "json", "--huge", "hugetlb-plain"], &program);
    assert_eq!((&printed["fallbacks_to_thp"], &printed["fallbacks_to_4k"]), (&0.into(), &4.into()), "{printed}");
}
