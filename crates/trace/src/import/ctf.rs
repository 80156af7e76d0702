//! LTTng folders, read through `babeltrace2`, which users of LTTng usually have installed. It reads all versions of
//! CTF, merges the streams of all CPUs in order of time, and reports discarded events.

use crate::error::TraceError;
use hksim_recording_files::open_regular;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::JoinHandle;

/// Maximum number of nested folders above a trace: session, domain, user, bits.
const DEPTH_MAX: u32 = 6;
/// First bytes of a trace's `metadata`: packets in either byte order, or text.
const METADATA_MAGICS: [&[u8]; 3] = [&[0x57, 0x1D, 0xD1, 0x75], &[0x75, 0xD1, 0x1D, 0x57], b"/* CTF"];
/// Maximum number of bytes kept from babeltrace2's standard error.
const SAID_BYTES_MAX: u64 = 16 << 20;

/// Whether the folder holds a CTF trace.
pub(super) fn is_trace(folder: &Path) -> bool {
    holds_metadata(folder, DEPTH_MAX)
}

fn holds_metadata(folder: &Path, depth: u32) -> bool {
    let mut magic = Vec::new();
    // A folder of others may have a pipe of that name.
    if let Ok(Some(file)) = open_regular(&folder.join("metadata"))
        && file.take(8).read_to_end(&mut magic).is_ok()
        && METADATA_MAGICS.iter().any(|known| magic.starts_with(known))
    {
        return true;
    }
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut folders = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    depth > 0 && folders.any(|entry| holds_metadata(&entry.path(), depth - 1))
}

/// The standard output of `babeltrace2 FOLDER`, followed by its standard error.
struct Printed {
    child: Child,
    events: ChildStdout,
    said: Option<JoinHandle<Vec<u8>>>,
    rest: Cursor<Vec<u8>>,
}

/// Starts babeltrace2 on a folder.
pub(super) fn open(folder: &Path) -> Result<Box<dyn BufRead>, TraceError> {
    let cannot = |why| TraceError::io(folder, "read LTTng's folder", why);
    // babeltrace2 takes an argument that begins with `-` for an option. An absolute path begins with `/`.
    let folder = std::path::absolute(folder).map_err(cannot)?;
    let mut command = Command::new("babeltrace2");
    command.arg(&folder).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|why| match why.kind() {
        io::ErrorKind::NotFound => cannot(io::Error::other("this needs babeltrace2, which is not installed")),
        _ => cannot(why),
    })?;
    let (Some(events), Some(said)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(cannot(io::Error::other("babeltrace2 has no output")));
    };
    let listen = move || {
        let mut bytes = Vec::new();
        let mut said = said;
        let _ = (&mut said).take(SAID_BYTES_MAX).read_to_end(&mut bytes);
        let _ = io::copy(&mut said, &mut io::sink());
        bytes
    };
    let said = Some(std::thread::spawn(listen));
    Ok(Box::new(BufReader::with_capacity(1 << 16, Printed { child, events, said, rest: Cursor::default() })))
}

impl Read for Printed {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        if let Some(said) = self.said.take() {
            match self.events.read(to)? {
                0 => {
                    let said = said.join().unwrap_or_default();
                    if !self.child.wait()?.success() {
                        let said = String::from_utf8_lossy(&said).trim().to_string();
                        // babeltrace2 lists a chain of causes; the root cause is last.
                        let cause = said.lines().last().map_or("it failed without a message", str::trim);
                        return Err(io::Error::other(format!("babeltrace2: {cause}")));
                    }
                    self.rest = Cursor::new(said);
                }
                read => {
                    self.said = Some(said);
                    return Ok(read);
                }
            }
        }
        self.rest.read(to)
    }
}

impl Drop for Printed {
    fn drop(&mut self) {
        // If the import ended early, babeltrace2 would block on its output. If it has exited, this does nothing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
