//! Files that are either written whole or not at all.

use std::ffi::OsString;
use std::fs;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hksim_trace::error::TraceError;
use hksim_trace::hkt::MAGIC;

/// A file being made under another name; it takes its own by [`Staged::keep`], and vanishes without.
#[derive(Debug)]
pub struct Staged {
    wanted: PathBuf,
    /// Where it is written: `wanted` itself where that is a device or a pipe.
    path: PathBuf,
}

impl Staged {
    /// Prepares a file. What stands at `wanted` stays until [`Staged::keep`].
    ///
    /// # Errors
    /// `wanted` is a directory, or its directory is not there.
    pub fn new(wanted: &Path) -> Result<Staged> {
        refuse_standard_output(wanted)?;
        let metadata = fs::metadata(wanted);
        if metadata.as_ref().is_ok_and(fs::Metadata::is_dir) {
            bail!("{}: is a directory; name a file", wanted.display());
        }
        if metadata.as_ref().is_ok_and(|metadata| !metadata.is_file()) {
            return Ok(Staged { wanted: wanted.to_path_buf(), path: wanted.to_path_buf() });
        }
        // A link stays a link: what it names is replaced.
        let target = if metadata.is_ok() { fs::canonicalize(wanted) } else { Ok(wanted.to_path_buf()) };
        let target = target.with_context(|| format!("{}: cannot write", wanted.display()))?;
        let Some(name) = target.file_name() else { bail!("{}: names no file", wanted.display()) };
        let mut staged: OsString = ".".into();
        staged.push(name);
        staged.push(format!(".{}.part", std::process::id()));
        let path = target.with_file_name(staged);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        if !folder.is_dir() {
            bail!("{}: there is no directory {}; make it first", wanted.display(), folder.display());
        }
        Ok(Staged { wanted: target, path })
    }

    /// Prepares the file of a result, which never replaces a trace: such a name was meant as the input.
    ///
    /// # Errors
    /// Those of [`Staged::new`]; a trace stands at `wanted`.
    pub fn result(wanted: &Path) -> Result<Staged> {
        let staged = Staged::new(wanted)?;
        if fs::metadata(wanted).is_ok_and(|metadata| metadata.is_file()) && is_trace(wanted) {
            bail!("{}: is a trace, which a result must not replace; write to another file", wanted.display());
        }
        Ok(staged)
    }

    /// Makes sure that it can be written, for work that takes long before it does. What stands there stays.
    ///
    /// # Errors
    /// The system refuses.
    fn probe(self) -> Result<()> {
        if self.path != self.wanted {
            fs::File::create(&self.path).with_context(|| format!("{}: cannot write", self.wanted.display()))?;
        }
        Ok(())
    }

    /// Where to write.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// An error about this file, under the name that the user knows.
    pub fn rename_error(&self, why: TraceError) -> TraceError {
        match why {
            TraceError::Io { path, action, source } if path == self.path => {
                TraceError::Io { path: self.wanted.clone(), action, source }
            }
            why => why,
        }
    }

    /// Gives the file its name.
    ///
    /// # Errors
    /// The system refuses.
    pub fn keep(self) -> Result<()> {
        if self.path != self.wanted {
            fs::rename(&self.path, &self.wanted).with_context(|| format!("{}: cannot write", self.wanted.display()))?;
        }
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.path != self.wanted {
            // After `keep` there is nothing left to remove.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Whether a path stands for standard output (or input), as `-` does everywhere.
pub fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Refuses `-` where a file has to be: traces, pictures, profiles.
///
/// # Errors
/// It is `-`.
pub fn refuse_standard_output(wanted: &Path) -> Result<()> {
    if is_standard(wanted) {
        bail!("-: this is written to a file, not to standard output; name one (`./-` is a file called `-`)");
    }
    Ok(())
}

/// Makes sure that the file of a result can be written, before the work that makes the result.
///
/// # Errors
/// The system refuses, or a trace stands there.
pub fn check(wanted: &Path) -> Result<()> {
    Staged::result(wanted)?.probe()
}

/// Makes sure that no output is one of the inputs, or another output.
///
/// # Errors
/// Two of them are one file.
pub fn refuse_same(outputs: &[&Path], inputs: &[Option<&Path>]) -> Result<()> {
    for (n, output) in outputs.iter().enumerate() {
        let files = inputs.iter().flatten().copied().filter(|path| !is_standard(path));
        if let Some(other) = files.chain(outputs[..n].iter().copied()).find(|other| same_file(other, output)) {
            bail!("{}: this is {} too, which would be lost; write to another file", output.display(), other.display());
        }
    }
    Ok(())
}

/// Whether two paths are one file, which need not be there yet.
pub fn same_file(one: &Path, other: &Path) -> bool {
    one == other
        || matches!((fs::canonicalize(one), fs::canonicalize(other)), (Ok(one), Ok(other)) if one == other && one.is_file())
}

/// Makes sure that a trace can be written, before the work that makes it.
///
/// # Errors
/// The system refuses.
pub fn check_trace(wanted: &Path) -> Result<()> {
    Staged::new(wanted)?.probe()
}

/// Whether a file begins like an `.hkt` trace.
fn is_trace(path: &Path) -> bool {
    let mut magic = [0; MAGIC.len()];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok() && magic == MAGIC
}

/// Writes the whole file of a result.
///
/// # Errors
/// The system refuses, or a trace stands there; what stood there before is still there then.
pub fn write(wanted: &Path, bytes: &[u8]) -> Result<()> {
    let staged = Staged::result(wanted)?;
    let written = fs::File::create(staged.path()).and_then(|mut file| file.write_all(bytes));
    written.with_context(|| format!("{}: cannot write", wanted.display()))?;
    staged.keep()
}
