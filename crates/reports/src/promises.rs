//! What replays promised for a program, beside what a trial has measured.

use hksim_explore::sentences::percent;
use hksim_results::trial::{PRESENT, Promise, TrialReport};
use hksim_text::plain;
use hksim_text::table::Table;
use hksim_text::units::{bytes, time};
use hksim_timing::{Estimate, ROUNDS_FOR_INTERVAL};

use crate::comparison::interval;

/// The share of a run from which the start and the end of a process are told.
const SHARE_TOLD: f64 = 0.005;

/// The promises; `None` without any.
pub(crate) fn table(promises: &[Promise]) -> Option<Table> {
    if promises.is_empty() {
        return None;
    }
    let head = [
        "promised by replays",
        "calls, ms",
        "start, end, ms",
        "ratio promised",
        "measured",
        "",
        "RSS promised",
        "measured",
        "",
    ];
    let mut table = Table::new(head, &[0, 3, 4, 5, 8]);
    let change =
        |change: Option<Estimate>| change.map_or("-".to_string(), |change| format!("{:+.2}", change.median * 1e3));
    for promise in promises {
        let measured =
            |(low, high)| if low == high { bytes(low) } else { format!("{} to {}", bytes(low), bytes(high)) };
        table.push([
            name(promise),
            change(promise.cpu_s_change),
            change(promise.start_end_s_change),
            interval(&promise.ratio_promised),
            interval(&promise.ratio_measured),
            kept(promise.is_ratio_kept, promise.ratio_promised.is_some()),
            promise.rss_bytes_promised.map_or("-".to_string(), bytes),
            promise.rss_bytes_measured.map_or("-".to_string(), measured),
            kept(promise.is_rss_kept, promise.rss_bytes_promised.is_some()),
        ]);
    }
    Some(table)
}

fn kept(is_kept: Option<bool>, is_promised: bool) -> String {
    let word = match is_kept {
        Some(true) => "kept",
        Some(false) => "NOT KEPT",
        None if is_promised => "not known",
        None => "",
    };
    word.to_string()
}

fn name(promise: &Promise) -> String {
    [promise.allocator.as_str()].into_iter().chain(promise.setting.as_deref()).collect::<Vec<_>>().join(" ")
}

/// What the figures mean, and what they say in words.
pub(crate) fn sentences(report: &TrialReport) -> Vec<String> {
    let promised = match report.is_server {
        true => "that the load changes by as much",
        false => "that the program changes by both",
    };
    let mut lines = vec![format!(
        "calls: what those of the recording take longer in replays (less: -); start, end: of the replay's process; promised is \
         {promised}; kept: the intervals overlap, or RSS is within 2 %"
    )];
    if report.promises.iter().any(|promise| promise.ratio_promised.is_some() && promise.is_ratio_kept.is_none()) {
        lines.push(format!("not known: an interval needs {ROUNDS_FOR_INTERVAL} rounds"));
    }
    let run_s = report.trial.rows.first().and_then(|row| row.cpu_s).map(|time| time.median);
    lines.extend(report.promises.iter().filter_map(|promise| start_and_end(promise, run_s?)));
    lines
}

/// How much of a run the start and the end of the process take.
fn start_and_end(promise: &Promise, run_s: f64) -> Option<String> {
    let change = promise.start_end_s_change.filter(|change| change.contains(0.0) == Some(false))?;
    let share = change.median.abs() / run_s;
    let length = |seconds: f64| time((seconds.abs() * 1e9) as u64);
    (share >= SHARE_TOLD).then(|| {
        format!(
            "Starting and ending {} takes {} {} than {PRESENT}: of a run of {} that is {}.",
            plain(&name(promise)),
            length(change.median),
            if change.median > 0.0 { "more" } else { "less" },
            length(run_s),
            percent(share)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn promise(start_end_s_change: Option<Estimate>) -> Promise {
        let ratio = Some(Estimate { median: 1.2, low: None, high: None });
        Promise {
            allocator: "gperftools".into(),
            setting: None,
            cpu_s_change: Some(Estimate { median: -0.000_4, low: None, high: None }),
            start_end_s_change,
            ratio_promised: ratio,
            ratio_measured: ratio,
            is_ratio_kept: None,
            rss_bytes_promised: None,
            rss_bytes_measured: None,
            is_rss_kept: None,
        }
    }

    #[test]
    fn a_start_that_counts_is_told_with_its_share_of_a_run() {
        let told = |median: f64, half: f64| {
            let change = Estimate { median, low: Some(median - half), high: Some(median + half) };
            start_and_end(&promise(Some(change)), 0.04)
        };
        let expected =
            "Starting and ending gperftools takes 8.1 ms more than present: of a run of 40.0 ms that is 20 %.";
        assert_eq!(told(0.008_1, 0.001).as_deref(), Some(expected));
        assert!(told(-0.004, 0.001).is_some_and(|line| line.contains("4.0 ms less")));
        assert_eq!((told(0.008_1, 0.01), told(0.000_1, 0.000_01)), (None, None), "within the error; a small share");
        assert_eq!(start_and_end(&promise(None), 0.04), None);
    }

    #[test]
    fn what_has_no_interval_is_not_known() {
        let table = table(&[promise(None)]).expect("a promise");
        let cells: Vec<&str> = table.rows().nth(1).expect("a row below the head").iter().map(String::as_str).collect();
        assert_eq!(cells, ["gperftools", "-0.40", "-", "1.200", "1.200", "not known", "-", "-", ""]);
    }
}
