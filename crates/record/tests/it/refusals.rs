//! Programs that cannot be recorded are refused with a reason, before or after the run.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use hksim_record::{Options, RecordError, record, recover};

use crate::support::{compile, record_words, scratch};

fn refusal(output: &Path, words: &[&str]) -> RecordError {
    let words: Vec<OsString> = words.iter().map(Into::into).collect();
    let options = Options { output: output.to_path_buf(), ..Options::default() };
    match record(&options, &words) {
        Ok(report) => panic!("{words:?} was recorded: {report:?}"),
        Err(why) => why,
    }
}

/// Checks that neither a session nor an incomplete trace remains.
fn assert_only(dir: &Path, expected: &[&str]) {
    let mut names: Vec<String> = fs::read_dir(dir)
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    assert_eq!(names, expected);
}

#[test]
fn empty_and_unknown_commands_are_refused() {
    let dir = scratch();
    let output = dir.path().join("app.hkt");
    assert!(matches!(refusal(&output, &[]), RecordError::NoCommand));
    assert!(matches!(refusal(&output, &["hksim-no-such-command"]), RecordError::NotFound { .. }));
    assert!(matches!(refusal(&output, &["/no/such/command"]), RecordError::NotFound { .. }));
    let plain = dir.path().join("plain");
    fs::write(&plain, "text").expect("a file");
    let plain = plain.to_str().expect("UTF-8");
    assert!(matches!(refusal(&output, &[plain]), RecordError::NotExecutable { .. }));
    fs::set_permissions(plain, fs::Permissions::from_mode(0o755)).expect("its mode");
    assert!(matches!(refusal(&output, &[plain]), RecordError::NotExecutable { .. }));
    assert_only(dir.path(), &["plain"]);
}

#[test]
fn static_and_foreign_programs_are_refused() {
    let dir = scratch();
    let output = dir.path().join("app.hkt");
    let fixed = compile(dir.path(), "rounds", &["-static"]);
    assert!(matches!(refusal(&output, &[fixed.to_str().expect("UTF-8"), "1"]), RecordError::Static { .. }));
    let mut bytes = fs::read(&fixed).expect("the program");
    bytes[18] = 183; // AArch64
    let foreign = dir.path().join("foreign");
    fs::write(&foreign, bytes).expect("a program");
    fs::set_permissions(&foreign, fs::Permissions::from_mode(0o755)).expect("its mode");
    assert!(matches!(refusal(&output, &[foreign.to_str().expect("UTF-8")]), RecordError::OtherArchitecture { .. }));
    let script = dir.path().join("script");
    fs::write(&script, format!("#!{} 5\n", fixed.display())).expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("its mode");
    assert!(
        matches!(refusal(&output, &[script.to_str().expect("UTF-8")]), RecordError::Static { .. }),
        "its interpreter"
    );
    assert_only(dir.path(), &["foreign", "rounds", "script"]);
}

#[test]
fn outputs_that_cannot_be_written_are_refused() {
    let dir = scratch();
    assert!(matches!(refusal(dir.path(), &["true"]), RecordError::BadOutput { .. }));
    let fifo = dir.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("mkfifo").success());
    assert!(matches!(refusal(&fifo, &["true"]), RecordError::BadOutput { .. }));
    fs::remove_file(&fifo).expect("the pipe, still there");
    assert!(matches!(refusal(&dir.path().join("no/such/app.hkt"), &["true"]), RecordError::Io { .. }));
    for name in [OsString::from("app/"), OsString::from("x".repeat(238)), OsString::from_vec(vec![0xff])] {
        let why = refusal(&dir.path().join(&name), &["true"]);
        assert!(matches!(why, RecordError::BadOutput { .. }), "{name:?}: {why}");
    }
    assert_only(dir.path(), &[]);
}

#[test]
fn an_output_that_is_the_program_is_refused() {
    let dir = scratch();
    let program = compile(dir.path(), "rounds", &[]);
    let link = dir.path().join("link");
    std::os::unix::fs::symlink(&program, &link).expect("a link");
    let before = fs::read(&program).expect("the program");
    for output in [&program, &link] {
        let why = refusal(output, &[program.to_str().expect("UTF-8"), "5"]);
        assert!(why.to_string().contains("is the program to record"), "{why}");
    }
    assert!(fs::read(&program).expect("the program, still there") == before);
    assert_only(dir.path(), &["link", "rounds"]);
}

#[test]
fn names_of_maximum_length_and_links_are_accepted() {
    let dir = scratch();
    let longest = dir.path().join("x".repeat(237));
    let script = "sh -c :; :".into();
    let options = Options { output: longest.clone(), ..Options::default() };
    let report = record(&options, &["sh".into(), "-c".into(), script]).expect("a recording");
    assert!(longest.exists() && report.traces.len() > 1, "{report:?}");
    let (link, target) = (dir.path().join("link.hkt"), dir.path().join("target.hkt"));
    fs::write(&target, "old").expect("a file");
    std::os::unix::fs::symlink(&target, &link).expect("a link");
    let options = Options { output: link.clone(), ..Options::default() };
    record(&options, &["ls".into()]).expect("a recording");
    assert!(link.is_symlink(), "a link stays a link");
    assert!(!crate::support::read(&target).is_empty(), "the link's target is not written");
}

#[test]
fn a_long_command_line_is_shortened_in_the_message() {
    let dir = scratch();
    let program = compile(dir.path(), "empty", &[]);
    let why = refusal(&dir.path().join("app.hkt"), &[program.to_str().expect("UTF-8"), &"x".repeat(100_000)]);
    assert!(matches!(why, RecordError::NothingRecorded { .. }) && why.to_string().len() < 600, "{why}");
}

