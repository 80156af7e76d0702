//! Designs that are explained on one trace, and what removes the causes of their installs.

use hksim_cost_model::Profile;
use hksim_engine::ForkWindow;
use hksim_sim::simulate::Marks;
use hksim_sim::{Explained, SimConfig};

use crate::causes::{Cause, Remedy, Tried};
use crate::described::Described;
use crate::error::ExploreError;
use crate::explained_time::ExplainedTime;
use crate::flags::{BaseKernel, RunConfig};
use crate::inputs::Trace;
use crate::priced::Priced;
use crate::runs::{Listener, setup_of};

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
    /// The setup of an allocator, with the program and the kernel of a run configuration.
    fn setup<P: Described>(&self, allocator: &P, config: &RunConfig) -> Result<SimConfig<P>, ExploreError> {
        let config = RunConfig { policy: allocator.of_modes(), ..config.clone() };
        let setup = setup_of(allocator.clone(), &config, self.trace, BaseKernel::AsItComes)?;
        self.listener.simulates(&config.policy, &setup.kernel);
        Ok(SimConfig { forks: self.forks.clone(), ..setup })
    }

    /// Simulates an allocator with the program and the kernel of a run configuration, and explains its installs.
    ///
    /// # Errors
    /// The trace is damaged, or the policy is invalid.
    pub fn explain<P: Described>(&self, allocator: &P, config: &RunConfig) -> Result<Explained<P>, ExploreError> {
        let setup = self.setup(allocator, config)?;
        let mut source = (self.trace.input.open)()?;
        Ok(P::explain(&mut *source, &setup, self.mark)?)
    }

    /// The times of an explained allocator, from a simulation that counts what they need.
    ///
    /// # Errors
    /// As for [`explain`](Subject::explain).
    pub fn timed<P: Described>(
        &self,
        explained: &Explained<P>,
        config: &RunConfig,
        profile: &Profile,
    ) -> Result<ExplainedTime<P>, ExploreError> {
        let allocator = &explained.report.policy;
        let setup = SimConfig { counted: allocator.counted(Some(profile)), ..self.setup(allocator, config)? };
        let mut source = (self.trace.input.open)()?;
        let report = P::simulate(&mut *source, &setup, Marks::Skip)?.report;
        Ok(ExplainedTime::new(Priced::new(report, Some(profile)), explained, profile))
    }

    /// Simulates the remedies of each cause, all of them in one sweep. A remedy under which more requests fail is none.
    ///
    /// # Errors
    /// As for [`explain`](Subject::explain).
    pub fn tried<P: Described>(
        &self,
        causes: &[Cause],
        config: &RunConfig,
        before: &Explained<P>,
    ) -> Result<Vec<Vec<Tried<P>>>, ExploreError> {
        let allocator = &before.report.policy;
        let remedies: Vec<Vec<Remedy<P>>> = causes.iter().map(|cause| allocator.remedies(cause)).collect();
        let setups = remedies.iter().flatten().map(|remedy| self.setup(&remedy.policy, config));
        let setups = setups.collect::<Result<Vec<SimConfig<P>>, _>>()?;
        let progress = self.listener.begin();
        let mut reports = P::sweep(&self.trace.input, &setups, &*progress, &|_, _| {})?.into_iter();
        let of_cause = |(cause, remedies): (&Cause, Vec<Remedy<P>>)| {
            let reports: Vec<_> = remedies.into_iter().zip(reports.by_ref()).collect();
            let served =
                reports.into_iter().filter(|(_, report)| report.requests_failed <= before.report.requests_failed);
            let tried = served.map(|(remedy, report)| {
                let installs_of_cause = if cause.shares_its_reason() {
                    // A report does not tell the installs at the start from later ones.
                    cause.installs_in(&self.explain(&remedy.policy, config)?.breakdown)
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
