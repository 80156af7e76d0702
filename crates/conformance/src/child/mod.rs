//! The child process: reads scripts, executes their operations, and reports the kernel's view after each operation.
//!
//! The code and memory that the process uses while it measures are resident and were used before, so it causes no
//! faults of its own.
//!
//! Input: scripts, each ended by `end`. Output:
//! - at the start `ready`, followed by the names of the facts that cannot be observed, or `skipped: REASON`;
//! - after every operation `op RET ERRNO MINFLT TRAPS` and `st RSS HUGE LAZY VMAS PTE SPLITS [STATE COUNT]...` (kB, kB,
//!   kB, count, kB, count, page states);
//! - after every script `end COLLAPSED SHORTAGE` (2 MiB ranges that khugepaged collapsed during the script, except
//!   while it waited for scans; signs of memory shortage), or `failed: REASON`.

mod arena;
mod files;
mod fork;
mod inspect;
mod own_memory;
mod second_thread;
mod shortage;
mod stale_entries;
mod touch;

use std::fs::File;
use std::io::{self, BufRead, Write};
use std::process::ExitCode;

use hksim_linux_mm::script::{ForkWriter, Op, ScanOf, Script, Step, Thread, Touch};
use hksim_linux_probe::lifetime::die_with_parent;
use hksim_linux_probe::resident::Resident;
use hksim_linux_probe::scans::Scans;
use hksim_linux_probe::traps::{Mode, TrapCounter};
use thiserror::Error;

use crate::unobservable::Unobservable;
use arena::{Arena, Returned, fill};
use files::MappedFile;
use fork::{Forked, Running};
use inspect::Inspector;
use own_memory::OwnMemory;
use second_thread::SecondThread;

/// First argument of a process that executes scripts.
pub const CHILD_ARGUMENT: &str = "__hksim-rules-child";

/// The reason why scripts cannot be executed on this machine or by this user.
#[derive(Debug, Error)]
#[error("{what}: {why}")]
pub(crate) struct Unsupported {
    what: &'static str,
    why: io::Error,
}

impl Unsupported {
    fn new(what: &'static str, why: io::Error) -> Self {
        Self { what, why }
    }
}

/// The `main` of a process started with [`CHILD_ARGUMENT`].
pub fn child_main() -> ExitCode {
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("rules child: {why}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    // If the parent has already exited, the input is closed, which ends this process too.
    // SAFETY: touches no memory.
    die_with_parent(unsafe { libc::getppid() });
    let mut child = match Child::new() {
        Ok(child) => child,
        Err(why) => {
            let mut out = io::stdout().lock();
            writeln!(out, "skipped: {why}")?;
            return out.flush();
        }
    };
    child.warm_up()?;
    child.out.line(format_args!("ready{}", child.unobservable()))?;
    child.out.flush()?;
    let mut input = io::stdin().lock();
    let mut text = String::new();
    while read_script(&mut input, &mut text)? {
        let executed = match text.parse::<Script>() {
            Ok(script) => child.run(&script),
            Err(why) => Err(io::Error::other(why)),
        };
        // hugetlb pages must be back in the pool before the parent changes modes again.
        Arena::clear();
        match executed {
            Ok(()) => {
                let (collapsed, shortage) = (child.inspector.collapsed(), child.inspector.shortage());
                child.out.line(format_args!("end {collapsed} {shortage}"))?;
            }
            Err(why) => child.out.line(format_args!("failed: {why}"))?,
        }
        child.out.flush()?;
    }
    Ok(())
}

/// Reads a script up to `end`. False if the input ends first.
fn read_script(input: &mut impl BufRead, text: &mut String) -> io::Result<bool> {
    text.clear();
    loop {
        let start = text.len();
        if input.read_line(text)? == 0 {
            return Ok(false);
        }
        if text[start..].trim() == "end" {
            return Ok(true);
        }
    }
}

/// Pins the process to its current CPU, because it can drain the kernel's per-CPU lists only of the CPU it runs on.
fn stay_on_this_cpu() {
    // SAFETY: a zeroed set is empty and valid; the kernel only reads it. If the call fails, LazyFree may lag.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if let Ok(cpu) = usize::try_from(libc::sched_getcpu()) {
            libc::CPU_SET(cpu, &mut set);
            libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        }
    }
}

