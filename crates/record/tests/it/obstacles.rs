//! Running programs that cannot be recorded are refused with the reason, and stay as they are.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::{sleep, spawn};
use std::time::Duration;

use hksim_record::{Options, attach_watched};

use crate::support::{compile, have, scratch};

/// A program that is ready, and ends when this value is dropped.
struct Waiting(Child);

impl Waiting {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let mut ready = [0];
        child.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("it is ready");
        Self(child)
    }

    fn of(program: &Path, state: &str) -> Self {
        Self::start(Command::new(program).arg(state))
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }

    fn is_running(&mut self) -> bool {
        self.0.try_wait().expect("a child").is_none()
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Why a process is not recorded; nothing is left in the directory.
fn why(dir: &Path, pid: u32) -> String {
    let output = dir.join("out");
    fs::create_dir_all(&output).expect("a folder");
    let options = Options { output: output.join("app.hkt"), ..Options::default() };
    let why = attach_watched(&options, pid, &mut |_| {}).expect_err("refused").to_string();
    assert_eq!(fs::read_dir(&output).expect("a folder").count(), 0, "{why}");
    assert!(why.starts_with(&format!("process {pid}: cannot be recorded: ")), "{why}");
    why
}

#[test]
fn system_call_filters_are_refused() {
    let dir = scratch();
    let program = compile(dir.path(), "obstacles", &[]);
    for state in ["filter", "strict"] {
        let mut waiting = Waiting::of(&program, state);
        let said = why(dir.path(), waiting.pid());
        assert!(
            said.contains("system-call filter (seccomp)") && said.contains("start it with hksim"),
            "{state}: {said}"
        );
        assert!(waiting.is_running(), "{state}");
    }
}

#[test]
fn threads_are_refused_by_their_process() {
    let dir = scratch();
    let waiting = Waiting::of(&compile(dir.path(), "obstacles", &[]), "thread");
    let threads = fs::read_dir(format!("/proc/{}/task", waiting.pid())).expect("it runs").flatten();
    let ids = threads.map(|thread| thread.file_name().to_string_lossy().parse::<u32>().expect("a number"));
    let thread = ids.into_iter().find(|&id| id != waiting.pid()).expect("a second thread");
    let said = why(dir.path(), thread);
    assert!(said.contains(&format!("it is a thread of process {0}; use -p {0}", waiting.pid())), "{said}");
}

#[test]
fn traced_processes_are_refused() {
    let dir = scratch();
    let mut waiting = Waiting::of(&compile(dir.path(), "obstacles", &[]), "");
    let pid = waiting.pid() as libc::pid_t;
    // SAFETY: numbers only, for this test's own child.
    let seized = unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) };
    assert_eq!(seized, 0, "{}", std::io::Error::last_os_error());
    let said = why(dir.path(), waiting.pid());
    // The tracer is this thread.
    assert!(said.contains(" traces it already; end that tracer"), "{said}");
    assert!(waiting.is_running());
}

#[test]
fn programs_of_32_bits_are_refused() {
    let dir = scratch();
    let (source, program) = (dir.path().join("small.c"), dir.path().join("small"));
    // write(1, "r", 1), then pause() for ever.
    let text = "void _start(void) { int got; __asm__ volatile(\"int $0x80\" : \"=a\"(got) : \"a\"(4), \"b\"(1), \"c\"(\"r\"), \"d\"(1)); \
                for (;;) __asm__ volatile(\"int $0x80\" : \"=a\"(got) : \"a\"(29)); }\n";
    fs::write(&source, text).expect("a file");
    let flags = ["-m32", "-O1", "-nostdlib", "-static", "-fno-pic", "-no-pie", "-fno-stack-protector", "-o"];
    let built = Command::new("cc").args(flags).args([&program, &source]).output();
    if !built.is_ok_and(|built| built.status.success()) {
        return println!("skipped: the compiler builds no 32-bit programs");
    }
    let started = Command::new(&program).stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
    let Ok(mut child) = started else { return println!("skipped: the kernel runs no 32-bit programs") };
    let mut ready = [0];
    let is_ready = child.stdout.as_mut().expect("a pipe").read_exact(&mut ready).is_ok();
    let mut waiting = Waiting(child);
    if !is_ready {
        return println!("skipped: the kernel runs no 32-bit programs");
    }
    let said = why(dir.path(), waiting.pid());
    assert!(said.contains("it is a 32-bit program"), "{said}");
    assert!(waiting.is_running());
}

