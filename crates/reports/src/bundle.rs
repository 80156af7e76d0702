//! Writes a bundle: a folder with results, their inputs, their figures and a report.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use hksim_explore::table::Table;
use hksim_output_files::Unfinished;
use hksim_results::bundle::inputs::{self, Inputs};
use hksim_results::bundle::{FIGURES, INPUTS, InputFile, MANIFEST, Manifest, REPORT, RESULTS, ResultFile};
use hksim_results::predictions;
use hksim_sim::report::version;
use hksim_text::shell::line;
use hksim_text::units;
use serde_json::Value;

use crate::chart::{Figure, Medium, Subject};
use crate::data;
use crate::error::{Context, ReportError, Result};
use crate::report::{self, Input};

/// A result to bundle.
#[derive(Debug)]
pub struct Source {
    /// Its file.
    pub path: PathBuf,
    /// What it contains.
    pub result: Value,
    /// The files that it was made from, each with the checksum that the result states.
    pub files: BTreeMap<String, Option<String>>,
}

/// The command that makes a result again, into the file of the second argument, with the files that it names under the
/// names of the third. `None` if the result does not state its command.
pub type RepeatCommand<'a> = &'a dyn Fn(&Value, &str, &BTreeMap<String, String>) -> Option<String>;

/// A result with a name of its own in the bundle.
struct Named<'a> {
    source: &'a Source,
    /// Without the ending.
    name: String,
}

impl Named<'_> {
    /// Its file in the bundle.
    fn file(&self) -> String {
        format!("{RESULTS}/{}.json", self.name)
    }
}

/// Writes results with their inputs, figures and report into a new folder. If that fails, nothing is left.
///
/// # Errors
/// An input is missing or changed, a result cannot be shown, or the folder exists or cannot be written.
pub fn write(sources: &[Source], folder: &Path, repeat: RepeatCommand<'_>) -> Result<Manifest> {
    if folder.exists() {
        return Err(part(format!("{}: exists already; name a new folder", folder.display())));
    }
    let mut inputs = Inputs::default();
    for source in sources {
        source.files.iter().try_for_each(|(name, stated)| inputs.find(name, stated.as_deref(), &source.path))?;
    }
    let staged = Folder::new(folder)?;
    let mut files = Vec::new();
    let named = named(sources);
    for one in &named {
        let target = staged.path().join(one.file());
        fs::copy(&one.source.path, &target).with_context(|| cannot_write(&target))?;
        write_figures(one, staged.path())?;
        files.push(ResultFile {
            file: one.file(),
            predictions: predictions::of(&one.source.result)?.len(),
            measurements: predictions::measurements(&one.source.result),
        });
    }
    let inputs = inputs.copy(staged.path())?;
    let reported = reported(&named, &inputs, repeat);
    write_file(&staged.path().join("README.md"), readme(&files, &inputs, &reported).as_bytes())?;
    write_file(&staged.path().join(REPORT), report::document(&reported)?.as_bytes())?;
    let manifest = Manifest::new(files, inputs, staged.checksums()?);
    let json = serde_json::to_string_pretty(&manifest).context("a manifest as JSON")? + "\n";
    write_file(&staged.path().join(MANIFEST), json.as_bytes())?;
    staged.keep(folder)?;
    Ok(manifest)
}

fn part(what: String) -> ReportError {
    ReportError::Part { what, source: None }
}

fn cannot_write(path: &Path) -> String {
    format!("{}: cannot write", path.display())
}

fn write_file(path: &Path, bytes: &[u8]) -> Result<()> {
    fs::write(path, bytes).with_context(|| cannot_write(path))
}

/// The results as their report names them: commands start in the bundle's folder, and leave its results as they are.
fn reported(named: &[Named<'_>], inputs: &[InputFile], repeat: RepeatCommand<'_>) -> Vec<Input> {
    let files: BTreeMap<String, String> = inputs.iter().map(|input| (input.name.clone(), input.file.clone())).collect();
    let input = |one: &Named<'_>| Input {
        name: one.file(),
        command: repeat(&one.source.result, &format!("{}.json", one.name), &files),
        result: one.source.result.clone(),
        written: None,
    };
    named.iter().map(input).collect()
}

/// Gives each result a name of its own.
fn named(sources: &[Source]) -> Vec<Named<'_>> {
    let mut named: Vec<Named<'_>> = Vec::new();
    for source in sources {
        let stem = source.path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        let is_free = |name: &String| named.iter().all(|other| other.name != *name);
        let numbered = (2..).map(|number| format!("{stem}-{number}"));
        let name = std::iter::once(stem.clone()).chain(numbered).find(is_free).unwrap_or(stem);
        named.push(Named { source, name });
    }
    named
}

/// Every figure that the result has, and their data.
fn write_figures(one: &Named<'_>, folder: &Path) -> Result<()> {
    let path = |what: &str, ending: &str| folder.join(FIGURES).join(format!("{}-{what}.{ending}", one.name));
    let (place, result) = (|| one.source.path.display().to_string(), &one.source.result);
    let subject = Subject::of(result).with_context(place)?;
    for figure in Figure::ALL {
        if let Some(sketch) = figure.sketch(&subject, Medium::File).with_context(place)? {
            let path = path(figure.word(), "svg");
            write_file(&path, &sketch.bytes(&path)?)?;
        }
    }
    for (name, rows) in data::tables(result, &predictions::of(result)?) {
        let table = Table::of(&rows).context("the data of a figure")?;
        write_file(&path(name, "csv"), table.csv().as_bytes())?;
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
            return Err(part(format!("{}: names no folder", wanted.display())));
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
