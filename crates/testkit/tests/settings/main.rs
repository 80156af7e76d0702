//! Plays each setting of other allocators (`explore/src/knobs/knobs.tsv`) on the libraries of this machine: a small
//! program runs with the setting and without it, and the difference must be the one that the table states.
//!
//! `HKSIM_ALLOCATORS=PATH:PATH` adds libraries, for versions that are not installed.

mod libraries;
mod load;
mod observable;
mod page;

use hksim_explore::knobs::{Knob, NUMBER, knobs};
use hksim_testkit::modes;

use libraries::Subject;
use load::Player;
use observable::Observable;

/// How often a setting is played before its effect counts as missing: times depend on other load of the machine.
const ATTEMPTS: u32 = 8;

/// The bytes to play for the word `LIMIT`.
const LIMIT: &str = "1048576";

/// The number to play for a flag.
fn number(flag: Option<&str>) -> &'static str {
    match flag {
        Some("purge-delay") => "300",
        Some("huge-cache") => "67108864",
        Some("prewarm") => "131072",
        _ => "16",
    }
}

/// A text of a line with its numbers and words filled in.
fn filled(text: &str, knob: &Knob, player: &Player) -> String {
    let maximum = knob.value.strip_prefix("{<=").and_then(|rest| rest.strip_suffix('}'));
    let number = maximum.unwrap_or(number(knob.flag));
    text.replace(NUMBER, number).replace("FILE", &player.file()).replace("LIMIT", LIMIT)
}

/// Plays one line on one library. An error says what was seen instead.
fn play(knob: &Knob, subject: &Subject, player: &Player) -> Result<String, String> {
    let (setting, text) = (filled(knob.setting, knob, player), filled(knob.observable, knob, player));
    let Observable { load, figure, relation } = Observable::parse(&text).unwrap_or_else(|| panic!("{knob:?}"));
    let against = knob.against.unwrap_or("");
    let is_default = knob.effect.starts_with("the default");
    let seen_with = |setting: &str| player.observe(subject, &load, setting).figure(&figure);
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let (with, without) = (seen_with(&setting), seen_with(against));
        seen.push(format!("{with}, with `{against}` {without}"));
        if relation.holds(with, without) && (!is_default || relation.holds(seen_with(""), without)) {
            return Ok(format!("{} {setting}: {text}: {}", subject.name(), seen.concat()));
        }
    }
    Err(format!("{} {setting}: {text}: seen {}", subject.name(), seen.join("; ")))
}

/// Plays all lines of an allocator, each on every library for which it holds.
fn play_all(allocator: &str) {
    let _held = modes::hold();
    let player = match Player::new() {
        Ok(player) => player,
        Err(reason) => return println!("skipped: {reason}"),
    };
    let subjects = libraries::of(allocator, player.folder());
    if subjects.is_empty() {
        return println!("skipped: {allocator} is not installed");
    }
    let names: Vec<&str> = subjects.iter().map(|subject| subject.version.as_str()).collect();
    let mut failed = Vec::new();
    for knob in knobs().filter(|knob| knob.allocator == allocator) {
        let holds = |subject: &&Subject| knob.holds_for(&subject.version);
        let of_knob: Vec<&Subject> = subjects.iter().filter(holds).collect();
        if of_knob.is_empty() {
            println!("skipped: {} needs {allocator} {}, here: {}", knob.setting, knob.versions, names.join(", "));
        }
        for subject in of_knob {
            match play(&knob, subject, &player) {
                Ok(seen) => println!("played: {seen}"),
                Err(why) => failed.push(why),
            }
        }
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn settings_of_glibc() {
    play_all("glibc");
}

#[test]
fn settings_of_jemalloc() {
    play_all("jemalloc");
}

#[test]
fn settings_of_mimalloc() {
    play_all("mimalloc");
}

#[test]
fn settings_of_gperftools() {
    play_all("gperftools");
}

#[test]
fn every_line_belongs_to_a_test() {
    for knob in knobs().filter(|knob| !["glibc", "jemalloc", "mimalloc", "gperftools"].contains(&knob.allocator)) {
        assert_eq!(knob.allocator, "systemd", "{knob:?}");
        println!("skipped: {} needs {} {}, which no test starts", knob.setting, knob.allocator, knob.versions);
    }
}

/// Settings that do less than their names say, and one that does the opposite: none of them may pass.
#[test]
fn wrong_lines_fail() {
    let _held = modes::hold();
    let Ok(player) = Player::new() else { return };
    let wrong = [
        ("glibc", "2.35+", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1", "blocks: calls MADV_HUGEPAGE vanish"),
        ("glibc", "2.35+", "GLIBC_TUNABLES=glibc.malloc.mmap_threshold=67108864", "large: rss_kib grows"),
        ("glibc", "2.35+", "GLIBC_TUNABLES=glibc.malloc.trim_threshold=67108864", "large: rss_kib grows"),
        ("glibc", "2.35+", "GLIBC_TUNABLES=glibc.malloc.hugetlb=0", "blocks: thp_enabled is 1"),
        // The pair that `hksim_explore::knobs` refuses.
        ("jemalloc", "5.1-5.3.0", "MALLOC_CONF=dirty_decay_ms:0,muzzy_decay_ms:-1", "wait: calls MADV_FREE appear"),
    ];
    for (allocator, versions, setting, observable) in wrong {
        let line = Knob {
            flag: None,
            value: "-",
            allocator,
            versions,
            setting,
            against: None,
            effect: "nothing",
            observable,
            source: "",
        };
        let subjects = libraries::of(allocator, player.folder());
        for subject in subjects.iter().filter(|subject| line.holds_for(&subject.version)) {
            let played = play(&line, subject, &player);
            assert!(played.is_err(), "{} {setting}: {played:?}", subject.name());
        }
    }
}
