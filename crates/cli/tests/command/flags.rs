//! Flags: their effect on the policy, and their precedence.

use serde_json::{Value, json};

use crate::support::{Bench, number};

/// The `huge` word of every row.
fn huge_words(sweep: &Value) -> Vec<&str> {
    let rows = sweep["rows"].as_array().expect("rows");
    rows.iter().map(|row| row["policy"]["huge"].as_str().expect("a word")).collect()
}

#[test]
fn huge_takes_the_next_word_only_if_it_is_a_value() {
    let bench = Bench::with_trace();
    let all = ["never", "thp", "hugetlb"];
    let cases: [(&str, &[&str]); 6] = [
        ("sweep --huge rm.hkt", &all),
        ("sweep rm.hkt --huge", &all),
        ("sweep --huge --slab 64K rm.hkt", &all),
        ("sweep --huge thp rm.hkt", &["thp"]),
        ("sweep --huge=never,thp rm.hkt", &["never", "thp"]),
        ("sweep --huge hugetlb-plain,never rm.hkt", &["hugetlb-plain", "never"]),
    ];
    for (line, expected) in cases {
        assert_eq!(huge_words(&bench.json(line)), expected, "{line}");
    }
    for line in ["sim --huge rm.hkt", "sim --huge thp rm.hkt", "sim rm.hkt --huge=thp", "sim rm.hkt"] {
        assert_eq!(bench.json(line)["policy"]["huge"], "thp", "{line}");
    }
}

#[test]
fn every_flag_reaches_the_policy() {
    let bench = Bench::with_trace();
    let cases = [
        ("--superslab 1M", "superslab_bytes", json!(1 << 20)),
        ("--slab 32K", "slab_bytes", json!(32 << 10)),
        ("--classes linear", "classes", json!("linear")),
        ("--classes spacing-8", "classes", json!("spacing-8")),
        ("--classes 8/16/24/40", "classes", json!("8/16/24/40")),
        ("--header light", "header", json!("light")),
        ("--header full --header-bytes 16", "header_bytes", json!(16)),
        ("--prefault populate-write", "prefault", json!("populate-write")),
        ("--prefault-scope init", "prefault_scope", json!("init")),
        ("--prewarm 3", "prewarm_superslabs", json!(3)),
        ("--cache 7", "cache_superslabs", json!(7)),
        ("--warm-slabs 2", "warm_slabs", json!(2)),
        ("--free-order address", "free_order", json!("address")),
        ("--slab-choice fullest", "slab_choice", json!("fullest")),
        ("--front-cache 16", "front_cache", json!(16)),
        ("--purge unmap", "purge", json!("unmap")),
        ("--purge-delay 5us", "purge_delay_ns", json!(5_000)),
        ("--purge-curve smoothstep", "purge_curve", json!("smoothstep")),
        ("--purge-spans yes", "purge_spans", json!(true)),
        ("--meta sidecar", "meta", json!("sidecar")),
        ("--carve bump", "carve", json!("bump")),
        ("--startup-touch 1M", "startup_touch_bytes", json!(1 << 20)),
        ("--huge-cache 0", "huge_cache_bytes", json!(0)),
        ("--arena 1G", "arena_bytes", json!(1u64 << 30)),
    ];
    for (flags, field, expected) in cases {
        assert_eq!(bench.json(&format!("sim rm.hkt {flags}"))["policy"][field], expected, "{flags}");
    }
    let sim = bench.json("sim rm.hkt --touch all --thp never --hugetlb-pool 5 --kernel 6.18 --align arena");
    assert_eq!(sim["touch"]["rule"], "all");
    assert_eq!(sim["kernel"]["thp"]["global"], "never");
    assert_eq!(sim["kernel"]["hugetlb_pool_pages"], 5);
    assert_eq!(sim["kernel"]["rules"]["version"], "6.18");
    let old = bench.json("sim rm.hkt --kernel 6.1");
    assert_eq!(old["kernel"]["rules"]["version"], "6.1");
    assert_eq!(old["kernel"]["rules"]["mthp_support"], "unsupported");
}

