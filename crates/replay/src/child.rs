//! The child process: reads its job, performs one run, sends the report.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;

use hksim_linux_probe::maps::Maps;
use hksim_timing::clock::process_cpu_ns;
use hksim_trace::hkt::TraceReader;
use hksim_trace::profile::WithProfiles;

use crate::design::{DesignRun, KnownDesign};
use crate::error::ChildError;
use crate::explained::ExplainedRun;
use crate::extents::Extent;
use crate::limited;
use crate::malloc::MallocRun;
use crate::native;
use crate::ordered;
use crate::prefault::MeasuredHeap;
use crate::protocol::{Channel, Report, Timing};
use crate::spec::{Job, Mode, Run, Target};
use crate::system;
use crate::threaded::Threaded;
use crate::unobserved::UnobservedRun;
use crate::window::PreparedTrace;

/// The child's `main`. A program must call it if its first argument is [`CHILD_ARGUMENT`](crate::CHILD_ARGUMENT). It
/// reads the job from standard input, performs the run, and reports on standard output. With glibc, and with
/// [`HarnessMemory`](crate::HarnessMemory) as the global allocator, the child starts before `main` instead.
pub fn child_main() -> ExitCode {
    child_main_with(&[])
}

/// [`child_main`] of a program that replays allocator designs: `designs` are those that it may name in a
/// [`Target::Design`]. A child that runs a design always starts in `main`.
pub fn child_main_with(designs: &[KnownDesign]) -> ExitCode {
    if child_exit_code(designs) == libc::EXIT_SUCCESS { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// [`child_main_with`] for a child that starts before `main`. Returns the exit code.
pub(crate) fn child_exit_code(designs: &[KnownDesign]) -> i32 {
    // Ends the process at any panic. A panic by itself ends only its thread, and other threads would wait for it
    // forever.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::exit(PANIC_EXIT_CODE);
    }));
    match serve(designs) {
        Ok(()) => libc::EXIT_SUCCESS,
        Err(why) => {
            eprintln!("replay child: {why}");
            libc::EXIT_FAILURE
        }
    }
}

/// The exit status of a program that panics.
const PANIC_EXIT_CODE: i32 = 101;

fn serve(designs: &[KnownDesign]) -> io::Result<()> {
    let mut channel = take_channel()?;
    let begin_ns = process_cpu_ns();
    let report = match perform(&mut channel, designs) {
        Ok(Report::Timed(timing)) => Report::Timed(Timing { job_ns: process_cpu_ns() - begin_ns, ..timing }),
        Ok(report) => report,
        Err(why @ ChildError::NoTraps(_)) => Report::Refused { message: why.to_string() },
        Err(why) => Report::Failed { message: why.to_string() },
    };
    channel.report(&report)
}

/// Turns standard output into the channel. Other writes to standard output then go to standard error.
fn take_channel() -> io::Result<Channel> {
    // SAFETY: descriptors 1 and 2 are open, because the parent opened them; nothing else uses the new one.
    let out = unsafe {
        let out = libc::fcntl(libc::STDOUT_FILENO, libc::F_DUPFD_CLOEXEC, 3);
        if out < 0 || libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) < 0 {
            return Err(io::Error::last_os_error());
        }
        OwnedFd::from_raw_fd(out)
    };
    Channel::new(out)
}

