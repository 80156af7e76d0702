//! The files of a recording: written in a directory next to the output, and named at the end.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hksim_memory_trace::{Beginning, End, Event, Footer, Frame, Header, Module, Op, SiteId, Stack, Writer};

use crate::error::MemoryRecordError;
use crate::spaces::SpaceId;
use crate::unwind::Walked;

/// Maximum number of bytes of a program's name in a file name.
const PROGRAM_BYTES_MAX: usize = 64;

/// A file of one address space that is being written.
struct Open {
    writer: Writer,
    /// Threads by kernel thread id.
    threads: HashMap<u32, u32>,
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

    /// Begins the file of an address space.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn begin(
        &mut self,
        space: SpaceId,
        (pid, image): (u32, u32),
        parent: Option<SpaceId>,
        program: Option<String>,
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
        self.open.insert(space, Open { writer, threads: HashMap::new() });
        let finished = Finished { path, command, pid, image, beginning, end: End::Running, events: 0 };
        self.known.push((space, finished));
        Ok(())
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
        let time_ns = time_ns.saturating_sub(self.start_ns);
        if stack.is_some_and(|stack| stack.end.is_incomplete()) {
            self.stacks_incomplete += 1;
        }
        let site = stack.map(|stack| site_of(&mut open.writer, stack));
        Ok(open.writer.push(Event { time_ns, thread, op, site })?)
    }

    /// Completes the file of an address space.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn end(&mut self, space: SpaceId, footer: Footer) -> Result<(), MemoryRecordError> {
        let Some(open) = self.open.remove(&space) else { return Ok(()) };
        if let Some((_, file)) = self.known.iter_mut().find(|(other, _)| *other == space) {
            file.end = footer.end;
            file.events = open.writer.events_total();
        }
        Ok(open.writer.finish(&footer)?)
    }

    /// Removes all files: nothing was recorded. What cannot be removed does no harm.
    pub fn discard(&mut self) {
        for (_, file) in &self.known {
            let _ = fs::remove_file(&file.path);
        }
        let _ = fs::remove_dir(&self.directory);
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
        let folder = with_suffix(&self.output.with_extension(""), ".processes");
        if files.len() > 1 {
            fs::create_dir_all(&folder).map_err(|why| MemoryRecordError::io(&folder, "create", why))?;
        }
        let images: Vec<u32> = files.iter().map(|file| file.pid).collect();
        for (index, file) in files.iter_mut().enumerate() {
            let target = if Some(index) == main {
                self.output.clone()
            } else {
                let has_others = images.iter().filter(|&&pid| pid == file.pid).count() > 1;
                folder.join(file_name(file, has_others, self.output.extension()))
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

/// `PROGRAM.PID.hkm`, or `PROGRAM.PID-IMAGE.hkm` if the process had several images.
fn file_name(file: &Finished, has_others: bool, extension: Option<&std::ffi::OsStr>) -> OsString {
    let word = file.command.first().map_or("", String::as_str);
    let name = word.rsplit('/').next().unwrap_or_default().trim_start_matches(['-', '.']);
    let plain = |letter: char| if letter.is_ascii_alphanumeric() || "._+-".contains(letter) { letter } else { '_' };
    let name: String = name.chars().map(plain).take(PROGRAM_BYTES_MAX).collect();
    let name = if name.is_empty() { "process" } else { &name };
    let mut name = OsString::from(match has_others {
        true => format!("{name}.{}-{}", file.pid, file.image),
        false => format!("{name}.{}", file.pid),
    });
    if let Some(extension) = extension {
        name.push(".");
        name.push(extension);
    }
    name
}
