//! Remedies that are tried: settings of the library and transparent huge pages by replay, designs by simulation.

use hksim_explore::flags::RunConfig;
use hksim_explore::inputs::Trace;
use hksim_explore::knobs::{Knob, NUMBER, knobs};
use hksim_explore::runs::Listener;
use hksim_replay::library::{Library, c_library, library};
use hksim_replay::{HugePages, ReplayError, ReplaySpec, Skipped, Target};

use crate::breakdown::CauseKey;
use crate::designs::nearest;
use crate::error::AttributionError;
use crate::explained::{Explained, explain};
use crate::modes::{here, huge_pages};

/// Most settings of a library that are tried.
const SETTINGS_MAX: usize = 12;
/// Share of a cause that a remedy must remove to be named.
const NOTICEABLE: f64 = 0.05;

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// Environment variables that configure the library.
    Setting(Vec<(String, String)>),
    /// Another mode of transparent huge pages: `always` or `never`.
    HugePages(&'static str),
    /// A design of hksim's own allocator, by its flags.
    Design(String),
}

impl Remedy {
    /// What kind it is, as a word.
    pub fn word(&self) -> &'static str {
        match self {
            Remedy::Setting(_) => "setting",
            Remedy::HugePages(_) => "huge_pages",
            Remedy::Design(_) => "design",
        }
    }

    /// What is changed.
    pub fn change(&self) -> String {
        match self {
            Remedy::Setting(variables) => {
                variables.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
            }
            Remedy::HugePages(mode) => (*mode).to_string(),
            Remedy::Design(flags) => flags.clone(),
        }
    }

    /// The beginning of a sentence on it.
    pub fn text(&self) -> String {
        match self {
            Remedy::Setting(_) => format!("With `{}`", self.change()),
            Remedy::HugePages(mode) => format!("With transparent huge pages in mode `{mode}`"),
            Remedy::Design(flags) => format!("hksim's own allocator with `{flags}` (simulated)"),
        }
    }
}

/// A remedy with its effect.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The change.
    pub remedy: Remedy,
    /// All installs with it.
    pub installs: u64,
    /// Peak resident bytes with it.
    pub rss_bytes_peak: u64,
    /// Installs of each cause with it, in the order of the causes; `None` for a design, which has other causes.
    pub installs_of_causes: Option<Vec<u64>>,
}

/// What is asked for.
pub struct Question<'a> {
    /// The trace.
    pub trace: &'a Trace,
    /// The replay on the library.
    pub spec: &'a ReplaySpec,
    /// Its huge pages.
    pub huge: HugePages,
    /// The kernel and the touches of simulations.
    pub config: &'a RunConfig,
    /// Is told what is simulated.
    pub listener: &'a dyn Listener,
}

/// The effects of remedies, and why some were not tried.
#[derive(Default)]
pub struct Trials {
    /// Those that were tried.
    pub tried: Vec<Tried>,
    /// Those that could not be.
    pub skipped: Vec<Skipped>,
}

