//! Which of the rows of a sweep is best: turns rows into designs and cases.

use hksim_engine::{MemoryPolicyRule, TouchRule};
use hksim_policy::Policy;
use hksim_sim::report::TraceLabel;
use hksim_trace::header::TouchSource;
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Design, Reason, answer, no_answer};
use crate::described::{Described, Flags, all_flags, varied_flags, word};
use crate::error::ExploreError;
use crate::figures::Figures;
use crate::flags::RunConfig;
use crate::origin::origin_text;
use crate::priced::{Priced, figures};
use crate::question::Question;
use crate::rank::{Case, RankError, Ranking, all_designs, rank};
use hksim_text::units::count;

/// The answers for a sweep.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answers {
    /// The designs, in the order of the rows of each trace.
    pub designs: Vec<Design>,
    /// All traces ranked together; absent for a single trace or a single design.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub combined: Option<Combined>,
    /// One answer per trace.
    pub per_trace: Vec<Answer>,
}

/// All traces ranked together.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Combined {
    /// Names of the cases: traces, and assumptions about the program if there are several.
    pub cases: Vec<String>,
    /// The ranking of all designs.
    pub ranking: Ranking,
    /// The answer.
    pub answer: Answer,
}

/// The part of a run configuration that is not a choice but an assumption about the program.
type Assumption = (Option<TouchRule>, MemoryPolicyRule);

/// How the rows of a trace divide into designs and assumptions. It is the same for each trace.
pub struct Layout<P = Policy> {
    /// Each design: its allocator, and a run configuration without assumptions.
    designs: Vec<(P, RunConfig)>,
    assumptions: Vec<Assumption>,
    /// Design and assumption of each row.
    rows: Vec<(usize, usize)>,
}

fn place<T: PartialEq>(items: &mut Vec<T>, item: T) -> usize {
    items.iter().position(|known| *known == item).unwrap_or_else(|| {
        items.push(item);
        items.len() - 1
    })
}

impl<P: Described> Layout<P> {
    /// The layout of a trace's rows.
    pub fn of(rows: &[Priced<P>]) -> Layout<P> {
        let (mut designs, mut assumptions) = (Vec::new(), Vec::new());
        let rows = rows.iter().map(|row| {
            let config = RunConfig::of_report(&row.report);
            let assumption = place(&mut assumptions, (config.touch, config.memory_policy));
            let config = RunConfig { touch: None, memory_policy: MemoryPolicyRule::default(), ..config };
            (place(&mut designs, (row.report.policy.clone(), config)), assumption)
        });
        let rows = rows.collect();
        Layout { designs, assumptions, rows }
    }

    /// The designs as sentences name them.
    pub fn designs(&self) -> Vec<Design> {
        let flags: Vec<Flags> = self.designs.iter().map(|(policy, config)| all_flags(policy, config)).collect();
        let varied = varied_flags(&flags);
        let name = |flags: &Flags| {
            let given = varied.iter().filter(|flag| !word(flags, flag).is_empty());
            given.map(|flag| format!("--{flag} {}", word(flags, flag))).collect::<Vec<_>>().join(" ")
        };
        // What is the same in all rows is no change, unless it is the allocator's.
        let design = |((policy, _), flags): (&(P, RunConfig), &Flags)| {
            let default = all_flags(policy, &RunConfig::on_expected_kernel(policy.of_modes()));
            let of_kernel = varied.iter().filter(|flag| word(flags, flag) != word(&default, flag)).count();
            Design::described(name(flags), policy.settings_changed() + of_kernel)
        };
        self.designs.iter().zip(&flags).map(design).collect()
    }

    /// The cases of a trace, one per assumption.
    fn cases(&self, number: usize, rows: &[Priced<P>], weight: f64) -> Vec<Case> {
        let trace = rows.first().map(|row| trace_name(&row.report.trace)).unwrap_or_default();
        let case = |(index, assumption): (usize, &Assumption)| {
            let mut designs = vec![Figures::default(); self.designs.len()];
            for (row, &(design, of)) in rows.iter().zip(&self.rows) {
                if of == index {
                    designs[design] = figures(row);
                }
            }
            let touch = assumption.0.map_or("", TouchRule::word);
            let several = self.assumptions.len() > 1;
            let assumption = several.then(|| format!("--touch {touch}"));
            let name = assumption.iter().fold(trace.clone(), |name, assumption| format!("{name}, {assumption}"));
            Case { name, trace: number, assumption, weight: weight / self.assumptions.len() as f64, designs }
        };
        self.assumptions.iter().enumerate().map(case).collect()
    }
}

/// The name of a trace in sentences.
pub fn trace_name(trace: &TraceLabel) -> String {
    let file = trace.file.as_deref().map(|file| file.rsplit('/').next().unwrap_or(file).to_string());
    file.unwrap_or_else(|| {
        let origin = origin_text(&trace.origin);
        origin.split(',').next().unwrap_or_default().to_string()
    })
}

/// What is known to be missing in a trace, in parentheses after its number of events; empty if nothing is.
pub fn missing_text(trace: &TraceLabel) -> String {
    match (trace.events_lost, trace.complete) {
        (0, true) => String::new(),
        (0, false) => " (truncated)".to_string(),
        (lost, _) => format!(" (the recorder lost {} more)", count(lost)),
    }
}

/// Whether the touches of a row are assumed.
fn is_assumed<P>(row: &Priced<P>) -> bool {
    row.report.touch.source == TouchSource::Assumed
}

impl Answers {
    /// The answers for a sweep with `rows_per_trace` rows per trace.
    ///
    /// # Errors
    /// The goal's figure is not known.
    pub fn of<P: Described>(
        rows: &[Priced<P>],
        rows_per_trace: usize,
        question: &Question,
    ) -> Result<Answers, ExploreError> {
        let traces: Vec<&[Priced<P>]> = rows.chunks(rows_per_trace.max(1)).collect();
        let Some(first) = traces.first() else {
            return Ok(Answers { designs: Vec::new(), combined: None, per_trace: Vec::new() });
        };
        let layout = Layout::of(first);
        let designs = layout.designs();
        let weights = question.weights.of_traces(traces.len())?;
        let cases: Vec<Vec<Case>> = traces
            .iter()
            .zip(weights)
            .enumerate()
            .map(|(number, (rows, weight))| layout.cases(number, rows, weight))
            .collect();
        let notes = |rows: &[Priced<P>]| {
            let is_open = layout.assumptions.len() == 1 && designs.len() > 1 && rows.iter().any(is_assumed);
            if is_open { vec![Reason::TouchesAssumed] } else { Vec::new() }
        };
        let answered = |rows: &[Priced<P>], cases: &[Case]| match answer(
            question,
            &designs,
            cases,
            &all_designs(cases),
            &notes(rows),
        ) {
            Err(RankError::NoDesign) => Ok(no_answer(question, &designs, cases)),
            answered => answered,
        };
        let per_trace = traces.iter().zip(&cases).map(|(rows, cases)| answered(rows, cases));
        let per_trace = per_trace.collect::<Result<Vec<Answer>, _>>()?;
        let combined = if traces.len() > 1 && designs.len() > 1 {
            let all: Vec<Case> = cases.into_iter().flatten().collect();
            let ranking = match rank(&all, &all_designs(&all), question.goal.0) {
                Err(RankError::NoDesign) => Ranking::of_none(&all),
                ranked => ranked?,
            };
            let answer = answered(rows, &all)?;
            let cases = all.into_iter().map(|case| case.name).collect();
            Some(Combined { cases, ranking, answer })
        } else {
            None
        };
        Ok(Answers { designs, combined, per_trace })
    }
}
