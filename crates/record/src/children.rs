//! Detects when forked children stop sharing their parent's memory.
//!
//! For each child the preloaded object maps a file of the session (`record-preload/src/forks.rs`). The kernel closes
//! this file when no process uses the memory of the fork any more. This thread receives the close event, records it in
//! a file next to the parent's log, and removes the mapped file. If the session is on a file system without such events
//! (overlayfs), the ends of children are unknown.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::mem::size_of;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::{self, JoinHandle};

use crate::clock::ClockPair;
use crate::event_log::FORKED_SUFFIX;
use crate::in_use;
use crate::session::own_path;
use crate::written_file;

/// Extension of the file with the ends of an image's children; the rest of its name is that of the image's log.
const ENDS_EXTENSION: &str = "ends";
/// Bytes of an entry in that file: ticks and process id, little-endian.
const ENTRY_BYTES: usize = 12;
/// Bytes read from the kernel at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// The moment from which a child no longer shares its parent's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChildEnd {
    /// Time stamp counter.
    pub ticks: u64,
    /// Process id of the child.
    pub child_pid: u32,
}

/// The ends of an image's children that are known so far, in order of time.
pub fn ends_of(log: &Path) -> Vec<ChildEnd> {
    // An image without children has no such file. If the file cannot be read, the ends are unknown.
    let bytes = fs::read(own_path(log, ENDS_EXTENSION)).unwrap_or_default();
    let entry = |bytes: &[u8; ENTRY_BYTES]| {
        let [ticks @ .., _, _, _, _] = *bytes;
        let [_, _, _, _, _, _, _, _, child_pid @ ..] = *bytes;
        ChildEnd { ticks: u64::from_le_bytes(ticks), child_pid: u32::from_le_bytes(child_pid) }
    };
    bytes.as_chunks().0.iter().map(entry).collect()
}

/// Whether a child without a known end still shares the image's memory; `None` if unknown.
pub fn shares(log: &Path, child_pid: u32) -> Option<bool> {
    let stem = log.file_stem()?.to_str()?;
    let file = written_file::open(&log.with_file_name(format!("{stem}-{child_pid}{FORKED_SUFFIX}"))).ok()?;
    in_use::is_written(&file)
}

/// The thread that watches for the ends of children.
pub struct Children {
    stop: UnixStream,
    thread: JoinHandle<()>,
}

impl Children {
    /// Starts watching the directory of logs, `dir`. `None` if the system cannot report closed files; all ends are then
    /// unknown.
    pub fn begin(dir: &Path) -> Option<Self> {
        let closed = Closed::begin(dir).ok()?;
        let (stop, stopped) = UnixStream::pair().ok()?;
        let dir = dir.to_path_buf();
        let thread = thread::Builder::new().name("children".into()).spawn(move || run(closed, &stopped, &dir)).ok()?;
        Some(Self { stop, thread })
    }

    /// Stops after all ends so far have been recorded.
    pub fn end(self) {
        drop(self.stop);
        // The thread cannot panic; ends that it has not recorded stay unknown.
        let _ = self.thread.join();
    }
}

fn run(mut closed: Closed, stop: &UnixStream, dir: &Path) {
    let mut goes_on = true;
    while goes_on {
        goes_on = closed.wait(stop);
        // All events before the stop are in the queue now.
        while let Some(names) = closed.take() {
            let ticks = ClockPair::now().ticks;
            names.iter().for_each(|name| note(dir, name, ticks));
        }
    }
}

/// Handles the close event of file `name`. If the file was mapped for a child, records the end of the child.
fn note(dir: &Path, name: &OsStr, ticks: u64) {
    let Some((image, child_pid)) = child_of(name) else { return };
    let mut entry = ticks.to_le_bytes().to_vec();
    entry.extend(child_pid.to_le_bytes());
    let path = own_path(&dir.join(image), ENDS_EXTENSION);
    let written = OpenOptions::new().append(true).create(true).open(path).and_then(|mut file| file.write_all(&entry));
    // If the disk is full, the mapped file stays, and the end stays unknown.
    if written.is_ok() {
        let _ = fs::remove_file(dir.join(name));
    }
}

/// The image, and the child for which a file was mapped.
fn child_of(name: &OsStr) -> Option<(&str, u32)> {
    let (image, child) = name.to_str()?.strip_suffix(FORKED_SUFFIX)?.rsplit_once('-')?;
    Some((image, child.parse().ok()?))
}

/// Reports files in a directory that were open for writing or mapped, when they no longer are.
struct Closed {
    events: File,
    buffer: Vec<u8>,
}

impl Closed {
    fn begin(dir: &Path) -> io::Result<Self> {
        // SAFETY: the call takes only flags; nothing else owns the descriptor.
        let events = unsafe {
            let fd = libc::inotify_init1(libc::IN_NONBLOCK | libc::IN_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(fd)
        };
        let path = CString::new(dir.as_os_str().as_bytes())?;
        // SAFETY: the path is a C string.
        let watch = unsafe { libc::inotify_add_watch(events.as_raw_fd(), path.as_ptr(), libc::IN_CLOSE_WRITE) };
        if watch < 0 { Err(io::Error::last_os_error()) } else { Ok(Self { events, buffer: vec![0; BUFFER_BYTES] }) }
    }

    /// Waits for the next name; false once the other end of `stop` is closed.
    fn wait(&self, stop: &UnixStream) -> bool {
        let poll = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut polls = [poll(self.events.as_raw_fd()), poll(stop.as_raw_fd())];
        // SAFETY: two valid entries.
        let ready = unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, -1) };
        let [_, stop] = polls;
        stop.revents == 0 && (ready >= 0 || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted)
    }

    /// The names in the queue; `None` if it is empty.
    fn take(&mut self) -> Option<Vec<OsString>> {
        let bytes = self.events.read(&mut self.buffer).ok().filter(|&bytes| bytes > 0)?;
        let mut rest = self.buffer.get(..bytes)?;
        let mut names = Vec::new();
        while let Some((header, after)) = rest.split_at_checked(size_of::<libc::inotify_event>()) {
            // The last word of the header is the name's length.
            let length = header.last_chunk().map_or(0, |bytes| u32::from_ne_bytes(*bytes) as usize);
            let Some((name, next)) = after.split_at_checked(length) else { break };
            if let Ok(name) = CStr::from_bytes_until_nul(name) {
                names.push(OsStr::from_bytes(name.to_bytes()).to_os_string());
            }
            rest = next;
        }
        Some(names)
    }
}
