//! The allocator of a simulation: what describes it in results, and how it is simulated.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use hksim_cost_model::{Profile, Work};
use hksim_designs::{Label, Listed, Neighbour, Untyped, Visitor, each};
use hksim_engine::{PAGE_BYTES, Region};
use hksim_policy::vocabulary::{Prefault, Purge};
use hksim_policy::{Policy, PolicyError};
use hksim_sim::explain::explain;
use hksim_sim::simulate::{Marks, Simulated, simulate};
use hksim_sim::sweep::{Input, SweepProgress};
use hksim_sim::{Counted, Explained, SimConfig, SimError, SimReport, explain_design, simulate_design, sweep};
use hksim_time_model::{Term, Time, user_terms};
use hksim_trace::source::EventSource;
use rayon::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::causes::{Cause, Remedy, remedies};
use crate::flags::RunConfig;
use crate::flags::table::{FLAGS, Subject};
use crate::priced::{counted, program_work};

/// Is called with the number of a setup and its report.
pub type Finished<'a, P> = dyn Fn(usize, &SimReport<P>) + Sync + 'a;

/// What describes an allocator: the policy of SuperSlab, or the name of a design with its settings.
pub trait Described: Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static {
    /// The flags that give it, each with its word.
    fn flags(&self) -> Flags;

    /// Number of settings that are not the defaults.
    fn settings_changed(&self) -> usize;

    /// The policy that says which modes of huge pages are expected. A design expects none, as the default policy.
    fn of_modes(&self) -> Policy;

    /// What a simulation has to count so that a profile gives its time. Only pages if it cannot.
    fn counted(&self, profile: Option<&Profile>) -> Counted;

    /// How long free memory is kept before it is purged, if that is a fixed time above 0.
    fn purge_delay_ns(&self) -> Option<u64>;

    /// Pages of its address space that page sets number: all, and those before blocks with mappings of their own.
    ///
    /// # Errors
    /// The policy is invalid.
    fn reserved_pages(&self) -> Result<(u64, u64), PolicyError>;

    /// The changes that may remove a cause of installs. Which of them helps is not assumed: each is simulated.
    fn remedies(&self, cause: &Cause) -> Vec<Remedy<Self>>;

    /// Whether the allocator prefaults pages by touching them one by one.
    fn prefaults_by_hand(&self) -> bool;

    /// The time of calls and accesses.
    ///
    /// # Errors
    /// It is not known; the text says why.
    fn time(report: &SimReport<Self>, profile: &Profile) -> Result<Time, String>;

    /// The terms of that time, but those of the kernel.
    fn user_terms(report: &SimReport<Self>, time: &Time, profile: &Profile) -> Vec<Term>;

    /// Simulates a source, which must be at its start.
    ///
    /// # Errors
    /// The trace is damaged, or the allocator cannot start or serve an event.
    fn simulate(
        source: &mut (dyn EventSource + Send),
        setup: &SimConfig<Self>,
        marks: Marks,
    ) -> Result<Simulated<Self>, SimError>;

    /// Simulates a source and explains the result; `mark` is the number of a mark's name.
    ///
    /// # Errors
    /// As of [`Described::simulate`].
    fn explain(
        source: &mut dyn EventSource,
        setup: &SimConfig<Self>,
        mark: Option<u32>,
    ) -> Result<Explained<Self>, SimError>;

    /// Simulates many setups on the current rayon pool. Reports are in the order of the setups.
    ///
    /// # Errors
    /// As of [`Described::simulate`].
    fn sweep(
        input: &Input,
        setups: &[SimConfig<Self>],
        progress: &dyn SweepProgress,
        finished: &Finished<'_, Self>,
    ) -> Result<Vec<SimReport<Self>>, SimError>;
}

impl Described for Policy {
    fn flags(&self) -> Flags {
        let config = RunConfig::of(*self);
        let flags = FLAGS.iter().filter(|flag| flag.subject == Subject::Policy);
        flags.map(|flag| (flag.name, flag.show(&config))).collect()
    }

    fn settings_changed(&self) -> usize {
        let default = Policy::DEFAULT.flags();
        self.flags().iter().zip(default).filter(|(own, default)| own.1 != default.1).count()
    }

    fn of_modes(&self) -> Policy {
        *self
    }

    fn counted(&self, profile: Option<&Profile>) -> Counted {
        counted(self, profile)
    }

    fn purge_delay_ns(&self) -> Option<u64> {
        (self.purge != Purge::None && self.purge_delay_ns > 0).then_some(self.purge_delay_ns)
    }