#[test]
fn programs_without_glibcs_dynamic_linker_are_told_what_records_them() {
    let dir = scratch();
    let fixed = Waiting::of(&compile(dir.path(), "obstacles", &["-static"]), "");
    let said = why(dir.path(), fixed.pid());
    assert!(said.contains("statically linked") && said.contains("--functions malloc,"), "{said}");
    if !have("musl-gcc") {
        return;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c/obstacles.c");
    for (flags, expected) in [(&["-static"][..], "statically linked"), (&[], "ld-musl")] {
        let program = dir.path().join("musl");
        // Debian's musl has no headers of the kernel.
        let headers = ["-idirafter", "/usr/include", "-idirafter", "/usr/include/x86_64-linux-gnu"];
        let mut build = Command::new("musl-gcc");
        let built = build.args(headers).args(flags).arg("-o").args([&program, &source]).status();
        assert!(built.expect("a compiler").success());
        let waiting = Waiting::of(&program, "");
        let said = why(dir.path(), waiting.pid());
        assert!(said.contains(expected) && said.contains("--functions malloc,"), "{said}");
    }
}

#[test]
fn a_process_that_ends_meanwhile_is_no_recording() {
    let dir = scratch();
    let waiting = Waiting::of(&compile(dir.path(), "obstacles", &[]), "");
    let pid = waiting.pid();
    let ends = spawn(move || {
        sleep(Duration::from_millis(300));
        drop(waiting);
    });
    let said = why(dir.path(), pid);
    assert!(said.contains("it ended") && said.contains("before it called an allocator function"), "{said}");
    ends.join().expect("no panic");
}

/// As the user nobody: this test's program again, since only a process of that user meets what it meets.
#[test]
fn processes_of_other_users_are_refused() {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 || !have("setpriv") {
        return println!("skipped: only root can change its user");
    }
    let dir = scratch();
    let program = compile(dir.path(), "obstacles", &[]);
    let of_root = Waiting::of(&program, "");
    for path in [dir.path(), &program] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(path, mode).expect("the mode");
    }
    let nobody = ["--reuid", "65534", "--regid", "65534", "--clear-groups"];
    let own = Waiting::start(Command::new("setpriv").args(nobody).arg(&program).arg("undumpable"));
    for (pid, expected) in [
        (of_root.pid(), "it belongs to the user with id 0; run hksim as that user or as root"),
        (own.pid(), "PR_SET_DUMPABLE"),
    ] {
        let mut test = Command::new("setpriv");
        // A copy: nobody may not reach the folder of this program.
        let copy = dir.path().join("test");
        if !copy.exists() {
            fs::copy(std::env::current_exe().expect("this program"), &copy).expect("a copy");
        }
        test.args(nobody).arg(copy).args(["--exact", "obstacles::is_refused", "--ignored", "--nocapture"]);
        let said = test.env("HKSIM_TEST_REFUSED", pid.to_string()).output().expect("it runs");
        let said = String::from_utf8_lossy(&said.stdout).into_owned();
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
#[ignore = "a part of another test, which runs it as a process"]
fn is_refused() {
    let Ok(pid) = std::env::var("HKSIM_TEST_REFUSED") else { return };
    let dir = scratch();
    println!("{}", why(dir.path(), pid.parse().expect("a number")));
}
