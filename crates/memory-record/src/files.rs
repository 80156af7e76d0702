//! The files of a recording: written in a directory next to the output, and named at the end.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hksim_memory_trace::{Beginning, End, Event, Footer, Frame, Header, Module, Op, SiteId, Stack, Writer};
use hksim_recording_files as recording_files;

use crate::error::MemoryRecordError;
use crate::spaces::SpaceId;
use crate::unwind::Walked;

/// A file of one address space that is being written.
struct Open {
    writer: Writer,
    /// Threads by kernel thread id.
    threads: HashMap<u32, u32>,
    /// Lost events known at the beginning, and those whose place is known since then.
    lost_located: u64,
    time_last_ns: u64,
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
    template: Header,
    open: HashMap<SpaceId, Open>,
    /// Every address space, in order of creation.
    known: Vec<(SpaceId, Finished)>,
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
        let directory = with_suffix(output, &format!(".{}.recording", std::process::id()));
        fs::create_dir_all(&directory).map_err(|why| MemoryRecordError::io(&directory, "create", why))?;
        let (open, known) = (HashMap::new(), Vec::new());
        Ok(Self { output: output.to_path_buf(), directory, template, open, known, start_ns, stacks_incomplete: 0 })
    }

    /// Begins the file of an address space. Events were lost before, `lost_before`.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(
        &mut self,
        space: SpaceId,
        (pid, image): (u32, u32),
        parent: Option<SpaceId>,
        program: Option<String>,
        lost_before: u64,
    ) -> Result<(), MemoryRecordError> {
        let find = |id: SpaceId| self.known.iter().find(|(other, _)| *other == id).map(|(_, file)| file);
        let parent = parent.and_then(find);
        let is_started_program = pid == self.template.pid && image == 0;
        let command = match (program, parent) {
            _ if is_started_program => self.template.command.clone(),
            (Some(program), _) => vec![program],
            (None, Some(parent)) => parent.command.clone(),
            (None, None) => Vec::new(),
        };
        let beginning = match parent {
            Some(parent) => Beginning::Fork { parent_pid: parent.pid, parent_image: parent.image },
            None => Beginning::Exec,
        };
        let header = Header { command: command.clone(), pid, image, beginning, ..self.template.clone() };
        let path = self.directory.join(format!("{pid}-{image}.hkm"));
        let writer = Writer::create(&path, &header)?;
        self.open.insert(space, Open { writer, threads: HashMap::new(), lost_located: lost_before, time_last_ns: 0 });
        let finished = Finished { path, command, pid, image, beginning, end: End::Running, events: 0 };
        self.known.push((space, finished));
        Ok(())
    }

    /// The process of an address space.
    pub fn pid(&self, space: SpaceId) -> Option<u32> {
        self.known.iter().rfind(|(other, _)| *other == space).map(|(_, file)| file.pid)
    }

    /// Whether an address space is of the process that was started.
    pub fn is_program(&self, space: SpaceId) -> bool {
        self.known.iter().any(|(known, file)| *known == space && file.pid == self.template.pid)
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
        if let (Op::Map(map), Some(name)) = (&mut op, name) {
            map.name = Some(open.writer.name(&name));
        }
        if let Op::Lost { events } = op {
            open.lost_located += events;
        }
        let time_ns = time_ns.saturating_sub(self.start_ns);
        open.time_last_ns = time_ns;
        if stack.is_some_and(|stack| stack.end.is_incomplete()) {
            self.stacks_incomplete += 1;
        }
        let site = stack.map(|stack| site_of(&mut open.writer, stack));
        Ok(open.writer.push(Event { time_ns, thread, op, site })?)
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
            open.writer.push(Event { time_ns: open.time_last_ns, thread: 0, op, site: None })?;
        }
        if let Some((_, file)) = self.known.iter_mut().find(|(other, _)| *other == space) {
            file.end = footer.end;
            file.events = open.writer.events_total();
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
    /// A file cannot be moved; all files then stay where they are.
    pub fn name(self) -> Result<Vec<Finished>, MemoryRecordError> {
        let root_pid = self.template.pid;
        let mut files: Vec<Finished> = self.known.into_iter().map(|(_, file)| file).collect();
        let main = files.iter().rposition(|file| file.pid == root_pid);
        let folder = recording_files::folder(&self.output);
        if files.len() > 1 {
            fs::create_dir_all(&folder).map_err(|why| MemoryRecordError::io(&folder, "create", why))?;
        }
        let images: Vec<u32> = files.iter().map(|file| file.pid).collect();
        for (index, file) in files.iter_mut().enumerate() {
            let target = if Some(index) == main {
                self.output.clone()
            } else {
                let has_others = images.iter().filter(|&&pid| pid == file.pid).count() > 1;
                recording_files::beside(&self.output, &file.command, file.pid, has_others.then_some(file.image))
            };
            fs::rename(&file.path, &target).map_err(|why| MemoryRecordError::io(&target, "write", why))?;
            file.path = target;
        }
        // The directory is empty now; what cannot be removed does no harm.
        let _ = fs::remove_dir(&self.directory);
        if let Some(main) = main {
            files.swap(0, main);
        }
        Ok(files)
    }
}

fn site_of(writer: &mut Writer, walked: &Walked) -> SiteId {
    let frame = |(module, address): &(Option<Arc<Module>>, u64)| {
        let module = module.as_ref().map(|module| writer.module(module));
        Frame { module, address: *address, function: None, source: None }
    };
    let frames = walked.frames.iter().map(frame).collect();
    writer.site(&Stack { frames, end: walked.end })
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path.file_name().unwrap_or_default());
    name.push(suffix);
    path.with_file_name(name)
}
