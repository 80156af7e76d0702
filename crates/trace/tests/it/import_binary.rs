//! The importers of other tools' traces, tested with files from an independent encoder, with real files if the tool is
//! installed, and with damaged or hostile files.

use crate::support::{Random, read_all};
use hksim_trace::event::*;
use hksim_trace::hkt::TraceReader;
use hksim_trace::import::{Format, ImportReport, Options, import};
use hksim_trace::row::Row;
use hksim_trace::sites::Stack;
use hksim_trace::source::EventSource;
use hksim_trace::tools::verify;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

const ENCODER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/encode.py");
const FORMATS: [(&str, &str); 6] = [
    ("heaptrack", "heaptrack"),
    ("memray", "memray"),
    ("memray-native", "memray"),
    ("protobuf", "protobuf"),
    ("jemalloc-pa", "jemalloc-pa"),
    ("jemalloc-pa-preprocessed", "jemalloc-pa"),
];

/// Runs the encoder. Returns the events that importing its file must yield. Without Python, prints the reason and
/// returns `None`.
fn encode(format: &str, seed: u64, file: &Path) -> Option<Vec<Value>> {
    let run = Command::new("python3").arg(ENCODER).arg(format).arg(seed.to_string()).arg(file).output();
    let Ok(ran) = run else {
        eprintln!("skipped: there is no python3");
        return None;
    };
    assert!(ran.status.success(), "{format}: {}", String::from_utf8_lossy(&ran.stderr));
    let text = String::from_utf8(ran.stdout).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

/// An event as the encoder prints it.
fn as_json(event: &Event, timed: bool) -> Value {
    let row = Row::of(event);
    let time_ns = timed.then_some(event.time_ns);
    json!([event.thread.0, row.op, row.object, row.size, row.align_log2, row.call, time_ns])
}

/// Imports a file. The import must recognise its format.
fn import_file(file: &Path) -> (ImportReport, Vec<Event>) {
    let out = file.with_extension("hkt");
    let report = import(file, &Options::default(), &out).unwrap();
    let events = read_all(&mut TraceReader::open(&out).unwrap()).unwrap();
    (report, events)
}

/// The totals that other readers report: allocations, peak live bytes, live bytes at the end.
struct Totals {
    allocs: u64,
    peak: u64,
    live: u64,
}

impl Totals {
    fn of(events: &[Event]) -> Totals {
        let (mut totals, mut sizes) = (Totals { allocs: 0, peak: 0, live: 0 }, HashMap::new());
        for event in events {
            match event.op {
                Op::Alloc { object, size, .. } => {
                    sizes.insert(object, size);
                    (totals.allocs, totals.live) = (totals.allocs + 1, totals.live + size);
                }
                Op::Free { object } => totals.live -= sizes[&object],
                _ => (),
            }
            totals.peak = totals.peak.max(totals.live);
        }
        totals
    }
}

#[test]
fn every_format_is_imported_as_the_encoded_events() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.in");
    for (encoder, name) in FORMATS {
        for seed in 0..4 {
            let Some(expected) = encode(encoder, seed, &file) else { return };
            let (report, events) = import_file(&file);
            assert_eq!(report.format, name, "{encoder} is not recognised");
            let timed = expected.iter().any(|event| !event[6].is_null());
            for (index, (event, expected)) in events.iter().zip(&expected).enumerate() {
                assert_eq!(as_json(event, timed), *expected, "{encoder}, seed {seed}, event {index}");
            }
            assert_eq!(events.len(), expected.len(), "{encoder}, seed {seed}");
            let quality = report.quality;
            let repaired = (quality.unknown_frees, quality.reuse_repaired, quality.unfinished_calls);
            assert_eq!(repaired, (0, 0, 0), "{encoder}, seed {seed}");
        }
    }
}

