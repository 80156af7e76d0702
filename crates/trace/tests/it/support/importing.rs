//! Imports in temporary folders, compared with the counts of an independent program.

use hksim_trace::error::TraceError;
use hksim_trace::header::TouchSource;
use hksim_trace::hkt::TraceReader;
use hksim_trace::import::{Format, ImportReport, Options, import};
use hksim_trace::info::Info;
use hksim_trace::source::EventSource;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new() -> Self {
        Folder(tempfile::tempdir().unwrap())
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.0.path().join(name);
        std::fs::write(&path, contents).unwrap();
        path
    }

    pub fn import(&self, path: &Path) -> Result<(ImportReport, TraceReader), TraceError> {
        self.import_with(path, &Options::default())
    }

    pub fn import_as(&self, format: &str, path: &Path) -> Result<(ImportReport, TraceReader), TraceError> {
        let format = Format::from_name(format);
        assert!(format.is_some());
        self.import_with(path, &Options { format, ..Options::default() })
    }

    pub fn import_with(&self, path: &Path, options: &Options) -> Result<(ImportReport, TraceReader), TraceError> {
        let out = self.0.path().join("out.hkt");
        let report = import(path, options, &out)?;
        let reader = TraceReader::open(&out)?;
        assert_eq!(reader.footer().quality, report.quality);
        Ok((report, reader))
    }
}

/// The counts of the independent program. If there is no Python, prints the reason and returns `None`.
fn counted(format: &str, path: &Path, process: Option<u64>) -> Option<serde_json::Value> {
    let oracle = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/oracle/counts.py");
    let mut python = Command::new("python3");
    python.args([oracle, format]).arg(path).args(process.map(|pid| pid.to_string()));
    match python.output() {
        Ok(output) => {
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            Some(serde_json::from_slice(&output.stdout).unwrap())
        }
        Err(why) => {
            eprintln!("skipped: cannot run python3: {why}");
            None
        }
    }
}

/// Imports a trace and compares all figures that the independent program reports. The import must recognise the format.
pub fn compare_counts(folder: &Folder, format: &str, path: &Path, process: Option<u64>, place: &str) -> Info {
    let (report, mut reader) = folder.import_with(path, &Options { process, ..Options::default() }).unwrap();
    assert_eq!(report.format, format, "{place}");
    assert_eq!(reader.header().touch, TouchSource::Assumed);
    let info = Info::of(&mut reader).unwrap();
    let Some(expected) = counted(format, path, process) else { return info };
    let found = serde_json::to_value(&info).unwrap();
    for (field, value) in expected.as_object().unwrap() {
        for (counter, value) in value.as_object().into_iter().flatten() {
            assert_eq!(&found[field][counter], value, "{place}: {field}.{counter}");
        }
        assert!(value.is_object() || &found[field] == value, "{place}: {field}: {} and {value}", found[field]);
    }
    info
}
