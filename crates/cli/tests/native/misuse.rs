//! C programs with invalid frees: each aborts with one line, or continues if the user requested it.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output};

use crate::Programs;

/// The kind of error, the start of its message, and whether the fast checks detect it.
const MISUSES: &[(&str, &str, bool)] = &[
    ("right-away", "hksim: double free of 0x", true),
    ("later", "hksim: double free of 0x", true),
    ("much-later", "hksim: double free of 0x", true),
    ("untouched", "hksim: double free of 0x", true),
    ("elsewhere-then-here", "hksim: double free of 0x", true),
    ("here-then-elsewhere", "hksim: double free of 0x", true),
    ("elsewhere-twice", "hksim: double free of 0x", true),
    ("large", "hksim: double free", true),
    ("large-elsewhere", "hksim: double free of 0x", true),
    ("huge", "hksim: double free", true),
    ("idle-span", "hksim: double free", true),
    // Slots that are carved or not carved yet. A thread that does not own them sees the key of a carved one.
    ("never-near", "hksim: free or realloc of a block that was never allocated, 0x", false),
    ("never-far", "hksim: free or realloc of a block that was never allocated, 0x", false),
    ("never-near-elsewhere", "hksim: ", false),
    ("never-far-elsewhere", "hksim: free or realloc of a block that was never allocated, 0x", true),
    ("never-far-realloc", "hksim: free or realloc of a block that was never allocated, 0x", true),
    ("inside", "hksim: free or realloc of a pointer into the middle of a block, 0x", false),
    ("inside-elsewhere", "hksim: free or realloc of a pointer into the middle of a block, 0x", true),
    ("inside-large", "hksim: free or realloc of a pointer into the middle of a block, 0x", true),
    ("inside-huge", "hksim: free or realloc of a pointer into the middle of a block, 0x", true),
    ("foreign", "hksim: free or realloc of a foreign pointer 0x", true),
    ("foreign-realloc", "hksim: free or realloc of a foreign pointer 0x", true),
    ("realloc-grows", "hksim: double free of 0x", true),
    ("realloc-shrinks", "hksim: double free of 0x", true),
    ("realloc-stays", "hksim: double free of 0x", false),
    ("realloc-stays-untouched", "hksim: double free of 0x", false),
    ("realloc-elsewhere-freed", "hksim: double free of 0x", true),
    ("realloc-elsewhere-freed-alone", "hksim: double free of 0x", true),
    ("realloc-elsewhere-freed-stays", "hksim: double free of 0x", false),
    ("realloc-elsewhere", "hksim: double free of 0x", true),
    ("realloc-elsewhere-stays", "hksim: double free of 0x", false),
    ("realloc-large", "hksim: double free", true),
    ("realloc-large-elsewhere-freed", "hksim: double free of 0x", true),
    ("realloc-large-elsewhere-freed-stays", "hksim: double free of 0x", false),
    ("realloc-huge", "hksim: double free", true),
];

fn run(programs: &Programs, program: &Path, policy: &str, how: &str) -> Output {
    let object = programs.path("native.so");
    if !object.exists() {
        std::fs::write(&object, hksim_embedded::ALLOCATOR).expect("written");
    }
    let mut command = Command::new(program);
    command.arg(how).env("LD_PRELOAD", object).env("HKSIM_NATIVE_POLICY", policy).env("HKSIM_NATIVE_STATS", "text");
    command.output().expect("the program starts")
}

fn assert_ends(ran: &Output, how: &str, begins: &str, policy: &str) {
    let printed = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.signal(), Some(6), "{policy} {how}: {ran:?}");
    assert_eq!((printed.lines().count(), printed.starts_with(begins)), (1, true), "{policy} {how}: {printed}");
    let names_superslab = printed.contains("SuperSlab") || how.starts_with("foreign");
    assert!(names_superslab, "{policy} {how}: {printed}");
}

const POLICIES: [&str; 4] =
    ["", "superslab=1M huge=never purge-delay=0", "meta=sidecar carve=bump", "front-cache=3 slab=32K"];

#[test]
fn misuse_aborts_with_one_line() {
    let Some(programs) = Programs::new() else { return };
    let program = programs.build("misuse.c", &[]);
    for policy in POLICIES {
        for &(how, begins, is_quick) in MISUSES {
            if is_quick {
                assert_ends(&run(&programs, &program, policy, how), how, begins, policy);
            }
            let close = format!("{policy} misuse=check");
            assert_ends(&run(&programs, &program, &close, how), how, begins, &close);
        }
    }
}

#[test]
fn misuse_is_counted_on_request() {
    let Some(programs) = Programs::new() else { return };
    let program = programs.build("misuse.c", &[]);
    for policy in POLICIES {
        for &(how, _, _) in MISUSES {
            let ran = run(&programs, &program, &format!("{policy} misuse=count"), how);
            let printed = String::from_utf8_lossy(&ran.stderr);
            assert_eq!((ran.status.code(), &ran.stdout[..]), (Some(0), &b"went on\n"[..]), "{policy} {how}: {ran:?}");
            let count = printed.lines().find_map(|line| line.trim().strip_prefix("invalid_frees_ignored"));
            assert_eq!(count.map(str::trim), Some("1"), "{policy} {how}: {printed}");
        }
    }
}

#[test]
fn data_that_looks_like_a_free_block_is_no_misuse() {
    let Some(programs) = Programs::new() else { return };
    let program = programs.build("misuse.c", &[]);
    for policy in POLICIES {
        for misuse in ["abort", "check", "count"] {
            let ran = run(&programs, &program, &format!("{policy} misuse={misuse}"), "nothing");
            assert_eq!(
                (ran.status.code(), &ran.stdout[..]),
                (Some(0), &b"went on\n"[..]),
                "{policy} {misuse}: {ran:?}"
            );
            assert!(String::from_utf8_lossy(&ran.stderr).contains("invalid_frees_ignored"), "{ran:?}");
        }
    }
}

/// The flag of `hksim run` and the environment variable have the same effect.
#[test]
fn the_flag_of_run_selects_the_handling() {
    let Some(programs) = Programs::new() else { return };
    let program = programs.build("misuse.c", &[]);
    let inside = |flags: &[&str]| programs.on_native(flags, &program, &["inside".as_ref()]);
    let begins = "hksim: free or realloc of a pointer into the middle of a block, 0x";
    assert_ends(&inside(&["--invalid-free", "check"]), "inside", begins, "--invalid-free check");
    let counted = inside(&["--superslab", "1M", "--invalid-free", "count", "--stats", "json"]);
    assert_eq!((counted.status.code(), &counted.stdout[..]), (Some(0), &b"went on\n"[..]), "{counted:?}");
    let printed: serde_json::Value = serde_json::from_slice(&counted.stderr).expect("statistics");
    assert_eq!(
        (&printed["invalid_frees_ignored"], &printed["superslab_bytes"]),
        (&1.into(), &(1 << 20).into()),
        "{printed}"
    );
    let version = printed["hksim_version"].as_str().expect("a version");
    assert!(version.starts_with(concat!(env!("CARGO_PKG_VERSION"), "+")), "{version} names no commit");
    for flags in [&[][..], &["--invalid-free", "abort"]] {
        let twice = programs.on_native(flags, &program, &["right-away".as_ref()]);
        assert_ends(&twice, "right-away", "hksim: double free of 0x", "--invalid-free abort");
    }
    let refused = inside(&["--invalid-free", "ignore"]);
    let printed = String::from_utf8_lossy(&refused.stderr);
    assert_eq!((refused.status.code(), printed.contains("abort, check, count")), (Some(2), true), "{printed}");
}
