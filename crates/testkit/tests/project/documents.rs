//! Rules for the manuals: every link and anchor resolves, every page is in the book, and every page named in source
//! exists. Everything named in ARCHITECTURE.md and in the lab's list of tests exists, too.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::root;

/// Pages outside docs/ whose links are also checked.
const OTHER_PAGES: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
    "traces/README.md",
    "crates/native/README.md",
    "python/README.md",
    "tools/valgrind-touch/README.md",
];
/// Source folders whose messages and comments name pages of docs/.
const SOURCE_FOLDERS: &[&str] = &["crates", "traces", "tools", "notebooks", "python", "benches", "fuzz", ".ci"];

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()))
}

/// Files below `folder` with one of these extensions, without build outputs and generated folders.
fn files(folder: &Path, extensions: &[&str], found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() {
            if name != "target" && name != ".git" && name != "venv" && name != "corpus" {
                files(&path, extensions, found);
            }
        } else if path.extension().is_some_and(|extension| extensions.iter().any(|one| extension == *one)) {
            found.push(path);
        }
    }
}

fn pages_of_the_book() -> Vec<PathBuf> {
    let mut pages = Vec::new();
    files(&root().join("docs"), &["md"], &mut pages);
    assert!(pages.len() > 20, "the pages were found");
    pages
}

/// The prose lines of a page: neither fenced nor indented code.
fn prose(text: &str) -> Vec<&str> {
    let (mut fenced, mut after_blank, mut indented) = (false, true, false);
    let mut lines = Vec::new();
    for line in text.lines() {
        let fence = line.trim_start().starts_with("```");
        indented = line.starts_with("    ") && (after_blank || indented);
        after_blank = line.trim().is_empty();
        if !fence && !fenced && !indented {
            lines.push(line);
        }
        fenced ^= fence;
    }
    lines
}

/// A line without its code spans.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("")
}

/// The targets of a page's links and images.
fn links(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(text) {
        let line = without_code(line);
        let mut rest = line.as_str();
        while let Some((_, after)) = rest.split_once("](") {
            let end = after.find(')').unwrap_or_else(|| panic!("a link without its end: {line}"));
            found.push(after[..end].to_string());
            rest = &after[end..];
        }
    }
    found
}

/// The anchors of a page's headings, in the form that GitHub and mdBook generate.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for line in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let slug: String = title
            .trim()
            .chars()
            .filter(|letter| letter.is_alphanumeric() || "-_ ".contains(*letter))
            .map(|letter| if letter == ' ' { '-' } else { letter.to_ascii_lowercase() })
            .collect();
        let again = (1..).map(|count| format!("{slug}-{count}"));
        let unused = std::iter::once(slug.clone()).chain(again).find(|slug| !found.contains(slug));
        found.extend(unused);
    }
    found
}

/// Resolves `.` and `..` lexically.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut path, part| {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
        path
    })
}

/// The error in `link` on the page `from`, if any. `text` contains the page.
fn broken(from: &Path, text: &str, link: &str) -> Option<String> {
    if ["http://", "https://", "mailto:"].iter().any(|scheme| link.starts_with(scheme)) {
        return None;
    }
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
    let target =
        if path.is_empty() { from.to_path_buf() } else { normal(&from.parent().expect("a folder").join(path)) };
    let docs = root().join("docs");
    if !target.exists() {
        return Some("no such file".to_string());
    }
    if from.starts_with(&docs) && !target.starts_with(&docs) {
        return Some("leaves docs/, but the book contains nothing else".to_string());
    }
    if from.starts_with(&docs) && target.ends_with("SUMMARY.md") {
        return Some("is not a page of the book".to_string());
    }
    let text = if path.is_empty() { text.to_string() } else { fs::read_to_string(&target).unwrap_or_default() };
    anchor.filter(|anchor| !anchors(&text).contains(*anchor)).map(|_| "no such heading".to_string())
}

