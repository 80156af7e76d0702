//! The quirks of each format, each in a trace of a few lines.

use crate::support::importing::Folder;
use crate::support::read_all;
use hksim_trace::event::*;
use hksim_trace::header::Quality;
use hksim_trace::import::{ImportReport, OnDoubt, Options};

/// Imports a text. Returns the operations with their threads, and the report.
fn events(format: &str, text: &str) -> (Vec<(u32, Op)>, ImportReport) {
    let folder = Folder::new();
    let (report, mut reader) = folder.import(&folder.file("t.txt", text)).unwrap();
    assert_eq!(report.format, format, "{text}");
    (read_all(&mut reader).unwrap().iter().map(|event| (event.thread.0, event.op)).collect(), report)
}

fn alloc(object: u32, size: u64, align_log2: u8, call: AllocCall) -> Op {
    Op::Alloc { object: ObjectId(object), size, align_log2, call, initial_touch: InitialTouch::None }
}

fn malloc(object: u32, size: u64) -> Op {
    alloc(object, size, 0, AllocCall::Malloc)
}

fn free(object: u32) -> Op {
    Op::Free { object: ObjectId(object) }
}

fn resize(object: u32, size: u64, call: ReallocCall) -> Op {
    Op::Realloc { object: ObjectId(object), size, call, initial_touch: InitialTouch::None }
}

#[test]
fn ltrace_import_keeps_the_outermost_call_of_each_thread() {
    let text = "7 a->reallocarray(0, 7, 9, 2 <unfinished ...>\n8 a->malloc(5) = 0x50\n7 libc.so.6->calloc(0, 63) = 0x60\n\
                7 <... reallocarray resumed> ) = 0x60\n7 a->free(0x50 <unfinished ...>\n8 a->malloc(6) = 0x50\n\
                7 <... free resumed> ) = <void>\n7 a->malloc(9 <no return ...>\n";
    let (found, report) = events("ltrace", text);
    let call = AllocCall::Reallocarray;
    assert_eq!(found, [(0, malloc(0, 5)), (1, alloc(1, 63, 0, call)), (1, free(0)), (0, malloc(0, 6))]);
    let expected = Quality { nested_calls: 1, unfinished_calls: 1, ..Quality::default() };
    assert_eq!(report.quality, expected);
}

#[test]
fn ltrace_reuse_of_a_block_is_ordered_after_the_realloc_that_released_it() {
    let text = "7 a->malloc(5) = 0x50\n7 a->realloc(0x50, 900 <unfinished ...>\n8 a->malloc(6) = 0x50\n\
                7 <... realloc resumed> ) = 0x900\n8 a->free(0x50) = <void>\n7 a->free(0x900) = <void>\n";
    let (found, report) = events("ltrace", text);
    let expected =
        [(0, malloc(0, 5)), (0, resize(0, 900, ReallocCall::Realloc)), (1, malloc(1, 6)), (1, free(1)), (0, free(0))];
    assert_eq!(found, expected);
    assert_eq!(report.quality, Quality { parked: 1, ..Quality::default() });
}

#[test]
fn ltrace_import_matches_a_block_of_posix_memalign_with_a_fitting_free() {
    let text = "posix_memalign(0x7ff0, 64, 10, 1) = 0\nposix_memalign(0x7ff0, 4096, 20, 1) = 0\n\
                posix_memalign(0x7ff0, 3, 30, 1) = 22\nfree(0x8010) = <void>\nfree(0x20000) = <void>\nfree(0x8040) = <void>\n";
    let (found, report) = events("ltrace", text);
    let call = AllocCall::PosixMemalign;
    let failed = Op::AllocFailed { size: 30, align_log2: 2, call };
    let expected = [alloc(0, 10, 6, call), alloc(1, 20, 12, call), failed, Op::FreeUnknown, free(1), free(0)];
    assert_eq!(found.iter().map(|(_, op)| *op).collect::<Vec<_>>(), expected);
    assert_eq!((report.quality.addresses_guessed, report.quality.unknown_frees), (2, 1));
}

