//! All traces of a session: which spool becomes which file.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use rayon::prelude::*;

use crate::ahead::Begun;
use crate::control::Deed;
use crate::convert::{Conversion, Converted, How, ImageEnd, convert};
use crate::elf;
use crate::error::RecordError;
use crate::report::{Exit, RecordReport, RecordedTrace, UnseenImage};
use crate::session::{Session, SpoolFile};
use crate::spool::ORIGIN_FORK;
use crate::spool_reader::{Facts, SpoolReader};
use crate::touch_full::Merging;

/// Why there may be no spool at all.
const NOT_LOADED: &str = "the recorder was not loaded; does the program (or a wrapper around it) clear the \
     environment, change the root directory, or start a statically linked program?";
/// Why there is nothing in the spools.
const NEVER_STARTED: &str = "the recording began stopped and was never started; start it with `hksim mark PID --start`";
/// Why there may be only empty spools.
const NO_SPOOL: &str = "the recorder was loaded, but could not write its first 4 KiB; make room where the trace goes, or \
     raise the file-size limit (ulimit -f)";
/// Why there may be spools without events.
const NO_EVENTS: &str = "the recorder was loaded, but no allocating function was called through it; a program with \
     an allocator of its own inside must be built without it to be recorded, and some programs allocate nothing";

/// How the traces of a session are to be written, and what was done of it while the program ran.
#[derive(Default)]
pub struct Work {
    /// Whether touches are merged.
    pub merging: Merging,
    /// Traces begun.
    pub begun: Begun,
}

/// A spool that could be opened. It is closed again until its turn comes: a build leaves more of them than files can be open.
struct Image {
    file: SpoolFile,
    facts: Facts,
    end: ImageEnd,
}

impl Image {
    /// Whether there is anything to write a trace of.
    fn has_records(&self) -> bool {
        self.facts.record_bytes != 0 || self.facts.control.events_lost != 0
    }

    fn open(&self) -> Result<Arc<SpoolReader>, RecordError> {
        let spool = SpoolReader::open(&self.file.path, self.facts.is_live)?;
        let gone =
            || RecordError::BadSpool { path: self.file.path.clone(), offset: 0, why: "it was changed meanwhile" };
        spool.map(Arc::new).ok_or_else(gone)
    }
}

/// Why a session came to no trace.
///
/// # Errors
/// The session cannot be read.
pub fn why_none(session: &Session, report: &RecordReport) -> Result<&'static str, RecordError> {
    let log = session.control.entries()?;
    let began_stopped = log.first().is_some_and(|entry| entry.deed == Deed::Stop);
    let was_started = !began_stopped || log.iter().any(|entry| entry.deed == Deed::Start);
    Ok(if session.spools()?.is_empty() {
        NOT_LOADED
    } else if !was_started {
        NEVER_STARTED
    } else if report.unrecorded_pids.is_empty() {
        NO_EVENTS
    } else {
        NO_SPOOL
    })
}

/// Converts every spool of the session that holds events, those of several images on all cores. The session stays.
///
/// # Errors
/// A spool cannot be read or a trace not be written.
pub fn write_all(session: &Session, exit: Option<Exit>, work: Work) -> Result<RecordReport, RecordError> {
    let began = Instant::now();
    let Work { merging, begun } = work;
    let events_ahead = begun.values().map(Conversion::events).sum();
    let begun = Mutex::new(begun);
    let how = How {
        rate: session.tick_rate()?,
        merging,
        clock_events: session.control.page()?.untimed_events.saturating_add(1),
    };
    let (images, unrecorded_pids) = open_images(&session.spools()?)?;
    let images = in_order(images, session.info.root_pid);
    let log = session.control.entries()?;
    let partial_of = partial_paths(session);
    let bytes: u64 = images.iter().map(|image| image.facts.record_bytes).sum();
    let own_malloc = images.iter().filter(|image| !image.has_records() && image.facts.control.own_malloc != 0);
    let own_malloc =
        own_malloc.map(|image| UnseenImage { pid: image.file.pid, command: image.facts.command() }).collect();
    let traces: Vec<RecordedTrace> = images
        .par_iter()
        .enumerate()
        .filter(|(_, image)| image.has_records())
        .map(|(index, image)| {
            let output = &session.info.output;
            let path = if index == 0 { output.clone() } else { path_beside(output, &image.file, &images) };
            let end = end_of(image, index);
            let begun = begun.lock().unwrap_or_else(PoisonError::into_inner).remove(&image.file.path);
            let spool = image.open()?;
            let partial = partial_of(&image.file, &path);
            let converted = match begun.map(|begun| begun.finish(end, &spool, &log, &path)) {
                Some(Ok(converted)) => converted,
                None => convert(&spool, how, end, &log, &partial, &path)?,
                Some(Err(_)) => {
                    // It takes room that the trace may need; where it stays, the trace says so.
                    let _ = fs::remove_file(image.file.ahead_path());
                    convert(&spool, how, end, &log, &partial, &path)?
                }
            };
            Ok(describe(image, path, &converted))
        })
        .collect::<Result<_, RecordError>>()?;
    let events: u64 = traces.iter().map(|trace| trace.events).sum();
    let unseen_operators = if session.info.sees_operators { Vec::new() } else { past_malloc(&traces) };
    let spool_bytes_per_event = if events == 0 { 0.0 } else { bytes as f64 / events as f64 };
    let still_running = traces.iter().any(|trace: &RecordedTrace| trace.still_running);
    let object_left = still_running.then(|| session.info.object.clone());
    let ended = log.iter().find_map(|entry| match entry.deed {
        Deed::End(reason) => Some(reason),
        _ => None,
    });
    let page = session.control.page()?;
    let unrecorded = page.unrecorded.max(unrecorded_pids.len() as u32);
    Ok(RecordReport {
        exit,
        traces,
        unrecorded_pids,
        unrecorded,
        filtered: page.filtered,
        own_malloc,
        unseen_operators,
        unseen_calls: Vec::new(),
        ended,
        recorded_s: None,
        events_ahead,
        converted_s: began.elapsed().as_secs_f64(),
        object_left,
        spool_bytes_per_event,
    })
}

