//! The kernel's page-fault tracepoints, which report whether a fault was a read or a write.

use std::ffi::CStr;

use hksim_linux_probe::tracefs::{self, Tracefs};

/// A tracepoint of page faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tracepoint {
    /// Its id for `perf_event_open`.
    pub id: u64,
    /// Offset of the faulting address in its data, in bytes.
    pub address_at: usize,
    /// Offset of the instruction's address.
    pub instruction_at: usize,
    /// Offset of the processor's error code.
    pub error_at: usize,
}

/// The tracepoints of faults in user mode, and of faults in system calls (such as `read` into a fresh buffer).
const NAMES: [&CStr; 2] = [c"events/exceptions/page_fault_user/format", c"events/exceptions/page_fault_kernel/format"];

/// The two tracepoints; `None` if they are not accessible (not root).
pub fn fault_tracepoints() -> Option<[Tracepoint; 2]> {
    let tracefs = Tracefs::open()?;
    let [user, kernel] = NAMES.map(|name| layout(&tracefs.tracepoint(name)?));
    Some([user?, kernel?])
}

fn layout(point: &tracefs::Tracepoint) -> Option<Tracepoint> {
    Some(Tracepoint {
        id: point.id,
        address_at: point.offset_of("address")?,
        instruction_at: point.offset_of("ip")?,
        error_at: point.offset_of("error_code")?,
    })
}
