//! Outputs in folders that other users can write to, and what killed commands leave.

use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::recordings::can_record;
use crate::support::{Bench, Ran};

fn names(bench: &Bench) -> Vec<String> {
    let entries = fs::read_dir(bench.folder()).expect("the folder").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

/// The names of temporary files must not be guessed: a link there would be followed.
#[test]
fn links_planted_at_names_with_a_process_number_are_not_followed() {
    let bench = Bench::with_trace();
    fs::write(bench.path("victim"), "precious").expect("a file");
    for pid in std::process::id()..std::process::id() + 3000 {
        for name in ["out.json", "out.hkt"] {
            symlink("victim", bench.path(&format!(".{name}.{pid}.part"))).expect("a link");
        }
    }
    bench.ok("sim rm.hkt --format json -o out.json");
    bench.ok("trace cut rm.hkt --events ..9 -o out.hkt");
    assert_eq!(fs::read(bench.path("victim")).expect("the file"), b"precious");
}

#[test]
fn a_link_of_another_user_in_a_folder_for_all_is_refused() {
    let bench = Bench::with_trace();
    fs::write(bench.path("victim"), "precious").expect("a file");
    fs::set_permissions(bench.folder(), fs::Permissions::from_mode(0o1777)).expect("our own folder");
    symlink("victim", bench.path("out.json")).expect("a link");
    if let Err(why) = lchown(bench.path("out.json"), Some(65534), None) {
        return eprintln!("skipped: cannot make a link of another user: {why}");
    }
    let said = bench.refused("sim rm.hkt --format json -o out.json");
    assert!(said.contains("out.json: is a link of another user"), "{said}");
    assert_eq!(fs::read(bench.path("victim")).expect("the file"), b"precious");
    lchown(bench.path("out.json"), Some(rustix::process::geteuid().as_raw()), None).expect("our own link");
    bench.ok("sim rm.hkt --format json -o out.json");
    assert!(fs::read(bench.path("victim")).expect("the result").starts_with(b"{"));
}

#[test]
fn what_a_killed_command_leaves_is_removed_by_the_next_one() {
    let bench = Bench::new();
    let is_left = |name: &String| name.ends_with(".part");
    let mut long: Command = bench.command("gen random-mixed --cycles 100M -o x.hkt");
    let mut child = long.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("hksim starts");
    let started = Instant::now();
    let size = || {
        names(&bench)
            .iter()
            .filter(|name| is_left(name))
            .map(|name| fs::metadata(bench.path(name)).map_or(0, |file| file.len()))
            .sum::<u64>()
    };
    while size() < 1 << 16 {
        assert!(started.elapsed() < Duration::from_secs(60), "the trace grows");
        std::thread::sleep(Duration::from_millis(2));
    }
    // Another output of that name does not disturb it.
    bench.ok("gen tiny-hot --cycles 10 -o x.hkt");
    assert_eq!(names(&bench).iter().filter(|name| is_left(name)).count(), 1);
    child.kill().expect("the child is killed");
    child.wait().expect("the child ends");
    assert_eq!(names(&bench).iter().filter(|name| is_left(name)).count(), 1, "SIGKILL leaves it");
    bench.ok("gen tiny-hot --cycles 10 -o x.hkt");
    assert_eq!(names(&bench), ["x.hkt"]);
}

#[test]
fn outputs_have_the_mode_of_files_that_are_created_plainly() {
    let bench = Bench::with_trace();
    let mode = |name: &str| fs::metadata(bench.path(name)).expect("a file").permissions().mode() & 0o7777;
    fs::write(bench.path("plain"), "").expect("a file");
    bench.ok("sim rm.hkt -o new.txt");
    assert_eq!(mode("new.txt"), mode("plain"));
    fs::set_permissions(bench.path("new.txt"), fs::Permissions::from_mode(0o600)).expect("our own file");
    bench.ok("sim rm.hkt -o new.txt");
    assert_eq!(mode("new.txt"), 0o600);
    bench.ok("sim rm.hkt --format json -o sim.json");
    bench.ok("bundle sim.json -o bundle");
    fs::create_dir(bench.path("folder")).expect("a folder");
    assert_eq!(mode("bundle"), mode("folder"));
}

/// A folder for all users, as /tmp is.
fn for_all() -> Bench {
    let bench = Bench::new();
    fs::set_permissions(bench.folder(), fs::Permissions::from_mode(0o1777)).expect("our own folder");
    bench
}

/// Gives a file to the user nobody; false, with the reason printed, where that is not possible.
fn give_away(path: &Path) -> bool {
    let given = lchown(path, Some(65534), None);
    if let Err(why) = &given {
        eprintln!("skipped: cannot give a file to another user: {why}");
    }
    given.is_ok()
}

fn pipe(path: &Path) {
    let mode = rustix::fs::Mode::from_raw_mode(0o666);
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, mode, 0).expect("a pipe");
}

