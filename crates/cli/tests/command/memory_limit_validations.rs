//! `validate --memory-limit`: programs run in real memory control groups. The oracle is the kernel; that a wrong prediction
//! is found is tested with recordings of another program than the one that runs.

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

use hksim_linux_probe::memory_group::MemoryGroup;
use serde_json::Value;

use crate::support::recordings::{can_record, data};
use crate::support::{Bench, Ran, number};

const PAGE: u64 = 4096;

/// A directory with the program and a recording of it at fixed addresses; the arguments are those of the program.
fn recorded(arguments: &str) -> Option<Bench> {
    recorded_of("limited.c", arguments)
}

fn recorded_of(source: &str, arguments: &str) -> Option<Bench> {
    if !can_record() {
        return None;
    }
    if let Err(why) = MemoryGroup::create() {
        eprintln!("skipped: {why}");
        return None;
    }
    let bench = Bench::new();
    bench.compile(data(source), "app", &["-O1", "-pthread"])?;
    bench.ok(&format!("record --memory --no-aslr -o a.hkm -- ./app {arguments}"));
    Some(bench)
}

/// The predicted least limit: at best, and in any case.
fn least(bench: &Bench) -> [u64; 2] {
    let result = bench.json("sim a.hkm --kernel host --memory-limit 1G");
    let most = number(&result, "memory_limit.least_limit_bytes");
    let low = &result["unseen_writes"]["least_limit_bytes_min"];
    [low.as_u64().unwrap_or(most), most]
}

/// The result of a validation at these limits, and its exit status.
fn validated(bench: &Bench, limits: &[u64], command: &str) -> (Value, Option<i32>) {
    let limits: Vec<String> = limits.iter().map(u64::to_string).collect();
    let line = format!("validate a.hkm --memory-limit {} --runs 2 --format json {command}", limits.join(","));
    let Ran { code, stdout, stderr } = bench.run(&line);
    (serde_json::from_str(&stdout).unwrap_or_else(|why| panic!("{why}: {stdout}{stderr}")), code)
}

/// The outcomes of a row's runs, without those that were repeated with room for what is not known exactly.
fn first_outcomes(row: &Value) -> Vec<&str> {
    let runs = row["memory_limit"]["runs"].as_array().expect("runs");
    let limit = &runs.first().expect("a run")["limit_bytes"];
    let first = runs.iter().filter(|run| run["limit_bytes"] == *limit);
    first.map(|run| run["outcome"].as_str().expect("a word")).collect()
}

/// A row of a wrong prediction. If it was not judged, the last lines of the panic say why.
fn failed(bench: &Bench, limit: u64, command: &str) -> Value {
    let (mut result, code) = validated(bench, &[limit], command);
    let row = result["rows"][0].take();
    assert_eq!((row["verdict"].as_str(), code), (Some("failed"), Some(1)), "\n{}", row["reason"]);
    row
}

