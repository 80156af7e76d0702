//! docs/reference/allocator-settings.md, generated from the table of settings.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use hksim_explore::knobs::{Knob, knobs};

const HEAD: &str = "# Settings of other allocators

This page lists the settings that `hksim advise` names, and others of glibc, jemalloc, mimalloc and gperftools that change
faults or memory. It is generated from `crates/explore/src/knobs/knobs.tsv`; a test plays each line on the libraries of the
machine, with the setting and without it, and compares them with the column *shows as*.

- Versions: `2.35+` is 2.35 and all later ones; `2.1-2` is 2.1 up to the last version of 2. `advise` leaves out lines that do
  not hold for the installed version. The first version is the oldest that was played, or that its documentation names.
- `{}` is the number of the flag: blocks, bytes of `--huge-cache`, KiB of `--prewarm`, milliseconds of `--purge-delay`.
  `{<=N}`: only up to N. Replace the words `FILE` and `LIMIT` (bytes).
- Flag: the [policy flag](policy-flags.md) of hksim's allocator that comes closest, with its value.
- `gperftools` is the library `libtcmalloc`. Google's TCMalloc is another allocator, without these settings.
- Variables are inherited: set them for the program alone (`env VAR=VALUE program`). A launcher that runs under mimalloc with
  `MIMALLOC_ALLOW_THP=0` switches huge pages off for all programs that it starts.
- In jemalloc up to 5.3.0, `dirty_decay_ms:0` with `muzzy_decay_ms:-1` drops unused pages with MADV_DONTNEED and frees none
  with MADV_FREE, so `advise` refuses the pair. 5.3.1 frees them with MADV_FREE.

The column *shows as* names a load, a figure of it and how the figure changes. Loads:

| Load | Does |
|---|---|
| blocks | allocates 128 MiB in blocks of 32 KiB, writes them, frees them |
| wait | the same; then, for up to 1.5 s, allocates and frees blocks of 2 MiB |
| wait-large | the same with blocks of 4 MiB |
| holes | as wait, but frees every second 512 KiB only |
| large | one block of 40 MiB |
| cache128, cache768, cache4096 | 200 blocks of that size, freed by the thread that allocated them |
| cache1024 | 4096 such blocks, 50 times |
| threads | more threads than allocators have arenas, with a block each |

Figures: *calls* are system calls of the load whose arguments have the word, *all-calls* count from the program's start;
*huge_kib* is the memory in huge pages; *rss_kib* the RSS at the end; *thp_enabled* the line of that name in
`/proc/PID/status`; *purge_ms* the time after the last free until three quarters of the RSS are gone; *kept* are free blocks
that the thread keeps, from the allocator's statistics; *arenas* those in use. Changes: *grows* is by half or more, *about* is
plus or minus half.
";

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn row(knob: &Knob) -> String {
    let flag = match (knob.flag, knob.value) {
        (None, _) => String::new(),
        (Some(flag), value) => format!("`--{flag} {value}`"),
    };
    let against = knob.against.map_or(String::new(), |against| format!(", against `{against}`"));
    let (source, address) = knob.source.rsplit_once(", ").unwrap_or((knob.source, ""));
    format!(
        "| `{}` | {} | {} | {flag} | {}{against} | [{source}]({address}) |",
        cell(knob.setting),
        knob.versions,
        cell(knob.effect),
        cell(knob.observable)
    )
}

fn markdown() -> String {
    let mut page = HEAD.to_string();
    for allocator in ["glibc", "jemalloc", "mimalloc", "gperftools", "systemd"] {
        write!(page, "\n## {allocator}\n\n| Setting | Versions | Effect | Flag | Shows as | Source |\n|---|---|---|---|---|---|\n")
            .expect("text");
        for knob in knobs().filter(|knob| knob.allocator == allocator) {
            writeln!(page, "{}", row(&knob)).expect("text");
        }
    }
    page
}

#[test]
fn the_page_is_that_of_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/allocator-settings.md");
    if std::env::var_os("HKSIM_UPDATE_DOCS").is_some() {
        fs::write(&path, markdown()).expect("the page cannot be written");
    }
    let written = fs::read_to_string(&path).expect("the page cannot be read");
    assert!(written == markdown(), "{} is out of date; run this test with HKSIM_UPDATE_DOCS=1", path.display());
}
