//! Waits until khugepaged has scanned all memory, at a pace set for this purpose.
//!
//! The counter `full_scans` grows at the end of a scan, so the scan during which the wait begins does not count. Only root
//! can set the pace; a guard process of the caller's restores it if this process is killed.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use crate::procfs::ProcText;
use crate::sysfs::THP;

/// The pace during a wait: short sleeps, and everything in one pass.
const SLEEP_MS: u64 = 5;
const PAGES_TO_SCAN: u64 = u32::MAX as u64;

/// Maximum duration of a wait.
const SCANS_TIMEOUT: Duration = Duration::from_secs(12);
/// How long the last scan may take to begin, after the pace is restored.
const LAST_SCAN: Duration = Duration::from_millis(500);
/// Interval between two looks at the counter.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// A setting of khugepaged that is changed during a wait.
#[derive(Debug)]
struct Setting {
    now: ProcText,
    /// `None` if this user may not write the file.
    file: Option<File>,
}

impl Setting {
    fn open(name: &str) -> io::Result<Setting> {
        let path = format!("{THP}/khugepaged/{name}");
        Ok(Setting { now: ProcText::open(&path)?, file: File::options().write(true).open(&path).ok() })
    }

    fn value(&mut self) -> io::Result<u64> {
        self.now.number("").ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Writes a value without allocating.
    fn set(&self, value: u64) -> io::Result<()> {
        let (mut text, mut at, mut rest) = ([0; 20], 20, value);
        while at == 20 || rest > 0 {
            at -= 1;
            text[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        self.file.as_ref().ok_or(io::ErrorKind::PermissionDenied)?.write_all_at(&text[at..], 0)
    }
}

/// khugepaged's counter of scans, and the settings of its pace.
#[derive(Debug)]
pub struct Scans {
    full_scans: ProcText,
    global_mode: ProcText,
    /// The modes of the sizes that khugepaged makes. Empty on kernels without modes by size: the global mode decides.
    size_modes: Vec<ProcText>,
    sleep: Setting,
    pages: Setting,
    is_prepared: bool,
}

impl Scans {
    /// Opens all files.
    ///
    /// # Errors
    /// The kernel has no khugepaged.
    pub fn open() -> io::Result<Scans> {
        let text = |name: &str| ProcText::open(&format!("{THP}/{name}"));
        Ok(Scans {
            full_scans: text("khugepaged/full_scans")?,
            global_mode: text("enabled")?,
            size_modes: sizes().iter().filter_map(|size| text(&format!("{size}/enabled")).ok()).collect(),
            sleep: Setting::open("scan_sleep_millisecs")?,
            pages: Setting::open("pages_to_scan")?,
            is_prepared: false,
        })
    }

    /// Makes khugepaged scan this process from now on, and makes this code resident: later waits cause no page fault.
    ///
    /// # Errors
    /// The pace cannot be read or set.
    pub fn prepare(&mut self) -> io::Result<()> {
        register();
        if !self.is_prepared {
            self.wait(0)?;
            self.is_prepared = true;
        }
        Ok(())
    }

    /// Returns after at least `scans` scans that began after the call; `false` if that takes too long, on a busy machine.
    /// Returns immediately if the modes allow no huge pages, because khugepaged does not run then.
    ///
    /// # Errors
    /// The pace cannot be read or set.
    pub fn wait(&mut self, scans: u64) -> io::Result<bool> {
        if !self.is_running() {
            return Ok(true);
        }
        let (sleep, pages) = (self.sleep.value()?, self.pages.value()?);
        let done = self.pages.set(PAGES_TO_SCAN).and_then(|()| {
            let begun = self.count()?;
            self.sleep.set(SLEEP_MS)?;
            // The first to end may have begun before the call.
            self.count_from(begun, if scans > 0 { scans + 1 } else { 0 }, SCANS_TIMEOUT)
        });
        let restored = self.restore(sleep, pages);
        restored.and(done)
    }

    /// Restores the pace. Changing the sleep wakes khugepaged for one more scan, which must not reach into the next
    /// operation; it covers all memory, because the number of pages is restored afterwards.
    fn restore(&mut self, sleep: u64, pages: u64) -> io::Result<()> {
        let begun = self.count();
        self.sleep.set(sleep)?;
        if let Ok(begun) = begun {
            self.count_from(begun, 1, LAST_SCAN)?;
        }
        self.pages.set(pages)
    }

    /// Waits until the counter is `scans` above `begun`. False if that takes too long.
    fn count_from(&mut self, begun: u64, scans: u64, timeout: Duration) -> io::Result<bool> {
        let until = Instant::now() + timeout;
        while self.count()? < begun + scans {
            if Instant::now() >= until {
                return Ok(false);
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(true)
    }

    fn count(&mut self) -> io::Result<u64> {
        self.full_scans.number("").ok_or_else(|| io::ErrorKind::InvalidData.into())
    }

    /// Whether the modes allow huge pages in any mapping.
    fn is_running(&mut self) -> bool {
        let is_global = !self.global_mode.holds("[never]");
        let is_on = |size: &mut ProcText| !size.holds("[never]") && (is_global || !size.holds("[inherit]"));
        if self.size_modes.is_empty() { is_global } else { self.size_modes.iter_mut().any(is_on) }
    }
}

/// The folders of the sizes that khugepaged makes: all from Linux 7.2 on, which counts its collapses by size, otherwise
/// 2 MiB.
fn sizes() -> Vec<String> {
    let names = |folder: &str| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    let counted = names(&format!("{THP}/hugepages-2048kB/stats"));
    if counted.iter().any(|name| name.starts_with("collapse_")) {
        names(THP).into_iter().filter(|name| name.starts_with("hugepages-")).collect()
    } else {
        vec!["hugepages-2048kB".into()]
    }
}

/// khugepaged scans a process from the first time that advice allows huge pages in memory that was written.
fn register() {
    const BYTES: usize = 4 << 20;
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping at an address chosen by the kernel, which nothing else uses.
    unsafe {
        let map = libc::mmap(std::ptr::null_mut(), BYTES, protection, flags, -1, 0);
        if map != libc::MAP_FAILED {
            map.cast::<u8>().write_volatile(1);
            libc::madvise(map, BYTES, libc::MADV_HUGEPAGE);
            libc::munmap(map, BYTES);
        }
    }
}
