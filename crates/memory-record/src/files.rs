//! The files of a recording: written in a directory next to the output, and named at the end. If the recorder is killed,
//! the directory stays, and [`crate::recover`] names its files.

use std::collections::HashMap;
use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hksim_memory_trace::{Beginning, End, Event, Footer, Frame, Header, Inherited, Module, Op, SiteId, Writer};
use hksim_recording_files as recording_files;

use crate::error::MemoryRecordError;
use crate::interpreter::SpaceOrigin;
use crate::spaces::{SpaceId, ThpState};
use crate::unwind::Walked;

/// In the name of the directory, between the output's name and random characters.
pub const DIRECTORY_INFIX: &str = ".recording-";
/// Extension of the files in it.
pub const EXTENSION: &str = "hkm";

/// A file of one address space that is being written.
struct Open {
    writer: Writer,
    /// Threads by kernel thread id.
    threads: HashMap<u32, u32>,
    /// Lost events known at the beginning, and those whose place is known since then.
    lost_located: u64,
    time_last_ns: u64,
    /// Operations that tell what was there at the start.
    at_start: u64,
}

/// The recording of one address space.
#[derive(Clone, Debug)]
pub struct Finished {
    /// Where it is written; later where it was moved.
    pub path: PathBuf,
    /// The program.
    pub command: Vec<String>,
    /// The process.
    pub pid: u32,
    /// Number of the address space within the process.
    pub image: u32,
    /// How it began.
    pub beginning: Beginning,
    /// How it ended.
    pub end: End,
    /// Events written.
    pub events: u64,
}

/// All files of a recording.
pub struct Files {
    output: PathBuf,
    directory: PathBuf,
    /// The open directory, which holds a lock until the recorder ends.
    _lock: File,
    template: Header,
    open: HashMap<SpaceId, Open>,
    /// Every address space, in order of creation.
    known: Vec<Finished>,
    /// Their places in `known`.
    places: HashMap<SpaceId, usize>,
    start_ns: u64,
    /// Calls whose callers could not all be found.
    pub stacks_incomplete: u64,
}

impl Files {
    /// Creates the directory for the files. `template` has what all headers share; times count from `start_ns`.
    ///
    /// # Errors
    /// The directory cannot be created.
    pub fn create(output: &Path, template: Header, start_ns: u64) -> Result<Self, MemoryRecordError> {
        let parent = output.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let name = output.file_name().unwrap_or_default().to_string_lossy();
        let failed = |why| MemoryRecordError::io(parent, "create the recording's directory in", why);
        // Only this user can open it, and nobody can guess its name.
        let directory = tempfile::Builder::new()
            .prefix(&format!(".{name}{DIRECTORY_INFIX}"))
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in(parent);
        let directory = directory.map_err(failed)?;
        let lock = File::open(directory.path()).map_err(failed)?;
        // File systems without locks cannot show that the recorder is alive.
        lock_now(&lock);
        let (open, known, places) = (HashMap::new(), Vec::new(), HashMap::new());
        let (output, directory) = (output.to_path_buf(), directory.keep());
        Ok(Self { output, directory, _lock: lock, template, open, known, places, start_ns, stacks_incomplete: 0 })
    }

