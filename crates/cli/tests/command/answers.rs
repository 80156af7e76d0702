//! The answers below the tables of a sweep.

use serde_json::Value;

use crate::support::{Bench, number};

/// Two traces that want different designs: many pages that are touched once, and a few that are touched again.
fn two_traces() -> Bench {
    let bench = Bench::with_trace();
    bench.ok("gen server --live 4M --threads 2 --events 20k -o server.hkt");
    bench
}

/// Geometric mean of the ratios of one design to the best, from the rows alone.
fn ratio(rows: &[Value], designs: usize, design: usize, path: &str) -> f64 {
    let traces: Vec<&[Value]> = rows.chunks(designs).collect();
    let product: f64 = traces
        .iter()
        .map(|rows| {
            let least = rows.iter().map(|row| number(row, path)).min().expect("rows").max(1);
            number(&rows[design], path).max(1) as f64 / least as f64
        })
        .product();
    product.powf(1.0 / traces.len() as f64)
}

#[test]
fn the_winner_is_the_least_geometric_mean_of_the_rows() {
    let bench = two_traces();
    for (goal, path) in [("installs", "installs.total"), ("rss", "rss_bytes_peak"), ("vmas", "vmas_peak")] {
        let sweep =
            bench.json(&format!("sweep rm.hkt server.hkt --superslab 256K,1M,4M --huge --goal {goal} --tie 0%"));
        let rows = sweep["rows"].as_array().expect("rows");
        let ranked = sweep["answers"]["combined"]["ranking"]["standings"].as_array().expect("a ranking");
        assert_eq!(ranked.len(), 9);
        let best = (0..9).map(|design| ratio(rows, 9, design, path)).fold(f64::MAX, f64::min);
        for standing in ranked {
            let design = number(standing, "design") as usize;
            let expected = ratio(rows, 9, design, path);
            assert!((standing["ratio"].as_f64().expect("a ratio") / expected - 1.0).abs() < 1e-6, "{goal}: {standing}");
        }
        let winner = number(&sweep["answers"]["combined"]["answer"], "winner") as usize;
        assert!(ratio(rows, 9, winner, path) <= best * (1.0 + 1e-6), "{goal}: {winner}");
    }
}

#[test]
fn the_combined_table_comes_first_and_every_table_has_an_answer() {
    let bench = two_traces();
    let text = bench.ok("sweep rm.hkt server.hkt --huge never,thp");
    assert!(text.starts_with("all 2 traces together"), "{text}");
    assert_eq!(text.matches("`--huge thp` (the default) has the fewest installs").count(), 3, "{text}");
    assert_eq!(text.matches(" instead of ").count() % 2, 0, "{text}");
    let one = bench.ok("sweep rm.hkt --huge never,thp");
    assert!(!one.contains("together") && one.contains("with the worst design, `--huge never`"), "{one}");
    let single = bench.ok("sweep rm.hkt");
    assert!(!single.contains("the fewest"), "one design needs no answer: {single}");
}

#[test]
fn designs_that_do_not_differ_are_said_to_be_alike() {
    let bench = Bench::with_trace();
    let text = bench.ok("sweep rm.hkt --superslab 2M,4M --huge thp");
    assert!(text.contains("These designs do not differ in installs on this trace, within 1 %: "), "{text}");
    assert!(text.contains("the default is one of them, so nothing has to be changed."), "{text}");
}

#[test]
fn weights_decide_between_traces() {
    let bench = two_traces();
    let winner = |weights: &str| {
        let line = format!(
            "sweep rm.hkt server.hkt --slab 16K,64K,256K --superslab 1M --huge never --goal rss --tie 0% {weights}"
        );
        bench.json(&line)["answers"]["combined"]["answer"]["winner"].clone()
    };
    let first = bench.json("sweep rm.hkt --slab 16K,64K,256K --superslab 1M --huge never --goal rss --tie 0%");
    let second = bench.json("sweep server.hkt --slab 16K,64K,256K --superslab 1M --huge never --goal rss --tie 0%");
    assert_eq!(winner("--weights 1000,0.001"), first["answers"]["per_trace"][0]["winner"]);
    assert_eq!(winner("--weights 0.001,1000"), second["answers"]["per_trace"][0]["winner"]);
    let why = bench.refused("sweep rm.hkt server.hkt --weights 1,2,3");
    assert!(why.contains("--weights has 3 numbers, and there are 2 traces"), "{why}");
}

#[test]
fn a_goal_that_cannot_be_known_is_refused_before_the_work() {
    let bench = Bench::with_trace();
    std::fs::write(bench.path("t.script"), "a 0 5000\nf 0\n").expect("a trace");
    bench.ok("import t.script -o t.hkt");
    for (line, part) in [
        ("sweep rm.hkt --goal sys-time", "sys-time: needs --profile"),
        ("sweep rm.hkt --goal tlb-misses", "tlb-misses: needs --tlb"),
        ("sweep t.hkt --goal tlb-misses --tlb zen4", "t.hkt: tlb-misses: the trace does not have every access"),
        ("sweep rm.hkt --goal speed", "`speed`: unknown figure; figures are installs, sys-time, rss, tlb-misses, vmas"),
        ("sweep rm.hkt --tie 2", "expected a percentage"),
        ("sweep rm.hkt --weights 0", "expected positive numbers"),
    ] {
        let why = bench.refused(line);
        assert!(why.contains(part), "{line}: {why}");
    }
    let text = bench.ok("sweep rm.hkt --huge never,thp --goal tlb-misses --tlb zen4");
    assert!(text.contains("TLB misses"), "{text}");
}

#[test]
fn assumptions_about_touches_are_cases_and_not_designs() {
    let bench = Bench::with_trace();
    let sweep = bench.json("sweep rm.hkt --touch none,all --huge never,thp");
    let answers = &sweep["answers"];
    assert_eq!(answers["designs"].as_array().map(Vec::len), Some(2), "{}", answers["designs"]);
    assert_eq!(answers["per_trace"][0]["figures"].as_array().map(Vec::len), Some(2));
    std::fs::write(bench.path("t.script"), "a 0 5000\nf 0\n").expect("a trace");
    bench.ok("import t.script -o t.hkt");
    let text = bench.ok("sweep t.hkt --huge never,thp");
    assert!(text.contains("The touches are assumed; `--touch none,first,all,read-then-all,all-at-death`"), "{text}");
}
