//! `hksim run`, checked by other programs and /proc.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

use crate::support::Bench;

/// The arena's first address: the layout's base, far from addresses that the kernel chooses.
const ARENA: &str = "20000";

fn run(bench: &Bench, line: &str, script: &str) -> Output {
    let mut command = bench.command(&format!("run {line} --"));
    command.args(["sh", "-c", script]).env("XDG_CACHE_HOME", bench.folder());
    command.output().expect("hksim starts")
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The `VmFlags` that the kernel shows for the arena of a shell.
fn arena_flags(bench: &Bench, line: &str) -> String {
    let script = format!("sed -n '/^{ARENA}[0-9a-f]*-/,/VmFlags/p' /proc/self/smaps | grep VmFlags");
    text(&run(bench, line, &script))
}

#[test]
fn the_program_keeps_its_pid_and_exit_status() {
    let bench = Bench::new();
    assert_eq!(run(&bench, "", "exit 7").status.code(), Some(7));
    assert_eq!(run(&bench, "", "kill -9 $$").status.signal(), Some(9));
    let ran = run(&bench, "--superslab 1M", "cat; echo printed >&2");
    assert_eq!((ran.status.code(), &ran.stderr[..]), (Some(0), &b"printed\n"[..]));

    let mut sleeper = bench.command("run -- sleep 60");
    let mut child = sleeper.env("XDG_CACHE_HOME", bench.folder()).stdin(Stdio::null()).spawn().expect("hksim starts");
    // SAFETY: a child of this process that is not reaped yet.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGTERM) };
    assert_eq!(child.wait().expect("it ends").signal(), Some(libc::SIGTERM));
}

#[test]
fn programs_and_their_children_run_in_the_arena() {
    let bench = Bench::new();
    for line in ["", "--huge never", "--superslab 1M --meta sidecar", "--header full --header-bytes 16 --carve eager"] {
        let maps = text(&run(&bench, line, "cat /proc/self/maps"));
        assert!(maps.contains("native.so"), "{line}: {maps}");
        assert!(maps.lines().any(|line| line.starts_with(ARENA)), "{line}: {maps}");
    }
}

#[test]
fn the_kernel_shows_the_policy() {
    let bench = Bench::new();
    assert!(arena_flags(&bench, "").contains(" hg"), "advised");
    assert!(arena_flags(&bench, "--superslab 1M --huge thp").contains(" hg"), "advised");
    assert!(!arena_flags(&bench, "--huge never").contains(" hg"));
    assert!(!arena_flags(&bench, "--huge never --superslab 4M").contains(" hg"));
    assert!(!arena_flags(&bench, "--preset hakmem --header-bytes 16").contains(" hg"));
}

#[test]
fn the_shared_object_works_without_hksim() {
    let bench = Bench::new();
    text(&run(&bench, "", "true"));
    let found = Command::new("find").arg(bench.folder()).args(["-name", "native.so"]).output().expect("find runs");
    let object = String::from_utf8(found.stdout).expect("a path");
    let alone = |policy: Option<&str>| {
        let mut command = Command::new("cat");
        command.arg("/proc/self/maps").env("LD_PRELOAD", object.trim()).env_remove("HKSIM_NATIVE_POLICY");
        command.envs(policy.map(|policy| ("HKSIM_NATIVE_POLICY", policy)));
        command.output().expect("cat runs")
    };
    for policy in [None, Some("preset=default"), Some("slab=128K,meta=sidecar")] {
        assert!(text(&alone(policy)).lines().any(|line| line.starts_with(ARENA)), "{policy:?}");
    }
    let refused = alone(Some("preset=hakmem"));
    assert_eq!(refused.status.code(), Some(2));
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.starts_with("hksim: HKSIM_NATIVE_POLICY: ") && why.contains("header-bytes=16"), "{why}");
    let why = String::from_utf8_lossy(&alone(Some("huge=blah")).stderr).into_owned();
    assert!(
        why.starts_with("hksim: HKSIM_NATIVE_POLICY: invalid value 'blah' for 'huge': expected one of never, "),
        "{why}"
    );
}

#[test]
fn policies_that_cannot_run_are_refused() {
    let bench = Bench::new();
    assert!(bench.refused("run --preset hakmem -- true").contains("header-bytes=16"));
    assert!(bench.refused("run --touch all -- true").contains("leave it out"));
    assert!(bench.refused("run --thp always -- true").contains("simulated kernel"));
    assert!(bench.refused("run --superslab 1M,2M -- true").contains("one design"));
    assert!(bench.refused("run").contains("CMD"));
    let mut missing = bench.command("run -- /nonexistent/program");
    let ran = missing.env("XDG_CACHE_HOME", bench.folder()).output().expect("hksim starts");
    assert_eq!(ran.status.code(), Some(2));
}

/// Programs into which the dynamic linker preloads nothing: a static one and a setuid one.
#[test]
fn a_program_that_cannot_be_preloaded_is_named() {
    let bench = Bench::new();
    std::fs::write(bench.path("p.c"), "int main(void) { return 3; }").expect("a source");
    let built = |options: &[&str], out: &str| {
        let cc = Command::new("cc").args(options).arg(bench.path("p.c")).arg("-o").arg(bench.path(out)).status();
        cc.is_ok_and(|status| status.success())
    };
    let message = |program: &str| {
        let mut command = bench.command(&format!("run -- {program}"));
        let ran = command.env("XDG_CACHE_HOME", bench.folder()).output().expect("hksim starts");
        assert_eq!(ran.status.code(), Some(3), "{ran:?}");
        String::from_utf8_lossy(&ran.stderr).into_owned()
    };
    if !built(&[], "dynamic") || !built(&["-static"], "static") {
        return eprintln!("skipped: no C compiler, or no static C library");
    }
    assert_eq!(message("./dynamic"), "");
    let printed = message("./static");
    assert!(printed.starts_with("hksim: ./static is statically linked, so it runs on its own allocator"), "{printed}");
    std::fs::write(bench.path("script"), format!("#!{}\n", bench.path("static").display())).expect("a script");
    std::fs::set_permissions(bench.path("script"), PermissionsExt::from_mode(0o755)).expect("a mode");
    assert!(message("./script").contains("/static is statically linked"));
    let other_user = Command::new("chown").arg("65534").arg(bench.path("dynamic")).status();
    if !other_user.is_ok_and(|status| status.success()) {
        return eprintln!("skipped: only root can create a program that is setuid for another user");
    }
    std::fs::set_permissions(bench.path("dynamic"), PermissionsExt::from_mode(0o4755)).expect("a mode");
    let printed = message("./dynamic");
    assert!(printed.starts_with("hksim: ./dynamic has more rights than its caller (it is setuid)"), "{printed}");
}

#[test]
fn statistics_that_cannot_be_written_are_refused_before_the_program_runs() {
    let bench = Bench::new();
    let printed = bench.refused("run --stats json:/no/such/x -- touch ran");
    assert!(printed.contains("--stats: /no/such/x: cannot write"), "{printed}");
    assert!(!bench.path("ran").exists());
}
