//! Outputs in folders that other users can write to, and what killed commands leave.

use std::fs;
use std::os::unix::fs::{PermissionsExt, lchown, symlink};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::Bench;

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
