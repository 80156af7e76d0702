//! Redirects the allocator calls of a running process to the instructions that begin its recording.
//!
//! The process is stopped only to map their memory: one thread, for two system calls. Then the slots through which its
//! modules call the allocator are written from outside. Each is an aligned word, so a call gets the old or the new value.

use std::ffi::CStr;
use std::fs;
use std::mem::offset_of;
use std::path::Path;
use std::thread;
use std::time::Duration;

use hksim_linux_probe::dynamic_section::Memory;
use hksim_linux_probe::stopped_thread::StoppedThread;

use crate::attach::instructions::{ENTRY_BYTES, code};
use crate::attach::leftover;
use crate::attach::loaded::{Module, Modules, NoModules, text};
use crate::attach::target::Target;
use crate::attachment::{
    AREA, AREA_BYTES, Area, BEGUN, CODE_BYTES, ENTRY, MAPPING_BYTES, NOT_LOADED, OBJECT_NAME, REDIRECTED,
    RESULT_NO_LOG, RESULT_NO_SESSION, RESULT_NO_SLOTS, RESULT_RECORDED, RESULT_RECORDING, SLOTS_MAX, Slot, WAITING,
};
use crate::error::RecordError;
use crate::object::Variant;

/// Calls that fail with EINTR if their thread is stopped: `epoll_wait` and its variants, `semop`, `semtimedop`,
/// `rt_sigtimedwait`, `io_getevents`. A thread in another call is stopped if there is one.
const CALLS_THAT_FAIL: [i64; 7] = [232, 281, 441, 65, 220, 128, 208];
/// Longest time in which a thread must stop, before another one is tried.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// C++'s `operator new(size_t)`.
const OPERATOR_NEW: &CStr = c"_Znwm";
/// A function that only glibc defines.
const OF_LIBC: &CStr = c"gnu_get_libc_version";
/// Words in the file of a Go program.
const GO_SECTION: &[u8] = b"\xff Go buildinf:";
/// Time to wait for a thread that may have begun just before it was cancelled.
const CANCEL_DELAY: Duration = Duration::from_millis(20);

/// A process, and what it has loaded.
pub struct Plan<'a> {
    target: &'a Target,
    modules: Modules,
    /// Addresses of [`REDIRECTED`]; 0 for functions that the process does not have.
    functions: [u64; REDIRECTED.len()],
    /// Whether a slot whose function is not looked up yet leads to the program's allocator.
    is_libc: bool,
    /// Which object suits the process's allocator.
    pub variant: Variant,
    /// The object of an earlier recorder with the same code.
    earlier: Option<Earlier>,
}

/// The object and the memory of an earlier recorder.
#[derive(Clone, Debug)]
struct Earlier {
    entry: u64,
    area: u64,
    module: Module,
}

/// What the process says about its recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It has made no call yet.
    Waits,
    /// The recording has begun.
    Records,
    /// The recording has ended, and the process's slots are restored.
    Left,
    /// It cannot be recorded, for this reason.
    Fails(String),
}

impl<'a> Plan<'a> {
    /// Finds the process's allocator, without any effect on the process.
    ///
    /// # Errors
    /// It has none that can be recorded.
    pub fn of(target: &'a Target, operators: bool) -> Result<Self, RecordError> {
        let refused = |why: String| RecordError::CannotAttach { pid: target.pid, why };
        let memory = target.memory.read_once();
        let modules = Modules::read(target.pid, &memory).map_err(|why| refused(why_no_modules(target.pid, why)))?;
        let Some((allocator, _)) = modules.find(&memory, c"malloc") else {
            return Err(refused("it has loaded no malloc".into()));
        };
        if allocator.name.is_empty() {
            return Err(refused(format!(
                "it defines malloc itself, and calls it without a slot that could be redirected; {BY_NAME}"
            )));
        }
        if modules.recorders(&memory).any(|recorder| std::ptr::eq(recorder, allocator)) {
            return Err(refused(format!(
                "hksim record started it, and its recorder is loaded; use hksim mark {} to control that recording",
                target.pid
            )));
        }
        let serves_operators = operators || allocator.section.symbol(&memory, OPERATOR_NEW).is_some();
        let variant = if serves_operators { Variant::MallocAndOperators } else { Variant::Malloc };
        let is_libc = allocator.section.symbol(&memory, OF_LIBC).is_some();
        let functions = REDIRECTED.map(|name| modules.find(&memory, name).map_or(0, |(_, address)| address));
        let earlier = modules.recorders(&memory).find_map(|recorder| Earlier::of(&memory, recorder, variant));
        Ok(Self { target, functions, is_libc, variant, earlier, modules })
    }

