//! Where records come from: tracepoints (root), or stops of the program and page-fault events (any user).

use std::os::fd::OwnedFd;

use hksim_linux_probe::ring::Ring;
use hksim_memory_trace::{Calls, Faults, Visibility};
use libc::pid_t;

use crate::error::MemoryRecordError;
use crate::fault_events::FaultEvents;
use crate::kernel_events::KernelEvents;
use crate::record::Samples;

/// How page faults and memory calls are observed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// By tracepoints if the kernel permits them, else by stops.
    #[default]
    Auto,
    /// By the kernel's tracepoints. Needs root. The program is not stopped.
    Tracepoints,
    /// Calls by stopping the program (ptrace), faults by the page-fault event. Needs no rights if
    /// `kernel.perf_event_paranoid` is at most 2. The program ends if the recorder ends; the recorder stays until the
    /// program and its children have ended.
    Stops,
}

/// The open events of a process and its descendants; they end when this value is dropped.
pub struct Events {
    /// One ring for each processor.
    pub rings: Vec<Ring>,
    /// What their samples contain.
    pub samples: Samples,
    /// What they show.
    pub visibility: Visibility,
    /// The open events, which count what they lose.
    pub open: Vec<OwnedFd>,
}

impl Events {
    /// What the kernel's tracepoints show.
    pub const VISIBILITY_OF_KERNEL: Visibility = Visibility { faults: Faults::Accesses, calls: Calls::Tracepoints };

    /// Opens the events of the stopped process `pid` and of all processes that it starts. `with_stacks` is for
    /// tracepoints; a tracer reads the stacks itself.
    ///
    /// # Errors
    /// The kernel does not permit it.
    pub fn open(source: Source, pid: pid_t, with_stacks: bool) -> Result<Self, MemoryRecordError> {
        match source {
            Source::Tracepoints => Self::tracepoints(pid, with_stacks),
            Source::Stops => Self::stops(pid),
            Source::Auto => match Self::tracepoints(pid, with_stacks) {
                Err(MemoryRecordError::NotPermitted { .. }) => Self::stops(pid),
                opened => opened,
            },
        }
    }

    fn tracepoints(pid: pid_t, with_stacks: bool) -> Result<Self, MemoryRecordError> {
        KernelEvents::open(pid, with_stacks).map(Self::of_kernel)
    }

    /// These events.
    pub fn of_kernel(events: KernelEvents) -> Self {
        let KernelEvents { rings, layout, events, .. } = events;
        let visibility = Self::VISIBILITY_OF_KERNEL;
        Self { rings, samples: Samples::Tracepoints(layout), visibility, open: events }
    }

    fn stops(pid: pid_t) -> Result<Self, MemoryRecordError> {
        let FaultEvents { rings, faults, events } = FaultEvents::open(pid)?;
        let visibility = Visibility { faults, calls: Calls::Stops };
        Ok(Self { rings, samples: Samples::Faults, visibility, open: events })
    }
}