    fn reserved_pages(&self) -> Result<(u64, u64), PolicyError> {
        let layout = self.prepare()?.layout;
        Ok((layout.bytes() / PAGE_BYTES, layout.arena / PAGE_BYTES))
    }

    fn remedies(&self, cause: &Cause) -> Vec<Remedy> {
        remedies(self, cause)
    }

    fn prefaults_by_hand(&self) -> bool {
        self.prefault == Prefault::Touch
    }

    fn time(report: &SimReport, profile: &Profile) -> Result<Time, String> {
        Time::of(report, &Work::from(&program_work(report)), profile).map_err(|why| why.to_string())
    }

    fn user_terms(report: &SimReport, time: &Time, profile: &Profile) -> Vec<Term> {
        user_terms(report, time, profile)
    }

    fn simulate(source: &mut (dyn EventSource + Send), setup: &SimConfig, marks: Marks) -> Result<Simulated, SimError> {
        simulate(source, setup, marks, &|_| {})
    }

    fn explain(source: &mut dyn EventSource, setup: &SimConfig, mark: Option<u32>) -> Result<Explained, SimError> {
        explain(source, setup, mark)
    }

    fn sweep(
        input: &Input,
        setups: &[SimConfig],
        progress: &dyn SweepProgress,
        finished: &Finished<'_, Policy>,
    ) -> Result<Vec<SimReport>, SimError> {
        sweep(input, setups, &Noting { progress, finished })
    }
}

/// Passes the progress of a sweep on, and each finished row.
struct Noting<'a> {
    progress: &'a dyn SweepProgress,
    finished: &'a Finished<'a, Policy>,
}

impl SweepProgress for Noting<'_> {
    fn expect(&self, events: u64) {
        self.progress.expect(events);
    }

    fn done(&self, events: u64) {
        self.progress.done(events);
    }

    fn finished(&self, config: usize, report: &SimReport) {
        self.progress.finished(config, report);
        (self.finished)(config, report);
    }
}

/// The runs of a design, whose type is known where they were made.
#[derive(Clone, Copy)]
struct Runs {
    simulate: Simulate,
    explain: Explain,
}

type Simulate = fn(
    &mut (dyn EventSource + Send),
    &SimConfig<Label>,
    Marks,
    &(dyn Fn(u64) + Sync),
) -> Result<Simulated<Label>, SimError>;

type Explain = fn(&mut dyn EventSource, &SimConfig<Label>, Option<u32>) -> Result<Explained<Label>, SimError>;

/// Finds the runs of a design by its name.
struct Named<'a> {
    name: &'a str,
    runs: Option<Runs>,
}

impl Visitor for Named<'_> {
    fn visit<D: Listed>(&mut self) {
        if D::NAME == self.name {
            self.runs = Some(Runs { simulate: simulate_design::<Untyped<D>>, explain: explain_design::<Untyped<D>> });
        }
    }
}

impl Runs {
    fn of(label: &Label) -> Result<Runs, SimError> {
        let mut named = Named { name: &label.design, runs: None };
        each(&mut named);
        named.runs.ok_or_else(|| SimError::UnknownDesign { design: label.design.clone() })
    }
}

impl Described for Label {
    fn flags(&self) -> Flags {
        hksim_designs::flags(self)
    }

    fn settings_changed(&self) -> usize {
        hksim_designs::settings_changed(self)
    }

    fn of_modes(&self) -> Policy {
        Policy::DEFAULT
    }

    fn counted(&self, _profile: Option<&Profile>) -> Counted {
        Counted::Pages
    }

    /// What a design does over time is its own matter.
    fn purge_delay_ns(&self) -> Option<u64> {
        None
    }

    fn reserved_pages(&self) -> Result<(u64, u64), PolicyError> {
        Ok((Region::BYTES / PAGE_BYTES, Region::BYTES / PAGE_BYTES))
    }

    /// Each setting with its other words, or with a quarter and four times its number.
    fn remedies(&self, _cause: &Cause) -> Vec<Remedy<Label>> {
        let remedy = |Neighbour { flag, word, instead_of, label }: Neighbour| Remedy {
            flags: format!("--{flag} {word}"),
            replaces: format!("--{flag} {instead_of}"),
            policy: label,
        };
        hksim_designs::neighbours(self).into_iter().map(remedy).collect()
    }

    fn prefaults_by_hand(&self) -> bool {
        true
    }

    fn time(_: &SimReport<Label>, _: &Profile) -> Result<Time, String> {
        Err("the instructions of a design are not known, only those of SuperSlab".to_string())
    }

