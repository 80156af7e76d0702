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

`--kernel`, `--thp` and `--hugetlb-pool` describe a simulated kernel: `replay` and `validate` run on the one that is there, and
refuse them. `sim` also takes `--tlb CORE`, the core whose data TLB is modelled (`hksim sim --help` names them).

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
