//! Figures equal /proc, read by a program that shares no code with hksim.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::target::Target;

/// What the oracle reads; `None`, with the reason printed, without Python.
fn read(pid: u32) -> Option<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/smaps.py");
    let Ok(output) = Command::new("python3").arg(script).arg(pid.to_string()).output() else {
        eprintln!("skipped: python3 is not installed");
        return None;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(serde_json::from_slice(&output.stdout).expect("JSON"))
}

#[test]
fn figures_equal_smaps_and_pagemap() {
    let Some(mut target) = Target::start(11, 100) else { return };
    // Pages given up with MADV_FREE are counted late; a collapse makes the processor count them.
    target.ask("collapse");
    let inspection = target.inspected();
    let Some(read) = read(target.pid()) else { return };
    let figures = serde_json::to_value(&inspection).expect("JSON");
    for figure in ["rss_bytes", "huge_bytes", "swap_bytes"] {
        assert_eq!(figures[figure], read[figure], "{figure}");
    }
    let sum = |figure: fn(&hksim_inspect::region::Region) -> u64| inspection.regions.iter().map(figure).sum::<u64>();
    assert_eq!(sum(|region| region.rss_bytes), inspection.rss_bytes);
    assert_eq!(sum(|region| region.huge_bytes), inspection.huge_bytes);
    for region in &inspection.regions {
        let hindered: u64 = region.obstacles.iter().map(|hindered| hindered.bytes).sum();
        assert_eq!(hindered + region.huge_bytes, region.rss_bytes, "{region:?}");
    }
    let largest = &inspection.largest_anonymous;
    let of_region =
        inspection.regions.iter().find(|region| region.name == "anonymous").map_or(0, |region| region.rss_bytes);
    assert!(largest.iter().map(|mapping| mapping.rss_bytes).sum::<u64>() <= of_region);
    for mapping in largest {
        assert_eq!(read["rss_by_address"][mapping.address.to_string()], mapping.rss_bytes, "{mapping:?}");
    }
    let small: u64 = inspection.ranges.iter().map(|ranges| ranges.small_bytes).sum();
    let of_file: u64 = inspection
        .regions
        .iter()
        .flat_map(|region| &region.obstacles)
        .filter(|hindered| hindered.reason == "not anonymous memory")
        .map(|hindered| hindered.bytes)
        .sum();
    assert_eq!(small + inspection.huge_bytes + of_file, inspection.rss_bytes);
}
