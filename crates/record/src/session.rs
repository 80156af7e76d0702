//! A session: the directory next to the output with everything needed to write the traces, so that a recording survives
//! the death of its recorder.
//!
//! Processes write their logs into a directory inside it. A program that root starts may change its user and then fork or
//! execute, and must still be able to create logs. So root's directory of logs is open to all users who know its name,
//! and the name is secret: only processes of the recording have it, in their environments. Nobody can list the session,
//! nor truncate or replace the files of another user. hksim's own files are in the session itself, where only its user
//! can write.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::clock::{ClockPair, TickRate, calibrate};
use crate::control::{Begin, Control, EndReason};
use crate::epoch::ClockReads;
use crate::error::RecordError;
use crate::event_log::LOG_SUFFIX;

const INFO_FILE: &str = "session.json";
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// Version of the session's layout and of the logs' encoding.
const SESSION_VERSION: u32 = 3;
/// Bits of the mode of a directory that its owner alone cannot be sure of.
const WRITABLE_BY_OTHERS: u32 = 0o022;
/// Random bytes in the name of the directory of logs.
const SECRET_BYTES: usize = 16;

/// Facts about a session, stored in it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SessionInfo {
    version: u32,
    /// Name of the directory of logs.
    logs: String,
    /// Path of the trace.
    pub output: PathBuf,
    /// The command.
    pub command: Vec<String>,
    /// The preloaded object.
    pub object: PathBuf,
    /// Whether the object also interposes C++'s operators.
    pub sees_operators: bool,
    /// Process id of the program; `None` before it runs.
    pub root_pid: Option<u32>,
    boot_id: String,
    calibration: (ClockPair, ClockPair),
}

/// Parameters of a new session.
#[derive(Clone, Debug)]
pub struct SessionConfig<'a> {
    /// Parent of its directory.
    pub parent: &'a Path,
    /// Path of the trace, absolute.
    pub output: &'a Path,
    /// The command.
    pub command: Vec<String>,
    /// The preloaded object.
    pub object: &'a Path,
    /// Whether the object also interposes C++'s operators.
    pub sees_operators: bool,
    /// When recording begins.
    pub begin: Begin,
    /// Size of all logs in bytes at which the recording ends; `None` for no limit.
    pub bytes_max: Option<u64>,
    /// Frames of each call's stack to record; `None` for no call sites.
    pub stack_depth: Option<u32>,
    /// How often the clock is read.
    pub clock: ClockReads,
}

/// An open session.
pub struct Session {
    /// Its directory, absolute.
    pub dir: PathBuf,
    /// The directory into which processes write.
    pub logs_dir: PathBuf,
    /// Its controls.
    pub control: Control,
    /// Facts stored in the session.
    pub info: SessionInfo,
}

/// A log found in a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogFile {
    /// The file.
    pub path: PathBuf,
    /// Process id.
    pub pid: u32,
    /// Number of the image of this process id, from 0.
    pub image: u32,
}

impl LogFile {
    /// Path of the early conversion, which is written while the process runs.
    pub fn ahead_path(&self) -> PathBuf {
        own_path(&self.path, "ahead")
    }

    /// Path of the trace of a process that ended before the session.
    pub fn trace_path(&self) -> PathBuf {
        own_path(&self.path, "hkt")
    }

    /// Path, in the session, of the incomplete trace that this recorder writes. It contains the recorder's process id, because another
    /// recorder may write one at the same time.
    pub fn partial_path(&self) -> PathBuf {
        own_path(&self.path, &format!("partial-{}", process::id()))
    }
}

