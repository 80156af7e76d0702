//! The address table: where a policy places each object.

use std::io::Write;

use hksim_policy::Policy;
use hksim_sim::placement::placements;
use hksim_trace::event::{Access, Event, Op};
use hksim_trace::hkt::TraceReader;
use hksim_trace::row;
use hksim_trace::source::EventSource;

use super::Broken;

/// Head of the table.
const HEAD: &str = "event,time_ns,thread,op,object,address,size";

/// Writes one line for each event that allocates, moves, frees or accesses an object.
///
/// # Errors
/// The simulation fails, or the rows cannot be written.
pub fn write(source: &mut TraceReader, design: &Policy, out: &mut dyn Write) -> Result<(), Broken> {
    writeln!(out, "{HEAD}")?;
    let mut sizes = vec![0u64; source.summary().objects_peak as usize];
    let mut number = 0;
    placements(source, design, |event: &Event, address: Option<u64>| -> Result<(), Broken> {
        number += 1;
        let (object, bytes, offset, name) = match event.op {
            Op::Alloc { object, size, .. }
            | Op::Realloc { object, size, .. }
            | Op::ReallocUnknown { object, size, .. } => {
                sizes[object.0 as usize] = size;
                (object, size, 0, row::op_name(&event.op))
            }
            Op::Free { object } | Op::ReallocFree { object, .. } => {
                (object, sizes[object.0 as usize], 0, row::op_name(&event.op))
            }
            Op::Touch { object, offset, bytes, access: Access::Read } => (object, u64::from(bytes), offset, "read"),
            Op::Touch { object, offset, bytes, access: Access::Write } => (object, u64::from(bytes), offset, "write"),
            _ => return Ok(()),
        };
        write!(out, "{},{},{},{name},{},", number - 1, event.time_ns, event.thread.0, object.0)?;
        if let Some(address) = address {
            write!(out, "{:#x}", address + offset)?;
        }
        writeln!(out, ",{bytes}")?;
        Ok(())
    })?;
    out.flush()?;
    Ok(())
}
