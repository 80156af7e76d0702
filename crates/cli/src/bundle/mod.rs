//! Bundles: a folder with results and everything that repeats them.
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
//! [`origin`] says how a result can be made again; [`predictions`] finds predictions in results; [`inputs`] finds the
//! files that results were made from; [`data`] is the data of the figures; [`mod@write`] creates the folder; [`repeat`]
//! makes the results again and compares them.

mod data;
mod inputs;
mod origin;
mod predictions;
pub mod repeat;
pub mod write;

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

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
    pub bytes: u64,
}

impl Manifest {
    fn new(results: Vec<ResultFile>, inputs: Vec<InputFile>, checksums: BTreeMap<String, String>) -> Manifest {
        let environment = Environment::read();
        Manifest { schema: SCHEMA, hksim_version: VERSION.into(), environment, results, inputs, checksums }
    }

    /// The manifest of a bundle.
    ///
    /// # Errors
    /// The folder is not a bundle, names files outside it, or was written by another version of hksim.
    pub fn read(folder: &Path) -> Result<Manifest> {
        let path = folder.join(MANIFEST);
        let name = path.display();
        let text = std::fs::read_to_string(&path)
            .with_context(|| format!("{name}: not a bundle; `hksim bundle` writes one"))?;
        let stamp: Stamp = serde_json::from_str(&text).with_context(|| format!("{name}: not a bundle"))?;
        if (stamp.schema, stamp.hksim_version.as_str()) != (SCHEMA, VERSION) {
            bail!(
                "{name}: written by hksim {} (schema {}), and this is hksim {VERSION} (schema {SCHEMA}); repeat it with \
                 that version",
                stamp.hksim_version,
                stamp.schema
            );
        }
        let manifest: Manifest = serde_json::from_str(&text).with_context(|| format!("{name}: not a bundle"))?;
        if manifest.results.is_empty() {
            bail!("{name}: lists no results; the bundle is damaged");
        }
        let results = manifest.results.iter().map(|result| &result.file);
        let inputs = manifest.inputs.iter().map(|input| &input.file);
        let mut files = results.chain(inputs).chain(manifest.checksums.keys());
        if let Some(outside) = files.find(|file| !is_inside(file)) {
            bail!("{name}: names {outside}, which is not in the bundle's folder; the bundle is damaged");
        }
        Ok(manifest)
    }

    /// Files that are missing, or not as they were when the bundle was written.
    pub fn changed(&self, folder: &Path) -> Vec<String> {
        let is_same = |file: &str, checksum: &str| {
            inputs::checksum_of_bytes(&folder.join(file)).is_ok_and(|here| here == checksum)
        };
        let all = self.checksums.iter();
        all.filter(|(file, checksum)| !is_same(file, checksum)).map(|(file, _)| file.clone()).collect()
    }

    /// The place in the bundle of a file that a result names.
    fn input(&self, folder: &Path, name: &str) -> Result<PathBuf> {
        let input = self.inputs.iter().find(|input| input.name == name);
        Ok(folder.join(&input.with_context(|| format!("{name}: the bundle does not have this input"))?.file))
    }
}

/// The version of a bundle.
#[derive(Deserialize)]
struct Stamp {
    schema: u32,
    hksim_version: String,
}

/// Whether a path stays in the folder that it starts from.
fn is_inside(path: &str) -> bool {
    !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)))
}
