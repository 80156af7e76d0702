//! Each verdict is checked by doing what it says: khugepaged scans, `MADV_COLLAPSE`, and writes.

use std::collections::BTreeMap;

use hksim_inspect::verdict::Way;

use crate::modes::Modes;
use crate::target::Target;

const RANGES: u32 = 160;

#[test]
fn every_verdict_is_what_the_kernel_does() {
    let Some(mut modes) = Modes::lock() else { return };
    modes.set("khugepaged/scan_sleep_millisecs", "20");
    modes.set("khugepaged/alloc_sleep_millisecs", "20");
    modes.set("khugepaged/pages_to_scan", "65536");
    for (seed, mode, max_ptes_none) in
        [(1, "madvise", "511"), (2, "always", "256"), (3, "always", "511"), (4, "never", "511"), (5, "madvise", "1")]
    {
        println!("seed {seed}, mode {mode}, max_ptes_none {max_ptes_none}");
        // No scan between the start of the program and its first inspection.
        modes.set("khugepaged/pages_to_scan", "1");
        modes.set("khugepaged/scan_sleep_millisecs", "60000");
        modes.set("khugepaged/max_ptes_none", max_ptes_none);
        modes.set("enabled", mode);
        let Some(mut target) = Target::start(seed, RANGES) else { return };
        let first = target.verdicts(&target.inspected());
        modes.set("khugepaged/pages_to_scan", "65536");
        modes.set("khugepaged/scan_sleep_millisecs", "20");
        if mode != "never" && !modes.wait_for_scans() {
            return eprintln!("skipped: khugepaged did not scan within a minute");
        }
        let after_scans = target.verdicts(&target.inspected());
        check(&target, &first, &after_scans, |way| matches!(way, Way::IsHuge | Way::Khugepaged));
        target.ask("collapse");
        let after_calls = target.verdicts(&target.inspected());
        check(&target, &after_scans, &after_calls, |way| matches!(way, Way::IsHuge | Way::CollapseCall));
        modes.set("khugepaged/pages_to_scan", "1");
        target.ask("write");
        let after_writes = target.verdicts(&target.inspected());
        check(&target, &after_calls, &after_writes, |way| matches!(way, Way::IsHuge | Way::NextFault));
        let ways: BTreeMap<Way, usize> =
            Way::ALL.into_iter().map(|way| (way, first.values().filter(|(found, _)| *found == way).count())).collect();
        println!("{ways:?}");
    }
}

/// Checks which ranges are huge after a remedy, by what was said of them before.
fn check<T: Copy + std::fmt::Debug>(
    target: &Target,
    before: &BTreeMap<u64, (Way, T)>,
    after: &BTreeMap<u64, (Way, T)>,
    becomes_huge: impl Fn(Way) -> bool,
) {
    let wrong: Vec<String> = before
        .iter()
        .filter(|(address, said)| becomes_huge(said.0) != (after[address].0 == Way::IsHuge))
        .map(|(address, said)| format!("{address:x} ({}): {said:?}, then {:?}", target.ranges[address], after[address]))
        .collect();
    assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
}
