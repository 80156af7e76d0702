//! Records the page operations of a replay.

use std::ffi::OsString;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use hksim_memory_record::{Options, RecordingReport, SnapshotsOf, Source, Streams, record};
use hksim_replay::{ObservedChild, ReplaySpec};

use super::record::print;
use crate::output::Format;

/// Records a replay, and prints a report.
///
/// # Errors
/// The replay fails or cannot be recorded.
pub fn replay_and_report(spec: &ReplaySpec, path: &Path, format: Format) -> Result<()> {
    if path.is_dir() {
        bail!("{}: is a directory; name a file for the recording", path.display());
    }
    print(&record_replay(spec, path, None)?, format)
}

/// Records a replay to a file. `thp_mode` is the mode that its allocator reads; `None` for the machine's.
///
/// # Errors
/// The replay fails or cannot be recorded.
pub fn record_replay(spec: &ReplaySpec, path: &Path, thp_mode: Option<&str>) -> Result<RecordingReport> {
    let child = ObservedChild::of(spec)?;
    let folder = tempfile::tempdir().context("cannot create a temporary directory; set TMPDIR")?;
    let output = folder.path().join("report");
    let arguments = child.arguments.iter().map(OsString::from);
    let command: Vec<OsString> = [child.program.into()].into_iter().chain(arguments).collect();
    let options = Options {
        output: path.to_path_buf(),
        // Some allocators depend on the alignment of their addresses. A result must not depend on chance.
        fixes_addresses: true,
        keeps_thp: false,
        duration: None,
        directory: None,
        shown_thp_mode: thp_mode.map(str::to_string),
        variables: child.environment,
        streams: Streams::Job { input: child.job, output: output.clone() },
        snapshots_of: SnapshotsOf::Nothing,
        source: Source::Auto,
        stack_depth: None,
    };
    let report = record(&options, &command)?;
    let said = fs::read(&output).with_context(|| format!("{}: cannot read", output.display()))?;
    ObservedChild::check(&said)?;
    Ok(report)
}