impl Session {
    /// Begins a session in a new directory under `plan.parent`.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn begin(plan: SessionConfig<'_>) -> Result<Self, RecordError> {
        let SessionConfig { parent, output, command, object, sees_operators, begin, bytes_max, stack_depth, clock } =
            plan;
        let name = output.file_name().unwrap_or_default().to_string_lossy();
        let dir = tempfile::Builder::new()
            .prefix(&format!(".{name}.recording-"))
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(parent)
            .and_then(|dir| std::path::absolute(dir.path()).map(|path| (dir, path)))
            .map_err(RecordError::io(parent, "create the recording session in it"))?;
        let info = SessionInfo {
            version: SESSION_VERSION,
            logs: secret().map_err(RecordError::io(parent, "choose a name for the logs in it"))?,
            output: output.to_path_buf(),
            command,
            object: object.to_path_buf(),
            sees_operators,
            root_pid: None,
            boot_id: boot_id(),
            calibration: calibrate(),
        };
        let logs_dir = dir.1.join(&info.logs);
        create_for_logs(&dir.1, &logs_dir)?;
        let control = Control::create(&logs_dir, begin, bytes_max, stack_depth, clock)?;
        let session = Self { control, dir: dir.1, logs_dir, info };
        session.save()?;
        keep(dir.0);
        Ok(session)
    }

    /// Opens a session that another recorder began.
    ///
    /// # Errors
    /// The directory has no session of this version, or belongs to another user. That user could have placed links among
    /// its files, through which the recovery would read and write files of this user.
    pub fn open(dir: &Path) -> Result<Self, RecordError> {
        let bad = |why: String| RecordError::BadSession { path: dir.to_path_buf(), why };
        let data = fs::metadata(dir).map_err(|why| bad(why.to_string()))?;
        // SAFETY: has no precondition.
        if data.uid() != unsafe { libc::geteuid() } {
            return Err(bad("it belongs to another user, who can recover it".to_string()));
        }
        if data.mode() & WRITABLE_BY_OTHERS != 0 {
            return Err(bad("other users can write to it; take that right from them (chmod go-w)".to_string()));
        }
        let text = fs::read(dir.join(INFO_FILE)).map_err(|why| bad(format!("{INFO_FILE}: {why}")))?;
        let info: SessionInfo = serde_json::from_slice(&text).map_err(|why| bad(format!("{INFO_FILE}: {why}")))?;
        if info.version != SESSION_VERSION {
            return Err(bad(format!(
                "it is of version {}, this hksim reads {SESSION_VERSION}; use the hksim that recorded it",
                info.version
            )));
        }
        let logs_dir = dir.join(Path::new(&info.logs).file_name().unwrap_or_default());
        let control = Control::open(&logs_dir).or_else(|_| Control::replace(&logs_dir))?;
        Ok(Self { dir: dir.to_path_buf(), logs_dir, control, info })
    }

    /// Stores the program's process id.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn set_root(&mut self, pid: u32) -> Result<(), RecordError> {
        self.info.root_pid = Some(pid);
        self.save()
    }

    fn save(&self) -> Result<(), RecordError> {
        let path = self.dir.join(INFO_FILE);
        let json = serde_json::to_vec_pretty(&self.info).map_err(|why| RecordError::io(&path, "write")(why.into()))?;
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(&json)).map_err(RecordError::io(&path, "write"))
    }

    /// Rate for converting ticks to nanoseconds. It is determined from the session's start and now, which is most
    /// precise; after a reboot, only from readings at the start.
    ///
    /// # Errors
    /// The session's clock readings are out of order.
    pub fn tick_rate(&self) -> Result<TickRate, RecordError> {
        let (start, soon) = self.info.calibration;
        let end = if self.info.boot_id == boot_id() { ClockPair::now() } else { soon };
        TickRate::between(start, end).ok_or_else(|| RecordError::BadSession {
            path: self.dir.clone(),
            why: "its clock readings run backwards".to_string(),
        })
    }

    /// A function from readings of the time stamp counter to `CLOCK_MONOTONIC` in nanoseconds.
    ///
    /// # Errors
    /// As for [`Session::tick_rate`].
    pub fn to_monotonic_ns(&self) -> Result<impl Fn(u64) -> u64, RecordError> {
        let (start, rate) = (self.info.calibration.0, self.tick_rate()?);
        Ok(move |ticks: u64| start.ns.saturating_add(rate.ns(ticks.saturating_sub(start.ticks))))
    }

    /// The logs, sorted by process id and image.
    ///
    /// # Errors
    /// The directory cannot be read.
    pub fn logs(&self) -> Result<Vec<LogFile>, RecordError> {
        let entries = fs::read_dir(&self.logs_dir).map_err(RecordError::io(&self.logs_dir, "read"))?;
        let mut logs = Vec::new();
        for entry in entries {
            let path = entry.map_err(RecordError::io(&self.logs_dir, "read"))?.path();
            if let Some((pid, image)) = parse_name(&path) {
                logs.push(LogFile { path, pid, image });
            }
        }
        logs.sort_by_key(|log| (log.pid, log.image));
        Ok(logs)
    }

    /// Removes early conversions that are no longer needed, because the traces need the space.
    pub fn remove_ahead(&self) {
        for log in self.logs().unwrap_or_default() {
            // If this fails, the file only wastes space.
            let _ = fs::remove_file(log.ahead_path());
        }
    }

    /// Keeps the session for a recovery. Returns an error that names the session and the reason; if the session no
    /// longer exists, returns `why` itself.
    pub fn kept(self, why: RecordError) -> RecordError {
        if !self.dir.exists() {
            return why;
        }
        self.remove_ahead();
        RecordError::Kept { session: self.dir, why: Box::new(why) }
    }

    /// Whether the session's directory and the output have the same parent.
    pub fn is_beside_output(&self) -> bool {
        let beside = |path: &Path| path.parent().and_then(|folder| folder.canonicalize().ok());
        let session = self.dir.canonicalize().ok();
        session.as_deref().and_then(Path::parent) == beside(&self.info.output).as_deref()
    }

    /// Removes the session with all its logs. Processes that still run stop recording; otherwise they would fill the
    /// disk with unreachable records.
    ///
    /// # Errors
    /// Part of it cannot be removed.
    pub fn remove(self) -> Result<(), RecordError> {
        self.control.end(EndReason::Recorder)?;
        fs::remove_dir_all(&self.dir).map_err(RecordError::io(&self.dir, "remove"))
    }
}