/// The error of an import that must fail.
fn refused(name: &str, bytes: &[u8], format: Option<&str>) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(name);
    std::fs::write(&file, bytes).unwrap();
    let options = Options { format: format.map(|name| Format::from_name(name).unwrap()), ..Options::default() };
    let why = import(&file, &options, &folder.path().join("out.hkt")).expect_err("the file was accepted").to_string();
    assert!(why.contains(name), "{why}");
    why
}

#[test]
fn inconsistent_heaptrack_files_are_refused() {
    let head = "v 10400 3\nX ./api\nI 1000 5e298d\ns 5 ./api\ni 1 2\n";
    for (text, line) in [("a 64 1\n+ 1\n- 0\n", 7), ("a 64 1\n+ 64 8 1000\n- 0\n", 7), ("- 0\n+ 0\n", 6)] {
        let why = refused("heap.zst", format!("{head}{text}").as_bytes(), None);
        assert!(why.contains(&format!("heap.zst:{line}")), "{why}");
    }
    let why = refused("heap.raw", b"v 10400 3\n+ 64 8 1000\ns 5 ./api\n- 1000\n", None);
    assert!(why.contains("heap.raw:3") && why.contains("raw and interpreted"), "{why}");
    let newer = refused("heap.raw", b"v 20000 4\n+ 64 8 1000\n", None);
    assert!(newer.contains("newer hksim"), "{newer}");
    assert!(refused("heap.raw", b"v 10400 3\n+ 64 8 1000\nwhat\n- 1000\n", None).contains("heap.raw:3"));
}

/// The files are a hand-written frame without compression, and output of the `lz4` program with independent or linked
/// blocks.
#[test]
fn lz4_frames_are_decompressed() {
    let folder = tempfile::tempdir().unwrap();
    let [plain, packed] = ["plain", "packed"].map(|name| folder.path().join(name));
    let Some(expected) = encode("memray", 7, &plain) else { return };
    let whole = std::fs::read(&plain).unwrap();
    let mut stored = vec![0x04, 0x22, 0x4D, 0x18, 0x40, 0x40, 0xC0];
    for block in whole.chunks(10_000) {
        stored.extend((block.len() as u32 | 1 << 31).to_le_bytes());
        stored.extend(block);
    }
    stored.extend([0; 4]);
    let check = |what: &str| assert_eq!(import_file(&packed).1.len(), expected.len(), "{what}");
    std::fs::write(&packed, &stored).unwrap();
    check("stored");
    // The frame followed by a skippable frame and by an empty frame.
    let around = [&stored[..], &[0x5A, 0x2A, 0x4D, 0x18, 2, 0, 0, 0, 9, 9], &stored[..7], &[0; 4]].concat();
    std::fs::write(&packed, &around).unwrap();
    check("three frames");
    std::fs::write(&packed, &stored[..stored.len() - 9]).unwrap();
    let cut = import(&packed, &Options::default(), &folder.path().join("out.hkt")).map(|report| report.events);
    let why = cut.expect_err("a file with a truncated block was accepted").to_string();
    assert!(why.contains("truncated or damaged"), "{why}");
    for arguments in ["-1 -BD -B4", "-9 -BD", "-1 --content-size -BX -B5", "-12 --no-frame-crc -B7"] {
        let mut lz4 = Command::new("lz4");
        lz4.args(["-q", "-f"]).args(arguments.split(' ')).arg(&plain).arg(&packed);
        match lz4.status() {
            Ok(status) => assert!(status.success()),
            Err(why) => return eprintln!("skipped: lz4: {why}"),
        }
        check(arguments);
    }
}

