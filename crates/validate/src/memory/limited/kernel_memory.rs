//! The kernel's own memory for processes, which a group is charged for and a prediction does not contain: found with
//! programs that do next to nothing.

use std::cell::OnceCell;
use std::ffi::OsString;
use std::time::Duration;

use hksim_linux_mm::KernelConfig;
use hksim_memory_record::{HugePages, Launch, Options as RecordOptions, SnapshotsOf, Source, Streams, record};
use hksim_memory_sim::{Detail, Setting, ThpPrctl, predict};
use hksim_memory_trace::{ExitStatus, ThpDisabled};
use hksim_policy::PAGE_BYTES;

use super::run::{RunOutcome, Start};
use crate::error::ValidateError;
use crate::memory::supervise::{Supervision, Supervisor};

/// A program that does nothing.
const NOTHING: &[&str] = &["true"];
/// A program that forks three children, one after the other. Without its last command, a shell would execute the last
/// child itself.
const FORKING: &[&str] = &["sh", "-c", "(:);(:);(:);:"];
/// More pages than the kernel needs for these programs.
const PAGES_MAX: u64 = 1000;

/// What the kernel needs for processes besides what is predicted. It depends on the kernel and on what starts them.
#[derive(Debug, Default)]
pub struct KernelMemory {
    process: OnceCell<Result<u64, String>>,
    children: OnceCell<Result<u64, String>>,
}

impl KernelMemory {
    /// Bytes for the process that is started, and bytes that so many children can need besides at the most: the kernel
    /// returns them some time after their end. The inner error says why they cannot be found.
    ///
    /// # Errors
    /// A signal came, or a group cannot be used.
    pub(super) fn bytes(
        &self,
        kernel: &KernelConfig,
        children: u64,
    ) -> Result<Result<[u64; 2], String>, ValidateError> {
        let process = known(&self.process, || excess_bytes(NOTHING, kernel))?;
        let (Ok(process_bytes), true) = (&process, children > 0) else {
            return Ok(process.map(|bytes| [bytes, 0]));
        };
        let forking = known(&self.children, || excess_bytes(FORKING, kernel))?;
        Ok(forking.map(|bytes| [*process_bytes, bytes.saturating_sub(*process_bytes) * children]))
    }
}

/// What is known already, or is found now.
fn known(
    cell: &OnceCell<Result<u64, String>>,
    find: impl FnOnce() -> Result<Result<u64, String>, ValidateError>,
) -> Result<Result<u64, String>, ValidateError> {
    if let Some(known) = cell.get() {
        return Ok(known.clone());
    }
    let found = find()?;
    Ok(cell.get_or_init(|| found).clone())
}

/// How far the least limit that a program really survives is above the predicted one.
fn excess_bytes(words: &[&str], kernel: &KernelConfig) -> Result<Result<u64, String>, ValidateError> {
    let name = words.join(" ");
    let command: Vec<OsString> = words.iter().map(OsString::from).collect();
    let predicted_bytes = match predicted_bytes(&command, kernel)? {
        Ok(bytes) => bytes,
        Err(why) => return Ok(Err(format!("what the kernel needs for `{name}` cannot be found: {why}"))),
    };
    let supervisor: Supervisor = Supervision::default().supervisor(Duration::ZERO);
    let launch = Launch {
        command,
        directory: None,
        shown_mode: None,
        variables: Vec::new(),
        thp_disable: ThpDisabled::All,
        fixes_addresses: true,
        streams: Streams::Silent { errors: None },
        snapshots_of: SnapshotsOf::Nothing,
    };
    let status = Some(ExitStatus::Code(0));
    let start = Start { launch, status, is_pinned: true, supervisor: &supervisor, listener: &() };
    let survives = |pages: u64| -> Result<bool, ValidateError> {
        Ok(start.run(Some(pages * PAGE_BYTES))?.outcome == RunOutcome::Survived)
    };
    let predicted_pages = predicted_bytes.div_ceil(PAGE_BYTES);
    let least_pages = least_survived(predicted_pages / 2, predicted_pages + PAGES_MAX, survives)?;
    Ok(match least_pages {
        Some(pages) => Ok(pages.saturating_sub(predicted_pages) * PAGE_BYTES),
        None => {
            Err(format!("`{name}` needs more than {PAGES_MAX} pages more than predicted in a memory control group"))
        }
    })
}

/// The predicted least limit of a command; the inner error says why it is unknown.
fn predicted_bytes(command: &[OsString], kernel: &KernelConfig) -> Result<Result<u64, String>, ValidateError> {
    let folder = tempfile::tempdir().map_err(ValidateError::Temporary)?;
    let output = folder.path().join("least.hkm");
    let options = RecordOptions {
        output: output.clone(),
        fixes_addresses: true,
        huge_pages: HugePages::Off,
        duration: None,
        directory: None,
        shown_thp_mode: None,
        variables: Vec::new(),
        streams: Streams::Silent { errors: None },
        snapshots_of: SnapshotsOf::Nothing,
        source: Source::Auto,
        stack_depth: None,
    };
    if let Err(why) = record(&options, command) {
        return Ok(Err(why.to_string()));
    }
    let kernel = KernelConfig { memory_limit_bytes: Some(u64::MAX), ..kernel.clone() };
    let setting = Setting { thp_prctl: ThpPrctl::Disabled, ..Setting::recorded(kernel) };
    let rows = predict(&output, &[setting], false, Detail::Figures)?.rows;
    let limit = rows.into_iter().next().and_then(|row| row.prediction.memory_limit);
    Ok(limit.and_then(|limit| limit.least_limit_bytes).ok_or_else(|| "no least limit is predicted".to_string()))
}

/// The least number between two that survives, where the lower one does not; `None` if the upper one does not either.
fn least_survived<E>(
    mut low: u64,
    mut high: u64,
    mut survives: impl FnMut(u64) -> Result<bool, E>,
) -> Result<Option<u64>, E> {
    if !survives(high)? {
        return Ok(None);
    }
    while high - low > 1 {
        let middle = low.midpoint(high);
        if survives(middle)? {
            high = middle;
        } else {
            low = middle;
        }
    }
    Ok(Some(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_number_that_survives_is_found() {
        let least = |needed: u64| least_survived(10, 1010, |pages| Ok::<_, ()>(pages >= needed));
        assert_eq!([11, 500, 1010, 1011].map(least), [Ok(Some(11)), Ok(Some(500)), Ok(Some(1010)), Ok(None)]);
    }
}
