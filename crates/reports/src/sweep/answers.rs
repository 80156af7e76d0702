//! The answers of a sweep as text: the table of all traces together, and the sentences below each table.

use hksim_explore::answer::Answer;
use hksim_explore::sentences::{percent, percent_signed};

use hksim_explore::answers::{Answers, Combined};
use hksim_text::table::Table;

/// The sentences of an answer, set apart from the table above.
pub(super) fn lines(answer: &Answer) -> Vec<String> {
    let blank = (!answer.text.is_empty()).then(String::new);
    blank.into_iter().chain(answer.text.iter().cloned()).collect()
}

/// The table of all traces together, with its answer.
pub(super) fn combined(answers: &Answers, width: usize) -> Vec<String> {
    let Some(Combined { cases, ranking, answer }) = &answers.combined else { return Vec::new() };
    let goal = answer.goal;
    let mut table = Table::new(
        ["design".to_string(), format!("{} / best", goal.name()), "RSS / best".into(), "worst".into(), "on".into()],
        &[0, 4],
    );
    for standing in &ranking.standings {
        let design = &answers.designs[standing.design];
        let mark = if design.is_baseline() { " (default)" } else { "" };
        let worst = if standing.regret_worst > 0.0 { cases[standing.regret_worst_case].as_str() } else { "" };
        table.push([
            format!("{}{mark}", design.name),
            range(standing.ratio_low, standing.ratio, standing.ratio_high),
            format!("{:.3}", standing.rss_ratio),
            if standing.regret_worst > 0.0 { percent_signed(standing.regret_worst) } else { percent(0.0) },
            worst.to_string(),
        ]);
    }
    let mut lines =
        vec![format!("all {} traces together (geometric mean of the ratios to the best design)", cases.len())];
    if !ranking.standings.is_empty() {
        lines.extend(table.fitted(width));
    }
    lines.extend(self::lines(answer));
    lines.push(String::new());
    lines
}

/// A ratio, with its range if it has one.
fn range(low: f64, middle: f64, high: f64) -> String {
    if low < high { format!("{middle:.3} ({low:.2}-{high:.2})") } else { format!("{middle:.3}") }
}
