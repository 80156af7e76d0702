//! Page faults of any program, from the output of `perf script`: where and when they occurred and, if the addresses
//! show it, why.
//!
//! The result is a report, not a trace: the script has no allocations. Faults are attributed to memory by the mappings
//! in the script (`--show-mmap-events`) or in a copy of `/proc/PID/maps`. Memory use grows with the pages and mappings
//! of the program, not with the length of the script.

mod fault_counter;
mod line;
mod mappings;
mod maps;
mod pages;
mod report;

use super::failure::Failure;
use super::input::{Input, Lines};
use super::open::{self, Container};
use crate::error::TraceError;
use std::path::{Path, PathBuf};

use fault_counter::FaultCounter;
use line::Line;
pub use report::{CodeRow, FaultReport, MappingRow, Moment, Reasons, RegionKind, RegionRow};

/// Options of [`read`].
#[derive(Clone, Debug, Default)]
pub struct FaultOptions {
    /// The process to report; the first that faults if `None`.
    pub process: Option<u64>,
    /// A copy of the process's `/proc/PID/maps`, for scripts without mappings.
    pub maps: Option<PathBuf>,
}

/// What to do if a script cannot be used.
const REMEDY: &str = "record with `perf record -e page-faults -c1 -d`, print with \
                    `perf script -F +pid,+addr --show-mmap-events --show-task-events`";

/// Reads the output of `perf script`: a plain, gz, bz2, xz, zstd or lz4 file, or the first file of a zip archive.
///
/// # Errors
/// Unreadable input, a line without time or address, or no fault at all. Each error names file and line, and says what
/// to do.
pub fn read(path: &Path, options: &FaultOptions) -> Result<FaultReport, TraceError> {
    let mut fault_counter = FaultCounter::new(options.process);
    if let Some(maps) = &options.maps {
        with_input(maps, &mut |input| maps::read(input, &mut fault_counter))?;
    }
    let (mut lines, mut member) = (0, None);
    with_input(path, &mut |input| {
        member = input.member().map(str::to_string);
        let any_event = input.any_event();
        while let Some(text) = input.line(Lines::Mixed)? {
            let line = line::parse(text)?;
            if matches!(line, Line::Record { .. }) {
                any_event.found();
            }
            fault_counter.take(line)?;
        }
        lines = input.lines_read();
        fault_counter.check_usable()
    })?;
    let mut report = fault_counter.report();
    (report.lines, report.archive_member) = (lines, member);
    Ok(report)
}

/// Opens a file or the first file in an archive, and adds the place to errors of `read`.
fn with_input(path: &Path, read: &mut dyn FnMut(&mut Input) -> Result<(), Failure>) -> Result<(), TraceError> {
    let mut run = |mut input: Input| read(&mut input).map_err(|why| input.place_error(why));
    match open::container(path)? {
        Container::Stream { reader, packed } => run(Input::new(path, None, packed, reader)),
        Container::Zip(mut archive) => {
            for index in 0..archive.len() {
                if let Some((name, reader)) = open::member(path, &mut archive, index)? {
                    return run(Input::new(path, Some(name), true, reader));
                }
            }
            Err(TraceError::io(path, "read the archive", std::io::Error::other("it contains no file")))
        }
    }
}
