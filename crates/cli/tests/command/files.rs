//! Files and pipes: whole or not at all, and quiet when the reader has seen enough.

use std::fs::{self, File};
use std::io::Read;
use std::process::Stdio;

use crate::support::Bench;

#[test]
fn what_cannot_be_written_is_named_and_nothing_is_lost() {
    let bench = Bench::with_trace();
    fs::create_dir(bench.path("folder")).expect("a folder");
    for output in ["folder", "nowhere/x", "/proc/hksim-x"] {
        for line in ["gen tiny-hot --cycles 10", "info rm.hkt", "sim rm.hkt", "sweep rm.hkt", "import t.script"] {
            fs::write(bench.path("t.script"), "a 0 16\nf 0\n").expect("a script trace");
            let said = bench.refused(&format!("{line} -o {output}"));
            assert!(said.contains(output), "{line} -o {output}: {said}");
        }
    }
    fs::write(bench.path("kept.hkt"), "kept").expect("a file");
    fs::write(bench.path("bad.script"), "a 0 16\nf 0\nwhat\n").expect("a script trace");
    let said = bench.refused("import bad.script -o kept.hkt");
    assert!(said.contains("bad.script:3"), "{said}");
    bench.refused("import kept.hkt -o kept.hkt");
    assert_eq!(fs::read(bench.path("kept.hkt")).expect("the file"), b"kept");
    let left: Vec<_> =
        fs::read_dir(bench.folder()).expect("the folder").flatten().map(|entry| entry.file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().ends_with(".part")), "{left:?}");
}

#[test]
fn a_full_disk_is_an_error() {
    let bench = Bench::with_trace();
    for line in ["gen tiny-hot --cycles 10 -o /dev/full", "info rm.hkt -o /dev/full", "sim rm.hkt -o /dev/full"] {
        let said = bench.refused(line);
        assert!(said.contains("/dev/full") && said.contains("No space left"), "{line}: {said}");
    }
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    let ran = bench.command("sim rm.hkt").stdout(full).output().expect("hksim starts");
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!(ran.status.code(), Some(2), "{said}");
    assert!(said.contains("standard output"), "{said}");
}

#[test]
fn a_link_stays_a_link() {
    let bench = Bench::new();
    fs::write(bench.path("real.hkt"), "old").expect("a file");
    std::os::unix::fs::symlink("real.hkt", bench.path("link.hkt")).expect("a link");
    bench.ok("gen tiny-hot --cycles 10 -o link.hkt");
    assert!(fs::symlink_metadata(bench.path("link.hkt")).expect("the link").is_symlink());
    assert_eq!(bench.json("info real.hkt")["events"], 20);
}

#[test]
fn a_reader_that_leaves_ends_the_command_quietly() {
    let bench = Bench::with_trace();
    // Far more than a pipe holds, so that writing meets the closed end.
    let line = "sweep rm.hkt --superslab 1M,2M,4M,8M --huge --cache 1,2,3 --format json";
    let mut child = bench.command(line).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("hksim starts");
    let mut first = [0; 1];
    let mut out = child.stdout.take().expect("a pipe");
    out.read_exact(&mut first).expect("a first byte");
    drop(out);
    let ended = child.wait_with_output().expect("hksim ends");
    assert_eq!((ended.status.code(), String::from_utf8_lossy(&ended.stderr).as_ref()), (Some(0), ""));
}

#[test]
fn an_output_file_holds_what_would_be_printed() {
    let bench = Bench::with_trace();
    for format in ["table", "json", "csv"] {
        let printed = bench.ok(&format!("info rm.hkt --format {format}"));
        assert_eq!(bench.ok(&format!("info rm.hkt --format {format} -o out")), "");
        assert_eq!(fs::read_to_string(bench.path("out")).expect("the file"), printed, "{format}");
    }
}
