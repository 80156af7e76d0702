//! Runs the commands that README and the manuals show with their output. Each must print what the page shows.
//!
//! A fenced block of kind `console` holds commands (`$ ` before each) and their output, standard error included.
//! `...` stands for any lines. In a block of kind `console varying` figures are not compared.
//!
//! `HKSIM_UPDATE_DOCS=1 cargo test -p hksim --test manuals` writes what the commands print into the pages.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// The directory of the clone on the pages.
const SHOWN_FOLDER: &str = "/home/me/hksim";
const LEFT_OUT: &str = "...";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository's root")
}

/// A command on a page, and the lines of the page that show its output.
#[derive(Debug, PartialEq)]
struct Shown {
    command: String,
    varies: bool,
    first: usize,
    end: usize,
}

fn shown(page: &str) -> Vec<Shown> {
    let mut found: Vec<Shown> = Vec::new();
    let (mut inside, mut varies, mut open) = (false, false, false);
    for (number, line) in page.lines().enumerate() {
        if line.starts_with("```") {
            inside = line.starts_with("```console");
            varies = line == "```console varying";
            open = false;
        } else if let (true, Some(command)) = (inside, line.strip_prefix("$ ")) {
            found.push(Shown { command: command.to_string(), varies, first: number + 1, end: number + 1 });
            open = true;
        } else if let (true, Some(last)) = (open, found.last_mut()) {
            last.end = number + 1;
        }
    }
    found
}

/// Lines without trailing blanks and trailing blank lines.
fn trimmed(lines: &[&str]) -> Vec<String> {
    let mut lines: Vec<String> = lines.iter().map(|line| line.trim_end().to_string()).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    lines
}

/// A line without the parts that vary: figures, their ranges, units, column widths, marks of best values, sparklines, and how a
/// prediction was verified.
fn without_figures(line: &str) -> String {
    let words = line.split_whitespace().map(|word| word.trim_matches('*'));
    let mut kept: Vec<String> = Vec::new();
    for word in words {
        let is_unit = ["B", "KiB", "MiB", "GiB", "ns", "us", "ms", "s"].contains(&word.trim_end_matches([',', ';']));
        let is_rule = word.chars().all(|letter| letter == '-');
        // Half the range of repeated runs: shown only if they differ.
        let is_range = word.starts_with("+-");
        let is_drawn = word.chars().all(|letter| ('\u{2581}'..='\u{258f}').contains(&letter));
        let is_optional = ["zero", "COW", "P", "exact", "bounded", "statistical"].contains(&word);
        if is_rule || is_range || is_drawn || is_optional {
            continue;
        }
        let after_figure = kept.last().is_some_and(|last| last == "#");
        let masked: String = word.chars().map(|letter| if letter.is_ascii_digit() { '#' } else { letter }).collect();
        let masked = if word.starts_with(|letter: char| letter.is_ascii_digit()) && !word.contains('/') {
            "#".to_string()
        } else {
            masked
        };
        if after_figure && (is_unit || masked == "#") {
            continue;
        }
        kept.push(masked);
    }
    kept.join(" ")
}

/// Whether a page that shows `page` shows `printed`. `...` stands for any lines.
fn shows(page: &[String], printed: &[String], varies: bool) -> bool {
    // Figures that vary may change the order of the rows that they sort.
    let without_order = |lines: &[String]| {
        let mut lines: Vec<String> = lines.iter().map(|line| without_figures(line)).collect();
        lines.sort_unstable();
        lines
    };
    let all_same = |shown: &[String], printed: &[String]| {
        shown == printed || varies && without_order(shown) == without_order(printed)
    };
    match page.iter().position(|line| line == LEFT_OUT) {
        None => all_same(page, printed),
        Some(head) => {
            let tail = page.len() - head - 1;
            printed.len() >= head + tail
                && all_same(&page[..head], &printed[..head])
                && all_same(&page[head + 1..], &printed[printed.len() - tail..])
        }
    }
}

