//! Which runs of a round happen at the same time.

use serde::{Deserialize, Serialize};

/// The arrangement of the runs of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Arrangement {
    /// One after the other, in an order drawn for each round.
    InTurn,
    /// Duets: each subject at the same time as the first one, one on each of two CPUs. Which takes which is drawn.
    /// A disturbance of the machine affects both.
    Duet([usize; 2]),
}

/// Duets need two CPUs, and this process may use only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneCpu;

impl Arrangement {
    /// Duets on the first two CPUs that this process may use.
    ///
    /// # Errors
    /// It may use only one.
    pub fn duet() -> Result<Arrangement, OneCpu> {
        let mut allowed = allowed_cpus().into_iter();
        match (allowed.next(), allowed.next()) {
            (Some(one), Some(other)) => Ok(Arrangement::Duet([one, other])),
            _ => Err(OneCpu),
        }
    }
}

/// The CPUs on which this process may run.
fn allowed_cpus() -> Vec<usize> {
    // SAFETY: a zeroed set is valid and empty, the kernel writes at most its size, and the numbers are within it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &mut set);
        (0..libc::CPU_SETSIZE as usize).filter(|&cpu| libc::CPU_ISSET(cpu, &set)).collect()
    }
}
