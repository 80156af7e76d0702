//! Writes all traces of a session, and determines the file name of each.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use hksim_recording_files as recording_files;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;
use rayon::prelude::*;

use crate::background::StartedConversions;
use crate::control::{ControlEntry, ControlEvent, EndReason};
use crate::convert::{Conversion, ConversionConfig, Converted, ImageEnd, convert};
use crate::elf;
use crate::error::RecordError;
use crate::event_log::ORIGIN_FORK;
use crate::in_use;
use crate::log_reader::{Facts, LogReader};
use crate::missing::{Missing, Unrecorded};
use crate::process_tree::Started;
use crate::report::{DamagedLog, Exit, RecordReport, RecordedTrace, UnseenImage};
use crate::selection::Selection;
use crate::session::{LogFile, Session, secret};
use crate::touch_full::Merging;
use crate::written_file;

/// Random characters in the name of an incomplete trace outside the session.
const RANDOM_DIGITS: usize = 16;
/// Likely reason if there is no log.
const NOT_LOADED: &str = "the recorder was not loaded; does the program (or a wrapper around it) clear the \
     environment, change the root directory, or start a statically linked program?";
/// Reason if the recording began paused and was never started.
const NEVER_STARTED: &str = "the recording began stopped and was never started; start it with `hksim mark PID --start`";
/// Reason if the options excluded all processes.
const LEFT_OUT: &str = "the options exclude all its processes; --only takes the names of programs' files or commands";
/// Reason if the selected programs were executed without the recorder.
const UNSEEN: &str = "its selected programs were executed without the recorder: their environment was cleared, another \
    LD_PRELOAD replaced the recorder, or they are static or set-user-ID";
/// Reason if all logs are damaged.
const DAMAGED: &str = "the logs of its processes are damaged";
/// Reason if the logs are empty files.
const NO_LOG: &str = "the recorder was loaded, but could not write its first 4 KiB; free disk space in the output's directory, or \
     raise the file-size limit (ulimit -f)";
/// Likely reason if the logs have no events.
const NO_EVENTS: &str = "the recorder was loaded, but no allocating function was called through it; a program that \
     contains its own allocator must be built without it to be recorded, and some programs allocate nothing";

/// How to write the traces of a session, and the conversions that began while the program ran.
pub struct ConversionInputs {
    /// Whether consecutive touches are merged.
    pub merging: Merging,
    /// Conversions in progress.
    pub begun: StartedConversions,
    /// What the program started, or why that is unknown.
    pub started: Result<Started, String>,
    /// Which of it was to be recorded.
    pub selection: Selection,
}

/// A readable log. It is not kept open, because recording a software build leaves more logs than files can be open.
struct Image {
    file: LogFile,
    facts: Facts,
    end: ImageEnd,
    /// Whether its complete trace is already in the session's directory.
    is_written: bool,
}

impl Image {
    /// Whether there is anything to write to the trace.
    fn has_records(&self) -> bool {
        self.is_written || self.facts.record_bytes != 0 || self.facts.control.events_lost != 0
    }

    fn open(&self) -> Result<Arc<LogReader>, RecordError> {
        let log = LogReader::open(&self.file.path, self.facts.is_live)?;
        let gone = || RecordError::BadLog { path: self.file.path.clone(), offset: 0, why: "it was changed meanwhile" };
        log.map(Arc::new).ok_or_else(gone)
    }
}

/// The logs of a session.
#[derive(Default)]
struct Images {
    images: Vec<Image>,
    /// Process ids whose logs could not be written.
    unrecorded_pids: Vec<u32>,
    /// Damaged logs.
    damaged: Vec<DamagedLog>,
}

/// The likely reason why a session has no trace.
///
/// # Errors
/// The session cannot be read.
pub fn why_none(session: &Session, report: &RecordReport) -> Result<&'static str, RecordError> {
    let control_log = session.control.entries()?;
    let began_stopped = control_log.first().is_some_and(|entry| entry.event == ControlEvent::Stop);
    let was_started = !began_stopped || control_log.iter().any(|entry| entry.event == ControlEvent::Start);
    Ok(if !report.damaged.is_empty() {
        DAMAGED
    } else if session.logs()?.is_empty() && report.excluded_processes > 0 && !report.unseen_programs.is_empty() {
        UNSEEN
    } else if session.logs()?.is_empty() && report.excluded_processes > 0 {
        LEFT_OUT
    } else if session.logs()?.is_empty() {
        NOT_LOADED
    } else if !was_started {
        NEVER_STARTED
    } else if report.unrecorded_pids.is_empty() {
        NO_EVENTS
    } else {
        NO_LOG
    })
}

