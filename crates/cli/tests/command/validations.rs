//! `hksim validate`: rows are equal, or skipped with a reason if the machine cannot measure them.

use serde_json::Value;

use crate::support::{Bench, number};

/// The rows of a validation. Each must be ok, or skipped with a reason.
fn rows(bench: &Bench, line: &str) -> Vec<Value> {
    let validation = bench.json(line);
    let rows = validation["rows"].as_array().unwrap_or_else(|| panic!("{line}: no rows")).clone();
    for row in &rows {
        let (verdict, reason) = (row["verdict"].as_str(), row["reason"].as_str());
        let at = format!("{line}: {}", row["policy"]);
        match verdict {
            Some("ok") => {}
            Some("skipped") => eprintln!("skipped: {at}: {}", reason.unwrap_or_else(|| panic!("{at}: no reason"))),
            _ => panic!("{at}: {verdict:?}: {reason:?}: {}", row["residual"]),
        }
    }
    rows
}

#[test]
fn collapses_are_predicted_exactly() {
    let bench = Bench::new();
    bench.ok("gen server --live 12M --events 60k --threads 2 -o server.hkt");
    let rows = rows(&bench, "validate server.hkt --arena 1G --huge collapse --superslab 1M,2M,4M --purge-delay 1ms");
    for row in rows.iter().filter(|row| row["verdict"] == "ok") {
        let predicted = &row["predicted"]["installs"];
        let collapsed = number(predicted, "by_reason.collapsed");
        assert!(collapsed > 0, "nothing was collapsed: {}", row["policy"]);
        // With mode `always` a fault can also install a huge page.
        assert!(number(predicted, "by_kind.thp") >= collapsed);
        assert_eq!(number(&row["measured"]["installs"], "by_kind.thp"), number(predicted, "by_kind.thp"));
    }
}

#[test]
fn unsupported_sizes_and_modes_are_skipped_with_a_remedy() {
    let bench = Bench::with_trace();
    for huge in ["mthp-16K", "mthp-64K", "mthp-1M", "system"] {
        let rows = rows(&bench, &format!("validate rm.hkt --arena 1G --huge {huge}"));
        let [row] = rows.as_slice() else { panic!("{huge}: {} rows", rows.len()) };
        if row["verdict"] == "skipped" {
            let reason = row["reason"].as_str().unwrap_or_default();
            assert!(reason.contains("`echo "), "{huge}: no remedy: {reason}");
            assert!(bench.refused(&format!("replay rm.hkt --huge {huge}")).contains("`echo "), "{huge}");
        }
    }
}

#[test]
fn a_prediction_assumes_the_modes_that_its_design_needs() {
    let bench = Bench::with_trace();
    let installs = |flags: &str| bench.json(&format!("sim rm.hkt {flags}"))["installs"]["by_kind"].clone();
    let never = installs("--huge never");
    let mut before = number(&never, "base_4k");
    for size in ["16K", "64K", "256K", "1M"] {
        let kinds = installs(&format!("--huge mthp-{size}"));
        assert_eq!(number(&kinds, "thp"), 0, "{size}");
        let now = number(&kinds, "base_4k") + number(&kinds, "mthp");
        assert!(number(&kinds, "mthp") > 0 && now < before, "{size}: {kinds} after {before}");
        before = now;
    }
    assert!(number(&installs("--huge system"), "thp") > 0);
    assert_eq!(installs("--huge system --thp madvise"), never, "a mode given by a flag takes precedence");
}

#[test]
fn help_shows_the_arguments_of_a_command() {
    let bench = Bench::new();
    for command in ["replay", "validate"] {
        let help = bench.ok(&format!("{command} --help"));
        assert!(help.contains("--superslab"), "{command}");
        for flag in ["--kernel", "--thp", "--hugetlb-pool"] {
            assert!(!help.contains(&format!("{flag} <")), "{command} --help names {flag}, which it refuses");
        }
    }
    assert!(bench.ok("sim --help").contains("--thp <"));
}

#[test]
fn threaded_validation_compares_with_many_runs() {
    let bench = Bench::new();
    bench.ok("gen server --live 2M --threads 2 --events 20k -o server.hkt");
    let row = bench.json("validate server.hkt --huge never --mode threaded --runs 3")["rows"][0].clone();
    assert_eq!(row["class"], "statistical");
    let spreads = row["spreads"].as_array().expect("spreads");
    assert!(!spreads.is_empty());
    for spread in spreads {
        let [predicted, low, high] = ["predicted", "min", "max"].map(|name| number(spread, name));
        assert!(low <= high && number(spread, "median") >= low, "{spread}");
        let slack = (high - low).max(predicted / 50);
        let holds = (low.saturating_sub(slack)..=high + slack).contains(&predicted);
        assert!(holds || row["verdict"] == "failed", "{row}");
    }
    assert_eq!(row["verdict"], "ok", "{}", row["reason"]);
    bench.refused("validate server.hkt --mode threaded --runs 1");
    let why = bench.refused("validate server.hkt --runs 3");
    assert!(why.contains("add --mode threaded"), "{why}");
    let why = bench.refused("validate server.hkt --mode threaded --fork-at 5");
    assert!(why.contains("only an ordered replay can fork"), "{why}");
}

#[test]
fn former_names_of_flags_are_unknown() {
    let bench = Bench::new();
    bench.ok("gen server --live 1M --threads 2 --events 5k -o server.hkt");
    for (line, flag) in [
        ("validate server.hkt --threaded=2", "--threaded"),
        ("record --touch none -o true.hkt true", "--touch"),
        ("run --misuse abort -- true", "--misuse"),
        ("sim server.hkt --defrag never", "--defrag"),
    ] {
        let ran = bench.run(line);
        assert_eq!(ran.code, Some(2), "{line}: {}", ran.stderr);
        let refusals = [format!("unexpected argument '{flag}'"), format!("{flag}: record has no such flag")];
        assert!(refusals.iter().any(|why| ran.stderr.contains(why)), "{line}: {}", ran.stderr);
    }
    let why = bench.refused("sim server.hkt --huge thp-always");
    assert!(why.contains("`thp-always`: expected one of") && why.contains("system"), "{why}");
}
