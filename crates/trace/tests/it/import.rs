//! The importers: counts compared with those of an independent program, order of events, containers, and errors that
//! name the line.

use crate::support::importing::{Folder, compare_counts};
use crate::support::{Random, read_all};
use hksim_trace::error::TraceError;
use hksim_trace::event::*;
use hksim_trace::header::{Clock, Origin};
use hksim_trace::import::{Options, import};
use hksim_trace::source::EventSource;
use std::fmt::Write as _;
use std::io::Write as _;

/// A random script with comments, blank lines, unknown frees and reallocs of unknown ids.
fn random_script(random: &mut Random) -> String {
    let mut text = String::from("# made by a test\n");
    let mut live: Vec<u64> = Vec::new();
    for id in 0..3000 {
        match random.below(10) {
            0..5 => {
                let _ = writeln!(text, "a {id} {}", random.below(3000));
                live.push(id);
            }
            5 => text.push_str(random.pick(&["\n", "# a comment\n", "   \n"])),
            6 if random.chance(10) => _ = writeln!(text, "f {}", 1_000_000 + id),
            6 if random.chance(10) => {
                let _ = writeln!(text, "r {id} {}", 1 + random.below(100_000));
                live.push(id);
            }
            7 if !live.is_empty() => _ = writeln!(text, "r {} {}", random.pick(&live), 1 + random.below(100_000)),
            _ if !live.is_empty() => {
                let at = random.below(live.len() as u64) as usize;
                let _ = writeln!(text, "f {}", live.swap_remove(at));
            }
            _ => (),
        }
    }
    text
}

/// Random Android text in true order, with 64-bit pointers.
fn random_android(random: &mut Random, timed: bool) -> String {
    let mut text = String::new();
    let (mut dead, mut live) = (Vec::<u64>::new(), Vec::<u64>::new());
    let mut fresh = 0x7000_0000_0000u64;
    for step in 0..4000u64 {
        let mut new = || {
            dead.pop().unwrap_or_else(|| {
                fresh += 16;
                fresh
            })
        };
        let tid = 100 + random.below(5);
        let size = random.below(5000);
        let _ = match random.below(12) {
            0..4 => {
                live.push(new());
                write!(text, "{tid}: malloc {:#x} {size}", live[live.len() - 1])
            }
            4 => {
                live.push(new());
                write!(text, "{tid}: calloc {:#x} {} 8", live[live.len() - 1], random.below(50))
            }
            5 => {
                live.push(new());
                write!(text, "{tid}: memalign {:#x} {} {size}", live[live.len() - 1], 1 << random.below(13))
            }
            6 => write!(text, "{tid}: free 0x0"),
            7 => write!(text, "{tid}: malloc 0x0 {}", u64::MAX - size),
            8 => {
                live.push(new());
                write!(text, "{tid}: realloc {:#x} 0x0 {size}", live[live.len() - 1])
            }
            kind if !live.is_empty() => {
                let at = random.below(live.len() as u64) as usize;
                let old = live[at];
                match kind {
                    9 if random.chance(20) => write!(text, "{tid}: realloc 0x0 {old:#x} {}", 1 + size),
                    9 if random.chance(20) => {
                        dead.push(live.swap_remove(at));
                        write!(text, "{tid}: realloc 0x0 {old:#x} 0")
                    }
                    9 => {
                        live[at] = new();
                        dead.push(old);
                        write!(text, "{tid}: realloc {:#x} {old:#x} {}", live[at], 1 + size)
                    }
                    _ => {
                        dead.push(live.swap_remove(at));
                        write!(text, "{tid}: free {old:#x}")
                    }
                }
            }
            _ => write!(text, "{tid}: free 0x0"),
        };
        let _ =
            if timed { writeln!(text, " {} {}", 5_000_000 + step * 50, 5_000_030 + step * 50) } else { writeln!(text) };
    }
    text
}

#[test]
fn counts_equal_those_of_an_independent_program() {
    let folder = Folder::new();
    for seed in 0..4 {
        let path = folder.file("t.script", random_script(&mut Random::new(seed)));
        compare_counts(&folder, "script", &path, None, &format!("script, seed {seed}"));
        for timed in [false, true] {
            let path = folder.file("t.txt", random_android(&mut Random::new(seed), timed));
            compare_counts(&folder, "android", &path, None, &format!("android, seed {seed}, timed {timed}"));
        }
    }
}

