//! What an address space did before its end counts: memory that is gone by then, and time without events.

use std::path::Path;

use hksim_linux_mm::{KernelConfig, KhugepagedWork, ThpConfig, ThpMode};
use hksim_memory_sim::{Detail, Family, Prediction, Setting, hugetlb_shortage, simulate};
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
    let setting = Setting::recorded(kernel);
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

#[test]
fn a_hugetlb_pool_that_is_too_small_is_told() {
    let second = |number: u64| {
        let (from, to) = (AT + 2048 * number, AT + 2048 * number + 1024);
        let Op::Map(mut map) = map(1024, MAP_HUGETLB) else { unreachable!("a mapping") };
        map.pages = from..to;
        Op::Map(map)
    };
    let ops = || vec![map(1024, MAP_HUGETLB), write(0), write(512), second(1), second(2)];
    for (pool, failed) in [(2, 2), (5, 1), (6, 0)] {
        let prediction =
            predicted(ops(), None, KernelConfig { hugetlb_pool_pages: Some(pool), ..KernelConfig::default() });
        assert_eq!((prediction.hugetlb_maps_failed, prediction.hugetlb_bytes_failed), (failed, failed << 22), "{pool}");
        assert_eq!((prediction.huge_bytes_peak_max(), prediction.rss_bytes_peak), (4 << 20, 4 << 20));
        let words = hugetlb_shortage(prediction.hugetlb_maps_failed, prediction.hugetlb_bytes_failed);
        assert_eq!(words.is_some_and(|words| words.contains("mmap")), failed > 0);
    }
}

/// Both ends of a pause have a sample, with the same memory.
#[test]
fn pauses_have_samples() {
    let ops = vec![map(1024, 0), write(3), write(4)];
    let timeline = predicted(ops, Some(5 * SECOND_NS), KernelConfig::default()).timeline;
    let of_pause = timeline.iter().filter(|sample| sample.rss_bytes == 2 << 12);
    assert_eq!(of_pause.map(|sample| sample.time_ns).collect::<Vec<_>>(), [2000, 5 * SECOND_NS]);
}

/// 8 ranges at once, and 8 more every 10 s. Each range lacks 511 pages.
#[test]
fn khugepaged_leaves_at_most_what_its_pace_allows() {
    let mut kernel = always();
    kernel.khugepaged.work = KhugepagedWork::Bound;
    let ops = || {
        let mut ops = vec![map(512 * 64, 0)];
        for range in 0..64 {
            ops.push(write(512 * range));
            ops.push(Op::Advise { pages: AT + 512 * range + 1..AT + 512 * (range + 1), advice: 4, errno: 0 });
        }
        ops
    };
    for (seconds, ranges) in [(0, 8), (25, 24), (1000, 64)] {
        let prediction = predicted(ops(), Some(seconds * SECOND_NS), kernel.clone());
        assert_eq!((prediction.rss_bytes_end, prediction.huge_pages_end), (64 << 12, 0));
        let most = prediction.khugepaged_at_end.expect("a bound");
        assert_eq!(most.huge_pages_max, ranges, "{seconds} s");
        assert_eq!(most.rss_bytes_max, (64 + 511 * ranges) << 12, "{seconds} s");
    }
}