/// memray itself, if installed: the counts agree with those of its own reader.
#[test]
fn memray_files_have_the_counts_of_its_own_reader() {
    const PROGRAM: &str = "import json, threading
def work():
    kept = [bytes(3000 + i) for i in range(500)]
    json.dumps(list(range(3000)))
threads = [threading.Thread(target=work) for _ in range(3)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
";
    const READER: &str = "import sys
from memray import AllocatorType as A, FileReader
live, counts = {}, [0] * 4
for record in FileReader(sys.argv[1]).get_allocation_records():
    kind = A(record.allocator)
    if kind in (A.MMAP, A.MUNMAP): continue
    counts[0] += 1
    if kind in (A.FREE, A.PYMALLOC_FREE):
        counts[3] -= live.pop(record.address, 0)
    else:
        counts[1] += 1
        counts[3] += record.size - live.get(record.address, 0)
        live[record.address] = record.size
    counts[2] = max(counts[2], counts[3])
print(*counts)";
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("p.py"), PROGRAM).unwrap();
    std::fs::write(folder.path().join("reader.py"), READER).unwrap();
    let python = |line: &str| Command::new("python3").args(line.split(' ')).current_dir(folder.path()).output();
    for arguments in ["", "--native --trace-python-allocators "] {
        let run = python(&format!("-m memray run -q -f {arguments}-o p.bin p.py"));
        if !run.is_ok_and(|run| run.status.success()) {
            return eprintln!("skipped: python3 has no memray");
        }
        let (report, events) = import_file(&folder.path().join("p.bin"));
        assert_eq!((report.format, report.quality.unfinished_calls), ("memray", 0));
        let Totals { allocs, peak, live } = Totals::of(&events);
        let said = python("reader.py p.bin").unwrap().stdout;
        // The import inserts a free if an address is returned twice.
        let events = events.len() as u64 - report.quality.reuse_repaired;
        assert_eq!(String::from_utf8_lossy(&said).trim(), format!("{events} {allocs} {peak} {live}"));
    }
}

#[test]
fn an_incomplete_last_line_is_counted() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.raw");
    std::fs::write(&file, "v 10400 3\n+ 64 8 1000\n- 1000\n+ 64 8 1000\n+ 70").unwrap();
    let (report, events) = import_file(&file);
    assert_eq!((events.len(), report.quality.unfinished_calls), (3, 1));
}

/// Compiles the program and records it with heaptrack and these arguments. Returns the file. If this is not possible,
/// prints the reason and returns `None`.
fn heaptrack(folder: &Path, arguments: &str) -> Option<PathBuf> {
    const PROGRAM: &str = "#include <stdlib.h>
        int main(void) {
            static void *volatile p[1000];
            for (int i = 0; i < 1000; i++) p[i] = malloc(12345);
            for (int i = 0; i < 300; i++) p[i] = realloc(p[i], 54321);
            for (int i = 0; i < 100; i++) { p[0] = calloc(7, 1111); free(p[0]); }
            for (int i = 300; i < 1000; i++) free(p[i]);
        }";
    std::fs::write(folder.join("p.c"), PROGRAM).unwrap();
    let run = |line: &str| {
        let mut words = line.split(' ');
        let ran = Command::new(words.next().unwrap()).args(words).current_dir(folder).output();
        ran.is_ok_and(|ran| ran.status.success())
    };
    if !run("cc -O0 -o p p.c") {
        eprintln!("skipped: there is no C compiler");
        return None;
    }
    if !run(&format!("heaptrack {arguments}-o ht ./p")) {
        eprintln!("skipped: heaptrack is not installed or cannot run");
        return None;
    }
    let names = ["ht.raw.zst", "ht.raw.gz", "ht.zst", "ht.gz"];
    Some(names.map(|name| folder.join(name)).into_iter().find(|file| file.exists()).expect("heaptrack wrote no file"))
}

#[test]
fn heaptrack_files_have_the_counts_of_its_own_reader() {
    for arguments in ["-r ", ""] {
        let folder = tempfile::tempdir().unwrap();
        let Some(file) = heaptrack(folder.path(), arguments) else { return };
        let (report, events) = import_file(&file);
        assert_eq!((report.format, report.quality.unknown_frees), ("heaptrack", 0));
        let initial_touches =
            |bytes| events.iter().filter(|event| matches!(event.op, Op::Alloc { size, .. } if size == bytes)).count();
        assert_eq!((initial_touches(12345), initial_touches(54321), initial_touches(7777)), (1000, 300, 100));
        // Count the frees by size of the block.
        let (mut sizes, mut ends) = (HashMap::new(), HashMap::<u64, u32>::new());
        for event in &events {
            match event.op {
                Op::Alloc { object, size, .. } => _ = sizes.insert(object, size),
                Op::Free { object } => *ends.entry(sizes[&object]).or_default() += 1,
                _ => (),
            }
        }
        assert_eq!((ends[&12345], ends.get(&54321), ends[&7777]), (1000, None, 100));
        if arguments.is_empty() {
            agrees_with_heaptrack_print(&file, &events);
        }
    }
}

