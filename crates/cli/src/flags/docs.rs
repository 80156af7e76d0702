//! docs/policy-flags.md, made from the table of flags.

use std::fs;
use std::path::Path;

use super::table::{FLAGS, Flag, NOT_SIMULATED};

/// The text of docs/policy-flags.md.
fn markdown() -> String {
    let mut text = String::from(HEAD);
    for flag in FLAGS {
        let Flag { name, help, .. } = flag;
        text += &format!("| `--{name}` | {} | {} | {help} |\n", flag.values_text(), flag.default_text());
    }
    text +=
        "\n## Known, but not simulated\n\nEach is refused, with the mend.\n\n| Flag | Value | Why |\n|---|---|---|\n";
    for (flag, value, why) in NOT_SIMULATED {
        let value = match value {
            "*" => "any other".to_string(),
            value => format!("`{value}`"),
        };
        text += &format!("| `--{flag}` | {value} | {why} |\n");
    }
    text
}

const HEAD: &str = "# Policy flags

Made from the table in `crates/cli/src/flags/table.rs`; a test holds them equal.

`sim` and `replay` take one value of each flag, `sweep` and `validate` lists of them (`--superslab 1M,2M`): every
combination is one design, the first flag varying slowest. A flag counts before the policy file (`--policy FILE.toml`, the
field names of `policy` in any JSON result), and that before the preset (`--preset default` or `hakmem`; defaults below are those of `default`).

Sizes are binary (K, M, G, T), counts decimal (k, M, G). `--huge` may stand bare: in `sweep` and `validate` it then means
never,thp,hugetlb, elsewhere thp. A word behind it is its value only if it consists of its values, so that `--huge app.hkt` reads a trace.

`--kernel`, `--thp`, `--mthp` and `--hugetlb-pool` describe a simulated kernel: `replay` and `validate` run on the one that is there, and
refuse them. `--kernel host` takes everything from this machine, so that a prediction is the one that `validate` compares; other flags still count before it.
`--mthp 64K=always,256K=madvise` sets the modes in `/sys/kernel/mm/transparent_hugepage/hugepages-*kB/enabled`; as its values have commas, a list of them has slashes: `--mthp default/64K=always`. `sim` also takes `--tlb CORE`, the core whose data TLB is modelled (`hksim sim --help` names them).

Three kinds of `--huge` need a word more. `collapse` calls `MADV_COLLAPSE` on a SuperSlab when its last slab is taken, once, until some of its
memory is purged; a SuperSlab below 2M is collapsed together with those that share its huge page; blocks larger than half a SuperSlab are left alone.
`mthp-SIZE` and `thp-always` make the calls of `thp`, and none: they say which modes the kernel has (SIZE is the largest size that advice gets;
everybody gets 2M). `sim` and `sweep` set the simulated kernel so, unless `--thp` says otherwise; `replay` refuses them on a machine with other modes, and
`validate` skips them, both with the commands that set the modes. `hugetlb` falls back to `thp`, and to 4K pages where the advice is refused: all counted.

| Flag | Values | Default | Meaning |
|---|---|---|---|
";

/// `HKSIM_UPDATE_DOCS=1` writes the page instead of comparing it.
#[test]
fn the_page_says_what_the_table_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policy-flags.md");
    if std::env::var_os("HKSIM_UPDATE_DOCS").is_some() {
        fs::write(&page, markdown()).expect("docs/policy-flags.md cannot be written");
    }
    let written = fs::read_to_string(&page).expect("docs/policy-flags.md cannot be read");
    assert!(written == markdown(), "docs/policy-flags.md is old; run this test with HKSIM_UPDATE_DOCS=1");
}
