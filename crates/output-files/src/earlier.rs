//! The recording that a new one of the same name replaces: it is kept under another name, for one generation.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::claim::Claim;
use crate::error::OutputError;
use crate::planted::{folder_of, refuse_planted};

/// Random digits in the name of a trace that is not finished (`hksim-record`).
const UNFINISHED_DIGITS: usize = 16;

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
        if claim.is_some() {
            remove_unfinished(&trace);
        }
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
    left(output, |data, rest| data.is_dir() && rest.starts_with("recording-"))
}

/// Removes traces that killed recorders of this user had not finished, `.app.hkt.0123456789abcdef`: they cannot be recovered. The
/// caller has claimed the output.
fn remove_unfinished(output: &Path) {
    let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    let is_random = |rest: &str| rest.len() == UNFINISHED_DIGITS && rest.bytes().all(is_digit);
    // What cannot be removed does no harm.
    left(output, |data, rest| data.is_file() && is_random(rest)).iter().for_each(|path| drop(fs::remove_file(path)));
}

/// Own files and directories next to an output whose names are `.app.hkt.` and a rest, in order.
fn left(output: &Path, is_wanted: impl Fn(&fs::Metadata, &str) -> bool) -> Vec<PathBuf> {
    let Some(name) = output.file_name().and_then(|name| name.to_str()) else { return Vec::new() };
    let prefix = format!(".{name}.");
    let is_left = |entry: &fs::DirEntry| {
        let data = entry.metadata().ok().filter(|data| data.uid() == rustix::process::geteuid().as_raw());
        let name = entry.file_name();
        let rest = name.to_str().and_then(|name| name.strip_prefix(&prefix));
        data.zip(rest).is_some_and(|(data, rest)| is_wanted(&data, rest))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unfinished_traces_of_killed_recorders_are_removed_and_interrupted_ones_named() {
        let folder = tempfile::tempdir().expect("a folder");
        let output = folder.path().join("a.hkt");
        let kept = [".a.hkt.0123456789abcdeg", ".a.hkt.0123456789abcde", ".b.hkt.0123456789abcdef", ".a.hkt.part"];
        for name in kept.iter().chain(&[".a.hkt.0123456789abcdef"]) {
            fs::write(folder.path().join(name), "").expect("a file");
        }
        fs::create_dir(folder.path().join(".a.hkt.recording-x")).expect("a folder");
        let notes = Earlier::set_aside(&output, |_| true).expect("nothing is in the way").keep();
        assert!(notes.len() == 1 && notes[0].contains(".a.hkt.recording-x is an interrupted recording"), "{notes:?}");
        let entries = fs::read_dir(folder.path()).expect("the folder").flatten().map(|entry| entry.file_name());
        let left: std::collections::BTreeSet<_> = entries.filter_map(|name| name.into_string().ok()).collect();
        let expected = kept.into_iter().chain([".a.hkt.recording-x"]).map(str::to_string).collect();
        assert_eq!(left, expected);
    }
}
