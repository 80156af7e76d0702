//! The recording that a new one of the same name replaces: it is kept under another name, for one generation.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::claim::Claim;
use super::unfinished::folder_of;
use super::{Format, file, note};

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
    /// Renames the recording at `output` and its folder: `app.hkt.old`, `app.hkt.processes.old`.
    ///
    /// # Errors
    /// Another recording writes the output now, the output is a link of another user, a file that would be lost is no
    /// recording, or the system refuses.
    pub fn set_aside(output: &Path) -> Result<Earlier> {
        file::refuse_planted(output)?;
        file::refuse_other(output)?;
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
            remove(&old)?;
            fs::rename(&path, &old).with_context(|| format!("{}: cannot rename", path.display()))?;
            earlier.moved.push((path, old));
        }
        Ok(earlier)
    }

    /// Leaves the earlier recording under its new name, and says so beside a report for people: other reports are all
    /// that standard error has.
    pub fn keep(mut self, report: Format) {
        for (path, old) in std::mem::take(&mut self.moved).into_iter().filter(|_| report == Format::Table) {
            note(&format!("the earlier {} is now {}", path.display(), old.display()));
        }
        for directory in self.interrupted.iter().filter(|_| report == Format::Table) {
            let directory = directory.display();
            note(&format!("{directory} is an interrupted recording; `hksim record --recover {directory}` writes it"));
        }
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
fn remove(old: &Path) -> Result<()> {
    let Ok(metadata) = fs::symlink_metadata(old) else { return Ok(()) };
    let is_other = |path: &Path| !path.is_file() || file::refuse_other(path).is_err();
    let cannot = || format!("{}: cannot remove", old.display());
    let other = match metadata.is_dir() {
        true => {
            let entries =
                fs::read_dir(old).with_context(cannot)?.collect::<Result<Vec<_>, _>>().with_context(cannot)?;
            entries.into_iter().map(|entry| entry.path()).find(|path| is_other(path))
        }
        false => Some(old.to_path_buf()).filter(|path| is_other(path)),
    };
    if let Some(other) = other {
        bail!("{}: is no trace, and the earlier recording would replace it; move it away", other.display());
    }
    if metadata.is_dir() { fs::remove_dir_all(old) } else { fs::remove_file(old) }.with_context(cannot)
}