fn perform(channel: &mut Channel, designs: &[KnownDesign]) -> Result<Report, ChildError> {
    let job: Job = serde_json::from_reader(io::stdin().lock())
        .map_err(io::Error::from)
        .map_err(ChildError::system("read the job"))?;
    job.cpu.map_or(Ok(()), stay_on)?;
    let pause_after = job.spec.stop_at.filter(|_| job.run == Run::Measured);
    let mut trace = PreparedTrace::new(WithProfiles::new(TraceReader::open(&job.spec.trace)?), pause_after, &job.spec)?;
    let touch = job.spec.touch;
    let without_allocator = UnobservedRun { heap: MeasuredHeap::Reservation, touch };
    match (&job.spec.on, job.spec.mode) {
        (Target::Native(design), Mode::Ordered) => {
            let plan = design.prepare().map_err(ChildError::Design)?;
            match job.run {
                Run::Control => ordered::control(Extent::of(&plan.layout), &mut trace),
                Run::Measured => native::measured(plan, touch, &mut trace, channel),
                Run::Timed => native::timed(plan, touch, &mut trace),
                Run::Harness => without_allocator.harness(&mut trace),
                Run::Sampled => native::sampled(plan, touch, &mut trace),
                Run::Pieces | Run::HarnessPieces | Run::Apart | Run::Explained(_) | Run::ExplainedStart(_) => {
                    Err(ChildError::OrderedMallocOnly)
                }
                Run::Limited => limited::on_native(plan, touch, &mut trace, job.progress.as_deref()),
                Run::System(warm_up, probe) => system::run(plan, touch, &mut trace, warm_up, probe),
            }
        }
        (Target::Malloc { preload, .. }, Mode::Ordered) => {
            preload.as_deref().map_or(Ok(()), check_loaded)?;
            let malloc = MallocRun { library: preload.as_deref(), touch };
            match job.run {
                Run::Control => malloc.control(&mut trace),
                Run::Measured => malloc.measured(&mut trace),
                Run::Timed => malloc.unobserved().timed(&mut trace),
                Run::Harness => without_allocator.harness(&mut trace),
                Run::Pieces => malloc.unobserved().pieces(job.alone_from, &mut trace),
                Run::HarnessPieces => without_allocator.harness_pieces(job.alone_from, &mut trace),
                Run::Sampled => malloc.unobserved().sampled(&mut trace),
                Run::Apart => malloc.unobserved().apart(&mut trace),
                Run::Explained(huge) => {
                    ExplainedRun { library: preload.as_deref(), touch, huge }.perform(&mut trace, channel)
                }
                Run::ExplainedStart(huge) => {
                    ExplainedRun { library: preload.as_deref(), touch, huge }.start(&trace, channel)
                }
                Run::Limited => limited::on_malloc(preload.as_deref(), touch, &mut trace, job.progress.as_deref()),
                Run::System(..) => Err(ChildError::OrderedNativeOnly),
            }
        }
        (Target::Design { name, settings }, _) => {
            let known = designs.iter().find(|known| known.name == name);
            let run = DesignRun { run: job.run, touch, trace: &mut trace, channel };
            (known.ok_or_else(|| unknown_design(name, designs))?.run)(settings, run)
        }
        (Target::Native(design), Mode::Threaded) => {
            let plan = design.prepare().map_err(ChildError::Design)?;
            Threaded { trace: &mut trace, touch }.native(plan, job.run)
        }
        (Target::Malloc { preload, .. }, Mode::Threaded) => {
            preload.as_deref().map_or(Ok(()), check_loaded)?;
            Threaded { trace: &mut trace, touch }.malloc(preload.as_deref(), job.run)
        }
    }
}

/// Stays on one CPU from now on.
fn stay_on(cpu: usize) -> Result<(), ChildError> {
    // SAFETY: a zeroed set is valid, `CPU_SET` ignores numbers beyond it, and the kernel only reads it.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if set == 0 { Ok(()) } else { Err(ChildError::system("stay on one CPU")(io::Error::last_os_error())) }
}

fn unknown_design(name: &str, designs: &[KnownDesign]) -> ChildError {
    let names: Vec<&str> = designs.iter().map(|known| known.name).collect();
    let known = if names.is_empty() { "none (see child_main_with)".into() } else { names.join(", ") };
    ChildError::UnknownDesign { name: name.into(), known }
}

/// Whether both paths refer to the same file. `canonicalize` is not used, because it would allocate from the measured
/// `malloc`.
fn is_same_file(name: &CStr, library: &Path) -> bool {
    let found = std::fs::metadata(OsStr::from_bytes(name.to_bytes())).map(|file| (file.dev(), file.ino()));
    let expected = std::fs::metadata(library).map(|file| (file.dev(), file.ino()));
    matches!((found, expected), (Ok(found), Ok(expected)) if found == expected)
}

/// Checks that the library was loaded and provides `malloc`. The loader only warns if it cannot preload a library, and
/// a replay on the wrong allocator must fail.
fn check_loaded(library: &Path) -> Result<(), ChildError> {
    let maps = Maps::read().map_err(ChildError::system("read /proc/self/maps"))?;
    let loaded = maps.iter().any(|map| Path::new(map.name) == library);
    if !loaded {
        return Err(ChildError::NotLoaded { path: library.to_path_buf() });
    }
    let mut object = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: `object` is valid to write to; the address is that of the `malloc` that the program uses.
    let found = unsafe { libc::dladdr(libc::dlsym(libc::RTLD_DEFAULT, c"malloc".as_ptr()), object.as_mut_ptr()) };
    // SAFETY: zeroed is a valid value, and `dladdr` leaves a valid one.
    let name = unsafe { object.assume_init() }.dli_fname;
    // SAFETY: if `dladdr` found an object, its name is a C string that lives as long as the object.
    let is_it = found != 0 && !name.is_null() && is_same_file(unsafe { CStr::from_ptr(name) }, library);
    if is_it { Ok(()) } else { Err(ChildError::NoAllocator { path: library.to_path_buf() }) }
}
