//! Runs a recorded program again, with huge pages as the machine's modes say.

use std::collections::BTreeMap;
use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hksim_linux_mm::{KernelConfig, KhugepagedWork, ThpConfig, ThpMode};
use hksim_linux_probe::khugepaged::AdvisedMap;
use hksim_linux_probe::modes::ModeFiles;
use hksim_linux_probe::pressure::thp_fallbacks;
use hksim_linux_probe::sysfs;
use hksim_memory_record::{
    HugePages, Launch, Levels, Options, RecordingReport, Snapshot, SnapshotsOf, Source, Starting, Streams, record_with,
};
use hksim_memory_sim::{Detail, Family, MemorySimulation, Place, RunFile, RunFiles, Setting, ThpPrctl, simulate};
use hksim_memory_trace::{Calls, End, ExitStatus, Faults, Reader, ThpDisabled, Visibility};

use super::Again;
use super::replayed::window;
use super::rerun::{Rerun, other_inheritance};
use super::supervise::Supervisor;
use crate::error::ValidateError;
use crate::listener::Listener;

/// Maximum number of runs until khugepaged collapses nothing.
const ATTEMPTS: u32 = 3;

/// The program of a recording, and which of its processes was recorded.
pub(crate) struct Program<'a> {
    pub(crate) listener: &'a dyn Listener,
    place: Place,
    is_child: bool,
    /// Its memory is measured once khugepaged has scanned it.
    pub(crate) settles: bool,
    rerun: Rerun,
    pub(crate) supervisor: Supervisor,
    /// What differs from the recorded environment.
    other_environment: Vec<String>,
    /// How the started program ended; `None` if the recording does not say.
    pub(crate) status: Option<ExitStatus>,
    pub(crate) fixes_addresses: bool,
    /// Huge pages of a measured run.
    thp_disable: ThpDisabled,
    /// What the recording shows: the run must show the same.
    visibility: Visibility,
}

/// One measured run.
pub(crate) struct Run {
    /// The recordings of its processes, in which a fault may have installed a huge page.
    pub files: RunFiles,
    /// Faults in modelled memory.
    pub traps: u64,
    /// Those on pages that had one before, for which a prediction without reads and writes has one fault.
    pub repeated_traps: u64,
    /// The same by the region's number.
    pub traps_by_region: BTreeMap<usize, u64>,
    /// Its stacks that grow; `None` without a fault in one.
    pub stack: Option<MeasuredStack>,
    /// The memory at the exit; `None` if it could not be read.
    pub snapshot: Option<Snapshot>,
    /// Between which bytes its highest resident memory lies, of a replay from its first event to its last; `None` if not measured.
    pub rss_bytes_peak: Option<[u64; 2]>,
    /// Why the program did not run as it was recorded.
    unlike: Option<String>,
    /// Why there is nothing to compare.
    missing: Option<String>,
    report: RecordingReport,
    /// It shows the same kinds of faults and calls as the recording.
    shows_the_same: bool,
    khugepaged_collapses: u64,
    /// Huge pages and larger folios, of any process, for which the kernel found no contiguous memory meanwhile.
    pub huge_page_failures: u64,
}

/// The recorded faults of a run in stacks that grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredStack {
    /// Faults.
    pub traps: u64,
    /// Bytes of the pages above the first fault: arguments and environment.
    pub arguments_bytes: u64,
}

