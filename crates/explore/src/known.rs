//! Which figures will be known for traces, before the work starts.

use hksim_cost_model::Profile;
use hksim_sim::tlb::Geometry;
use hksim_trace::header::TouchSource;
use thiserror::Error;

use crate::figures::Figure;
use crate::inputs::Trace;

/// A figure will not be known.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Unknown {
    /// There are no costs of a machine.
    #[error("{0}: needs a profile of the target machine: run `hksim calibrate` there, or give its file with --profile")]
    NoProfile(Figure),
    /// The profile was made by hand.
    #[error("time: the profile has no costs of memory: measure it with `hksim calibrate`")]
    NoMemoryCosts,
    /// No core is modelled.
    #[error("tlb-misses: needs --tlb, the core to model ({0})")]
    NoCore(String),
    /// A trace lacks accesses.
    #[error("{0}: tlb-misses: the trace does not have every access of the program; record it with --accesses full")]
    NotEveryAccess(String),
}

/// Checks that a figure will be known for some traces: with costs of a machine, and with this core's TLB.
///
/// # Errors
/// It will not; the message says what is missing.
pub fn check_known(
    figure: Figure,
    traces: &[Trace],
    profile: Option<&Profile>,
    core: Option<&'static Geometry>,
) -> Result<(), Unknown> {
    let cores = || Geometry::all().iter().map(|core| core.name).collect::<Vec<_>>().join(", ");
    let sampled = || traces.iter().find(|trace| trace.header.touch != TouchSource::FullStream);
    match figure {
        Figure::SysTime | Figure::Time if profile.is_none() => Err(Unknown::NoProfile(figure)),
        Figure::Time if profile.is_some_and(|profile| profile.memory.is_none()) => Err(Unknown::NoMemoryCosts),
        Figure::TlbMisses if core.is_none() => Err(Unknown::NoCore(cores())),
        Figure::TlbMisses => sampled().map_or(Ok(()), |trace| Err(Unknown::NotEveryAccess(trace.name()))),
        _ => Ok(()),
    }
}
