//! Whether a program repeats itself: only then can a prediction be exact.

use std::collections::BTreeMap;
use std::path::Path;

use hksim_memory_sim::Family;

use super::compare::{Comparison, Subject};
use super::measure::Run;
use super::place::relocated;
use crate::error::ValidateError;
use hksim_text::units::of;

/// Recordings that must be equal before a program counts as one that repeats itself.
const RECORDINGS: u32 = 5;

/// How a program does not repeat itself; `None` if it does. It is recorded again until a recording differs, at most
/// [`RECORDINGS`] times: some programs repeat themselves mostly, such as allocators that return memory after a time.
///
/// # Errors
/// The program cannot be run, or a recording cannot be read or written.
pub(crate) fn differs(
    subject: &Subject<'_>,
    comparison: &Comparison,
    runs: &[Run],
    folder: &Path,
) -> Result<Option<String>, ValidateError> {
    let header = &subject.recording.header;
    let measured_differ = runs.windows(2).any(|pair| end_of(&pair[0]) != end_of(&pair[1]));
    if measured_differ && !header.machine.addresses_random {
        return Ok(Some("the program does not repeat itself: the measured runs differ".to_string()));
    }
    let distances: Vec<u64> = comparison.pairs().map(|(predicted, measured)| predicted.distance(measured)).collect();
    let as_predicted = distances.iter().filter(|distance| **distance == 0).count();
    if as_predicted > 0 && as_predicted < distances.len() {
        let all = of(distances.len() as u64, "run");
        return Ok(Some(format!("the program does not repeat itself: {as_predicted} of {all} are as predicted")));
    }
    for _ in 0..RECORDINGS {
        if let Some(why) = another_recording(subject, folder)? {
            return Ok(Some(why));
        }
    }
    Ok(None)
}

/// What runs at equal addresses have in common: traps by mapping, and resident and huge bytes at the exit. Traps alone can
/// be equal by chance, if an allocator returns memory after a time.
fn end_of(run: &Run) -> (&BTreeMap<usize, u64>, Option<[u64; 2]>) {
    let resident = run.snapshot.as_ref().map(|snapshot| [snapshot.rss_bytes(), snapshot.huge_bytes()]);
    (&run.traps_by_region, resident)
}

/// How the touches of one more recording differ.
fn another_recording(subject: &Subject<'_>, folder: &Path) -> Result<Option<String>, ValidateError> {
    let Subject { recording, files, program } = subject;
    let again = program.record_again(&folder.join("again.hkm"))?;
    let placed = match relocated(recording, files, &again, &folder.join("again-placed.processes"))? {
        Ok(placed) => placed,
        Err(why) => return Ok(Some(why)),
    };
    let Some(theirs) = program.file_in(&again) else { return Ok(None) };
    let (ours, theirs) = (Family::open(&placed)?.touches()?, Family::open(&theirs.path)?.touches()?);
    let changed = ours.iter().filter(|(page, counts)| theirs.get(page) != Some(counts)).count();
    let added = theirs.keys().filter(|page| !ours.contains_key(page)).count();
    Ok((changed + added > 0).then(|| {
        format!(
            "the program does not repeat itself: another recording has other touches in {}",
            of((changed + added) as u64, "page")
        )
    }))
}