    /// Whether the process has loaded the object already.
    pub fn has_object(&self) -> bool {
        self.earlier.is_some()
    }

    /// Maps the memory, if the process has none of an earlier recorder, and redirects the slots.
    ///
    /// # Errors
    /// The process cannot be stopped, or its memory not be written.
    pub fn redirect(&self, object: Option<&Path>, session: &Path) -> Result<Redirection<'a>, RecordError> {
        let mut area = self.area(object, session)?;
        let known = match &self.earlier {
            Some(earlier) => leftover::release(self.target, earlier.area).map(|()| Some(earlier.area)),
            None => leftover::find(self.target),
        }?;
        let slots = self.slots();
        if slots.is_empty() {
            let why = "none of its modules calls an allocator function".to_string();
            return Err(RecordError::CannotAttach { pid: self.target.pid, why });
        }
        let at = known.map_or_else(|| map(self.target), Ok)?;
        area.stack_end = at + MAPPING_BYTES as u64;
        let redirection = Redirection { target: self.target, at };
        for (place, (slot, _)) in area.slots.iter_mut().zip(&slots) {
            *place = *slot;
        }
        area.slots_used = slots.len() as u64;
        // A thread may still come from a slot of an earlier recorder, and must not see a part of the area.
        area.cancelled = 1;
        let failed = |why| redirection.refused(format!("its memory cannot be written: {why}"));
        self.target.memory.write(at, bytes_of(&area)).map_err(failed)?;
        self.target.memory.write(at + AREA_BYTES as u64, code()).map_err(failed)?;
        redirection.set_cancelled(0).map_err(failed)?;
        for (slot, index) in slots {
            let entry = at + (AREA_BYTES + index * ENTRY_BYTES) as u64;
            self.target.memory.write(slot.address, &entry.to_ne_bytes()).map_err(failed)?;
        }
        Ok(redirection)
    }

    fn area(&self, object: Option<&Path>, session: &Path) -> Result<Box<Area>, RecordError> {
        let memory = self.target.memory.read_once();
        let refused = |why: String| RecordError::CannotAttach { pid: self.target.pid, why };
        let find = |name: &CStr| match self.modules.find(&memory, name) {
            Some((_, address)) => Ok(address),
            None => Err(refused(format!(
                "it has no {} with which the recorder could be loaded; it needs glibc 2.34 or newer, or libdl",
                name.to_string_lossy()
            ))),
        };
        // SAFETY: plain numbers, valid when zeroed.
        let mut area: Box<Area> = Box::new(unsafe { std::mem::zeroed() });
        area.state = WAITING;
        area.loader_start = self.modules.loader.start;
        area.loader_bytes = self.modules.loader.end - self.modules.loader.start;
        area.loader_state = self.modules.loader_state;
        area.dlopen = find(c"dlopen")?;
        area.dlsym = find(c"dlsym")?;
        area.dlerror = find(c"dlerror")?;
        area.errno_location = find(c"__errno_location")?;
        area.entry = self.earlier.as_ref().map_or(0, |earlier| earlier.entry);
        area.all_signals = u64::MAX;
        area.functions = self.functions;
        put(&mut area.entry_name, ENTRY.to_bytes());
        put(&mut area.object, object.map_or(&[], |path| path.as_os_str().as_encoded_bytes()));
        put(&mut area.session, session.as_os_str().as_encoded_bytes());
        Ok(area)
    }

    /// The slots to redirect, and the indices of their functions in [`REDIRECTED`].
    fn slots(&self) -> Vec<(Slot, usize)> {
        let memory = self.target.memory.read_once();
        let mut slots = Vec::new();
        for module in self.modules.all.iter().filter(|module| module.range != self.modules.loader) {
            let is_lazy = self.is_libc || module.name.is_empty();
            module.section.slots(&memory, &REDIRECTED, &mut |address, index| {
                let Some(value) = memory.word(address).filter(|_| address.is_multiple_of(8)) else {
                    return;
                };
                let is_recorders = self.earlier.as_ref().is_some_and(|earlier| earlier.module.range.contains(&value));
                let is_function = value == self.functions[index] && value != 0;
                if is_function || is_recorders || is_lazy && module.range.contains(&value) {
                    slots.push((Slot { address, value }, index));
                }
            });
        }
        slots.truncate(SLOTS_MAX);
        slots
    }
}

