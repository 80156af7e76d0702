//! Objects that were not watched are assigned the touches of the watched objects of their call site.

use crate::support::{Random, read_all, sample_header};
use hksim_trace::event::*;
use hksim_trace::header::Footer;
use hksim_trace::hkt::{TraceReader, TraceWriter};
use hksim_trace::profile::{SiteProfile, WithProfiles};
use hksim_trace::source::EventSource;
use std::collections::HashMap;

/// Objects of three sites, every tenth of them watched; site 9 has no profile.
fn events(random: &mut Random, length: u32) -> Vec<Event> {
    let one = |number: u32| {
        let site = SiteId(random.pick(&[1, 2, 9]));
        let initial_touch = if number.is_multiple_of(10) { InitialTouch::Watched } else { InitialTouch::None };
        let op =
            Op::Alloc { object: ObjectId(number), size: 64, align_log2: 0, call: AllocCall::Malloc, initial_touch };
        Event { time_ns: 0, thread: ThreadId(0), site, op }
    };
    (0..length).map(one).collect()
}

#[test]
fn initial_touches_follow_the_measured_proportions() {
    let profiles = vec![
        SiteProfile { site: 0, untouched: 1, written: 1, ..SiteProfile::default() },
        SiteProfile { site: 1, written: 7, ..SiteProfile::default() },
        SiteProfile { site: 2, untouched: 10, read: 20, written: 30, read_then_written: 40, ..SiteProfile::default() },
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sampled.hkt");
    let mut writer = TraceWriter::create(&path, &sample_header()).unwrap();
    let stored = events(&mut Random::new(3), 30_000);
    stored.iter().for_each(|event| writer.push(event).unwrap());
    writer.finish(&Footer { profiles, ..Footer::default() }).unwrap();
    let mut source = WithProfiles::new(TraceReader::open(&path).unwrap());
    let applied = read_all(&mut source).unwrap();
    let mut counts = HashMap::<(u32, InitialTouch), u64>::new();
    for (stored, applied) in stored.iter().zip(&applied) {
        let (Op::Alloc { initial_touch: before, .. }, Op::Alloc { initial_touch, .. }) = (stored.op, applied.op) else {
            panic!()
        };
        if before == InitialTouch::Watched {
            assert_eq!(stored, applied);
            continue;
        }
        *counts.entry((stored.site.0, initial_touch)).or_default() += 1;
    }
    let of = |site| InitialTouch::ALL.map(|initial_touch| counts.get(&(site, initial_touch)).copied().unwrap_or(0));
    let [none, first, all, watched, read, read_then_write] = of(2);
    assert_eq!((first, watched), (0, 0));
    let total = none + all + read + read_then_write;
    for (count, percent) in [(none, 10), (read, 20), (all, 30), (read_then_write, 40)] {
        assert!((count * 100).abs_diff(total * percent) <= 100, "{count} of {total} is not {percent} %");
    }
    assert_eq!(of(1).map(|count| count > 0), [false, false, true, false, false, false]);
    let [none, _, all, ..] = of(9);
    assert!(none > 0 && none.abs_diff(all) <= 1, "{none} {all}");
    source.rewind().unwrap();
    assert!(read_all(&mut source).unwrap() == applied, "the second pass differs");
}

/// Initial touches of objects of these sizes without a site profile.
fn touches_by_size(profiles: &[SiteProfile], call: AllocCall, sizes: &[u64]) -> Vec<InitialTouch> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sizes.hkt");
    let mut writer = TraceWriter::create(&path, &sample_header()).unwrap();
    for (number, &size) in (0..).zip(sizes) {
        let op = Op::Alloc { object: ObjectId(number), size, align_log2: 0, call, initial_touch: InitialTouch::None };
        writer.push(&Event::new(0, ThreadId(0), op)).unwrap();
    }
    writer.finish(&Footer { profiles: profiles.to_vec(), ..Footer::default() }).unwrap();
    let applied = read_all(&mut WithProfiles::new(TraceReader::open(&path).unwrap())).unwrap();
    let initial_touch =
        |event: &Event| if let Op::Alloc { initial_touch, .. } = event.op { initial_touch } else { panic!() };
    applied.iter().map(initial_touch).collect()
}

