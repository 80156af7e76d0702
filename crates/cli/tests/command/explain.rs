//! `hksim explain`: sums, planted causes, differences and marks.

use std::fmt::Write;

use hksim_testkit::{Random, test_scale};
use serde_json::Value;

use crate::pairwise;
use crate::support::{Bench, number};

const KEYS: [&str; 7] = ["reason", "class", "superslab", "site", "thread", "phase", "time"];

fn sum(list: &Value) -> u64 {
    list.as_array().expect("a list").iter().map(|part| number(part, "installs")).sum()
}

/// Every key sums to the total of the simulation. That explaining changes no result is tested on random designs
/// (`testkit/tests/simulations/explained.rs`).
fn check(bench: &Bench, trace: &str, policy: &str) {
    let explained = bench.json(&format!("explain {trace} {policy} --causes 0"));
    let total = number(&explained, "installs.total");
    assert_eq!(number(&explained, "installs_total"), total, "{trace} {policy}");
    for key in KEYS {
        assert_eq!(sum(&explained["by"][key]), total, "{trace} {policy}: by {key}");
    }
    for part in explained["by"]["reason"].as_array().expect("reasons") {
        let reason = part["name"].as_str().expect("a name");
        assert_eq!(part["installs"], explained["installs"]["by_reason"][reason], "{trace} {policy}: {reason}");
    }
}

#[test]
fn sums_by_every_key_equal_the_total_on_all_recordings() {
    let bench = Bench::new();
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../traces");
    let mut traces: Vec<String> = std::fs::read_dir(&folder)
        .expect("the recordings")
        .map(|entry| entry.expect("an entry").path().display().to_string())
        .filter(|path| path.ends_with(".hkt"))
        .collect();
    traces.sort();
    assert_eq!(traces.len(), 10);
    let small = traces.iter().find(|trace| trace.contains("sqlite-memory")).expect("the smallest");
    let policies = pairwise::policies();
    for (number, policy) in policies.iter().enumerate() {
        // Headers that are read first make the simulation keep every byte, so they take the smallest recording.
        let is_slow = ["light", "off"].iter().any(|header| policy.contains(&format!("--header {header}")));
        let trace = if is_slow { small } else { &traces[number % traces.len()] };
        check(&bench, trace, policy);
    }
}

#[test]
fn a_remedy_has_the_effect_that_its_sentence_states() {
    let bench = Bench::with_trace();
    let policy = "--huge never --purge-delay 0 --purge-spans yes --prefault touch";
    let explained = bench.json(&format!("explain rm.hkt {policy}"));
    let mut tried = 0;
    for cause in explained["causes"].as_array().expect("causes") {
        let Some(remedy) = cause["remedy"].as_str() else { continue };
        // A repeated flag would be an error, so the remedy's flags replace those of the policy.
        let mut flags: Vec<(String, String)> = Vec::new();
        let words: Vec<&str> = policy.split(' ').chain(remedy.split(' ')).collect();
        for pair in words.chunks(2) {
            flags.retain(|(name, _)| name != pair[0]);
            flags.push((pair[0].into(), pair[1].into()));
        }
        let flags: Vec<String> = flags.iter().map(|(name, value)| format!("{name} {value}")).collect();
        let after = bench.json(&format!("sim rm.hkt {}", flags.join(" ")));
        assert_eq!(cause["installs_after"], after["installs"]["total"], "{remedy}");
        assert_eq!(cause["rss_bytes_peak_after"], after["rss_bytes_peak"], "{remedy}");
        let left = number(cause, "installs_of_cause_after");
        assert!(left < number(cause, "installs"), "{remedy} removes its cause: {cause}");
        let reason = cause["reason"].as_str().expect("a reason");
        assert!(left <= number(&after, &format!("installs.by_reason.{reason}")), "{cause}");
        let replaces = cause["remedy_replaces"].as_str().expect("the replaced flags");
        let sentence = cause["remedy_sentence"].as_str().expect("a sentence");
        assert!(sentence.starts_with(&format!("With `{remedy}` instead of `{replaces}`")), "{sentence}");
        tried += 1;
    }
    assert!(tried > 0, "{explained}");
}

