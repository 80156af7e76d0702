//! Names the files of a recording whose recorder was killed.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hksim_memory_trace::{End, Header, Reader};

use crate::error::MemoryRecordError;
use crate::files::{DIRECTORY_INFIX, EXTENSION, Finished, lock_now, move_to_names};
use crate::recorder::{RecordedFile, RecordingReport, recorded_file};
use crate::snapshot::Snapshots;

/// Whether a directory has the files of an interrupted memory recording.
pub fn is_interrupted(directory: &Path) -> bool {
    files_in(directory).is_ok_and(|files| !files.is_empty())
}

/// Gives the files of an interrupted recording the names that the recorder would have given them; for the program's own
/// file, that is `output` if it is given. Each file ends with the last part that was written.
///
/// # Errors
/// The directory belongs to another user, its recorder still runs, it has no readable file, or a file cannot be moved.
pub fn recover(directory: &Path, output: Option<&Path>) -> Result<RecordingReport, MemoryRecordError> {
    let refused = |why: &str| MemoryRecordError::io(directory, "recover", io::Error::other(why.to_string()));
    let _lock = own_directory(directory)?;
    let paths = files_in(directory).map_err(|why| MemoryRecordError::io(directory, "read", why))?;
    // A file without a whole header has nothing to keep.
    let found: Vec<(Finished, Header, u64)> = paths.iter().filter_map(|path| read(path)).collect();
    let Some((_, header, _)) = found.first() else {
        return Err(refused("no file in it has a whole header, so nothing was recorded; remove it"));
    };
    let (root_pid, visibility) = (root_pid(header), header.visibility);
    let output = match output {
        Some(output) => output.to_path_buf(),
        None => output_of(directory).ok_or_else(|| refused("its name does not contain that of the output; use -o"))?,
    };
    let elapsed_ns = found.iter().map(|(.., last_ns)| *last_ns).max().unwrap_or_default();
    let files = found.into_iter().map(|(file, ..)| file).collect();
    paths
        .iter()
        .filter(|path| is_just_begun(path))
        .try_for_each(|path| fs::remove_file(path).map_err(|why| MemoryRecordError::io(path, "remove", why)))?;
    let files = move_to_names(files, root_pid, &output, directory)?;
    let files: Vec<RecordedFile> = files.into_iter().map(recorded_file).collect();
    Ok(RecordingReport {
        files,
        is_recovered: true,
        exit_code: None,
        exit_signal: None,
        visibility,
        lost_events: 0,
        stacks_incomplete: None,
        left_out: Vec::new(),
        programs_32_bit: Vec::new(),
        minor_faults: None,
        faults_unseen: None,
        resident_bytes_peak: None,
        start_ns: None,
        elapsed_s: elapsed_ns as f64 / 1e9,
        snapshots: Snapshots::new(),
        traced: None,
    })
}

/// Opens and locks the directory of a recording.
fn own_directory(directory: &Path) -> Result<File, MemoryRecordError> {
    let failed = |why| MemoryRecordError::io(directory, "recover", why);
    let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let open = OpenOptions::new().read(true).custom_flags(flags).open(directory).map_err(failed)?;
    // SAFETY: has no precondition.
    let user = unsafe { libc::geteuid() };
    if open.metadata().map_err(failed)?.uid() != user {
        return Err(failed(io::Error::other("it belongs to another user, who can recover it")));
    }
    if !lock_now(&open) {
        return Err(failed(io::Error::other("its recorder still runs")));
    }
    Ok(open)
}

/// The files in a directory, sorted by process and address space.
fn files_in(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        files.extend(ids_of(&path).map(|ids| (ids, path)));
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// Whether a file was created, and the recorder was killed before it wrote the header.
fn is_just_begun(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|file| file.len() == 0)
}

/// Process and address space in the name of a file, `PID-IMAGE.hkm`.
fn ids_of(path: &Path) -> Option<(u32, u32)> {
    let name = path.file_name()?.to_str()?;
    let (pid, image) = name.strip_suffix(EXTENSION)?.strip_suffix('.')?.split_once('-')?;
    Some((pid.parse().ok()?, image.parse().ok()?))
}

/// What a file contains, its header, and the time of its last event. `None` if it has no whole header.
fn read(path: &Path) -> Option<(Finished, Header, u64)> {
    let (mut reader, mut events, mut last_ns) = (Reader::open(path).ok()?, Vec::new(), 0);
    // An incomplete chunk is the end.
    while let Ok(true) = reader.next_chunk(&mut events) {
        last_ns = events.last().map_or(last_ns, |event| event.time_ns);
    }
    let Header { command, pid, image, beginning, .. } = reader.header().clone();
    let end = reader.footer().map_or(End::Running, |footer| footer.end);
    let events = reader.events_total();
    let file = Finished { path: path.to_path_buf(), command, pid, image, beginning, end, events };
    Some((file, reader.header().clone(), last_ns))
}

/// The process that was started: its id ends the run's id.
fn root_pid(header: &Header) -> u32 {
    header.run_id.rsplit('-').next().and_then(|pid| pid.parse().ok()).unwrap_or(header.pid)
}

/// The output of the recording in a directory: `app.hkm` next to `.app.hkm.recording-XXXXXX`.
fn output_of(directory: &Path) -> Option<PathBuf> {
    let directory = directory.canonicalize().ok()?;
    let (name, _) = directory.file_name()?.to_str()?.strip_prefix('.')?.rsplit_once(DIRECTORY_INFIX)?;
    (!name.is_empty()).then(|| directory.with_file_name(name))
}
