//! Input designed to break a reader. The result must be one clear error or a correct count, in bounded memory.

use super::recordings::data;
use crate::support::importing::Folder;
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::Write;

/// The growth of this process's peak resident bytes during `work`.
fn peak_grown_by(work: impl FnOnce()) -> u64 {
    let field = |name: &str| -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().next().unwrap().parse::<u64>().unwrap() * 1024
    };
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = field("VmRSS:");
    work();
    field("VmHWM:").saturating_sub(before)
}

/// The error message of an import that must fail.
fn refused(folder: &Folder, format: Option<&str>, contents: &[u8]) -> String {
    let path = folder.file("t.bin", contents);
    let result = match format {
        Some(format) => folder.import_as(format, &path),
        None => folder.import(&path),
    };
    result.err().expect("the file was accepted").to_string()
}

#[test]
fn errors_name_a_truncated_or_damaged_container() {
    let folder = Folder::new();
    let text = "a 0 1\nf 0\n".repeat(200_000);
    let mut gz = GzEncoder::new(Vec::new(), Compression::fast());
    gz.write_all(text.as_bytes()).unwrap();
    let gz = gz.finish().unwrap();
    let said = refused(&folder, None, &gz[..gz.len() / 2]);
    assert!(
        said.contains("t.bin:") && said.contains("truncated or damaged") && said.contains("another copy"),
        "{said}"
    );
    let mut xz = liblzma::write::XzEncoder::new(Vec::new(), 6);
    xz.write_all(text.as_bytes()).unwrap();
    let xz = xz.finish().unwrap();
    let mut bz2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::fast());
    bz2.write_all(text.as_bytes()).unwrap();
    let bz2 = bz2.finish().unwrap();
    let zstd = zstd::encode_all(text.as_bytes(), 3).unwrap();
    for whole in [&zstd[..], &xz, &bz2] {
        let said = refused(&folder, Some("script"), &whole[..whole.len() - 9]);
        assert!(said.contains("truncated or damaged"), "{said}");
    }
    for magic in [&b"\x1F\x8B"[..], b"BZh9", b"\xFD7zXZ\0", b"\x28\xB5\x2F\xFD", b"PK\x03\x04"] {
        assert!(refused(&folder, Some("ltrace"), &[magic, b"garbage".as_slice()].concat()).contains("t.bin"));
    }
}

#[test]
fn absurd_numbers_are_refused_or_counted() {
    let folder = Folder::new();
    for (format, text) in [
        ("script", "a 18446744073709551615 5\n"),
        ("script", "a 0 18446744073709551615\n"),
        ("rep", "1\n1\n1\n1\na 0 -5\n"),
        ("rep", "1\n2\n3\n"),
        ("rep", "1\n"),
        ("wee", "Alloc(99999999999999999999),\n"),
        ("mtrace", "- 0x1ffffffffffffffff\n"),
        ("mtrace", "+ 0x10 0x7fffffffffffffff\n"),
        ("mtrace", "< 0x10\n- 0x20\n"),
        ("mtrace", "> 0x10 0x20\n"),
        ("logalloc", "1 1 malloc(-5)=0x10\n"),
        ("logalloc", "1 1 malloc()=0x10\n"),
        ("logalloc", "1 1 memalign(18446744073709551615,1)=0x10\n"),
        ("valgrind", "--1-- malloc(18446744073709551615) = 0x10\n"),
        ("lttng", "[x] (+?) vm lttng_ust_libc:free: { ptr = 0x1 }\n"),
        ("lttng", "[00:00:00.1] (+?) vm lttng_ust_libc:malloc: { ptr = 0x1 }\n"),
    ] {
        let said = refused(&folder, Some(format), text.as_bytes());
        assert!(said.contains("t.bin:"), "{text}: {said}");
    }
    // Some formats are mixed with other output. There a line that is not a call is not an error.
    for text in [
        "malloc(99999999999999999999) = 0x10\n",
        "malloc(1) = 0x1ffffffffffffffff\n",
        "free(\n",
        "<... free resumed> ) = 0\n",
    ] {
        let text = format!("malloc(1) = 0x10\n{text}");
        let (report, _) = folder.import(&folder.file("t.txt", text)).unwrap();
        assert_eq!((report.events, report.quality.foreign_lines + report.quality.unfinished_calls), (1, 1));
    }
}

