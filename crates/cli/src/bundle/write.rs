//! Writes a bundle.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hksim_explore::table::Table;
use hksim_sim::report::VERSION;
use serde_json::Value;

use super::inputs::Inputs;
use super::{FIGURES, INPUTS, MANIFEST, Manifest, REPORT, RESULTS, ResultFile, data, predictions};
use crate::chart::{Figure, Medium, Subject};
use crate::commands::read_result;
use crate::output::{file, units};
use crate::report::{self, Input};

/// A result to bundle.
struct Source {
    path: PathBuf,
    /// Its name in the bundle, without the ending.
    name: String,
    result: Value,
}

/// Writes results with their traces, figures and report into a new folder. If that fails, nothing is left.
///
/// # Errors
/// A result has no prediction, a trace is missing or changed, or the folder cannot be written.
pub fn write(results: &[PathBuf], folder: &Path) -> Result<Manifest> {
    if folder.exists() {
        bail!("{}: exists already; name a new folder", folder.display());
    }
    let sources = sources(results)?;
    let mut inputs = Inputs::default();
    let mut files = Vec::new();
    for source in &sources {
        let name = source.path.display();
        let predictions = predictions::of(&source.result).with_context(|| name.to_string())?;
        if predictions.is_empty() {
            bail!("{name}: has no prediction; bundle results of sim, sweep, explain or validate");
        }
        for prediction in &predictions {
            inputs.find(&prediction.report.trace, &source.path)?;
        }
        let measurements = predictions::measurements(&source.result);
        let file = format!("{RESULTS}/{}.json", source.name);
        files.push(ResultFile { file, predictions: predictions.len(), measurements });
    }
    let staged = Folder::new(folder)?;
    for (source, file) in sources.iter().zip(&files) {
        let target = staged.path.join(&file.file);
        fs::copy(&source.path, &target).with_context(|| format!("{}: cannot write", target.display()))?;
        write_figures(source, &staged.path)?;
    }
    let manifest = Manifest::new(files, inputs.copy(&staged.path)?);
    let json = serde_json::to_string_pretty(&manifest).context("a manifest as JSON")? + "\n";
    file::write(&staged.path.join(MANIFEST), json.as_bytes())?;
    file::write(&staged.path.join("README.md"), readme(&manifest).as_bytes())?;
    let reported: Vec<Input> =
        sources.into_iter().map(|source| Input { name: source.name, result: source.result }).collect();
    file::write(&staged.path.join(REPORT), report::document(&reported)?.as_bytes())?;
    staged.keep(folder)?;
    Ok(manifest)
}

/// Reads the results, and gives each a name of its own.
fn sources(results: &[PathBuf]) -> Result<Vec<Source>> {
    let mut sources: Vec<Source> = Vec::new();
    for path in results {
        let result = read_result(path)?;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let is_free = |name: &String| sources.iter().all(|source| source.name != *name);
        let numbered = (2..).map(|number| format!("{stem}-{number}"));
        let name = std::iter::once(stem.clone()).chain(numbered).find(is_free).unwrap_or(stem);
        sources.push(Source { path: path.clone(), name, result });
    }
    Ok(sources)
}

/// Every figure that the result has, and their data.
fn write_figures(source: &Source, folder: &Path) -> Result<()> {
    let path = |what: &str, ending: &str| folder.join(FIGURES).join(format!("{}-{what}.{ending}", source.name));
    let place = || source.path.display().to_string();
    let subject = Subject::of(&source.result).with_context(place)?;
    for figure in Figure::ALL {
        if let Some(sketch) = figure.sketch(&subject, Medium::File).with_context(place)? {
            sketch.write(&path(figure.word(), "svg"))?;
        }
    }
    for (name, rows) in data::tables(&source.result, &predictions::of(&source.result)?) {
        let table = Table::of(&rows).context("the data of a figure")?;
        file::write(&path(name, "csv"), table.csv().as_bytes())?;
    }
    Ok(())
}

fn readme(manifest: &Manifest) -> String {
    let mut text = format!(
        "# Results of hksim {VERSION}\n\n\
         `{REPORT}` shows all results. `{MANIFEST}` has the environment and the checksums of the traces.\n\n\
         Make the predictions again from the traces, and compare every figure:\n\n    hksim repeat .\n\n\
         One row alone (rows count from 0):\n\n    hksim sim {INPUTS}/TRACE.hkt --policy {RESULTS}/RESULT.json#0\n\n\
         | Result | Predictions | Measurements |\n|---|---|---|\n"
    );
    for result in &manifest.results {
        text += &format!("| `{}` | {} | {} |\n", result.file, result.predictions, result.measurements);
    }
    text += "\n| Trace | Name in the results | Checksum | Size |\n|---|---|---|---|\n";
    for input in &manifest.inputs {
        let size = units::bytes(input.bytes);
        text += &format!("| `{}` | `{}` | {} | {size} |\n", input.file, input.name, input.checksum);
    }
    text + "\nMeasurements are those of the machine in the environment; another machine has its own.\n"
}

/// A folder under a temporary name, removed unless it is kept.
struct Folder {
    path: PathBuf,
    is_kept: bool,
}

impl Folder {
    fn new(wanted: &Path) -> Result<Folder> {
        let Some(name) = wanted.file_name() else { bail!("{}: names no folder", wanted.display()) };
        let staged = wanted.with_file_name(format!(".{}.{}.part", name.to_string_lossy(), std::process::id()));
        let folder = Folder { path: staged, is_kept: false };
        for part in ["", RESULTS, INPUTS, FIGURES] {
            let path = folder.path.join(part);
            fs::create_dir(&path).with_context(|| format!("{}: cannot create the folder", wanted.display()))?;
        }
        Ok(folder)
    }

    fn keep(mut self, wanted: &Path) -> Result<()> {
        fs::rename(&self.path, wanted).with_context(|| format!("{}: cannot create the folder", wanted.display()))?;
        self.is_kept = true;
        Ok(())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.is_kept {
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}
