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
    assert!(why.contains("--weights has 3 numbers, but there are 2 traces"), "{why}");
    // Only proportions count, however large the weights are.
    assert_eq!(winner("--weights 1e308,1e308"), winner("--weights 1,1"));
    let huge = bench.json("sweep rm.hkt server.hkt --huge never,thp --weights 1e308,1e308");
    let ranked = huge["answers"]["combined"]["ranking"]["standings"].as_array().expect("a ranking");
    assert!(ranked.iter().all(|standing| standing["ratio"].is_f64()), "{ranked:?}");
}

#[test]
fn a_goal_that_cannot_be_known_is_refused_before_the_work() {
    let bench = Bench::with_trace();
    std::fs::write(bench.path("t.script"), "a 0 5000\nf 0\n").expect("a trace");
    bench.ok("import t.script -o t.hkt");
    for (line, part) in [
        ("sweep rm.hkt --goal sys-time", "sys-time: needs a profile of the target machine"),
        ("sweep rm.hkt --goal tlb-misses", "tlb-misses: needs --tlb"),
        ("sweep t.hkt --goal tlb-misses --tlb zen4", "t.hkt: tlb-misses: the trace does not have every access"),
        (
            "sweep rm.hkt --goal speed",
            "`speed`: unknown figure; figures are time, installs, sys-time, rss, rss-end, tlb-misses, vmas",
        ),
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

/// A trace that needs more than the smallest arena, beside one that does not.
fn too_large() -> Bench {
    let bench = Bench::with_trace();
    bench.ok("gen random-mixed --cycles 3000 --ws 2000 --min 60000 --max 200000 -o big.hkt");
    bench
}

#[test]
fn a_table_without_a_design_that_serves_every_request_is_written() {
    let bench = too_large();
    let line = "sweep rm.hkt big.hkt --arena 64M --superslab 2M,32M";
    let sweep = bench.json(&format!("{line} --resume rows.journal"));
    assert_eq!(sweep, bench.json(&format!("{line} --resume rows.journal")), "from the journal");
    assert_eq!(sweep["rows"].as_array().map(Vec::len), Some(4));
    let [first, second] = [0, 1].map(|trace| &sweep["answers"]["per_trace"][trace]);
    assert!(first["winner"].is_u64(), "{first}");
    for answer in [second, &sweep["answers"]["combined"]["answer"]] {
        assert_eq!((&answer["winner"], &answer["reasons"][0]["kind"]), (&Value::Null, &"no_design".into()), "{answer}");
    }
    assert_eq!(sweep["answers"]["combined"]["ranking"]["failed"], Value::from(vec![0, 1]));
    let text = bench.ok(line);
    assert!(text.contains("No design serves every request of every trace, so there is no answer"), "{text}");
    let single = bench.ok("sweep big.hkt --arena 64M");
    assert!(single.contains("The design does not serve every request"), "{single}");
    for number in 1..=2 {
        bench.ok(&format!("{line} --shard {number}/2 --format json -o {number}.json"));
    }
    assert_eq!(bench.ok("merge 1.json 2.json"), text);
    assert!(bench.ok(&format!("{line} --format csv")).lines().count() == 5);
}

#[test]
fn rows_with_failed_requests_are_neither_best_nor_on_the_front() {
    let bench = too_large();
    let line = "sweep big.hkt --arena 64M,1G";
    let sweep = bench.json(line);
    let rows = sweep["rows"].as_array().expect("rows");
    assert!(number(&rows[0], "requests_failed") > 0 && number(&rows[1], "requests_failed") == 0);
    assert!(number(&rows[0], "rss_bytes_peak") < number(&rows[1], "rss_bytes_peak"));
    assert_eq!(sweep["pareto"], Value::from(vec![1]));
    let text = bench.ok(line);
    let failed = text.lines().find(|line| line.starts_with("0 ")).expect("row 0");
    assert!(!failed.contains('*') && !failed.ends_with('P'), "{text}");
}

#[test]
fn the_tables_show_tlb_misses_where_a_tlb_is_modelled() {
    let bench = Bench::with_trace();
    let line = "sweep rm.hkt --huge never,thp --goal tlb-misses --tlb zen4";
    let sweep = bench.json(line);
    let misses: Vec<u64> = [0, 1].map(|design| number(&sweep["rows"][design], "tlb.lookups.application.misses")).into();
    let text = bench.ok(line);
    assert!(text.lines().any(|line| line.starts_with('#') && line.contains("TLB misses")), "{text}");
    let csv = bench.ok(&format!("{line} --format csv"));
    let place = csv.lines().next().and_then(|head| head.split(',').position(|name| name == "tlb_misses"));
    let place = place.expect("a column tlb_misses");
    // The allocator's own misses come on top.
    let found = sweep["rows"].as_array().expect("rows").iter().map(|row| number(row, "tlb.lookups.allocator.misses"));
    let expected: Vec<u64> = found.zip(misses).map(|(own, program)| own + program).collect();
    // No cell before this column has a comma but the trace's origin, which is after it.
    let cells: Vec<u64> = csv.lines().skip(1).filter_map(|line| line.split(',').nth(place)?.parse().ok()).collect();
    assert_eq!(cells, expected, "{csv}");
    assert!(!bench.ok("sweep rm.hkt --huge never,thp").contains("TLB misses"));
}