#[test]
fn a_flag_overrides_the_file_and_the_file_the_preset() {
    let bench = Bench::with_trace();
    std::fs::write(bench.path("p.toml"), "superslab_bytes = 1048576\nheader = \"light\"\nclasses = \"16/48\"\n")
        .expect("a policy file");
    let policy = bench.json("sim rm.hkt --preset hakmem --policy p.toml --header off")["policy"].clone();
    assert_eq!(policy["header"], "off", "flag");
    assert_eq!(policy["classes"], "16/48", "file");
    assert_eq!(policy["superslab_bytes"], 1 << 20, "file");
    assert_eq!(policy["carve"], "eager", "preset");
    assert_eq!(policy["slab_bytes"], 64 << 10, "the preset's default");
}

/// This machine's mode of a huge-page size; `never` if the kernel does not support the size.
fn host_mode(order: usize) -> String {
    let file = format!("/sys/kernel/mm/transparent_hugepage/hugepages-{}kB/enabled", 4 << order);
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let chosen = text.split(['[', ']']).nth(1).map(str::to_string);
    chosen.unwrap_or(if order == 9 { "inherit" } else { "never" }.to_string())
}

#[test]
fn huge_page_sizes_are_applied_and_reported() {
    let bench = Bench::with_trace();
    let sim = bench.json("sim rm.hkt --huge never --mthp 64K=always,256K=madvise");
    let modes = json!({
        "16K": "never", "32K": "never", "64K": "always", "128K": "never", "256K": "madvise", "512K": "never",
        "1M": "never", "2M": "inherit",
    });
    assert_eq!(sim["kernel"]["thp"]["sizes"], modes);
    let mthp = |value: &Value| value["installs"]["by_kind"]["mthp"].as_u64().expect("a count");
    assert!(mthp(&sim) > 0, "memory without advice gets 64K folios");
    assert_eq!(mthp(&bench.json("sim rm.hkt --huge never --mthp 256K=madvise")), 0, "no memory is advised");
    assert_eq!(mthp(&bench.json("sim rm.hkt --huge never --mthp 64K=inherit")), 0, "the mode is madvise");
    assert!(mthp(&bench.json("sim rm.hkt --huge never --mthp 64K=inherit,2M=never --thp always")) > 0);
    let text = bench.ok("sim rm.hkt --huge never --mthp 64K=always,256K=madvise");
    assert!(text.contains("THP madvise (assumed; --thp), sizes 64K=always,256K=madvise"), "{text}");

    let line = "sweep rm.hkt --huge never --mthp default/64K=always,256K=madvise --plot=m.svg";
    let table = bench.ok(line);
    let head = table.lines().find(|line| line.starts_with('#')).expect("a head");
    assert!(
        head.contains(" mthp ") && table.contains(" 64K=always,256K=madvise ") && table.contains(" default "),
        "{table}"
    );
    let drawn = std::fs::read_to_string(bench.path("m.svg")).expect("a picture");
    assert!(drawn.contains("64K=always,256K=madvise"), "the picture names the sizes");
    for (flags, needle) in [
        ("--mthp 64K", "SIZE=MODE"),
        ("--mthp 8K=always", "16K and its doubles"),
        ("--mthp 64K=sometimes", "always, madvise, inherit, never"),
        ("--mthp 64K=always --kernel 6.1", "no huge pages below 2M"),
        ("--mthp default/64K=always", "hksim sweep"),
    ] {
        let message = bench.refused(&format!("sim rm.hkt {flags}"));
        assert!(message.contains(needle), "{flags}: {message}");
    }
    assert!(bench.refused("validate rm.hkt --mthp 64K=always").contains("--mthp is about a simulated kernel"));
}

#[test]
fn validate_predicts_for_the_kernel_of_the_host() {
    let bench = Bench::with_trace();
    let host = bench.json("sim rm.hkt --huge never --kernel host")["kernel"].clone();
    for (order, size) in (2..).zip(["16K", "32K", "64K", "128K", "256K", "512K", "1M", "2M"]) {
        assert_eq!(host["thp"]["sizes"][size], host_mode(order), "{size}");
    }
    let number = |file: &str| {
        let text = std::fs::read_to_string(file).expect("a limit");
        text.trim().parse::<u64>().expect("a number")
    };
    assert_eq!(host["max_map_count"], number("/proc/sys/vm/max_map_count"));
    let validation = bench.json("validate rm.hkt --huge never");
    assert_eq!(host, validation["rows"][0]["predicted"]["kernel"]);
    let other =
        bench.json("sim rm.hkt --huge never --kernel host --mthp 32K=always --thp always")["kernel"]["thp"].clone();
    assert_eq!(
        (&other["global"], &other["sizes"]["32K"]),
        (&json!("always"), &json!("always")),
        "flags override --kernel host"
    );
}

