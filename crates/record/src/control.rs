//! Starts, pauses, ends and marks a recording while it runs.
//!
//! The processes of a session share one page; a field of it says whether they record. The control log next to the page
//! lists each change with its time, so that the traces can be cut exactly there. Neither the page nor the log needs
//! signals, or the recorder that began the session.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write};
use std::mem::offset_of;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process;

use serde::{Deserialize, Serialize};

use crate::Programs;
use crate::clock::ClockPair;
use crate::epoch::ClockReads;
use crate::error::RecordError;
use crate::event_log::{
    CONTROL_BYTES, LOG_SUFFIX, ONLY_BYTES, SESSION_ENDED, SESSION_FILE, SESSION_MAGIC, SESSION_RECORDING,
    SESSION_STOPPED, SessionPage,
};

const LOG_FILE: &str = "log.jsonl";
/// log2 of the shortest epoch in ticks: about a microsecond, so that the 32-bit epoch wraps only after more than an
/// hour.
const EPOCH_SHIFT: u32 = 12;
/// Longest name of a mark in bytes.
pub const MARK_BYTES_MAX: usize = 240;

/// Whether a recording begins with the program or on request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Begin {
    /// With the program's first call.
    #[default]
    AtOnce,
    /// Paused until [`Control::start`].
    Stopped,
}

/// Why a recording ended before the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EndReason {
    /// The time limit was reached.
    Duration,
    /// The size limit was reached.
    Size,
    /// It was requested: by a signal to the recorder of a running process, or by `hksim mark --end`.
    Request,
    /// The recorder has finished.
    Recorder,
}

/// A change of the recording's state, or a mark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ControlEvent {
    /// A named moment.
    Mark(String),
    /// Recording paused.
    Stop,
    /// Recording resumed.
    Start,
    /// Recording ended permanently.
    End(EndReason),
}

/// A line of the control log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ControlEntry {
    /// Time stamp counter.
    pub ticks: u64,
    /// The change or mark.
    #[serde(rename = "deed")]
    pub event: ControlEvent,
}

/// The controls of a session.
#[derive(Debug)]
pub struct Control {
    /// The directory of logs.
    dir: PathBuf,
    page: File,
}