#[test]
fn every_link_resolves() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    let others = OTHER_PAGES.iter().map(|page| root().join(page));
    for page in pages_of_the_book().into_iter().chain(others) {
        let text = read(&page);
        for link in links(&text) {
            checked += 1;
            if let Some(why) = broken(&page, &text, &link) {
                wrong.push(format!("{}: {link}: {why}", page.display()));
            }
        }
    }
    assert!(checked > 80, "links were found: {checked}");
    assert!(wrong.is_empty(), "broken links:\n{}", wrong.join("\n"));
}

#[test]
fn broken_links_are_found() {
    let page = root().join("docs/README.md");
    let text = "# A `title`, twice\n\n## Twice\n## Twice\n\n    [code](nowhere.md)\n\nSee [this](nowhere.md), `[code](x)`.\n\
                ```\n[code](nowhere.md)\n```\n![picture](images/sweep.svg)";
    assert_eq!(links(text), ["nowhere.md", "images/sweep.svg"]);
    assert_eq!(anchors(text), ["a-title-twice", "twice", "twice-1"].map(str::to_string).into());
    let verdict = |link| broken(&page, text, link);
    assert_eq!(verdict("nowhere.md").as_deref(), Some("no such file"));
    assert_eq!(verdict("#nothing").as_deref(), Some("no such heading"));
    assert_eq!(verdict("reference/glossary.md#nothing").as_deref(), Some("no such heading"));
    assert!(verdict("../README.md").expect("an error").starts_with("leaves docs/"));
    assert!(verdict("SUMMARY.md").expect("an error").starts_with("is not a page"));
    for good in ["#twice-1", "images/sweep.svg", "reference/glossary.md#glossary", "https://example.org/x#y"] {
        assert_eq!(verdict(good), None, "{good}");
    }
}

#[test]
fn every_page_is_in_the_summary_once() {
    let docs = root().join("docs");
    let listed = links(&read(&docs.join("SUMMARY.md")));
    let pages: BTreeSet<String> = pages_of_the_book()
        .iter()
        .map(|page| page.strip_prefix(&docs).expect("a page of docs/").to_str().expect("UTF-8").to_string())
        .filter(|page| page != "SUMMARY.md")
        .collect();
    assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), pages, "SUMMARY.md lists every page");
    assert_eq!(listed.len(), pages.len(), "SUMMARY.md lists each page once");
}

/// Messages and comments refer to pages as docs/FOLDER/PAGE.
#[test]
fn every_page_that_source_names_exists() {
    let mut sources: Vec<PathBuf> =
        ["test.sh", "try.sh", "ARCHITECTURE.md", "CONTRIBUTING.md"].map(PathBuf::from).into();
    for folder in SOURCE_FOLDERS {
        files(&root().join(folder), &["rs", "sh", "py", "c", "toml", "md", "ipynb"], &mut sources);
    }
    let is_path = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    let mut checked = 0;
    for source in sources {
        let text = read(&root().join(&source));
        for after in text.split("docs/").skip(1) {
            let end = after.find(|letter| !is_path(letter)).unwrap_or(after.len());
            let page = after[..end].trim_end_matches(['.', '/']);
            if [".md", ".json", ".bt", ".svg"].iter().any(|extension| page.ends_with(extension)) {
                checked += 1;
                assert!(root().join("docs").join(page).exists(), "{}: no docs/{page}", source.display());
            }
        }
    }
    assert!(checked > 40, "names of pages were found: {checked}");
}

