//! Files with figures by call stack, which other programs draw: folded stacks and pprof.

use std::path::{Path, PathBuf};

use anyhow::Result;
use hksim_reports::{folded, pprof};
use hksim_results::stack_profile::StackProfile;

use crate::output::file;

/// The files to write.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct StackFiles {
    /// Write the figure by call site as folded stacks, for a flame graph
    #[arg(long, value_name = "FILE")]
    folded: Option<PathBuf>,
    /// Write the figures by call site for `pprof` and `go tool pprof`
    #[arg(long, value_name = "FILE.pb.gz")]
    pprof: Option<PathBuf>,
}

impl StackFiles {
    /// The names of the files.
    pub fn paths(&self) -> [Option<&Path>; 2] {
        [self.folded.as_deref(), self.pprof.as_deref()]
    }

    /// Checks that no file would replace a result: profiles never look like one.
    ///
    /// # Errors
    /// One would.
    pub fn check(&self) -> Result<()> {
        self.paths().into_iter().flatten().try_for_each(file::refuse_json)
    }

    /// Whether a file is requested.
    pub fn is_requested(&self) -> bool {
        self.paths().iter().any(Option::is_some)
    }

    /// Writes the requested files.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn write(&self, profile: &StackProfile) -> Result<()> {
        if let Some(path) = &self.folded {
            file::write(path, folded::text(profile).as_bytes())?;
        }
        self.pprof.as_ref().map_or(Ok(()), |path| file::write(path, &pprof::bytes(profile)?))
    }
}
