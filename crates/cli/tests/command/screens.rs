//! What is printed: no line of a table or of prose is wider than 100 columns, and how much `-q` and `-v` print.

use std::process::Command;

use crate::support::Bench;

const COLUMNS: usize = 100;

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().unwrap_or(0)
}

#[test]
fn tables_and_prose_fit_100_columns() {
    let bench = Bench::with_trace();
    bench.ok("gen tiny-hot --cycles 200 -o a-trace-with-a-long-name.hkt");
    let lists = "--superslab 1M,2M --huge never,thp --purge none,dontneed --header none,light --meta inband,sidecar";
    let many = format!("sweep rm.hkt a-trace-with-a-long-name.hkt {lists} --warm-slabs 0,4 --tlb zen4");
    // More settings than columns have room for.
    let settings = "--huge never,thp --superslab 1M,2M --purge none,dontneed --slab 32K,64K --meta inband,sidecar \
        --header none,light";
    let wide_validation = format!("validate a-trace-with-a-long-name.hkt {settings}");
    let wide_sweep = format!("sweep rm.hkt {settings} --slab-choice oldest,lowest --carve page,bump --warm-slabs 0,4");
    for line in [
        "sim rm.hkt --tlb zen4",
        "sim rm.hkt --fork-at 4000",
        "explain rm.hkt --against hakmem",
        "sweep rm.hkt --huge never,thp",
        many.as_str(),
        "advise rm.hkt a-trace-with-a-long-name.hkt",
        "info rm.hkt",
        "info rm.hkt a-trace-with-a-long-name.hkt",
        "validate rm.hkt --huge never,thp",
        wide_validation.as_str(),
        wide_sweep.as_str(),
        "replay rm.hkt",
        "replay rm.hkt --on glibc",
        "rules --random 2",
    ] {
        // A terminal of 120 columns: prose is wrapped only there, so that a program that reads it finds whole lines.
        let inside = format!("stty cols 120; {} {line} 2>/dev/null", env!("CARGO_BIN_EXE_hksim"));
        let output = Command::new("script").args(["-qec", &inside, "/dev/null"]).current_dir(bench.folder()).output();
        let output = output.expect("script, of bsdutils");
        let text = String::from_utf8_lossy(&output.stdout).replace('\r', "");
        assert!(output.status.success() && !text.is_empty(), "{line}: {text}");
        // A setting of several tunables is one word, which a reader copies.
        let is_wide = |line: &&str| line.contains(' ') && line.chars().count() > COLUMNS;
        let wide: Vec<&str> = text.lines().filter(is_wide).collect();
        assert!(wide.is_empty(), "{line}: {wide:#?}");
    }
    let narrow = bench.ok(&many);
    assert!(narrow.contains("left out: ") && narrow.contains("(--wide)"), "{narrow}");
    let wide = bench.ok(&format!("{many} --wide"));
    assert!(widest(&wide) > COLUMNS && !wide.contains("left out"), "{wide}");
    let has_both = |text: &str| text.lines().any(|line| line.contains("RSS peak") && line.contains("RSS end"));
    assert!(has_both(&wide) && !has_both(&narrow));
}

#[test]
fn quiet_hides_notes_but_no_warning() {
    let bench = Bench::with_trace();
    let run = |line: &str| {
        let ran = bench.run(line);
        assert_eq!(ran.code, Some(0), "{line}: {}", ran.stderr);
        (ran.stdout, ran.stderr)
    };
    for line in ["record -o ls.hkt ls", "sim rm.hkt --format json -o sim.json", "report sim.json -o report.html"] {
        let (_, loud) = run(line);
        let (_, quiet) = run(&line.replacen(' ', " -q ", 1));
        assert_eq!(quiet, "", "{line}");
        assert_eq!(loud.is_empty(), line.starts_with("sim"), "{line}: {loud}");
    }
    let whole = std::fs::read(bench.path("rm.hkt")).expect("a trace");
    std::fs::write(bench.path("cut.hkt"), &whole[..whole.len() / 2]).expect("half of it");
    let (_, warned) = run("sim -q cut.hkt");
    assert!(warned.contains("cut.hkt"), "{warned}");
    let failed = bench.run("record -q -o ls.hkt ls /nowhere");
    assert!(failed.stderr.contains("the program exited with 2"), "{}", failed.stderr);
    let refused = bench.run("sim -q nowhere.hkt");
    assert!(refused.code == Some(2) && refused.stderr.contains("nowhere.hkt"), "{}", refused.stderr);
}

#[test]
fn verbose_tells_what_is_read_and_what_it_costs() {
    let bench = Bench::with_trace();
    let ran = bench.run("sim rm.hkt -v");
    assert!(ran.stderr.contains("reading rm.hkt: ") && ran.stderr.contains("peak RSS"), "{}", ran.stderr);
    let refused = bench.refused("sim rm.hkt -v -q");
    assert!(refused.contains("cannot be used with"), "{refused}");
}

/// The words after the program are its own.
#[test]
fn the_recorded_program_keeps_its_flags() {
    let bench = Bench::new();
    let ran = bench.run("record -o echo.hkt echo -q -v --wide");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), "-q -v --wide\n"), "{}", ran.stderr);
    assert!(ran.stderr.contains("echo.hkt"), "not quiet: {}", ran.stderr);
}
