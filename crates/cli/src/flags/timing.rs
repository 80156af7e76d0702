//! How exactly a command times: `--precision`, `--budget`, `--runs`, `--duet`, `--seed`.

use std::time::Duration;

use anyhow::{Result, bail};
use hksim_policy::units::parse_time;
use hksim_replay::Mode;
use hksim_timing::{Arrangement, Effort, ROUNDS_MAX, random_seed};

use super::between::between;

/// How long rounds go on, and in which order.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Timing")]
pub struct PrecisionArgs {
    /// Stop when every ratio is known to this share of it
    ///
    /// Half its 95 % interval is below that.
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    precision: Option<f64>,
    /// Start no further timed round after this time
    #[arg(long, value_name = "TIME", value_parser = parse_time, hide_short_help = true)]
    budget: Option<u64>,
    /// Draw the order of timed runs, or of a search, from this seed [default: the time; for hksim's designs 1]
    #[arg(long, value_name = "N", hide_short_help = true)]
    seed: Option<u64>,
}

/// Arguments of commands that time rounds.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Timing")]
pub struct RoundsArgs {
    /// Run at most this many timed rounds; alone, exactly as many
    #[arg(long, value_name = "N", value_parser = between(1u32, ROUNDS_MAX))]
    runs: Option<u32>,
    #[command(flatten)]
    precise: PrecisionArgs,
}

/// Arguments of commands that time replays.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Timing")]
pub struct TimingArgs {
    #[command(flatten)]
    pub rounds: RoundsArgs,
    /// Run each allocator at the same time as the first one, on two CPUs, so that a disturbance affects both
    #[arg(long, hide_short_help = true)]
    duet: bool,
}

fn parse_percent(word: &str) -> Result<f64, String> {
    let number = word.strip_suffix('%').unwrap_or(word).parse::<f64>().ok();
    let share = number.filter(|percent| *percent > 0.0 && *percent < 100.0).map(|percent| percent / 100.0);
    share.ok_or_else(|| "expected a percentage, such as 1% or 0.5%".to_string())
}

impl PrecisionArgs {
    /// Whether one of the flags is given.
    pub fn are_asked(&self) -> bool {
        self.have_end() || self.seed.is_some()
    }

    fn have_end(&self) -> bool {
        self.precision.is_some() || self.budget.is_some()
    }

    /// When the rounds end, at the latest after this many.
    pub fn effort(&self, runs: Option<u32>) -> Effort {
        let standard = Effort::default();
        if let Some(rounds_max) = runs.filter(|_| !self.have_end()) {
            return Effort { precision: 0.0, time_max: Duration::MAX, rounds_max, ..standard };
        }
        Effort {
            precision: self.precision.unwrap_or(standard.precision),
            time_max: self.budget.map_or(standard.time_max, Duration::from_nanos),
            rounds_max: runs.unwrap_or(standard.rounds_max),
            ..standard
        }
    }

    /// The seed of the order of runs.
    pub fn seed(&self) -> u64 {
        self.seed.unwrap_or_else(random_seed)
    }
}

impl RoundsArgs {
    fn are_asked(&self) -> bool {
        self.runs.is_some() || self.precise.are_asked()
    }

    /// When the rounds end.
    pub fn effort(&self) -> Effort {
        self.precise.effort(self.runs)
    }

    /// The seed of the order of runs.
    pub fn seed(&self) -> u64 {
        self.precise.seed()
    }

    /// The seed that was given.
    pub fn given_seed(&self) -> Option<u64> {
        self.precise.seed
    }

    /// Whether the end of the rounds was asked for.
    pub fn have_end(&self) -> bool {
        self.runs.is_some() || self.precise.have_end()
    }
}

impl TimingArgs {
    /// Whether one of the flags is given.
    pub fn are_asked(&self) -> bool {
        self.rounds.are_asked() || self.duet
    }

    /// Which runs happen at the same time.
    ///
    /// # Errors
    /// A duet was requested, and threads or this machine do not permit it.
    pub fn arrangement(&self, mode: Mode) -> Result<Arrangement> {
        if !self.duet {
            return Ok(Arrangement::InTurn);
        }
        if mode == Mode::Threaded {
            bail!("--duet: the threads of a trace need all CPUs; use --mode ordered, or leave it out");
        }
        let duet = Arrangement::duet();
        duet.or_else(|_| bail!("--duet: this process may use one CPU only, and two are needed; leave it out"))
    }
}
