//! docs/reference/policy-flags.md, generated from the table of flags.

use std::fs;
use std::path::Path;

use hksim_explore::flags::table::{FLAGS, Flag};
use hksim_policy::flags as policy;

/// The text of docs/reference/policy-flags.md.
fn markdown() -> String {
    let mut text = String::from(HEAD);
    for flag in FLAGS.iter() {
        let Flag { name, help, .. } = flag;
        // A bar would end the cell.
        let values = flag.values_text().replace('|', "\\|");
        let field = policy::Flag::find(name).map(|flag| format!("`{}`", flag.field)).unwrap_or_default();
        text += &format!("| `--{name}` | {field} | {values} | {} | {help} |\n", flag.default_text());
    }
    text
}

const HEAD: &str = "# Policy flags

This page lists the flags of the allocator, of the program and of the simulated kernel. It is generated from
`crates/policy/src/policy/flags.rs` and `crates/explore/src/flags/table.rs`; a test compares them.

- Lists: `sweep` and `validate` take lists (`--superslab 1M,2M`). Every combination is one design; the first flag varies slowest.
  A range of sizes, counts or times doubles: `--superslab 256K..4M` is `256K,512K,1M,2M,4M`. Values of `--mthp` are separated by slashes: `--mthp default/64K=always`.
- Names: the column Field has the name that a setting has in results, in `policy`. A policy file (`--policy FILE.toml`) takes
  both: the name and words of the flag (`purge-delay = \"100ms\"`), or the field with its value (`purge_delay_ns = 100000000`).
- Precedence: a flag overrides the policy file, which overrides the preset (`--preset default`, `hakmem` or `lean`). The defaults
  below are those of `default`. `lean` is `--huge-heaps 0 --huge-fill 75`; `hksim run` starts from it.
- Units: sizes are binary (K, M, G, T), counts are decimal (k, M, G).
- `--huge` without a value means never,thp,hugetlb in `sweep` and `validate`, else thp.
- `--kernel`, `--thp`, `--mthp`, `--hugetlb-pool`, `--zero-page`, `--memory-limit`, `--khugepaged`, `--max-ptes-none`, `--pages-to-scan` and `--scan-sleep-millisecs` describe a simulated kernel, so `replay` and `validate`
  of a trace refuse them. `--kernel host` uses all settings of this machine, as `validate` does; the other flags override single settings.
- A [memory recording](memory-recording.md) has an allocator of its own: `sim`, `sweep` and `validate` then take the flags of the kernel,
  and three edits of the recording. `--advise none|all|heap|>=SIZE|drop` (default none) advises mappings with `MADV_HUGEPAGE` beside the
  program's own advice, or drops that advice. `--thp-prctl recorded|ignored|disabled` (default recorded) applies the program's
  `PR_SET_THP_DISABLE`, ignores it, or disables huge pages from the start. `--madv-free recorded|dontneed` (default recorded) lets the program's
  `MADV_FREE` drop pages at once, as `MADV_DONTNEED`: memory and faults are then ranges, because a recording does not show which of
  these pages were written again. All take lists in `sweep`.
- `--tlb CORE` (`sim` only) selects the core whose data TLB is modelled; `hksim sim --help` lists them.

`--huge collapse` calls `MADV_COLLAPSE` once per SuperSlab, and again after memory of the SuperSlab was purged. SuperSlabs below 2M are
collapsed together with the others in the same 2 MiB. Blocks above half a SuperSlab are not collapsed.

`--huge mthp-SIZE` requires that SIZE is the largest size that the kernel gives to advised memory, and `--huge system`
that it gives huge pages to all memory. `sim` and `sweep` set the simulated modes accordingly, unless `--thp` or `--mthp`
is given. On a machine with other modes, `run` and `replay` refuse these values and `validate` skips them; the message names the
commands that set the modes.

| Flag | Field | Values | Default | Meaning |
|---|---|---|---|---|
";

/// `HKSIM_UPDATE_DOCS=1` writes the page instead of comparing it.
#[test]
fn the_page_matches_the_table() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/policy-flags.md");
    if std::env::var_os("HKSIM_UPDATE_DOCS").is_some() {
        fs::write(&page, markdown()).expect("docs/reference/policy-flags.md cannot be written");
    }
    let written = fs::read_to_string(&page).expect("docs/reference/policy-flags.md cannot be read");
    assert!(
        written == markdown(),
        "docs/reference/policy-flags.md is out of date; run this test with HKSIM_UPDATE_DOCS=1"
    );
}
