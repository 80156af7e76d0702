//! The running kernel as the oracle of placement: mappings that are placed again by the rules of the kernel on which a
//! program was recorded must be where that kernel placed them. For an older kernel, addresses were measured under
//! emulation (`docs/lab/memory-kernels.md`).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::ops::Range;
use std::path::Path;

use hksim_linux_mm::{KernelConfig, KernelVersion, Rules};
use hksim_memory_record::{HugePages, MemoryRecordError, Options, SnapshotsOf, Source, Streams, record};
use hksim_memory_sim::{place_again, places_differently};
use hksim_memory_trace::{
    Beginning, Calls, Event, Faults, Footer, Header, Machine, MapOp, MappingKind, Op, Origin, Reader, Visibility,
    Writer,
};

/// Programs that most machines have, and that map in different ways.
const COMMANDS: [&str; 6] = [
    "ls /",
    "sort /etc/passwd",
    "tar cf /dev/null /etc/passwd",
    "perl -e my%h;$h{$_}=$_*2for(1..200000)",
    "python3 -c x=[bytes(n)for(n)in(range(0,3000000,70000))];y=bytearray(1);[y.extend(b)for(b)in(x)]",
    "gcc --version",
];

fn mappings(path: &Path) -> Vec<(u64, u64)> {
    let mut reader = Reader::open(path).expect("a recording");
    let (mut events, mut found) = (Vec::new(), Vec::new());
    while reader.next_chunk(&mut events).expect("a chunk") {
        found.extend(events.iter().filter_map(|event| match &event.op {
            Op::Map(map) => {
                let MapOp { pages, .. } = &**map;
                Some((pages.start, pages.end))
            }
            Op::Remap { new, .. } => Some((new.start, new.end)),
            _ => None,
        }));
    }
    found
}

#[test]
fn the_model_places_mappings_where_the_kernel_did() {
    let folder = tempfile::tempdir().expect("a directory");
    let (recorded, placed) = (folder.path().join("recorded.hkm"), folder.path().join("placed.hkm"));
    let mut checked = 0;
    for (command, fixes_addresses) in COMMANDS.into_iter().flat_map(|command| [(command, false), (command, true)]) {
        let options = Options {
            output: recorded.clone(),
            fixes_addresses,
            huge_pages: HugePages::Off,
            duration: None,
            directory: None,
            shown_thp_mode: None,
            variables: Vec::new(),
            streams: Streams::Silent { errors: None },
            snapshots_of: SnapshotsOf::Nothing,
            source: Source::Tracepoints,
            stack_depth: None,
        };
        let words: Vec<OsString> = command.split(' ').map(OsString::from).collect();
        match record(&options, &words) {
            Ok(_) => {}
            Err(MemoryRecordError::Start { .. }) => continue,
            Err(why @ MemoryRecordError::NotPermitted { .. }) => return eprintln!("skipped: {why}"),
            Err(why) => panic!("{command}: {why}"),
        }
        let header = Reader::open(&recorded).expect("a recording").header().clone();
        let Some((version, _)) = KernelVersion::nearest(&header.machine.kernel_release) else {
            return eprintln!("skipped: no rules for Linux {}", header.machine.kernel_release);
        };
        let kernel = KernelConfig { rules: Rules::of(version), ..KernelConfig::default() };
        assert!(!places_differently(&header.machine, &kernel.rules));
        place_again(&recorded, &kernel, &placed).expect("a placed copy");
        let (before, after) = (mappings(&recorded), mappings(&placed));
        let first = before.iter().zip(&after).position(|(before, after)| before != after);
        assert_eq!((first, before.len()), (None, after.len()), "{command}: {before:x?}\n{after:x?}");
        checked += before.len();
    }
    assert!(checked > 200, "only {checked} mappings were compared");
}

#[test]
fn an_older_kernel_aligns_nothing() {
    let kernel = |version| KernelConfig { rules: Rules::of(version), ..KernelConfig::default() };
    assert!(places_differently(&machine("6.18.44", true), &kernel(KernelVersion::V6_1).rules));
    assert!(!places_differently(&machine("6.1.0-44-cloud-amd64", false), &kernel(KernelVersion::V5_15).rules));
    assert!(!places_differently(&machine("not a version", false), &kernel(KernelVersion::V5_15).rules));
    // The vdso has another size.
    assert!(places_differently(&machine("6.18.44", false), &kernel(KernelVersion::V6_14).rules));
    assert!(!places_differently(&machine("6.18.44", true), &kernel(KernelVersion::V6_14).rules));
}

