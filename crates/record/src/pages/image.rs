//! The watched pages of a process image: their states, and the faults on them.

use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hksim_trace::event::Access;

use crate::clock::TickRate;
use crate::error::RecordError;
use crate::event_log::{Control, LOG_SUFFIX};
use crate::pages::clocks::Clocks;
use crate::pages::collector::{FaultFiles, Seen};
use crate::pages::fault::FaultReader;
use crate::pages::perf::FaultVisibility;
use crate::touched::{
    PAGE_ABSENT, PAGE_BYTES, PAGE_READ, PAGE_UNKNOWN, PAGE_WRITTEN, REGION_BYTES, STATES_OFFSET, TOUCHED_MAGIC,
    TOUCHED_SUFFIX, TouchedControl,
};
use crate::written_file;

/// Final state of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageEnd {
    /// Unknown: its state could not be read.
    Unknown,
    /// Never touched.
    Untouched,
    /// Read only.
    Read,
    /// Written; perhaps read before.
    Written,
}

/// A fault that is a touch, with its time in the trace.
#[derive(Clone, Copy, Debug)]
pub struct SeenFault {
    /// Nanoseconds since the start of the image.
    pub time_ns: u64,
    /// First address of the page.
    pub page: u64,
    /// The attempted access; `None` if the kernel did not report it.
    pub access: Option<Access>,
    /// Kernel thread id.
    pub tid: u32,
}

/// The watched pages of one process image.
pub struct ImagePages {
    control: TouchedControl,
    states: File,
    path: PathBuf,
    faults: FaultReader,
    clocks: Clocks,
    /// Faults from this time on belong to the image that replaced this one.
    end_ns: u64,
    /// What the collector could observe.
    pub seen: Seen,
    /// Number of faults of each page, if faults do not report the kind of access.
    twice: Option<File>,
}

impl ImagePages {
    /// Opens the files that belong to the log at `log`; `None` if it has no watched pages. If faults do not report the
    /// kind of access, all faults are counted first, because the kind of a first access follows from later faults.
    ///
    /// # Errors
    /// A file cannot be read, or has a wrong format.
    pub fn open(log: &Path, control: &Control, rate: TickRate) -> Result<Option<Self>, RecordError> {
        let session = log.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
        let files = FaultFiles::of(session);
        let Some(seen) = files.seen()? else {
            return Ok(None);
        };
        let path = log.with_extension(TOUCHED_SUFFIX.trim_start_matches('.'));
        let states = match written_file::open(&path) {
            Ok(states) => states,
            Err(why) if why.kind() == ErrorKind::NotFound => return Ok(None),
            Err(why) => return Err(RecordError::io(&path, "open")(why)),
        };
        let Some(touched) = read_control(&states) else {
            return Ok(None);
        };
        let clocks = Clocks::read(&files.clocks(), rate, control.start_ticks)?;
        let next_ticks = next_image(log).and_then(|next| start_ticks(&next)).unwrap_or(u64::MAX);
        let end_ns = rate.ns(next_ticks.saturating_sub(control.start_ticks));
        let faults = FaultReader::open(&files.of_process(control.pid))?;
        let mut pages = Self { control: touched, states, path, faults, clocks, end_ns, seen, twice: None };
        if matches!(pages.seen.sight, FaultVisibility::Faults | FaultVisibility::UserFaults) {
            pages.twice = Some(pages.find_twice()?);
            pages.faults = FaultReader::open(&files.of_process(control.pid))?;
        }
        Ok(Some(pages))
    }

    /// Whether `address` is in the region of watched objects.
    pub fn is_watched(&self, address: u64) -> bool {
        address.wrapping_sub(self.control.region_base) < REGION_BYTES
    }

    /// Whether the times of touches are known.
    pub fn is_timed(&self) -> bool {
        self.seen.sight != FaultVisibility::None
    }

    /// Objects that were not watched because the region was used up.
    pub fn turned_down(&self) -> u64 {
        self.control.turned_down
    }

