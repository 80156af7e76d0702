//! The anonymous mappings that a recording implies, against those in /proc at the exit.

use std::collections::BTreeSet;

use hksim_memory_record::Source;
use hksim_memory_trace::{MappingKind, Op};

use crate::support::{MAPPINGS, operations, options, recorded, with_program};

const CASES: [&str; 10] =
    ["remap", "fixed", "unmap", "populate", "lock", "advice", "brk", "bss", "protect", "growsdown"];

/// Pages of private anonymous memory after these operations, page by page.
fn implied(operations: &[Op]) -> BTreeSet<u64> {
    let mut pages = BTreeSet::new();
    for op in operations {
        match op {
            Op::Map(map) => {
                map.pages.clone().for_each(|page| {
                    pages.remove(&page);
                });
                if map.kind == MappingKind::Anonymous {
                    pages.extend(map.pages.clone());
                }
            }
            Op::Unmap(range) => range.clone().for_each(|page| {
                pages.remove(&page);
            }),
            Op::Remap { old, new, flags } => {
                const DONTUNMAP: u32 = 4;
                let is_anonymous = pages.contains(&old.start);
                if flags & DONTUNMAP == 0 {
                    old.clone().for_each(|page| {
                        pages.remove(&page);
                    });
                }
                new.clone().for_each(|page| {
                    pages.remove(&page);
                });
                if is_anonymous {
                    pages.extend(new.clone());
                }
            }
            _ => {}
        }
    }
    pages
}

#[test]
fn the_recording_implies_the_mappings_of_proc() {
    let Some((directory, program)) = with_program(MAPPINGS) else { return };
    for case in CASES {
        let file = directory.path().join(format!("{case}.hkm"));
        let options = hksim_memory_record::Options {
            snapshots_of: hksim_memory_record::SnapshotsOf::Program,
            ..options(&file, Source::Tracepoints)
        };
        let Some(report) = recorded(&options, &program, &[case]) else { return };
        let snapshot = report.snapshots.values().next().expect("a snapshot");
        let shown: BTreeSet<u64> = snapshot.mappings.iter().flat_map(|mapping| mapping.pages.clone()).collect();
        let implied = implied(&operations(&report.files[0].path));
        let (missing, added): (Vec<_>, Vec<_>) =
            (shown.difference(&implied).take(3).collect(), implied.difference(&shown).take(3).collect());
        assert!(
            missing.is_empty() && added.is_empty(),
            "{case}: not in the recording {missing:x?}, not in /proc {added:x?}"
        );
    }
}

#[test]
fn private_memory_of_the_zero_device_is_anonymous_both_ways() {
    const START_PAGE: u64 = 0x20_0000;
    let Some((directory, program)) = with_program("../../../cli/tests/data/anonymous-kinds.c") else { return };
    for (name, source) in [("tracepoints", Source::Tracepoints), ("stops", Source::Stops)] {
        let file = directory.path().join(format!("{name}.hkm"));
        let Some(report) = recorded(&options(&file, source), &program, &["zero-device"]) else { return };
        assert_eq!(report.exit_code, Some(0), "{name}");
        let is_own = |op: &Op| matches!(op, Op::Map(map) if map.pages.start == START_PAGE);
        let own = operations(&file).into_iter().find(is_own).expect("the mapping");
        assert!(matches!(own, Op::Map(map) if map.kind == MappingKind::Anonymous), "{name}");
    }
}
