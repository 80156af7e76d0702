//! The sections of memory recordings: their words and tables.

use std::collections::{BTreeMap, BTreeSet};

use crate::error::{Context, Result};
use hksim_linux_mm::MemoryLimit;
use hksim_memory_sim::{
    AllocatorLabel, FamilyTotal, Installs, MappedOutside, NamedAdviser, Outside, RangeEnd, RegionPrediction,
    UnseenWrites, huge_bytes_peak_max, hugetlb_shortage,
};
use serde::Deserialize;
use serde_json::Value;

use super::html::{paragraph, table};
use crate::chart::{Panel, Series};
use crate::khugepaged::Effects;
use crate::memory_limit::{self, range};
use crate::memory_prediction::family;
use crate::memory_validation;
use crate::recording::Recording;
use crate::site_installs;
use crate::tables::notes;
use hksim_memory_sim::groups;
use hksim_memory_sim::groups::{outside, outside_table};
use hksim_memory_sim::losses;
use hksim_results::site_installs::SiteInstalls;
use hksim_text::table::Table;
use hksim_text::units::{bytes, count, percent};
use hksim_validate::memory::Row;

/// The parts of a prediction that are told.
#[derive(Deserialize)]
struct Prediction {
    installs: Installs,
    traps: u64,
    rss_bytes_peak: u64,
    huge_pages_peak: u64,
    hugetlb_bytes_peak: u64,
    #[serde(default)]
    hugetlb_maps_failed: u64,
    #[serde(default)]
    hugetlb_bytes_failed: u64,
    #[serde(default)]
    lazy_free_bytes_end_max: u64,
    #[serde(flatten)]
    khugepaged: Effects,
    /// Who asked for huge pages, if call sites were asked for.
    #[serde(default)]
    advisers: Vec<NamedAdviser>,
    regions: Vec<RegionPrediction>,
    traps_outside: BTreeMap<Outside, u64>,
    #[serde(default)]
    mapped_outside: BTreeMap<Outside, MappedOutside>,
    family: Option<FamilyTotal>,
    memory_limit: Option<MemoryLimit>,
    unseen_writes: Option<UnseenWrites>,
    recording: Recording,
}

/// The parts of a sweep's row that are not about its setting.
#[derive(Deserialize)]
struct Recorded {
    recording: Recording,
    /// Of a replay: its file has a name of its own only while it is simulated.
    allocator: Option<AllocatorLabel>,
    memory_limit: Option<MemoryLimit>,
    unseen_writes: Option<UnseenWrites>,
    traps_outside: BTreeMap<Outside, u64>,
}

/// One setting: its figures, whose memory it is, and why it is not huge.
///
/// # Errors
/// The result is damaged.
pub fn sim(result: &Value) -> Result<String> {
    let prediction: Prediction = Deserialize::deserialize(result).context("not a result of a memory recording")?;
    let Prediction { installs, traps, rss_bytes_peak, traps_outside, .. } = &prediction;
    let huge_bytes = huge_bytes_peak_max(prediction.huge_pages_peak, prediction.hugetlb_bytes_peak, *rss_bytes_peak);
    let ends = prediction.unseen_writes.and_then(|unseen| unseen.at_least.zip(unseen.at_most));
    let figure = |of: fn(RangeEnd) -> u64, own: u64, text| {
        let (least, most) = ends.map_or((own, own), |(least, most)| (of(least), of(most)));
        range(least, most, text)
    };
    let words = format!(
        "{} page-table installs and {} #PF exceptions in anonymous memory; peak RSS {}, at most {} of it in huge pages.",
        figure(|end| end.installs, installs.total, count),
        figure(|end| end.traps, *traps, count),
        figure(|end| end.rss_bytes_peak, *rss_bytes_peak, bytes),
        percent(huge_bytes, *rss_bytes_peak)
    );
    let shortage = hugetlb_shortage(prediction.hugetlb_maps_failed, prediction.hugetlb_bytes_failed);
    let lazy_free = Some(prediction.lazy_free_bytes_end_max).filter(|&size| size > 0);
    let lazy_free =
        lazy_free.map(|size| format!("Of RSS at the end, at most {} are LazyFree (MADV_FREE).", bytes(size)));
    let notes = losses(prediction.recording.lost_events).into_iter().chain([words]).chain(shortage);
    let unseen = prediction.unseen_writes.as_ref();
    let limit = prediction.memory_limit.iter().flat_map(|limit| memory_limit::lines_with(limit, unseen));
    let apart = memory_limit::apart(prediction.memory_limit.as_ref(), prediction.recording.programs_apart);
    let notes = notes.chain(limit).chain(apart).chain(unseen.map(memory_limit::unseen));
    let notes = notes.chain(lazy_free).chain(prediction.khugepaged.lines());
    let notes = notes.chain(prediction.family.map(family)).chain([outside(traps_outside)]);
    let notes: String = notes.map(|note| paragraph(&note)).collect();
    let outside =
        outside_table(traps_outside, &prediction.mapped_outside, prediction.recording.traps_recorded, *rss_bytes_peak);
    let advisers = groups::advisers_table(&prediction.advisers);
    let groups = groups::tables(&prediction.regions);
    Ok(notes + &groups.iter().chain(&advisers).chain(&outside).map(table).collect::<String>())
}

