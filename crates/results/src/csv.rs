//! A prediction as a CSV row. The columns are the same for all traces, designs and flags.

use std::collections::BTreeMap;

use hksim_cost_model::MedianRange;
use hksim_explore::described::Described;
use hksim_explore::flags::mthp;
use hksim_explore::origin::origin_text;
use hksim_explore::priced::{self, Priced};
use hksim_time_model::{Parts, Time};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Parts that only some results have. Their figures are columns of every row, so that the columns do not vary.
const OPTIONAL: [(&str, &[&str]); 6] = [
    ("addresses", &["source", "mmaps", "modelled_mmaps"]),
    ("khugepaged_at_end", &["rss_bytes_max", "huge_pages_max"]),
    ("khugepaged_bound", &["huge_pages_max", "rss_bytes_extra_max", "installs_avoided_max"]),
    (
        "khugepaged_settled",
        &[
            "rss_bytes",
            "huge_pages",
            "collapsed_pmds",
            "collapsed_folios",
            "copied_pages",
            "freed_pages",
            "zeroed_pages",
        ],
    ),
    (
        "memory_limit",
        &[
            "outcome",
            "event",
            "by",
            "least_limit_bytes",
            "charged_bytes_peak",
            "folios_refused",
            "lazy_free_bytes_reclaimed",
        ],
    ),
    ("system_time", &["low_s", "median_s", "high_s", "machine", "kernel_release"]),
];

/// The row. Lists become sums, and the trace's origin is one column. Only kernel settings that have a flag become
/// columns; the others follow from the kernel version, or are in JSON.
pub fn row<P: Described>(priced: &Priced<P>) -> Map<String, Value> {
    let report = &priced.report;
    let value = serde_json::to_value(priced).unwrap_or_default();
    let mut row = value.as_object().cloned().unwrap_or_default();
    if let Some((_, design)) = report.policy.flags().first().filter(|(flag, _)| *flag == "design") {
        // Two columns for every design: their settings differ.
        let settings: Vec<String> =
            report.policy.flags().iter().skip(1).map(|(flag, word)| format!("{flag}={word}")).collect();
        row.insert("policy".into(), json!({"design": design, "settings": settings.join(" ")}));
    }
    let trace = &report.trace;
    row.insert(
        "trace".into(),
        json!({
            "file": trace.file, "checksum": trace.checksum, "origin": origin_text(&trace.origin),
            "touch_source": word(&trace.touch_source), "clock": word(&trace.clock), "complete": trace.complete,
        }),
    );
    let kernel = &report.kernel;
    row.insert(
        "kernel".into(),
        json!({
            "version": kernel.rules.version.word(), "thp": kernel.thp.global.word(), "mthp": mthp::show(&kernel.thp.sizes),
            "hugetlb_pool_pages": kernel.hugetlb_pool_pages, "memory_limit_bytes": kernel.memory_limit_bytes, "max_map_count": kernel.max_map_count,
            "use_zero_page": kernel.use_zero_page, "defrag": word(&kernel.defrag),
            "khugepaged": kernel.khugepaged.work.word(), "max_ptes_none": kernel.khugepaged.max_ptes_none,
            "pages_to_scan": kernel.khugepaged.pages_to_scan, "scan_sleep_ms": kernel.khugepaged.scan_sleep_ms,
        }),
    );
    for (name, fields) in OPTIONAL {
        let part = row.get(name).cloned().unwrap_or_default();
        let figures = fields.iter().map(|&field| (field.to_string(), part.get(field).cloned().unwrap_or_default()));
        row.insert(name.into(), Value::Object(figures.collect()));
    }
    row.insert("time".into(), time(priced.time.as_ref()));
    row.insert("tlb_misses".into(), priced::figures(priced).tlb_misses.into());
    let copied: u64 = report.forks.iter().map(|fork| fork.copied_bytes).sum();
    row.insert("forks".into(), json!({"count": report.forks.len(), "copied_bytes": copied}));
    // These parts do not fit in a row; JSON has them.
    row.remove("by_touch_rule");
    row.remove("tlb");
    row.remove("paths");
    row.remove("lines");
    row.remove("time_skipped");
    row
}

/// The time, whose columns are empty without one.
fn time(time: Option<&Time>) -> Value {
    let range = |of: fn(&Time) -> MedianRange| {
        let range = time.map(of);
        json!({"low": range.map(|range| range.low), "median": range.map(|range| range.median), "high": range.map(|range| range.high)})
    };
    let parts = time.map_or_else(
        || Parts::default().named().map(|(name, _)| (name, None)),
        |time| time.parts_ns_per_call.named().map(|(name, ns)| (name, Some(ns))),
    );
    json!({
        "ns_per_call": range(|time| time.ns_per_call), "total_s": range(|time| time.total_s),
        "parts_ns_per_call": BTreeMap::from(parts), "profile": time.map(|time| &time.profile),
    })
}

/// The JSON name of an enum value.
fn word(value: &impl Serialize) -> Value {
    serde_json::to_value(value).unwrap_or_default()
}