impl Control {
    /// Creates the controls of a new session, in its directory of logs `dir`. The recording ends when the logs take `bytes_max` bytes. It
    /// keeps `stack_depth` frames of each call's stack, and reads the clock as `clock` specifies.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn create(
        dir: &Path,
        begin: Begin,
        bytes_max: Option<u64>,
        stack_depth: Option<u32>,
        clock: ClockReads,
    ) -> Result<Self, RecordError> {
        let path = dir.join(SESSION_FILE);
        let failed = || RecordError::io(&path, "write");
        let page = OpenOptions::new().read(true).write(true).create_new(true).open(&path).map_err(failed())?;
        // All bytes are written now: otherwise a store through a process's mapping could hit a full disk.
        page.write_all_at(&[0; CONTROL_BYTES], 0).map_err(failed())?;
        // A program that root starts may change its user and then execute another, which reads the page. Only root's
        // processes write it: another user could falsify it, or end processes by truncating it.
        // SAFETY: no arguments.
        let mode = if unsafe { libc::geteuid() } == 0 { 0o644 } else { 0o600 };
        page.set_permissions(Permissions::from_mode(mode)).map_err(failed())?;
        let control = Self { dir: dir.to_path_buf(), page };
        control.write(offset_of!(SessionPage, bytes_max), &bytes_max.map_or(0, |bytes| bytes.max(1)).to_ne_bytes())?;
        control.write(offset_of!(SessionPage, stack_depth), &stack_depth.unwrap_or(0).to_ne_bytes())?;
        control.write(offset_of!(SessionPage, untimed_events), &(clock.events() - 1).to_ne_bytes())?;
        if begin == Begin::Stopped {
            control.stop()?;
        }
        control.write(offset_of!(SessionPage, magic), &SESSION_MAGIC.to_ne_bytes())?;
        Ok(control)
    }

    /// Shows the recorded processes that the recorder exists, as long as this value does: they leave the recording
    /// otherwise.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn hold(&self) -> Result<(), RecordError> {
        lock(&self.page, libc::F_OFD_SETLK).map(drop).map_err(RecordError::io(&self.dir.join(SESSION_FILE), "lock"))
    }

    /// Whether a recorder holds these controls.
    pub fn is_held(&self) -> bool {
        lock(&self.page, libc::F_OFD_GETLK).is_ok_and(|kind| kind != libc::F_UNLCK)
    }

    /// Limits the recording to some programs. Must be called before the session has processes.
    ///
    /// # Errors
    /// The page cannot be written, or the names do not fit.
    pub fn limit_to(&self, programs: &Programs) -> Result<(), RecordError> {
        let names: Vec<u8> = programs.only.iter().flat_map(|name| name.bytes().chain([0])).collect();
        if names.len() > ONLY_BYTES {
            return Err(RecordError::TooManyNames { bytes: names.len() });
        }
        self.write(offset_of!(SessionPage, only), &names)?;
        self.write(offset_of!(SessionPage, only_bytes), &(names.len() as u32).to_ne_bytes())?;
        let only_child_of = if programs.no_children { process::id() } else { 0 };
        self.write(offset_of!(SessionPage, only_child_of), &only_child_of.to_ne_bytes())
    }

    /// Makes all processes of the session number their events instead of reading the time. Must be called before the
    /// session has processes.
    ///
    /// # Errors
    /// The page cannot be written.
    pub fn number_events(&self) -> Result<(), RecordError> {
        self.write(offset_of!(SessionPage, numbered), &1_u32.to_ne_bytes())
    }

    /// The controls of the session whose directory of logs is `dir`.
    ///
    /// # Errors
    /// The directory has no controls.
    pub fn open(dir: &Path) -> Result<Self, RecordError> {
        let path = dir.join(SESSION_FILE);
        let mut options = OpenOptions::new();
        let page = options.read(true).write(true).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path);
        let page = page.map_err(RecordError::io(&path, "open"))?;
        let control = Self { dir: dir.to_path_buf(), page };
        if control.page()?.magic != SESSION_MAGIC {
            return Err(RecordError::BadSession { path, why: "it does not control a recording".to_string() });
        }
        Ok(control)
    }

    /// Replaces damaged controls of a recording that has ended. Its logs tell the rest.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn replace(dir: &Path) -> Result<Self, RecordError> {
        // If it cannot be removed, creating it fails too.
        let _ = fs::remove_file(dir.join(SESSION_FILE));
        // Times may have been reused: that is the default, and only a note in the trace.
        Self::create(dir, Begin::AtOnce, None, None, ClockReads::Sixteenth)
    }

    /// The controls of the session that records process `pid`, found by the log that the process has mapped.
    ///
    /// # Errors
    /// There is no such process, access to it is denied, or it is not recorded.
    pub fn of_process(pid: u32) -> Result<Self, RecordError> {
        let maps = PathBuf::from(format!("/proc/{pid}/maps"));
        let text = fs::read(&maps).map_err(|why| match why.kind() {
            ErrorKind::NotFound => RecordError::NoProcess { pid },
            _ => RecordError::io(&maps, "read")(why),
        })?;
        let text = String::from_utf8_lossy(&text);
        let paths = text.lines().filter_map(|line| line.find('/').and_then(|at| line.get(at..)));
        let dirs = paths.filter(|path| path.ends_with(LOG_SUFFIX)).filter_map(|path| Path::new(path).parent());
        // A process with other mounts has the path that it sees.
        let inside = |dir: &Path| PathBuf::from(format!("/proc/{pid}/root{}", dir.display()));
        let controls = dirs.map(|dir| Self::open(dir).or_else(|_| Self::open(&inside(dir))));
        controls.filter_map(Result::ok).next().ok_or(RecordError::NotRecorded { pid })
    }

    /// The present contents of the shared page.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn page(&self) -> Result<SessionPage, RecordError> {
        let mut bytes = [0; size_of::<SessionPage>()];
        self.page.read_exact_at(&mut bytes, 0).map_err(RecordError::io(&self.dir.join(SESSION_FILE), "read"))?;
        // SAFETY: the array has the size of SessionPage, for which every bit pattern is valid.
        Ok(unsafe { bytes.as_ptr().cast::<SessionPage>().read_unaligned() })
    }

    /// Names this moment in every trace of the recording.
    ///
    /// # Errors
    /// The control log cannot be written, or the name is too long.
    pub fn mark(&self, name: &str) -> Result<(), RecordError> {
        if name.is_empty() || name.len() > MARK_BYTES_MAX {
            return Err(RecordError::BadMark { bytes: name.len() });
        }
        self.append(ClockPair::now().ticks, ControlEvent::Mark(name.to_string()))?;
        self.begin_epoch()
    }

    /// Makes the next event of each process read the clock.
    ///
    /// # Errors
    /// The page cannot be written.
    pub fn begin_epoch(&self) -> Result<(), RecordError> {
        let ticks = ClockPair::now().ticks;
        self.write(offset_of!(SessionPage, epoch), &((ticks >> EPOCH_SHIFT) as u32).to_ne_bytes())
    }

    /// Pauses recording; false if it was not running.
    ///
    /// # Errors
    /// The session cannot be written.
    pub fn stop(&self) -> Result<bool, RecordError> {
        if self.page()?.state != SESSION_RECORDING {
            return Ok(false);
        }
        // Logged before the state changes: the conversion drops what processes record until they notice the pause.
        self.append(ClockPair::now().ticks, ControlEvent::Stop)?;
        self.set_state(SESSION_STOPPED)?;
        self.begin_epoch()?;
        Ok(true)
    }

    /// Resumes recording; false if it was not paused.
    ///
    /// # Errors
    /// The session cannot be written.
    pub fn start(&self) -> Result<bool, RecordError> {
        if self.page()?.state != SESSION_STOPPED {
            return Ok(false);
        }
        // Events from now on must not reuse clock readings from before the pause.
        self.begin_epoch()?;
        // Logged after the state changes: from the logged moment on, every process records.
        self.set_state(SESSION_RECORDING)?;
        self.append(ClockPair::now().ticks, ControlEvent::Start)?;
        Ok(true)
    }

    /// Whether the recording has ended permanently.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn has_ended(&self) -> Result<bool, RecordError> {
        Ok(self.page()?.state == SESSION_ENDED)
    }

    /// Ends the recording permanently; false if it had already ended.
    ///
    /// # Errors
    /// The session cannot be written.
    pub fn end(&self, reason: EndReason) -> Result<bool, RecordError> {
        if self.has_ended()? {
            return Ok(false);
        }
        let ticks = ClockPair::now().ticks;
        self.write(offset_of!(SessionPage, ended_ticks), &ticks.to_ne_bytes())?;
        self.set_state(SESSION_ENDED)?;
        match reason {
            // No trace is written after this, so no entry is needed.
            EndReason::Recorder => {}
            EndReason::Duration | EndReason::Size | EndReason::Request => {
                self.append(ticks, ControlEvent::End(reason))?
            }
        }
        Ok(true)
    }

    /// The control events so far, in order. If a recorded process ended the recording because the size limit
    /// was reached, the log has no line for it; that entry is derived from the end time in the shared page.
    ///
    /// # Errors
    /// The session cannot be read.
    pub fn entries(&self) -> Result<Vec<ControlEntry>, RecordError> {
        let path = self.log_path();
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(why) if why.kind() == std::io::ErrorKind::NotFound => String::new(),
            Err(why) => return Err(RecordError::io(&path, "read")(why)),
        };
        // A line cut off by a full disk is dropped.
        let mut entries: Vec<ControlEntry> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let page = self.page()?;
        let logged = entries.iter().any(|entry| matches!(entry.event, ControlEvent::End(_)));
        if page.ended_ticks != 0 && !logged {
            entries.push(ControlEntry { ticks: page.ended_ticks, event: ControlEvent::End(EndReason::Size) });
        }
        entries.sort_by_key(|entry| entry.ticks);
        Ok(entries)
    }

    fn append(&self, ticks: u64, event: ControlEvent) -> Result<(), RecordError> {
        let path = self.log_path();
        let failed = || RecordError::io(&path, "write");
        let mut line = serde_json::to_vec(&ControlEntry { ticks, event }).map_err(|why| failed()(why.into()))?;
        line.push(b'\n');
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600).custom_flags(libc::O_NOFOLLOW);
        let mut log = options.open(&path).map_err(failed())?;
        log.write_all(&line).map_err(failed())
    }

    /// The control log, in the session itself.
    fn log_path(&self) -> PathBuf {
        self.dir.with_file_name(LOG_FILE)
    }

    fn set_state(&self, state: u32) -> Result<(), RecordError> {
        self.write(offset_of!(SessionPage, state), &state.to_ne_bytes())
    }

    fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), RecordError> {
        let path = self.dir.join(SESSION_FILE);
        self.page.write_all_at(bytes, offset as u64).map_err(RecordError::io(&path, "write"))
    }
}

/// Sets or queries an exclusive lock on a whole file; returns the kind of the lock in the kernel's answer.
fn lock(file: &File, command: libc::c_int) -> std::io::Result<libc::c_int> {
    // SAFETY: plain data, valid when zeroed; the kernel reads and fills it.
    unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = libc::F_WRLCK as i16;
        match libc::fcntl(file.as_raw_fd(), command, &raw mut lock) {
            -1 => Err(std::io::Error::last_os_error()),
            _ => Ok(libc::c_int::from(lock.l_type)),
        }
    }
}
