//! Sweeps: each row equals a single simulation, for any number of workers.

use serde_json::Value;

use crate::support::{Bench, number, without_times};

#[test]
fn a_row_equals_a_simulation() {
    let bench = Bench::with_trace();
    bench.ok("gen server --live 2M --threads 2 --events 20k -o server.hkt");
    let sweep = without_times(bench.json("sweep rm.hkt server.hkt --superslab 256K,2M --huge --purge-delay 10us"));
    let rows = sweep["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 12);
    let mut next = rows.iter();
    for trace in ["rm.hkt", "server.hkt"] {
        for superslab in ["256K", "2M"] {
            for huge in ["never", "thp", "hugetlb"] {
                let line = format!("sim {trace} --superslab {superslab} --huge {huge} --purge-delay 10us");
                assert_eq!(next.next(), Some(&without_times(bench.json(&line))), "{line}");
            }
        }
    }
}

#[test]
fn the_number_of_workers_does_not_change_results() {
    let bench = Bench::with_trace();
    let line = "sweep rm.hkt --superslab 1M,2M,4M --huge --header none,full";
    let one = without_times(bench.json(&format!("{line} --jobs 1")));
    let two = without_times(bench.json(&format!("{line} --jobs 2")));
    assert_eq!(one.to_string(), two.to_string());
    let table = |jobs: u32| bench.ok(&format!("{line} --jobs {jobs}"));
    assert_eq!(table(1), table(2));
}

#[test]
fn no_row_dominates_the_pareto_front() {
    let bench = Bench::with_trace();
    bench.ok("gen server --live 2M --threads 2 --events 20k -o server.hkt");
    let sweep = bench.json("sweep rm.hkt server.hkt --superslab 256K,1M,4M --huge --carve page,eager");
    let rows = sweep["rows"].as_array().expect("rows");
    let costs: Vec<(u64, u64)> =
        rows.iter().map(|row| (number(row, "installs.total"), number(row, "rss_bytes_peak"))).collect();
    let mut expected = Vec::new();
    for (index, own) in costs.iter().enumerate() {
        let first = index / 18 * 18;
        let beats = |other: &(u64, u64)| other.0 <= own.0 && other.1 <= own.1 && other != own;
        if !costs[first..first + 18].iter().any(beats) {
            expected.push(Value::from(index));
        }
    }
    assert_eq!(sweep["pareto"], Value::from(expected));
}

#[test]
fn the_table_marks_the_best_the_front_and_equal_rows() {
    let bench = Bench::with_trace();
    let table = bench.ok("sweep rm.hkt --huge never,thp --purge none,free");
    assert!(table.contains("equal in all figures: "), "{table}");
    let rows: Vec<&str> = table.lines().filter(|line| line.contains(" never ") || line.contains(" thp ")).collect();
    assert!(rows.iter().any(|row| row.ends_with('P')), "{table}");
    assert!(rows.iter().any(|row| row.contains('*')), "{table}");
    let head = table.lines().find(|line| line.starts_with('#')).expect("a head");
    assert!(head.contains("huge") && head.contains("purge") && !head.contains("superslab"), "only what varies: {head}");
    assert!(!head.contains("mTHP"), "columns of zeros are left out: {head}");
}

#[test]
fn csv_has_the_figures_of_json() {
    let bench = Bench::with_trace();
    let line = "sweep rm.hkt --superslab 1M,2M --huge";
    let json = bench.json(line);
    let csv = bench.ok(&format!("{line} --format csv"));
    let mut lines = csv.lines();
    let head: Vec<&str> = lines.next().expect("a head").split(',').collect();
    let column =
        |name: &str| head.iter().position(|known| *known == name).unwrap_or_else(|| panic!("no column {name}"));
    let (installs, rss) = (column("installs_total"), column("rss_bytes_peak"));
    let rows = json["rows"].as_array().expect("rows");
    assert_eq!(csv.lines().count(), rows.len() + 1);
    for (line, row) in lines.zip(rows) {
        let cells = cells(line);
        assert_eq!(cells.len(), head.len(), "{line}");
        assert_eq!(cells[installs], number(row, "installs.total").to_string());
        assert_eq!(cells[rss], number(row, "rss_bytes_peak").to_string());
    }
}

#[test]
fn csv_columns_do_not_depend_on_the_sweep() {
    let bench = Bench::with_trace();
    std::fs::write(bench.path("t.script"), "a 0 5000\nf 0\n").expect("a trace");
    bench.ok("import t.script -o t.hkt");
    bench.ok("gen server --live 2M --threads 2 --events 20k -o server.hkt");
    let lines = [
        "rm.hkt --huge never",
        "rm.hkt --huge",
        "t.hkt --huge thp",
        "server.hkt --align trim --kernel 5.15,6.18",
        "rm.hkt --huge never --fork-at 10k --mthp default/64K=always",
        "rm.hkt server.hkt --kernel host --touch none",
    ];
    let columns = |csv: &str| csv.lines().next().unwrap_or_default().to_string();
    let first = columns(&bench.ok(&format!("sweep {} --format csv", lines[0])));
    for line in lines {
        assert_eq!(columns(&bench.ok(&format!("sweep {line} --format csv"))), first, "{line}");
    }
    let count = |start: &str| first.split(',').filter(|name| name.starts_with(start)).count();
    assert_eq!((count("kernel_"), count("pareto")), (12 + count("kernel_work_"), 3), "{first}");

    let line = "sweep rm.hkt server.hkt --superslab 256K,1M --huge";
    let (csv, json) = (bench.ok(&format!("{line} --format csv")), bench.json(line));
    let at = first.split(',').position(|name| name == "pareto").expect("a column");
    let front: Vec<Value> = csv
        .lines()
        .skip(1)
        .enumerate()
        .filter(|(_, line)| cells(line)[at] == "true")
        .map(|(row, _)| row.into())
        .collect();
    assert_eq!(json["pareto"], Value::from(front));
}

/// The cells of a line of CSV, without quotes.
fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut quoted) = (vec![String::new()], false);
    for character in line.chars() {
        match character {
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(String::new()),
            other => cells.last_mut().expect("a cell").push(other),
        }
    }
    cells
}