/// Runs a command that must end within a minute.
fn bounded(bench: &Bench, line: &str) -> Ran {
    let mut command = bench.command(line);
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let started = Instant::now();
    while child.try_wait().expect("a child").is_none() {
        if started.elapsed() > Duration::from_secs(60) {
            child.kill().expect("the child is killed");
            panic!("{line}: waits");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ran::of(line, child.wait_with_output().expect("the child ended"))
}

/// Another user who leaves a file where root will write must not choose the rights of root's file.
#[test]
fn outputs_do_not_take_the_rights_of_another_users_file() {
    let bench = for_all();
    bench.ok("gen tiny-hot --cycles 100 -o t.hkt");
    let mode = |name: &str| fs::metadata(bench.path(name)).expect("a file").permissions().mode() & 0o7777;
    for (name, line) in
        [("out.json", "sim t.hkt --format json -o out.json"), ("o.hkt", "trace cut t.hkt --events ..9 -o o.hkt")]
    {
        fs::write(bench.path(name), "").expect("a file");
        if !give_away(&bench.path(name)) {
            return;
        }
        fs::set_permissions(bench.path(name), fs::Permissions::from_mode(0o6777)).expect("as root");
        bench.ok(line);
        assert_eq!(mode(name), mode("t.hkt"), "{name}");
    }
    // Nor is one's own file that runs with its owner's rights filled with data of a trace.
    fs::write(bench.path("own.json"), "").expect("a file");
    fs::set_permissions(bench.path("own.json"), fs::Permissions::from_mode(0o4755)).expect("our own file");
    bench.ok("sim t.hkt --format json -o own.json");
    assert_eq!(mode("own.json"), 0o755);
}

#[test]
fn a_pipe_of_another_user_in_a_folder_for_all_is_refused() {
    let bench = for_all();
    bench.ok("gen tiny-hot --cycles 100 -o t.hkt");
    pipe(&bench.path("out"));
    if !give_away(&bench.path("out")) {
        return;
    }
    for line in ["sim t.hkt --format json -o out", "sweep t.hkt --huge --resume out", "run --stats text:out -- true"] {
        let ran = bounded(&bench, line);
        assert!(ran.code == Some(2) && ran.stderr.contains("out: is a pipe of another user"), "{line}: {}", ran.stderr);
    }
}

#[test]
fn planted_links_lead_no_output_to_another_file() {
    let bench = for_all();
    bench.ok("gen tiny-hot --cycles 100 -o t.hkt");
    fs::write(bench.path("victim"), "").expect("a file");
    symlink("victim", bench.path("out")).expect("a link");
    if !give_away(&bench.path("out")) {
        return;
    }
    for line in [
        "sweep t.hkt --huge --resume out",
        "run --stats text:out -- true",
        "record -o out -- true",
        "record --memory -o out -- true",
    ] {
        assert!(bench.refused(line).contains("out: is a link of another user"), "{line}");
        assert_eq!(fs::read(bench.path("victim")).expect("the file"), b"", "{line}");
    }
}

/// The lock of a recording has a name that another user can take before.
#[test]
fn a_planted_lock_is_neither_written_nor_waited_for() {
    let bench = for_all();
    fs::write(bench.path("victim"), "precious").expect("a file");
    let lock = bench.path(".app.hkt.lock");
    fs::hard_link(bench.path("victim"), &lock).expect("a second name");
    bench.ok("record -q -o app.hkt ls");
    assert_eq!(fs::read(bench.path("victim")).expect("the file"), b"precious");
    let _ = fs::remove_file(&lock);
    pipe(&lock);
    if !give_away(&lock) {
        return;
    }
    let open = fs::OpenOptions::new().read(true).write(true).open(&lock).expect("a pipe");
    rustix::fs::flock(&open, rustix::fs::FlockOperation::LockExclusive).expect("a lock");
    assert_eq!(bounded(&bench, "record -q -o app.hkt ls").code, Some(0));
    fs::remove_file(&lock).expect("the pipe");
    fs::write(&lock, "1").expect("a file");
    assert!(give_away(&lock));
    let open = fs::File::open(&lock).expect("the file");
    rustix::fs::flock(&open, rustix::fs::FlockOperation::LockExclusive).expect("a lock");
    bench.ok("record -q -o app.hkt ls");
}

/// While a program runs, another user may place a link at the name of the folder for its children's files.
#[test]
fn files_of_children_are_not_written_through_a_link() {
    let bench = for_all();
    fs::create_dir(bench.path("elsewhere")).expect("a folder");
    for (flags, output) in [("", "app.hkt"), ("--memory", "app.hkm")] {
        if !flags.is_empty() && !can_record() {
            return;
        }
        let plant = format!("ln -s elsewhere {output}.processes; (ls); (ls); :");
        fs::write(bench.path("job.sh"), plant).expect("a script");
        let ran = bench.run(&format!("record {flags} -q -o {output} -- sh job.sh"));
        assert!(
            ran.code == Some(2) && ran.stderr.contains("remove it; the recording is kept"),
            "{flags}: {}",
            ran.stderr
        );
        assert_eq!(fs::read_dir(bench.path("elsewhere")).expect("the folder").count(), 0, "{flags}");
        fs::remove_file(bench.path(&format!("{output}.processes"))).expect("the link");
        let kept = names(&bench).into_iter().find(|name| name.starts_with(&format!(".{output}.recording-")));
        bench.ok(&format!("record --recover {} -q", kept.expect("the recording is kept")));
        assert!(bench.path(output).exists() && bench.path(&format!("{output}.processes")).is_dir());
    }
}

/// Another user's session can contain links to files of whoever recovers it.
#[test]
fn only_recordings_of_this_user_are_recovered() {
    let bench = for_all();
    for name in [".a.hkt.recording-aaaaaa", ".a.hkm.recording-aaaaaa"] {
        fs::create_dir(bench.path(name)).expect("a folder");
        fs::write(bench.path(name).join("7-0.hkm"), "").expect("a file");
        fs::write(bench.path(name).join("session.json"), "{}").expect("a file");
        if name.contains("hkt") {
            fs::remove_file(bench.path(name).join("7-0.hkm")).expect("the file");
        }
        if !give_away(&bench.path(name)) {
            return;
        }
        let said = bench.refused(&format!("record --recover {name}"));
        assert!(said.contains("belongs to another user"), "{said}");
    }
}

#[test]
fn a_killed_memory_recording_is_named_by_a_recovery() {
    if !can_record() {
        return;
    }
    let bench = Bench::new();
    let job = "i=0; while :; do (:); /bin/true; i=$((i+1)); done";
    fs::write(bench.path("job.sh"), job).expect("a script");
    let mut recorder = bench.command("record --memory -o app.hkm -- sh job.sh");
    let mut recorder = recorder.process_group(0).stderr(Stdio::null()).spawn().expect("hksim starts");
    let group = recorder.id() as i32;
    let started = Instant::now();
    let session = || names(&bench).into_iter().find(|name| name.starts_with(".app.hkm.recording-"));
    let files = || session().map_or(0, |name| fs::read_dir(bench.path(&name)).map_or(0, Iterator::count));
    while files() < 20 {
        assert!(started.elapsed() < Duration::from_secs(60), "the children are recorded");
        std::thread::sleep(Duration::from_millis(5));
    }
    let session = session().expect("a folder");
    let busy = bench.run(&format!("record --recover {session}"));
    // SAFETY: the group of the recorder and the program that this test started.
    unsafe { libc::kill(-group, libc::SIGKILL) };
    recorder.wait().expect("it ends");
    assert!(busy.code == Some(2) && busy.stderr.contains("its recorder still runs"), "{}", busy.stderr);
    let mode = fs::metadata(bench.path(&session)).expect("it").permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "only its user reads what is recorded");

    // A process of which the recorder had only created the file.
    fs::write(bench.path(&format!("{session}/4194304-0.hkm")), "").expect("a file");
    // The next recording of that name says what the other one left.
    let ran = bench.run("record --memory -o app.hkm -- /bin/true");
    assert!(ran.stderr.contains(&format!("{session} is an interrupted recording")), "{}", ran.stderr);
    fs::remove_file(bench.path("app.hkm")).expect("the other recording");
    let ran = bench.run(&format!("record --recover {session}"));
    assert!(ran.code == Some(0) && ran.stderr.contains("the recorder was killed"), "{}", ran.stderr);
    assert!(!names(&bench).contains(&session), "the folder is gone");
    let info = bench.json("info app.hkm");
    assert_eq!(info["complete"], false, "{info}");
    assert!(fs::read_dir(bench.path("app.hkm.processes")).expect("a folder").count() > 15);
    bench.ok("sim app.hkm --thp always");
}
