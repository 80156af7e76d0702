//! The traces of predictions: found by the name in the result, recognised by their checksum.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hksim_sim::report::TraceLabel;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

use super::{INPUTS, InputFile};

/// The traces so far, by name and checksum.
#[derive(Default)]
pub struct Inputs {
    found: BTreeMap<(String, String), Found>,
}

struct Found {
    source: PathBuf,
    file: String,
}

impl Inputs {
    /// Finds the trace of a prediction in a result. Built-in workloads have no file.
    ///
    /// # Errors
    /// The trace is not found, or it is not the one that the prediction was made with.
    pub fn find(&mut self, label: &TraceLabel, result: &Path) -> Result<()> {
        let Some(name) = &label.file else { return Ok(()) };
        let checksum = label.checksum.clone().unwrap_or_default();
        let key = (name.clone(), checksum.clone());
        if self.found.contains_key(&key) {
            return Ok(());
        }
        let source = existing(name, result)?;
        let here = checksum_of(&source)?;
        if here != checksum {
            bail!(
                "{}: has checksum {here}, but {} was made with {checksum}: the trace changed; make the result again",
                source.display(),
                result.display()
            );
        }
        let base = source.file_name().map(|base| base.to_string_lossy().into_owned()).unwrap_or_default();
        let is_taken = self.found.values().any(|found| found.file == format!("{INPUTS}/{base}"));
        let file = if is_taken { format!("{INPUTS}/{checksum}-{base}") } else { format!("{INPUTS}/{base}") };
        self.found.insert(key, Found { source, file });
        Ok(())
    }

    /// Copies the traces into a folder.
    ///
    /// # Errors
    /// A file cannot be copied.
    pub fn copy(self, folder: &Path) -> Result<Vec<InputFile>> {
        let copy = |((name, checksum), found): ((String, String), Found)| -> Result<InputFile> {
            let target = folder.join(&found.file);
            let bytes = fs::copy(&found.source, &target)
                .with_context(|| format!("{}: cannot copy to {}", found.source.display(), target.display()))?;
            Ok(InputFile { file: found.file, name, checksum, bytes })
        };
        self.found.into_iter().map(copy).collect()
    }
}

/// The file of this name: from here, or beside the result.
fn existing(name: &str, result: &Path) -> Result<PathBuf> {
    let beside = result.parent().map(|folder| folder.join(name));
    let known = [Some(PathBuf::from(name)), beside].into_iter().flatten().find(|path| path.is_file());
    known.with_context(|| {
        format!(
            "{}: its trace {name} is neither here nor beside it; run this where the result was made",
            result.display()
        )
    })
}

/// The checksum of a trace, as results state it.
///
/// # Errors
/// The file is not a trace.
pub fn checksum_of(path: &Path) -> Result<String> {
    Ok(TraceReader::open(path)?.checksum().map(|crc| format!("{crc:08x}")).unwrap_or_default())
}