#[test]
fn a_row_of_a_result_is_a_policy() {
    let bench = Bench::with_trace();
    let line =
        "--preset hakmem --superslab 1M --purge-delay 3us --touch first --kernel 6.8 --thp always --mthp 64K=always";
    bench.ok(&format!("sim rm.hkt {line} --hugetlb-pool 3 --format json -o row.json"));
    let row: Value =
        serde_json::from_str(&std::fs::read_to_string(bench.path("row.json")).expect("a row")).expect("JSON");
    let again = bench.json("sim rm.hkt --policy row.json");
    for part in ["policy", "touch", "kernel", "installs", "placement_digest", "rss_bytes_peak", "os_calls"] {
        assert_eq!(again[part], row[part], "{part}");
    }
    assert_eq!(
        bench.json("sim rm.hkt --policy row.json --header off")["policy"]["header"],
        "off",
        "a flag overrides the file"
    );
    let replay = bench.json("replay rm.hkt --policy row.json --huge never");
    assert_eq!(replay["policy"]["superslab_bytes"], 1 << 20, "given a result row, replay uses its design");
    let sweep = bench.json("sweep rm.hkt --superslab 1M,4M");
    std::fs::write(bench.path("sweep.json"), sweep.to_string()).expect("a sweep");
    assert!(bench.refused("sim rm.hkt --policy sweep.json").contains("2 rows"));
    std::fs::write(bench.path("row.json"), sweep["rows"][1].to_string()).expect("a row");
    assert_eq!(bench.json("sim rm.hkt --policy row.json")["policy"], sweep["rows"][1]["policy"]);
    let validation = bench.json("validate rm.hkt --superslab 512K --huge never");
    std::fs::write(bench.path("row.json"), validation["rows"][0].to_string()).expect("a row");
    assert_eq!(bench.json("sim rm.hkt --policy row.json")["policy"]["superslab_bytes"], 512 << 10);
    std::fs::write(bench.path("fields.json"), "{\"superslab_bytes\": 1048576, \"headers\": 1}").expect("fields");
    let message = bench.refused("sim rm.hkt --policy fields.json");
    assert!(message.contains("fields.json") && message.contains("headers"), "{message}");
    assert!(bench.refused("sim rm.hkt --policy rm.hkt").contains("rm.hkt"));
}

#[test]
fn lists_span_all_combinations_with_the_first_flag_slowest() {
    let bench = Bench::with_trace();
    let sweep = bench.json("sweep rm.hkt --superslab 1M,2M --huge never,thp --preset default,hakmem");
    let rows = sweep["rows"].as_array().expect("rows");
    let row = |row: &Value| {
        let policy = &row["policy"];
        (policy["carve"].clone(), policy["superslab_bytes"].clone(), policy["huge"].clone())
    };
    let mut expected = Vec::new();
    for carve in ["page", "eager"] {
        for superslab in [1 << 20, 2 << 20] {
            for huge in ["never", "thp"] {
                expected.push((json!(carve), json!(superslab), json!(huge)));
            }
        }
    }
    assert_eq!(rows.iter().map(row).collect::<Vec<_>>(), expected);
}

#[test]
fn recorded_touches_are_used_and_missing_ones_assumed() {
    let bench = Bench::with_trace();
    let recorded = bench.json("sim rm.hkt");
    assert_eq!((&recorded["touch"]["rule"], recorded.get("by_touch_rule")), (&json!("recorded"), None));
    let lines: String = (0..300).map(|id| format!("a {id} 5000\n")).collect();
    std::fs::write(bench.path("t.script"), lines).expect("a script trace");
    bench.ok("import t.script -o t.hkt");
    let assumed = bench.json("sim t.hkt --huge never");
    assert_eq!(assumed["touch"], json!({"rule": "all", "source": "assumed"}));
    let bracket = assumed["by_touch_rule"].as_object().expect("a bracket");
    assert_eq!(bracket.len(), 5);
    for (rule, figures) in bracket {
        let alone = bench.json(&format!("sim t.hkt --huge never --touch {rule}"));
        assert_eq!(figures["installs"], alone["installs"]["total"], "{rule}");
        assert_eq!(figures["rss_bytes_peak"], alone["rss_bytes_peak"], "{rule}");
        assert_eq!(alone.get("by_touch_rule"), None, "{rule}");
    }
    // 300 blocks larger than a page: touching one byte and all bytes have different costs.
    assert!(bracket["none"]["installs"].as_u64() < bracket["first"]["installs"].as_u64());
    assert!(bracket["first"]["installs"].as_u64() < bracket["all"]["installs"].as_u64());
}