#[test]
fn a_program_survives_its_least_limit_and_is_killed_three_pages_below() {
    let Some(bench) = recorded("2000 0 0 0 0") else { return };
    let [_, least] = least(&bench);
    assert!((2000 * PAGE..2200 * PAGE).contains(&least), "{least}");
    let limits = [least, least - 3 * PAGE, least / 2, 2 * least];
    let (result, code) = validated(&bench, &limits, "--run-recorded");
    assert_eq!((&result["verdict"], code), (&"ok".into(), Some(0)), "{result}");
    for (row, [predicted, measured]) in
        [["survives", "survived"], ["killed", "killed"], ["killed", "killed"], ["survives", "survived"]]
            .into_iter()
            .enumerate()
    {
        let row = &result["rows"][row];
        assert_eq!(row["memory_limit"]["predicted"]["outcome"], predicted, "{row}");
        assert_eq!(first_outcomes(row), [measured; 2], "{row}");
        assert_eq!(row["class"], "exact", "{row}");
        let peak = &row["memory_limit"]["peak"];
        let [low, high] = ["measured_bytes_min", "measured_bytes_max"].map(|name| number(peak, name));
        assert!((low..=high).contains(&number(peak, "measured_bytes")), "{row}");
        assert!(number(peak, "predicted_bytes") >= 2000 * PAGE && high - low < 400 * PAGE, "{row}");
        let (limit, killed) = (&row["memory_limit"]["predicted"], &row["memory_limit"]["killed"]);
        assert_eq!(predicted == "killed", killed.is_object(), "{row}");
        if predicted == "killed" {
            let places = [&limit["event"], &killed["event"]].map(|event| event.as_u64().expect("an operation"));
            assert!(places[0].abs_diff(places[1]) <= 3, "{row}");
            let word = if places[0] == places[1] { "same" } else { "within" };
            assert_eq!(killed["agreement"], word, "{row}");
            let by = killed["by"].as_str().expect("words");
            assert!(by.starts_with("first write of the page at 0x7f"), "{row}");
        }
    }
    let table = bench.ok(&format!("validate a.hkm --run-recorded --memory-limit {} --runs 2", least / 2));
    for part in ["killed in", "2 killed", "verdict: ok"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    let table = bench.ok(&format!("validate a.hkm --run-recorded --memory-limit {} --runs 2", 2 * least));
    for part in ["least limit", "2 survived", "verdict: ok"] {
        assert!(table.contains(part), "{part}: {table}");
    }
    assert!(!table.contains("residual"), "{table}");
    let csv =
        bench.ok(&format!("validate a.hkm --run-recorded --memory-limit {},none --runs 2 --format csv", 2 * least));
    assert_eq!(csv.lines().count(), 5, "two rows with two runs each: {csv}");
    assert_eq!(csv.matches("survived").count(), 2, "{csv}");
}

#[test]
fn the_children_of_a_program_are_in_its_group() {
    // Together they need more than each does alone.
    let Some(bench) = recorded("600 0 0 3 900") else { return };
    let [_, least] = least(&bench);
    assert!((1500 * PAGE..1800 * PAGE).contains(&least), "{least}");
    let (result, code) = validated(&bench, &[least, least - 20 * PAGE, 1000 * PAGE], "--run-recorded");
    assert_eq!((&result["verdict"], code), (&"ok".into(), Some(0)), "{result}");
    for (row, outcome) in ["survives", "killed", "killed"].into_iter().enumerate() {
        assert_eq!(result["rows"][row]["memory_limit"]["predicted"]["outcome"], outcome, "{result}");
    }
    assert!(first_outcomes(&result["rows"][2]).iter().all(|outcome| *outcome != "survived"), "{result}");
    for row in [1, 2].map(|row| &result["rows"][row]) {
        assert!(is_placed(&row["memory_limit"]["killed"]), "{row}");
    }
    assert!(
        result["rows"][0]["memory_limit"]["peak"]["measured_bytes_max"].is_null(),
        "children's records are unknown"
    );
}

/// Whether a program with threads or children was killed where it was predicted, or in another order where the model has it.
fn is_placed(killed: &Value) -> bool {
    let agreement = killed["agreement"].as_str().unwrap_or_default();
    ["same", "within", "own_order"].contains(&agreement) && killed["event"].is_u64()
}

/// Their order is another one in each run, and the place of the kill is checked in the order of the run.
#[test]
fn threads_are_killed_where_the_model_has_it() {
    let Some(bench) = recorded_of("limited-threads.c", "4 600 0") else { return };
    let [_, least] = least(&bench);
    let (result, code) = validated(&bench, &[least - 200 * PAGE, least / 2], "--run-recorded");
    assert_eq!((&result["verdict"], code), (&"ok".into(), Some(0)), "{result}");
    for row in [0, 1].map(|row| &result["rows"][row]) {
        assert!(is_placed(&row["memory_limit"]["killed"]), "{row}");
    }
    let table = bench.ok(&format!("validate a.hkm --run-recorded --memory-limit {} --runs 2", least / 2));
    assert!(table.contains("killed in"), "{table}");
}

/// Pipes are charged, and not predicted: the kernel reaches the limit long before the model does in the run's own order.
#[test]
fn a_wrong_place_is_found_in_the_order_of_the_run() {
    let Some(bench) = recorded_of("limited-threads.c", "4 1000 512") else { return };
    let [_, least] = least(&bench);
    let row = failed(&bench, least - 50 * PAGE, "--run-recorded");
    assert_eq!(row["memory_limit"]["killed"]["agreement"], "differs", "{row}");
}

/// A parent that waits for what its killed child was to do does not wait for ever.
#[test]
fn a_parent_that_outlives_its_killed_child_is_ended() {
    if !can_record() || MemoryGroup::create().is_err() {
        return eprintln!("skipped: needs root, and a memory control group");
    }
    let bench = Bench::new();
    let source = fs::read_to_string(data("limited.c")).expect("the program");
    let waits = "if (waitpid(pid, &status, 0) != pid || status) pause();";
    let source = source.replace("if (waitpid(pid, &status, 0) != pid || status) _exit(9);", waits);
    assert!(source.contains(waits));
    fs::write(bench.path("waits.c"), source).expect("a program");
    let Some(_) = bench.compile(bench.path("waits.c"), "app", &["-O1"]) else { return };
    bench.ok("record --memory --no-aslr -o a.hkm -- ./app 300 0 0 1 900");
    let begin = Instant::now();
    let (result, code) = validated(&bench, &[800 * PAGE], "--run-recorded");
    assert_eq!((&result["verdict"], code), (&"ok".into(), Some(0)), "{result}");
    assert!(is_placed(&result["rows"][0]["memory_limit"]["killed"]), "{result}");
    assert!(begin.elapsed() < Duration::from_secs(50), "{:?}", begin.elapsed());
}

#[test]
fn either_outcome_is_right_where_writes_after_madv_free_are_unknown() {
    let Some(bench) = recorded("2000 1500 1000 0 0") else { return };
    let [low, most] = least(&bench);
    assert!(low + 500 * PAGE < most, "{low} {most}");
    let (result, code) = validated(&bench, &[most, low.midpoint(most), low - 100 * PAGE], "--run-recorded");
    assert_eq!((&result["verdict"], code), (&"ok".into(), Some(0)), "{result}");
    let outcome = |row: usize| &result["rows"][row]["memory_limit"]["predicted"]["outcome"];
    assert_eq!([outcome(0), outcome(1), outcome(2)], ["survives", "unknown", "killed"], "{result}");
    let between = &result["rows"][1];
    assert_eq!(between["class"], "bounded", "{between}");
    assert!(between["reason"].as_str().expect("a reason").starts_with("either is right"), "{between}");
    // The program writes none of them again, so the kernel can take them.
    assert_eq!(first_outcomes(between), ["survived"; 2], "{between}");
    assert_eq!(number(&between["memory_limit"], "least_limit_bytes_min"), low);
}

#[test]
fn a_wrong_prediction_is_found() {
    let Some(bench) = recorded("2000 0 0 0 0") else { return };
    let [_, least] = least(&bench);
    let check = |row: &Value, parts: [&str; 2]| {
        let reason = row["reason"].as_str().expect("a reason");
        for part in parts {
            assert!(reason.contains(part), "{part}: {row}");
        }
    };
    // The recording lacks 400 pages of the program that runs.
    let row = failed(&bench, least + 200 * PAGE, "-- ./app 2400 0 0 0 0");
    assert_eq!(first_outcomes(&row), ["killed"; 2], "{row}");
    check(&row, ["predicted: survives; 2 killed at a limit of", "were charged without a limit, and at most"]);
    // With room for both, only the charge tells.
    let row = failed(&bench, 4 * least, "-- ./app 2400 0 0 0 0");
    assert_eq!(first_outcomes(&row), ["survived"; 2], "{row}");
    // It has pages that the program does not write.
    let row = failed(&bench, least - 200 * PAGE, "-- ./app 1500 0 0 0 0");
    check(&row, ["predicted: killed; 2 survived at a limit of", "were charged without a limit, and at least"]);
}

/// The program that runs needs what was recorded, but reads 300 pages before it writes them.
#[test]
fn a_kill_in_another_operation_is_found() {
    let Some(bench) = recorded("2000 0 0 0 0") else { return };
    let source = fs::read_to_string(data("limited.c")).expect("the program");
    let reads = "volatile char seen; for (size_t page = 0; page < 300; page++) seen = at[page * PAGE]; (void)seen;";
    let source = source.replace("    fill(at, count[0]);", &format!("    {reads}\n    fill(at, count[0]);"));
    fs::write(bench.path("other.c"), source).expect("a program");
    bench.compile(bench.path("other.c"), "other", &["-O1"]).expect("a compiler");
    let [_, least] = least(&bench);
    let row = failed(&bench, least - 400 * PAGE, "-- ./other 2000 0 0 0 0");
    let (limit, killed) = (&row["memory_limit"]["predicted"], &row["memory_limit"]["killed"]);
    assert_eq!(first_outcomes(&row), ["killed"; 2], "{row}");
    assert_eq!(killed["agreement"], "differs", "{row}");
    let later = number(killed, "event") - number(limit, "event");
    assert!((297..=303).contains(&later), "{later}: {row}");
    let reason = row["reason"].as_str().expect("a reason");
    assert!(
        reason.contains("predicted to be killed in operation ") && reason.contains("; killed in operation "),
        "{row}"
    );
}

#[test]
fn what_cannot_be_compared_is_skipped_with_the_reason() {
    let Some(bench) = recorded("100 0 0 0 0") else { return };
    let skipped = |bench: &Bench, command: &str| {
        let (result, code) = validated(bench, &[64 << 20], command);
        assert_eq!((&result["verdict"], code), (&"skipped".into(), Some(0)), "{result}");
        result["rows"][0]["reason"].as_str().expect("a reason").to_string()
    };
    assert!(skipped(&bench, "-- false").contains("exited with 1, and when it was recorded it exited with 0"));
    fs::write(bench.path("two.sh"), "./app 100\n./app 200\n").expect("a script");
    bench.ok("record --memory --no-aslr -o a.hkm -- sh two.sh");
    let why = skipped(&bench, "--run-recorded");
    assert!(why.contains("executes ") && why.contains("other program"), "{why}");
    let why = bench.refused("validate a.hkm --run-recorded --memory-limit 64M --khugepaged settled");
    assert!(why.contains("--memory-limit"), "{why}");
}

/// The folders of groups of a process.
fn groups_of(pid: u32) -> Vec<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let roots = mounts.lines().filter_map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
        [_, folder, "cgroup" | "cgroup2", ..] => Some(folder.to_string()),
        _ => None,
    });
    let entries = roots.flat_map(|root| fs::read_dir(Path::new(&root)).into_iter().flatten().flatten());
    let prefix = format!("hksim-memory-limit-{pid}-");
    let own = entries.map(|entry| entry.path()).filter(|path| path.to_string_lossy().contains(&prefix));
    own.collect()
}