#[test]
fn containers_are_recognised_by_content() {
    let folder = Folder::new();
    let text = random_script(&mut Random::new(9));
    let (_, mut plain) = folder.import(&folder.file("plain", &text)).unwrap();
    let expected = read_all(&mut plain).unwrap();
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 6);
    xz.write_all(text.as_bytes()).unwrap();
    let mut zip = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    let options = zip::write::SimpleFileOptions::default();
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(text.as_bytes()).unwrap();
    let gz = gz.finish().unwrap();
    let mut bz2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bz2.write_all(text.as_bytes()).unwrap();
    let mut inside = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    inside.start_file("t.gz", options).unwrap();
    inside.write_all(&gz).unwrap();
    zip.add_directory("folder", options).unwrap();
    for (name, contents) in [("folder/README", "What this is\n"), ("folder/t.rep", &text)] {
        zip.start_file(name, options).unwrap();
        zip.write_all(contents.as_bytes()).unwrap();
    }
    let skipped = |bytes: &[u8]| {
        [&[0x5F, 0x2A, 0x4D, 0x18, 3, 0, 0, 0, 1, 2, 3, 0x50, 0x2A, 0x4D, 0x18, 0, 0, 0, 0], bytes].concat()
    };
    let mut lz4 = lz4_flex::frame::FrameEncoder::new(Vec::new());
    lz4.write_all(text.as_bytes()).unwrap();
    let lz4 = lz4.finish().unwrap();
    for (name, bytes, member) in [
        ("lz4 after skippable frames", skipped(&lz4), None),
        ("zstd after skippable frames", skipped(&zstd::encode_all(text.as_bytes(), 3).unwrap()), None),
        ("xz", xz.finish().unwrap(), None),
        ("bz2", bz2.finish().unwrap(), None),
        ("gz in zip", inside.finish().unwrap().into_inner(), Some("t.gz")),
        ("gz in zstd", zstd::encode_all(&gz[..], 3).unwrap(), None),
        ("gz", gz, None),
        ("zstd", zstd::encode_all(text.as_bytes(), 3).unwrap(), None),
        ("zip", zip.finish().unwrap().into_inner(), Some("folder/t.rep")),
    ] {
        let (report, mut reader) = folder.import(&folder.file("t.bin", bytes)).unwrap();
        assert_eq!(report.archive_member.as_deref(), member, "{name}");
        assert_eq!(report.lines, text.lines().count() as u64, "{name}");
        let origin = Origin::Imported { format: "script".into(), file: "t.bin".into() };
        assert_eq!(reader.header().origin, origin);
        assert!(read_all(&mut reader).unwrap() == expected, "{name}");
    }
    for bytes in [skipped(text.as_bytes()), skipped(&[]), skipped(&lz4)[..10].to_vec()] {
        let why = folder.import(&folder.file("t.bin", bytes)).err().expect("the file was accepted").to_string();
        assert!(why.contains("decompress"), "{why}");
    }
}

#[test]
fn android_lines_have_their_documented_meaning() {
    let folder = Folder::new();
    // Thread 2 reuses 0x10 before thread 1 logs the realloc that released it.
    let text = "1: malloc 0x10 7\n2: malloc 0x10 8 64\n1: realloc 0x20 0x10 9 128\n2: memalign 0x40 24 5\n\
                2: free 0x10 4096\n1: thread_done 0x0\n1: free 0x99\n2: free 0x20\n";
    let (report, mut reader) = folder.import(&folder.file("t.txt", text)).unwrap();
    assert_eq!((report.quality.parked, report.quality.unknown_frees), (1, 1));
    let malloc = |object, size| {
        let (align_log2, call, initial_touch) = (0, AllocCall::Malloc, InitialTouch::None);
        Op::Alloc { object: ObjectId(object), size, align_log2, call, initial_touch }
    };
    let (call, initial_touch) = (AllocCall::Memalign, InitialTouch::None);
    let expected = [
        (0, malloc(0, 7)),
        (0, Op::Realloc { object: ObjectId(0), size: 9, call: ReallocCall::Realloc, initial_touch }),
        (1, malloc(1, 8)),
        (1, Op::Alloc { object: ObjectId(2), size: 5, align_log2: 5, call, initial_touch }),
        (1, Op::Free { object: ObjectId(1) }),
        (0, Op::ThreadExit),
        (1, Op::Free { object: ObjectId(0) }),
        // A new thread with tid 1. Its free of an unknown address waits until the end.
        (2, Op::FreeUnknown),
    ];
    let found: Vec<_> = read_all(&mut reader).unwrap().iter().map(|event| (event.thread.0, event.op)).collect();
    assert_eq!(found, expected);
}

