//! Files that are written completely or not at all.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hksim_memory_trace::MemoryTraceError;
use hksim_trace::error::TraceError;
use hksim_trace::hkt::MAGIC;

use hksim_output_files::{Earlier, Unfinished, folder_of, refuse_planted};
use hksim_trace::named_file;

use super::{Format, note};

/// A file that is written under a temporary name. [`Staged::keep`] renames it; otherwise it is removed.
#[derive(Debug)]
pub struct Staged {
    wanted: PathBuf,
    /// The path to write to.
    path: PathBuf,
    /// `None` if `wanted` is a device or a pipe, which is written itself.
    unfinished: Option<Unfinished>,
}

impl Staged {
    /// Creates the temporary file. An existing file at `wanted` stays until [`Staged::keep`].
    ///
    /// # Errors
    /// `wanted` is a directory, its directory does not exist, or the system refuses.
    pub fn new(wanted: &Path) -> Result<Staged> {
        refuse_standard_output(wanted)?;
        refuse_planted(wanted)?;
        let metadata = fs::metadata(wanted);
        if metadata.as_ref().is_ok_and(fs::Metadata::is_dir) {
            bail!("{}: is a directory; name a file", wanted.display());
        }
        if metadata.as_ref().is_ok_and(|metadata| !metadata.is_file()) {
            return Ok(Staged { wanted: wanted.to_path_buf(), path: wanted.to_path_buf(), unfinished: None });
        }
        // A symbolic link stays; its target is replaced.
        let target = if metadata.is_ok() { fs::canonicalize(wanted) } else { Ok(wanted.to_path_buf()) };
        let target = target.with_context(|| format!("{}: cannot write", wanted.display()))?;
        if target.file_name().is_none() {
            bail!("{}: names no file", wanted.display());
        }
        let folder = folder_of(&target);
        if !folder.is_dir() {
            bail!("{}: there is no directory {}; create it first", wanted.display(), folder.display());
        }
        let unfinished = Unfinished::file(&target).with_context(|| format!("{}: cannot write", wanted.display()))?;
        Ok(Staged { wanted: target, path: unfinished.path_of_file(), unfinished: Some(unfinished) })
    }

    /// Prepares the file of a result. A result never replaces a trace: its name was probably meant as the input.
    ///
    /// # Errors
    /// Those of [`Staged::new`]; `wanted` is an existing trace.
    pub fn result(wanted: &Path) -> Result<Staged> {
        let staged = Staged::new(wanted)?;
        if fs::metadata(wanted).is_ok_and(|metadata| metadata.is_file()) && is_trace(wanted) {
            bail!("{}: is a trace, which a result must not replace; write to another file", wanted.display());
        }
        Ok(staged)
    }

    /// The path to write to.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same error, with the file name that the user gave.
    pub fn rename_error<E: WriteError>(&self, mut why: E) -> E {
        if let Some(path) = why.path().filter(|path| **path == self.path) {
            path.clone_from(&self.wanted);
        }
        why
    }

    /// Renames the file to its final name.
    ///
    /// # Errors
    /// The system refuses.
    pub fn keep(self) -> Result<()> {
        let kept = self.unfinished.map_or(Ok(()), |unfinished| unfinished.keep(&self.wanted));
        kept.with_context(|| format!("{}: cannot write", self.wanted.display()))
    }
}

/// Whether a path is `-`, which means standard output (or input).
pub fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Refuses `-` for outputs that must be files: traces, pictures, profiles.
///
/// # Errors
/// It is `-`.
pub fn refuse_standard_output(wanted: &Path) -> Result<()> {
    if is_standard(wanted) {
        bail!("-: this output must be a file, not standard output; name one (`./-` is a file called `-`)");
    }
    Ok(())
}

/// Checks that the file of a result can be written, before the work starts.
///
/// # Errors
/// The system refuses, or the file is an existing trace.
pub fn check(wanted: &Path) -> Result<()> {
    Staged::result(wanted).map(drop)
}

