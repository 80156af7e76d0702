//! docs/reference/policy-flags.md, generated from the table of flags.

use std::fs;
use std::path::Path;

use super::table::{FLAGS, Flag};

/// The text of docs/reference/policy-flags.md.
fn markdown() -> String {
    let mut text = String::from(HEAD);
    for flag in FLAGS.iter() {
        let Flag { name, help, .. } = flag;
        text += &format!("| `--{name}` | {} | {} | {help} |\n", flag.values_text(), flag.default_text());
    }
    text
}

const HEAD: &str = "# Policy flags

Generated from `crates/policy/src/flags.rs` and `crates/cli/src/flags/table.rs`; a test compares them.

`sim` and `replay` take one value of each flag. `sweep` and `validate` take lists (`--superslab 1M,2M`): every combination is one
design, and the first flag varies slowest. A flag overrides the policy file (`--policy FILE.toml`, with the field names of `policy` in any
JSON result). The file overrides the preset (`--preset default` or `hakmem`; the defaults below are those of `default`).

Sizes are binary (K, M, G, T), counts are decimal (k, M, G). The value of `--huge` is optional: without one, `sweep` and `validate` take
never,thp,hugetlb, and other commands take thp. The next word is its value only if it is a list of valid values, so `--huge app.hkt` reads a trace.

`--kernel`, `--thp`, `--mthp` and `--hugetlb-pool` describe a simulated kernel. `replay` and `validate` run on the real kernel and refuse them.
`--kernel host` takes all settings from this machine, which gives the prediction that `validate` compares; other flags still override it.
`--mthp 64K=always,256K=madvise` sets the modes in `/sys/kernel/mm/transparent_hugepage/hugepages-*kB/enabled`. As its values have commas, slashes separate a list of them: `--mthp default/64K=always`. `sim` also takes `--tlb CORE`, the core whose data TLB is modelled (`hksim sim --help` names them).

Some values of `--huge` need a longer explanation:

- `collapse` calls `MADV_COLLAPSE` on a SuperSlab when its last slab is taken, once, until some of its memory is purged. A SuperSlab below 2M is
  collapsed together with those that share its huge page. Blocks larger than half a SuperSlab are not collapsed.
- `mthp-SIZE` makes the same calls as `thp` and expects multi-size THPs: SIZE is the largest size that the kernel gives to advised memory.
- `system` makes no call and expects the kernel to give huge pages to all memory. (Its name was `thp-always`.)
- `hugetlb` falls back to `thp`, and to 4K pages if that advice is refused. Each fallback is counted.

`sim` and `sweep` set the modes of the simulated kernel to those that `mthp-SIZE` and `system` expect, unless `--thp` or `--mthp` is given. On a machine with other modes,
`run` and `replay` refuse these two values and `validate` skips them; the message contains the commands that set the modes.

| Flag | Values | Default | Meaning |
|---|---|---|---|
";

/// `HKSIM_UPDATE_DOCS=1` writes the page instead of comparing it.
#[test]
fn the_page_says_what_the_table_says() {
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