impl<'a> Program<'a> {
    /// The program of a recording, or the reason why it cannot be run again. `files` are the recordings of its run.
    ///
    /// # Errors
    /// A recording cannot be read.
    pub fn of(
        recording: &RunFile,
        files: &RunFiles,
        setting: &Setting,
        again: &Again,
        listener: &'a dyn Listener,
    ) -> Result<Result<Self, String>, ValidateError> {
        let started = files.started().map(|file| &file.header);
        let (Some(place), rerun) = (files.place(&recording.header), again.rerun(started)) else {
            return Ok(Err(Rerun::unknown()));
        };
        let rerun = match rerun {
            Ok(rerun) => rerun,
            Err(why) => return Ok(Err(why)),
        };
        let header = &recording.header;
        let is_child = started.is_none_or(|started| started.pid != header.pid);
        let settles = setting.kernel.khugepaged.work == KhugepagedWork::Settled;
        if is_child && settles {
            return Ok(Err("khugepaged is waited for at the exit of the started program only".to_string()));
        }
        // The recording of the started program has what the run inherited. Without it, a program is given that runs alone.
        let inherited = started.map_or(&header.inherited, |started| &started.inherited);
        let (status, elapsed) = ending(files)?;
        Ok(Ok(Self {
            listener,
            place,
            is_child,
            settles,
            supervisor: again.supervision.supervisor(elapsed),
            other_environment: [rerun.other_variables(&header.environment), other_inheritance(inherited)].concat(),
            rerun,
            status,
            fixes_addresses: !header.machine.addresses_random,
            thp_disable: match setting.thp_prctl {
                ThpPrctl::Disabled => ThpDisabled::All,
                ThpPrctl::Recorded | ThpPrctl::Ignored => inherited.thp_disable,
            },
            visibility: header.visibility,
        }))
    }

    /// Tells the user what is run, and what differs from the recorded environment.
    pub fn announce(&self, recording: &RunFile) {
        let path = recording.path.display();
        self.listener.note(&format!("{path}: running {}", self.rerun.shown()));
        if let Some(environment) = self.other_environment() {
            self.listener.warn(&format!("{path}: {environment}"));
        }
    }

    /// How the environment differs from the recorded one, if it does.
    pub fn other_environment(&self) -> Option<String> {
        let others = self.other_environment.join("; ");
        (!others.is_empty()).then(|| format!("recorded with another environment: now {others}"))
    }

    /// Which faults the recording shows.
    pub fn faults(&self) -> Faults {
        self.visibility.faults
    }