/// Path of a file that hksim itself writes about a log: in the session, where the recorded processes cannot write.
pub fn own_path(log: &Path, extension: &str) -> PathBuf {
    let name = Path::new(log.file_name().unwrap_or_default()).with_extension(extension);
    let logs_dir = log.parent().unwrap_or(Path::new("/"));
    logs_dir.with_file_name(name)
}

/// A name that other users cannot guess.
///
/// # Errors
/// The system gives no random bytes.
pub fn secret() -> std::io::Result<String> {
    let mut bytes = [0; SECRET_BYTES];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Creates the directory of logs. Root lets all users who know its name create files in it; each can remove only its own.
fn create_for_logs(dir: &Path, logs_dir: &Path) -> Result<(), RecordError> {
    let failed = || RecordError::io(logs_dir, "create");
    fs::DirBuilder::new().mode(0o700).create(logs_dir).map_err(failed())?;
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return Ok(());
    }
    fs::set_permissions(logs_dir, Permissions::from_mode(0o1733)).map_err(failed())?;
    fs::set_permissions(dir, Permissions::from_mode(0o711)).map_err(RecordError::io(dir, "open to the logs' users"))
}

/// Keeps the directory when its handle is dropped.
fn keep(dir: TempDir) {
    let _ = dir.keep();
}

fn boot_id() -> String {
    fs::read_to_string(BOOT_ID).unwrap_or_default()
}

fn parse_name(path: &Path) -> Option<(u32, u32)> {
    let name = path.file_name()?.to_str()?.strip_suffix(LOG_SUFFIX)?;
    let (pid, image) = name.split_once('-')?;
    Some((pid.parse().ok()?, image.parse().ok()?))
}