/// The images whose allocator serves C++'s operators past `malloc`.
fn past_malloc(traces: &[RecordedTrace]) -> Vec<UnseenImage> {
    let mut known: HashMap<&Path, bool> = HashMap::new();
    let mut serves = |path| *known.entry(path).or_insert_with(|| elf::serves_operators(path));
    let unseen = traces.iter().filter(|trace| trace.allocator.as_deref().is_some_and(&mut serves));
    unseen.map(|trace| UnseenImage { pid: trace.pid, command: trace.command.clone() }).collect()
}

fn describe(image: &Image, path: PathBuf, converted: &Converted) -> RecordedTrace {
    let &Converted { summary, quality, touches } = converted;
    let control = &image.facts.control;
    RecordedTrace {
        // For the eye only: the trace is written.
        trace_bytes: fs::metadata(&path).map_or(0, |data| data.len()),
        path,
        pid: control.pid,
        parent_pid: control.parent_pid,
        forked: control.origin == ORIGIN_FORK,
        still_running: image.end == ImageEnd::Process && image.facts.is_live,
        command: image.facts.command(),
        allocator: image.facts.allocator(),
        events: summary.events,
        threads: summary.threads,
        objects_peak: summary.objects_peak,
        duration_ns: summary.duration_ns,
        quality,
        touches,
    }
}

/// The program itself, which comes first, and what still runs last as long as the session.
fn end_of(image: &Image, index: usize) -> ImageEnd {
    let lasts = index == 0 || image.facts.is_live;
    if image.end == ImageEnd::Process && lasts { ImageEnd::Session } else { image.end }
}

/// Whether any of the processes that were running when their traces were written still runs.
pub fn any_runs(traces: &[RecordedTrace]) -> bool {
    traces.iter().any(|trace| trace.still_running && is_running(trace.pid))
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
        images.push(Image { file: file.clone(), facts: spool.facts()?, end });
    }
    Ok((images, unrecorded))
}

/// The program's own image first (the last one of its process with a record, so that wrappers like env and nice do not
/// take its place; without it the first image to begin), the others in the order in which they began.
fn in_order(mut images: Vec<Image>, root_pid: Option<u32>) -> Vec<Image> {
    images.sort_by_key(|image| image.facts.control.start_ticks);
    let is_own = |image: &Image| Some(image.file.pid) == root_pid;
    let root = images.iter().rposition(|image| is_own(image) && image.has_records());
    let root = root.or_else(|| images.iter().rposition(is_own));
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

/// Where traces are written until they are whole: in the session's folder, so that a recorder that is killed leaves nothing
/// besides it; beside the output where that lies elsewhere, as a file cannot be renamed to another file system.
fn partial_paths(session: &Session) -> impl Fn(&SpoolFile, &Path) -> PathBuf {
    let is_beside = session.lies_beside_output();
    move |file, output| {
        if is_beside {
            return file.partial_path();
        }
        let mut name = OsString::from(".");
        name.push(output.file_name().unwrap_or_default());
        name.push(format!(".partial-{}", process::id()));
        output.with_file_name(name)
    }
}

/// Whether a process of that id runs: no zombie, whose spool is final.
fn is_running(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
