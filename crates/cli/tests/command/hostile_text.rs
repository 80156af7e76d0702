//! Texts of files on a terminal, in messages and in spreadsheets.

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{FromRawFd, OwnedFd};
use std::ptr::{null, null_mut};

use crate::support::recordings::can_record;
use crate::support::{Bench, json_of};

/// Colours, a bell, C1's CSI, the reversal of text and its isolation, and a break of the line.
const HOSTILE: &str = "=a\u{1b}[31m\u{7}\u{9b}2J\u{7f}\u{202e}\u{2066}\u{200f}\nz";

/// What a command prints on a terminal.
fn on_terminal(bench: &Bench, line: &str) -> String {
    let (mut ours, mut theirs) = (0, 0);
    // SAFETY: the call writes two descriptors to the pointers given; the others may be null.
    assert_eq!(unsafe { libc::openpty(&mut ours, &mut theirs, null_mut(), null(), null()) }, 0);
    // SAFETY: both descriptors are open and belong to nobody else.
    let (ours, theirs) = unsafe { (File::from_raw_fd(ours), OwnedFd::from_raw_fd(theirs)) };
    let mut command = bench.command(line);
    command.stdout(theirs.try_clone().expect("a descriptor")).stderr(theirs);
    let mut child = command.spawn().expect("hksim starts");
    // The descriptors of the terminal's other side must be closed, so that reading ends.
    drop(command);
    let mut text = Vec::new();
    // The end of a terminal is an error.
    let _ = (&ours).read_to_end(&mut text);
    child.wait().expect("hksim ends");
    String::from_utf8_lossy(&text).replace("\r\n", "\n")
}

fn is_safe(text: &str) -> bool {
    text.chars().all(|character| {
        character == '\n'
            || !(character.is_control()
                || ('\u{200e}'..='\u{202e}').contains(&character)
                || ('\u{2066}'..='\u{2069}').contains(&character))
    })
}

/// A trace with a hostile mark, command and file name of its origin.
fn hostile_trace(bench: &Bench) {
    let events = "op,object,size,number\nmark,,,0\nalloc,0,9000,\nmark,,,1\nalloc,1,90000,\n";
    fs::write(bench.path("m.csv"), events).expect("a file");
    bench.ok("import m.csv --from csv -o named.hkt");
    let events = bench.ok("export named.hkt --to csv");
    let json = serde_json::to_string(HOSTILE).expect("JSON").replace('"', "\"\"");
    let events = events.replace("\"\"mark-0\"\"", &json).replace("\"\"m.csv\"\"", &json);
    fs::write(bench.path("hostile.csv"), events).expect("a file");
    bench.ok("import hostile.csv --from csv -o hostile.hkt");
}

#[test]
fn a_terminal_gets_no_control_characters_of_a_trace() {
    let bench = Bench::new();
    hostile_trace(&bench);
    for line in [
        "info hostile.hkt",
        "info hostile.hkt --format csv",
        "info hostile.hkt --format json",
        "sim hostile.hkt",
        "sim hostile.hkt --format json",
        "explain hostile.hkt",
        "explain hostile.hkt --format csv",
        "explain hostile.hkt --format json",
        "trace verify hostile.hkt",
        "export hostile.hkt --to csv",
        "explain hostile.hkt --per nothing",
    ] {
        let text = on_terminal(&bench, &format!("{line} -q"));
        assert!(!text.is_empty() && is_safe(&text), "{line}: {text:?}");
    }
    assert!(bench.ok("explain hostile.hkt --format csv").contains('\u{202e}'), "a file has the name as it is");
}

/// The report of a recording is on standard error. The name of a program that runs is also a text that others choose.
#[test]
fn a_terminal_gets_no_control_characters_of_a_program_name() {
    let bench = Bench::new();
    let name = HOSTILE.replace('\n', "");
    fs::copy("/bin/true", bench.path(&name)).expect("a program");
    let job = format!("'./{name}'; exec -a '{name}' ls job.sh >/dev/null");
    fs::write(bench.path("job.sh"), job).expect("a script");
    for flags in ["", "--format csv", "--format json"] {
        for memory in if can_record() { &["", "--memory"][..] } else { &[""] } {
            let line =
                format!("record {memory} {flags} -o app.{} bash job.sh", if memory.is_empty() { "hkt" } else { "hkm" });
            // While the program runs, hksim itself rewrites a line.
            let text = on_terminal(&bench, &line).replace("\r\u{1b}[2K", "\n");
            assert!(text.contains("app.hk") && is_safe(&text), "{line}: {text:?}");
        }
    }
}

