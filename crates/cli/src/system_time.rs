//! The profile that commands price by: the one given, or the one kept for this machine.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use hksim_cost_model::measure::control;
use hksim_cost_model::system_time::speed;
use hksim_cost_model::{Machine, Profile, Store, Stored};
use hksim_embedded::user_cache;
use hksim_sim::report::version;

use crate::output::units;
use crate::output::{OutputArgs, ResultFormat, note, screen, stated, warn};

/// The word that stands for no profile.
const NONE: &str = "none";
/// A machine that is faster or slower than at calibration by this factor should be calibrated again.
const DRIFT_MAX: f64 = 1.5;

/// The flag of commands that print system time.
#[derive(Clone, Debug, clap::Args)]
pub struct ProfileArgs {
    /// Predict system time from this profile, or none [default: the one that `hksim calibrate` kept]
    #[arg(long, value_name = "FILE.toml|none", hide_short_help = true)]
    profile: Option<PathBuf>,
}

impl ProfileArgs {
    /// The file of the profile, if one is given.
    pub fn path(&self) -> Option<&Path> {
        self.profile.as_deref().filter(|path| path.as_os_str() != NONE)
    }

    /// The profile that is given.
    ///
    /// # Errors
    /// The file is not a profile.
    pub fn given(&self) -> Result<Option<Profile>> {
        Ok(self.path().map(Profile::read).transpose()?)
    }

    /// The profile that is given, else the one kept for this machine unless `none` is given. Says what a profile of
    /// another machine means, and how old the kept one is.
    ///
    /// # Errors
    /// The given file is not a profile.
    pub fn read(&self, output: &OutputArgs) -> Result<Option<Profile>> {
        if let Some(profile) = self.given()? {
            if !profile.is_of(&Machine::here()) {
                let (machine, kernel) = (&profile.machine, &profile.kernel);
                note(&format!("system times are those of another machine: {machine}, Linux {kernel}"));
            }
            return Ok(Some(profile));
        }
        if self.profile.is_some() {
            return Ok(None);
        }
        let stored = kept();
        if stored.is_none() && std::io::stdout().is_terminal() {
            note("counts are not time: run `hksim calibrate` once (10 s), and predictions have ranges of system time");
        }
        Ok(stored.map(|stored| {
            if output.format == ResultFormat::Table && !screen::is_quiet() {
                note(&condition(&stored));
            }
            stored.profile
        }))
    }
}

/// The place of this machine's profile; `None` without a cache folder.
pub fn store() -> Option<Store> {
    user_cache().map(|cache| Store::new(&cache.join("hksim/profiles"), version()))
}

/// Seconds in a minute, an hour and a day.
const UNITS: [(u64, &str); 3] = [(24 * 60 * 60, "day"), (60 * 60, "hour"), (60, "minute")];

/// A time in its largest unit, rounded down.
fn age(since: Duration) -> String {
    let (seconds, name) = UNITS.into_iter().find(|&(seconds, _)| since.as_secs() >= seconds).unwrap_or((1, "second"));
    units::of(since.as_secs() / seconds, name)
}

/// The profile kept for this machine. Results state its file.
fn kept() -> Option<Stored> {
    let store = store()?;
    let stored = store.read().unwrap_or_else(|why| {
        warn(&format!("the kept profile is ignored; `hksim calibrate` replaces it: {why}"));
        None
    })?;
    stated::use_profile(store.path());
    Some(stored)
}

/// The age of a kept profile, and how fast the machine is now.
fn condition(stored: &Stored) -> String {
    let Stored { profile, age: since } = stored;
    let now = match control(profile) {
        Ok(drift) if (1.0 / DRIFT_MAX..=DRIFT_MAX).contains(&drift) => speed(drift),
        Ok(drift) => format!("{}: calibrate again if it stays so", speed(drift)),
        Err(why) => format!("its speed now is not known: {why}"),
    };
    format!("system time: profile of this machine, calibrated {} ago; {now}", age(*since))
}
