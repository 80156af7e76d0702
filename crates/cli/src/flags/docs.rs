//! docs/reference/policy-flags.md, generated from the table of flags.

use std::fs;
use std::path::Path;

use super::table::{FLAGS, Flag};

/// The text of docs/reference/policy-flags.md.
fn markdown() -> String {
    let mut text = String::from(HEAD);
    for flag in FLAGS.iter() {
        let Flag { name, help, .. } = flag;
        // A bar would end the cell.
        let values = flag.values_text().replace('|', "\\|");
        text += &format!("| `--{name}` | {values} | {} | {help} |\n", flag.default_text());
    }
    text
}

const HEAD: &str = "# Policy flags

This page lists the flags of the allocator, of the program and of the simulated kernel. It is generated from
`crates/policy/src/policy/flags.rs` and `crates/cli/src/flags/table.rs`; a test compares them.

- Lists: `sweep` and `validate` take lists (`--superslab 1M,2M`). Every combination is one design; the first flag varies slowest. Slashes
  separate a list of `--mthp` values: `--mthp default/64K=always`.
- Precedence: a flag overrides the policy file (`--policy FILE.toml`, with the field names of `policy` in a JSON result), which
  overrides the preset (`--preset default` or `hakmem`). The defaults below are those of `default`.
- Units: sizes are binary (K, M, G, T), counts are decimal (k, M, G).
- `--huge` without a value means never,thp,hugetlb in `sweep` and `validate`, else thp. The next word is its value only if it is a list of
  valid values, so `--huge app.hkt` reads a trace.
- `--kernel`, `--thp`, `--mthp` and `--hugetlb-pool` describe a simulated kernel, so `replay` and `validate` refuse them. `--kernel host`
  takes all settings of this machine, as `validate` does; other flags override it.
- `--tlb CORE` (`sim` only) selects the core whose data TLB is modelled; `hksim sim --help` lists them.

| `--huge` | Detail |
|---|---|
| `collapse` | calls `MADV_COLLAPSE` once, until memory of the SuperSlab is purged. SuperSlabs below 2M are collapsed together with those in the same huge page. Blocks above half a SuperSlab are not collapsed |
| `mthp-SIZE` | makes the calls of `thp` and expects that SIZE is the largest size that the kernel gives to advised memory |
| `system` | expects the kernel to give huge pages to all memory. Former name: `thp-always` |

For `mthp-SIZE` and `system`, `sim` and `sweep` set the simulated modes, unless `--thp` or `--mthp` is given. On a machine with other
modes, `run` and `replay` refuse them and `validate` skips them; the message names the commands that set the modes.

| Flag | Values | Default | Meaning |
|---|---|---|---|
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