    /// The next fault that the program itself caused.
    pub fn next_fault(&mut self) -> Option<SeenFault> {
        loop {
            let fault = self.faults.next()?;
            let time_ns = self.clocks.since_start(fault.time_ns).filter(|&time_ns| time_ns < self.end_ns);
            let own = (self.control.copy_start..self.control.copy_end).contains(&fault.instruction);
            if let (Some(time_ns), false, true) = (time_ns, own, self.is_watched(fault.page)) {
                return Some(SeenFault { time_ns, page: fault.page, access: fault.access, tid: fault.tid });
            }
        }
    }

    /// The kind of the first access to a page, for faults that do not report it. If the page has a second fault, the
    /// first was a read. If it has only one, the page's final state shows the kind.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn first_access(&self, page: u64) -> Result<Access, RecordError> {
        if let Some(twice) = &self.twice
            && read_byte(twice, &self.path, self.number(page))? > 1
        {
            return Ok(Access::Read);
        }
        Ok(if self.end_of(page)? == PageEnd::Read { Access::Read } else { Access::Write })
    }

    /// The final state of the page at an address.
    ///
    /// # Errors
    /// The file cannot be read.
    pub fn end_of(&self, page: u64) -> Result<PageEnd, RecordError> {
        Ok(match read_byte(&self.states, &self.path, STATES_OFFSET + self.number(page))? {
            PAGE_ABSENT => PageEnd::Untouched,
            PAGE_READ => PageEnd::Read,
            PAGE_WRITTEN => PageEnd::Written,
            PAGE_UNKNOWN if self.control.looked_at_end != 0 => PageEnd::Untouched,
            _ => PageEnd::Unknown,
        })
    }

    fn number(&self, page: u64) -> u64 {
        (page - self.control.region_base) / PAGE_BYTES
    }

    /// Creates a file with one byte per page: the number of its faults, at most 2.
    fn find_twice(&mut self) -> Result<File, RecordError> {
        let file =
            tempfile::tempfile().map_err(RecordError::io(&std::env::temp_dir(), "create a temporary file in it"))?;
        while let Some(fault) = self.next_fault() {
            let number = self.number(fault.page);
            let count = (read_byte(&file, &self.path, number)? + 1).min(2);
            file.write_all_at(&[count], number)
                .map_err(RecordError::io(&std::env::temp_dir(), "write a temporary file"))?;
        }
        Ok(file)
    }
}

/// A byte of a sparse file; 0 past its end.
fn read_byte(file: &File, path: &Path, offset: u64) -> Result<u8, RecordError> {
    let mut byte = [0];
    file.read_at(&mut byte, offset).map_err(RecordError::io(path, "read"))?;
    Ok(byte[0])
}

fn read_control(states: &File) -> Option<TouchedControl> {
    let mut bytes = [0; size_of::<TouchedControl>()];
    states.read_exact_at(&mut bytes, 0).ok()?;
    // SAFETY: the array has the size of the structure, for which every bit pattern is valid.
    let control = unsafe { bytes.as_ptr().cast::<TouchedControl>().read_unaligned() };
    (control.magic == TOUCHED_MAGIC).then_some(control)
}

/// The log of the image that replaced this one, if there is one: `PID-IMAGE.spool`.
fn next_image(log: &Path) -> Option<PathBuf> {
    let (pid, image) = log.file_name()?.to_str()?.strip_suffix(LOG_SUFFIX)?.split_once('-')?;
    let next = image.parse::<u32>().ok()?.checked_add(1)?;
    Some(log.with_file_name(format!("{pid}-{next}{LOG_SUFFIX}")))
}

fn start_ticks(log: &Path) -> Option<u64> {
    let mut bytes = [0; 8];
    let offset = std::mem::offset_of!(Control, start_ticks) as u64;
    written_file::open(log).ok()?.read_exact_at(&mut bytes, offset).ok()?;
    Some(u64::from_ne_bytes(bytes)).filter(|&ticks| ticks > 0)
}