impl Earlier {
    /// The recorder's object in `module`, if it has the same code as the one that would be loaded.
    fn of(memory: &impl Memory, module: &Module, variant: Variant) -> Option<Self> {
        let is_same = || same_code(memory, module, variant.bytes());
        let entry = module.section.symbol(memory, ENTRY).filter(|_| module.name.ends_with(OBJECT_NAME) && is_same())?;
        let area = memory.word(module.section.symbol(memory, AREA)?).filter(|&area| area != 0)?;
        Some(Self { entry, area, module: module.clone() })
    }
}

/// Whether the module's first bytes and its entry are those of the file.
fn same_code(memory: &impl Memory, module: &Module, file: &[u8]) -> bool {
    use ::object::{Object, ObjectSegment, Segment, SegmentFlags};
    let Ok(parsed) = ::object::File::parse(file) else {
        return false;
    };
    let read_only = |segment: &Segment<'_, '_>| match segment.flags() {
        SegmentFlags::Elf { p_flags, .. } => p_flags.0 & 2 == 0,
        _ => false,
    };
    parsed.segments().filter(read_only).all(|segment| {
        let Ok(expected) = segment.data() else {
            return false;
        };
        let mut loaded = vec![0; expected.len()];
        memory.read(module.bias + segment.address(), &mut loaded) && loaded == expected
    })
}

/// A process whose calls are redirected.
pub struct Redirection<'a> {
    pub(super) target: &'a Target,
    /// Address of the area.
    pub(super) at: u64,
}

impl Redirection<'_> {
    /// What the process says now; `None` if it has ended or executes another program.
    pub fn answer(&self) -> Option<Answer> {
        let result = self.field(offset_of!(Area, result))?;
        Some(match self.field(offset_of!(Area, state))? {
            BEGUN if result == RESULT_RECORDING && self.field(offset_of!(Area, left))? != 0 => Answer::Left,
            BEGUN if result == RESULT_RECORDING => Answer::Records,
            BEGUN => Answer::Fails(why_not(result).into()),
            NOT_LOADED => {
                let message = text(&self.target.memory, self.at + offset_of!(Area, message) as u64);
                Answer::Fails(format!("it cannot load the recorder: {}", message.unwrap_or_default()))
            }
            _ => Answer::Waits,
        })
    }

    /// Whether no thread has come along.
    pub(super) fn is_waiting(&self) -> bool {
        self.field(offset_of!(Area, state)) == Some(WAITING)
    }

    /// Whether no thread may begin any more.
    pub(super) fn is_cancelled(&self) -> bool {
        self.field(offset_of!(Area, cancelled)).is_some_and(|cancelled| cancelled != 0)
    }

    fn set_cancelled(&self, cancelled: u32) -> std::io::Result<()> {
        self.target.memory.write(self.at + offset_of!(Area, cancelled) as u64, &cancelled.to_ne_bytes())
    }

    fn field(&self, offset: usize) -> Option<u32> {
        let mut bytes = [0; 4];
        self.target.memory.read(self.at + offset as u64, &mut bytes).then(|| u32::from_ne_bytes(bytes))
    }

    /// Gives the process its slots back, if it has not begun to record.
    pub fn cancel(&self) {
        // If the memory cannot be written, the process has ended.
        let _ = self.set_cancelled(1);
        thread::sleep(CANCEL_DELAY);
        if !matches!(self.answer(), Some(Answer::Waits | Answer::Fails(_))) {
            return;
        }
        let code = self.at + AREA_BYTES as u64..self.at + (AREA_BYTES + CODE_BYTES) as u64;
        let used = self.target.memory.word(self.at + offset_of!(Area, slots_used) as u64).unwrap_or(0);
        for index in 0..(used as usize).min(SLOTS_MAX) {
            let at = self.at + (offset_of!(Area, slots) + index * size_of::<Slot>()) as u64;
            let slot = self.target.memory.word(at).zip(self.target.memory.word(at + 8));
            if let Some((address, value)) = slot
                && self.target.memory.word(address).is_some_and(|now| code.contains(&now))
            {
                let _ = self.target.memory.write(address, &value.to_ne_bytes());
            }
        }
    }

    pub(super) fn refused(&self, why: String) -> RecordError {
        RecordError::CannotAttach { pid: self.target.pid, why }
    }
}

