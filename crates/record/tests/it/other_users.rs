//! Recordings by root: programs that give up root's rights are recorded, and other users cannot harm the recording.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use hksim_record::{Exit, RecordReport, recover};

use crate::support::{compile, events, have, logs_in, mallocs_of, record_words, scratch};

/// False, with the reason printed, if this test cannot change its user.
fn can_change_user() -> bool {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        println!("skipped: only root can change its user");
        return false;
    }
    have("setpriv")
}

/// Runs `$1` as the user nobody, with the session, its directory of logs and the shell's process id as arguments.
const AS_NOBODY: &str = "as_nobody() { env -i PATH=\"$PATH\" setpriv --reuid 65534 --regid 65534 --clear-groups \
     sh -c \"$1\" sh \"${HKSIM_RECORD_SESSION%/*}\" \"$HKSIM_RECORD_SESSION\" $$; }\n";

/// Records a shell script that attacks its own recording.
fn attacked(dir: &Path, attack: &str) -> RecordReport {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o755)).expect("the mode");
    let said = dir.join("said");
    let script = format!(
        "{AS_NOBODY} as_nobody '{attack}' > {} 2>&1; i=0; while [ $i -lt 500 ]; do i=$((i+1)); done",
        said.display()
    );
    record_words(dir, ["sh", "-c", &script])
}

#[test]
fn programs_that_give_up_their_rights_are_recorded_completely() {
    if !can_change_user() {
        return;
    }
    let dir = scratch();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("the mode");
    let program = compile(dir.path(), "drops", &[]);
    let report = record_words(dir.path(), [program]);
    assert_eq!(report.exit, Some(Exit::Code(0)));
    assert_eq!((report.unrecorded_processes, report.damaged.len(), report.unseen_programs.len()), (0, 0, 0));
    for bytes in 5001..=5006 {
        let found: usize = report.traces.iter().map(|trace| mallocs_of(&events(trace), bytes)).sum();
        assert_eq!(found, 100, "calls of {bytes} bytes");
    }
    assert!(report.traces.iter().all(|trace| trace.quality.events_lost == 0));
}

#[test]
fn another_user_finds_nothing_to_harm() {
    if !can_change_user() {
        return;
    }
    let dir = scratch();
    let attack = r#"ls "$1" && echo listed; find "$1" -name control; true > "$1"/session.json && echo wrote;
        touch "$1"/999999-0.spool && echo planted; rm -rf "$1"; mv "$1" "$1".gone && echo moved"#;
    let report = attacked(dir.path(), attack);
    let said = fs::read_to_string(dir.path().join("said")).expect("the output");
    for word in ["listed", "wrote", "planted", "moved"] {
        assert!(!said.lines().any(|line| line == word), "{said}");
    }
    assert!(said.contains("ermission denied") && !said.lines().any(|line| line.ends_with("/control")), "{said}");
    assert_eq!((report.exit, report.damaged.len(), report.session_kept), (Some(Exit::Code(0)), 0, None));
    assert!(report.traces.iter().all(|trace| trace.quality.events_lost == 0));
}

/// As a process of the recording's own user could, which knows the name of the directory of logs.
#[test]
fn a_user_who_knows_the_logs_cannot_change_those_of_root() {
    if !can_change_user() {
        return;
    }
    let dir = scratch();
    let attack = r#"cd "$2" || exit; ls && echo listed; for file in control $3-0.spool; do
        true > $file && echo emptied; echo x >> $file && echo wrote; rm -f $file && echo removed; mv $file x && echo moved;
        done; echo garbage > 999998-0.spool; ln -s /etc/passwd 999997-0.spool; mkfifo 999996-0.spool;
        head -c 300000 /dev/zero > 999995-0.spool"#;
    let report = attacked(dir.path(), attack);
    let said = fs::read_to_string(dir.path().join("said")).expect("the output");
    for word in ["listed", "emptied", "wrote", "removed", "moved"] {
        assert!(!said.lines().any(|line| line == word), "{said}");
    }
    assert_eq!(report.exit, Some(Exit::Code(0)));
    let own = &report.traces[0];
    assert!(own.events > 10 && own.quality.events_lost == 0 && own.command[0] == "sh", "{own:?}");
    assert!(report.traces.iter().all(|trace| !(999_995..=999_998).contains(&trace.pid)), "no planted log is believed");
    let mut damaged: Vec<_> = report.damaged.iter().filter_map(|log| log.path.file_name()?.to_str()).collect();
    damaged.sort_unstable();
    assert!(damaged == ["999996-0.spool", "999997-0.spool"], "{damaged:?}: {said}");
}

#[test]
fn a_recording_is_recovered_without_its_controls() {
    let dir = scratch();
    let kept = dir.path().join("kept");
    fs::create_dir(&kept).expect("a folder");
    let program = compile(dir.path(), "rounds", &[]);
    let script = format!("{} 1000; cp -a \"$HKSIM_RECORD_SESSION\"/../. {}", program.display(), kept.display());
    let whole = record_words(dir.path(), ["sh", "-c", &script]);
    let of = |report: &RecordReport| {
        let of_program = report.traces.iter().filter(|trace| trace.command[0] == program.to_string_lossy());
        of_program.map(|trace| trace.events).collect::<Vec<_>>()
    };
    for damage in ["empty", "gone"] {
        let copy = dir.path().join(damage);
        let copied = std::process::Command::new("cp").arg("-a").arg(&kept).arg(&copy).status().expect("cp");
        assert!(copied.success());
        let control = logs_in(&copy).join("control");
        if damage == "gone" {
            fs::remove_file(&control).expect("the controls");
        } else {
            fs::write(&control, "").expect("the controls");
        }
        let report = recover(&copy).expect("a recovery");
        assert_eq!(of(&report), of(&whole), "{damage}");
    }
}

#[test]
fn only_their_user_reads_the_logs() {
    let dir = scratch();
    let script = "stat -c '%a %n' \"$HKSIM_RECORD_SESSION\"/.. \"$HKSIM_RECORD_SESSION\" \"$HKSIM_RECORD_SESSION\"/* \
         > modes; cp -a \"$HKSIM_RECORD_SESSION\"/../session.json .";
    let script = format!("cd {} && {script}", dir.path().display());
    record_words(dir.path(), ["sh", "-c", &script]);
    let modes = fs::read_to_string(dir.path().join("modes")).expect("the modes");
    let mode_of = |end: &str| modes.lines().find(|line| line.ends_with(end)).expect("a file").split(' ').next();
    // SAFETY: no arguments.
    let is_root = unsafe { libc::geteuid() } == 0;
    assert_eq!(mode_of("/.."), Some(if is_root { "711" } else { "700" }), "{modes}");
    assert_eq!(mode_of("control"), Some(if is_root { "644" } else { "600" }), "{modes}");
    assert_eq!(mode_of(".spool"), Some("600"), "{modes}");
    assert_eq!(fs::metadata(dir.path().join("session.json")).expect("a file").mode() & 0o777, 0o600);
}
