//! Simulations of allocator designs: everything that [`mod@crate::simulate`] and [`mod@crate::explain`] report about the
//! SuperSlab allocator, for any [`Design`].

use hksim_engine::{Design, DesignLabel, OnSpace};
use hksim_trace::source::EventSource;

use crate::explain::{Explained, explain_run};
use crate::observer::AccountingObserver;
use crate::placed::{Placed, Points, Run, accounting_of, counts_tlb_misses};
use crate::pump::pump;
use crate::reach::TlbModels;
use crate::report::TraceLabel;
use crate::simulate::{Marks, SimConfig, SimError, Simulated, finish, wanted_points};
use crate::space::SimSpace;
use crate::translations::TranslationObserver;

/// Configuration of a simulation of a design.
pub type DesignConfig<D> = SimConfig<DesignLabel<<D as Design>::Settings>>;

/// Starts a design in a simulated address space.
fn start<D: Design, H: AccountingObserver>(
    config: &DesignConfig<D>,
    observer: H,
) -> Result<OnSpace<D, SimSpace<H>>, SimError> {
    OnSpace::start(&config.policy.settings, SimSpace::new(observer))
        .map_err(|errno| SimError::Start { design: D::NAME, errno: errno.0 })
}

/// Simulates a source, which must be at its start, on a design. Calls `progress` with the number of events performed so
/// far.
///
/// # Errors
/// The trace is damaged, or the design cannot start.
pub fn simulate_design<D: Design + Send + 'static>(
    source: &mut (dyn EventSource + Send),
    config: &DesignConfig<D>,
    marks: Marks,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Simulated<DesignLabel<D::Settings>>, SimError> {
    let (trace, summary) = (TraceLabel::of(config.file.clone(), source), *source.summary());
    let points = Points::new(summary.events, wanted_points(source, marks)?, marks != Marks::Skip);
    let run: Box<dyn Placed<DesignLabel<D::Settings>>> =
        match config.tlb.filter(|_| counts_tlb_misses(config, trace.touch_source)) {
            Some(core) => {
                let observer = TranslationObserver::new(accounting_of(config), TlbModels::new(core));
                Box::new(Run::of(start::<D, _>(config, observer)?, &[config], trace, summary, points))
            }
            None => Box::new(Run::of(start::<D, _>(config, accounting_of(config))?, &[config], trace, summary, points)),
        };
    let mut runs = [run];
    pump(source, &mut runs, progress)?;
    let [run] = runs;
    Ok(finish(run))
}

/// Simulates a source, which must be at its start, on a design, and explains the result: see
/// [`explain`](crate::explain()).
///
/// # Errors
/// Those of [`simulate_design`].
pub fn explain_design<D: Design + Send + 'static>(
    source: &mut dyn EventSource,
    config: &DesignConfig<D>,
    mark: Option<u32>,
) -> Result<Explained<DesignLabel<D::Settings>>, SimError> {
    let mut accounting = accounting_of(config);
    accounting.log_installs();
    let allocator = start::<D, _>(config, accounting)?;
    explain_run(source, config, mark, |trace, summary, points| {
        Ok(Run::of(allocator, &[config], trace, summary, points))
    })
}
