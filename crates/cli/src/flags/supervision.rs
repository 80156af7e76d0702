//! How a program that runs is loaded and stopped: `--load`, `--ready`, `--stop`, `--time-limit`.

use std::time::Duration;

use hksim_policy::units::parse_time;
use hksim_validate::memory::{Stop, Supervision};

/// Flags of commands that run a program again and again.
#[derive(Clone, Debug, clap::Args)]
pub struct SupervisionArgs {
    /// The program is a server: when it is ready, run this shell command, then stop the program
    #[arg(long, value_name = "SHELL-COMMAND", hide_short_help = true)]
    load: Option<String>,
    /// The program is ready when this shell command succeeds; tried every 100 ms [default: at once]
    #[arg(long, value_name = "SHELL-COMMAND", requires = "load", hide_short_help = true)]
    ready: Option<String>,
    /// The signal that stops the program after --load and at --time-limit: HUP, INT, QUIT, TERM, USR1, USR2, KILL
    #[arg(long, value_name = "SIGNAL", default_value = "TERM", hide_short_help = true)]
    stop: Stop,
    /// Stop a run after this time, and drop its row [default: ten times the first or recorded run, at least 60s]
    #[arg(long, value_name = "TIME", value_parser = parse_time, hide_short_help = true)]
    time_limit: Option<u64>,
}

impl SupervisionArgs {
    /// Whether the program is a server.
    pub fn has_load(&self) -> bool {
        self.load.is_some()
    }

    /// Whether the time of a run is limited by the user.
    pub fn has_limit(&self) -> bool {
        self.time_limit.is_some()
    }

    /// How runs are loaded and stopped.
    pub fn supervision(&self) -> Supervision {
        Supervision {
            load: self.load.clone(),
            ready: self.ready.clone(),
            stop: self.stop,
            time_limit: self.time_limit.map(Duration::from_nanos),
        }
    }
}