#[test]
fn ltrace_calls_by_glibc_are_left_out_as_misnamed() {
    // Output of ltrace 0.7.3 for `ls` on glibc 2.36, with -e and with -e and -x. All calls but one are really realloc.
    let text = "7 libc.so.6->calloc(0, 1600) = 0x562f23ec6940\n7 libc.so.6->calloc(94760466142464, 2048) = 0x562f23ec6f90\n\
                7 libc.so.6->realloc(0x562f23ec5ac0, 6) = 0x6\n7 libc.so.6->free(0x10 <unfinished ...>\n7 <... free resumed> ) = 0x7\n\
                7 libc.so.6->calloc(0, 1600 <unfinished ...>\n7 realloc@libc.so.6(0, 1600) = 0x50\n7 <... calloc resumed> ) = 0x50\n\
                7 ls->free(0x50) = <void>\n";
    let (found, report) = events("ltrace", text);
    assert_eq!(found, [(0, alloc(0, 1600, 0, AllocCall::Realloc)), (0, free(0))]);
    // Three complete calls, and two that are split into two lines.
    assert_eq!(report.quality, Quality { misnamed_calls: 5, ..Quality::default() });
    assert_eq!(report.complete_share, 2.0 / 7.0, "two of seven calls are in the trace");
    assert!(report.notes[0].starts_with("5 calls"), "{:?}", report.notes);
    // The allocations missing for these two unknown frees are among the misnamed calls, so they are not counted again.
    let (_, report) = events("ltrace", &format!("{text}7 ls->free(0x10) = <void>\n7 ls->free(0x20) = <void>\n"));
    assert_eq!((report.quality.misnamed_calls, report.quality.unknown_frees), (5, 2));
    assert_eq!(report.complete_share, 2.0 / 9.0, "{:?}", report.quality);
}

#[test]
fn every_form_of_an_ltrace_line_is_parsed() {
    let text = "7 12:00:00.5 malloc@libc.so.6(-1, 5) = 0\n8 +++ exited (status 0) +++\n7 12:00:00.6 puts(\"malloc(5) = 0x5\") = 16\n\
                no newline [pid 7] 12:00:00.7 [0x401136] a b->malloc(0x10) = 0x50 <0.000123>\n7 --- SIGCHLD (Child exited) ---\n\
                [pid 7] 12:00:01.7 free((nil)) = <void>\nmalloc(12 = no\n7 --- Called exec() ---\n7 malloc(1) = 0x70\n";
    let (found, report) = events("ltrace", text);
    let failed = Op::AllocFailed { size: u64::MAX, align_log2: 0, call: AllocCall::Malloc };
    assert_eq!(found, [(0, failed), (1, Op::ThreadExit), (0, malloc(0, 16)), (0, Op::FreeNull)]);
    assert_eq!((report.quality.foreign_lines, report.quality.other_process_events), (3, 1));
    let folder = Folder::new();
    let (_, mut reader) = folder.import(&folder.file("t.txt", text)).unwrap();
    let times: Vec<u64> = read_all(&mut reader).unwrap().iter().map(|event| event.time_ns / 1_000_000).collect();
    assert_eq!(times, [0, 0, 200, 1200]);
}