    /// Begins the file of an address space. Events were lost before, `lost_before`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(
        &mut self,
        space: SpaceId,
        (pid, image): (u32, u32),
        origin: SpaceOrigin,
        thp: ThpState,
        lost_before: u64,
    ) -> Result<(), MemoryRecordError> {
        let header = self.header((pid, image), origin, thp);
        let (command, beginning) = (header.command.clone(), header.beginning);
        let path = self.directory.join(format!("{pid}-{image}.{EXTENSION}"));
        let writer = Writer::create(&path, &header)?;
        self.open.insert(
            space,
            Open { writer, threads: HashMap::new(), lost_located: lost_before, time_last_ns: 0, at_start: 0 },
        );
        let finished = Finished { path, command, pid, image, beginning, end: End::Running, events: 0 };
        self.places.insert(space, self.known.len());
        self.known.push(finished);
        Ok(())
    }

    fn known(&self, space: SpaceId) -> Option<&Finished> {
        self.places.get(&space).map(|&place| &self.known[place])
    }

    /// The header of an address space.
    fn header(&self, (pid, image): (u32, u32), origin: SpaceOrigin, thp: ThpState) -> Header {
        let is_started_program = pid == self.template.pid && image == 0;
        let (thp_disable, thp_chosen) = (thp.disable, thp.is_chosen);
        // A program can set limits for those that it executes.
        let limits = self.template.inherited.limits.clone().filter(|_| is_started_program);
        let inherited = Inherited { thp_disable, thp_chosen, limits, ..self.template.inherited };
        let header = Header { pid, image, inherited, ..self.template.clone() };
        match origin {
            SpaceOrigin::Executed(_) if is_started_program => header,
            // Also of a process that was attached to: what it executes is known from its start.
            SpaceOrigin::Executed(program) => Header { command: vec![program], beginning: Beginning::Exec, ..header },
            SpaceOrigin::Forked(parent) => match self.known(parent) {
                Some(parent) => {
                    let beginning = Beginning::Fork { parent_pid: parent.pid, parent_image: parent.image };
                    Header { command: parent.command.clone(), beginning, ..header }
                }
                None => Header { command: Vec::new(), ..header },
            },
            SpaceOrigin::Attached(process) => {
                let process = *process;
                let (personality, limits) = (process.personality, Some(process.limits));
                let (stopped_ns, lazy_unknown_bytes) = (process.stopped_ns, process.lazy_unknown_bytes);
                Header {
                    command: process.command,
                    directory: process.directory,
                    environment: process.environment,
                    beginning: Beginning::Attached { stopped_ns, lazy_unknown_bytes },
                    inherited: Inherited { personality, limits, ..header.inherited },
                    ..header
                }
            }
        }
    }

    /// The process of an address space.
    pub fn pid(&self, space: SpaceId) -> Option<u32> {
        self.known(space).map(|file| file.pid)
    }

    /// Whether an address space is of the process that was started.
    pub fn is_program(&self, space: SpaceId) -> bool {
        self.known(space).is_some_and(|file| file.pid == self.template.pid)
    }

    /// Writes an event, with the name of its mapping and the stack of its call.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn push(
        &mut self,
        space: SpaceId,
        time_ns: u64,
        tid: u32,
        mut op: Op,
        (name, stack): (Option<String>, Option<&Walked>),
    ) -> Result<(), MemoryRecordError> {
        let Some(open) = self.open.get_mut(&space) else { return Ok(()) };
        let next = open.threads.len() as u32;
        let thread = *open.threads.entry(tid).or_insert(next);
        if let (Some(map), Some(name)) = (op.mapping_mut(), name) {
            map.name = Some(open.writer.name(&name));
        }
        if let Op::Lost { events } = op {
            open.lost_located += events;
        }
        open.at_start += u64::from(op.is_at_start());
        let time_ns = time_ns.saturating_sub(self.start_ns);
        open.time_last_ns = time_ns;
        if stack.is_some_and(|stack| stack.end.is_incomplete()) {
            self.stacks_incomplete += 1;
        }
        let site = stack.map_or(SiteId::UNKNOWN, |stack| site_of(&mut open.writer, stack));
        Ok(open.writer.push(Event { time_ns, thread, op, site })?)
    }

    /// Writes the events so far of all address spaces, in case the recorder is killed.
    ///
    /// # Errors
    /// A file cannot be written.
    pub fn flush(&mut self) -> Result<(), MemoryRecordError> {
        self.open.values_mut().try_for_each(|open| Ok(open.writer.flush()?))
    }

    /// Completes the file of an address space that ended at `time_ns`. Losses without a known place are put at its end.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn end(&mut self, space: SpaceId, time_ns: u64, footer: Footer) -> Result<(), MemoryRecordError> {
        let Some(mut open) = self.open.remove(&space) else { return Ok(()) };
        let events = footer.lost_events.saturating_sub(open.lost_located);
        if events > 0 {
            let op = Op::Lost { events };
            open.writer.push(Event { time_ns: open.time_last_ns, thread: 0, op, site: SiteId::UNKNOWN })?;
        }
        if let Some(&place) = self.places.get(&space) {
            let file = &mut self.known[place];
            file.end = footer.end;
            file.events = open.writer.events_total() - open.at_start;
        }
        let end_ns = Some(time_ns.saturating_sub(self.start_ns));
        Ok(open.writer.finish(&Footer { end_ns, ..footer })?)
    }

    /// Removes all files: nothing was recorded, or the rest could not be written. What cannot be removed does no harm.
    pub fn discard(&mut self) {
        self.open.clear();
        let _ = fs::remove_dir_all(&self.directory);
    }

    /// Moves the files to their names. The last program that the started process executed gets the output's name, all
    /// others go to a directory next to it. Files of earlier recordings are replaced.
    ///
    /// # Errors
    /// A file cannot be moved; it and those after it then stay in the directory, which the error names.
    pub fn name(self) -> Result<Vec<Finished>, MemoryRecordError> {
        let named = move_to_names(self.known, self.template.pid, &self.output, &self.directory);
        named.map_err(|why| MemoryRecordError::Kept { directory: self.directory, why: Box::new(why) })
    }
}

/// Moves files from a directory to their names, as [`Files::name`] does.
///
/// # Errors
/// As for [`Files::name`].
pub fn move_to_names(
    mut files: Vec<Finished>,
    root_pid: u32,
    output: &Path,
    directory: &Path,
) -> Result<Vec<Finished>, MemoryRecordError> {
    let main = files.iter().rposition(|file| file.pid == root_pid);
    if files.len() > 1 {
        let folder = recording_files::folder(output);
        // SAFETY: has no precondition.
        let user = unsafe { libc::geteuid() };
        recording_files::create_folder(output, user).map_err(|why| MemoryRecordError::io(&folder, "create", why))?;
    }
    let mut images: HashMap<u32, u32> = HashMap::new();
    files.iter().for_each(|file| *images.entry(file.pid).or_default() += 1);
    for (index, file) in files.iter_mut().enumerate() {
        let target = if Some(index) == main {
            output.to_path_buf()
        } else {
            let has_others = images[&file.pid] > 1;
            recording_files::beside(output, &file.command, file.pid, has_others.then_some(file.image))
        };
        fs::rename(&file.path, &target).map_err(|why| MemoryRecordError::io(&target, "write", why))?;
        file.path = target;
    }
    // The directory is empty now; what cannot be removed does no harm.
    let _ = fs::remove_dir(directory);
    if let Some(main) = main {
        files.swap(0, main);
    }
    Ok(files)
}

/// Locks an open directory; false if another process holds the lock.
pub fn lock_now(directory: &File) -> bool {
    // SAFETY: a call with an open descriptor and flags.
    let locked = unsafe { libc::flock(directory.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) };
    locked == 0 || io::Error::last_os_error().kind() != io::ErrorKind::WouldBlock
}

fn site_of(writer: &mut Writer, walked: &Walked) -> SiteId {
    let frame = |(module, address): &(Option<Arc<Module>>, u64)| {
        let module = module.as_ref().map(|module| writer.module(module));
        Frame { module, address: *address, function: None, source: None }
    };
    let frames: Vec<Frame> = walked.frames.iter().map(frame).collect();
    writer.site(frames, walked.end)
}
