//! Forks of the program, recorded or added: `--fork-at` and `--fork-for`.

use anyhow::Result;
use hksim_engine::ForkWindow;
use hksim_explore::forks::{ForkPoint, Forks, Life};
use hksim_explore::inputs::Trace;

use crate::output::warn;

/// The flags of commands that can fork.
#[derive(Clone, Debug, Default, clap::Args)]
#[command(next_help_heading = "Forks")]
pub struct ForkArgs {
    /// Fork an idle child after event N, at a mark, or where the program forked; pages written later are copied
    #[arg(long, value_name = "N|MARK,..|recorded", value_delimiter = ',', hide_short_help = true)]
    fork_at: Vec<ForkPoint>,
    /// Let the child exit after this much trace time or this many events; 0: immediately [default: at the end]
    #[arg(long, value_name = "TIME|EVENTS", requires = "fork_at", hide_short_help = true)]
    fork_for: Option<Life>,
}

impl ForkArgs {
    /// Whether the command line names forks.
    pub fn are_asked(&self) -> bool {
        !self.fork_at.is_empty()
    }

    /// The fork windows of a trace, in order. Prints a note if the end of children is not recorded.
    ///
    /// # Errors
    /// The trace lacks the event or mark, or does not record when its children ended; or two points are the same event.
    pub fn windows(&self, trace: &Trace) -> Result<Vec<ForkWindow>> {
        let forks = Forks { at: self.fork_at.clone(), life: self.fork_for };
        let found = forks.windows(trace)?;
        found.note.iter().for_each(|note| warn(note));
        Ok(found.windows)
    }
}
