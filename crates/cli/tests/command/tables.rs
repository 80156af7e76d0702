//! Results as CSV and Parquet, and rows that are run again.

use std::fs::File;

use hksim_explore::table::{Kind, declared};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;

use crate::support::{Bench, number, without_times};

/// The names of the columns of a CSV text.
fn head(csv: &str) -> Vec<String> {
    csv.lines().next().unwrap_or_default().split(',').map(str::to_string).collect()
}

/// The rows of a Parquet file: names and cells.
fn rows(bench: &Bench, name: &str) -> Vec<Vec<(String, Field)>> {
    let file = File::open(bench.path(name)).expect("a file");
    let reader = SerializedFileReader::new(file).expect("a Parquet file");
    let rows = reader.get_row_iter(None).expect("rows");
    rows.map(|row| row.expect("a row").get_column_iter().map(|(name, cell)| (name.clone(), cell.clone())).collect())
        .collect()
}

/// Columns that only sweeps of memory recordings have.
const OF_RECORDINGS: [&str; 4] =
    ["charged_bytes_peak", "least_limit_bytes", "least_limit_bytes_min", "memory_limit_bytes"];

/// The declared columns of sweeps of traces.
fn of_traces() -> impl Iterator<Item = (&'static str, Kind)> {
    declared().filter(|(name, _)| !OF_RECORDINGS.contains(name))
}

#[test]
fn a_sweep_of_a_recording_has_the_columns_of_limits() {
    let bench = Bench::new();
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/page-operations.hkm");
    let found = head(&bench.ok(&format!("sweep {recording} --format csv")));
    for name in OF_RECORDINGS {
        assert!(found.iter().any(|column| column == name), "{name}: {found:?}");
    }
}

#[test]
fn a_sweep_has_the_declared_columns() {
    let bench = Bench::with_trace();
    let names: Vec<String> = of_traces().map(|(name, _)| name.to_string()).collect();
    for line in [
        "sweep rm.hkt --huge never",
        "sweep rm.hkt --align trim --huge never,thp --fork-at 5000",
        "sweep rm.hkt --tlb zen4",
    ] {
        assert_eq!(
            head(&bench.ok(&format!("{line} --format csv"))),
            names,
            "{line}; update crates/explore/src/columns.tsv"
        );
    }
}

#[test]
fn parquet_has_the_cells_of_csv_with_the_declared_types() {
    let bench = Bench::with_trace();
    let profile = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/costs.toml");
    // The first has no address, no pool, no khugepaged and no times; the second has all.
    let lines = [
        "sweep rm.hkt --huge never".to_string(),
        format!("sweep rm.hkt --align trim --hugetlb-pool 3 --huge never,thp --profile {profile}"),
    ];
    for line in lines {
        bench.ok(&format!("{line} --format parquet -o s.parquet"));
        let csv = bench.ok(&format!("{line} --format csv"));
        let rows = rows(&bench, "s.parquet");
        assert_eq!(rows.len(), csv.lines().count() - 1, "{line}");
        for (name, kind) in of_traces() {
            for row in &rows {
                let cell = &row.iter().find(|(known, _)| known == name).unwrap_or_else(|| panic!("no column {name}")).1;
                let fits = match cell {
                    Field::Null => true,
                    Field::ULong(_) => kind == Kind::Unsigned,
                    Field::Double(_) => kind == Kind::Float,
                    Field::Bool(_) => kind == Kind::Bool,
                    Field::Str(_) => kind == Kind::Text,
                    _ => false,
                };
                assert!(fits, "{line}: {name}: {cell:?} is not {kind:?}");
            }
        }
        let json = bench.json(&line);
        let cell =
            |row: usize, name: &str| rows[row].iter().find(|(known, _)| known == name).map(|(_, cell)| cell.clone());
        for (row, report) in json["rows"].as_array().expect("rows").iter().enumerate() {
            assert_eq!(cell(row, "installs_total"), Some(Field::ULong(number(report, "installs.total"))));
            assert_eq!(
                cell(row, "trace_checksum"),
                report["trace"]["checksum"].as_str().map(|text| Field::Str(text.into()))
            );
        }
        // Types do not depend on whether cells are empty.
        let file = SerializedFileReader::new(File::open(bench.path("s.parquet")).expect("a file")).expect("Parquet");
        let schema = file.metadata().file_metadata().schema_descr();
        let physical = |name: &str| {
            schema
                .columns()
                .iter()
                .find(|column| column.name() == name)
                .map(|column| column.physical_type().to_string())
        };
        assert_eq!(physical("kernel_hugetlb_pool_pages").as_deref(), Some("INT64"), "{line}");
        assert_eq!(physical("system_time_low_s").as_deref(), Some("DOUBLE"), "{line}");
        let keys = file.metadata().file_metadata().key_value_metadata().expect("metadata");
        assert!(keys.iter().any(|pair| pair.key == "hksim.version"), "{keys:?}");
    }
    assert!(
        bench.refused("sweep rm.hkt --format parquet").contains("--format parquet: the result is binary; add -o FILE")
    );
}

#[test]
fn a_row_of_a_result_is_run_again_by_its_number() {
    let bench = Bench::with_trace();
    bench.ok("sweep rm.hkt --superslab 1M,4M --huge --kernel 6.8 --zero-page off --format json -o s.json");
    let sweep: Value = serde_json::from_slice(&std::fs::read(bench.path("s.json")).expect("a result")).expect("JSON");
    for (number, row) in sweep["rows"].as_array().expect("rows").iter().enumerate() {
        let again = bench.json(&format!("sim rm.hkt --policy s.json#{number}"));
        assert_eq!(without_times(again), without_times(row.clone()), "row {number}");
    }
    bench.ok("advise rm.hkt --superslab 1M,4M --huge never,thp --goal rss --format json -o a.json");
    let advice: Value = serde_json::from_slice(&std::fs::read(bench.path("a.json")).expect("advice")).expect("JSON");
    assert_eq!(bench.json("sim rm.hkt --policy a.json#winner")["policy"], advice["winner"]["policy"]);
    for (policy, part) in [
        ("s.json", "s.json: has 6 rows; name one of them: s.json#0"),
        ("s.json#6", "s.json#6: the result has 6 rows, numbered from 0"),
        ("s.json#x", "s.json#x: expected a row number, or `winner`"),
        ("s.json#winner", "the result has no winner"),
        ("none.json#1", "none.json: cannot read the policy"),
    ] {
        let why = bench.refused(&format!("sim rm.hkt --policy {policy}"));
        assert!(why.contains(part), "{policy}: {why}");
    }
}