fn minflt() -> u64 {
    // SAFETY: a zeroed `rusage` is valid, and the kernel writes only to `usage`.
    unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage.ru_minflt as u64
    }
}

struct Child {
    inspector: Inspector,
    traps: TrapCounter,
    mode: Mode,
    second: SecondThread,
    scans: Scans,
    forked: Forked,
    own: OwnMemory,
    zero: File,
    file: MappedFile,
    out: Output,
}

impl Child {
    fn new() -> Result<Child, Unsupported> {
        stay_on_this_cpu();
        let (traps, mode) = match TrapCounter::of_thread(Mode::All) {
            Ok(traps) => (traps, Mode::All),
            Err(_) => {
                let traps = TrapCounter::of_thread(Mode::User);
                (traps.map_err(|why| Unsupported::new("page-fault events", why))?, Mode::User)
            }
        };
        traps.enable();
        touch::install().map_err(|why| Unsupported::new("signal handlers", why))?;
        Ok(Child {
            inspector: Inspector::open()?,
            traps,
            mode,
            second: SecondThread::start(mode)?,
            scans: Scans::open().map_err(|why| Unsupported::new("khugepaged", why))?,
            forked: Forked::new().map_err(|why| Unsupported::new("shared memory", why))?,
            own: OwnMemory::default(),
            zero: File::open("/dev/zero").map_err(|why| Unsupported::new("/dev/zero", why))?,
            file: MappedFile::new().map_err(|why| Unsupported::new("memfd_create", why))?,
            out: Output::new().map_err(|why| Unsupported::new("memory", why))?,
        })
    }

    /// The names of the facts that cannot be observed, each preceded by a space.
    fn unobservable(&self) -> String {
        let mut unobservable = self.inspector.unobservable();
        unobservable.extend(Some(Unobservable::KernelTraps).filter(|_| self.mode == Mode::User));
        unobservable.iter().map(|unobservable| format!(" {}", unobservable.word())).collect()
    }

    /// Executes every path twice, so that code pages and signal frames are present before anything is measured.
    fn warm_up(&mut self) -> io::Result<()> {
        const WARM_UP: &str = "unmap 0 8\nw 0 16 1\nk 0 16 1\nr 7 3 1\nz 7 3 1\nprot 9 1 r\nmap 1 1 w p\nadv FREE 8 8\n\
            remap 8 1 20 1\nresize 20 1 2\nmlock 0 8 o\nmlock 0 8 -\nmunlock 0 8\nt w 0 16 1\nt r 30 1 1\nt k 0 16 1\n\
            mapfile 40 8\nf 40 8 1\nfork 8 16 1\nforkw 8 16 1\nt mapfile 50 8\nt f 50 8 1\nt unmap 0 16";
        let script: Script = WARM_UP.parse().map_err(io::Error::other)?;
        for _ in 0..2 {
            self.run(&script)?;
            self.own.make_resident();
        }
        self.out.discard();
        Ok(())
    }

    fn run(&mut self, script: &Script) -> io::Result<()> {
        let arena = self.start(script)?;
        if script.steps.iter().any(|step| step.op.locks()) {
            // Locking also makes all of the process's own memory present, which must not be charged to the script.
            self.own.make_resident();
        }
        let steps = script.steps.iter().try_for_each(|step| {
            self.step(arena, step)?;
            self.inspector.report(arena.addresses(), &mut self.out)
        });
        // SAFETY: touches no memory.
        unsafe { libc::munlockall() };
        steps
    }

    fn start(&mut self, script: &Script) -> io::Result<Arena> {
        let header = &script.header;
        Arena::clear();
        self.own.note()?;
        if let Some(room) = header.room {
            // The arena itself is one mapping.
            fill(room.saturating_add(1), self.own.mappings())?;
        }
        self.file.clear()?;
        if script.steps.iter().any(|step| step.op.scans()) {
            self.scans.prepare()?;
        }
        let arena = Arena::new(header.base, &self.zero, &self.file);
        self.inspector.begin();
        arena.map_whole()?;
        Ok(arena)
    }

