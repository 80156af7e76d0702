//! Programs with many processes or threads: every trace is readable, and the programs' results are unchanged.

use std::fs;
use std::path::Path;
use std::process::Command;

use hksim_record::{Exit, RecordReport};

use crate::support::{events, have, record_words, scratch};

fn shell(dir: &Path, script: &str) {
    let status = Command::new("sh").args(["-c", script]).current_dir(dir).status().expect("sh");
    assert!(status.success(), "{script}");
}

/// Checks that every trace is readable to its end, and that only forked children free blocks that they did not
/// allocate.
fn check(report: &RecordReport, what: &str) {
    assert_eq!(report.exit, Some(Exit::Code(0)), "{what}");
    assert_eq!(report.unrecorded_pids, [0_u32; 0], "{what}");
    for trace in &report.traces {
        assert_eq!(events(trace).len() as u64, trace.events, "{what}: {:?}", trace.command);
        assert_eq!(trace.quality.events_lost, 0, "{what}: {:?}", trace.command);
        assert!(trace.forked || trace.quality.unknown_frees == 0, "{what}: {trace:?}");
    }
}

#[test]
fn gcc_gives_the_same_output() {
    if !have("gcc") {
        return;
    }
    let dir = scratch();
    fs::write(dir.path().join("hello.c"), "#include <stdio.h>\nint main(void) { return puts(\"hello\") < 0; }\n")
        .expect("hello.c");
    let compile = format!("cd {} && exec gcc -O2 hello.c -o", dir.path().display());
    shell(dir.path(), &format!("{compile} plain"));
    let report = record_words(dir.path(), ["sh", "-c", &format!("{compile} recorded")]);
    check(&report, "gcc");
    let [plain, recorded] = ["plain", "recorded"].map(|name| fs::read(dir.path().join(name)).expect("a program"));
    assert_eq!(plain, recorded, "the compiler's output is unchanged");
    for part in ["cc1", "as", "ld"] {
        let is_part = |word: &String| Path::new(word).file_name().is_some_and(|name| name == part);
        let found = report.traces.iter().any(|trace| trace.command.first().is_some_and(is_part));
        assert!(found, "{part} has a trace");
    }
}

#[test]
fn git_gives_the_same_results() {
    if !have("git") {
        return;
    }
    let dir = scratch();
    let setup = "git init -q repo && cd repo && git config user.name n && git config user.email e && \
                 for i in 1 2 3 4 5; do seq $((i * 1000)) > file$i; git add .; \
                 GIT_AUTHOR_DATE='2020-01-01T00:00:00Z' GIT_COMMITTER_DATE='2020-01-01T00:00:00Z' git commit -qm c$i; done; \
                 git log --stat > ../plain";
    shell(dir.path(), setup);
    let repo = dir.path().join("repo");
    let run =
        |command: &str| record_words(dir.path(), ["sh", "-c", &format!("cd {} && exec {command}", repo.display())]);
    check(&run("git log --stat > ../recorded"), "git log");
    let [plain, recorded] = ["plain", "recorded"].map(|name| fs::read(dir.path().join(name)).expect("a log"));
    assert_eq!(plain, recorded, "git's output is unchanged");
    check(&run("git gc -q"), "git gc");
    shell(&repo, "git fsck --strict 2>/dev/null");
}

#[test]
fn a_threaded_sort_gives_the_same_result() {
    if !have("sort") {
        return;
    }
    let dir = scratch();
    shell(dir.path(), "seq 400000 | rev > lines && LC_ALL=C sort lines > plain");
    let run = format!("cd {} && LC_ALL=C exec sort --parallel=2 -S 20M lines > recorded", dir.path().display());
    check(&record_words(dir.path(), ["sh", "-c", &run]), "sort");
    shell(dir.path(), "cmp plain recorded");
}
