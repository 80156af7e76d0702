//! A predicted time, divided into terms with names: where it comes from.

use hksim_cost_model::{CostError, KernelPart, KernelWork, LineAccesses, LinePart, LinePrice, MedianRange, Profile};
use hksim_sim::SimReport;
use serde::{Deserialize, Serialize};

use crate::code::code_costs;
use crate::costs::PathCosts;
use crate::instructions::instructions;
use crate::memory::line_accesses;
use crate::time::{LIST_STEPS, NS_PER_S, Time};

/// What a term is part of, as in [`Parts`](crate::Parts).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimePart {
    /// The allocator's instructions.
    Instructions,
    /// Accesses to cache lines.
    Memory,
    /// The kernel.
    Kernel,
}

impl TimePart {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            TimePart::Instructions => "instructions",
            TimePart::Memory => "memory",
            TimePart::Kernel => "kernel",
        }
    }
}

/// A term of a predicted time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// What it is part of.
    pub part: TimePart,
    /// Its name: a path of the allocator's code, whose accesses they are, or the kernel's work.
    pub name: String,
    /// How many of it there are: runs of the path, accesses, operations of the kernel.
    pub count: u64,
    /// Its median, in nanoseconds per call of the allocator.
    pub ns_per_call: f64,
}

/// The name of what each call takes besides the instructions of its paths.
const EACH_CALL: &str = "each call";
/// The name of loads that go to the next block of a list.
const LISTS: &str = "steps along lists";

/// The terms of a predicted time's instructions and memory; those of a part add up to it. `time` is that of the report with
/// the same profile.
pub fn user_terms(report: &SimReport, time: &Time, profile: &Profile) -> Vec<Term> {
    let per_call = 1.0 / report.calls.max(1) as f64;
    let mut terms = of_paths(report, time, profile, per_call);
    terms.extend(of_memory(report, time, profile, per_call));
    terms.retain(|term| term.count > 0);
    terms
}

/// The kernel's time by part, for so many calls of the allocator. The terms add up to it.
///
/// # Errors
/// The profile lacks a cost.
pub fn kernel_terms(
    kernel: &KernelWork<'_>,
    calls: u64,
    profile: &Profile,
) -> Result<Vec<(KernelPart, Term)>, CostError> {
    let per_call = NS_PER_S / calls.max(1) as f64;
    let mut terms = Vec::new();
    for (part, count, work) in kernel.parts() {
        let ns_per_call = work.processor_s(profile)? * per_call;
        let term = Term { part: TimePart::Kernel, name: part.name().to_string(), count, ns_per_call };
        terms.extend((count > 0).then_some((part, term)));
    }
    Ok(terms)
}

/// The paths that ran, and what remains of the part: what each call takes besides.
fn of_paths(report: &SimReport, time: &Time, profile: &Profile, per_call: f64) -> Vec<Term> {
    let (Some(counts), Some(memory)) = (&report.paths, &profile.memory) else { return Vec::new() };
    let priced = instructions(counts, PathCosts::of(&report.policy));
    let ns_per_instruction = code_costs(profile, memory).instruction.median_ns;
    let term = |name: &str, count, ns_per_call| Term {
        part: TimePart::Instructions,
        name: name.to_string(),
        count,
        ns_per_call,
    };
    let mut terms: Vec<Term> = priced
        .by_path
        .iter()
        .map(|&(path, number)| term(path.name(), counts[path], number * ns_per_instruction * per_call))
        .collect();
    let known: f64 = terms.iter().map(|term| term.ns_per_call).sum();
    terms.push(term(EACH_CALL, report.calls, time.parts_ns_per_call.instructions - known));
    terms
}

/// Accesses to cache lines by whose they are, and what remains of the part: steps along lists.
fn of_memory(report: &SimReport, time: &Time, profile: &Profile, per_call: f64) -> Vec<Term> {
    let (Some(counts), Some(paths), Some(memory)) = (&report.lines, &report.paths, &profile.memory) else {
        return Vec::new();
    };
    let accesses = line_accesses(counts);
    let price = LinePrice::of(&accesses, memory).unwrap_or_default();
    let count = |part: LinePart| {
        let of_part = accesses.iter().filter(|lines| lines.part == part);
        of_part.map(|&LineAccesses { accesses, .. }| accesses).sum()
    };
    let term = |&(part, ns): &(LinePart, MedianRange)| Term {
        part: TimePart::Memory,
        name: line_name(part).to_string(),
        count: count(part),
        ns_per_call: ns.median * per_call,
    };
    let mut terms: Vec<Term> = price.parts_ns.iter().map(term).collect();
    let known: f64 = terms.iter().map(|term| term.ns_per_call).sum();
    terms.push(Term {
        part: TimePart::Memory,
        name: LISTS.to_string(),
        count: LIST_STEPS.iter().map(|&path| paths[path]).sum(),
        ns_per_call: time.parts_ns_per_call.memory - known,
    });
    terms
}

fn line_name(part: LinePart) -> &'static str {
    match part {
        LinePart::ProgramSequential => "the program's lines in sequence",
        LinePart::ProgramShort => "the program's lines in short ranges",
        LinePart::ProgramIsolated => "the program's other lines",
        LinePart::FillingSequential => "zeros and copies in sequence",
        LinePart::FillingShort => "zeros and copies in short ranges",
        LinePart::FillingIsolated => "other zeros and copies",
        LinePart::BookkeepingSequential => "the allocator's own lines in sequence",
        LinePart::BookkeepingIsolated => "the allocator's other lines",
    }
}