/// Two causes of which `--huge thp` removes one: the touches at the start, not what is populated.
#[test]
fn a_remedy_removes_the_cause_under_which_it_is_printed() {
    let bench = Bench::new();
    bench.ok("gen random-mixed --cycles 20k --ws 9k -o g.hkt");
    let explained = bench.json("explain g.hkt --huge never --startup-touch 8M --prefault populate");
    let causes = explained["causes"].as_array().expect("causes");
    let of = |reason: &str| causes.iter().find(|cause| cause["reason"] == reason).expect("a cause");
    let populated = of("populated");
    assert_eq!(populated["remedy"], "--prefault off", "{populated}");
    assert_eq!(number(populated, "installs_of_cause_after"), 0);
    assert_eq!(of("prefault")["remedy"], "--startup-touch 0");
    // Huge pages leave every install of metadata.
    let metadata = of("metadata");
    assert_eq!(metadata.get("remedy"), None, "{metadata}");
    let sentence = metadata["remedy_sentence"].as_str().expect("a sentence");
    assert!(sentence.starts_with("None of the changes that were tried"), "{sentence}");
}

/// A script in which the slabs of one class become empty again and again, and those of other classes never do: each
/// has a block that stays.
fn script_with_churn(random: &mut Random, size: u64, others: &[u64]) -> String {
    let mut script = String::new();
    let mut next = 0;
    let mut allocate = |script: &mut String, size: u64| {
        let _ = writeln!(script, "a {next} {size}");
        next += 1;
        next - 1
    };
    for &other in others {
        for _ in 0..40 {
            allocate(&mut script, other);
        }
    }
    for _ in 0..30 {
        // Some three slabs of 64 KiB.
        let blocks: Vec<u64> = (0..3 * (64 << 10) / size).map(|_| allocate(&mut script, size)).collect();
        let other = random.pick(others);
        let passing = allocate(&mut script, other);
        for block in blocks {
            let _ = writeln!(script, "f {block}");
        }
        let _ = writeln!(script, "f {passing}");
    }
    script
}

#[test]
fn a_class_whose_empty_slabs_are_purged_is_named_first() {
    let bench = Bench::new();
    let seed = 0xE0_01;
    println!("seed {seed:#x}");
    let mut random = Random::new(seed);
    // Classes of the default scheme.
    let classes: Vec<u64> =
        (1..=8).map(|step| 16 * step).chain([160, 192, 224, 256, 320, 384, 448, 512, 640, 768]).collect();
    for choice in 0..10 * test_scale() {
        let class = random.pick(&classes);
        let others: Vec<u64> = classes.iter().copied().filter(|&other| other != class).collect();
        let script = script_with_churn(&mut random, class, &others);
        std::fs::write(bench.path("planted.script"), script).expect("a file");
        bench.ok("import planted.script --from script -o planted.hkt");
        let explained = bench.json("explain planted.hkt --huge never --purge-delay 0 --purge-spans yes --cache 0");
        let first = &explained["causes"][0];
        let sentence = first["sentence"].as_str().expect("a sentence");
        let named = format!("the {class}-byte class");
        assert!(
            sentence.contains("after they were purged") && sentence.contains(&named),
            "choice {choice}, {class}: {sentence}"
        );
        assert_eq!(first["class"].as_str(), Some(class.to_string().as_str()));
        let (before, after) = (number(&explained, "installs_total"), number(first, "installs_after"));
        assert!(after < before / 3, "choice {choice}: the remedy removes the purges: {first}");
    }
}

