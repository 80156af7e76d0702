//! The page accesses of a simulation, and the changes of mappings between them: what a TLB sees.

use std::io::Write;

use hksim_policy::PAGE_BYTES;
use hksim_sim::SimConfig;
use hksim_sim::access_stream::{StreamEntry, StreamOp, access_stream};
use hksim_sim::observer::Cause;
use hksim_sim::translations::Change;
use hksim_trace::source::EventSource;

use super::Broken;

/// Head of the table.
const HEAD: &str = "event,op,address,bytes,entry_bytes,cause";

/// Writes one line for each access to a page, and for each change of mappings.
///
/// # Errors
/// The simulation fails, or the rows cannot be written.
pub fn write(source: &mut dyn EventSource, setup: &SimConfig, out: &mut dyn Write) -> Result<(), Broken> {
    writeln!(out, "{HEAD}")?;
    access_stream(source, setup, |entry: &StreamEntry| -> Result<(), Broken> {
        let event = entry.event;
        match &entry.what {
            StreamOp::Access { page, size, cause } => {
                let (address, entry_bytes) = (page * PAGE_BYTES, size.bytes());
                writeln!(out, "{event},access,{address:#x},{PAGE_BYTES},{entry_bytes},{}", cause_word(*cause))?;
            }
            StreamOp::Changed { pages, by } => {
                let (address, bytes) = (pages.start * PAGE_BYTES, (pages.end - pages.start) * PAGE_BYTES);
                writeln!(out, "{event},{},{address:#x},{bytes},,", change_word(*by))?;
            }
        }
        Ok(())
    })?;
    out.flush()?;
    Ok(())
}

fn change_word(change: Change) -> &'static str {
    match change {
        Change::Mmap => "mmap",
        Change::Munmap => "munmap",
        Change::Dontneed => "dontneed",
        Change::Free => "free",
        Change::Collapse => "collapse",
        Change::Mremap => "mremap",
        Change::Fault => "fault",
        Change::Fork => "fork",
    }
}

fn cause_word(cause: Cause) -> &'static str {
    match cause {
        Cause::Application => "application",
        Cause::Header => "header",
        Cause::FreeList => "free_list",
        Cause::Metadata => "metadata",
        Cause::Zeroing => "zeroing",
        Cause::Copy => "copy",
        Cause::Prefault => "prefault",
    }
}