/// Converts every log of the session that has events, in parallel. The session is kept. A damaged log does not prevent
/// the conversion of the others.
///
/// # Errors
/// A log cannot be read, or a trace cannot be written.
pub fn write_all(session: &Session, exit: Option<Exit>, work: ConversionInputs) -> Result<RecordReport, RecordError> {
    let began = Instant::now();
    let ConversionInputs { merging, begun, started, selection } = work;
    let events_ahead = begun.values().map(Conversion::events).sum();
    let how = ConversionConfig::of(session, merging)?;
    let has_ended = |file: &LogFile| exit.is_some() && Some(file.pid) == session.info.root_pid;
    let Images { images, unrecorded_pids, mut damaged } = open_images(&session.logs()?, has_ended)?;
    let images = in_order(images, session.info.root_pid);
    let unrecorded = Unrecorded::of(session, started, &selection, images.iter().map(|image| &*image.facts.control))?;
    let control_log = session.control.entries()?;
    let own_malloc = images.iter().filter(|image| !image.has_records() && image.facts.control.own_malloc != 0);
    let own_malloc =
        own_malloc.map(|image| UnseenImage { pid: image.file.pid, command: image.facts.command() }).collect();
    let writer = Writer {
        how,
        missing: unrecorded.missing(),
        control_log: &control_log,
        begun: Mutex::new(begun),
        is_beside: session.is_beside_output(),
    };
    let paths = paths(&session.info.output, &images)?;
    let written: Vec<(&Image, Result<RecordedTrace, RecordError>)> = images
        .par_iter()
        .zip(paths)
        .enumerate()
        .filter(|(_, (image, _))| image.has_records())
        .map(|(index, (image, path))| (image, writer.write(image, index, path)))
        .collect();
    let (mut traces, mut bytes, mut events_of_bytes) = (Vec::new(), 0, 0);
    for (image, trace) in written {
        match trace {
            Err(RecordError::BadLog { path, offset, why }) => damaged.push(DamagedLog { path, offset, why }),
            trace => {
                let trace = trace?;
                bytes += image.facts.record_bytes;
                events_of_bytes += if image.facts.record_bytes == 0 { 0 } else { trace.events };
                traces.push(trace);
            }
        }
    }
    let unseen_operators = if session.info.sees_operators { Vec::new() } else { past_malloc(&traces) };
    let page = session.control.page()?;
    Ok(RecordReport {
        exit,
        traces,
        unrecorded_processes: page.unrecorded.max(unrecorded_pids.len() as u32),
        unrecorded_pids,
        damaged,
        excluded_processes: page.left_out,
        seccomp_processes: page.filtered,
        unseen_programs: unrecorded.programs,
        outliving: unrecorded.processes,
        unobserved: unrecorded.unobserved,
        static_malloc: own_malloc,
        unseen_operators,
        unseen_calls: Vec::new(),
        end_reason: end_reason(&control_log),
        attached: None,
        probed: None,
        recorded_s: None,
        events_converted_live: events_ahead,
        converted_s: began.elapsed().as_secs_f64(),
        preload_object_kept: None,
        session_kept: None,
        log_bytes_per_event: if events_of_bytes == 0 { 0.0 } else { bytes as f64 / events_of_bytes as f64 },
    })
}

/// What ended the recording, if it was not the program.
fn end_reason(control_log: &[ControlEntry]) -> Option<EndReason> {
    control_log.iter().find_map(|entry| match entry.event {
        ControlEvent::End(reason) => Some(reason),
        _ => None,
    })
}

/// The path of each image's trace. Creates the directory for all traces except the first, if there are any.
fn paths(output: &Path, images: &[Image]) -> Result<Vec<PathBuf>, RecordError> {
    let mut images_of: HashMap<u32, usize> = HashMap::new();
    for image in images {
        *images_of.entry(image.file.pid).or_default() += 1;
    }
    if images.iter().skip(1).any(Image::has_records) {
        // SAFETY: has no precondition.
        let user = unsafe { libc::geteuid() };
        let folder = recording_files::folder(output);
        recording_files::create_folder(output, user)
            .map_err(RecordError::io(&folder, "create the directory of the other processes' traces"))?;
    }
    let path = |(index, image): (usize, &Image)| match index {
        0 => output.to_path_buf(),
        _ => {
            let number = (images_of[&image.file.pid] > 1).then_some(image.file.image);
            recording_files::beside(output, &image.facts.command(), image.file.pid, number)
        }
    };
    Ok(images.iter().enumerate().map(path).collect())
}

/// Common inputs of all traces of a session.
struct Writer<'a> {
    how: ConversionConfig,
    /// For the trace of the program itself.
    missing: Missing,
    control_log: &'a [ControlEntry],
    begun: Mutex<StartedConversions>,
    /// Whether the session's directory is next to the output.
    is_beside: bool,
}

