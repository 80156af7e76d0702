//! Bundles: a folder with results and everything that repeats them.
//!
//! ```text
//! FOLDER/README.md      what it holds, and how to repeat it
//! FOLDER/bundle.json    the [`Manifest`]
//! FOLDER/results/       the JSON results, as they were given
//! FOLDER/inputs/        their traces
//! FOLDER/figures/       every figure as SVG, and its data as CSV
//! FOLDER/report.html    the report of all results
//! ```
//!
//! [`predictions`] finds predictions in results; [`inputs`] finds their traces; [`data`] is the data of the figures;
//! [`mod@write`] creates the folder; [`repeat`] makes the predictions again and compares them.

mod data;
mod inputs;
mod predictions;
pub mod repeat;
pub mod write;

use std::path::Path;

use anyhow::{Context, Result, bail};
use hksim_replay::Environment;
use hksim_sim::report::{SCHEMA, VERSION};
use serde::{Deserialize, Serialize};

/// The file that describes a bundle.
pub const MANIFEST: &str = "bundle.json";
pub const RESULTS: &str = "results";
pub const INPUTS: &str = "inputs";
pub const FIGURES: &str = "figures";
pub const REPORT: &str = "report.html";

/// What a bundle holds.
#[derive(Debug, Serialize, Deserialize)]
pub struct Manifest {
    pub schema: u32,
    /// The version that wrote the bundle.
    pub hksim_version: String,
    /// The machine where the bundle was written.
    pub environment: Environment,
    pub results: Vec<ResultFile>,
    pub inputs: Vec<InputFile>,
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

/// A trace in a bundle.
#[derive(Debug, Serialize, Deserialize)]
pub struct InputFile {
    /// Its file in the bundle.
    pub file: String,
    /// Its name in the results.
    pub name: String,
    /// Its checksum in the results.
    pub checksum: String,
    pub bytes: u64,
}

impl Manifest {
    fn new(results: Vec<ResultFile>, inputs: Vec<InputFile>) -> Manifest {
        Manifest { schema: SCHEMA, hksim_version: VERSION.into(), environment: Environment::read(), results, inputs }
    }

    /// The manifest of a bundle.
    ///
    /// # Errors
    /// The folder is not a bundle, or another version of hksim wrote it.
    pub fn read(folder: &Path) -> Result<Manifest> {
        let path = folder.join(MANIFEST);
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("{}: not a bundle; `hksim bundle` writes one", path.display()))?;
        let manifest: Manifest =
            serde_json::from_str(&text).with_context(|| format!("{}: not a bundle", path.display()))?;
        if manifest.hksim_version != VERSION {
            bail!(
                "{}: written by hksim {}, and this is hksim {VERSION}; repeat it with that version",
                path.display(),
                manifest.hksim_version
            );
        }
        Ok(manifest)
    }
}
