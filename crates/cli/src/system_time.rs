//! The flag of commands that print system time.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hksim_cost_model::Profile;

/// The flag of commands that print system time.
#[derive(Clone, Debug, clap::Args)]
pub struct ProfileArgs {
    /// Also predict system time, as a range, from a profile of `hksim calibrate`
    #[arg(long, value_name = "FILE.toml", hide_short_help = true)]
    profile: Option<PathBuf>,
}

impl ProfileArgs {
    /// The file of the profile.
    pub fn path(&self) -> Option<&Path> {
        self.profile.as_deref()
    }

    /// The profile, if one is given.
    ///
    /// # Errors
    /// The file is not a profile.
    pub fn read(&self) -> Result<Option<Profile>> {
        Ok(self.profile.as_deref().map(|path: &Path| Profile::read(path)).transpose()?)
    }
}