impl Writer<'_> {
    /// Writes the trace of the image number `index` to `path`.
    fn write(&self, image: &Image, index: usize, path: PathBuf) -> Result<RecordedTrace, RecordError> {
        let end = end_of(image, index);
        let missing = if index == 0 { self.missing } else { Missing::default() };
        let how = ConversionConfig { missing, ..self.how };
        if image.is_written {
            let converted = read_back(&image.file.trace_path())?;
            fs::rename(image.file.trace_path(), &path).map_err(RecordError::io(&path, "create the trace here"))?;
            return Ok(describe(image, path, &converted));
        }
        let begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner).remove(&image.file.path);
        let log = image.open()?;
        let partial = self.partial_path(&image.file, &path)?;
        let converted = match begun.map(|begun| begun.lacking(missing).finish(end, &log, self.control_log, &path)) {
            Some(Ok(converted)) => converted,
            None => convert(&log, how, end, self.control_log, &partial, &path)?,
            Some(Err(_)) => {
                // The trace may need the space of the early conversion. If it cannot be removed, writing may fail and
                // report that.
                let _ = fs::remove_file(image.file.ahead_path());
                convert(&log, how, end, self.control_log, &partial, &path)?
            }
        };
        Ok(describe(image, path, &converted))
    }

    /// Path of a trace while it is incomplete. Normally it is in the session's directory, so that a killed recorder
    /// leaves nothing outside it. If the session is elsewhere, the path is next to the output, because a file cannot be
    /// renamed across file systems; nobody can guess it and place a link there.
    fn partial_path(&self, file: &LogFile, path: &Path) -> Result<PathBuf, RecordError> {
        if self.is_beside {
            return Ok(file.partial_path());
        }
        let mut name = OsString::from(".");
        name.push(path.file_name().unwrap_or_default());
        let random = secret().map_err(RecordError::io(path, "choose a temporary name next to"))?;
        name.push(format!(".{}", &random[..RANDOM_DIGITS]));
        Ok(path.with_file_name(name))
    }
}

/// Reads summary and quality of a trace that was written before the session ended.
fn read_back(path: &Path) -> Result<Converted, RecordError> {
    let reader = TraceReader::open(path)?;
    Ok(Converted { summary: *reader.summary(), quality: reader.footer().quality, touches: None })
}

/// The images whose allocator implements C++'s operators without `malloc`.
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
        // For display only: the trace is written.
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

/// How an image ended. The program itself, which comes first, and processes that still run last until the session ends.
fn end_of(image: &Image, index: usize) -> ImageEnd {
    let lasts = index == 0 || image.facts.is_live;
    if image.end == ImageEnd::Process && lasts { ImageEnd::Session } else { image.end }
}

/// Opens the logs. `has_ended` returns whether the process of a log is known to have ended.
fn open_images(files: &[LogFile], has_ended: impl Fn(&LogFile) -> bool) -> Result<Images, RecordError> {
    let mut found = Images::default();
    for (index, file) in files.iter().enumerate() {
        let replaced = files.get(index + 1).is_some_and(|next| next.pid == file.pid);
        let is_live = !replaced && !has_ended(file) && is_live(file);
        let facts = match LogReader::open(&file.path, is_live) {
            Ok(None) => {
                found.unrecorded_pids.push(file.pid);
                continue;
            }
            Ok(Some(log)) if log.control.pid != file.pid => {
                let why = "another process wrote it than the one that it names";
                Err(RecordError::BadLog { path: file.path.clone(), offset: 0, why })
            }
            Ok(Some(log)) => log.facts(),
            Err(why) => Err(why),
        };
        match facts {
            Ok(facts) => {
                let end = if replaced { ImageEnd::Exec } else { ImageEnd::Process };
                let is_written = file.trace_path().exists();
                found.images.push(Image { file: file.clone(), facts, end, is_written });
            }
            Err(RecordError::BadLog { path, offset, why }) => found.damaged.push(DamagedLog { path, offset, why }),
            Err(why) => return Err(why),
        }
    }
    Ok(found)
}

/// Whether a process may still write to a log: the log's process, or a forked child that has made no call since the
/// fork.
fn is_live(file: &LogFile) -> bool {
    let log = written_file::open(&file.path).ok();
    log.and_then(|log| in_use::is_written(&log)).unwrap_or_else(|| is_running(file.pid))
}

/// Sorts the images: the program's own image first, the others by start time. The program's own image is the last image
/// of its process that has records: wrappers such as env and nice are earlier images of the same process. If none has
/// records, it is the process's first image.
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

/// Whether process `pid` runs. A zombie does not run: its log is final.
pub fn is_running(pid: u32) -> bool {
    // A process's name need not be UTF-8.
    let stat = fs::read(format!("/proc/{pid}/stat")).unwrap_or_default();
    let stat = String::from_utf8_lossy(&stat);
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| !matches!(state, 'Z' | 'X'))
}