/// The code spans of a text.
fn code_spans(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Whether a code span names a type or an item of a type, such as `Policy` or `Use::Lost`.
fn is_type(span: &str) -> bool {
    span.starts_with(|letter: char| letter.is_ascii_uppercase())
        && span.contains(|letter: char| letter.is_ascii_lowercase())
        && span.chars().all(|letter| letter.is_ascii_alphanumeric() || "_:".contains(letter))
}

/// Whether a code span names a file or a folder.
fn is_path(span: &str) -> bool {
    span.contains('/') && !span.contains(' ')
}

/// The file or folder that a span names, relative to the root or to crates/.
fn resolved(span: &str) -> Option<PathBuf> {
    [root().join(span), root().join("crates").join(span)].into_iter().find(|path| path.exists())
}

/// Whether `source` contains `word` as a whole word, not as part of a longer identifier.
fn contains_word(source: &str, word: &str) -> bool {
    let is_part = |letter: char| letter.is_alphanumeric() || letter == '_';
    source
        .match_indices(word)
        .any(|(at, _)| !source[..at].ends_with(is_part) && !source[at + word.len()..].starts_with(is_part))
}

/// Whether a source below one of the `folders` declares the type and contains the item after `::`.
fn is_declared(span: &str, folders: &[PathBuf]) -> bool {
    let (name, item) = span.split_once("::").unwrap_or((span, ""));
    let mut sources = Vec::new();
    for folder in folders {
        if folder.is_file() {
            sources.push(folder.clone());
        } else {
            files(folder, &["rs"], &mut sources);
        }
    }
    sources.iter().map(|path| read(path)).any(|source| {
        let kinds = ["struct", "enum", "trait", "type"];
        kinds.iter().any(|kind| contains_word(&source, &format!("{kind} {name}")))
            && (item.is_empty() || contains_word(&source, item))
    })
}

/// The names on a page that do not exist in the source tree: paths, types, and crates in the first cell of a table row.
/// If a row starts with a type and names paths, one of the paths must declare the type.
fn stale_names(page: &str) -> Vec<String> {
    let crates = root().join("crates");
    let mut stale = Vec::new();
    for line in prose(page) {
        let folders: Vec<PathBuf> = code_spans(line).filter(|span| is_path(span)).filter_map(resolved).collect();
        let first_cell = line.strip_prefix('|').and_then(|row| row.split('|').next()).unwrap_or("");
        for span in code_spans(line) {
            let is_wrong = if is_path(span) {
                resolved(span).is_none()
            } else if is_type(span) {
                let in_row = code_spans(first_cell).any(|first| first == span) && !folders.is_empty();
                !is_declared(span, if in_row { &folders } else { std::slice::from_ref(&crates) })
            } else {
                code_spans(first_cell).any(|first| first == span) && !crates.join(span).is_dir()
            };
            if is_wrong {
                stale.push(span.to_string());
            }
        }
    }
    stale
}

#[test]
fn everything_that_the_architecture_names_exists() {
    let page = read(&root().join("ARCHITECTURE.md"));
    assert_eq!(stale_names(&page), [""; 0], "ARCHITECTURE.md contains names that do not exist");
    for entry in fs::read_dir(root().join("crates")).expect("the crates folder") {
        let name = entry.expect("an entry").file_name().into_string().expect("UTF-8");
        assert!(page.contains(&format!("\n| `{name}` |")), "ARCHITECTURE.md has no row for the crate {name}");
    }
}

#[test]
fn stale_names_are_found() {
    let good = "| `policy` | `used`, `--jobs` |\n| `Geometry` | `policy/src/geometry.rs` |\n`Use::Lost`, `fuzz/`, `ARENA_BYTES`";
    assert_eq!(stale_names(good), [""; 0]);
    let bad =
        "| `polity` | a crate |\n| `Driver` | `policy/src/memory.rs` |\n`Use::Found`, `Geometries`, `sim/src/hooks.rs`";
    assert_eq!(stale_names(bad), ["polity", "Driver", "Use::Found", "Geometries", "sim/src/hooks.rs"]);
}

/// The code spans `module::test` of `page` for which no file `module.rs` in the tests of a crate contains the test.
/// `module::*` names the whole file.
fn stale_tests(page: &str) -> Vec<String> {
    let mut sources = Vec::new();
    for entry in fs::read_dir(root().join("crates")).expect("the crates folder") {
        files(&entry.expect("an entry").path().join("tests"), &["rs"], &mut sources);
    }
    let exists = |module: &str, test: &str| {
        let mut modules = sources.iter().filter(|path| path.file_stem().is_some_and(|stem| stem == module));
        modules.any(|path| test == "*" || read(path).contains(&format!("fn {test}(")))
    };
    let lines = prose(page);
    let spans = lines.iter().flat_map(|line| code_spans(line));
    spans
        .filter(|span| span.split_once("::").is_some_and(|(module, test)| !exists(module, test)))
        .map(str::to_string)
        .collect()
}

#[test]
fn every_test_of_the_recorder_that_the_lab_names_exists() {
    let page = read(&root().join("docs/lab/recorder-tests.md"));
    assert!(page.matches("::").count() > 20, "names of tests were found");
    assert_eq!(stale_tests(&page), [""; 0]);
    let bad = "`documents::every_link_resolves`, `documents::*`, `documents::gone`, `full_spool::*`";
    assert_eq!(stale_tests(bad), ["documents::gone", "full_spool::*"]);
}

/// The names of kernel rules in the first cells of a page's table rows, between two headings.
fn rule_rows<'a>(page: &'a str, from: &str, to: &str) -> Vec<&'a str> {
    let after = page.split_once(from).unwrap_or_else(|| panic!("the page has no {from}")).1;
    let part = after.split_once(to).unwrap_or_else(|| panic!("the page has no {to}")).0;
    let first_cells = part.lines().filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
    first_cells.filter(|cell| !["Rule", "Fix", "–"].contains(cell)).collect()
}