#[test]
fn android_lines_are_sorted_by_their_times() {
    let folder = Folder::new();
    // Thread 2's malloc returned at 1500 and thread 1's at 1600, but thread 1's was logged first.
    let text =
        "1: malloc 0x10 7 1000 1600\n2: malloc 0x20 8 1400 1500\n2: free 0x10 1700 1800\n2: thread_done 0x0 1900\n";
    let (_, mut reader) = folder.import(&folder.file("t.txt", text)).unwrap();
    assert_eq!(reader.header().clock, Clock::Measured);
    let events = read_all(&mut reader).unwrap();
    let times: Vec<u64> = events.iter().map(|event| event.time_ns).collect();
    assert_eq!(times, [0, 100, 200, 400]);
    assert!(matches!(events[0].op, Op::Alloc { size: 8, .. }));
    assert_eq!(events[2].op, Op::Free { object: ObjectId(1) });
}

/// `f -1` is free(NULL) in the traces of CS:APP's malloc lab.
#[test]
fn a_lab_trace_may_free_null() {
    let folder = Folder::new();
    let path = folder.file("t.rep", "20000\n1\n4\n1\na 0 512\nf -1\nr 0 640\nf 0\n");
    let (report, mut reader) = folder.import(&path).unwrap();
    assert_eq!((report.format, report.events, report.quality.unknown_frees), ("rep", 4, 0));
    let ops: Vec<Op> = read_all(&mut reader).unwrap().iter().map(|event| event.op).collect();
    assert!(matches!(ops[..], [Op::Alloc { .. }, Op::FreeNull, Op::Realloc { .. }, Op::Free { .. }]), "{ops:?}");
}

/// The minimal table has three columns. All others have defaults.
#[test]
fn a_table_of_three_columns_is_enough() {
    let folder = Folder::new();
    let path = folder.file("t.csv", "op,object,size\nalloc,70,100\nrealloc,70,200\nalloc,9,1\nfree,70,\n");
    let (report, mut reader) = folder.import(&path).unwrap();
    assert_eq!((report.format, report.threads, report.objects_peak), ("csv", 1, 2));
    assert_eq!(reader.header().clock, Clock::PerEvent);
    let (object, call, initial_touch) = (ObjectId(0), AllocCall::Malloc, InitialTouch::None);
    let expected = [
        Op::Alloc { object, size: 100, align_log2: 0, call, initial_touch },
        Op::Realloc { object, size: 200, call: ReallocCall::Realloc, initial_touch },
        Op::Alloc { object: ObjectId(1), size: 1, align_log2: 0, call, initial_touch },
        Op::Free { object },
    ];
    let events = read_all(&mut reader).unwrap();
    assert!(events.iter().map(|event| event.op).eq(expected), "{events:?}");
    assert!(events.iter().map(|event| event.time_ns).eq([0, 100, 200, 300]), "{events:?}");
    // A column that exists has a value in every row.
    let path = folder.file("t.csv", "op,object,size,thread\nalloc,70,100,3\nfree,70,,\n");
    let message = folder.import(&path).err().map(|why| why.to_string()).unwrap_or_default();
    assert!(message.contains("t.csv:3: the row has no thread"), "{message}");
    // The error for an unknown format mentions the minimal table.
    let message = folder.import(&folder.file("t.txt", "hello\n")).err().map(|why| why.to_string()).unwrap_or_default();
    assert!(message.contains("op,object,size"), "{message}");
}

