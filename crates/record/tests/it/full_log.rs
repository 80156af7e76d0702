//! If a log cannot grow, the program continues and lost events are counted.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use hksim_record::{Exit, Options, RecordReport, record};

use crate::support::{compile, record_words, scratch};

const ROUNDS: &str = "300000";

fn check(report: &RecordReport, printed: &Path, whole: u64) {
    assert_eq!(report.exit, Some(Exit::Code(0)));
    assert_eq!(fs::read_to_string(printed).expect("the program prints"), format!("{ROUNDS}\n"));
    let trace = &report.traces[0];
    assert!(trace.quality.events_lost > 0, "{trace:?}");
    let kept = trace.events - thread_marks(&trace.path);
    // If a free is lost and its address is allocated again, the resolver inserts the free. Inserted frees do not count
    // as recorded.
    let recorded = kept - trace.quality.reuse_repaired;
    assert_eq!(recorded + trace.quality.events_lost, whole, "every event is kept or counted: {trace:?}");
}

/// Number of starts and ends of threads, which the recorder itself adds.
fn thread_marks(path: &Path) -> u64 {
    use hksim_trace::event::Op;
    let marks = crate::support::read(path);
    marks.iter().filter(|event| matches!(event.op, Op::ThreadStart | Op::ThreadExit)).count() as u64
}

fn whole_count(dir: &Path, program: &Path) -> u64 {
    let script = format!("exec {} {ROUNDS} > {}", program.display(), dir.join("printed").display());
    let report = record_words(dir, ["sh", "-c", &script]);
    assert_eq!(report.traces[0].quality.events_lost, 0);
    report.traces[0].events - thread_marks(&report.traces[0].path)
}

/// Two limits: one leaves space for a thread buffer but for no drained chunk, the other leaves no space for a thread
/// buffer. SIGXFSZ would end the program.
#[test]
fn a_file_size_limit_loses_only_events() {
    let dir = scratch();
    let program = compile(dir.path(), "rounds", &[]);
    let whole = whole_count(dir.path(), &program);
    for limit_512 in [1300, 1000, 100] {
        let printed = dir.path().join("printed");
        let run = format!("ulimit -f {limit_512}; exec {} {ROUNDS} > {}", program.display(), printed.display());
        let report = record_words(dir.path(), ["sh", "-c", &run]);
        check(&report, &printed, whole);
    }
}

#[test]
fn a_log_without_space_for_a_page_is_reported() {
    let dir = scratch();
    let program = compile(dir.path(), "rounds", &[]);
    // The program's own output must not reach the limit.
    let run = format!("ulimit -f 4; exec {} {ROUNDS} > /dev/null", program.display());
    let options = Options { output: dir.path().join("app.hkt"), ..Options::default() };
    let words = ["sh".into(), "-c".into(), run.into()];
    // The shell is recorded before it lowers the limit; the program that it then executes is not.
    let report = record(&options, &words).expect("the shell's recording");
    assert_eq!(report.exit, Some(Exit::Code(0)));
    assert_eq!(report.unrecorded_pids, [report.traces[0].pid]);
}

/// A tmpfs for this test, which is unmounted at the end.
struct TinyDisk(PathBuf);

impl TinyDisk {
    fn mount(at: &Path) -> Option<Self> {
        fs::create_dir(at).expect("a mount point");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=600k", "tmpfs"]).arg(at).output();
        match mounted {
            Ok(output) if output.status.success() => Some(Self(at.to_path_buf())),
            Ok(output) => {
                eprintln!("skipped: cannot mount a tmpfs: {}", String::from_utf8_lossy(&output.stderr).trim());
                None
            }
            Err(why) => {
                eprintln!("skipped: cannot run mount: {why}");
                None
            }
        }
    }
}

impl Drop for TinyDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(&self.0).status();
        if !unmounted.is_ok_and(|status| status.success()) {
            eprintln!("{} is still mounted", self.0.display());
        }
    }
}

#[test]
fn a_full_disk_loses_only_events() {
    let dir = scratch();
    let program = compile(dir.path(), "rounds", &[]);
    let whole = whole_count(dir.path(), &program);
    let Some(disk) = TinyDisk::mount(&dir.path().join("disk")) else {
        return;
    };
    for already_full in [false, true] {
        if already_full {
            // The write itself may fail; the test needs only a full disk.
            let _ = fs::write(disk.0.join("ballast"), vec![1_u8; 560 << 10]);
        }
        let printed = dir.path().join("printed");
        let run = format!("exec {} {ROUNDS} > {}", program.display(), printed.display());
        let options =
            Options { output: dir.path().join("app.hkt"), session_parent: Some(disk.0.clone()), ..Options::default() };
        let report = record(&options, &["sh".into(), "-c".into(), run.into()]).expect("a recording");
        check(&report, &printed, whole);
    }
}