    fn user_terms(_: &SimReport<Label>, _: &Time, _: &Profile) -> Vec<Term> {
        Vec::new()
    }

    fn simulate(
        source: &mut (dyn EventSource + Send),
        setup: &SimConfig<Label>,
        marks: Marks,
    ) -> Result<Simulated<Label>, SimError> {
        (Runs::of(&setup.policy)?.simulate)(source, setup, marks, &|_| {})
    }

    fn explain(
        source: &mut dyn EventSource,
        setup: &SimConfig<Label>,
        mark: Option<u32>,
    ) -> Result<Explained<Label>, SimError> {
        (Runs::of(&setup.policy)?.explain)(source, setup, mark)
    }

    /// No two share a placement: what a design does may depend on each of its settings.
    fn sweep(
        input: &Input,
        setups: &[SimConfig<Label>],
        progress: &dyn SweepProgress,
        finished: &Finished<'_, Label>,
    ) -> Result<Vec<SimReport<Label>>, SimError> {
        let events = (input.open)()?.summary().events;
        progress.expect(events.saturating_mul(setups.len() as u64));
        let one = |(number, setup): (usize, &SimConfig<Label>)| {
            let reported = AtomicU64::new(0);
            let done = |events: u64| progress.done(events - reported.swap(events, Relaxed));
            let mut source = (input.open)()?;
            let report = (Runs::of(&setup.policy)?.simulate)(source.as_mut(), setup, Marks::Skip, &done)?.report;
            finished(number, &report);
            Ok(report)
        };
        let rows: Vec<Result<SimReport<Label>, SimError>> = setups.par_iter().enumerate().map(one).collect();
        rows.into_iter().collect()
    }
}

/// Flags, each with its word.
pub type Flags = Vec<(&'static str, String)>;

/// Every flag of a run: those of its allocator, then those of the program and the kernel.
pub fn all_flags<P: Described>(policy: &P, config: &RunConfig) -> Flags {
    let others = FLAGS.iter().filter(|flag| flag.subject != Subject::Policy);
    policy.flags().into_iter().chain(others.map(|flag| (flag.name, flag.show(config)))).collect()
}

/// The allocator's flags with their words, several per line, for the head of a table.
pub fn allocator_lines<P: Described>(allocator: &P) -> Vec<String> {
    const FLAGS_PER_LINE: usize = 7;
    let flags = allocator.flags();
    // The name of a design needs no flag before it.
    let (heading, skipped) = if word(&flags, "design").is_empty() { ("policy", "") } else { ("design", "design ") };
    let words: Vec<String> = flags.iter().map(|(flag, word)| format!("{flag} {word}")).collect();
    let line = |(index, words): (usize, &[String])| {
        let text = words.join(", ");
        let heading = if index == 0 { heading } else { "" };
        format!("{heading:<9}{}", text.strip_prefix(skipped).unwrap_or(&text))
    };
    words.chunks(FLAGS_PER_LINE).enumerate().map(line).collect()
}

/// Every flag of a row.
pub fn row_flags<P: Described>(report: &SimReport<P>) -> Flags {
    all_flags(&report.policy, &RunConfig::of_report(report))
}

/// The flags whose words differ between rows, in their order.
pub fn varied_flags(rows: &[Flags]) -> Vec<&'static str> {
    some_flags(rows, |_, varies| varies)
}

/// The flags that are wanted, in their order. `is_wanted` is told the flag, and whether its words differ between the rows
/// that have it.
pub fn some_flags(rows: &[Flags], is_wanted: impl Fn(&str, bool) -> bool) -> Vec<&'static str> {
    let mut words: Vec<(&'static str, &str, bool)> = Vec::new();
    for (name, word) in rows.iter().flatten() {
        match words.iter_mut().find(|(known, ..)| known == name) {
            Some((_, first, varies)) => *varies |= first != word,
            None => words.push((name, word, false)),
        }
    }
    words.retain(|(name, _, varies)| is_wanted(name, *varies));
    words.into_iter().map(|(name, ..)| name).collect()
}

/// The word of a flag in a table; a dash if the row does not have it.
pub fn cell(flags: &Flags, name: &str) -> String {
    let word = word(flags, name);
    if word.is_empty() { "-".to_string() } else { word.to_string() }
}

/// The word of a flag; empty if the row does not have it.
pub fn word<'a>(flags: &'a [(&'static str, String)], name: &str) -> &'a str {
    flags.iter().find(|(flag, _)| *flag == name).map(|(_, word)| word.as_str()).unwrap_or_default()
}