/// The first bytes of files without events, as Go, valgrind, jemalloc and perf write them.
#[test]
fn files_without_events_are_recognised_and_refused() {
    let folder = Folder::new();
    let go = b"\x5a\x04\x08\x01\x10\x02\x60\x80\x80\x20\x0a\x04\x08\x03\x10\x04".as_slice();
    let pprof = b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04\x0a\x04\x08\x05\x10\x02".as_slice();
    for (contents, kind, remedy) in [
        (pprof, "a profile in pprof's form", "hksim record"),
        (go, "a profile in pprof's form", "hksim record"),
        (b"heap profile: 1: 2 [3: 4] @ heap/1048576\n", "pprof's text form", "hksim record"),
        (b"heap_v2/524288\n  t*: 106: 31 [0: 0]\n", "jemalloc", "hksim record"),
        (b"desc: (none)\ncmd: ./a\ntime_unit: i\n", "massif", "--trace-malloc=yes"),
        (b"{\"dhatFileVersion\":2\n,\"mode\":\"heap\"}\n", "DHAT", "--trace-malloc=yes"),
        (b"{\n\"dhatFileVersion\": 2,\n\"mode\": \"rust-heap\"\n}\n", "DHAT", "dhat-rs"),
        (
            b"\nMemory not freed:\n-----------------\n   Address     Size     Caller\n",
            "the mtrace script",
            "MALLOC_TRACE",
        ),
        (b"- 0x10 Free 3 was never alloc'd 0x20\nNo memory leaks.\n", "the mtrace script", "MALLOC_TRACE"),
        (
            b"----\nCommand:            ./a\nMassif arguments:   (none)\nms_print arguments: m\n----\n",
            "ms_print",
            "--trace-malloc=yes",
        ),
        (b"JAVA PROFILE 1.0.2\0\0\0\0\x08", "hprof", "hksim record --memory"),
        (b"JAVA PROFILE 1.0.1, created Mon\n\nHeader for -agentlib:hprof\n", "hprof", "hksim record --memory"),
        (b"--- heapz 1 ---\nformat = java\nresolution = bytes\n", "heapz", "hksim record --memory"),
        (b"PERFILE2\x68\0\0\0", "a binary file of perf", "perf script"),
    ] {
        let path = folder.file("t.prof", contents);
        let message = folder.import(&path).err().map(|why| why.to_string()).unwrap_or_default();
        assert!(message.contains("t.prof: this is") && message.contains(kind) && message.contains(remedy), "{message}");
    }
}

#[test]
fn errors_name_file_line_and_remedy() {
    let folder = Folder::new();
    let long = format!("a 0 1\n{}\n", "x".repeat(10_000));
    for (contents, part) in [
        ("a 0 1\n# c\na 0 2\n", "t.txt:3: `a 0`, but id 0 is still live; free it first"),
        ("a 0 1\nf\n", "t.txt:2: expected `a ID SIZE`"),
        ("a 0 1\nr 0 999999999999999999\n", "t.txt:2: the block is larger than the address space"),
        ("a 0 1\nf 0 0\n", "t.txt:2: expected"),
        (&long, "t.txt:2: the line is longer"),
        ("1: malloc 0x10 5\n1: calloc 0x10 5\n", "t.txt:2: a number is missing"),
        ("1: malloc 0x10 5\n1: malloc 10 5\n", "t.txt:2: a pointer does not begin with 0x"),
        ("1: malloc 0x10 5\n1: memalign 0x20 18446744073709551615 5\n", "t.txt:2: the alignment is above 2^63"),
        ("1: malloc 0x10 5\n1: sbrk 0x20\n", "t.txt:2: the operation is not malloc"),
        ("1: malloc 0x10 5\n1: free 0x10 1 2\n", "t.txt:2: some lines have times"),
        ("1: malloc 0x10 5\n1: free 0x10 1 2 3 4\n", "t.txt:2: there are too many numbers"),
        ("hello\n", "unknown trace format"),
        ("", "unknown trace format"),
        ("\u{1f}\u{8b}\n", "unknown trace format"),
        ("xx\n\u{0}\u{1}\n", "unknown trace format"),
    ] {
        let path = folder.file("t.txt", contents);
        let message = folder.import(&path).err().map(|why| why.to_string()).unwrap_or_default();
        assert!(message.contains(part) && message.contains("t.txt"), "{contents:?}: {message}");
    }
    let path = folder.file("t.script", "a 0 1\n");
    assert!(matches!(import(&path, &Options::default(), &path), Err(TraceError::SameFile { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"a 0 1\n");
    assert!(matches!(import(folder.path(), &Options::default(), &path), Err(TraceError::NotAFile { .. })));
    let damaged = folder.file("t.xz", b"\xFD7zXZ\0garbage that is no xz stream at all");
    assert!(matches!(folder.import(&damaged).err(), Some(TraceError::Io { .. })));
    let damaged = folder.file("t.zip", b"PK\x03\x04garbage that is no archive at all");
    assert!(matches!(folder.import(&damaged).err(), Some(TraceError::Io { .. })));
}