/// The part of `printed` that the page shows: as many lines as it showed before.
fn updated(page: &[String], printed: &[String]) -> Vec<String> {
    let Some(head) = page.iter().position(|line| line == LEFT_OUT) else { return printed.to_vec() };
    let tail = page.len() - head - 1;
    let mut lines = printed[..head].to_vec();
    lines.push(LEFT_OUT.to_string());
    lines.extend_from_slice(&printed[printed.len() - tail..]);
    lines
}

/// Runs a command in `folder`, as a reader would. Returns its output, including standard error.
fn printed(command: &str, folder: &Path) -> Vec<String> {
    let hksim = Path::new(env!("CARGO_BIN_EXE_hksim")).parent().expect("a folder");
    let path = format!("{}:{}", hksim.display(), std::env::var("PATH").unwrap_or_default());
    let mut shell = Command::new("bash");
    shell.args(["-c", &format!("exec 2>&1; {command}")]).current_dir(folder).env("PATH", path);
    // Profiles that this user keeps are not those of the pages.
    shell.env("XDG_CACHE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/cache"));
    let output = shell.output().expect("bash starts");
    let text = String::from_utf8_lossy(&output.stdout).replace(&folder.display().to_string(), SHOWN_FOLDER);
    assert!(output.status.success(), "{command}: {}\n{text}", output.status);
    trimmed(&text.lines().collect::<Vec<_>>())
}

/// The reason not to check a page on this machine: a row is skipped here that is not skipped on the page.
fn skipped(page: &[String], printed: &[String]) -> Option<String> {
    let reason = |lines: &[String]| lines.iter().find_map(|line| Some(line.split_once("skipped: ")?.1.to_string()));
    reason(printed).filter(|_| reason(page).is_none())
}

/// What the commands of a page need and this machine lacks.
fn unmet_need(page: &str) -> Option<&'static str> {
    if page.contains("/usr/bin/python3") && !Path::new("/usr/bin/python3").exists() {
        return Some("python3 is not installed");
    }
    // SAFETY: reads a number.
    let is_root = unsafe { libc::geteuid() } == 0;
    if page.contains("hksim record --memory --no-aslr") && !is_root {
        return Some("recording page operations needs root");
    }
    let paranoid = fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap_or_default();
    let may_sample = is_root || matches!(paranoid.trim(), "-1" | "0" | "1");
    if page.contains("hksim calibrate ") && !may_sample {
        return Some("sampling processor time needs root or kernel.perf_event_paranoid of 1 or less");
    }
    let mode = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if page.contains("GLIBC_TUNABLES=glibc.malloc.hugetlb=1 hksim") && !mode.contains("[madvise]") {
        return Some("the THP mode is not madvise, and glibc asks for it");
    }
    None
}

fn check(name: &str) {
    let file = root().join(name);
    let page = fs::read_to_string(&file).unwrap_or_else(|why| panic!("{name}: {why}"));
    let lines: Vec<&str> = page.lines().collect();
    let commands = shown(&page);
    assert!(!commands.is_empty(), "{name} shows no command");
    if let Some(need) = unmet_need(&page) {
        println!("skipped: commands of {name}: {need}");
        return;
    }
    let folder = TempDir::with_prefix("hksim-manuals-").expect("a temporary folder");
    symlink(root().join("traces"), folder.path().join("traces")).expect("a link");

    let mut new: Vec<String> = Vec::new();
    let mut wrong = Vec::new();
    let mut copied = 0;
    for Shown { command, varies, first, end } in commands {
        let on_page = trimmed(&lines[first..end]);
        let printed = printed(&command, folder.path());
        new.extend(lines[copied..first].iter().map(|line| line.to_string()));
        if let Some(reason) = skipped(&on_page, &printed) {
            println!("skipped: {command}, in {name}: {reason}");
            new.extend(on_page);
        } else {
            if !shows(&on_page, &printed, varies) {
                wrong.push(format!(
                    "{name}: {command}\nthe page shows:\n{}\nprinted:\n{}",
                    on_page.join("\n"),
                    printed.join("\n")
                ));
            }
            new.extend(updated(&on_page, &printed));
        }
        new.extend(lines[first..end].iter().rev().take_while(|line| line.is_empty()).map(|_| String::new()));
        copied = end;
    }
    new.extend(lines[copied..].iter().map(|line| line.to_string()));
    if std::env::var_os("HKSIM_UPDATE_DOCS").is_some() {
        fs::write(&file, new.join("\n") + "\n").unwrap_or_else(|why| panic!("{name}: {why}"));
    } else {
        assert!(wrong.is_empty(), "{}\n(HKSIM_UPDATE_DOCS=1 updates the page)", wrong.join("\n\n"));
    }
}