/// heaptrack's own reader reports allocations and live bytes at the peak and at the end.
fn agrees_with_heaptrack_print(file: &Path, events: &[Event]) {
    let Ok(ran) = Command::new("heaptrack_print").arg(file).output() else {
        return eprintln!("skipped: there is no heaptrack_print");
    };
    let said = String::from_utf8_lossy(&ran.stdout).into_owned();
    let figure = |label: &str| {
        let rest = said.rsplit_once(label).unwrap_or_else(|| panic!("no `{label}` in {said}")).1;
        rest.split_whitespace().next().expect("no figure after the label").to_string()
    };
    let Totals { allocs, peak, live } = Totals::of(events);
    assert_eq!(figure("calls to allocation functions: "), allocs.to_string());
    // heaptrack_print uses units of a thousand and a million bytes, with two decimals.
    let bytes = |bytes: u64| match bytes {
        0..1_000 => format!("{bytes}B"),
        1_000..1_000_000 => format!("{:.2}K", bytes as f64 / 1e3),
        _ => format!("{:.2}M", bytes as f64 / 1e6),
    };
    assert_eq!(figure("peak heap memory consumption: "), bytes(peak));
    assert_eq!(figure("total memory leaked: "), bytes(live));
}

#[test]
fn absurd_records_are_refused_with_their_byte() {
    // A line of 2^40 bytes; a file that ends within a number; a group, which the format does not have.
    assert!(refused("p.pb", &[0x0A, 0x80, 0x80, 0x80, 0x80, 0x80, 0x20], Some("protobuf")).contains("a line of"));
    assert!(refused("p.pb", &[0x0A, 0x80], Some("protobuf")).contains("within a number"));
    assert!(refused("p.pb", &[0x0B], Some("protobuf")).contains("wire type 3"));
    assert!(refused("p.pb", &[0x0A, 2, 0x0A, 99], Some("protobuf")).contains("beyond its line"));
    assert!(refused("j.csv", b"0,0x1000,5,hpa_alloc,4096\n0,0x1000,6,hpa_what,4096\n", None).contains("j.csv:2"));
    let table = "time_ns,thread,op,object,size,align_log2,call,birth\n0,0,alloc,1,8,0,malloc,none\n";
    for (row, word) in [
        ("0,0,alloc,1,8,0,malloc,none", "still live"),
        ("0,0,free,2,,,,", "not live"),
        ("0,0,alloc,2,8,0,mallok,none", "`mallok`"),
        ("0,0,alloc,2,,0,malloc,none", "no size"),
        ("0,0,alloc,2,8,99,malloc,none", "alignment"),
        ("0,0,alloc,2,999999999999999,0,malloc,none", "address space"),
        ("0,0,jump,2,,,,", "`jump`"),
        ("0,0,\"free,2,,,,", "does not end"),
        ("x,0,free,1,,,,", "`x`"),
        ("0,0,header,,,,,", "after events"),
    ] {
        let why = refused("t.csv", format!("{table}{row}\n").as_bytes(), None);
        assert!(why.contains(word) && why.contains("t.csv:3"), "{word}: {why}");
    }
    let back = format!("{}{}", table.replace("\n0,", "\n5,"), "4,0,free,1,,,,\n");
    assert!(refused("t.csv", back.as_bytes(), None).contains("before that of the row above"));
}