#[test]
fn without_a_trace_two_built_in_workloads_are_swept() {
    let bench = Bench::new();
    let sweep = bench.json("sweep --jobs 2");
    let names: Vec<&Value> =
        sweep["rows"].as_array().expect("rows").iter().map(|row| &row["trace"]["origin"]["name"]).collect();
    assert_eq!(names, ["random-mixed", "server"]);
    assert_eq!(number(&sweep["rows"][0], "floor_pages"), 23);
}

#[test]
fn pictures_name_the_trace_and_every_design() {
    let bench = Bench::with_trace();
    bench.ok("sweep rm.hkt --superslab 256K,2M --huge never,thp --plot --format json -o s.json");
    let drawn = std::fs::read_to_string(bench.path("hksim-sweep.svg")).expect("a picture");
    bench.ok("plot s.json -o again.svg");
    assert_eq!(std::fs::read_to_string(bench.path("again.svg")).expect("a picture"), drawn);
    assert!(drawn.starts_with("<svg") && drawn.trim_end().ends_with("</svg>"));
    for text in ["rm.hkt", "256K never", "2M never", "thp", "live bytes", "peak RSS"] {
        assert!(drawn.contains(text), "`{text}` is not in the picture");
    }
    bench.ok("sim rm.hkt --format json -o one.json");
    bench.ok("plot one.json -o one.svg");
    // A word after --plot that is not a picture is a trace, which must not be overwritten.
    let before = std::fs::read(bench.path("rm.hkt")).expect("the trace");
    bench.ok("sweep --plot rm.hkt");
    assert_eq!(std::fs::read(bench.path("rm.hkt")).expect("the trace"), before);
}

#[test]
fn a_range_is_the_list_of_its_values() {
    let bench = Bench::with_trace();
    let rows = |line: &str| without_times(bench.json(&format!("sweep rm.hkt {line}")));
    assert_eq!(rows("--superslab 256K..1M --cache 0,1..2"), rows("--superslab 256K,512K,1M --cache 0,1,2"));
    assert!(bench.refused("sweep rm.hkt --superslab 256K..3M").contains("ends at 2M or 4M, not at 3M"));
    assert!(bench.refused("sim rm.hkt --superslab 1M..2M").contains("this command takes one design"));
}
