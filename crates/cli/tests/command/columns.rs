//! `--columns`: the table alone, with the columns that were named.

use crate::support::Bench;

/// The cells of a line of a table. Between two columns are at least two spaces, and no cell contains two.
fn cells(line: &str) -> Vec<&str> {
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect()
}

/// The cells below these heads in the table whose first column is the number of the row.
fn cells_below<'a>(text: &'a str, names: &[&str]) -> Vec<Vec<&'a str>> {
    let mut lines = text.lines().skip_while(|line| !line.starts_with('#'));
    let head = cells(lines.next().expect("a head"));
    let column =
        |name: &&str| head.iter().position(|known| known == name).unwrap_or_else(|| panic!("no {name}: {text}"));
    let columns: Vec<usize> = names.iter().map(column).collect();
    let rows = lines.skip(1).take_while(|line| line.starts_with(|letter: char| letter.is_ascii_digit()));
    rows.map(|line| columns.iter().map(|&column| cells(line)[column]).collect()).collect()
}

#[test]
fn chosen_columns_are_those_of_the_whole_table() {
    let bench = Bench::with_trace();
    let line = "sweep rm.hkt --huge never,thp --purge none,free";
    let whole = bench.ok(&format!("{line} --wide"));
    let names = ["RSS peak", "purge", "huge", "installs", "#"];
    let expected = cells_below(&whole, &names);
    assert_eq!(expected.len(), 4, "{whole}");

    let chosen = bench.ok(&format!("{line} --columns RSS-peak,purge,huge,installs,#"));
    let rows: Vec<_> = chosen.lines().map(cells).collect();
    assert_eq!((rows.len(), &rows[0][..]), (2 + 4, &names[..]), "the table alone: {chosen}");
    assert_eq!(rows[2..], expected);

    let all = bench.ok(&format!("{line} --columns all"));
    assert_eq!(cells_below(&all, &names), expected);
    let front = |table: &str| table.lines().filter(|line| line.ends_with(" P")).count();
    assert!(front(&all) > 0 && front(&all) == front(&whole), "{all}");
    let marks = bench.ok(&format!("{line} --columns front"));
    assert_eq!(marks.lines().filter(|line| line.trim() == "P").count(), front(&whole), "{marks}");
}

#[test]
fn a_named_column_is_printed_although_its_cells_are_equal() {
    let bench = Bench::with_trace();
    let table = bench.ok("sweep rm.hkt --huge never,thp --columns superslab,mTHP,THP,thp");
    let first_row = table.lines().nth(2).map(cells);
    assert_eq!(first_row, Some(vec!["2M", "0", "0", "madvise"]), "THP is a figure, thp is a flag: {table}");

    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../../traces/python-json.hkm");
    let table = bench.ok(&format!("sweep {recording} --thp never,always --columns traps,zero-page,thp,advise"));
    let rows: Vec<_> = table.lines().map(cells).collect();
    assert_eq!((rows.len(), &rows[0][..]), (4, &["traps", "zero-page", "thp", "advise"][..]), "{table}");
    assert_eq!((&rows[2][1..], &rows[3][1..]), (&["on", "never", "none"][..], &["on", "always", "none"][..]));
}

#[test]
fn each_trace_has_a_table_with_a_heading() {
    let bench = Bench::with_trace();
    let table = bench.ok("sweep rm.hkt rm.hkt --huge never,thp --columns #");
    let numbers: Vec<&str> = table.lines().filter(|line| line.len() == 1 && *line != "#" && *line != "-").collect();
    assert_eq!(numbers, ["0", "1", "2", "3"], "{table}");
    assert_eq!(table.lines().filter(|line| line.starts_with("rm.hkt, ")).count(), 2, "{table}");
}

#[test]
fn merged_shards_have_the_columns_of_the_sweep() {
    let bench = Bench::with_trace();
    let line = "sweep rm.hkt --huge never,thp";
    for shard in 1..=2 {
        bench.ok(&format!("{line} --shard {shard}/2 --format json -o {shard}.json"));
    }
    assert_eq!(bench.ok("merge 1.json 2.json --columns #,faults"), bench.ok(&format!("{line} --columns #,faults")));
}

#[test]
fn names_are_checked_before_the_work() {
    let bench = Bench::with_trace();
    for (line, said) in [
        (
            "sweep rm.hkt --columns instals",
            "--columns instals: no such column; did you mean installs?; columns are #, ",
        ),
        ("sweep rm.hkt --columns installs --format csv", "--columns: chooses columns of the table; leave out --format"),
        ("sweep rm.hkt --columns installs,", "a column's name is missing"),
        // This trace does not exist; the names are wrong already.
        ("sweep no.hkt --allocators glibc --columns traps,peak-rss", "did you mean peak RSS?"),
        ("compare rm.hkt --columns RSS-peek", "--columns RSS-peek: no such column; did you mean RSS peak?"),
    ] {
        let error = bench.refused(line);
        assert!(error.contains(said), "{line}: {error}");
    }
}
