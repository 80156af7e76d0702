//! Ordered runs on allocator designs.

use std::marker::PhantomData;

use hksim_engine::{Design, Driver, Errno, OnSpace, Region, Tables, TouchRule};
use serde_json::Value;

use crate::calls::Counted;
use crate::coarse;
use crate::error::ChildError;
use crate::extents::Extent;
use crate::measured::{Measurable, measured, open_traps};
use crate::mmap_space::{MmapSpace, ReadySpace, SpaceOs};
use crate::observed_os::ObservedOs;
use crate::observer::Observer;
use crate::ordered::{control, sampled, tables, timed};
use crate::prefault::MeasuredHeap;
use crate::protocol::{Channel, Report};
use crate::spec::Run;
use crate::unobserved::UnobservedRun;
use crate::window::PreparedTrace;

/// One run of a design in a child.
pub(crate) struct DesignRun<'a> {
    pub(crate) run: Run,
    pub(crate) touch: TouchRule,
    pub(crate) trace: &'a mut PreparedTrace,
    pub(crate) channel: &'a mut Channel,
}

/// A design that the children of a replay know: pass it to [`child_main_with`](crate::child_main_with).
#[derive(Clone, Copy)]
pub struct KnownDesign {
    pub(crate) name: &'static str,
    pub(crate) run: fn(&Value, DesignRun<'_>) -> Result<Report, ChildError>,
}

impl std::fmt::Debug for KnownDesign {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("KnownDesign").field(&self.name).finish()
    }
}

impl KnownDesign {
    /// The design `D`.
    pub const fn of<D: Design>() -> KnownDesign {
        KnownDesign { name: D::NAME, run: perform::<D> }
    }
}

fn perform<D: Design>(settings: &Value, run: DesignRun<'_>) -> Result<Report, ChildError> {
    let settings: D::Settings = serde_json::from_value(settings.clone())
        .map_err(|why| ChildError::Settings { design: D::NAME.into(), why: why.to_string() })?;
    let design = Prepared::<D> { settings, touch: run.touch, design: PhantomData };
    match run.run {
        Run::Control => control(Extent::Region, run.trace),
        Run::Measured => design.measured(run.trace, run.channel),
        Run::Timed => {
            let ready = design.ready(run.trace)?;
            timed(run.trace, || design.open(ready, Counted::default()))
        }
        Run::Harness => UnobservedRun { heap: MeasuredHeap::Reservation, touch: run.touch }.harness(run.trace),
        Run::Sampled => {
            let ready = design.ready(run.trace)?;
            sampled(run.trace, || design.open(ready, Counted::default()))
        }
        Run::Pieces | Run::HarnessPieces | Run::Apart | Run::Explained(_) | Run::ExplainedStart(_) => {
            Err(ChildError::OrderedMallocOnly)
        }
        Run::Limited => Err(ChildError::OrderedLimitOnly),
        Run::System(..) => Err(ChildError::OrderedNativeOnly),
    }
}

/// A design with its settings.
struct Prepared<D: Design> {
    settings: D::Settings,
    touch: TouchRule,
    design: PhantomData<D>,
}

/// The memory that a run needs besides its heap, prepared before the window opens.
struct Ready<D: Design, O: SpaceOs> {
    space: ReadySpace,
    tables: Tables<OnSpace<D, MmapSpace<O>>>,
}

impl<D: Design> Prepared<D> {
    /// Allocates the memory of a run and makes it present.
    fn ready<O: SpaceOs>(&self, trace: &PreparedTrace) -> Result<Ready<D, O>, ChildError> {
        let space = ReadySpace::new().map_err(ChildError::system("prepare the memory of a design"))?;
        Ok(Ready { space, tables: tables(trace) })
    }

    /// Starts the design, as the first step in the window.
    fn open<O: SpaceOs>(&self, ready: Ready<D, O>, os: O) -> Result<Driver<OnSpace<D, MmapSpace<O>>>, ChildError> {
        let Ready { space, tables } = ready;
        let started = OnSpace::start(&self.settings, MmapSpace::new(space, os));
        let allocator = started.map_err(|Errno(errno)| ChildError::Start { design: D::NAME.into(), errno })?;
        Ok(Driver::with_tables(allocator, tables, self.touch))
    }

    fn measured(&self, trace: &mut PreparedTrace, channel: &mut Channel) -> Result<Report, ChildError> {
        let (traps, skipped) = open_traps();
        match Observer::new(Extent::Region, traps) {
            Err(why) => {
                let ready = self.ready(trace)?;
                coarse::measured(trace, &why, || self.open(ready, Counted::default()))
            }
            Ok(observer) => {
                let ready = self.ready(trace)?;
                measured(Measurable { observer, skipped }, trace, channel, |os: ObservedOs| {
                    os.observer().borrow_mut().locate_region(Region::START);
                    self.open(ready, os)
                })
            }
        }
    }
}
