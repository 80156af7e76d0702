//! Objects that were not watched borrow what watched ones of their call site touched.

mod support;

use hksim_trace::event::*;
use hksim_trace::header::Footer;
use hksim_trace::hkt::{TraceReader, TraceWriter};
use hksim_trace::profile::{Borrowing, SiteProfile};
use hksim_trace::source::EventSource;
use std::collections::HashMap;
use support::{Random, read_all, sample_header};

/// Objects of three sites, every tenth of them watched; site 9 has no profile.
fn events(random: &mut Random, length: u32) -> Vec<Event> {
    let one = |number: u32| {
        let site = SiteId(random.pick(&[1, 2, 9]));
        let birth = if number.is_multiple_of(10) { Birth::Watched } else { Birth::None };
        let op = Op::Alloc { object: ObjectId(number), size: 64, align_log2: 0, call: AllocCall::Malloc, birth };
        Event { time_ns: 0, thread: ThreadId(0), site, op }
    };
    (0..length).map(one).collect()
}

#[test]
fn births_are_lent_in_the_measured_proportions() {
    let profiles = vec![
        SiteProfile { site: 0, untouched: 1, written: 1, ..SiteProfile::default() },
        SiteProfile { site: 1, written: 7, ..SiteProfile::default() },
        SiteProfile { site: 2, untouched: 10, read: 20, written: 30, read_then_written: 40 },
    ];
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("sampled.hkt");
    let mut writer = TraceWriter::create(&path, &sample_header()).unwrap();
    let stored = events(&mut Random::new(3), 30_000);
    stored.iter().for_each(|event| writer.push(event).unwrap());
    writer.finish(&Footer { profiles, ..Footer::default() }).unwrap();
    let mut source = Borrowing::new(TraceReader::open(&path).unwrap());
    let lent = read_all(&mut source).unwrap();
    let mut counts = HashMap::<(u32, Birth), u64>::new();
    for (stored, lent) in stored.iter().zip(&lent) {
        let (Op::Alloc { birth: before, .. }, Op::Alloc { birth, .. }) = (stored.op, lent.op) else { panic!() };
        if before == Birth::Watched {
            assert_eq!(stored, lent);
            continue;
        }
        *counts.entry((stored.site.0, birth)).or_default() += 1;
    }
    let of = |site| Birth::ALL.map(|birth| counts.get(&(site, birth)).copied().unwrap_or(0));
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
    assert!(read_all(&mut source).unwrap() == lent, "the second reading lends otherwise");
}