impl Question<'_> {
    /// Tries all remedies for these causes of an explained replay.
    ///
    /// # Errors
    /// The trace cannot be read, or this machine's settings cannot.
    pub fn tried(&self, before: &Explained, causes: &[CauseKey]) -> Result<Trials, AttributionError> {
        let mut trials = Trials::default();
        for variables in self.settings(before, &mut trials.skipped) {
            let on = with_variables(&self.spec.on, &variables);
            let spec = ReplaySpec { on, ..self.spec.clone() };
            self.replay(Remedy::Setting(variables), &spec, self.huge, (before, causes), &mut trials)?;
        }
        let is_always = self.huge == HugePages::Advised
            || self.huge == HugePages::AsTheyAre && here().is_some_and(|here| here == "always");
        let mode = if is_always { "never" } else { "always" };
        match huge_pages(mode) {
            Ok(huge) => self.replay(Remedy::HugePages(mode), self.spec, huge, (before, causes), &mut trials)?,
            Err(why) => trials.skipped.push(Skipped::new("remedies by huge pages", why)),
        }
        trials.tried.extend(nearest(self, before, causes)?);
        Ok(trials)
    }

    fn replay(
        &self,
        remedy: Remedy,
        spec: &ReplaySpec,
        huge: HugePages,
        (before, causes): (&Explained, &[CauseKey]),
        trials: &mut Trials,
    ) -> Result<(), AttributionError> {
        match explain(spec, huge) {
            Ok(after) if after.totals.requests_failed <= before.totals.requests_failed => {
                let left = causes.iter().map(|&key| after.installs_of(key, before));
                trials.tried.push(Tried {
                    installs_of_causes: Some(left.collect()),
                    installs: after.breakdown.total,
                    rss_bytes_peak: after.totals.rss_bytes_peak,
                    remedy,
                });
                Ok(())
            }
            Ok(_) => {
                trials.skipped.push(Skipped::new(&remedy.change(), "more requests fail with it"));
                Ok(())
            }
            // A setting under which the library crashes is no remedy.
            Err(AttributionError::Replay(why @ (ReplayError::Signal { .. } | ReplayError::NoResult { .. }))) => {
                trials.skipped.push(Skipped::new(&remedy.change(), why.to_string()));
                Ok(())
            }
            Err(why) => Err(why),
        }
    }

    /// The settings of the library that hold for its version.
    fn settings(&self, before: &Explained, skipped: &mut Vec<Skipped>) -> Vec<Vec<(String, String)>> {
        let Target::Malloc { preload, .. } = &self.spec.on else { return Vec::new() };
        let known: Option<Library> = preload.as_deref().map_or_else(c_library, library);
        let Some(known) = known else {
            let reason = "the library is not one whose settings are known; compare settings with --against";
            skipped.push(Skipped::new("remedies by settings", reason));
            return Vec::new();
        };
        let need = Need::of(before);
        let holds = |knob: &Knob| knob.allocator == known.allocator && knob.holds_for(&known.version);
        let mut settings: Vec<Vec<(String, String)>> = Vec::new();
        for knob in knobs().filter(holds) {
            for setting in filled(&knob, need) {
                let pairs = setting.split(' ').filter_map(|pair| pair.split_once('='));
                let variables = pairs.map(|(name, value)| (name.to_string(), value.to_string())).collect();
                if settings.len() < SETTINGS_MAX && !settings.contains(&variables) {
                    settings.push(variables);
                }
            }
        }
        settings
    }
}

/// What a trace needs at most.
#[derive(Clone, Copy, Debug)]
struct Need {
    /// Bytes of the largest request.
    request_bytes: u64,
    /// Resident bytes.
    rss_bytes: u64,
}

impl Need {
    fn of(before: &Explained) -> Need {
        let requests = before.breakdown.causes.values().filter_map(|counts| counts.request_bytes_max);
        Need { request_bytes: requests.max().unwrap_or(0), rss_bytes: before.totals.rss_bytes_peak }
    }
}

/// The texts of a setting, with numbers that suit a trace; none if it is not to be tried: it is the default, needs something
/// that the user must fill in, or memory of a pool.
fn filled(knob: &Knob, need: Need) -> Vec<String> {
    let needs_more = knob.setting.contains("FILE") || knob.setting.contains("LIMIT") || knob.value == "hugetlb";
    if needs_more || knob.effect.starts_with("the default") || knob.flag == Some("prewarm") {
        return Vec::new();
    }
    if !knob.setting.contains(NUMBER) {
        return vec![knob.setting.to_string()];
    }
    let above = |bytes: u64| (bytes + 1).next_power_of_two().max(1 << 20);
    let numbers = match knob.flag {
        Some("purge-delay") => vec![10_000],
        Some("front-cache") => vec![64],
        // Above every block of the trace, and above all of them together.
        Some("huge-cache") => vec![above(need.request_bytes), above(need.rss_bytes.max(need.request_bytes))],
        _ => Vec::new(),
    };
    let most = knob.value.strip_prefix("{<=").and_then(|rest| rest.strip_suffix('}')).map(str::parse::<u64>);
    let most = most.and_then(Result::ok).unwrap_or(u64::MAX);
    numbers.into_iter().map(|number| knob.setting.replace(NUMBER, &number.min(most).to_string())).collect()
}