    fn step(&mut self, arena: Arena, step: &Step) -> io::Result<()> {
        if let Op::Fork(writer, start, length, stride) = step.op {
            return self.fork_step(arena, writer, [start, length, stride]);
        }
        if let Op::Scan(of, scans) = step.op {
            return self.scan_step(arena, of, scans);
        }
        stale_entries::flush();
        let (faults, traps) = (minflt(), self.traps_taken());
        let Returned { ret, errno } = match step.thread {
            Thread::First => arena.perform(&step.op),
            Thread::Second => self.second.perform(arena, &step.op),
        };
        let (mut faults, mut traps) = (minflt() - faults, self.traps_taken() - traps);
        if let Op::TouchFile(..) = step.op {
            // How many pages of a file one fault maps is not modelled.
            (faults, traps) = (0, 0);
        }
        self.out.line(format_args!("op {ret} {errno} {faults} {traps}"))
    }

    /// Forks. Measuring starts once both processes have made their own memory present.
    fn fork_step(&mut self, arena: Arena, writer: ForkWriter, pages: [u64; 3]) -> io::Result<()> {
        let child = self.forked.start(arena, &self.own, writer, pages)?;
        self.own.make_resident();
        stale_entries::flush();
        let (faults, traps) = (minflt(), self.traps_taken());
        let ret = match writer {
            ForkWriter::Child => {
                child.wait()?;
                self.forked.faults()
            }
            ForkWriter::Parent => {
                let [start, length, stride] = pages;
                arena.touch(Touch::WriteOne, start, length, stride);
                minflt() - faults
            }
        };
        let (faults, traps) = (minflt() - faults, self.traps_taken() - traps);
        child.end();
        self.out.line(format_args!("op {ret} 0 {faults} {traps}"))
    }

    /// Waits for scans of khugepaged, whose collapses the script wants. With a child, measuring starts once both processes
    /// have made their own memory present.
    fn scan_step(&mut self, arena: Arena, of: ScanOf, scans: u64) -> io::Result<()> {
        let child = match of {
            ScanOf::Process => None,
            ScanOf::ProcessAndChild => Some(self.forked.start(arena, &self.own, ForkWriter::Parent, [0, 0, 1])?),
        };
        self.own.make_resident();
        stale_entries::flush();
        let (faults, traps, collapsed) = (minflt(), self.traps_taken(), self.inspector.collapsed());
        let waited = self.scans.wait(scans);
        let (faults, traps) = (minflt() - faults, self.traps_taken() - traps);
        let collapses = self.inspector.collapsed() - collapsed;
        self.inspector.expect_collapses(collapses);
        child.into_iter().for_each(Running::end);
        let Returned { ret, errno } = if waited? { Returned::default() } else { Returned::TIMED_OUT };
        self.out.line(format_args!("op {ret} {errno} {faults} {traps}"))
    }

    /// Page-fault exceptions of both threads.
    fn traps_taken(&self) -> u64 {
        self.traps.count() + self.second.traps()
    }
}

/// Standard output with a resident buffer.
struct Output {
    buffer: Resident<u8>,
    filled: usize,
}

const OUTPUT_BYTES: usize = 1 << 16;

impl Output {
    fn new() -> io::Result<Output> {
        Ok(Output { buffer: Resident::zeroed(OUTPUT_BYTES)?, filled: 0 })
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) -> io::Result<()> {
        self.write_fmt(line)?;
        self.write_all(b"\n")
    }

    fn discard(&mut self) {
        self.filled = 0;
    }
}

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.filled == self.buffer.len() {
            self.flush()?;
        }
        let taken = bytes.len().min(self.buffer.len() - self.filled);
        self.buffer[self.filled..self.filled + taken].copy_from_slice(&bytes[..taken]);
        self.filled += taken;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        let mut done = 0;
        while done < self.filled {
            // SAFETY: the bytes are initialised and inside the buffer.
            let wrote = unsafe { libc::write(1, self.buffer[done..].as_ptr().cast(), self.filled - done) };
            match usize::try_from(wrote) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(wrote) => done += wrote,
                Err(_) => return Err(io::Error::last_os_error()),
            }
        }
        self.filled = 0;
        Ok(())
    }
}
