//! Programs under limits of address space, heaps and mappings.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::{POLICIES, Programs};

/// The output of a program with the allocator preloaded directly, under a limit set by the shell. hksim needs more
/// address space than the program.
fn limited(
    programs: &Programs,
    limit: &str,
    policy: &str,
    program: &Path,
    words: &[&str],
) -> (Output, serde_json::Value) {
    let (object, printed) = (programs.path("native.so"), programs.path("printed.json"));
    std::fs::write(&object, hksim_embedded::ALLOCATOR).expect("written");
    let mut sh = Command::new("sh");
    sh.args(["-c", &format!("{limit}; LD_PRELOAD={} exec \"$@\"", object.display()), "sh"]);
    sh.arg(program).args(words).env("HKSIM_NATIVE_POLICY", policy);
    sh.env("HKSIM_NATIVE_STATS", format!("json:{}", printed.display()));
    let ran = sh.output().expect("sh starts");
    let line = std::fs::read_to_string(&printed).unwrap_or_default();
    let _ = std::fs::remove_file(&printed);
    (ran, serde_json::from_str(&line).unwrap_or_default())
}

fn stdout(ran: &Output) -> String {
    String::from_utf8_lossy(&ran.stdout).trim().to_string()
}

#[test]
fn the_arena_shrinks_with_the_address_space() {
    let Some(programs) = Programs::new() else { return };
    let program = programs.build("scarce.c", &[]);
    for policy in [
        "",
        "superslab=64K slab=16K huge=never",
        "meta=sidecar prewarm=4 startup-touch=30M header=full header-bytes=16",
    ] {
        let mut arenas = Vec::new();
        for limit_mib in [16, 30, 100, 200, 1000, 100_000] {
            let limit = format!("ulimit -v {}", limit_mib << 10);
            let (ran, printed) = limited(&programs, &limit, policy, &program, &[]);
            let words = stdout(&ran);
            let served = words.strip_suffix(" kept").and_then(|bytes| bytes.parse::<u64>().ok());
            let served = served.unwrap_or_else(|| panic!("{limit_mib} MiB, {policy}: {ran:?}"));
            let arena = printed["arena_bytes"].as_u64().expect("printed");
            eprintln!("{limit_mib} MiB, {policy:?}: arena {} MiB, served {} KiB", arena >> 20, served >> 10);
            // Startup touches at most a quarter of the arena, which stays in use, and every size class has its own
            // slab.
            assert!(served >= (arena / 3).min(32 << 20), "of {arena} bytes {served} were served: {printed}");
            arenas.push(arena);
        }
        assert!(arenas.is_sorted() && arenas[0] < 16 << 20, "{arenas:?}");
        assert_eq!(arenas.last(), Some(&(64 << 30)), "{policy}");
    }
}

#[test]
fn with_no_address_space_at_all_every_request_is_refused() {
    let Some(programs) = Programs::new() else { return };
    let program = programs.build("scarce.c", &["-static-pie"]);
    // A static program does not load the object. It shows whether programs can run under this limit at all.
    let (alone, _) = limited(&programs, "ulimit -v 9000", "superslab=32M", &program, &[]);
    if !alone.status.success() {
        eprintln!("skipped: no program runs in so little address space on this machine");
        return;
    }
    let program = programs.build("scarce.c", &[]);
    let (ran, _) = limited(&programs, "ulimit -v 9000", "superslab=32M", &program, &[]);
    assert_eq!(stdout(&ran), "0 kept", "{ran:?}");
}

#[test]
fn more_threads_than_heaps_share_one() {
    let Some(programs) = Programs::new() else { return };
    let program = programs.build("crowd.c", &[]);
    for (limit, policy, threads, heaps_max) in [
        (":", "huge=never", "4500", 4096),
        (":", "huge=never meta=sidecar superslab=64K slab=16K", "4500", 4096),
        ("ulimit -v 300000", "huge=never superslab=64K slab=16K", "200", 64),
    ] {
        let (ran, printed) = limited(&programs, limit, policy, &program, &[threads]);
        if ran.status.code() == Some(3) {
            eprintln!("skipped: {}", stdout(&ran));
            continue;
        }
        assert_eq!(stdout(&ran), format!("{threads} threads"), "{policy}: {ran:?}");
        assert_eq!(printed["heaps_max"], heaps_max, "{printed}");
        let shared = printed["shared_heap_calls"].as_u64().expect("printed");
        assert!(shared > 0, "no call used the shared heap: {printed}");
    }
}

/// The program reads its resident size from /proc.
#[test]
fn threads_with_little_memory_do_not_use_huge_pages() {
    let Some(programs) = Programs::new() else { return };
    let mode = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if !mode.contains("[madvise]") {
        return eprintln!("skipped: transparent huge pages are not in mode madvise ({})", mode.trim());
    }
    let program = programs.build("threads.c", &[]);
    let resident_kib = |huge_heaps: &str| -> i64 {
        let words = [Path::new("100"), Path::new("20")];
        let ran = programs.on_native(&["--huge-heaps", huge_heaps], &program, &words);
        stdout(&ran).parse().unwrap_or_else(|_| panic!("{ran:?}"))
    };
    let (few, all, default) = (resident_kib("1"), resident_kib("4096"), resident_kib("8"));
    eprintln!("100 threads: {few} KiB resident with one huge heap, {default} with 8, {all} with all");
    // A thread with a small heap uses one page each for metadata, two slabs, the heap itself and the stack.
    assert!(few < 8 << 10 && default < 8 * 2048 + (8 << 10), "{few}, {default}");
    if all < 100 * 2048 {
        eprintln!("skipped: no huge pages were available ({all} KiB), so there was nothing to save");
    }
}

#[test]
fn a_process_at_the_limit_of_mappings_continues() {
    let Some(programs) = Programs::new() else { return };
    programs.compare(&programs.build("maps.c", &[]), &[]);
}

#[test]
fn a_foreign_pointer_aborts_with_one_line() {
    let Some(programs) = Programs::new() else { return };
    let program = programs.build("foreign.c", &[]);
    for policy in POLICIES {
        for (what, call) in [("fixed", "free"), ("local", "free"), ("mapped", "free"), ("local", "realloc")] {
            let ran = programs.on_native(policy, &program, &[Path::new(what), Path::new(call)]);
            assert_eq!(ran.status.signal(), Some(6), "SIGABRT, {what}: {ran:?}");
            let printed = String::from_utf8_lossy(&ran.stderr);
            assert!(
                printed.starts_with("hksim: ") && printed.lines().count() == 1 && printed.contains("0x"),
                "{what}: {printed}"
            );
        }
    }
}
