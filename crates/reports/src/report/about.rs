//! What a result is about: the programs, the machine, the date, and what the recorder lost.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::Value;

use hksim_text::units::of;

/// Programs that are named in one heading.
const NAMED_MAX: usize = 3;

/// The programs, machines, date and losses of a result in one line. What it does not state is left out.
pub fn line(result: &Value, written: Option<SystemTime>) -> String {
    let rows = result["rows"].as_array().map_or(&[][..], Vec::as_slice);
    let parts: Vec<&Value> = [result].into_iter().chain(rows).collect();
    let mut programs = distinct(parts.iter().flat_map(|part| programs(part)));
    let more = programs.len().saturating_sub(NAMED_MAX);
    programs.truncate(NAMED_MAX);
    if more > 0 {
        programs.push(format!("{more} more"));
    }
    let machines = distinct(parts.iter().flat_map(|part| machines(part)));
    let date = written.map(|time| format!("result of {}", date(time)));
    let lost = distinct(parts.iter().flat_map(|part| lost(part)));
    let all = [programs.join(", "), machines.join("; ")].into_iter().chain(date).chain(lost);
    all.filter(|part| !part.is_empty()).collect::<Vec<String>>().join(" \u{b7} ")
}

fn distinct(all: impl Iterator<Item = String>) -> Vec<String> {
    let mut found = Vec::new();
    for one in all {
        if !found.contains(&one) {
            found.push(one);
        }
    }
    found
}

/// The labels of its traces.
fn labels(part: &Value) -> impl Iterator<Item = &Value> {
    let traces = part["traces"].as_array().into_iter().flatten();
    [&part["trace"], &part["predicted"]["trace"]].into_iter().chain(traces)
}

/// How many events the recorders of its traces lost, by trace.
fn lost(part: &Value) -> Vec<String> {
    let lost = labels(part).filter_map(|label| {
        let lost = label["events_lost"].as_u64().filter(|&lost| lost > 0)?;
        let file = label["file"].as_str().map(|file| format!("{file}: ")).unwrap_or_default();
        Some(format!("{file}the recorder lost {}", of(lost, "event")))
    });
    lost.collect()
}

/// The commands that were recorded, or the origin of the traces.
fn programs(part: &Value) -> Vec<String> {
    let of_trace = labels(part).filter_map(|label| {
        let origin = &label["origin"];
        words(&origin["command"])
            .or_else(|| Some(format!("generated: {}", origin["name"].as_str()?)))
            .or_else(|| Some(format!("imported: {}", origin["file"].as_str()?)))
    });
    let recorded = words(&part["recording"]["command"]);
    // A validated recording names its command in its row; other results name their own command there.
    let validated = part.get("setting").and_then(|_| words(&part["command"]));
    recorded.into_iter().chain(validated).chain(of_trace).collect()
}

fn words(command: &Value) -> Option<String> {
    let words: Vec<&str> = command.as_array()?.iter().filter_map(Value::as_str).collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// Where the program was recorded, and whose rules and costs were used.
fn machines(part: &Value) -> Vec<String> {
    let text = |value: &Value| value.as_str().map(str::to_string);
    let recorded = text(&part["recording"]["machine"]["kernel_release"]);
    let version =
        text(&part["kernel"]["rules"]["version"]).or_else(|| text(&part["predicted"]["kernel"]["rules"]["version"]));
    let time = &part["system_time"];
    let priced = text(&time["machine"]).zip(text(&time["kernel_release"]));
    let measured = &part["measured"]["environment"];
    let measured = text(&measured["kernel_release"]);
    [
        recorded.map(|release| format!("recorded on Linux {release}")),
        version.map(|version| format!("rules of Linux {version}")),
        measured.map(|release| format!("measured on Linux {release}")),
        priced.map(|(machine, release)| format!("costs of {machine}, Linux {release}")),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// The day of a time in UTC, as `2026-11-25`.
fn date(time: SystemTime) -> String {
    let days = time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs() / 86_400);
    // Years begin in March here, so that a leap day is the last day of its year. An era is 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", year + 400 * era + next)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use serde_json::json;

    use super::*;

    fn day(seconds: u64) -> String {
        date(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        // From `date -u -d @SECONDS +%F`.
        for (seconds, expected) in [
            (0, "1970-01-01"),
            (951_782_399, "2000-02-28"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_735_689_599, "2024-12-31"),
            (1_735_689_600, "2025-01-01"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(day(seconds), expected);
        }
    }

    #[test]
    fn each_program_and_machine_is_named_once() {
        let row = |program: &str| json!({"trace": {"origin": {"command": [program, "-x"]}}, "kernel": {"rules": {"version": "6.18"}}});
        let result = json!({"rows": [row("a"), row("a"), row("b"), row("c"), row("d")]});
        assert_eq!(line(&result, None), "a -x, b -x, c -x, 1 more \u{b7} rules of Linux 6.18");
    }
}