#[test]
fn the_readme_shows_what_its_commands_print() {
    check("README.md");
}

#[test]
fn the_tutorial_of_designs_shows_what_its_commands_print() {
    check("docs/tutorial/your-allocator.md");
}

#[test]
fn the_tutorial_shows_what_its_commands_print() {
    check("docs/tutorial/first-prediction.md");
}

#[test]
fn the_tutorial_on_huge_pages_shows_what_its_commands_print() {
    check("docs/tutorial/huge-pages.md");
}

#[test]
fn the_how_to_on_designs_shows_what_its_commands_print() {
    check("docs/how-to/which-design.md");
}

#[test]
fn the_how_to_on_budgets_shows_what_its_commands_print() {
    check("docs/how-to/budget.md");
}

#[test]
fn the_how_to_on_explanations_shows_what_its_commands_print() {
    check("docs/how-to/explain.md");
}

#[test]
fn the_cookbook_shows_what_its_commands_print() {
    check("docs/how-to/cookbook.md");
}

#[test]
fn the_manual_of_bundles_shows_what_its_commands_print() {
    check("docs/how-to/bundle.md");
}

#[test]
fn the_how_to_on_recording_shows_what_its_commands_print() {
    check("docs/how-to/recording.md");
}

#[test]
fn the_how_to_on_call_sites_shows_what_its_commands_print() {
    check("docs/how-to/stacks.md");
}

#[test]
fn the_how_to_on_reports_shows_what_its_commands_print() {
    check("docs/how-to/report.md");
}

#[test]
fn the_how_to_on_forks_shows_what_its_commands_print() {
    check("docs/how-to/fork.md");
}

#[test]
fn the_how_to_on_system_time_shows_what_its_commands_print() {
    check("docs/how-to/costs.md");
}

#[test]
fn the_experiments_show_what_their_commands_print() {
    check("docs/lab/experiments.md");
}

#[test]
fn the_how_to_on_many_machines_shows_what_its_commands_print() {
    check("docs/how-to/many-machines.md");
}

#[test]
fn a_page_that_differs_is_detected() {
    let page = "```console\n$ one\nout\n\n$ two\n```\n```\n$ not this\n```\n```console varying\n$ three\n```\n";
    let found = shown(page);
    assert_eq!(found.iter().map(|shown| shown.command.as_str()).collect::<Vec<_>>(), ["one", "two", "three"]);
    assert_eq!((found[0].first, found[0].end, found[1].first, found[1].end), (2, 4, 5, 5));
    assert_eq!(found.iter().map(|shown| shown.varies).collect::<Vec<_>>(), [false, false, true]);
    let lines = |text: &str| trimmed(&text.split('\n').collect::<Vec<_>>());
    let exact = |page, printed| shows(&lines(page), &lines(printed), false);
    let vary = |page, printed| shows(&lines(page), &lines(printed), true);
    assert!(exact("a 1\nb", "a 1\nb\n") && !exact("a 1\nb", "a 2\nb") && !exact("a", "a\nb"));
    assert!(exact("a\n...", "a\nb\nc") && exact("a\n...\nc", "a\nb\nc"));
    assert!(!exact("a\n...\nb", "a\nb\nc") && !exact("a\n...\nb", "c\nb"));
    assert!(vary("ok  1 244 faults, 3.5 MiB", "ok 7 faults,  812.0 KiB"));
    assert!(vary("RSS  *5.4 MiB  x  P\n---", "RSS 980 KiB x\n-----"));
    assert!(vary("RSS 2.0 MiB  70", "RSS 2.0 MiB +-32.0 KiB  70"));
    assert!(!vary("verdict: ok", "verdict: failed") && !vary("7 faults", "7 traps"));
}
