//! All rows of a budget.

use std::path::{Path, PathBuf};

use hksim_cost_model::Profile;
use hksim_designs::Label;
use hksim_explore::digest::Digest;
use hksim_explore::flags::RunConfig;
use hksim_explore::inputs::Trace;
use hksim_explore::runs::Listener;
use hksim_memory_sim::Setting;
use hksim_memory_trace::MAGIC;
use hksim_policy::Policy;
use hksim_replay::compare::Allocator;
use hksim_sim::tlb::Geometry;
use hksim_trace::info::Info;
use hksim_trace::named_file;

use crate::budget::Budget;
use crate::consumers::{Consumer, Consumers, Quantity, of_trace};
use crate::error::BudgetError;
use crate::limit::Limit;
use crate::metric::{Kind, Metric};
use crate::recorded::recorded;
use crate::replayed::replayed;
use crate::row::{Figures, Measured, Row, Subject};
use crate::simulated::{check_misses, check_times, simulate};

/// A section of the budget, with what it names.
#[derive(Clone, Debug)]
pub struct Design {
    /// Its name.
    pub name: String,
    /// What it names.
    pub named: Named,
    /// Its limits.
    pub limits: Vec<Limit>,
}

/// What a section names.
#[derive(Clone, Debug)]
pub enum Named {
    /// A policy.
    Policy(Box<RunConfig>),
    /// Another design.
    Design(Box<Label>),
    /// A real allocator.
    Allocator(Box<Allocator>),
    /// Settings of the kernel, and their words.
    Setting(Box<Setting>, String),
}

/// What times and TLB misses are predicted for.
#[derive(Clone, Copy)]
pub struct Machine<'a> {
    /// The core whose TLB is modelled.
    pub core: Option<&'static Geometry>,
    /// The costs of a machine.
    pub profile: Option<&'a Profile>,
}

/// The rows of a budget, ordered by trace, then by design, and who uses the memory.
#[derive(Clone, Debug, Default)]
pub struct Rows {
    /// The rows.
    pub rows: Vec<Row>,
    /// Who uses the memory.
    pub consumers: Vec<Consumers>,
}

/// The part of a row that depends on how its figures are found.
pub(crate) struct Held {
    pub(crate) subject: Subject,
    pub(crate) inputs: Digest,
    pub(crate) figures: Figures,
    pub(crate) measured: Option<Measured>,
}

impl Design {
    fn kind(&self) -> Kind {
        match self.named {
            Named::Policy(_) => Kind::Policy,
            Named::Design(_) => Kind::Design,
            Named::Allocator(_) => Kind::Allocator,
            Named::Setting(..) => Kind::Setting,
        }
    }

    /// The error that a limited figure will not be known.
    pub(crate) fn unknown(&self, metric: Metric, why: &str) -> BudgetError {
        BudgetError::Unknown { design: self.name.clone(), name: metric.word(), why: why.to_string() }
    }

    /// Checks, before the work starts, that its limits will be known.
    fn check(&self, machine: Machine<'_>) -> Result<(), BudgetError> {
        for limit in &self.limits {
            if !limit.metric.is_of(self.kind()) {
                let known = Metric::ALL.into_iter().filter(|metric| metric.is_of(self.kind()));
                let known: Vec<&str> = known.map(Metric::word).collect();
                let what = match self.kind() {
                    Kind::Policy => "a policy",
                    Kind::Design => "another design",
                    Kind::Allocator => "a replay on an allocator",
                    Kind::Setting => "a memory recording",
                };
                let why = format!("not known of {what}, which has {}", known.join(", "));
                return Err(self.unknown(limit.metric, &why));
            }
            let is_predicted = self.kind() != Kind::Allocator;
            if is_predicted
                && matches!(limit.metric, Metric::NsPerCall | Metric::SystemTimeS)
                && machine.profile.is_none()
            {
                return Err(self.unknown(limit.metric, "needs `profile`, a file that `hksim calibrate -o` wrote"));
            }
        }
        Ok(())
    }
}

/// Finds the figures of every design on every trace of a budget, whose paths are relative to `folder`.
///
/// # Errors
/// A trace is incomplete or damaged, a limited figure will not be known, or a replay fails.
pub fn rows(
    budget: &Budget,
    folder: &Path,
    designs: &[Design],
    machine: Machine<'_>,
    listener: &dyn Listener,
) -> Result<Rows, BudgetError> {
    let paths: Vec<PathBuf> = budget.traces.iter().map(|trace| folder.join(trace)).collect();
    let is_recording = |path: &PathBuf| named_file::begins_with(path, &MAGIC);
    for design in designs {
        design.check(machine)?;
        let wants_recording = design.kind() == Kind::Setting;
        if let Some(path) = paths.iter().find(|path| is_recording(path) != wants_recording) {
            let why = match wants_recording {
                true => format!("not a memory recording (.hkm), for which design.{} has a `setting`", design.name),
                false => format!(
                    "a memory recording is of one allocator; set `setting` in design.{}, the kernel's flags",
                    design.name
                ),
            };
            return Err(BudgetError::File { file: path.clone(), why });
        }
    }
    if designs.iter().any(|design| design.kind() == Kind::Setting) {
        return of_recordings(budget, &paths, designs, machine.profile);
    }
    of_traces(budget, &paths, designs, machine, listener)
}