#[test]
fn an_executable_with_its_own_malloc_is_refused() {
    let dir = scratch();
    let output = dir.path().join("app.hkt");
    let bump = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/bump.c");
    let own = compile(dir.path(), "rounds", &["-rdynamic", bump.to_str().expect("UTF-8")]);
    let own = own.to_str().expect("UTF-8");
    let direct = refusal(&output, &[own, "5"]);
    assert!(matches!(direct, RecordError::OwnMalloc { .. }), "{direct}");
    assert!(direct.to_string().contains("defines malloc itself"), "{direct}");
    // If a shell starts the program, the reason is found only after the run.
    let report = record_words(dir.path(), ["sh", "-c", &format!("{own} 5; true")]);
    assert_eq!(report.static_malloc.len(), 1, "{report:?}");
    assert_eq!(report.static_malloc[0].command, [own, "5"]);
}

#[test]
fn programs_with_a_sanitizer_are_refused_by_name() {
    let dir = scratch();
    let output = dir.path().join("app.hkt");
    for (option, name) in [("address", "AddressSanitizer"), ("thread", "ThreadSanitizer"), ("leak", "LeakSanitizer")] {
        let flag = format!("-fsanitize={option}");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/rounds.c");
        let program = dir.path().join(option);
        let built = Command::new("cc").args([&flag, "-pthread", "-o"]).arg(&program).arg(source).output();
        if !built.is_ok_and(|built| built.status.success()) {
            println!("skipped: the compiler has no {name}");
            continue;
        }
        let why = refusal(&output, &[program.to_str().expect("UTF-8"), "5"]);
        assert!(matches!(why, RecordError::Sanitized { .. }), "{why}");
        assert!(why.to_string().contains(&format!("is built with {name}")), "{why}");
    }
    // This one has no allocator.
    let program = compile(dir.path(), "rounds", &["-fsanitize=undefined"]);
    assert_eq!(record_words(dir.path(), [program.as_os_str(), "5".as_ref()]).traces.len(), 1);
}

#[test]
fn a_program_without_any_call_is_reported() {
    let dir = scratch();
    let why = refusal(&dir.path().join("app.hkt"), &[compile(dir.path(), "empty", &[]).to_str().expect("UTF-8")]);
    assert!(matches!(why, RecordError::NothingRecorded { .. }), "{why}");
    assert!(why.to_string().contains("allocate nothing"), "{why}");
    assert_only(dir.path(), &["empty"]);
}

#[test]
fn a_script_without_its_interpreter_is_refused() {
    let dir = scratch();
    let script = dir.path().join("script");
    fs::write(&script, "#!/no/such/interpreter -x\n").expect("a script");
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).expect("its mode");
    let why = refusal(&dir.path().join("app.hkt"), &[script.to_str().expect("UTF-8")]);
    assert!(matches!(why, RecordError::BadInterpreter { .. }), "{why}");
    assert!(why.to_string().contains("/no/such/interpreter"), "{why}");
}

#[test]
fn a_setuid_program_of_another_user_is_refused() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root can create a setuid program");
        return;
    }
    let dir = scratch();
    let program = compile(dir.path(), "rounds", &[]);
    std::os::unix::fs::chown(&program, Some(65534), None).expect("another owner");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o4755)).expect("its mode");
    let why = refusal(&dir.path().join("app.hkt"), &[program.to_str().expect("UTF-8"), "5"]);
    assert!(matches!(why, RecordError::Privileged { .. }), "{why}");
    assert_only(dir.path(), &["rounds"]);
}

#[test]
fn calls_by_an_allocators_own_names_are_named() {
    let jemalloc = "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2";
    if !Path::new(jemalloc).exists() {
        eprintln!("skipped: libjemalloc2 is not installed");
        return;
    }
    let dir = scratch();
    let program = compile(dir.path(), "own_names", &[jemalloc]);
    let report = record_words(dir.path(), [&program]);
    assert_eq!(report.unseen_calls, ["dallocx", "mallocx"]);
    assert!(report.traces[0].allocator.as_ref().is_some_and(|path| path.ends_with("libjemalloc.so.2")), "{report:?}");
}

#[test]
fn a_directory_without_a_session_is_not_recovered() {
    let dir = scratch();
    assert!(matches!(recover(dir.path()), Err(RecordError::BadSession { .. })));
    fs::write(dir.path().join("session.json"), "{}").expect("a file");
    assert!(matches!(recover(dir.path()), Err(RecordError::BadSession { .. })));
    assert_only(dir.path(), &["session.json"]);
}

/// With the session elsewhere, the incomplete trace is next to the output, where others may write.
#[test]
fn an_incomplete_trace_is_not_written_through_a_link() {
    let dir = scratch();
    let [sessions, victim] = ["sessions", "victim"].map(|name| dir.path().join(name));
    fs::create_dir(&sessions).expect("a directory");
    fs::write(&victim, "precious").expect("a file");
    let planted = dir.path().join(format!(".app.hkt.partial-{}", std::process::id()));
    std::os::unix::fs::symlink(&victim, &planted).expect("a link");
    let options = Options { output: dir.path().join("app.hkt"), session_parent: Some(sessions), ..Options::default() };
    record(&options, &["ls".into(), "/".into()]).expect("a recording");
    assert_eq!(fs::read(&victim).expect("the file"), b"precious");
    let kept = fs::symlink_metadata(dir.path().join("app.hkt")).expect("the trace");
    assert!(kept.is_file(), "the trace itself is no link");
}