/// Checks that no output is also an input or another output.
///
/// # Errors
/// Two of them are the same file.
pub fn refuse_same(outputs: &[&Path], inputs: &[Option<&Path>]) -> Result<()> {
    for (n, output) in outputs.iter().enumerate() {
        let files = inputs.iter().flatten().copied().filter(|path| !is_standard(path));
        if let Some(other) = files.chain(outputs[..n].iter().copied()).find(|other| same_file(other, output)) {
            bail!("{}: this is also {}, which would be lost; write to another file", output.display(), other.display());
        }
    }
    Ok(())
}

/// Whether two paths name the same file, which need not exist yet.
pub fn same_file(one: &Path, other: &Path) -> bool {
    one == other
        || matches!((fs::canonicalize(one), fs::canonicalize(other)), (Ok(one), Ok(other)) if one == other && one.is_file())
}

/// Checks that a trace can be written, before the work starts.
///
/// # Errors
/// The system refuses.
pub fn check_trace(wanted: &Path) -> Result<()> {
    refuse_other(wanted)?;
    Staged::new(wanted).map(drop)
}

/// Refuses to replace a file by a trace, unless it is one itself or empty.
///
/// # Errors
/// It is another file.
pub fn refuse_other(wanted: &Path) -> Result<()> {
    let has_contents = fs::metadata(wanted).is_ok_and(|metadata| metadata.is_file() && metadata.len() > 0);
    if has_contents && !is_trace(wanted) {
        bail!("{}: is no trace, so a trace must not replace it; write to another file, or remove it", wanted.display());
    }
    Ok(())
}

/// Sets the recording aside that a new one will replace.
///
/// # Errors
/// The file is no recording, another recording writes it now, or the system refuses.
pub fn set_aside(output: &Path) -> Result<Earlier> {
    refuse_planted(output)?;
    refuse_other(output)?;
    Ok(Earlier::set_aside(output, is_trace)?)
}

/// Leaves the earlier recording under its new name, and says so beside a report for people: other reports are all that
/// standard error has.
pub fn keep_earlier(earlier: Earlier, report: Format) {
    earlier.keep().iter().filter(|_| report == Format::Table).for_each(|line| note(line));
}

/// Refuses to replace a file that is probably a result.
///
/// # Errors
/// The file begins like JSON.
pub fn refuse_json(wanted: &Path) -> Result<()> {
    if named_file::begins_with(wanted, b"{") {
        bail!(
            "{}: is JSON, probably a result, which this output would replace; write to another file",
            wanted.display()
        );
    }
    Ok(())
}

/// Whether a file begins like an `.hkt` trace or like a memory recording.
pub fn is_trace(path: &Path) -> bool {
    named_file::begins_with(path, &MAGIC) || is_recording(path)
}

/// Whether a file is a memory recording.
pub fn is_recording(path: &Path) -> bool {
    named_file::begins_with(path, &hksim_memory_trace::MAGIC)
}

/// An error of writing a trace or a memory recording.
pub trait WriteError: std::error::Error + Send + Sync + 'static {
    /// The file, if the system refused an operation on it.
    fn path(&mut self) -> Option<&mut PathBuf>;
}

impl WriteError for TraceError {
    fn path(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::Io { path, .. } => Some(path),
            _ => None,
        }
    }
}

impl WriteError for MemoryTraceError {
    fn path(&mut self) -> Option<&mut PathBuf> {
        match self {
            Self::Io { path, .. } => Some(path),
            _ => None,
        }
    }
}

/// Writes the file of a result.
///
/// # Errors
/// The system refuses, or the file is an existing trace. The existing file is then unchanged.
pub fn write(wanted: &Path, bytes: &[u8]) -> Result<()> {
    let staged = Staged::result(wanted)?;
    let written = fs::File::create(staged.path()).and_then(|mut file| file.write_all(bytes));
    written.with_context(|| format!("{}: cannot write", wanted.display()))?;
    staged.keep()
}
