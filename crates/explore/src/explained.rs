//! Designs that are explained on one trace, and what removes the causes of their installs.

use hksim_engine::ForkWindow;
use hksim_sim::explain::explain;
use hksim_sim::{Explained, SimConfig, sweep};

use crate::causes::{Cause, Remedy, Tried, remedies};
use crate::error::ExploreError;
use crate::flags::{BaseKernel, RunConfig};
use crate::inputs::Trace;
use crate::runs::{Listener, setup};

/// A trace on which designs are explained.
pub struct Subject<'a> {
    /// The trace.
    pub trace: &'a Trace,
    /// The number of the mark after which installs are counted, too.
    pub mark: Option<u32>,
    /// Forks of the program.
    pub forks: Vec<ForkWindow>,
    /// Is told what is simulated.
    pub listener: &'a dyn Listener,
}

impl Subject<'_> {
    fn setup(&self, config: &RunConfig) -> Result<SimConfig, ExploreError> {
        let setup = setup(config, self.trace, BaseKernel::AsItComes)?;
        self.listener.simulates(&setup);
        Ok(SimConfig { forks: self.forks.clone(), ..setup })
    }

    /// Simulates a design, and explains its installs.
    ///
    /// # Errors
    /// The trace is damaged, or the policy is invalid.
    pub fn explain(&self, config: &RunConfig) -> Result<Explained, ExploreError> {
        let setup = self.setup(config)?;
        let mut source = (self.trace.input.open)()?;
        Ok(explain(&mut *source, &setup, self.mark)?)
    }

    /// Simulates the remedies of each cause of a design, all of them in one sweep. A remedy under which more requests fail
    /// is none.
    ///
    /// # Errors
    /// As for [`explain`](Subject::explain).
    pub fn tried(
        &self,
        causes: &[Cause],
        config: &RunConfig,
        before: &Explained,
    ) -> Result<Vec<Vec<Tried>>, ExploreError> {
        let with = |remedy: &Remedy| RunConfig { policy: remedy.policy, ..config.clone() };
        let remedies: Vec<Vec<Remedy>> = causes.iter().map(|cause| remedies(&config.policy, cause)).collect();
        let setups = remedies.iter().flatten().map(|remedy| self.setup(&with(remedy)));
        let setups = setups.collect::<Result<Vec<SimConfig>, _>>()?;
        let mut reports = sweep(&self.trace.input, &setups, &*self.listener.begin())?.into_iter();
        let of_cause = |(cause, remedies): (&Cause, Vec<Remedy>)| {
            let reports: Vec<_> = remedies.into_iter().zip(reports.by_ref()).collect();
            let served =
                reports.into_iter().filter(|(_, report)| report.requests_failed <= before.report.requests_failed);
            let tried = served.map(|(remedy, report)| {
                let installs_of_cause = if cause.shares_its_reason() {
                    // A report does not tell the installs at the start from later ones.
                    cause.installs_in(&self.explain(&with(&remedy))?.breakdown)
                } else {
                    report.installs.by_reason.of(cause.reason)
                };
                let (installs, rss_bytes_peak) = (report.installs.total, report.rss_bytes_peak);
                Ok(Tried { remedy, installs_of_cause, installs, rss_bytes_peak })
            });
            tried.collect()
        };
        causes.iter().zip(remedies).map(of_cause).collect()
    }
}
