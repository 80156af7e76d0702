//! Gives a recording, and those of its relatives by fork, the addresses of a measured run.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use hksim_memory_sim::{Family, RunFile, RunFiles};
use hksim_memory_trace::{Beginning, CallMismatch, Header, Moves, ProcessId, relocate_forked};

use crate::error::ValidateError;

/// A process and the number of its address space.
type SpaceKey = (ProcessId, u32);

/// Writes the relocated recordings to `folder`, whose content is replaced. Returns the path of that of `recording`, or
/// why the measured run differs.
///
/// # Errors
/// A recording cannot be read or written.
pub(crate) fn relocated(
    recording: &RunFile,
    files: &RunFiles,
    measured: &RunFiles,
    folder: &Path,
) -> Result<Result<PathBuf, String>, ValidateError> {
    let cannot = |what| move |source| ValidateError::Folder { path: folder.to_path_buf(), what, source };
    if folder.exists() {
        fs::remove_dir_all(folder).map_err(cannot("remove"))?;
    }
    fs::create_dir_all(folder).map_err(cannot("create"))?;
    let family = Family::open(&recording.path)?;
    let mut waiting: Vec<(&Path, &Header)> = family.recordings().collect();
    // Where the mappings of a parent were when it forked a child.
    let mut forks: HashMap<SpaceKey, BTreeMap<ProcessId, Moves>> = HashMap::new();
    while let Some(next) = waiting.iter().position(|(_, header)| inherited(header, &forks).is_some()) {
        let (path, header) = waiting.swap_remove(next);
        let moves = inherited(header, &forks).unwrap_or_default();
        let partner = files.place(header).and_then(|place| measured.at(&place));
        let Some(partner) = partner else {
            return Ok(Err(format!("the run had no process like {} of the recording", header.pid)));
        };
        let copied = relocate_forked(path, &partner.path, &target(folder, header), moves)?;
        if let Some(mismatch) = copied.stopped {
            return Ok(Err(words(&mismatch)));
        }
        forks.insert((header.pid, header.image), copied.forks);
    }
    Ok(Ok(target(folder, &recording.header)))
}

/// The mappings that a process began with; `None` while its parent is not relocated.
fn inherited(header: &Header, forks: &HashMap<SpaceKey, BTreeMap<ProcessId, Moves>>) -> Option<Moves> {
    match header.beginning {
        Beginning::Exec | Beginning::Attached { .. } => Some(Moves::default()),
        Beginning::Fork { parent_pid, parent_image } => {
            Some(forks.get(&(parent_pid, parent_image))?.get(&header.pid).cloned().unwrap_or_default())
        }
    }
}

fn target(folder: &Path, header: &Header) -> PathBuf {
    folder.join(format!("{}-{}.hkm", header.pid, header.image))
}

fn words(mismatch: &CallMismatch) -> String {
    let text = |call: &Option<String>| call.clone().unwrap_or_else(|| "no further call".to_string());
    format!(
        "the run made other calls than the recording: after {} equal mappings {} instead of {}",
        mismatch.mappings_equal,
        text(&mismatch.theirs),
        text(&mismatch.ours)
    )
}