    /// The recording of this process in a run of the program.
    pub fn file_in<'f>(&self, files: &'f RunFiles) -> Option<&'f RunFile> {
        files.at(&self.place)
    }

    /// Runs the program and records it to `path`; again if khugepaged disturbed the run.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn run(&self, path: &Path) -> Result<Run, ValidateError> {
        let mut run = self.run_once(path)?;
        for _ in 1..ATTEMPTS {
            if run.khugepaged_collapses == 0 {
                break;
            }
            run = self.run_once(path)?;
        }
        Ok(run)
    }

    /// Records the program again to `path`, with huge pages off, as it was recorded.
    ///
    /// # Errors
    /// It cannot be run.
    pub fn record_again(&self, path: &Path) -> Result<RunFiles, ValidateError> {
        let (_, trouble) = self.record(path, HugePages::Off, SnapshotsOf::Nothing, &mut |_| {})?;
        if let Some(trouble) = trouble {
            return Err(ValidateError::RecordedAgain(trouble));
        }
        RunFiles::around(path).map_err(ValidateError::reading("reading the second recording"))
    }

    /// The program as it is started to be measured, without being recorded. Its errors go to a file, if there is one.
    pub fn launch(&self, errors: Option<PathBuf>) -> Launch {
        Launch {
            command: self.rerun.words.clone(),
            directory: self.rerun.directory.clone(),
            shown_mode: None,
            variables: self.rerun.variables.clone(),
            thp_disable: self.thp_disable,
            fixes_addresses: self.fixes_addresses,
            streams: Streams::Silent { errors },
            snapshots_of: SnapshotsOf::Nothing,
        }
    }

    /// Records a run with huge pages as the machine's modes say, which is prepared with its process id before its exec.
    /// Returns also why it is not the run that was asked for.
    pub fn record_prepared(
        &self,
        path: &Path,
        prepare: &mut dyn FnMut(i32),
    ) -> Result<(RecordingReport, Option<String>), ValidateError> {
        self.record(path, HugePages::With(self.thp_disable), SnapshotsOf::Nothing, prepare)
    }

    /// Records a run. Returns also why it is not the run that was asked for.
    fn record(
        &self,
        path: &Path,
        huge_pages: HugePages,
        snapshots_of: SnapshotsOf,
        prepare: &mut dyn FnMut(i32),
    ) -> Result<(RecordingReport, Option<String>), ValidateError> {
        let streams = match &self.rerun.input {
            Some(input) => Streams::Job { input: input.clone(), output: output_of(path) },
            None => Streams::Silent { errors: Some(errors_of(path)) },
        };
        let options = Options {
            output: path.to_path_buf(),
            fixes_addresses: self.fixes_addresses,
            huge_pages,
            duration: None,
            directory: self.rerun.directory.clone(),
            shown_thp_mode: None,
            variables: self.rerun.variables.clone(),
            streams,
            snapshots_of,
            source: match self.visibility.calls {
                Calls::Tracepoints => Source::Auto,
                Calls::Stops => Source::Stops,
            },
            stack_depth: None,
        };
        let (report, trouble) = self.supervisor.watch(self.listener, &|_| {}, |started| {
            record_with(&options, &self.rerun.words, |moment| match moment {
                Starting::Waits(pid) => prepare(pid),
                Starting::Runs(pid) => started(pid),
            })
        });
        Ok((report?, trouble))
    }

    fn run_once(&self, path: &Path) -> Result<Run, ValidateError> {
        // Without it the program could be the one that wakes khugepaged up.
        let _awake = AdvisedMap::new();
        let modes = ModeFiles::open();
        let modes_before = modes.digest();
        let before = sysfs::khugepaged_collapses().unwrap_or(0);
        let failures_before = thp_fallbacks().unwrap_or(0);
        let snapshots_of = match (self.is_child, self.settles) {
            (true, _) => SnapshotsOf::Processes,
            (false, true) => SnapshotsOf::SettledProgram,
            (false, false) => SnapshotsOf::Program,
        };
        let (report, trouble) = self.record(path, HugePages::With(self.thp_disable), snapshots_of, &mut |_| {})?;
        let khugepaged_collapses = sysfs::khugepaged_collapses().unwrap_or(0).saturating_sub(before);
        let huge_page_failures = thp_fallbacks().unwrap_or(0).saturating_sub(failures_before);
        let files = match RunFiles::around(path) {
            // The program was stopped before it had begun.
            Err(_) if trouble.is_some() => RunFiles::default(),
            files => files.map_err(ValidateError::reading("reading the measured run"))?,
        };
        let mut run = Run {
            files,
            traps: 0,
            repeated_traps: 0,
            traps_by_region: BTreeMap::new(),
            stack: None,
            snapshot: None,
            rss_bytes_peak: None,
            unlike: trouble.or_else(|| self.other_status(&report, path)),
            missing: (modes.digest() != modes_before).then(|| "the machine's modes changed during the run".to_string()),
            shows_the_same: report.visibility == self.visibility,
            report,
            // Those at the exit are predicted. Before, khugepaged is paused.
            khugepaged_collapses: if self.settles { 0 } else { khugepaged_collapses },
            huge_page_failures,
        };
        let kind = match self.rerun.input {
            // A replay that failed has another exit status.
            Some(_) => Kind::Replay { window: fs::read(output_of(path)).ok().and_then(|said| window(&said)) },
            None => Kind::Program,
        };
        run.read(&self.place, kind)?;
        Ok(run)
    }

    /// How a run ended, if the recorded one ended otherwise.
    fn other_status(&self, report: &RecordingReport, path: &Path) -> Option<String> {
        let code = report.exit_code.map(ExitStatus::Code);
        self.unlike(code.or_else(|| report.exit_signal.map(ExitStatus::Signal))?, &errors_of(path))
    }

    /// How a run ended, if the recorded one ended otherwise, with the last line in the file of its errors.
    pub fn unlike(&self, own: ExitStatus, errors: &Path) -> Option<String> {
        let recorded = self.status.filter(|recorded| *recorded != own)?;
        let said = fs::read_to_string(errors).unwrap_or_default();
        let said = said.lines().rev().find(|line| !line.trim().is_empty());
        let said = said.map_or(String::new(), |line| format!(": {}", hksim_text::plain(line.trim())));
        Some(format!("the program {}, and when it was recorded it {}{said}", words(own), words(recorded)))
    }
}

fn words(status: ExitStatus) -> String {
    match status {
        ExitStatus::Code(code) => format!("exited with {code}"),
        ExitStatus::Signal(signal) => format!("was ended by signal {signal}"),
    }
}

/// Where the errors of a run are written.
fn errors_of(path: &Path) -> PathBuf {
    path.with_extension("errors")
}

/// Where the output of a replay is written.
fn output_of(path: &Path) -> PathBuf {
    path.with_extension("output")
}

