//! The flags of commands that say which design is best.

use anyhow::{Result, bail};
use hksim_cost_model::Profile;
use hksim_explore::figures::Figure;
use hksim_explore::known::check_known;
use hksim_explore::question::{Asked, Goal, Question, Tie, Weights};
use hksim_sim::tlb::Geometry;
use hksim_text::nearest;

use hksim_explore::inputs::Trace;

/// What is asked of the designs.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Which design is best")]
pub struct QuestionArgs {
    /// Minimise this figure: time, installs, sys-time, rss, rss-end, tlb-misses, vmas [default: time if a profile gives it, else installs]
    #[arg(long, value_name = "FIGURE")]
    goal: Option<Goal>,
    /// Treat designs that differ by less as equal
    #[arg(long, value_name = "PERCENT", default_value = "1%")]
    tie: Tie,
    /// Weigh the traces, in their order [default: all equal]
    #[arg(long, value_name = "LIST", hide_short_help = true)]
    weights: Option<Weights>,
    /// Model the data TLB of a core, for --goal tlb-misses
    #[arg(long, value_name = "CORE", value_parser = parse_core, hide_short_help = true, long_help = core_help("Model the data TLB of a core, for --goal tlb-misses"))]
    tlb: Option<&'static Geometry>,
}

/// The core with this name.
///
/// # Errors
/// There is no such core; the message lists all.
pub fn parse_core(name: &str) -> Result<&'static Geometry, String> {
    Geometry::named(name).ok_or_else(|| format!("cores are {}{}", core_names(), nearest::question(name, core_words())))
}

/// A help text with the names of all cores.
pub fn core_help(text: &str) -> String {
    format!("{text} [{}]", core_names())
}

fn core_names() -> String {
    core_words().collect::<Vec<_>>().join(", ")
}

/// The names of all cores.
pub fn core_words() -> impl Iterator<Item = &'static str> {
    Geometry::all().iter().map(|core| core.name)
}

impl QuestionArgs {
    /// What is asked about these traces, with the costs of a machine if they are known.
    ///
    /// # Errors
    /// The weights are not those of the traces, or the goal cannot be known.
    pub fn asked(&self, traces: &[Trace], profile: Option<&Profile>) -> Result<Asked> {
        let weights = self.weights.clone().unwrap_or_default();
        weights.of_traces(traces.len())?;
        self.goal.map_or(Ok(()), |goal| self.check_known(goal.0, traces, profile))?;
        Ok(Asked { goal: self.goal, tie: self.tie, weights })
    }

    /// What is asked about figures that are measured, so that no costs are needed.
    ///
    /// # Errors
    /// The weights are not those of the traces.
    pub fn measured(&self, traces: usize) -> Result<Question> {
        let weights = self.weights.clone().unwrap_or_default();
        weights.of_traces(traces)?;
        Ok(Asked { goal: self.goal, tie: self.tie, weights }.or(Figure::Time))
    }

    /// Checks, before the work starts, that a figure will be known.
    ///
    /// # Errors
    /// It will not; the message says what is missing.
    pub fn check_known(&self, figure: Figure, traces: &[Trace], profile: Option<&Profile>) -> Result<()> {
        Ok(check_known(figure, traces, profile, self.tlb)?)
    }

    /// The core to model.
    pub fn core(&self) -> Option<&'static Geometry> {
        self.tlb
    }

    /// Checks that none of these flags was given.
    ///
    /// # Errors
    /// One was: the command does not rank memory recordings.
    pub fn refuse_for_recording(&self) -> Result<()> {
        let given = [
            ("goal", self.goal.is_some()),
            ("weights", self.weights.is_some()),
            ("tlb", self.tlb.is_some()),
            ("tie", self.tie != Tie::default()),
        ];
        match given.iter().find(|(_, given)| *given) {
            Some((flag, _)) => bail!("--{flag} is about traces (.hkt); results of memory recordings are not ranked"),
            None => Ok(()),
        }
    }
}
