//! The kernel's work in memory recordings, against arithmetic on programs whose page operations are known.

use serde_json::Value;

use crate::support::recordings::{can_record, data};
use crate::support::{Bench, number};

/// A case of the program, a THP mode, and the figures.
type Case = (&'static str, &'static str, &'static [(&'static str, u64)]);

/// Whether the program could be compiled. Otherwise prints the reason.
fn compiled(bench: &Bench) -> bool {
    bench.compile(data("kernel-work.c"), "work", &["-O1"]).is_some()
}

/// The prediction for one case under a THP mode.
fn predicted(bench: &Bench, case: &str, thp: &str) -> Value {
    let file = format!("{case}.hkm");
    if !bench.path(&file).exists() {
        let line = format!("record --memory -o {file} -- {} {case}", bench.path("work").display());
        // With restartable sequences, the kernel writes to a page of the thread whenever it was preempted. Whether parent or
        // child is first to do so after a fork, and copies the page, depends on the load of the machine.
        let mut command = bench.command(&line);
        let output = command.env("GLIBC_TUNABLES", "glibc.pthread.rseq=0").output().expect("hksim starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    bench.json(&format!("sim {file} --thp {thp}"))
}

#[test]
fn work_is_as_arithmetic_says() {
    let bench = Bench::new();
    if !can_record() || !compiled(&bench) {
        return;
    }
    let cases: &[Case] = &[
        (
            "partial",
            "madvise",
            &[("madv_dontneed_pages", 1), ("madv_dontneed_huge_pages", 1), ("unmapped_huge_pages", 0)],
        ),
        ("partial", "never", &[("madv_dontneed_pages", 1 + 512), ("madv_dontneed_huge_pages", 0)]),
        (
            "collapse",
            "never",
            &[
                ("collapsed_pmds", 2),
                ("collapsed_present_pages", 512 + 3),
                ("madv_dontneed_pages", 0),
                ("madv_dontneed_huge_pages", 0),
            ],
        ),
        ("free", "never", &[("madv_free_pages", 140), ("madv_free_repeated_pages", 40), ("madv_dontneed_pages", 0)]),
        ("move", "never", &[("mremap_pte_tables", 1), ("mremap_pages", 10 + 88), ("mremap_huge_pages", 0)]),
        ("unmap", "never", &[("unmapped_pages", 30 + 14), ("madv_dontneed_pages", 10)]),
    ];
    for (case, thp, figures) in cases {
        let result = predicted(&bench, case, thp);
        for (name, expected) in *figures {
            assert_eq!(number(&result, &format!("page_work.operations.{name}")), *expected, "{case} {name}: {result}");
        }
    }
    let split = |thp| number(&predicted(&bench, "partial", thp), "pmd_splits");
    assert_eq!([split("madvise"), split("never")], [1, 0]);
    let refaults = predicted(&bench, "unmap", "never")["page_work"]["refaults"]["base_4k"].clone();
    assert_eq!(refaults, serde_json::json!([{"returned_bytes_min": 0, "installs": 10}]));
    // The program's and the libraries' own pages are shared, too.
    let fork = predicted(&bench, "fork", "never");
    let of = |name: &str| number(&fork, &format!("page_work.operations.{name}"));
    assert!((50..150).contains(&of("forked_pages")), "{fork}");
    assert_eq!([of("forks"), of("copied_pages"), of("copies_with_split")], [1, 30, 0], "{fork}");
    // Also pages of the stack and of libraries.
    assert!((20..40).contains(&number(&fork, "reuses")), "{fork}");
}
