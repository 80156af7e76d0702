//! docs/reference/policy-flags.md, made from the table of flags.

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

`sim` and `replay` take one value of each flag, `sweep` and `validate` lists of them (`--superslab 1M,2M`): every
combination is one design, the first flag varying slowest. A flag counts before the policy file (`--policy FILE.toml`, the
field names of `policy` in any JSON result), and that before the preset (`--preset default` or `hakmem`; defaults below are those of `default`).

Sizes are binary (K, M, G, T), counts decimal (k, M, G). `--huge` may stand bare: in `sweep` and `validate` it then means
never,thp,hugetlb, elsewhere thp. A word behind it is its value only if it consists of its values, so that `--huge app.hkt` reads a trace.

`--kernel`, `--thp`, `--mthp` and `--hugetlb-pool` describe a simulated kernel: `replay` and `validate` run on the one that is there, and
refuse them. `--kernel host` takes everything from this machine, so that a prediction is the one that `validate` compares; other flags still count before it.
`--mthp 64K=always,256K=madvise` sets the modes in `/sys/kernel/mm/transparent_hugepage/hugepages-*kB/enabled`; as its values have commas, a list of them has slashes: `--mthp default/64K=always`. `sim` also takes `--tlb CORE`, the core whose data TLB is modelled (`hksim sim --help` names them).

Some values of `--huge` need more than a line:

- `collapse` calls `MADV_COLLAPSE` on a SuperSlab when its last slab is taken, once, until some of its memory is purged. A SuperSlab below 2M is
  collapsed together with those that share its huge page. Blocks larger than half a SuperSlab are not collapsed.
- `mthp-SIZE` makes the calls of `thp` and expects multi-size THPs: SIZE is the largest size that the kernel gives to advised memory.
- `system` makes no call and expects that the kernel gives huge pages to all memory. (Its name was `thp-always`.)
- `hugetlb` falls back to `thp`, and to 4K pages where that advice is refused. Each fallback is counted.

`sim` and `sweep` set the modes of the simulated kernel to what `mthp-SIZE` and `system` expect, unless `--thp` or `--mthp` are given. On a machine with other modes,
`run` and `replay` refuse these two and `validate` skips them; the message has the commands that set the modes.

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
    assert!(written == markdown(), "docs/reference/policy-flags.md is old; run this test with HKSIM_UPDATE_DOCS=1");
}