#[test]
fn a_block_uses_the_profile_of_its_size_class_and_of_calloc_or_malloc() {
    let of = |bytes, zeroed| SiteProfile::of_size(bytes, zeroed);
    let profiles = [
        SiteProfile { untouched: 1, ..SiteProfile::default() },
        SiteProfile { written: 1, ..of(20, false) },
        SiteProfile { read: 1, ..of(100, false) },
        SiteProfile { read_then_written: 1, ..of(20, true) },
    ];
    assert_eq!([profiles[1].bytes_max, profiles[2].bytes_max], [32, 112]);
    let sizes = [17, 32, 33, 112, 113];
    let malloc = touches_by_size(&profiles, AllocCall::Malloc, &sizes);
    // Sizes between two classes belong to the larger one. Sizes above the largest class use the profile of all sizes.
    assert_eq!(
        malloc,
        [InitialTouch::All, InitialTouch::All, InitialTouch::Read, InitialTouch::Read, InitialTouch::None]
    );
    let calloc = touches_by_size(&profiles, AllocCall::Calloc, &sizes);
    assert_eq!(
        calloc,
        [
            InitialTouch::ReadThenWrite,
            InitialTouch::ReadThenWrite,
            InitialTouch::None,
            InitialTouch::None,
            InitialTouch::None
        ]
    );
}

#[test]
fn edits_that_change_sizes_change_the_size_classes() {
    let profiles = [
        SiteProfile { written: 1, ..SiteProfile::of_size(90, false) },
        SiteProfile { read: 1, ..SiteProfile::of_size(100, false) },
        SiteProfile { untouched: 1, ..SiteProfile::of_size(130, false) },
    ];
    let folder = tempfile::tempdir().unwrap();
    let [from, to] = ["from.hkt", "to.hkt"].map(|name| folder.path().join(name));
    TraceWriter::create(&from, &sample_header())
        .and_then(|writer| writer.finish(&Footer { profiles: profiles.to_vec(), ..Footer::default() }))
        .unwrap();
    let bounds = |edit: &mut dyn hksim_trace::tools::Edit| -> Vec<(u64, u64)> {
        hksim_trace::tools::rewrite(&mut TraceReader::open(&from).unwrap(), edit, &to).unwrap();
        let profiles = TraceReader::open(&to).unwrap().footer().profiles.clone();
        profiles.iter().map(|profile| (profile.bytes_max, profile.untouched + profile.read + profile.written)).collect()
    };
    let factor = hksim_trace::tools::Factor::new(1.5).unwrap();
    let scaled = bounds(&mut hksim_trace::tools::ScaleSizes(factor));
    assert_eq!(scaled, [(144, 1), (168, 1), (216, 1)]);
    // 96 and 112 are also classes of the anonymiser. 144 is not and is rounded up to 160.
    let rounded = bounds(&mut hksim_trace::tools::Anonymise::new(hksim_trace::tools::SizeDetail::Classes));
    assert_eq!(rounded, [(96, 1), (112, 1), (160, 1)]);
}

#[test]
fn touches_that_differ_by_page_are_assigned_in_their_proportions() {
    let mut profile = SiteProfile::default();
    let counts = [
        (InitialTouch::All, 40),
        (InitialTouch::PerPage(PageTouches::WriteReadWrite), 30),
        (InitialTouch::PerPage(PageTouches::NoneRead), 20),
        (InitialTouch::None, 10),
    ];
    for (touch, count) in counts {
        (0..count).for_each(|_| profile.count(touch));
    }
    assert_eq!((profile.written, profile.read, profile.untouched), (70, 20, 10));
    let applied = touches_by_size(&[profile], AllocCall::Malloc, &[100; 10_000]);
    for (touch, percent) in counts {
        let count = applied.iter().filter(|applied| **applied == touch).count();
        assert!(count.abs_diff(percent * 100) < 150, "{touch:?}: {count} is not {percent} %");
    }
    // The proportions are exact if the two pages are not distinguished.
    let whole = applied.iter().filter(|touch| touch.whole() == InitialTouch::All).count();
    assert!(whole.abs_diff(7000) <= 1, "{whole}");
    // A hostile file can claim that more objects differ by page than exist.
    let hostile = SiteProfile { written: 1, apart: [u64::MAX; PageTouches::ALL.len()], ..SiteProfile::default() };
    assert!(
        touches_by_size(&[hostile], AllocCall::Malloc, &[100; 10])
            .iter()
            .all(|touch| touch.whole() == InitialTouch::All)
    );
}

#[test]
fn page_touches_are_identified_by_the_initial_touches_of_both_pages() {
    for sides in PageTouches::ALL {
        assert_eq!(PageTouches::of(sides.first(), sides.second()), Some(sides));
        assert_eq!(PageTouches::ALL[sides as usize], sides);
    }
    assert_eq!(PageTouches::of(InitialTouch::Read, InitialTouch::Read), None);
    assert_eq!(InitialTouch::PerPage(PageTouches::ReadWrite).whole(), InitialTouch::ReadThenWrite);
    assert_eq!(InitialTouch::PerPage(PageTouches::WriteRead).whole(), InitialTouch::All);
    assert_eq!(InitialTouch::PerPage(PageTouches::NoneReadWrite).whole(), InitialTouch::ReadThenWrite);
}
