//! What a bundle holds: a folder with results and everything that repeats them.
//!
//! ```text
//! FOLDER/README.md      what it holds, and how to repeat it
//! FOLDER/bundle.json    the [`Manifest`]
//! FOLDER/results/       the JSON results, as they were given
//! FOLDER/inputs/        the files that they were made from
//! FOLDER/figures/       every figure as SVG, and its data as CSV
//! FOLDER/report.html    the report of all results
//! ```
//!
//! [`inputs`] finds the files that results were made from; [`repeated`] compares results that were made again.

pub mod inputs;
pub mod repeated;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use hksim_replay::Environment;
use hksim_sim::report::{SCHEMA, version};
use hksim_trace::named_file;
use serde::{Deserialize, Serialize};

use crate::error::ResultError;
use crate::stamp::Stamp;

/// The file that describes a bundle.
pub const MANIFEST: &str = "bundle.json";
/// The folder of results.
pub const RESULTS: &str = "results";
/// The folder of inputs.
pub const INPUTS: &str = "inputs";
/// The folder of figures.
pub const FIGURES: &str = "figures";
/// The report of all results.
pub const REPORT: &str = "report.html";

/// What a bundle holds.
#[derive(Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// The schema.
    pub schema: u32,
    /// The version that wrote the bundle.
    pub hksim_version: String,
    /// The machine where the bundle was written.
    pub environment: Environment,
    /// The results.
    pub results: Vec<ResultFile>,
    /// The files that they were made from.
    pub inputs: Vec<InputFile>,
    /// The CRC-32 of every file but the manifest, by its place in the bundle.
    pub checksums: BTreeMap<String, String>,
}

/// A result in a bundle.
#[derive(Debug, Serialize, Deserialize)]
pub struct ResultFile {
    /// Its file in the bundle.
    pub file: String,
    /// Number of its predictions.
    pub predictions: usize,
    /// Number of its measurements, which only the machine that made them can repeat.
    pub measurements: usize,
}

/// A file that a result was made from.
#[derive(Debug, Serialize, Deserialize)]
pub struct InputFile {
    /// Its file in the bundle.
    pub file: String,
    /// Its name in the results.
    pub name: String,
    /// Its checksum in the results.
    pub checksum: String,
    /// Its size.
    pub bytes: u64,
}

impl Manifest {
    /// The manifest of files, with this machine.
    pub fn new(results: Vec<ResultFile>, inputs: Vec<InputFile>, checksums: BTreeMap<String, String>) -> Manifest {
        let environment = Environment::read();
        Manifest { schema: SCHEMA, hksim_version: version().into(), environment, results, inputs, checksums }
    }

    /// The manifest of a bundle.
    ///
    /// # Errors
    /// The folder is not a bundle, names files outside it, or was written by another version of hksim.
    pub fn read(folder: &Path) -> Result<Manifest, ResultError> {
        let path = folder.join(MANIFEST);
        let name = path.display();
        let text = named_file::inside(folder, MANIFEST)
            .and_then(|path| named_file::read_regular(&path))
            .map_err(|why| ResultError::file_by(format!("{name}: not a bundle; `hksim bundle` writes one"), why))?;
        let not_a_bundle = |why: serde_json::Error| ResultError::file_by(format!("{name}: not a bundle"), why);
        let stamp: Stamp = serde_json::from_slice(&text).map_err(not_a_bundle)?;
        if (stamp.schema, &*stamp.hksim_version) != (SCHEMA, version()) {
            return Err(ResultError::file(format!(
                "{name}: written by hksim {} (schema {}), and this is hksim {} (schema {SCHEMA}); repeat it with \
                 that version",
                stamp.hksim_version,
                stamp.schema,
                version()
            )));
        }
        let manifest: Manifest = serde_json::from_slice(&text).map_err(not_a_bundle)?;
        if manifest.results.is_empty() {
            return Err(ResultError::file(format!("{name}: lists no results; the bundle is damaged")));
        }
        let results = manifest.results.iter().map(|result| &result.file);
        let inputs = manifest.inputs.iter().map(|input| &input.file);
        let mut files = results.chain(inputs).chain(manifest.checksums.keys());
        if let Some(outside) = files.find(|file| !named_file::is_plain(file)) {
            return Err(ResultError::file(format!(
                "{name}: names {outside}, which is not in the bundle's folder; the bundle is damaged"
            )));
        }
        Ok(manifest)
    }

    /// Files that are missing, or not as they were when the bundle was written.
    pub fn changed(&self, folder: &Path) -> Vec<String> {
        let is_same = |file: &str, checksum: &str| {
            let path = named_file::inside(folder, file).ok();
            path.is_some_and(|path| inputs::checksum_of_bytes(&path).is_ok_and(|here| here == checksum))
        };
        let all = self.checksums.iter();
        all.filter(|(file, checksum)| !is_same(file, checksum)).map(|(file, _)| file.clone()).collect()
    }

    /// The place in the bundle of a file that a result names, with the checksum that the result states if it does. The
    /// file is as it was when the bundle was written.
    ///
    /// # Errors
    /// The bundle does not have it, or the file is damaged.
    pub fn input(&self, folder: &Path, name: &str, stated: Option<&str>) -> Result<PathBuf, ResultError> {
        let is_it = |input: &&InputFile| input.name == name && stated.is_none_or(|stated| input.checksum == stated);
        let input = self.inputs.iter().find(is_it);
        let input = input.ok_or_else(|| ResultError::file(format!("{name}: the bundle does not have this input")))?;
        let path = inside(folder, &input.file)?;
        let (here, stated) = (inputs::checksum_of(&path)?, &input.checksum);
        if here != *stated {
            return Err(ResultError::file(format!(
                "{}: has checksum {here} instead of {stated}: the file is damaged",
                path.display()
            )));
        }
        Ok(path)
    }
}

/// The path of a file in a bundle.
///
/// # Errors
/// It leads out of the folder, or is no file.
pub fn inside(folder: &Path, file: &str) -> Result<PathBuf, ResultError> {
    let damaged =
        || format!("{}: not a file in the bundle's folder; the bundle is damaged", folder.join(file).display());
    named_file::inside(folder, file).map_err(|why| ResultError::file_by(damaged(), why))
}
