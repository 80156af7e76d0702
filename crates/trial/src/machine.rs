//! The machine's huge-page mode, which some rows change while they run.

use std::sync::{Mutex, PoisonError};

use hksim_conformance::{ModeError, SetModes};
use hksim_linux_mm::ThpMode;
use hksim_linux_mm::script::Header;
use hksim_linux_probe::sysfs;
use hksim_validate::Listener;

use crate::error::RunError;

/// The mode before the trial, and what changes it. The mode is restored when this is dropped.
pub struct Machine {
    original: Option<ThpMode>,
    /// Restores the mode when it is dropped, and also if this process is killed.
    modes: Option<Mutex<SetModes>>,
}

impl Machine {
    /// A machine of which these modes are needed; `None` is the present one. Returns also why other modes than that
    /// cannot be set, if some are needed.
    pub fn with(needed: &[Option<ThpMode>], listener: &dyn Listener) -> (Machine, Option<String>) {
        let mut machine = Machine { original: present(), modes: None };
        let others: Vec<ThpMode> = needed.iter().flatten().copied().filter(|&mode| machine.must_set(mode)).collect();
        if others.is_empty() {
            return (machine, None);
        }
        let waiting =
            || listener.note("waiting: another process has changed this machine's modes and not restored them yet");
        let set = SetModes::new(waiting).and_then(|mut modes| {
            // Until then another process may have changed it.
            machine.original = present();
            others.iter().copied().chain(machine.original).try_for_each(|mode| apply(&mut modes, mode))?;
            Ok(modes)
        });
        match set {
            Ok(modes) => (Machine { modes: Some(Mutex::new(modes)), ..machine }, None),
            Err(why) => (machine, Some(why.to_string())),
        }
    }

    /// The mode before the trial; `None` without huge pages.
    pub fn mode(&self) -> Option<ThpMode> {
        self.original
    }

    /// Whether a row with this mode changes the machine's. `never` needs no change: it is set for the program's processes.
    pub fn must_set(&self, mode: ThpMode) -> bool {
        mode != ThpMode::Never && Some(mode) != self.original
    }

    /// Whether it changes the machine's mode for some rows, so that each row needs its own.
    pub fn sets_modes(&self) -> bool {
        self.modes.is_some()
    }

    /// Sets the mode of a row, unless that is for its processes only.
    ///
    /// # Errors
    /// It cannot be set, or another process has changed it.
    pub fn prepare(&self, mode: Option<ThpMode>) -> Result<(), RunError> {
        match (&self.modes, self.wanted(mode)) {
            (Some(modes), Some(wanted)) if present() != Some(wanted) => {
                Ok(apply(&mut modes.lock().unwrap_or_else(PoisonError::into_inner), wanted)?)
            }
            _ => self.check(mode),
        }
    }

    /// Checks that the machine still has the mode of a row.
    ///
    /// # Errors
    /// It has another one.
    pub fn check(&self, mode: Option<ThpMode>) -> Result<(), RunError> {
        if present() == self.wanted(mode) { Ok(()) } else { Err(RunError::ModeChanged) }
    }

    fn wanted(&self, mode: Option<ThpMode>) -> Option<ThpMode> {
        mode.filter(|&mode| mode != ThpMode::Never).or(self.original)
    }
}

/// The machine's mode; `None` without huge pages.
fn present() -> Option<ThpMode> {
    ThpMode::from_word(&sysfs::choice(&format!("{}/enabled", sysfs::THP))?)
}

fn apply(modes: &mut SetModes, mode: ThpMode) -> Result<(), ModeError> {
    modes.apply(&Header { thp: Some(mode), ..Header::default() })
}