#[test]
fn valgrind_lines_can_have_nested_calls_and_late_results() {
    let text = "==9== Command: ./a\n--9-- calloc(4611686018427387904,8)free(0x0)\nprogress--9-- realloc(0x0,63)malloc(63) = 0x40\n\
                --9-- _ZnwmSt11align_val_t(size 128, al 64) = 0x80\n--10-- malloc(5) = 0x40\n\
                --9-- realloc(0x40,9223372036854775813)Argument 'size' is fishy\n--9--  = 0x0\n--9-- realloc(0x40,0)free(0x40)\n\
                --9--  = 0\n--00:00:00:01.234 9-- memalign(al 256, size 10) = 0x100\n--9-- _ZdlPvmSt11align_val_t(0x80)\n";
    let (found, report) = events("valgrind", text);
    let call = ReallocCall::Realloc;
    let expected = [
        Op::AllocFailed { size: u64::MAX, align_log2: 0, call: AllocCall::Calloc },
        Op::FreeNull,
        alloc(0, 63, 0, AllocCall::Realloc),
        alloc(1, 128, 6, AllocCall::AlignedAlloc),
        Op::ReallocFailed { object: ObjectId(0), size: 9223372036854775813, call },
        Op::ReallocFree { object: ObjectId(0), call },
        alloc(0, 10, 8, AllocCall::Memalign),
        free(1),
    ];
    assert_eq!(found.iter().map(|(_, op)| *op).collect::<Vec<_>>(), expected);
    let quality = Quality { nested_calls: 2, foreign_lines: 1, other_process_events: 1, ..Quality::default() };
    assert_eq!(report.quality, quality);
}

#[test]
fn file_names_in_mtrace_may_be_any_bytes() {
    let folder = Folder::new();
    let text = b"= Start\n@ ./caf\xe9 + 0x1 (f+0x10)[0x1] + 0x10 0x20\n@ a < 0x10\n@ a > 0x40 0x30\n@ a ! 0x40 0xffffffffffffffff\n\
                 + (nil) 0x7fffffffffffffff\n- 0x40\n= End\n";
    let (report, mut reader) = folder.import(&folder.file("t.txt", text)).unwrap();
    assert_eq!((report.format, report.quality), ("mtrace", Quality::default()));
    let found: Vec<Op> = read_all(&mut reader).unwrap().iter().map(|event| event.op).collect();
    let call = ReallocCall::Realloc;
    let expected = [
        malloc(0, 32),
        resize(0, 48, call),
        Op::ReallocFailed { object: ObjectId(0), size: u64::MAX, call },
        Op::AllocFailed { size: 0x7fff_ffff_ffff_ffff, align_log2: 0, call: AllocCall::Malloc },
        free(0),
    ];
    assert_eq!(found, expected);
}

#[test]
fn logalloc_import_accepts_addresses_and_slots_and_selects_one_process() {
    let text = "18545 140001 malloc(32)=0x7f90\n18545 140002 calloc(2,74)=0x8000\n18546 1 malloc(1)=0x7f90\n18545 140001 jemalloc_stats()\n\
                18545 140002 posix_memalign(256,240)=0x9000\n18545 140002 realloc(0x7f90,64)=0x7f90\n18545 140001 free(0x8000)\n";
    let (found, report) = events("logalloc", text);
    let call = AllocCall::PosixMemalign;
    let expected = [
        (0, malloc(0, 32)),
        (1, alloc(1, 148, 0, AllocCall::Calloc)),
        (1, alloc(2, 240, 8, call)),
        (1, resize(0, 64, ReallocCall::Realloc)),
        (0, free(1)),
    ];
    assert_eq!(found, expected);
    let quality = Quality { foreign_lines: 1, other_process_events: 1, ..Quality::default() };
    assert_eq!(report.quality, quality);
    let folder = Folder::new();
    let options = Options { process: Some(18546), ..Options::default() };
    let (report, _) = folder.import_with(&folder.file("t.txt", text), &options).unwrap();
    assert_eq!((report.events, report.quality.other_process_events), (1, 5));
    assert_eq!(report.notes, ["imported process 18546; to import another, use --pid: 18545"]);
    let absent = Options { process: Some(3), ..Options::default() };
    let said = folder.import_with(&folder.file("t.txt", text), &absent).err().expect("an error").to_string();
    assert_eq!(said, "no calls of process 3; the file's processes: 18545, 18546");
    let said = folder.import_with(&folder.file("s.txt", "a 1 5\n"), &absent).err().expect("an error").to_string();
    assert!(said.ends_with("omit --pid"), "{said}");
    let (found, _) = events("logalloc", "1 1 malloc(42)=#1\n1 1 realloc(#1,84)=#2\n1 1 free(#2)\n1 1 free(#0)\n");
    assert_eq!(found.len(), 4);
    assert_eq!(found[2..], [(0, free(0)), (0, Op::FreeNull)]);
}