/// Starts a command, and sends it a signal as soon as a process of this name runs in one of its groups. Returns the
/// command's id and its end.
fn signalled(bench: &Bench, line: &str, program: &str, signal: i32) -> (u32, Output) {
    let mut command = bench.command(line);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().expect("hksim starts");
    let until = Instant::now() + Duration::from_secs(120);
    let is_running = |folder: &PathBuf| {
        let pids = fs::read_to_string(folder.join("cgroup.procs")).unwrap_or_default();
        let name = |pid: &str| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        pids.lines().any(|pid| name(pid).trim_end() == program)
    };
    while !groups_of(child.id()).iter().any(is_running) {
        assert!(Instant::now() < until, "the program does not run");
        std::thread::sleep(Duration::from_millis(1));
    }
    // SAFETY: touches no memory; the process is a child that is not reaped yet.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
    (child.id(), child.wait_with_output().expect("its end"))
}

/// Checks that an interrupt ends a command in order, and that nothing of its group is left.
fn is_interrupted(bench: &Bench, line: &str, program: &str) {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        let (pid, ended) = signalled(bench, line, program, signal);
        let errors = String::from_utf8(ended.stderr).expect("text");
        assert_eq!(ended.status.code(), Some(2), "{errors}");
        assert!(errors.contains("interrupted"), "{errors}");
        assert_eq!(groups_of(pid), Vec::<PathBuf>::new());
    }
}