/// Whether a word is the name of a kernel rule: R1, R13a.
fn is_rule(word: &str) -> bool {
    let Some(number) = word.strip_prefix('R') else { return false };
    let digits = number.trim_end_matches(|letter: char| letter.is_ascii_lowercase());
    (1..=2).contains(&digits.len()) && number.len() <= digits.len() + 1 && digits.bytes().all(|c| c.is_ascii_digit())
}

/// The names of kernel rules in a text.
fn rule_names(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !letter.is_alphanumeric() && letter != '_').filter(|word| is_rule(word))
}

#[test]
fn every_kernel_rule_has_one_row_and_every_named_rule_exists() {
    let page = read(&root().join("docs/reference/kernel-rules.md"));
    let rows = rule_rows(&page, "## Faults", "## Versions");
    let twice: Vec<_> = rows.iter().filter(|rule| rows.iter().filter(|other| other == rule).count() > 1).collect();
    assert!(rows.len() > 50 && rows.iter().all(|rule| is_rule(rule)), "{rows:?}");
    assert!(twice.is_empty(), "rules that share a name: {twice:?}");
    let left_out = rule_rows(&page, "## Not in the model", "## How the rules are checked");
    let known: BTreeSet<&str> = rows.into_iter().chain(left_out).collect();

    let mut sources = Vec::new();
    for folder in ["crates", "tools", "docs"] {
        files(&root().join(folder), &["rs", "py", "md"], &mut sources);
    }
    let mut named = BTreeSet::new();
    for source in sources {
        let text = read(&source);
        let unknown: BTreeSet<&str> = rule_names(&text).filter(|rule| !known.contains(rule)).collect();
        assert!(unknown.is_empty(), "{}: not in docs/reference/kernel-rules.md: {unknown:?}", source.display());
        named.extend(rule_names(&text).map(str::to_string));
    }
    assert!(named.len() > 50, "names of rules were found: {named:?}");
}

#[test]
fn names_of_kernel_rules_are_recognised() {
    let text = "R1/R13a (R18-R20): `R9b`, R4 not RSS, R, R123, R9ab, XR9, R_5 or Rust";
    assert_eq!(rule_names(text).collect::<Vec<_>>(), ["R1", "R13a", "R18", "R20", "R9b", "R4"]);
    let page = "## One\n| Rule | What |\n|---|---|\n| R1 | a |\n| R1 | b |\n## Two\n| R2 | c |\n## Three";
    assert_eq!(rule_rows(page, "## One", "## Two"), ["R1", "R1"]);
    assert_eq!(rule_rows(page, "## Two", "## Three"), ["R2"]);
}