/// Maps memory in the process: the area, instructions, a stack.
fn map(target: &Target) -> Result<u64, RecordError> {
    let refused = |why: String| RecordError::CannotAttach { pid: target.pid, why };
    let threads = threads(target.pid);
    // A thread that does not stop is released when the thread that traces it ends.
    let traced = thread::spawn(move || {
        let mut why = std::io::Error::from_raw_os_error(libc::ESRCH);
        for tid in threads {
            match map_in(tid) {
                Ok(at) => return Ok(at),
                Err(failed) => why = failed,
            }
        }
        Err(why)
    });
    let mapped = traced.join().unwrap_or_else(|_| Err(std::io::Error::other("the tracing thread failed")));
    mapped.map_err(|why| refused(format!("it cannot be stopped, or cannot map memory: {why}")))
}

fn map_in(tid: u32) -> std::io::Result<u64> {
    let mut stopped = StoppedThread::stop(tid, STOP_TIMEOUT)?;
    let (bytes, no_fd) = (MAPPING_BYTES as u64, u64::MAX);
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as u64;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
    let at = stopped.system_call(libc::SYS_mmap, [0, bytes, protection, flags, no_fd, 0])?;
    let executable = (libc::PROT_READ | libc::PROT_EXEC) as u64;
    let code = [at + AREA_BYTES as u64, CODE_BYTES as u64, executable, 0, 0, 0];
    let protected = stopped.system_call(libc::SYS_mprotect, code);
    if protected.is_err() {
        stopped.system_call(libc::SYS_munmap, [at, bytes, 0, 0, 0, 0])?;
    }
    protected.map(|_| at)
}

/// The threads of a process; those whose system call would fail come last.
fn threads(pid: u32) -> Vec<u32> {
    let entries = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut threads: Vec<u32> = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    threads.sort_by_key(|tid| {
        let call = fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")).unwrap_or_default();
        let number = call.split(' ').next().and_then(|number| number.parse::<i64>().ok());
        number.is_some_and(|number| CALLS_THAT_FAIL.contains(&number))
    });
    threads
}

fn put(place: &mut [u8], bytes: &[u8]) {
    // The callers keep paths below the limit; the last byte stays zero.
    let kept = bytes.len().min(place.len() - 1);
    place[..kept].copy_from_slice(&bytes[..kept]);
}

fn bytes_of(area: &Area) -> &[u8] {
    // SAFETY: the area is plain numbers without padding.
    unsafe { std::slice::from_raw_parts((&raw const *area).cast(), size_of::<Area>()) }
}

/// What records a process without anything in it.
const BY_NAME: &str = "name its functions to record them from outside, as root: --functions malloc,calloc,realloc,free";

fn why_no_modules(pid: u32, why: NoModules) -> String {
    match why {
        NoModules::Static if is_go(pid) => {
            "it is a static Go program, which has no malloc: its runtime asks the kernel for memory (record its page \
             operations with --memory)"
                .into()
        }
        NoModules::Static => format!("it is statically linked, so the recorder cannot be loaded into it; {BY_NAME}"),
        NoModules::OtherLoader(path) => format!(
            "{path} has loaded it, not glibc's dynamic linker, the only one into which the recorder can be loaded; {BY_NAME}"
        ),
        NoModules::Unreadable => "its list of loaded modules cannot be read; it may have just begun".into(),
    }
}

fn is_go(pid: u32) -> bool {
    fs::read(format!("/proc/{pid}/exe"))
        .is_ok_and(|file| file.windows(GO_SECTION.len()).any(|bytes| bytes == GO_SECTION))
}

fn why_not(result: u32) -> &'static str {
    match result {
        RESULT_NO_SESSION => "it cannot open the directory of its log",
        RESULT_NO_LOG => "it cannot create its log: no space is left, or its limits or a filter forbid it",
        RESULT_NO_SLOTS => "none of its modules calls an allocator function",
        RESULT_RECORDED => "another hksim record is recording it",
        _ => "its recorder is of another version of hksim",
    }
}