/// The recording is written before its report.
#[test]
fn a_report_that_nobody_reads_is_no_failure() {
    let bench = Bench::new();
    for memory in if can_record() { &["", "--memory"][..] } else { &[""] } {
        let line = format!("hksim record {memory} --format json -o app ls 2> >(exec <&-; exec sleep 1); echo $?");
        let ran = bench.shell("", &format!("trap '' PIPE; sleep 0.2; {line}"));
        assert!(ran.stdout.trim_end().ends_with('0'), "{line}: {} {}", ran.stdout, ran.stderr);
        fs::remove_file(bench.path("app")).expect("the recording");
    }
}

#[test]
fn verify_shows_a_damaged_header_plainly() {
    let bench = Bench::new();
    hostile_trace(&bench);
    let whole = fs::read(bench.path("hostile.hkt")).expect("the trace");
    let mut damaged_texts = 0;
    // The header is JSON at the start: each of its bytes becomes a control character or another one.
    for at in 8..200.min(whole.len()) {
        for byte in [0x1b, b'"', 0x9b] {
            let mut damaged = whole.clone();
            damaged[at] = byte;
            fs::write(bench.path("damaged.hkt"), &damaged).expect("a file");
            let ran = bench.command("trace verify damaged.hkt").output().expect("hksim starts");
            let text = String::from_utf8_lossy(&[ran.stdout, ran.stderr].concat()).into_owned();
            assert!(is_safe(&text), "byte {at}: {text:?}");
            damaged_texts += usize::from(text.contains("damaged"));
        }
    }
    assert!(damaged_texts > 100, "{damaged_texts}");
}

#[test]
fn spreadsheets_get_no_formulas() {
    let bench = Bench::new();
    hostile_trace(&bench);
    let cells =
        |text: &str| text.split([',', '\n']).filter(|cell| cell.starts_with('=') || cell.starts_with("\"=")).count();
    let explained = bench.ok("explain hostile.hkt --format csv");
    assert!(explained.contains("'=a") && cells(&explained) == 0, "{explained}");
    let exported = bench.ok("export hostile.hkt --to csv");
    assert!(exported.contains("\"'=a") && cells(&exported) == 0, "{exported}");
    fs::write(bench.path("again.csv"), exported).expect("a file");
    bench.ok("import again.csv -o again.hkt");
    let name = |trace: &str| bench.json(&format!("explain {trace} --huge never"))["by"]["phase"].clone();
    assert_eq!(name("again.hkt"), name("hostile.hkt"), "the round trip keeps the names");
}

#[test]
fn messages_do_not_repeat_long_values() {
    let bench = Bench::with_trace();
    bench.ok("sim rm.hkt --format json -o sim.json");
    let long = "x".repeat(900_000);
    for (place, line) in [
        ("policy.huge", "sim rm.hkt --policy long.json"),
        ("policy.superslab_bytes", "sim rm.hkt --policy long.json"),
        ("command", "bundle long.json -o b"),
        ("kernel.rules.version", "bundle long.json -o b"),
        ("hksim_version", "report long.json -o r.html"),
    ] {
        let mut result = json_of(&bench.path("sim.json"));
        let field = place.split('.').fold(&mut result, |value, name| &mut value[name]);
        *field = if place == "command" { vec!["sim", &long].into() } else { long.as_str().into() };
        result["schema"] = if place == "hksim_version" { 99.into() } else { result["schema"].clone() };
        fs::write(bench.path("long.json"), result.to_string()).expect("a file");
        let said = bench.refused(line);
        assert!(said.contains("long.json") && said.len() < 5000, "{place}: {} bytes", said.len());
    }
}