/// The public methods in the `impl` blocks of a source that begin with this line.
fn public_methods<'a>(source: &'a str, block: &str) -> Vec<&'a str> {
    let mut found = Vec::new();
    for part in source.split(&format!("\n{block}\n")).skip(1) {
        let body = part.split("\n}\n").next().unwrap_or(part);
        let names = body.lines().filter_map(|line| {
            let line = line.strip_prefix("    pub ")?;
            line.strip_prefix("unsafe ").unwrap_or(line).strip_prefix("fn ")?.split(['(', '<']).next()
        });
        found.extend(names);
    }
    found
}

#[test]
fn crate_pages_list_the_methods_of_types_that_many_files_implement() {
    for (folder, name, block) in [
        ("linux-mm", "Kernel", "impl Kernel {"),
        ("policy", "Allocator", "impl<M: Memory, G: Geometry> Allocator<M, G> {"),
    ] {
        let folder = root().join("crates").join(folder).join("src");
        let page = read(&folder.join("lib.rs"));
        let mut sources = Vec::new();
        files(&folder, &["rs"], &mut sources);
        let texts: Vec<String> = sources.iter().map(|path| read(path)).collect();
        let methods: Vec<&str> = texts.iter().flat_map(|text| public_methods(text, block)).collect();
        assert!(methods.len() > 25, "methods of {name} were found: {methods:?}");
        let is_listed = |method: &str| page.contains(&format!("]({name}::{method})"));
        let missing: Vec<_> = methods.into_iter().filter(|method| !is_listed(method)).collect();
        assert!(missing.is_empty(), "{}: not in the list of methods: {missing:?}", folder.display());
    }
    let source = "\nimpl A {\n    pub fn one(&self) {\n    }\n    fn two() {}\n}\n\nimpl A {\n    pub unsafe fn three<T>() {}\n}\n\
                  \nimpl B {\n    pub fn four() {}\n}\n";
    assert_eq!(public_methods(source, "impl A {"), ["one", "three"]);
}

/// Broken links of the rendered book, with the anchors that mdBook generates.
fn dead_links(book: &Path) -> Vec<String> {
    let mut pages = Vec::new();
    files(book, &["html"], &mut pages);
    let mut dead = Vec::new();
    for page in pages.iter().filter(|page| !page.ends_with("print.html") && !page.ends_with("404.html")) {
        for link in read(page).split("href=\"").skip(1).filter_map(|rest| rest.split('"').next()) {
            if link.contains(':') {
                continue;
            }
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target =
                if path.is_empty() { page.clone() } else { normal(&page.parent().expect("a folder").join(path)) };
            let has_anchor = || anchor.is_empty() || read(&target).contains(&format!("id=\"{anchor}\""));
            if !target.exists() || !has_anchor() {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    dead
}

#[test]
fn the_book_builds() {
    let Ok(version) = Command::new("mdbook").arg("--version").output() else {
        println!("skipped: the book: mdbook is not installed (cargo install --locked mdbook)");
        return;
    };
    let version = String::from_utf8_lossy(&version.stdout).into_owned();
    let book = Path::new(env!("CARGO_TARGET_TMPDIR")).join("book");
    let mut mdbook = Command::new("mdbook");
    let output = mdbook.arg("build").arg(root().join("docs")).arg("--dest-dir").arg(&book).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("WARN") && !said.contains("ERROR"), "{version}{said}");
    for page in ["index.html", "reference/glossary.html", "lab/corrections.html", "images/sweep.svg"] {
        assert!(book.join(page).exists(), "{version}the book has no {page}");
    }
    let dead = dead_links(&book);
    assert!(dead.is_empty(), "{version}dead links:\n{}", dead.join("\n"));
}
