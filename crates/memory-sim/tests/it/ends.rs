//! What an address space did before its end counts: memory that is gone by then, and time without events.

use std::path::Path;

use hksim_linux_mm::{KernelConfig, ThpConfig, ThpMode};
use hksim_memory_sim::{Advise, Detail, Family, Prediction, Setting, ThpPrctl, simulate};
use hksim_memory_trace::{End, Event, Footer, Header, MapOp, MappingKind, Op, Origin, SiteId, TouchKind, Writer};

const MAP_PRIVATE_ANONYMOUS: u32 = 0x22;
const MAP_HUGETLB: u32 = 0x40000;
/// A page at a 2 MiB boundary.
const AT: u64 = 0x7f00_0000_0000 / 4096;
const SECOND_NS: u64 = 1_000_000_000;

fn map(pages: u64, flags: u32) -> Op {
    let kind = MappingKind::Anonymous;
    let flags = MAP_PRIVATE_ANONYMOUS | flags;
    let pages = AT..AT + pages;
    Op::Map(Box::new(MapOp { pages, hint_page: 0, kind, origin: Origin::Mmap, protection: 3, flags, name: None }))
}

fn write(page: u64) -> Op {
    Op::Touch { page: AT + page, kind: TouchKind::Write }
}

/// The prediction for an address space with these operations, one microsecond apart, that ends after `end_ns`.
fn predicted(ops: Vec<Op>, end_ns: Option<u64>, kernel: KernelConfig) -> Prediction {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.hkm");
    let mut writer = Writer::create(&path, &Header::example(&["a"])).expect("a file");
    for (number, op) in ops.into_iter().enumerate() {
        writer.push(Event { time_ns: 1000 * number as u64, thread: 0, op, site: SiteId::UNKNOWN }).expect("an event");
    }
    writer.finish(&Footer { end: End::Exit, end_ns, ..Footer::default() }).expect("a file");
    let setting = Setting { kernel, advise: Advise::Recorded, thp_prctl: ThpPrctl::Recorded };
    let result = simulate(Family::open(Path::new(&path)).expect("a recording"), &[setting], Detail::Figures);
    result.expect("a result").predictions.remove(0)
}

fn always() -> KernelConfig {
    KernelConfig { thp: ThpConfig::new(ThpMode::Always), ..KernelConfig::default() }
}

#[test]
fn hugetlb_pages_between_a_touch_and_munmap_count() {
    let ops = vec![map(1024, MAP_HUGETLB), write(0), write(512), Op::Unmap(AT..AT + 1024)];
    let prediction = predicted(ops, None, KernelConfig::default());
    assert_eq!((prediction.installs.by_kind.hugetlb, prediction.hugetlb_bytes_peak), (2, 4 << 20));
}

/// Small pages in eligible memory, which is unmapped, and then a sleep.
#[test]
fn khugepaged_works_until_the_end_and_on_memory_that_is_gone() {
    let ops = || vec![map(1024, 0), Op::Touch { page: AT + 3, kind: TouchKind::Read }, Op::Unmap(AT..AT + 1024)];
    let dropped = || {
        let mut ops = vec![map(1024, 0), write(3)];
        ops.push(Op::Advise { pages: AT + 8..AT + 9, advice: 4, errno: 0 });
        ops.extend([write(8), Op::Unmap(AT..AT + 1024)]);
        ops
    };
    // 8 PMD ranges at once, and 8 more every 10 s.
    for (end_ns, huge_pages) in [(None, 8), (Some(25 * SECOND_NS), 24)] {
        let bound = |ops| predicted(ops, end_ns, always()).khugepaged_bound.map(|bound| bound.huge_pages_max);
        assert_eq!(bound(dropped()), Some(huge_pages), "{end_ns:?}");
        assert_eq!(bound(ops()), None, "a huge zero page is no small page");
    }
    let end = predicted(dropped(), Some(SECOND_NS), always()).timeline.last().copied();
    assert_eq!(end.map(|sample| sample.time_ns), Some(SECOND_NS));
}
