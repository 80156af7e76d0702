//! Writes a bundle.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use hksim_explore::table::Table;
use hksim_sim::report::version;
use serde_json::Value;

use super::origin::Origin;
use crate::output::{file, units};
use crate::pictures;
use crate::read_result::read_result;
use crate::repeat_command::command;
use hksim_output_files::Unfinished;
use hksim_reports::chart::{Figure, Medium, Subject};
use hksim_reports::data;
use hksim_reports::report::{self, Input};
use hksim_results::bundle::inputs::{self, Inputs};
use hksim_results::bundle::{FIGURES, INPUTS, InputFile, MANIFEST, Manifest, REPORT, RESULTS, ResultFile};
use hksim_results::predictions;
use hksim_text::shell::line;

/// A result to bundle.
struct Source {
    path: PathBuf,
    /// Its name in the bundle, without the ending.
    name: String,
    result: Value,
    origin: Origin,
}

impl Source {
    /// Its file in the bundle.
    fn file(&self) -> String {
        format!("{RESULTS}/{}.json", self.name)
    }
}

/// Writes results with their inputs, figures and report into a new folder. If that fails, nothing is left.
///
/// # Errors
/// A result cannot be made again, an input is missing or changed, or the folder cannot be written.
pub fn write(results: &[PathBuf], folder: &Path) -> Result<Manifest> {
    if folder.exists() {
        bail!("{}: exists already; name a new folder", folder.display());
    }
    let sources = sources(results)?;
    let mut inputs = Inputs::default();
    for source in &sources {
        let files = source.origin.files(&source.result).with_context(|| source.path.display().to_string())?;
        files.iter().try_for_each(|(name, stated)| inputs.find(name, stated.as_deref(), &source.path))?;
    }
    let staged = Folder::new(folder)?;
    let mut files = Vec::new();
    for source in &sources {
        let target = staged.path().join(source.file());
        fs::copy(&source.path, &target).with_context(|| format!("{}: cannot write", target.display()))?;
        write_figures(source, staged.path())?;
        files.push(ResultFile {
            file: source.file(),
            predictions: predictions::of(&source.result)?.len(),
            measurements: predictions::measurements(&source.result),
        });
    }
    let inputs = inputs.copy(staged.path())?;
    let reported = reported(sources, &inputs);
    file::write(&staged.path().join("README.md"), readme(&files, &inputs, &reported).as_bytes())?;
    file::write(&staged.path().join(REPORT), report::document(&reported)?.as_bytes())?;
    let manifest = Manifest::new(files, inputs, staged.checksums()?);
    let json = serde_json::to_string_pretty(&manifest).context("a manifest as JSON")? + "\n";
    file::write(&staged.path().join(MANIFEST), json.as_bytes())?;
    staged.keep(folder)?;
    Ok(manifest)
}

/// The results as their report names them: commands start in the bundle's folder, and leave its results as they are.
fn reported(sources: Vec<Source>, inputs: &[InputFile]) -> Vec<Input> {
    let files: BTreeMap<String, String> = inputs.iter().map(|input| (input.name.clone(), input.file.clone())).collect();
    let input = |source: Source| Input {
        name: source.file(),
        command: command(&source.result, &format!("{}.json", source.name), &files),
        result: source.result,
        written: None,
    };
    sources.into_iter().map(input).collect()
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
        let origin = Origin::of(&path.display().to_string(), &result)?;
        sources.push(Source { path: path.clone(), name, result, origin });
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
            pictures::write(&path(figure.word(), "svg"), &sketch)?;
        }
    }
    for (name, rows) in data::tables(&source.result, &predictions::of(&source.result)?) {
        let table = Table::of(&rows).context("the data of a figure")?;
        file::write(&path(name, "csv"), table.csv().as_bytes())?;
    }
    Ok(())
}

fn readme(files: &[ResultFile], inputs: &[InputFile], reported: &[Input]) -> String {
    let mut text = format!(
        "# Results of hksim {}\n\n\
         `{REPORT}` shows all results. `{MANIFEST}` has the environment and the checksums of all files.\n\n\
         Make the results again from their inputs, and compare every figure:\n\n    hksim repeat .\n\n",
        version()
    );
    let commands: String =
        reported.iter().filter_map(|input| input.command.as_ref()).map(|line| format!("    {line}\n")).collect();
    if !commands.is_empty() {
        text += &format!("Make one result again:\n\n{commands}\n");
    }
    if let Some(command) = inputs.iter().find_map(|input| one_row(&input.file, reported)) {
        text += &format!("Use the design of one row (rows count from 0):\n\n    {command}\n\n");
    }
    text += "| Result | Predictions | Measurements |\n|---|---|---|\n";
    for result in files {
        text += &format!("| `{}` | {} | {} |\n", result.file, result.predictions, result.measurements);
    }
    text += "\n| Input | Name in the results | Checksum | Size |\n|---|---|---|---|\n";
    for input in inputs {
        let size = units::bytes(input.bytes);
        text += &format!("| `{}` | `{}` | {} | {size} |\n", input.file, input.name, input.checksum);
    }
    text + "\nMeasurements are those of the machine in the environment; another machine has its own.\n"
}

/// A simulation of a trace with the design of a result's first row.
fn one_row(trace: &str, reported: &[Input]) -> Option<String> {
    let has_design = |input: &&Input| !predictions::of(&input.result).unwrap_or_default().is_empty();
    let of_row = |input: &Input| line(["hksim", "sim", trace, "--policy", &format!("{}#0", input.name)]);
    reported.iter().find(has_design).filter(|_| trace.ends_with(".hkt")).map(of_row)
}

/// A folder that is not finished.
struct Folder(Unfinished);

impl Folder {
    fn new(wanted: &Path) -> Result<Folder> {
        if wanted.file_name().is_none() {
            bail!("{}: names no folder", wanted.display());
        }
        let cannot = || format!("{}: cannot create the folder", wanted.display());
        let folder = Folder(Unfinished::folder(wanted).with_context(cannot)?);
        for part in [RESULTS, INPUTS, FIGURES] {
            fs::create_dir(folder.path().join(part)).with_context(cannot)?;
        }
        Ok(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// The checksums of all files so far, by their places in the folder.
    fn checksums(&self) -> Result<BTreeMap<String, String>> {
        let mut checksums = BTreeMap::new();
        let mut open = vec![self.path().to_path_buf()];
        while let Some(folder) = open.pop() {
            let listed = fs::read_dir(&folder).with_context(|| format!("{}: cannot list", folder.display()))?;
            let (folders, files): (Vec<PathBuf>, Vec<PathBuf>) =
                listed.flatten().map(|entry| entry.path()).partition(|path| path.is_dir());
            open.extend(folders);
            for path in files {
                let place = path.strip_prefix(self.path()).unwrap_or(&path).display().to_string();
                checksums.insert(place, inputs::checksum_of_bytes(&path)?);
            }
        }
        Ok(checksums)
    }

    fn keep(self, wanted: &Path) -> Result<()> {
        self.0.keep(wanted).with_context(|| format!("{}: cannot create the folder", wanted.display()))
    }
}
