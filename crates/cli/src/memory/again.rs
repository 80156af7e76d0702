//! The flags that say which program a validation runs, and how.

use std::ffi::OsString;
use std::path::Path;

use anyhow::{Result, bail};
use hksim_memory_trace::Header;
use hksim_validate::memory::{Again, Rerun};

use crate::flags::supervision::SupervisionArgs;

/// Flags about the program of a memory recording.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Memory recordings (.hkm)")]
pub struct AgainArgs {
    /// Run the command that the recording names, in the directory and with the allocator variables that it names. Only
    /// for recordings that you trust; without this flag the command is printed
    #[arg(long, hide_short_help = true, conflicts_with = "own_command")]
    run_recorded: bool,
    #[command(flatten)]
    supervision: SupervisionArgs,
    /// Run this command instead of the recorded one, in this directory and environment
    #[arg(last = true, value_name = "COMMAND", hide_short_help = true)]
    own_command: Vec<OsString>,
}

impl AgainArgs {
    /// Refuses these flags for a trace of allocator calls.
    ///
    /// # Errors
    /// One was given.
    pub fn refuse_for_trace(&self) -> Result<()> {
        let given = [
            ("--run-recorded", self.run_recorded),
            ("--load", self.supervision.has_load()),
            ("--time-limit", self.supervision.has_limit()),
            ("-- COMMAND", !self.own_command.is_empty()),
        ];
        match given.into_iter().find(|(_, is_given)| *is_given) {
            Some((flag, _)) => bail!("{flag} is for memory recordings (.hkm); a trace is replayed"),
            None => Ok(()),
        }
    }

    /// Checks, before anything runs, that the user has chosen the command for each of these recordings.
    ///
    /// # Errors
    /// The user has not agreed to a recorded command, or gave one command for several recordings.
    pub fn check<'a>(&self, started: impl Iterator<Item = (&'a Path, Option<&'a Header>)>) -> Result<()> {
        let mut recordings = 0;
        for (path, header) in started {
            recordings += 1;
            if header.is_some_and(|header| header.beginning.is_attached()) {
                bail!("{}: {}", path.display(), Rerun::attached());
            }
            if self.run_recorded || !self.own_command.is_empty() {
                continue;
            }
            let name = path.display();
            let own = "put the command at the end: -- COMMAND";
            match header.ok_or_else(Rerun::unknown).and_then(Rerun::recorded) {
                Ok(rerun) => bail!(
                    "{name}: validate runs a program again, and this file names: {}; if you trust that, type: {}; \
                     otherwise {own}",
                    rerun.shown(),
                    self.line_that_agrees()
                ),
                Err(why) => bail!("{name}: validate runs a program again, but {why}; {own}"),
            }
        }
        if recordings > 1 && !self.own_command.is_empty() {
            bail!("-- COMMAND: is the command of one recording, but there are {recordings}; validate them separately");
        }
        Ok(())
    }

    /// The user's command line, with the flag that agrees to run the recorded command.
    fn line_that_agrees(&self) -> String {
        let words: Vec<String> = std::env::args().skip(1).collect();
        let words = ["hksim"].into_iter().chain(words.iter().map(String::as_str)).chain(["--run-recorded"]);
        hksim_text::shell::line(words)
    }

    /// Which program is run, and how.
    pub fn again(&self) -> Again {
        Again { command: self.own_command.clone(), supervision: self.supervision.supervision() }
    }
}
