//! All traces of a session: which spool becomes which file.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::convert::{ImageEnd, convert};
use crate::error::RecordError;
use crate::report::{Exit, RecordReport, RecordedTrace};
use crate::session::{Session, SpoolFile};
use crate::spool::ORIGIN_FORK;
use crate::spool_reader::SpoolReader;

/// Why there may be no spool at all.
const NOT_LOADED: &str = "the recorder was not loaded; does the program (or a wrapper around it) clear the \
     environment, change the root directory, or start a statically linked program?";
/// Why there may be only empty spools.
const NO_SPOOL: &str = "the recorder was loaded, but could not write its first 4 KiB; make room where the trace goes, or \
     raise the file-size limit (ulimit -f)";
/// Why there may be spools without events.
const NO_EVENTS: &str = "the recorder was loaded, but no allocating function was called through it; a program with \
     an allocator of its own inside must be built without it to be recorded";

/// A spool that could be opened.
struct Image {
    file: SpoolFile,
    spool: SpoolReader,
    end: ImageEnd,
}

/// Why a session came to no trace.
///
/// # Errors
/// The session cannot be read.
pub fn why_none(session: &Session, report: &RecordReport) -> Result<&'static str, RecordError> {
    Ok(if session.spools()?.is_empty() {
        NOT_LOADED
    } else if report.unrecorded_pids.is_empty() {
        NO_EVENTS
    } else {
        NO_SPOOL
    })
}

/// Converts every spool of the session that holds events. The session stays.
///
/// # Errors
/// A spool cannot be read or a trace not be written.
pub fn write_all(session: &Session, exit: Option<Exit>) -> Result<RecordReport, RecordError> {
    let rate = session.tick_rate()?;
    let (images, unrecorded_pids) = open_images(&session.spools()?)?;
    let images = in_order(images, session.info.root_pid);
    let mut traces = Vec::new();
    let (mut bytes, mut events) = (0, 0);
    for (index, image) in images.iter().enumerate() {
        let path = if index == 0 {
            session.info.output.clone()
        } else {
            path_beside(&session.info.output, &image.file, &images)
        };
        if image.spool.record_bytes() == 0 && image.spool.control.events_lost == 0 {
            continue;
        }
        bytes += image.spool.record_bytes();
        let (summary, quality) = convert(&image.spool, rate, image.end, &path)?;
        events += summary.events;
        let control = &image.spool.control;
        traces.push(RecordedTrace {
            path,
            pid: control.pid,
            parent_pid: control.parent_pid,
            forked: control.origin == ORIGIN_FORK,
            still_running: image.end == ImageEnd::Process && image.spool.is_live(),
            command: image.spool.command(),
            events: summary.events,
            threads: summary.threads,
            objects_peak: summary.objects_peak,
            duration_ns: summary.duration_ns,
            quality,
        });
    }
    let spool_bytes_per_event = if events == 0 { 0.0 } else { bytes as f64 / events as f64 };
    let still_running = traces.iter().any(|trace: &RecordedTrace| trace.still_running);
    let object_left = still_running.then(|| session.info.object.clone());
    Ok(RecordReport { exit, traces, unrecorded_pids, object_left, spool_bytes_per_event })
}

/// Opens the spools; second, the ids of processes that could not write one.
fn open_images(files: &[SpoolFile]) -> Result<(Vec<Image>, Vec<u32>), RecordError> {
    let (mut images, mut unrecorded) = (Vec::new(), Vec::new());
    for (index, file) in files.iter().enumerate() {
        let Some(spool) = SpoolReader::open(&file.path, is_running(file.pid))? else {
            unrecorded.push(file.pid);
            continue;
        };
        let replaced = files.get(index + 1).is_some_and(|next| next.pid == file.pid);
        let end = if replaced { ImageEnd::Exec } else { ImageEnd::Process };
        images.push(Image { file: file.clone(), spool, end });
    }
    Ok((images, unrecorded))
}

/// The program's own image first (the last one of its process, so that wrappers like env and nice do not take its
/// place; without it the first image to begin), the others in the order in which they began.
fn in_order(mut images: Vec<Image>, root_pid: Option<u32>) -> Vec<Image> {
    images.sort_by_key(|image| image.spool.control.start_ticks);
    let root = images.iter().rposition(|image| Some(image.file.pid) == root_pid);
    if let Some(root) = root {
        let image = images.remove(root);
        images.insert(0, image);
    }
    images
}

/// `app.hkt` becomes `app.PID.hkt`, or `app.PID-IMAGE.hkt` where the process had several images.
fn path_beside(output: &Path, file: &SpoolFile, images: &[Image]) -> PathBuf {
    let mut name = OsString::from(output.file_stem().unwrap_or_default());
    name.push(format!(".{}", file.pid));
    if images.iter().filter(|image| image.file.pid == file.pid).count() > 1 {
        name.push(format!("-{}", file.image));
    }
    if let Some(extension) = output.extension() {
        name.push(".");
        name.push(extension);
    }
    output.with_file_name(name)
}

/// Whether a process of that id runs: no zombie, whose spool is final.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
