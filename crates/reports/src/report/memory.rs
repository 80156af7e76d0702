//! The sections of memory recordings: their words and tables.

use std::collections::BTreeMap;

use crate::error::{Context, Result};
use hksim_memory_sim::{
    FamilyTotal, Installs, MappedOutside, Outside, RegionPrediction, huge_bytes_peak_max, hugetlb_shortage,
};
use serde::Deserialize;
use serde_json::Value;

use super::html::{paragraph, table};
use crate::chart::{Panel, Series};
use crate::memory_prediction::family;
use crate::recording::Recording;
use crate::tables::{figures_table, notes};
use hksim_memory_sim::groups;
use hksim_memory_sim::groups::{outside, outside_table};
use hksim_memory_sim::losses;
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
    regions: Vec<RegionPrediction>,
    traps_outside: BTreeMap<Outside, u64>,
    #[serde(default)]
    mapped_outside: BTreeMap<Outside, MappedOutside>,
    family: Option<FamilyTotal>,
    recording: Recording,
}

/// The parts of a sweep's row that are the same under all settings.
#[derive(Deserialize)]
struct Recorded {
    recording: Recording,
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
    let words = format!(
        "{} page-table installs and {} #PF exceptions in anonymous memory; peak RSS {}, at most {} of it in huge pages.",
        count(installs.total),
        count(*traps),
        bytes(*rss_bytes_peak),
        percent(huge_bytes, *rss_bytes_peak)
    );
    let shortage = hugetlb_shortage(prediction.hugetlb_maps_failed, prediction.hugetlb_bytes_failed);
    let notes = losses(prediction.recording.lost_events).into_iter().chain([words]).chain(shortage);
    let notes = notes.chain(prediction.family.map(family)).chain([outside(traps_outside)]);
    let notes: String = notes.map(|note| paragraph(&note)).collect();
    let outside =
        outside_table(traps_outside, &prediction.mapped_outside, prediction.recording.traps_recorded, *rss_bytes_peak);
    Ok(notes + &groups::tables(&prediction.regions).iter().chain(&outside).map(table).collect::<String>())
}

/// Many settings: which needs the fewest installs, which the least memory, the figures of all, and what each recording
/// has outside modelled memory.
///
/// # Errors
/// The result is damaged.
pub fn sweep(result: &Value, panels: &[Panel]) -> Result<String> {
    let rows: Vec<Recorded> = Deserialize::deserialize(&result["rows"]).context("`rows` are damaged")?;
    let files: BTreeMap<String, BTreeMap<Outside, u64>> =
        rows.into_iter().map(|row| (row.recording.file, row.traps_outside)).collect();
    let settings: String = panels.iter().map(|panel| paragraph(&best(panel)) + &table(&settings(panel))).collect();
    let outside = files.iter().map(|(file, traps)| paragraph(&format!("{file}: {}", outside(traps))));
    Ok(settings + &outside.collect::<String>())
}

fn best(panel: &Panel) -> String {
    let fewest = panel.series.iter().min_by_key(|series| series.installs);
    let smallest = panel.series.iter().min_by_key(|series| series.rss_bytes_peak);
    let told = |series: Option<&Series>| series.map(Series::text).unwrap_or_default();
    format!("{}. Fewest installs: {}. Lowest peak RSS: {}.", panel.title, told(fewest), told(smallest))
}

fn settings(panel: &Panel) -> Table {
    let mut table = Table::new(["setting", "installs", "peak RSS", ""], &[0, 3]);
    for series in &panel.series {
        let front = if series.is_front { "Pareto front" } else { "" };
        let figures = [count(series.installs), bytes(series.rss_bytes_peak), front.to_string()];
        table.push([series.label.clone()].into_iter().chain(figures));
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
    let notes: String = notes(&rows).iter().map(|line| paragraph(line)).collect();
    Ok(paragraph(&words) + &table(&figures_table(&rows)) + &notes)
}
