//! What predictions of memory recordings say beyond figures: the kernel's own account, or arithmetic on a program whose
//! memory is known, is the oracle.

use serde_json::Value;

use crate::support::recordings::{can_record, data};
use crate::support::{Bench, number};

const HUGE: u64 = 2 << 20;

/// A directory with a recording of one case of the program, and what the program printed.
fn recorded(case: &str, flags: &str) -> Option<(Bench, u64)> {
    let bench = Bench::new();
    if !can_record() {
        return None;
    }
    bench.compile(data("memory-answers.c"), "app", &["-O1", "-g"])?;
    let output = bench.ok(&format!("record --memory {flags} -o a.hkm -- ./app {case}"));
    Some((bench, output.trim().parse().unwrap_or_default()))
}

/// On kernels that align other mappings, the program rounds to other addresses, and its blocks are aligned nevertheless.
#[test]
fn rounded_addresses_stay_aligned_under_another_kernel() {
    let Some((bench, _)) = recorded("rounded", "--no-aslr") else { return };
    for kernel in ["5.15", "6.1", "6.8", "6.18"] {
        let result = bench.json(&format!("sim a.hkm --thp madvise --kernel {kernel}"));
        assert_eq!(number(&result, "huge_pages_end"), 40, "{kernel}");
        let is_modelled = result["addresses"] == "modelled";
        let text = bench.ok(&format!("sim a.hkm --thp madvise --kernel {kernel}"));
        assert_eq!(text.contains("addresses  modelled: where Linux"), is_modelled, "{kernel}: {text}");
    }
    let table = bench.ok("sweep a.hkm --thp madvise --kernel 6.1,6.18");
    assert!(table.contains("addresses") && table.contains("modelled") && table.contains("recorded"), "{table}");
}

#[test]
fn lazily_freed_memory_is_told_and_can_be_dropped() {
    let Some((bench, measured)) = recorded("lazy", "") else { return };
    let result = bench.json("sim a.hkm --thp never");
    let lazy = number(&result, "lazy_free_bytes_end_max");
    assert_eq!(lazy, 16 * HUGE);
    // The kernel marks pages in batches for each processor.
    assert!((lazy - (1 << 20)..=lazy).contains(&measured), "{lazy} predicted, {measured} measured");
    let text = bench.ok("sim a.hkm --thp never");
    assert!(text.contains("of it LazyFree, at most") && text.contains("32.0 MiB"), "{text}");
    let dropped = bench.json("sim a.hkm --thp never --madv-free dontneed");
    assert_eq!(number(&dropped, "lazy_free_bytes_end_max"), 0);
    assert_eq!(number(&result, "rss_bytes_end") - number(&dropped, "rss_bytes_end"), 16 * HUGE);
    assert_eq!(dropped["madv_free"], "dont_need");
    let table = bench.ok("sweep a.hkm --thp never --madv-free recorded,dontneed");
    assert!(table.contains("madv-free"), "{table}");
    let refused = bench.refused("validate a.hkm --run-recorded --madv-free dontneed");
    assert!(refused.contains("changes the recording, not the program"), "{refused}");
}

#[test]
fn who_called_madvise_is_named() {
    let Some((bench, _)) = recorded("advised", "--stacks") else { return };
    let result = bench.json("sim a.hkm --thp madvise --by site");
    let advisers = result["advisers"].as_array().expect("advisers");
    let of = |function: &str| -> &Value {
        advisers
            .iter()
            .find(|adviser| adviser["caller"].as_str().is_some_and(|caller| caller.starts_with(function)))
            .unwrap_or_else(|| panic!("no {function} in {advisers:?}"))
    };
    let advising = of("advising");
    let figures = ["calls", "bytes_advised", "huge_pages_installed"].map(|name| number(advising, name));
    assert_eq!(figures, [1, 4 * HUGE, 4]);
    assert_eq!(advisers.len(), 1, "{advisers:?}");
    // The memory is that of another function.
    let sites = result["sites"].as_array().expect("call sites");
    let owner = sites.iter().find(|site| site["caller"].as_str().is_some_and(|caller| caller.starts_with("mapped")));
    assert_eq!(owner.map(|site| number(site, "touches")), Some(8 * 512), "{sites:?}");
    let text = bench.ok("sim a.hkm --thp madvise --by site");
    assert!(text.contains("who asked for huge pages") && text.contains("advising"), "{text}");
}