/// Many settings: which needs the fewest installs, which the least memory, the figures of all, and what each recording
/// has outside modelled memory.
///
/// # Errors
/// The result is damaged.
pub fn sweep(result: &Value, panels: &[Panel]) -> Result<String> {
    let rows: Vec<Recorded> = Deserialize::deserialize(&result["rows"]).context("`rows` are damaged")?;
    let killed = memory_limit::killed(rows.iter().map(|row| row.memory_limit.as_ref()));
    let unseen = memory_limit::unseen_in(rows.iter().filter_map(|row| row.unseen_writes));
    let notes: String = killed.iter().chain(&unseen).map(|line| paragraph(line)).collect();
    let name = |row: &Recorded| match &row.allocator {
        Some(allocator) => format!("{} on {}", allocator.trace.display(), allocator.name),
        None => row.recording.file.clone(),
    };
    let files: BTreeSet<_> = rows.into_iter().map(|row| (name(&row), row.traps_outside)).collect();
    let settings: String = panels.iter().map(|panel| paragraph(&best(panel)) + &table(&settings(panel))).collect();
    let outside = files.iter().map(|(file, traps)| paragraph(&format!("{file}: {}", outside(traps))));
    Ok(settings + &notes + &outside.collect::<String>() + &by_site(result)?)
}

/// Installs by call site, if they were asked for.
fn by_site(result: &Value) -> Result<String> {
    let Some(by_site) = result.get("by_site") else { return Ok(String::new()) };
    let replays: Vec<SiteInstalls> = Deserialize::deserialize(by_site).context("`by_site` is damaged")?;
    let tables = site_installs::tables(&replays);
    let note = if tables.is_empty() { String::new() } else { paragraph(site_installs::NOTE) };
    let tables: String = tables.iter().map(|(title, sites)| paragraph(title) + &table(sites)).collect();
    let skipped: String = site_installs::skipped(&replays).iter().map(|line| paragraph(line)).collect();
    Ok(tables + &note + &skipped)
}

fn best(panel: &Panel) -> String {
    let alive = || panel.series.iter().filter(|series| !series.is_killed);
    let fewest = alive().min_by_key(|series| series.most().installs);
    let smallest = alive().min_by_key(|series| series.most().rss_bytes_peak);
    let told = |series: Option<&Series>| series.map_or("none survives its memory limit".to_string(), Series::text);
    format!("{}. Fewest installs: {}. Lowest peak RSS: {}.", panel.title, told(fewest), told(smallest))
}

fn settings(panel: &Panel) -> Table {
    let has_settled = panel.series.iter().any(|series| series.settled.is_some());
    let settled = |columns: [String; 2]| columns.into_iter().filter(move |_| has_settled);
    let names = ["setting", "installs", "peak RSS"].map(str::to_string).into_iter();
    let names = names.chain(settled(["settled RSS", "settled huge"].map(str::to_string))).chain([String::new()]);
    let mut table = Table::new(names, &[0, if has_settled { 5 } else { 3 }]);
    for series in &panel.series {
        let front = match (series.is_killed, series.is_front) {
            (true, _) => "not compared: killed, or perhaps killed, at the memory limit",
            (false, true) => "Pareto front",
            (false, false) => "",
        };
        let figures = [series.label.clone()].into_iter().chain(series.installs_and_peak());
        let at_end = series
            .settled
            .map_or(["-", "-"].map(str::to_string), |settled| [bytes(settled.rss_bytes), count(settled.huge_pages)]);
        table.push(figures.chain(settled(at_end)).chain([front.to_string()]));
    }
    table
}

/// Predicted and measured figures.
///
/// # Errors
/// The result is damaged.
pub fn validate(result: &Value) -> Result<String> {
    let rows: Vec<Row> = Deserialize::deserialize(&result["rows"]).context("`rows` are damaged")?;
    let verdict = result["verdict"].as_str().unwrap_or("unknown");
    let words = format!("Verdict: {verdict}. Each row compares a prediction with runs of the program on this machine.");
    let places = memory_limit::places_unknown(&rows);
    let notes: String = notes(&rows).iter().chain(&places).map(|line| paragraph(line)).collect();
    let tables: String = memory_validation::tables(&rows).iter().flatten().map(table).collect();
    Ok(paragraph(&words) + &tables + &notes)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The recordings of replays have the same temporary file.
    #[test]
    fn each_allocator_has_its_own_traps_outside() {
        let row = |name: &str, traps: u64| {
            json!({
                "recording": { "file": "/tmp/replay.hkm", "lost_events": 0, "traps_recorded": 1 },
                "allocator": { "name": name, "library": null, "environment": {}, "trace": "a.hkt" },
                "traps_outside": { "private_file": traps },
            })
        };
        let result = json!({ "rows": [row("glibc", 255), row("glibc", 255), row("jemalloc", 306)] });
        let page = sweep(&result, &[]).expect("a section");
        for part in ["a.hkt on glibc: not modelled: 255 traps", "a.hkt on jemalloc: not modelled: 306 traps"] {
            assert_eq!(page.matches(part).count(), 1, "{part}: {page}");
        }
        assert!(!page.contains("/tmp/replay.hkm"), "{page}");
    }
}