#[test]
fn truncated_and_corrupted_recordings_never_panic() {
    let folder = Folder::new();
    let mut random = crate::support::Random::new(5);
    for name in [
        "ltrace.txt",
        "ltrace-nested.txt",
        "valgrind.txt",
        "valgrind-odd.txt",
        "mtrace.txt",
        "lttng.txt",
        "bpftrace.txt",
    ] {
        let whole = std::fs::read(data(name)).unwrap();
        for _ in 0..25 {
            let mut bytes = whole.clone();
            for _ in 0..random.below(20) {
                let at = random.below(bytes.len() as u64) as usize;
                bytes[at] = random.next() as u8;
            }
            bytes.truncate(random.below(bytes.len() as u64 + 1) as usize);
            if let Err(why) = folder.import(&folder.file("t.bin", &bytes)) {
                assert!(why.to_string().contains("t.bin"), "{why}");
            }
        }
    }
}

/// A text without a call is not read to its end: a pipe may have none.
#[test]
fn a_long_text_without_a_call_is_refused_early() {
    let folder = Folder::new();
    let mut long = GzEncoder::new(Vec::new(), Compression::fast());
    // Lines without a call in each format; blank ones would only take longer.
    let lines = format!("#{}\n", "x".repeat(1022)).repeat(1 << 10).into_bytes();
    (0..65).for_each(|_| long.write_all(&lines).unwrap());
    let path = folder.file("t.gz", long.finish().unwrap());
    let faults = hksim_trace::import::faults::read(&path, &Default::default()).expect_err("it was accepted");
    assert!(faults.to_string().contains("64 MiB without an allocator call or page fault"), "{faults}");
    for format in ["perf", "ltrace", "script"] {
        let said = folder.import_as(format, &path).err().expect("the file was accepted").to_string();
        assert!(said.contains("t.gz:65537: 64 MiB without an allocator call or page fault"), "{format}: {said}");
    }
}

#[test]
fn files_without_a_call_are_refused_in_every_text_format() {
    let folder = Folder::new();
    for (format, text) in [
        ("ltrace", "getpagesize() = 4096\nstrlen(\"abc\") = 3\n+++ exited (status 0) +++\n"),
        ("perf", "app 7 1.0: page-faults: 1\n"),
        ("lttng", "[00:00:00.1] (+?) vm other:event: { ptr = 0x1 }\n"),
        ("bpftrace", "Attaching 9 probes...\n"),
        ("valgrind", "==1== Memcheck, a memory error detector\n"),
        ("mtrace", "= Start\n= End\n"),
        ("csv", "op,object,size\n"),
        ("rep", "1\n2\n0\n4\n"),
        ("script", "# nothing\n"),
    ] {
        let said = refused(&folder, Some(format), text.as_bytes());
        assert!(said.contains("no allocator call in it"), "{format}: {said}");
    }
}

#[test]
fn memory_use_does_not_depend_on_the_length_of_lines_or_of_the_trace() {
    let folder = Folder::new();
    let mut bomb = GzEncoder::new(Vec::new(), Compression::fast());
    bomb.write_all(b"malloc(1) = 0x10\n").unwrap();
    let filler = vec![b'x'; 1 << 20];
    (0..16).for_each(|_| bomb.write_all(&filler).unwrap());
    bomb.write_all(b"\nfree(0x10) = <void>\n").unwrap();
    let calls = "malloc(1 <unfinished ...>\nposix_memalign(0, 64, 1) = 0\nfree(0x40) = <void>\n".repeat(2000);
    (0..8).for_each(|_| bomb.write_all(calls.as_bytes()).unwrap());
    let path = folder.file("t.gz", bomb.finish().unwrap());
    let sparse = folder.file("sparse.txt", "a 0 1\n");
    std::fs::OpenOptions::new().write(true).open(&sparse).unwrap().set_len(1 << 30).unwrap();
    let grown = peak_grown_by(|| {
        let (report, _) = folder.import(&path).unwrap();
        assert_eq!((report.format, report.quality.foreign_lines), ("ltrace", 1));
        let said = folder.import(&sparse).err().expect("the file was accepted").to_string();
        assert!(said.contains("sparse.txt:2: the line is longer than 4095 bytes"), "{said}");
        // An unrecognised line of 1 GiB is skipped.
        let said = folder.import_as("ltrace", &sparse).err().expect("the file was accepted").to_string();
        assert!(said.contains("sparse.txt: no allocator call in it, read as ltrace"), "{said}");
    });
    assert!(grown < 64 << 20, "{grown} bytes");
}
