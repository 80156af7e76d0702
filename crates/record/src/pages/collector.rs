//! Collects page faults on watched pages while the program runs.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::clock::ClockPair;
use crate::error::RecordError;
use crate::pages::clocks;
use crate::pages::fault::Fault;
use crate::pages::perf::{FaultVisibility, open_rings};
use crate::pages::ring::{ProcessFault, Ring};
use crate::touched::{REGION_BASE, REGION_BYTES, REGION_PLACES};

/// Directory of the faults in a session.
const FOLDER: &str = "faults";
/// File in that directory that describes what was collected.
const SEEN_FILE: &str = "seen.json";
const CLOCKS_FILE: &str = "clocks";
/// Interval between two reads of the rings.
const INTERVAL: Duration = Duration::from_millis(5);
/// Number of reads of the rings between two readings of the clocks.
const LOOKS_PER_READING: u32 = 50;
/// Minimum age of a fault when it is read. By then all rings contain the faults before it, so that faults can be
/// sorted.
const SETTLED_NS: u64 = 300_000;

/// What the collector could observe.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Seen {
    /// What the kernel reported about faults.
    pub sight: FaultVisibility,
    /// The reason why the kernel did not report more.
    pub why_not_better: Option<String>,
    /// Faults lost because the rings or the disk were full.
    pub faults_lost: u64,
}

/// The files of a session's page faults.
#[derive(Clone, Debug)]
pub struct FaultFiles(PathBuf);

impl FaultFiles {
    /// The files of a session, which may have none.
    pub fn of(session: &Path) -> Self {
        Self(session.join(FOLDER))
    }

    /// The faults of one process.
    pub fn of_process(&self, pid: u32) -> PathBuf {
        self.0.join(format!("{pid}.faults"))
    }

    /// Readings of the clocks.
    pub fn clocks(&self) -> PathBuf {
        self.0.join(CLOCKS_FILE)
    }

    /// What the collector could observe; `None` for a session without watched pages.
    ///
    /// # Errors
    /// The file is damaged.
    pub fn seen(&self) -> Result<Option<Seen>, RecordError> {
        let path = self.0.join(SEEN_FILE);
        let Ok(text) = fs::read(&path) else {
            return Ok(None);
        };
        let bad = |why: serde_json::Error| RecordError::BadSession { path, why: why.to_string() };
        serde_json::from_slice(&text).map(Some).map_err(bad)
    }

    fn save(&self, seen: &Seen) -> Result<(), RecordError> {
        let path = self.0.join(SEEN_FILE);
        let json = serde_json::to_vec(seen).map_err(|why| RecordError::io(&path, "write")(why.into()))?;
        fs::write(&path, json).map_err(RecordError::io(&path, "write"))
    }
}

/// The collector, running in its own thread.
pub struct Collector {
    files: FaultFiles,
    seen: Seen,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<u64>,
}

impl Collector {
    /// Starts collecting for all processes that the calling thread starts from now on.
    ///
    /// # Errors
    /// The session cannot be written.
    pub fn begin(session: &Path) -> Result<Self, RecordError> {
        let files = FaultFiles::of(session);
        fs::create_dir(&files.0).map_err(RecordError::io(&files.0, "create"))?;
        let path = files.clocks();
        let clocks = File::create(&path).map_err(RecordError::io(&path, "create"))?;
        let (sight, rings, why_not_better) = open_rings();
        let seen = Seen { sight, why_not_better, faults_lost: 0 };
        // Saved now for the case that the recorder dies and the session is recovered.
        files.save(&seen)?;
        let stop = Arc::new(AtomicBool::new(false));
        let mut work =
            CollectorThread { rings, files: files.clone(), clocks, batch: HashMap::new(), faults_unwritten: 0 };
        work.read_clocks();
        let thread = {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || work.run(&stop))
        };
        Ok(Self { files, seen, stop, thread })
    }

    /// Stops, and saves what the collector could observe.
    ///
    /// # Errors
    /// The session cannot be written.
    pub fn end(mut self) -> Result<(), RecordError> {
        self.stop.store(true, Ordering::Release);
        // If the collector panicked, the number of lost faults is unknown, but not 0.
        self.seen.faults_lost = self.thread.join().unwrap_or(1);
        self.files.save(&self.seen)
    }
}

/// State of the collector's thread.
struct CollectorThread {
    rings: Vec<Ring>,
    files: FaultFiles,
    clocks: File,
    /// Faults of one read, by process.
    batch: HashMap<u32, Vec<Fault>>,
    /// Faults that could not be written to their files.
    faults_unwritten: u64,
}

impl CollectorThread {
    fn run(mut self, stop: &AtomicBool) -> u64 {
        let mut looks = 0_u32;
        while !stop.load(Ordering::Acquire) {
            std::thread::sleep(INTERVAL);
            looks += 1;
            if looks.is_multiple_of(LOOKS_PER_READING) {
                self.read_clocks();
            }
            self.look(ClockPair::now().ns.saturating_sub(SETTLED_NS));
        }
        self.look(u64::MAX);
        self.read_clocks();
        self.faults_unwritten + self.rings.iter().map(Ring::lost).sum::<u64>()
    }

    fn read_clocks(&mut self) {
        // If the disk is full, later times are extrapolated from the earlier readings.
        let _ = self.clocks.write_all(&clocks::to_bytes(ClockPair::now()));
    }

    /// Moves the faults up to `until_ns` from the rings to their files, in order.
    fn look(&mut self, until_ns: u64) {
        let batch = &mut self.batch;
        for ring in &mut self.rings {
            ring.drain(until_ns, |ProcessFault { pid, fault }| {
                if is_watched(fault.page) {
                    batch.entry(pid).or_default().push(fault);
                }
            });
        }
        for (pid, mut faults) in self.batch.drain() {
            faults.sort_by_key(|fault| fault.time_ns);
            let bytes: Vec<u8> = faults.iter().flat_map(|fault| fault.to_bytes()).collect();
            let path = self.files.of_process(pid);
            let file = OpenOptions::new().create(true).append(true).open(path);
            if file.and_then(|mut file| file.write_all(&bytes)).is_err() {
                self.faults_unwritten += faults.len() as u64;
            }
        }
    }
}

fn is_watched(page: u64) -> bool {
    (REGION_BASE..REGION_BASE + REGION_PLACES * REGION_BYTES).contains(&page)
}
