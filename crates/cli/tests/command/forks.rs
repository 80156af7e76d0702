//! Forks within a trace: model and kernel compared page by page, and invalid forks.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::{Bench, number};

/// The row must be exact unless the machine cannot measure it.
fn exact(row: &Value) -> bool {
    let output = || format!("{} {}: {}", row["policy"]["huge"], row["policy"]["purge"], row["reason"]);
    if row["verdict"] == "skipped" {
        eprintln!("skipped: {}", output());
        return false;
    }
    assert_eq!((&row["verdict"], &row["class"]), (&Value::from("ok"), &Value::from("exact")), "{}", output());
    true
}

#[test]
fn copies_match_the_kernel() {
    let bench = Bench::new();
    bench.ok("gen random-mixed --cycles 40k --ws 2000 --min 100 --max 6k -o rm.hkt");
    bench.ok("gen server --live 9M --threads 2 --events 60k -o server.hkt");
    for (design, forks) in [
        ("--superslab 256K --huge never,thp --purge free --purge-delay 100us", "--fork-at 5k,12k --fork-for 4k"),
        ("--superslab 2M --huge never --purge dontneed --meta sidecar --header full", "--fork-at 9k"),
        ("--superslab 2M --huge never --prefault populate-write", "--fork-at 5k --fork-for 2k"),
        ("--superslab 256K --huge never,thp --prefault populate-write,populate-read --purge none", "--fork-at 9k"),
        // Three children, two of them alive at the same time.
        ("--superslab 256K --huge never,thp --purge dontneed", "--fork-at 5k,8k,12k --fork-for 5k"),
        // Purged memory is written again after the child exited.
        ("--superslab 256K --huge never,thp --purge free --purge-delay 100us", "--fork-at 30k --fork-for 6001"),
    ] {
        let validation = bench.json(&format!("validate rm.hkt server.hkt {design} {forks}"));
        for row in validation["rows"].as_array().expect("rows").iter().filter(|row| exact(row)) {
            let forks = row["predicted"]["forks"].as_array().expect("forks");
            let copies: u64 = forks.iter().map(|fork| number(fork, "cow_copies")).sum();
            assert!(copies > 0, "{design}: {forks:?}");
            let reasons = number(&row["predicted"], "installs.by_reason.cow_after_fork");
            assert!(reasons <= number(&row["measured"], "installs.by_kind.cow") && reasons > 0, "{design}");
        }
    }
}

#[test]
fn a_child_that_exits_immediately_costs_only_permission_faults() {
    let bench = Bench::with_trace();
    for nothing in ["0", "0s"] {
        let line = format!("rm.hkt --huge never --fork-at 10k --fork-for {nothing}");
        let fork = bench.json(&format!("sim {line}"))["forks"][0].clone();
        assert_eq!((number(&fork, "from_event"), number(&fork, "until_event")), (10_000, 10_000));
        assert_eq!(number(&fork, "cow_copies"), 0);
        assert!(number(&fork, "cow_reuses") > 0, "writes restore the permission: {fork}");
        exact(&bench.json(&format!("validate {line}"))["rows"][0]);
    }
}

#[test]
fn a_child_costs_only_copies() {
    let bench = Bench::with_trace();
    let plain = bench.json("sim rm.hkt --huge never");
    let forked = bench.json("sim rm.hkt --huge never --fork-at 10k --fork-for 5k");
    let fork = &forked["forks"][0];
    assert_eq!((number(fork, "from_event"), number(fork, "until_event")), (10_000, 15_000));
    assert_eq!(number(fork, "copied_bytes"), number(fork, "cow_copies") * 4096);
    let more = |name: &str| number(&forked, name) - number(&plain, name);
    assert_eq!(more("installs.total"), number(fork, "cow_copies"));
    assert_eq!(more("faults"), number(fork, "cow_copies") + number(fork, "cow_reuses"));
    assert_eq!(more("installs.by_reason.cow_after_fork"), number(fork, "cow_copies"));
    for same in ["rss_bytes_peak", "rss_bytes_end", "os_calls.madvise"] {
        assert_eq!(more(same), 0, "{same}");
    }
    assert!(plain.get("forks").is_none());
    // A sweep has the same figures, with a column for them.
    let sweep = bench.json("sweep rm.hkt --huge never --fork-at 10k --fork-for 5k");
    assert_eq!(sweep["rows"][0]["forks"], forked["forks"]);
    assert!(bench.ok("sweep rm.hkt --huge never,thp --fork-at 10k").contains("copied"));
    assert!(bench.ok("sim rm.hkt --huge never --fork-at 10k").contains("fork after event 10 000, to the end"));
}