#[test]
fn lttng_reports_discarded_events_and_crosses_midnight() {
    let text = "[23:59:59.999999999] (+?.?????????) vm lttng_ust_libc:malloc: { cpu_id = 1 }, { vpid = 7, vtid = 8 }, { size = 5, ptr = 0xAB0 }\n\
        WARNING: Tracer discarded 826 events between [23:59:59.9] and [00:00:00.0] in trace \"x\"\n[warning] Tracer discarded 4 events between\n\
        [00:00:00.000000009] (+0.000000010) vm lttng_ust_libc:posix_memalign: { cpu_id = 0 }, { vpid = 7, vtid = 9 }, { out_ptr = 0xC00, alignment = 512, size = 3, result = 0 }\n\
        [00:00:00.000000019] (+0.000000010) vm other:event: { cpu_id = 0 }, { vpid = 7, vtid = 9 }, { ptr = 0xC00 }\n\
        [00:00:00.000000029] (+0.000000010) vm lttng_ust_libc:free: { cpu_id = 0 }, { vpid = 7, vtid = 9 }, { ptr = 0xAB0 }\n";
    let (found, report) = events("lttng", text);
    assert_eq!(found, [(0, malloc(0, 5)), (1, alloc(1, 3, 9, AllocCall::PosixMemalign)), (1, free(0))]);
    assert_eq!(report.quality, Quality { events_lost: 830, foreign_lines: 1, ..Quality::default() });
    let folder = Folder::new();
    let (_, mut reader) = folder.import(&folder.file("t.txt", text)).unwrap();
    assert_eq!(read_all(&mut reader).unwrap()[1].time_ns, 10);
    let threadless = text.replace(", { vpid = 7, vtid = 8 }", "").replace(", { vpid = 7, vtid = 9 }", "");
    assert!(events("lttng", &threadless).1.notes[0].contains("add-context"));
}

#[test]
fn bpftrace_lines_are_sorted_and_losses_are_counted() {
    let text = "Attaching 20 probes...\nhksim-bpftrace 1\n300000 7 free(0x10)\n100000 7 malloc(5)=0x10\nLost 12 events\n200000 8 reallocarray(0x0,7,9)=0x20\n\
                hello (from the program)\n400000 8 exit\n@nested: 3\n";
    let (found, report) = events("bpftrace", text);
    assert_eq!(
        found,
        [(0, malloc(0, 5)), (1, alloc(1, 63, 0, AllocCall::Reallocarray)), (0, free(0)), (1, Op::ThreadExit)]
    );
    assert_eq!(report.quality, Quality { events_lost: 12, nested_calls: 3, foreign_lines: 2, ..Quality::default() });
    assert!(report.complete_share < 0.3, "12 of 16 calls are missing: {}", report.complete_share);
}

