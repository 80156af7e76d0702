//! The recording that a new one of the same name replaces: it is kept under another name, for one generation.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::claim::Claim;
use crate::error::OutputError;
use crate::planted::{folder_of, refuse_planted};

/// An earlier recording that was set aside. Without [`Earlier::keep`] it gets its name back: nothing replaced it.
#[derive(Debug)]
pub struct Earlier {
    /// The trace and the folder of other processes' traces, each with its new name.
    moved: Vec<(PathBuf, PathBuf)>,
    /// Directories of recordings to the same name whose recorder was killed.
    interrupted: Vec<PathBuf>,
    /// No other recording may write the output meanwhile.
    _claim: Option<Claim>,
}

impl Earlier {
    /// Renames the recording at `output` and its folder: `app.hkt.old`, `app.hkt.processes.old`. `is_recording` tells
    /// recordings from other files.
    ///
    /// # Errors
    /// Another recording writes the output now, the output is a link of another user, a file that would be lost is no
    /// recording, or the system refuses.
    pub fn set_aside(output: &Path, is_recording: fn(&Path) -> bool) -> Result<Earlier, OutputError> {
        refuse_planted(output)?;
        // The target of a symbolic link is the trace.
        let trace = fs::canonicalize(output).unwrap_or_else(|_| output.to_path_buf());
        let is_device = fs::metadata(&trace).is_ok_and(|metadata| !metadata.is_file());
        let claim = if is_device { None } else { Claim::new(&trace)? };
        let interrupted = if claim.is_some() { interrupted(&trace) } else { Vec::new() };
        let mut earlier = Earlier { moved: Vec::new(), interrupted, _claim: claim };
        let has_events = fs::metadata(&trace).is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0);
        let folder = hksim_recording_files::folder(&trace);
        for path in [Some(trace).filter(|_| has_events), Some(folder).filter(|folder| folder.is_dir())] {
            let Some(path) = path else { continue };
            let old = with_old(&path);
            remove(&old, is_recording)?;
            fs::rename(&path, &old).map_err(|why| io(&path, "rename", why))?;
            earlier.moved.push((path, old));
        }
        Ok(earlier)
    }

    /// Leaves the earlier recording under its new name, and returns notes about it, and about interrupted recordings to
    /// the same name.
    pub fn keep(mut self) -> Vec<String> {
        let moved = std::mem::take(&mut self.moved);
        let kept = moved.iter().map(|(path, old)| format!("the earlier {} is now {}", path.display(), old.display()));
        let interrupted = self.interrupted.iter().map(|directory| {
            let directory = directory.display();
            format!("{directory} is an interrupted recording; `hksim record --recover {directory}` writes it")
        });
        kept.chain(interrupted).collect()
    }
}

impl Drop for Earlier {
    fn drop(&mut self) {
        for (path, old) in self.moved.iter().filter(|(path, _)| !path.exists()) {
            // On an error the recording still has its new name.
            let _ = fs::rename(old, path);
        }
    }
}

/// The directories that killed recorders of this user left next to an output. The caller has claimed the output, so no
/// other recorder to it runs.
fn interrupted(output: &Path) -> Vec<PathBuf> {
    let Some(name) = output.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let prefix = format!(".{name}.recording-");
    let is_left = |entry: &fs::DirEntry| {
        let own = entry.metadata().is_ok_and(|data| data.is_dir() && data.uid() == rustix::process::geteuid().as_raw());
        own && entry.file_name().to_str().is_some_and(|name| name.starts_with(&prefix))
    };
    let entries = fs::read_dir(folder_of(output)).into_iter().flatten().flatten();
    let mut left: Vec<PathBuf> = entries.filter(is_left).map(|entry| entry.path()).collect();
    left.sort();
    left
}

fn with_old(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(".old");
    name.into()
}

/// Removes a recording, or a folder of recordings.
fn remove(old: &Path, is_recording: fn(&Path) -> bool) -> Result<(), OutputError> {
    let Ok(metadata) = fs::symlink_metadata(old) else { return Ok(()) };
    let has_contents = |path: &Path| fs::metadata(path).is_ok_and(|metadata| metadata.len() > 0);
    let is_other = |path: &Path| !path.is_file() || (has_contents(path) && !is_recording(path));
    let cannot = |why| io(old, "remove", why);
    let other = match metadata.is_dir() {
        true => {
            let entries = fs::read_dir(old).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(cannot)?;
            entries.into_iter().map(|entry| entry.path()).find(|path| is_other(path))
        }
        false => Some(old.to_path_buf()).filter(|path| is_other(path)),
    };
    if let Some(other) = other {
        return Err(OutputError::NoRecording { path: other });
    }
    if metadata.is_dir() { fs::remove_dir_all(old) } else { fs::remove_file(old) }.map_err(cannot)
}

fn io(path: &Path, action: &'static str, source: std::io::Error) -> OutputError {
    OutputError::Io { path: path.to_path_buf(), action, source }
}
