//! Executes scripts on the running kernel.

use hksim_linux_mm::KernelConfig;
use hksim_linux_mm::script::{Op, Script};
use hksim_linux_probe::khugepaged::AdvisedMap;
use thiserror::Error;

use crate::host::{HostError, free_hugetlb_pages, kernel_config};
use crate::session::{ExecuteError, Measured, Session, Start};
use crate::unobservable::Unobservable;

/// The reason why scripts cannot be executed here.
#[derive(Debug, Error)]
pub enum MachineError {
    /// A right or a kernel feature needed for the measurement is missing.
    #[error("{reason}")]
    Unsupported {
        /// The missing right or feature.
        reason: String,
    },
    /// The executing process cannot be started.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// The machine's modes are unknown.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Executes scripts in a child process, and restarts that process if it died.
pub struct Machine {
    session: Option<Session>,
    config: KernelConfig,
    unobservable: Vec<Unobservable>,
    _quiet: Option<AdvisedMap>,
}

impl Machine {
    /// Starts the child process.
    ///
    /// # Errors
    /// Scripts cannot be executed on this machine or by this user.
    pub fn open() -> Result<Machine, MachineError> {
        let config = kernel_config()?;
        let quiet = AdvisedMap::new();
        match Session::start()? {
            Start::Ready(session, unobservable) => {
                Ok(Machine { session: Some(session), config, unobservable, _quiet: quiet })
            }
            Start::Unsupported(reason) => Err(MachineError::Unsupported { reason }),
        }
    }

    /// Reads the machine's modes again, after a change.
    ///
    /// # Errors
    /// The modes cannot be read.
    pub fn reread_modes(&mut self) -> Result<(), HostError> {
        self.config = kernel_config()?;
        Ok(())
    }

    /// The facts that cannot be observed here, and so are not compared.
    pub fn unobservable(&self) -> &[Unobservable] {
        &self.unobservable
    }

    /// The machine's current modes.
    pub fn host(&self) -> &KernelConfig {
        &self.config
    }

    /// The model's configuration to predict a script on this machine in its current state.
    pub(crate) fn config(&self, script: &Script) -> KernelConfig {
        // Other processes may use the pool too, so read its state for the scripts that depend on it.
        let hugetlb_pool_pages =
            if maps_hugetlb(script) { Some(free_hugetlb_pages()) } else { self.config.hugetlb_pool_pages };
        KernelConfig { hugetlb_pool_pages, ..self.config.clone() }
    }

    /// Whether the number of free pool pages differs from what the script needs. Call this after the script's memory
    /// has been released.
    pub(crate) fn pool_is_disturbed(&self, script: &Script) -> bool {
        let wanted = script.header.pool.or(self.config.hugetlb_pool_pages);
        maps_hugetlb(script) && wanted != Some(free_hugetlb_pages())
    }

    pub(crate) fn execute(&mut self, script: &Script) -> Result<Measured, ExecuteError> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => match Session::start()? {
                Start::Ready(session, _) => session,
                Start::Unsupported(reason) => return Err(ExecuteError::Failed { reason, script: script.to_string() }),
            },
        };
        let measured = session.execute(script)?;
        self.session = Some(session);
        Ok(measured)
    }
}

/// Whether the script maps pages of the pool.
pub(crate) fn maps_hugetlb(script: &Script) -> bool {
    script.steps.iter().any(|step| matches!(step.op, Op::Map(_, _, flags) if flags.hugetlb))
}