/// The target with more variables. A variable with a list of settings gets them all.
fn with_variables(on: &Target, more: &[(String, String)]) -> Target {
    let Target::Malloc { preload, variables } = on else { return on.clone() };
    let mut variables = variables.clone();
    for (name, value) in more {
        let separator = match name.as_str() {
            "GLIBC_TUNABLES" => Some(':'),
            "MALLOC_CONF" => Some(','),
            _ => None,
        };
        match variables.iter_mut().find(|(other, _)| other == name) {
            Some((_, old)) => *old = separator.map_or(value.clone(), |separator| format!("{old}{separator}{value}")),
            None => variables.push((name.clone(), value.clone())),
        }
    }
    Target::Malloc { preload: preload.clone(), variables }
}

/// The remedy to name for a cause, the `index`-th, with its installs that are left: the one that removes most of it. An
/// install that only becomes one with another reason is not removed.
pub fn best(tried: &[Tried], index: usize, of_cause: u64, total: u64) -> Option<(&Tried, Option<u64>)> {
    let left = |tried: &Tried| tried.installs_of_causes.as_ref().and_then(|left| left.get(index).copied());
    let removed = |tried: &Tried| {
        let of_cause = of_cause.saturating_sub(left(tried).unwrap_or(0));
        of_cause.min(total.saturating_sub(tried.installs))
    };
    let noticeable = |tried: &&Tried| removed(tried) as f64 >= (NOTICEABLE * of_cause as f64).max(1.0);
    // Replays come first: a user can have the setting today.
    let by_effect = |tried: &&Tried| (removed(tried), std::cmp::Reverse(tried.rss_bytes_peak));
    let of_library = tried.iter().filter(|tried| tried.installs_of_causes.is_some());
    let design =
        || tried.iter().filter(|tried| tried.installs_of_causes.is_none()).filter(noticeable).max_by_key(by_effect);
    of_library.filter(noticeable).max_by_key(by_effect).or_else(design).map(|tried| (tried, left(tried)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_with_lists_keep_the_users_settings() {
        let pair = |name: &str, value: &str| (name.to_string(), value.to_string());
        let on = Target::Malloc { preload: None, variables: vec![pair("MALLOC_CONF", "a:1"), pair("X", "1")] };
        let more = [pair("MALLOC_CONF", "b:2"), pair("X", "2"), pair("Y", "3")];
        let expected = vec![pair("MALLOC_CONF", "a:1,b:2"), pair("X", "2"), pair("Y", "3")];
        assert_eq!(with_variables(&on, &more), Target::Malloc { preload: None, variables: expected });
    }

    #[test]
    fn a_remedy_that_moves_installs_is_none() {
        let tried = |installs, left, rss_bytes_peak| Tried {
            remedy: Remedy::HugePages("always"),
            installs,
            rss_bytes_peak,
            installs_of_causes: left,
        };
        let best = |tried: &[Tried]| best(tried, 0, 100, 1000).map(|(tried, left)| (tried.installs, left));
        assert_eq!(best(&[tried(1000, Some(vec![0]), 1)]), None);
        assert_eq!(best(&[tried(900, Some(vec![0]), 1), tried(950, Some(vec![0]), 0)]), Some((900, Some(0))));
        assert_eq!(best(&[tried(10, None, 1), tried(950, Some(vec![50]), 0)]), Some((950, Some(50))));
        assert_eq!(best(&[tried(10, None, 1)]), Some((10, None)));
    }
}