#[test]
fn invalid_forks_are_refused() {
    let bench = Bench::with_trace();
    for (flags, needle) in [
        ("--fork-at 99M", "has no event 99000000"),
        ("--fork-at nowhere", "no mark `nowhere`"),
        ("--fork-at end", "--fork-at end"),
        ("--fork-at recorded,5k", "leave out other points"),
        ("--fork-at recorded --fork-for 2k", "leave out other points"),
        ("--fork-at 5k --fork-for 3x", "neither a time nor a count"),
        ("--fork-for 3k", "--fork-at"),
    ] {
        let output = bench.refused(&format!("sim rm.hkt {flags}"));
        assert!(output.contains(needle), "{flags}: {output}");
    }
}

/// Processes of a session that are not zombies.
fn running(session: u32) -> Vec<String> {
    let stat = |entry: std::fs::DirEntry| std::fs::read_to_string(entry.path().join("stat")).ok();
    let processes = std::fs::read_dir("/proc").expect("/proc").flatten().filter_map(stat);
    let is_running = |stat: &String| {
        let mut fields = stat.rsplit_once(')').expect("a command").1.split_whitespace();
        let state = fields.next().expect("a state");
        !matches!(state, "Z" | "X") && fields.nth(2) == Some(&session.to_string())
    };
    processes.filter(is_running).collect()
}

/// Runs a command in its own session. Kills the command or its replaying child after a delay, if requested. Standard
/// error must then end, and no process may remain.
fn leaves_nothing(bench: &Bench, words: &str, kill: Option<(Duration, bool)>) {
    let mut command = bench.command(words);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    // SAFETY: one system call.
    unsafe { command.pre_exec(|| if libc::setsid() < 0 { Err(std::io::Error::last_os_error()) } else { Ok(()) }) };
    let mut child = command.spawn().expect("hksim starts");
    let session = child.id();
    if let Some((after, its_child)) = kill {
        std::thread::sleep(after);
        let parent = format!(" {session} ");
        let pid_of = |stat: &String| stat.split_once(' ')?.0.parse::<i32>().ok();
        let replays =
            running(session).into_iter().find(|stat| stat.split_once(") ").unwrap().1[1..].starts_with(&parent));
        let victim = replays.filter(|_| its_child).as_ref().and_then(pid_of).unwrap_or(session as i32);
        // SAFETY: touches no memory. The pid is that of hksim, which is not reaped yet, or of its child.
        unsafe { libc::kill(victim, libc::SIGKILL) };
    }
    let (sender, receiver) = std::sync::mpsc::channel();
    let mut stderr = child.stderr.take().expect("a pipe");
    std::thread::spawn(move || {
        let mut text = String::new();
        sender.send(stderr.read_to_string(&mut text).map(|_| text))
    });
    child.wait().expect("it ends");
    let output = receiver.recv_timeout(Duration::from_secs(20)).expect("standard error is held open");
    let begin = Instant::now();
    while !running(session).is_empty() {
        assert!(begin.elapsed() < Duration::from_secs(20), "{words}: left {:?} ({output:?})", running(session));
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A child that is forked at the end of the trace may start after its parent exits.
#[test]
fn forked_children_end_with_the_replay() {
    let bench = Bench::new();
    std::fs::write(bench.path("short.txt"), "a 0 8000\na 1 8000\nf 0\nf 1\na 2 8000\na 3 8000\n").expect("a script");
    bench.ok("import --from script short.txt -o short.hkt");
    for _ in 0..20 {
        leaves_nothing(&bench, "validate short.hkt --huge never --touch none --fork-at 5", None);
    }
    for turn in 0..20 {
        let kill = (Duration::from_micros(4_000 * turn), turn % 2 == 0);
        leaves_nothing(&bench, "validate short.hkt --huge never --touch none --fork-at 1", Some(kill));
    }
}