fn of_recordings(
    budget: &Budget,
    paths: &[PathBuf],
    designs: &[Design],
    profile: Option<&Profile>,
) -> Result<Rows, BudgetError> {
    let named = designs.iter().filter_map(|design| match &design.named {
        Named::Setting(setting, words) => Some((design, &**setting, words)),
        Named::Policy(_) | Named::Design(_) | Named::Allocator(_) => None,
    });
    let named: Vec<_> = named.collect();
    let settings: Vec<Setting> = named.iter().map(|(_, setting, _)| (*setting).clone()).collect();
    let mut all = Rows::default();
    for (trace, path) in budget.traces.iter().zip(paths) {
        let trace = trace.display().to_string();
        for ((design, _, words), row) in named.iter().zip(recorded(path, &settings, profile)?) {
            let (design, consumers) = (design.name.clone(), row.consumers);
            all.consumers.push(Consumers { trace: trace.clone(), design: Some(design.clone()), consumers });
            all.rows.push(Row {
                trace: trace.clone(),
                checksum: row.checksum,
                design,
                subject: Subject::Setting { setting: words.to_string() },
                inputs: row.inputs,
                allocations: 0,
                figures: row.figures,
                measured: None,
            });
        }
    }
    Ok(all)
}

fn of_traces(
    budget: &Budget,
    paths: &[PathBuf],
    designs: &[Design],
    machine: Machine<'_>,
    listener: &dyn Listener,
) -> Result<Rows, BudgetError> {
    let opened = || paths.iter().map(|path| complete(path)).collect::<Result<Vec<Trace>, _>>();
    let traces = opened()?;
    let default = RunConfig::of(Policy::DEFAULT);
    let (mut policies, mut others) = (Vec::new(), Vec::new());
    for design in designs {
        match &design.named {
            Named::Policy(config) => {
                check_misses(design, &traces, machine.core)?;
                check_times(design, config, machine.profile)?;
                policies.push((config.policy, &**config));
            }
            Named::Design(label) => {
                check_misses(design, &traces, machine.core)?;
                others.push((Label::clone(label), &default));
            }
            Named::Allocator(_) | Named::Setting(..) => {}
        }
    }
    let mut all = Rows::default();
    let mut heads = Vec::new();
    let mut replays = Vec::new();
    for ((name, path), trace) in budget.traces.iter().zip(paths).zip(&traces) {
        for design in designs {
            if let Named::Allocator(allocator) = &design.named {
                replays.push(replayed(design, allocator, path, trace)?);
            }
        }
        let mut source = (trace.input.open)()?;
        let info = Info::of(&mut *source)?;
        let consumers =
            Consumers { trace: name.display().to_string(), design: None, consumers: of_trace(&mut *source)? };
        heads.push((trace.label().checksum, info.mallocs + info.callocs + info.reallocs + info.aligned_allocs));
        all.consumers.push(consumers);
    }
    // All are in the order of the rows.
    let mut simulated = simulate(traces, &policies, machine, listener)?.into_iter();
    let (mut others, mut replays) = (simulate(opened()?, &others, machine, listener)?.into_iter(), replays.into_iter());
    for ((checksum, allocations), consumers) in heads.into_iter().zip(&all.consumers) {
        let live_bytes_end = Some(bytes_at_end(&consumers.consumers));
        for design in designs {
            let held = match design.kind() {
                Kind::Policy => simulated.next(),
                Kind::Design => others.next(),
                Kind::Allocator | Kind::Setting => replays.next(),
            };
            all.rows.extend(held.map(|held| Row {
                trace: consumers.trace.clone(),
                checksum: checksum.clone(),
                design: design.name.clone(),
                subject: held.subject,
                inputs: held.inputs,
                allocations,
                figures: Figures { live_bytes_end, ..held.figures },
                measured: held.measured,
            }));
        }
    }
    Ok(all)
}

fn bytes_at_end(consumers: &[Consumer]) -> u64 {
    consumers.iter().filter_map(|consumer| consumer.quantities.get(&Quantity::BytesAtEnd)).sum()
}

/// A trace that has its end, and lost no events.
fn complete(path: &Path) -> Result<Trace, BudgetError> {
    let trace = Trace::file(path)?;
    if trace.summary.complete {
        return Ok(trace);
    }
    let why = "the trace is incomplete, so a budget cannot be checked with it; record it again";
    Err(BudgetError::File { file: path.to_path_buf(), why: why.to_string() })
}