/// Mappings of three threads with an arena of glibc each, as `mmap` and `munmap` calls.
struct Arenas {
    vdso: [Range<u64>; 3],
    /// Of each thread: its stack, the mapping of its arena, and the ends that glibc unmaps.
    threads: [(u64, Range<u64>, Vec<Range<u64>>); 3],
}

const STACK_PAGES: u64 = 0x801;

/// As recorded on 6.18.44 without random addresses: `arenas` of tools/kernel-matrix/programs.
fn arenas() -> Arenas {
    Arenas {
        vdso: [0x7ffff7ffd..0x7ffff7fff, 0x7ffff7ff7..0x7ffff7ffb, 0x7ffff7ffb..0x7ffff7ffd],
        threads: [
            (0x7ffff77f6, 0x7fffef600..0x7ffff7600, vec![0x7fffef600..0x7ffff0000, 0x7ffff4000..0x7ffff7600]),
            (0x7ffff6ff5, 0x7fffe8000..0x7ffff0000, std::iter::once(0x7fffec000..0x7ffff0000).collect()),
            (0x7ffff67f4, 0x7fffec000..0x7ffff0000, vec![]),
        ],
    }
}

fn write_arenas(path: &Path, header: &Header) {
    let mut writer = Writer::create(path, header).expect("a file");
    let map = |pages: Range<u64>, kind, origin, hint_page| {
        Op::Map(Box::new(MapOp { pages, hint_page, kind, origin, protection: 3, flags: 0x22, name: None }))
    };
    let Arenas { vdso, threads } = arenas();
    let mut ops = vec![map(0x7ffffffde..0x7ffffffff, MappingKind::GrowingStack, Origin::Exec, 0)];
    ops.extend(vdso.map(|pages| map(pages, MappingKind::Special, Origin::Exec, 0)));
    for (stack, arena, ends) in threads {
        let hint_page = if ends.is_empty() { arena.start } else { 0 };
        ops.push(map(stack..stack + STACK_PAGES, MappingKind::Anonymous, Origin::Mmap, 0));
        ops.push(map(arena, MappingKind::Anonymous, Origin::Mmap, hint_page));
        ops.extend(ends.into_iter().map(Op::Unmap));
    }
    for op in ops {
        writer.push(Event { time_ns: 0, thread: 0, op, site: None }).expect("an event");
    }
    writer.finish(&Footer::default()).expect("a footer");
}

#[test]
fn mappings_are_where_linux_5_15_placed_them() {
    let folder = tempfile::tempdir().expect("a directory");
    let (recorded, placed) = (folder.path().join("recorded.hkm"), folder.path().join("placed.hkm"));
    write_arenas(&recorded, &header("6.18.44"));
    let kernel = KernelConfig { rules: Rules::of(KernelVersion::V5_15), ..KernelConfig::default() };
    place_again(&recorded, &kernel, &placed).expect("a placed copy");
    // Measured on 5.15.0-204-generic under emulation.
    let stack = |start| (start, start + STACK_PAGES);
    let measured = [
        stack(0x7ffff77f8),
        (0x7fffef7f8, 0x7ffff77f8),
        stack(0x7ffff6ff7),
        (0x7fffe8000, 0x7ffff0000),
        stack(0x7ffff67f6),
        (0x7fffec000, 0x7ffff0000),
    ];
    assert_eq!(mappings(&placed)[4..], measured, "{:x?}", mappings(&placed));
}

fn machine(release: &str, addresses_random: bool) -> Machine {
    Machine {
        kernel_release: release.to_string(),
        thp_mode: None,
        addresses_random,
        overcommit_memory: None,
        thp_disabled: true,
    }
}

fn header(release: &str) -> Header {
    Header {
        inherited: Default::default(),
        producer: "test".to_string(),
        run_id: "1".to_string(),
        command: vec!["arenas".to_string()],
        input: None,
        directory: None,
        environment: BTreeMap::new(),
        pid: 1,
        image: 0,
        beginning: Beginning::Exec,
        visibility: Visibility { faults: Faults::Accesses, calls: Calls::Tracepoints },
        machine: machine(release, false),
        stack_depth: None,
        history: Vec::new(),
    }
}
