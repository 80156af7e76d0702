//! Each verdict is checked by doing what it says: khugepaged scans, `MADV_COLLAPSE`, and writes.

use std::collections::BTreeMap;
use std::thread::sleep;
use std::time::{Duration, Instant};

use hksim_inspect::verdict::{Obstacle, Way};

use crate::setting::Modes;
use crate::target::Target;

const RANGES: u32 = 160;
/// Bytes of a range.
const HUGE_BYTES: u64 = 2 << 20;

/// What was said of each range, by its address.
type Verdicts = BTreeMap<u64, (Way, Option<Obstacle>)>;

/// What an inspection says of each range that the program made.
fn verdicts(target: &Target) -> Verdicts {
    let inspection = target.inspected();
    let of = |address: u64| {
        // A range in several mappings has several entries.
        let mut runs =
            inspection.map.iter().filter(|run| (run.address..run.address + run.ranges * HUGE_BYTES).contains(&address));
        let run = runs.next().map_or((Way::None, None), |run| (run.way, run.obstacle));
        (address, run)
    };
    target.ranges.keys().map(|&address| of(address)).collect()
}

#[test]
fn every_verdict_is_what_the_kernel_does() {
    let Some(mut modes) = Modes::lock() else { return };
    modes.set("khugepaged/alloc_sleep_millisecs", "20");
    for (seed, mode, max_ptes_none) in
        [(1, "madvise", "511"), (2, "madvise", "256"), (3, "madvise", "1"), (4, "never", "511"), (5, "always", "511")]
    {
        println!("seed {seed}, mode {mode}, max_ptes_none {max_ptes_none}");
        // No scan between the start of the program and its first inspection.
        modes.set("khugepaged/pages_to_scan", "1");
        modes.set("khugepaged/scan_sleep_millisecs", "60000");
        modes.set("khugepaged/max_ptes_none", max_ptes_none);
        modes.set("enabled", mode);
        let Some(mut target) = Target::start(seed, RANGES) else { return };
        let first = verdicts(&target);
        // In the mode `always` khugepaged scans every process of the machine, which takes minutes.
        let scans = mode != "always";
        let after_scans = if scans { after_scans(&mut modes, &target) } else { first.clone() };
        check(&target, &first, &after_scans, |way| way == Way::IsHuge || scans && way == Way::Khugepaged);
        target.ask("collapse");
        let after_calls = verdicts(&target);
        check(&target, &after_scans, &after_calls, |way| way <= Way::CollapseCall && way != Way::NextFault);
        modes.set("khugepaged/pages_to_scan", "1");
        target.ask("write");
        let after_writes = verdicts(&target);
        check(&target, &after_calls, &after_writes, |way| matches!(way, Way::IsHuge | Way::NextFault));
        let ways: BTreeMap<Way, usize> =
            Way::ALL.into_iter().map(|way| (way, first.values().filter(|(found, _)| *found == way).count())).collect();
        println!("{ways:?}");
    }
}

/// The verdicts when khugepaged has collapsed what it can, or after two minutes.
fn after_scans(modes: &mut Modes, target: &Target) -> Verdicts {
    modes.set("khugepaged/pages_to_scan", "65536");
    modes.set("khugepaged/scan_sleep_millisecs", "20");
    let deadline = Instant::now() + Duration::from_secs(120);
    loop {
        let is_settled = verdicts(target).values().all(|(way, _)| *way != Way::Khugepaged);
        if is_settled || Instant::now() > deadline {
            // The rest of the scan.
            sleep(Duration::from_secs(1));
            return verdicts(target);
        }
        sleep(Duration::from_millis(100));
    }
}

/// Checks which ranges are huge after a remedy, by what was said of them before.
fn check(target: &Target, before: &Verdicts, after: &Verdicts, becomes_huge: impl Fn(Way) -> bool) {
    let wrong: Vec<String> = before
        .iter()
        .filter(|(address, said)| becomes_huge(said.0) != (after[address].0 == Way::IsHuge))
        .map(|(address, said)| format!("{address:x} ({}): {said:?}, then {:?}", target.ranges[address], after[address]))
        .collect();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