/// Copies are installs of less than a huge page, too, and each has its reason: the one for all pages of the program's memory.
#[test]
fn copies_say_why_they_are_not_huge() {
    for (case, kernel, reason) in [
        ("copies", "6.18", Some("shared_after_fork")),
        ("zeros-split", "6.18", Some("huge_zero_page_split")),
        ("read-first", "6.12", Some("huge_zero_page_split")),
        ("read-first", "6.18", None),
    ] {
        let Some((bench, _)) = recorded(case, "") else { return };
        let result = bench.json(&format!("sim a.hkm --thp madvise --kernel {kernel}"));
        let of = |value: &Value, key: &str| value[key].as_array().cloned().unwrap_or_default();
        let all: Vec<Value> = of(&result, "regions").iter().flat_map(|region| of(region, "obstacles")).collect();
        let found = all.iter().filter(|found| found["place"] == reason.unwrap_or("huge_zero_page_split"));
        // After a fork a page of the C library may be copied, too.
        let installs = found.map(|found| number(found, "installs")).max().unwrap_or_default();
        assert_eq!(installs, if reason.is_some() { 4 * 512 } else { 0 }, "{case}, Linux {kernel}: {all:?}");
        let explained: u64 = all.iter().map(|found| number(found, "installs")).sum();
        let not_huge = number(&result, "installs.total") - number(&result, "installs.by_kind.thp");
        // The first reads got huge zero pages.
        let huge_zeros = if case == "copies" { 0 } else { 4 };
        assert_eq!(explained, not_huge - huge_zeros, "{case}, Linux {kernel}: {result}");
    }
}

#[test]
fn shared_memory_is_counted_by_kind_with_its_lever() {
    let Some((bench, _)) = recorded("shared", "") else { return };
    let result = bench.json("sim a.hkm --thp always");
    assert_eq!(number(&result, "traps_outside.shared_memory"), 3 * 512);
    assert_eq!(number(&result, "mapped_outside.shared_memory.bytes"), 3 * HUGE);
    assert_eq!(number(&result, "mapped_outside.shared_memory.mappings"), 1);
    let text = bench.ok("sim a.hkm --thp always");
    assert!(text.contains("shared memory") && text.contains("shmem_enabled"), "{text}");
    std::fs::write(bench.path("a.json"), result.to_string()).expect("a file");
    bench.ok("report a.json -o a.html");
    let html = std::fs::read_to_string(bench.path("a.html")).expect("a report");
    assert!(html.contains("shmem_enabled"), "the report names what decides, too");
}

/// 64 MiB in pieces, in glibc's heap of hugetlb pages. A pool that has all of it is predicted as such; one that has a
/// quarter is told to be too small, with the memory that is missing.
#[test]
fn a_pool_that_is_too_small_for_a_heap_is_told() {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = meminfo.lines().find_map(|line| line.strip_prefix("HugePages_Free:")?.trim().parse::<u64>().ok());
    // The recorder gets the setting, too.
    if free.unwrap_or_default() < 60 {
        return eprintln!("skipped: no hugetlb pool on this machine with 60 free pages (vm.nr_hugepages)");
    }
    let bench = Bench::new();
    if !can_record() || bench.compile(data("memory-answers.c"), "app", &["-O1"]).is_none() {
        return;
    }
    let mut command = bench.command("record --memory -o a.hkm -- ./app pieces");
    command.env("GLIBC_TUNABLES", "glibc.malloc.hugetlb=2:glibc.malloc.mmap_threshold=1073741824");
    assert!(command.output().expect("hksim starts").status.success());
    let all = bench.json("sim a.hkm");
    if number(&all, "hugetlb_bytes_peak") == 0 {
        return eprintln!("skipped: this C library has no glibc.malloc.hugetlb");
    }
    // A mapping of one page holds three or four pieces.
    assert!((32 * HUGE..=44 * HUGE).contains(&number(&all, "hugetlb_bytes_peak")), "{all}");
    assert_eq!(number(&all, "hugetlb_maps_failed"), 0);
    let few = bench.json("sim a.hkm --hugetlb-pool 16");
    assert!(number(&few, "hugetlb_bytes_peak") <= 16 * HUGE, "{few}");
    assert!(number(&few, "hugetlb_maps_failed") > 0 && number(&few, "hugetlb_bytes_failed") >= 16 * HUGE, "{few}");
    let text = bench.ok("sim a.hkm --hugetlb-pool 16");
    assert!(text.contains("the hugetlb pool is too small"), "{text}");
}

#[test]
fn a_family_has_one_total() {
    let Some((bench, _)) = recorded("family", "") else { return };
    let result = bench.json("sim a.hkm --thp never");
    let folder = std::fs::read_dir(bench.path("a.hkm.processes")).expect("children");
    let children: Vec<Value> = folder
        .map(|entry| entry.expect("an entry").path())
        .map(|path| bench.json(&format!("sim {} --thp never", path.display())))
        .collect();
    assert_eq!(children.len(), 2);
    assert_eq!(number(&result, "family.processes"), 3);
    for figure in ["installs", "faults", "traps"] {
        let path = if figure == "installs" { "installs.total" } else { figure };
        let sum: u64 = children.iter().chain([&result]).map(|each| number(each, path)).sum();
        assert_eq!(number(&result, &format!("family.{figure}")), sum, "{figure}");
    }
    // One child at a time: its copy of the parent's memory, and its own.
    let [parent, child] = [&result, &children[0]].map(|each| number(each, "rss_bytes_peak"));
    let peak = number(&result, "family.rss_bytes_peak");
    assert!((child + parent - (64 << 10)..=child + parent).contains(&peak), "{parent} + {child}: {peak}");
    let text = bench.ok("sim a.hkm --thp never");
    assert!(text.contains("all 3 processes of the fork family"), "{text}");
}