#[test]
fn differences_add_up_to_the_difference_of_the_totals() {
    let bench = Bench::with_trace();
    let explained = bench.json("explain rm.hkt --huge never --against default+superslab=4M");
    let against = &explained["against"];
    let other = bench.json("sim rm.hkt --superslab 4M");
    assert_eq!(against["installs_total"], other["installs"]["total"]);
    let signed = |value: &Value, name| i64::try_from(number(value, name)).expect("a small number");
    let differences = against["differences"].as_array().expect("differences").iter();
    let sum: i64 = differences.map(|one| signed(one, "installs") - signed(one, "installs_against")).sum();
    assert_eq!(sum, signed(&explained, "installs_total") - signed(against, "installs_total"));
    let text = bench.ok("explain rm.hkt --huge never --against default+superslab=4M");
    assert!(
        text.contains("against default+superslab=4M\n") && text.contains("with `default+superslab=4M` ("),
        "{text}"
    );
    assert_eq!(against["name"], "default+superslab=4M");
    assert!(bench.run("explain rm.hkt --against=").code == Some(2), "an empty policy is refused");
    assert!(text.contains(against["sentences"][1].as_str().expect("a sentence")), "{text}");
    let same = bench.json("explain rm.hkt --against default");
    assert_eq!(same["against"]["differences"].as_array().map(Vec::len), Some(0));
}

#[test]
fn installs_are_counted_per_mark() {
    let bench = Bench::new();
    bench.ok("gen random-mixed --cycles 20k --ws 900 --warmup 5k -o marked.hkt");
    let info = bench.json("info marked.hkt");
    assert!(number(&info, "marks") > 0, "{info}");
    let refused = bench.run("explain marked.hkt --per nothing");
    assert_eq!(refused.code, Some(2));
    let mark =
        refused.stderr.rsplit_once("its marks are ").expect("the names").1.trim().split(", ").next().expect("a name");
    let explained = bench.json(&format!("explain marked.hkt --per {mark}"));
    let per_mark = &explained["per_mark"];
    let all = number(per_mark, "installs_before") + number(per_mark, "installs");
    assert_eq!(all, number(&explained, "installs_total"));
    let phases = explained["by"]["phase"].as_array().expect("phases");
    assert!(phases.len() > 1, "{phases:?}");
}

/// Windows of one mark end at the next mark of any name, as phases do.
#[test]
fn installs_per_mark_are_those_of_its_phase() {
    let bench = Bench::new();
    let mut events = "op,object,size,number\n".to_string();
    for request in 0..4 {
        let _ = writeln!(events, "mark,,,0\nalloc,{},9000,\nmark,,,1\nalloc,{},90000,", 2 * request, 2 * request + 1);
    }
    std::fs::write(bench.path("marks.csv"), events + "mark,,,2\nalloc,8,900000,\n").expect("a file");
    bench.ok("import marks.csv --from csv -o marks.hkt");
    let explained = bench.json("explain marks.hkt --huge never --per mark-0 --causes 0");
    let per_mark = &explained["per_mark"];
    let phases = explained["by"]["phase"].as_array().expect("phases");
    let phase = |name: &str| number(phases.iter().find(|part| part["name"] == name).expect("a phase"), "installs");
    assert_eq!(number(per_mark, "marks"), 4);
    assert_eq!(number(per_mark, "installs"), phase("mark-0"));
    assert_eq!(number(per_mark, "installs_elsewhere"), phase("mark-1") + phase("mark-2"));
    let all = ["installs", "installs_before", "installs_elsewhere"].map(|name| number(per_mark, name));
    assert_eq!(all.iter().sum::<u64>(), number(&explained, "installs_total"));
    let text = bench.ok("explain marks.hkt --huge never --per mark-2 --causes 0");
    assert!(text.contains("per mark `mark-2`: 1 mark,"), "{text}");
}

/// A part of a recording can name a mark that it does not set.
#[test]
fn marks_that_are_never_set_are_refused() {
    let bench = Bench::new();
    std::fs::write(bench.path("m.csv"), "op,object,size,number\nmark,,,1\nalloc,0,16,\n").expect("a file");
    bench.ok("import m.csv --from csv -o m.hkt");
    for command in ["explain m.hkt --per mark-0", "sim m.hkt --fork-at mark-0"] {
        let said = bench.refused(command);
        assert!(said.ends_with("its marks are mark-1\n"), "{command}: {said}");
    }
    let said = bench.refused("trace cut m.hkt --mark mark-0 -o none.hkt");
    assert!(said.ends_with("the trace's marks are: mark-1\n"), "{said}");
    assert!(bench.refused("sim m.hkt --fork-at mark-1,mark-1").contains("has no more marks `mark-1`"));
}

