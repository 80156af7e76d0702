//! The rows of a sweep: which there are, and simulating some of them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use hksim_cost_model::Profile;
use hksim_policy::Policy;
use hksim_sim::report::version;
use hksim_sim::sweep::SweepProgress;
use hksim_sim::{Addresses, SimConfig, SimReport};
use rayon::prelude::*;
use serde::Serialize;
use serde_json::json;

use crate::described::Described;
use crate::digest::Digest;
use crate::error::ExploreError;
use crate::inputs::Trace;
use crate::journal::Journal;

/// All rows of a sweep: every setup of every trace. Rows are ordered by trace, then by setup. `P` describes the
/// allocator, as in [`SimReport`].
pub struct Plan<P = Policy> {
    runs: Vec<(Trace, Vec<SimConfig<P>>)>,
    setups: usize,
}

/// What is done with a finished row.
type Note<'a, P> = dyn Fn(usize, &SimReport<P>) -> Result<(), ExploreError> + Sync + 'a;

impl<P: Described> Plan<P> {
    /// The rows of every trace, with the setups of each; all have the same number.
    ///
    /// # Errors
    /// A setup is impossible.
    pub fn new<E>(traces: Vec<Trace>, setups: impl Fn(&Trace) -> Result<Vec<SimConfig<P>>, E>) -> Result<Plan<P>, E> {
        let runs = traces.into_iter().map(|trace| setups(&trace).map(|setups| (trace, setups)));
        let runs = runs.collect::<Result<Vec<_>, E>>()?;
        let setups = runs.first().map_or(1, |(_, setups)| setups.len().max(1));
        Ok(Plan { runs, setups })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.runs.iter().map(|(_, setups)| setups.len()).sum()
    }

    fn row(&self, row: usize) -> (&Trace, &SimConfig<P>) {
        let (trace, setups) = &self.runs[row / self.setups];
        (trace, &setups[row % self.setups])
    }

    /// The digest of every input of the sweep, for shards.
    pub fn digest(&self, head: &impl Serialize, profile: Option<&Profile>) -> Digest {
        let rows: Vec<Digest> = (0..self.rows()).map(|row| self.row_digest(row)).collect();
        let rest = json!({"rows": Digest::of_all(&rows), "head": head, "profile": profile});
        Digest::of(&rest)
    }

    /// The digest of every input of a row.
    fn row_digest(&self, row: usize) -> Digest {
        let (trace, SimConfig { policy, touch, kernel, tlb, memory_policy, addresses, forks, counted, file }) =
            self.row(row);
        let addresses = match addresses {
            Addresses::Modelled { top } => json!({"top": top}),
            Addresses::Given(given) => json!(given),
        };
        Digest::of(&json!({
            "version": version(), "trace": trace.label(), "events": trace.summary.events, "file": file, "policy": policy,
            "touch": touch, "kernel": kernel, "tlb": tlb.map(|core| core.name), "memory_policy": memory_policy,
            "addresses": addresses, "forks": forks, "counted": counted,
        }))
    }

    /// Simulates some rows, given in increasing order, on the current rayon pool. With a journal, notes each finished
    /// row in it, and takes those that it already has from it.
    ///
    /// # Errors
    /// A trace is damaged, a policy is invalid, or the file is not this sweep's journal.
    pub fn simulate(
        &self,
        rows: &[usize],
        journal: Option<&Path>,
        progress: &dyn SweepProgress,
    ) -> Result<Vec<SimReport<P>>, ExploreError> {
        let Some(path) = journal else {
            return self.simulate_rows(rows, &|_, _| Ok(()), progress);
        };
        let digests = (0..self.rows()).map(|row| self.row_digest(row)).collect();
        let (journal, mut finished): (Journal, BTreeMap<usize, SimReport<P>>) = Journal::open(path, digests)?;
        let open: Vec<usize> = rows.iter().copied().filter(|row| !finished.contains_key(row)).collect();
        let journal = Mutex::new(journal);
        let note = |row: usize, report: &SimReport<P>| -> Result<(), ExploreError> {
            let mut journal = journal.lock().map_err(|_| ExploreError::Worker(path.to_path_buf()))?;
            Ok(journal.add(row, report)?)
        };
        let new = self.simulate_rows(&open, &note, progress)?;
        finished.extend(open.into_iter().zip(new));
        let report = |row: &usize| finished.remove(row).ok_or(ExploreError::MissingRow(*row));
        rows.iter().map(report).collect()
    }

    /// Simulates rows, and calls `note` with each finished one.
    fn simulate_rows(
        &self,
        rows: &[usize],
        note: &Note<'_, P>,
        progress: &dyn SweepProgress,
    ) -> Result<Vec<SimReport<P>>, ExploreError> {
        let of_trace: Vec<&[usize]> = rows.chunk_by(|one, other| one / self.setups == other / self.setups).collect();
        let simulate = |rows: &&[usize]| -> Result<Vec<SimReport<P>>, ExploreError> {
            let trace = self.row(rows[0]).0;
            let setups: Vec<SimConfig<P>> = rows.iter().map(|&row| self.row(row).1.clone()).collect();
            // The first row that could not be noted.
            let failed: Mutex<Option<ExploreError>> = Mutex::default();
            let finished = |setup: usize, report: &SimReport<P>| {
                if let Err(error) = note(rows[setup], report) {
                    failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
                }
            };
            let swept = P::sweep(&trace.input, &setups, progress, &finished)?;
            match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
                Some(error) => Err(error),
                None => Ok(swept),
            }
        };
        let parts: Vec<Result<Vec<SimReport<P>>, ExploreError>> = of_trace.par_iter().map(simulate).collect();
        let parts = parts.into_iter().collect::<Result<Vec<Vec<SimReport<P>>>, _>>()?;
        Ok(parts.into_iter().flatten().collect())
    }
}