#[test]
fn an_interrupt_ends_the_run_and_removes_its_group() {
    let Some(bench) = recorded("100 0 0 0 0") else { return };
    is_interrupted(&bench, "validate a.hkm --memory-limit 64M -- sleep 1000", "sleep");
}

#[test]
fn an_interrupt_ends_a_replay_and_removes_its_group_and_the_next_command_removes_that_of_a_killed_one() {
    if let Err(why) = MemoryGroup::create() {
        return println!("skipped: {why}");
    }
    let bench = Bench::new();
    bench.ok("gen random-mixed --cycles 3M --ws 4000 -o long.hkt");
    let line = "replay long.hkt --memory-limit 1G";
    is_interrupted(&bench, line, "exe");
    let (pid, killed) = signalled(&bench, line, "exe", libc::SIGKILL);
    // Listed once: as soon as the replay has ended, a command of another test may remove the group.
    let left = groups_of(pid);
    assert_eq!((killed.status.signal(), left.len()), (Some(libc::SIGKILL), 1));
    // The replay ends with its parent.
    let procs = left[0].join("cgroup.procs");
    let until = Instant::now() + Duration::from_secs(20);
    while !fs::read_to_string(&procs).unwrap_or_default().is_empty() {
        assert!(Instant::now() < until, "the replay has outlived its parent");
        std::thread::sleep(Duration::from_millis(5));
    }
    drop(MemoryGroup::create().expect("a group"));
    assert_eq!(groups_of(pid), Vec::<PathBuf>::new());
}