/// Names of marks come from the trace, so they can contain anything.
#[test]
fn control_characters_in_marks_are_escaped() {
    let bench = Bench::new();
    let events = "op,object,size,number\nmark,,,0\nalloc,0,9000,\nmark,,,1\nalloc,1,90000,\n";
    std::fs::write(bench.path("m.csv"), events).expect("a file");
    bench.ok("import m.csv --from csv -o named.hkt");
    bench.ok("export named.hkt --to csv -o named.csv");
    let events = std::fs::read_to_string(bench.path("named.csv")).expect("events");
    std::fs::write(bench.path("named.csv"), events.replace("\"mark-0\"", r#""a\u001b[31mb\u0007\nc""#))
        .expect("a file");
    bench.ok("import named.csv --from csv -o m.hkt");
    let text = bench.ok("explain m.hkt --huge never");
    assert!(text.contains("a\\u{1b}[31mb\\u{7}\\nc"), "{text}");
    assert!(!text.contains('\x1b') && !text.contains('\x07'), "{text:?}");
    bench.ok("record -q -o echo.hkt echo \x1b[31mred\x07");
    for command in ["info echo.hkt", "sim echo.hkt"] {
        let text = bench.ok(command);
        assert!(text.contains("echo \\u{1b}[31mred\\u{7} (pid"), "{command}: {text:?}");
    }
}

/// The page map, checked against the timeline of the same run: rows of single pages sum to the residency.
#[test]
fn the_page_map_ends_with_the_resident_pages() {
    let bench = Bench::new();
    bench.ok("gen random-mixed --cycles 20k --ws 40 -o small.hkt");
    let explained = bench.json("explain small.hkt --huge never --purge-delay 0 --purge-spans yes --cache 0");
    let map = &explained["page_map"];
    assert_eq!(number(map, "cell_pages"), 1);
    let rows = map["rows"].as_array().expect("rows");
    let last = rows.iter().map(|row| row["states"].as_str().and_then(|states| states.chars().last()).expect("states"));
    let resident = last.filter(|state| "rhf".contains(*state)).count() as u64;
    assert_eq!(resident * 4096, number(&explained, "rss_bytes_end"));
    let times = map["times_ns"].as_array().expect("times").len();
    assert!(rows.iter().all(|row| row["states"].as_str().map(str::len) == Some(times)));
    let occupancy = explained["occupancy"].as_array().expect("occupancy");
    let end: u64 = occupancy.iter().filter_map(|one| one["live_bytes"].as_array()?.last()?.as_u64()).sum();
    assert!(end > 0 && end <= number(&explained, "live_bytes_peak"));
}

/// Counts made from the trace's own requests of one class: the hypothesis is among those that fit, with its parameters,
/// and it is alone only if the traces tell it apart.
#[test]
fn planted_counts_are_fitted() {
    let bench = Bench::new();
    let sizes = [(16, 1024), (400, 600), (16, 40), (900, 3_000)];
    let mut lines = String::new();
    for (number, (low, high)) in sizes.into_iter().enumerate() {
        bench.ok(&format!("gen random-mixed --cycles 20k --ws 300 --min {low} --max {high} -o {number}.hkt"));
        bench.ok(&format!("export {number}.hkt --to csv -o {number}.csv"));
        let events = std::fs::read_to_string(bench.path(&format!("{number}.csv"))).expect("events");
        let mut columns = events.lines().next().expect("a head").split(',');
        let size = columns.clone().position(|name| name == "size").expect("sizes");
        let op = columns.position(|name| name == "op").expect("operations");
        let is_in_class = |line: &&str| {
            let fields: Vec<&str> = line.split(',').collect();
            // The 512-byte class of the default scheme serves 449 to 512 bytes.
            fields.get(op) == Some(&"alloc") && fields[size].parse().is_ok_and(|size: u64| (449..=512).contains(&size))
        };
        let count = 5_000 + 3 * events.lines().filter(is_in_class).count();
        let _ = writeln!(lines, "{number}.hkt,{count}");
    }
    std::fs::write(bench.path("counts.csv"), lines).expect("a file");
    let fit = bench.json("explain --fit counts.csv");
    let best = &fit["hypotheses"][0];
    bench.ok("explain --fit counts.csv --format json -o fit.json");
    for line in ["bundle fit.json -o folder", "report fit.json -o fit.html"] {
        assert!(bench.refused(line).contains("a result of `explain --fit`, whose counts file names its own traces"));
    }
    assert!(best["name"].as_str().is_some_and(|name| name.contains("the 512-byte class")), "{fit}");
    assert_eq!(best["fits"], true);
    let near = |name: &str, value: f64| (best[name].as_f64().expect("a number") - value).abs() < 1e-6 * value.max(1.0);
    assert!(near("fixed", 5_000.0) && near("per_unit", 3.0), "{best}");
    assert_eq!(fit["identified"], true, "{}", fit["sentence"]);
    let quoted = std::fs::read_to_string(bench.path("counts.csv")).expect("counts").replace(".hkt,", ".hkt\",");
    let quoted: String = quoted.lines().map(|line| format!("\"{line}\n")).collect();
    std::fs::write(bench.path("quoted.csv"), quoted).expect("a file");
    assert_eq!(bench.json("explain --fit quoted.csv")["hypotheses"], fit["hypotheses"]);
    std::fs::write(bench.path("twice.csv"), "0.hkt,1\n1.hkt,2\n0.hkt,9\n").expect("a file");
    assert!(bench.refused("explain --fit twice.csv").contains("is the same trace as"));
    std::fs::write(bench.path("equal.csv"), "0.hkt,700\n1.hkt,700\n2.hkt,700\n").expect("a file");
    let text = bench.ok("explain --fit equal.csv");
    assert!(text.contains("One hypothesis fits within 1.0 %: a fixed number."), "{text}");
    std::fs::write(bench.path("few.csv"), "0.hkt,1\n1.hkt,2\n").expect("a file");
    assert!(bench.refused("explain --fit few.csv").contains("give more traces"));
    std::fs::write(bench.path("wrong.csv"), "0.hkt,1\n1.hkt,x\n").expect("a file");
    assert!(bench.refused("explain --fit wrong.csv").contains("line 2"));
}

/// Of a replay on a library, every key sums to the total, which is the kernel's own count.
#[test]
fn every_key_of_a_library_sums_to_the_faults_that_the_kernel_charged() {
    let bench = Bench::with_trace();
    let output = bench.run(
        "explain rm.hkt --on glibc --causes 2 --against glibc:mmap_threshold=65536 --folded on.folded --format json",
    );
    if output.stderr.contains("perf_event_paranoid") {
        println!("skipped: {}", output.stderr);
        return;
    }
    let explained: Value = serde_json::from_str(&output.stdout).expect("JSON");
    let total = number(&explained, "installs_total");
    assert!(total > 100, "{total}");
    let lists = explained["by"].as_object().expect("keys");
    assert!(lists.contains_key("function") && lists.contains_key("mapping") && lists.len() == 11);
    for (key, list) in lists {
        assert_eq!(sum(list), total, "by {key}");
    }
    assert_eq!(number(&explained, "faults"), total, "{}", explained["skipped"]);
    let folded = std::fs::read_to_string(bench.path("on.folded")).expect("the folded stacks");
    let counts = folded.lines().filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok());
    assert_eq!(counts.sum::<u64>(), total, "{folded}");
    let against = &explained["against"];
    assert_eq!(sum(&against["by"]["reason"]), number(against, "installs_total"));
    let kinds: Vec<&str> =
        explained["tried"].as_array().expect("remedies").iter().filter_map(|one| one["kind"].as_str()).collect();
    assert!(kinds.contains(&"setting") && kinds.contains(&"design"), "{kinds:?}");
    std::fs::write(bench.path("on.json"), &output.stdout).expect("a file");
    is_reported(&bench, &explained);
    assert!(bench.refused("explain rm.hkt --on native").contains("explained by simulation"));
    assert!(bench.refused("explain rm.hkt --on nowhere.so").contains("nowhere.so"));
    for flag in ["--huge never", "--superslab 4M", "--kernel 6.1", "--preset hakmem"] {
        let name = flag.split(' ').next().expect("a flag");
        let refused = bench.refused(&format!("explain rm.hkt --on glibc {flag}"));
        assert!(refused.contains(&format!("{name} is about hksim's own designs")), "{refused}");
    }
    bench.ok("explain rm.hkt --on glibc --thp never --causes 1");
    assert!(bench.refused("explain rm.hkt --on glibc --against native").contains("explained by simulation"));
}

/// The result of `explain --on` is shown by report, plot and bundle; only this machine can repeat it.
fn is_reported(bench: &Bench, explained: &Value) {
    let read = |file: &str| std::fs::read_to_string(bench.path(file)).expect("a file");
    bench.ok("report on.json -o on.html");
    let page = read("on.html");
    let cause = explained["causes"][0]["function"].as_str().expect("a function");
    let total = hksim_text::units::count(number(explained, "installs_total"));
    for part in [cause, &total, "by function", "Measured: another machine", "--figure functions", "--figure reasons"] {
        assert!(page.contains(part), "the report lacks {part}");
    }
    for (line, title) in [
        ("plot on.json -o on.svg", "installs by reason"),
        ("plot on.json --figure functions -o functions.svg", "installs by function of the library"),
        ("plot on.json --figure classes -o classes.svg", "bytes of the requests"),
    ] {
        bench.ok(line);
        let picture = line.rsplit(' ').next().expect("a file");
        assert!(read(picture).contains(title), "{line}");
    }
    assert!(bench.refused("plot on.json --figure page-map -o no.svg").contains("no data for --figure page-map"));
    bench.ok("bundle on.json -o of-library");
    assert!(read("of-library/README.md").contains("| `results/on.json` | 0 | 1 |"));
    let rows = read("of-library/figures/on-installs-by.csv");
    assert!(rows.lines().any(|row| row.contains("function") && row.contains(cause)), "{rows}");
    let repeated = bench.ok("repeat of-library");
    assert!(repeated.contains("measured: another machine has its own figures"), "{repeated}");
    let mut damaged = explained.clone();
    damaged["by"]["function"] = Value::Null;
    std::fs::write(bench.path("damaged.json"), damaged.to_string()).expect("a file");
    assert!(bench.refused("report damaged.json -o damaged.html").contains("damaged.json"));
}

/// Runs a program for which `perf_event_open` is not permitted.
const WITHOUT_PERF: &str = "#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
int main(int argc, char **argv) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_perf_event_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EACCES),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {4, code};
    if (argc < 2 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) return 99;
    execv(argv[1], argv + 1);
    return 98;
}
";

#[test]
fn where_page_faults_cannot_be_recorded_a_library_is_skipped() {
    let bench = Bench::with_trace();
    std::fs::write(bench.path("without.c"), WITHOUT_PERF).expect("the source");
    bench.compile("without.c", "without", &[]).expect("a C compiler");
    let ran = std::process::Command::new(bench.path("without"))
        .args([env!("CARGO_BIN_EXE_hksim"), "explain", "rm.hkt", "--on", "glibc", "--format", "json"])
        .current_dir(bench.folder())
        .output();
    let ran = crate::support::Ran::of("explain --on without perf", ran.expect("it starts"));
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(0), ""), "{}", ran.stderr);
    assert!(ran.stderr.contains("skipped: page faults cannot be recorded here"), "{}", ran.stderr);
}
