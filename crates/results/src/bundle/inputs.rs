//! The files that results were made from: found by their names in the result, recognised by their checksums.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use hksim_cost_model::Profile;
use hksim_policy::Policy;
use hksim_trace::hkt::{self, TraceReader};
use hksim_trace::named_file;
use hksim_trace::source::EventSource;

use super::{INPUTS, InputFile};
use crate::error::ResultError;
use crate::policy_file;

/// The files so far, by name and checksum.
#[derive(Default)]
pub struct Inputs {
    found: BTreeMap<(String, String), Found>,
}

struct Found {
    source: PathBuf,
    file: String,
}

impl Inputs {
    /// Finds a file that a result was made from. `stated` is its checksum in the result, if it states one.
    ///
    /// # Errors
    /// The file is not found, or is not the one that the result was made from.
    pub fn find(&mut self, name: &str, stated: Option<&str>, result: &Path) -> Result<(), ResultError> {
        let source = existing(name, result)?;
        let here = checksum_of(&source)?;
        if let Some(stated) = stated.filter(|stated| *stated != here) {
            return Err(ResultError::file(format!(
                "{}: has checksum {here}, but {} was made with {stated}: the trace changed; make the result again",
                source.display(),
                result.display()
            )));
        }
        let key = (name.to_string(), here.clone());
        if self.found.contains_key(&key) {
            return Ok(());
        }
        let base = source.file_name().map(|base| base.to_string_lossy().into_owned()).unwrap_or_default();
        let is_taken = self.found.values().any(|found| found.file == format!("{INPUTS}/{base}"));
        // Its own name stays: results and answers contain it.
        let file = if is_taken { format!("{INPUTS}/{here}/{base}") } else { format!("{INPUTS}/{base}") };
        self.found.insert(key, Found { source, file });
        Ok(())
    }

    /// Copies the files into a folder.
    ///
    /// # Errors
    /// A file cannot be copied.
    pub fn copy(self, folder: &Path) -> Result<Vec<InputFile>, ResultError> {
        let copy = |((name, checksum), found): ((String, String), Found)| -> Result<InputFile, ResultError> {
            let target = folder.join(&found.file);
            let place = target.parent().unwrap_or(folder);
            let cannot = |why| ResultError::file_by(format!("{}: cannot create", place.display()), why);
            fs::create_dir_all(place).map_err(cannot)?;
            let bytes = fs::copy(&found.source, &target).map_err(|why| {
                let (source, target) = (found.source.display(), target.display());
                ResultError::file_by(format!("{source}: cannot copy to {target}"), why)
            })?;
            Ok(InputFile { file: found.file, name, checksum, bytes })
        };
        self.found.into_iter().map(copy).collect()
    }
}

/// The file of this name: from here, or beside the result.
fn existing(name: &str, result: &Path) -> Result<PathBuf, ResultError> {
    let beside = result.parent().map(|folder| folder.join(name));
    let known = [Some(PathBuf::from(name)), beside].into_iter().flatten().find(|path| path.is_file());
    let known = known.ok_or_else(|| {
        ResultError::file(format!(
            "{}: its input {name} is neither here nor beside it; run this where the result was made",
            result.display()
        ))
    })?;
    if !is_input(&known) {
        return Err(ResultError::file(format!(
            "{}: its input {name} is no trace, recording, profile or policy, so it is not copied: the result names a wrong file",
            result.display()
        )));
    }
    Ok(known)
}

/// Whether a file begins like an `.hkt` trace or like a memory recording.
fn is_trace(path: &Path) -> bool {
    named_file::begins_with(path, &hkt::MAGIC) || named_file::begins_with(path, &hksim_memory_trace::MAGIC)
}

/// Whether a result can be made from a file. A result of somebody else may name any file, which must not get into a
/// folder that is shared.
fn is_input(path: &Path) -> bool {
    is_trace(path) || Profile::read(path).is_ok() || policy_file::read(path, &Policy::DEFAULT).is_ok()
}

/// The checksum of a trace, as results state it; of another file, that of its bytes.
///
/// # Errors
/// The file cannot be read.
pub fn checksum_of(path: &Path) -> Result<String, ResultError> {
    match TraceReader::open(path) {
        Ok(trace) => Ok(trace.checksum().map(|crc| format!("{crc:08x}")).unwrap_or_default()),
        Err(_) => checksum_of_bytes(path),
    }
}

/// The CRC-32 of a file.
///
/// # Errors
/// The file cannot be read.
pub fn checksum_of_bytes(path: &Path) -> Result<String, ResultError> {
    let cannot = |why| ResultError::file_by(format!("{}: cannot read", path.display()), why);
    let crc = named_file::crc32(path).map_err(cannot)?;
    Ok(format!("{crc:08x}"))
}