#[test]
fn a_table_with_absurd_counts_is_imported() {
    let footer =
        r#""{""mark_names"":[],""quality"":{""unknown_frees"":18446744073709551615,""addresses_guessed"":9}}""#;
    let table = format!("time_ns,thread,op,text\n0,0,free-null,\n0,0,footer,{footer}\n");
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.csv");
    std::fs::write(&file, table).unwrap();
    let (report, events) = import_file(&file);
    assert_eq!((report.quality.unknown_frees, report.complete_share, events.len()), (u64::MAX, 0.0, 1));
}

#[test]
fn marks_without_names_in_a_table_get_names() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("t.csv");
    let out = folder.path().join("out.hkt");
    for (number, footer, names) in [
        (2, "", Some("mark-0 mark-1 mark-2")),
        (1, "{\"\"mark_names\"\":[\"\"warm\"\"]}", Some("warm mark-1")),
        (0, "{\"\"mark_names\"\":[\"\"warm\"\",\"\"end\"\"]}", Some("warm end")),
        (u32::MAX, "", None),
        (0, "[]", None),
    ] {
        let footer = if footer.is_empty() { String::new() } else { format!("0,0,footer,,\"{footer}\"\n") };
        std::fs::write(&file, format!("time_ns,thread,op,number,text\n0,0,mark,{number},\n{footer}")).unwrap();
        let done = import(&file, &Options::default(), &out);
        match (done, names) {
            (Ok(_), Some(names)) => {
                let reader = TraceReader::open(&out).unwrap();
                assert_eq!(reader.footer().mark_names.join(" "), names);
            }
            (Err(why), None) => {
                let why = why.to_string();
                assert!(
                    why.contains("t.csv:") && (why.contains("has no name") || why.contains("not a JSON object")),
                    "{why}"
                );
            }
            (done, names) => panic!("{number}: {done:?}, expected {names:?}"),
        }
    }
}

/// A truncated table has call sites but no footer that lists them.
#[test]
fn call_sites_of_a_truncated_table_get_empty_stacks() {
    let folder = tempfile::tempdir().unwrap();
    let [file, out] = ["t.csv", "out.hkt"].map(|name| folder.path().join(name));
    for (site, sound) in [(3, true), (u32::MAX, false)] {
        std::fs::write(
            &file,
            format!("time_ns,thread,op,size,align_log2,call,site\n0,0,alloc-failed,16,0,malloc,{site}\n"),
        )
        .unwrap();
        match import(&file, &Options::default(), &out) {
            Ok(_) if sound => {
                assert_eq!(TraceReader::open(&out).unwrap().footer().sites.stacks, vec![Stack::default(); 3]);
                assert_eq!(verify(&out).unwrap().findings, []);
            }
            Err(why) if !sound => assert!(why.to_string().contains("has no stack"), "{why}"),
            done => panic!("{site}: {done:?}"),
        }
    }
}

/// Damaged files of every format. Any result is fine except a panic, a hang, or an error without the file's name.
#[test]
fn damaged_files_of_every_format_never_cause_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let [file, out] = ["whole", "out.hkt"].map(|name| folder.path().join(name));
    let mut random = Random::new(5);
    for (encoder, name) in FORMATS {
        if encode(encoder, 1, &file).is_none() {
            return;
        }
        let whole = std::fs::read(&file).unwrap();
        let bad = folder.path().join("bad");
        for _ in 0..30 {
            let mut bytes = whole.clone();
            match random.below(3) {
                0 => bytes.truncate(random.below(whole.len() as u64) as usize),
                _ => {
                    for _ in 0..1 + random.below(20) {
                        let at = random.below(bytes.len() as u64) as usize;
                        let any = random.next() as u8;
                        bytes[at] = random.pick(&[0, 1, 0x7F, 0x80, 0xFF, any]);
                    }
                }
            }
            std::fs::write(&bad, &bytes).unwrap();
            for format in [None, Format::from_name(name)] {
                if let Err(why) = import(&bad, &Options { format, ..Options::default() }, &out) {
                    assert!(why.to_string().contains("bad"), "{encoder}: {why}");
                }
            }
        }
    }
}
