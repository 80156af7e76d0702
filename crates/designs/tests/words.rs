//! Designs from words of a command line.

use std::cell::RefCell;

use hksim_designs::{DesignWords, Label, WordsError, flags, neighbours, settings_changed};

fn words(line: &str) -> DesignWords {
    let mut parts = line.split(' ');
    let names = parts.next().unwrap_or_default().to_string();
    let given =
        parts.map(|part| part.split_once('=').expect("FLAG=WORDS")).map(|(flag, words)| (flag.into(), words.into()));
    DesignWords { names, given: given.collect() }
}

fn labels(line: &str) -> Result<Vec<Label>, String> {
    words(line).labels(&|_| {}).map_err(|why| why.to_string())
}

/// The words of some flags in each design that a line spans.
fn spanned(line: &str, shown: &[&str]) -> Vec<String> {
    let one = |label: &Label| {
        let flags = flags(label).into_iter().filter(|(flag, _)| shown.contains(flag));
        flags.map(|(_, word)| word).collect::<Vec<_>>().join(" ")
    };
    labels(line).expect(line).iter().map(one).collect()
}

#[test]
fn lists_span_designs_and_the_first_flag_varies_slowest() {
    assert_eq!(
        spanned("page-heap link=lazy,eager keep-free=0,1M", &["link", "keep-free"]),
        ["lazy 0", "lazy 1M", "eager 0", "eager 1M"]
    );
    assert_eq!(spanned("bump chunk=64K..256K", &["chunk"]), ["64K", "128K", "256K"]);
    // A design without the flag is one row.
    assert_eq!(
        spanned("bump,page-heap advise-huge=yes,no", &["design", "advise-huge"]),
        ["bump", "page-heap yes", "page-heap no"]
    );
}

#[test]
fn words_that_mean_the_same_are_one_design_and_a_note() {
    let notes = RefCell::new(Vec::new());
    let labels = words("bump,bump chunk=1M,1024K").labels(&|note| notes.borrow_mut().push(note.to_string()));
    assert_eq!(labels.expect("designs").len(), 1);
    assert_eq!(
        *notes.borrow(),
        [
            "--design: bump is in the list twice; the second is left out",
            "--chunk: 1024K is in the list twice; the second is left out"
        ]
    );
}

#[test]
fn what_is_no_design_is_one_sentence() {
    for (line, why) in [
        ("pageheap", "--design pageheap: unknown; designs are bump, page-heap; did you mean page-heap?"),
        ("", "--design : unknown; designs are bump, page-heap"),
        ("bump link=lazy", "--link is no setting of the design bump, which has --chunk"),
        ("bump chunk=5000", "--chunk `5000` is out of range (bytes; 4K to 1G, in whole pages)"),
        ("bump chunk=", "--chunk a value is missing"),
        ("page-heap span-page=12K", "--span-page `12K` is out of range (bytes; 4K to 256K, a power of two)"),
        ("page-heap batch=1", "--batch `1` is out of range (number; 2 to 1024)"),
        ("page-heap link=lasy", "--link `lasy`: expected one of eager, lazy; did you mean lazy?"),
        (
            "page-heap span-page=8K,128K grow=64K",
            "--design page-heap: --grow must be a multiple of --span-page, because the heap grows by whole pages",
        ),
    ] {
        assert_eq!(labels(line).expect_err(line), why);
    }
    let list = words("page-heap batch=2..8").label(&|_| {}).expect_err("a list");
    assert_eq!(list.to_string(), "--batch 2..8: this command takes one design; use `hksim sweep` for lists");
    let alone = DesignWords { names: String::new(), given: vec![("chunk".into(), "4K".into())] };
    assert_eq!(alone.is_given(), Err(WordsError::NoDesign { flag: "chunk".into(), design: "bump".into() }));
}

#[test]
fn a_word_names_a_design_with_settings() {
    let label = DesignWords::of_word("page-heap+link=lazy+batch=8").and_then(|words| words.label(&|_| {}));
    let label = label.expect("a design");
    assert_eq!((settings_changed(&label), &label.settings["batch_objects_max"]), (2, &8.into()));
    let refused = DesignWords::of_word("page-heap+link").expect_err("no value");
    assert_eq!(refused.to_string(), "`+link` is not a setting of a design; write +FLAG=VALUE");
}

#[test]
fn neighbours_differ_in_one_setting_each() {
    let label = labels("page-heap").expect("a design").remove(0);
    let neighbours = neighbours(&label);
    assert!(neighbours.iter().all(|neighbour| settings_changed(&neighbour.label) == 1));
    let named: Vec<String> = neighbours.iter().map(|n| format!("{} {} {}", n.flag, n.word, n.instead_of)).collect();
    for wanted in ["link lazy eager", "batch 128 32", "batch 8 32", "advise-huge yes no"] {
        assert!(named.contains(&wanted.to_string()), "{wanted}: {named:?}");
    }
}