/// What was run.
enum Kind {
    Program,
    /// A replay has memory of its own, which is anonymous, too, but not modelled. It does not change from the first event to
    /// the last one, the times of which are here.
    Replay {
        window: Option<RangeInclusive<u64>>,
    },
}

/// How the started program ended, and how long the run took until its last event.
fn ending(files: &RunFiles) -> Result<(Option<ExitStatus>, Duration), ValidateError> {
    let (mut status, mut elapsed_ns) = (None, 0);
    let mut events = Vec::new();
    for RunFile { path, .. } in files.files() {
        let mut reader = Reader::open(path)?;
        while reader.next_chunk(&mut events)? {
            elapsed_ns = events.last().map_or(elapsed_ns, |event| elapsed_ns.max(event.time_ns));
        }
        status = status.or(reader.footer().and_then(|footer| footer.status));
    }
    Ok((status, Duration::from_nanos(elapsed_ns)))
}

/// The recorded faults of a run, by region.
fn faults_of(path: &Path) -> Result<MemorySimulation, ValidateError> {
    let kernel = KernelConfig { thp: ThpConfig::new(ThpMode::Never), ..KernelConfig::default() };
    Ok(simulate(Family::open(path)?, &[Setting::recorded(kernel)], Detail::Figures)?)
}

impl Run {
    /// Reads the figures of the process at `place`.
    fn read(&mut self, place: &Place, kind: Kind) -> Result<(), ValidateError> {
        let Some(RunFile { path, header }) = self.files.at(place) else {
            self.missing = Some(format!("a run had no {}", place.text()));
            return Ok(());
        };
        let faults = faults_of(path).map_err(ValidateError::reading("reading the measured run"))?;
        let regions = faults.predictions.iter().flat_map(|prediction| &prediction.regions);
        self.traps = faults.traps_recorded;
        let first = faults.predictions.first().map_or(0, |prediction| prediction.traps);
        self.repeated_traps = self.traps.saturating_sub(first);
        let stack = faults.predictions.first().and_then(|prediction| prediction.stack);
        self.stack = stack.map(|stack| MeasuredStack { traps: stack.touches, arguments_bytes: stack.arguments_bytes });
        self.traps_by_region = regions.map(|region| (region.number, region.touches)).collect();
        match faults.footer.map(|footer| footer.end) {
            Some(End::Exit) => {
                let snapshot = self.report.snapshots.remove(&header.pid);
                // All anonymous memory but that of a replay itself must be predicted.
                let (snapshot, peak) = match (snapshot, kind) {
                    (None, _) => (None, None),
                    (Some(all), Kind::Program) => {
                        let peak = all.rss_bytes_peak();
                        (Some(all), peak)
                    }
                    (Some(all), Kind::Replay { window }) => {
                        let own = all.within(&faults.modelled_end);
                        let peak = window.and_then(|window| own.rss_bytes_peak_within(window, all.library_bytes));
                        (Some(own), peak)
                    }
                };
                // Tens of MiB in each run, which nothing needs any more.
                let snapshot = snapshot.map(|snapshot| Snapshot { anonymous_levels: Levels::default(), ..snapshot });
                self.report.snapshots.clear();
                (self.snapshot, self.rss_bytes_peak) = (snapshot, peak);
            }
            Some(End::Exec) => {
                self.missing = Some("the process executed another program, so its end is not seen".into())
            }
            Some(End::Running) | None => {
                self.missing = Some("the process outlived the program that was started".into())
            }
        }
        Ok(())
    }

    /// Why this run cannot be compared.
    pub fn disturbed(&self) -> Option<String> {
        if self.unlike.is_some() {
            return self.unlike.clone();
        }
        if !self.shows_the_same {
            return Some("the program was recorded with other rights, which show other page faults".to_string());
        }
        if self.report.lost_events > 0 {
            return Some(format!("{} events of the measured run were lost", self.report.lost_events));
        }
        if self.khugepaged_collapses > 0 {
            return Some(format!(
                "khugepaged collapsed {} PMD ranges during the run; --set-modes pauses it",
                self.khugepaged_collapses
            ));
        }
        if self.missing.is_some() {
            return self.missing.clone();
        }
        self.snapshot.is_none().then(|| "the memory at the exit could not be read".to_string())
    }
}
