//! The running kernel, as something that executes scripts.

use hksim_linux_mm::KernelConfig;
use hksim_linux_mm::script::{Op, Script};
use thiserror::Error;

use crate::host::{HostError, free_hugetlb_pages, kernel_config};
use crate::session::{ExecuteError, Measured, Session, Start};
use crate::unobservable::Unobservable;

/// Scripts cannot be executed here.
#[derive(Debug, Error)]
pub enum MachineError {
    /// Something is missing that the measurement needs: a right or a kernel feature.
    #[error("{reason}")]
    Unsupported {
        /// What.
        reason: String,
    },
    /// The process that would execute cannot be started.
    #[error(transparent)]
    Execute(#[from] ExecuteError),
    /// The machine's modes are unknown.
    #[error(transparent)]
    Host(#[from] HostError),
}

/// Executes scripts in a process of its own, which is started anew where one was lost.
pub struct Machine {
    session: Option<Session>,
    config: KernelConfig,
    unobservable: Vec<Unobservable>,
    _quiet: Option<AdvisedMap>,
}

impl Machine {
    /// Starts a process.
    ///
    /// # Errors
    /// This machine or this user cannot execute scripts.
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

    /// Reads the machine's modes again, after they were changed.
    ///
    /// # Errors
    /// The kernel does not say.
    pub fn reread_modes(&mut self) -> Result<(), HostError> {
        self.config = kernel_config()?;
        Ok(())
    }

    /// What is not compared here.
    pub fn unobservable(&self) -> &[Unobservable] {
        &self.unobservable
    }

    /// The modes of the machine as they are.
    pub fn host(&self) -> &KernelConfig {
        &self.config
    }

    /// What the model must know to predict a script on this machine as it is now.
    pub(crate) fn config(&self, script: &Script) -> KernelConfig {
        // Only these scripts look at the pool, which others may use too.
        let hugetlb_pool = if maps_hugetlb(script) { Some(free_hugetlb_pages()) } else { self.config.hugetlb_pool };
        KernelConfig { hugetlb_pool, ..self.config.clone() }
    }

    /// Whether the pool is not as the script wants it, now that nothing of the script is left in it.
    pub(crate) fn pool_is_disturbed(&self, script: &Script) -> bool {
        let wanted = script.header.pool.or(self.config.hugetlb_pool);
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

/// Whether any of it asks for pages of the pool.
pub(crate) fn maps_hugetlb(script: &Script) -> bool {
    script.steps.iter().any(|step| matches!(step.op, Op::Map(_, _, flags) if flags.hugetlb))
}

/// An advised, empty mapping: khugepaged wakes up at the first one of an idle machine, and must not at a script's.
struct AdvisedMap(*mut libc::c_void);

const ADVISED_BYTES: usize = 4 << 20;

impl AdvisedMap {
    fn new() -> Option<AdvisedMap> {
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new map at a place of the kernel's choice; the advice changes no contents.
        let map = unsafe {
            let map = libc::mmap(std::ptr::null_mut(), ADVISED_BYTES, protection, flags, -1, 0);
            if map == libc::MAP_FAILED || libc::madvise(map, ADVISED_BYTES, libc::MADV_HUGEPAGE) != 0 {
                return None;
            }
            map
        };
        // It scans what it finds at once.
        std::thread::sleep(std::time::Duration::from_millis(100));
        Some(AdvisedMap(map))
    }
}

impl Drop for AdvisedMap {
    fn drop(&mut self) {
        // SAFETY: a map of our own that nobody uses.
        unsafe { libc::munmap(self.0, ADVISED_BYTES) };
    }
}
