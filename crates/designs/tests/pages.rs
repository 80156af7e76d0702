//! The manuals about designs: the reference page is that of the list, and the tutorial's code is the bump design.

use std::fs;
use std::path::{Path, PathBuf};

use hksim_designs::{About, all};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

const HEAD: &str = "# Designs

This page lists the allocators that `sim`, `sweep`, `explain`, `validate` and `replay` take with `--design NAME`, and the flags
of their settings. It is generated from the list in `crates/designs/src/listed.rs`; a test compares them. [Add your
allocator](../tutorial/your-allocator.md) adds one.

- `sweep` and `validate` take lists, also of names: `--design bump,page-heap --link eager,lazy`. Every combination is one design;
  a range of sizes or numbers doubles (`--batch 8..64`). A design without the flag is one row.
- Flags of the program and of the simulated kernel apply as they do to SuperSlab: `--touch`, `--memory-policy`, `--thp`,
  `--mthp`, `--kernel` and others of [policy flags](policy-flags.md). Flags of the policy are refused, because they are
  SuperSlab's.
- The events of all threads run on one thread, in the trace's order, and each thread has its number: caches of threads are
  simulated and replayed. `--mode threaded` is refused.
- A design has no time: a profile gives it system time only. `--shard` is refused; `--resume` works.
- In results, `policy.design` is the name and `policy.settings` has the fields below.
";

fn section(about: &About) -> String {
    let mut text = format!(
        "\n## {}\n\nIt is {}.\n\n| Flag | Field | Values | Default | Meaning |\n|---|---|---|---|---|\n",
        about.name, about.summary
    );
    for setting in about.settings {
        let (values, default) = (setting.values.text(), setting.show(&about.default));
        text += &format!("| `--{}` | `{}` | {values} | {default} | {} |\n", setting.flag, setting.field, setting.help);
    }
    text
}

/// `HKSIM_UPDATE_DOCS=1` writes the page instead of comparing it.
#[test]
fn the_reference_page_is_that_of_the_list() {
    let path = repository().join("docs/reference/designs.md");
    let text = HEAD.to_string() + &all().iter().map(section).collect::<String>();
    if std::env::var_os("HKSIM_UPDATE_DOCS").is_some() {
        fs::write(&path, &text).expect("docs/reference/designs.md cannot be written");
    }
    let written = fs::read_to_string(&path).expect("docs/reference/designs.md cannot be read");
    assert!(written == text, "docs/reference/designs.md is out of date; run this test with HKSIM_UPDATE_DOCS=1");
}

/// The blocks of Rust code of a page.
fn blocks(page: &str) -> Vec<String> {
    let (mut blocks, mut open) = (Vec::new(), None::<String>);
    for line in page.lines() {
        match &mut open {
            Some(block) if line == "```" => {
                blocks.push(std::mem::take(block));
                open = None;
            }
            Some(block) => *block += &format!("{line}\n"),
            None if line == "```rust" => open = Some(String::new()),
            None => {}
        }
    }
    blocks
}

#[test]
fn the_tutorial_shows_the_whole_bump_design() {
    let page = fs::read_to_string(repository().join("docs/tutorial/your-allocator.md")).expect("the tutorial");
    let file = fs::read_to_string(repository().join("crates/designs/src/bump.rs")).expect("the design");
    let mut rest = file.as_str();
    for block in blocks(&page) {
        let (before, after) =
            rest.split_once(&block).unwrap_or_else(|| panic!("not in bump.rs, or not next:\n{block}"));
        assert!(before.trim().is_empty(), "the tutorial leaves out:\n{before}");
        rest = after;
    }
    assert!(rest.trim().is_empty(), "the tutorial leaves out:\n{rest}");
}

#[test]
fn every_setting_is_a_field_with_a_flag_and_reads_its_default() {
    for about in all() {
        let fields = about.default.as_object().expect("settings are an object");
        assert_eq!(fields.len(), about.settings.len(), "{}", about.name);
        about.check(&about.default).expect("the defaults fit together");
        for setting in about.settings {
            let word = setting.show(&about.default);
            assert_eq!(setting.parse(&word).as_ref(), Ok(&fields[setting.field]), "{} --{}", about.name, setting.flag);
        }
    }
}