#[test]
fn lttng_events_of_several_processes_without_vpid_are_refused() {
    let folder = Folder::new();
    let line = |second: u32, name: &str, event: &str, fields: &str| {
        format!(
            "[00:00:0{second}.000001000] (+?) box lttng_ust_libc:{event}: {{ cpu_id = 0 }}, {{ procname = \"{name}\", vtid = {} }}, {{ {fields} }}\n",
            name.len()
        )
    };
    let text = |other: &str| {
        [
            line(1, "one", "malloc", "size = 100, ptr = 0x1000"),
            line(2, other, "malloc", "size = 3000, ptr = 0x1000"),
            line(3, "one", "free", "ptr = 0x1000"),
            line(4, other, "free", "ptr = 0x1000"),
        ]
        .concat()
    };
    let (two, one) = (folder.file("two.txt", text("seven")), folder.file("one.txt", text("one")));
    let refuse = Options { on_doubt: OnDoubt::Refuse, ..Options::default() };
    let said = folder.import_with(&two, &refuse).err().expect("it was accepted").to_string();
    assert!(said.contains("(one, seven)") && said.contains("vpid") && said.contains("--force"), "{said}");
    let (report, _) = folder.import(&two).unwrap();
    assert!(report.notes.iter().any(|note| note.contains("their addresses mix")), "{:?}", report.notes);
    let (report, _) = folder.import(&one).unwrap();
    assert!(report.notes.iter().any(|note| note.contains("does not distinguish processes")), "{:?}", report.notes);
}

#[test]
fn a_source_with_mostly_unknown_frees_is_refused() {
    let folder = Folder::new();
    let path = folder
        .file("t.txt", "= Start\n@ a:[0x1] + 0x10 0x20\n@ a:[0x1] - 0x20\n@ a:[0x1] - 0x30\n@ a:[0x1] - 0x10\n= End\n");
    let refuse = Options { on_doubt: OnDoubt::Refuse, ..Options::default() };
    let said = folder.import_with(&path, &refuse).err().expect("it was accepted").to_string();
    assert!(said.contains("only 33.3 % of the known calls") && said.contains("--force"), "{said}");
    folder.import(&path).unwrap();
}

#[test]
fn a_rep_file_may_have_two_header_lines() {
    let folder = Folder::new();
    let (report, _) = folder.import(&folder.file("t.rep", "2\n4\na 0 100\na 1 200\nf 0\nf 1\n")).unwrap();
    assert_eq!((report.format, report.events, &report.notes[..]), ("rep", 4, &[][..]));
}

#[test]
fn rep_and_wee_identify_blocks_by_number() {
    let (found, report) = events("rep", "20000\n3\n8\n1\na 0 512\na 1 128\nr 0 640\na 2 128\nf 1\nr 0 768\nf 0\nf 2\n");
    let call = ReallocCall::Realloc;
    let expected = [
        malloc(0, 512),
        malloc(1, 128),
        resize(0, 640, call),
        malloc(2, 128),
        free(1),
        resize(0, 768, call),
        free(0),
        free(2),
    ];
    assert_eq!(found.iter().map(|(_, op)| *op).collect::<Vec<_>>(), expected);
    assert!(report.notes.is_empty());
    assert!(events("rep", "20000\n3\n8\n1\na 0 512\n").1.notes[0].contains("says 8"));
    let (found, report) = events("wee", "Alloc(48),\nAlloc(7),\nFree(0),\nAlloc(5),\nFree(0),\nFree(2),\n");
    let expected = [malloc(0, 48), malloc(1, 7), free(0), malloc(0, 5), Op::FreeUnknown, free(0)];
    assert_eq!(found.iter().map(|(_, op)| *op).collect::<Vec<_>>(), expected);
    assert_eq!(report.quality.unknown_frees, 1);
}

#[test]
fn a_byte_order_mark_before_text_is_skipped() {
    for (format, text) in [
        ("script", "a 0 100\nf 0\n"),
        ("mtrace", "= Start\n@ a + 0x10 0x20\n@ a - 0x10\n= End\n"),
        ("ltrace", "malloc(5) = 0x50\nfree(0x50) = <void>\n"),
        ("csv", "op,time_ns,thread,object,size,align_log2,call,birth\nalloc,0,0,0,5,0,malloc,none\nfree,1,0,0,,,,\n"),
    ] {
        let (found, report) = events(format, &format!("\u{feff}{text}"));
        let (expected, without) = events(format, text);
        assert_eq!((found.len(), &found, report.quality), (2, &expected, without.quality), "{format}");
    }
}
