//! Recording and importing through the command.

use crate::support::{Bench, number};

#[test]
fn a_recorded_program_can_be_simulated() {
    let bench = Bench::new();
    let ran = bench.run("record -o ls.hkt -- ls /");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stdout.contains("proc"), "standard output is the program's: {}", ran.stdout);
    assert!(ran.stderr.contains("ls.hkt"), "{}", ran.stderr);
    let info = bench.json("info ls.hkt");
    assert!(number(&info, "mallocs") > 0);
    assert_eq!(info["origin"]["command"], serde_json::json!(["ls", "/"]));
    let sim = bench.json("sim ls.hkt");
    assert_eq!(sim["events"], info["events"]);
    assert_eq!(number(&sim, "live_bytes_peak"), number(&info, "live_bytes_peak"));
}

#[test]
fn a_program_that_fails_is_recorded_and_said_so() {
    let bench = Bench::new();
    let ran = bench.run("record -o ls.hkt -- ls /no-such-folder");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert!(ran.stderr.contains("the program exited with 2"), "{}", ran.stderr);
    assert!(number(&bench.json("info ls.hkt"), "events") > 0);
}

#[test]
fn other_processes_are_counted_in_one_line() {
    let bench = Bench::new();
    let ran = bench.run("record -o env.hkt -- env env env true");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let traces = std::fs::read_dir(bench.folder()).expect("the folder").count();
    if traces > 1 {
        assert!(ran.stderr.contains(&format!("beside it: {} traces", traces - 1)), "{}", ran.stderr);
    }
    assert!(ran.stderr.lines().count() <= 4, "{}", ran.stderr);
}

#[test]
fn an_imported_script_has_its_calls() {
    let bench = Bench::new();
    std::fs::write(bench.path("t.script"), "a 0 100\na 1 200\nr 0 5000\nf 1\nf 7\n").expect("a script trace");
    bench.ok("import t.script -o t.hkt");
    let info = bench.json("info t.hkt");
    let counts = ["mallocs", "reallocs", "frees", "unknown_frees", "live_bytes_peak", "live_objects_end"];
    assert_eq!(counts.map(|name| number(&info, name)), [2, 1, 2, 1, 5_200, 1]);
    assert!(bench.ok("info t.hkt").contains("unknown frees         1"));
}