#[test]
fn lists_that_are_not_meant_are_refused_with_what_to_write() {
    let bench = Bench::with_trace();
    for (flags, part) in [
        ("--classes 8,16,24", "write 8/16/24 for one list"),
        ("--classes=", "a value is missing"),
        ("--superslab=", "a value is missing"),
        ("--purge-delay 0..8ms", "write 0,1ms..8ms"),
        ("--huge never..thp", "`never..thp`: expected one of never"),
        ("--front-cache 256", "hksim: --front-cache 256: a front cache holds at most 255"),
        ("--jobs 0", "expected a number from 1 to 1024"),
        (
            "--cache 1..65536 --slab 16K..256K --warm-slabs 1..65536 --prewarm 1..65536 --superslab 1M..32M",
            "the lists span more than 100 000 designs",
        ),
    ] {
        let why = bench.refused(&format!("sweep rm.hkt {flags}"));
        assert!(why.contains(part), "{flags}: {why}");
    }
}

#[test]
fn values_that_are_in_a_list_twice_are_dropped_with_a_note() {
    let bench = Bench::with_trace();
    let ran = bench.run("sweep rm.hkt --superslab 1M,1024K,2M --huge never --format json");
    assert!(ran.stderr.contains("--superslab: 1024K is in the list twice"), "{}", ran.stderr);
    let sweep: Value = serde_json::from_str(&ran.stdout).expect("JSON");
    assert_eq!(sweep["rows"].as_array().map(Vec::len), Some(2));
    let ran = bench.run("advise rm.hkt rm.hkt --superslab 1M,1024K --huge never --format json");
    assert!(ran.stderr.contains("--superslab: 1024K is in the list twice"), "{}", ran.stderr);
    assert!(ran.stderr.contains("rm.hkt: given twice, so it counts twice"), "{}", ran.stderr);
}

/// A design without advice gets huge pages in mode always, which its word does not say.
#[test]
fn huge_pages_that_a_design_does_not_ask_for_are_named() {
    let bench = Bench::with_trace();
    let note = "--huge never only asks for no huge pages: in these modes the kernel gives pages of 2M unasked";
    for command in ["sim rm.hkt --huge never", "sweep rm.hkt --huge=never,thp", "explain rm.hkt --huge never"] {
        let asked = bench.run(&format!("{command} -q --thp always"));
        assert_eq!((asked.code, asked.stderr.matches(note).count()), (Some(0), 1), "{command}: {}", asked.stderr);
        let ran = bench.run(&format!("{command} -q --thp madvise"));
        assert!(!ran.stderr.contains("unasked"), "{command}: {}", ran.stderr);
    }
    let sim = bench.json("sim rm.hkt --huge never --thp always");
    assert!(number(&sim["installs"]["by_kind"], "thp") > 0);
    // Also in the result, for readers who do not see the note.
    assert_eq!(number(&sim, "huge_bytes_unasked"), 2 << 20);
    let line = "unasked  --huge never asks for no huge pages, but this kernel gives pages of 2M";
    assert!(bench.ok("sim rm.hkt --huge never --thp always").contains(line));
    let sweep = bench.json("sweep rm.hkt --huge=never,thp --thp always,madvise --mthp 64K=madvise");
    let unasked = sweep["rows"].as_array().expect("rows").iter().map(|row| {
        let has_request = row["policy"]["huge"] != "never";
        (has_request, row["kernel"]["thp"]["global"] == "always", row["huge_bytes_unasked"].as_u64())
    });
    for (has_request, is_always, bytes) in unasked {
        assert_eq!(bytes, (!has_request && is_always).then_some(2 << 20), "{sweep}");
    }
    let table = bench.ok("sweep rm.hkt --huge=never,thp --thp always");
    let legend = "unasked: pages that this kernel gives, though --huge never asks for no huge pages";
    assert!(table.contains(" unasked ") && table.contains(legend), "{table}");
    assert!(!bench.ok("sweep rm.hkt --huge=never,thp --thp madvise").contains("unasked"));
    let csv = bench.ok("sweep rm.hkt --huge=never,thp --thp always --format csv");
    assert!(csv.lines().next().is_some_and(|head| head.contains("huge_bytes_unasked")), "{csv}");
}
