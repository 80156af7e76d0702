//! Moments that a program names while it is tried, and the memory of its processes then.
//!
//! A process says a name on a socket of the run, and is answered when the memory has been read: it waits, so the memory is
//! that of the moment. The socket is named after the keeper, which a process finds among its ancestors. So a program needs no
//! variable for it, which it might remove, and with which its environment would be another one than without a trial.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hksim_record::RecordError;
use hksim_record::control::MARK_BYTES_MAX;
use hksim_replay::compare::Spread;
use hksim_results::trial::AtMark;

use crate::error::MarkError;
use crate::tree;

/// Maximum number of marks of a run. Later ones are answered and dropped; one of them is kept to tell that.
const MARKS_MAX: usize = 256;
/// Interval between attempts to take a mark without a free file descriptor.
const RETRY: Duration = Duration::from_millis(10);
/// Time that a process has to say its name.
const HASTE: Duration = Duration::from_secs(1);

/// Marks this moment of a trial with a name. `pid` is a process of the program that is tried. Returns whether it is one.
///
/// # Errors
/// The name is empty or too long, or the trial does not take the mark.
pub fn mark(pid: u32, name: &str) -> Result<bool, MarkError> {
    if name.is_empty() || name.len() > MARK_BYTES_MAX {
        return Err(RecordError::BadMark { bytes: name.len() }.into());
    }
    let Some(keeper) = tree::keeper_above(pid) else { return Ok(false) };
    said(keeper, name).map_err(MarkError::NotTaken)?;
    Ok(true)
}

/// Says a name, and waits until the memory has been read.
fn said(keeper: u32, name: &str) -> io::Result<()> {
    let mut socket = UnixStream::connect_addr(&address(keeper)?)?;
    socket.write_all(name.as_bytes())?;
    socket.shutdown(Shutdown::Write)?;
    socket.read_exact(&mut [0])
}

/// A name without a file, which vanishes with its socket, and which a program finds that has changed its user or its root.
fn address(keeper: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("hksim-trial-marks-{keeper}"))
}

/// A mark of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark {
    pub(crate) name: String,
    /// Resident bytes of all processes, of which those shared with n processes count as an nth.
    pub(crate) rss_bytes: u64,
}

/// Takes the marks of one run.
pub(crate) struct Marks {
    keeper: u32,
    listener: UnixListener,
    has_ended: AtomicBool,
}

impl Marks {
    /// Marks of the program below a keeper, which has not started it yet.
    pub(crate) fn of(keeper: u32) -> io::Result<Marks> {
        let listener = UnixListener::bind_addr(&address(keeper)?)?;
        Ok(Marks { keeper, listener, has_ended: AtomicBool::new(false) })
    }

    /// Takes marks during a run. Returns its result and the marks.
    pub(crate) fn during<T>(&self, run: impl FnOnce() -> T) -> (T, Vec<Mark>) {
        thread::scope(|scope| {
            let taking = scope.spawn(|| self.until_ended());
            let ending = Ending(self);
            let result = run();
            drop(ending);
            (result, taking.join().unwrap_or_default())
        })
    }

    fn until_ended(&self) -> Vec<Mark> {
        let mut marks = Vec::new();
        loop {
            let accepted = self.listener.accept();
            if self.has_ended.load(Ordering::Acquire) {
                return marks;
            }
            let Ok((peer, _)) = accepted else {
                // The program waits for its answer, so this thread must not give up.
                thread::sleep(RETRY);
                continue;
            };
            // A process that may not mark, or that has gone, gets no answer.
            if let Ok(mark) = self.taken(&peer)
                && marks.len() <= MARKS_MAX
            {
                marks.push(mark);
            }
        }
    }

    /// Takes the mark of a process: of the program, of this user, or of root.
    fn taken(&self, mut peer: &UnixStream) -> io::Result<Mark> {
        let from = credentials(peer)?;
        let processes = tree::descendants(self.keeper);
        // SAFETY: no arguments.
        let own = unsafe { libc::geteuid() };
        if ![own, 0].contains(&from.uid) && !processes.contains(&(from.pid as u32)) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        peer.set_read_timeout(Some(HASTE))?;
        let mut name = String::new();
        peer.take(MARK_BYTES_MAX as u64).read_to_string(&mut name)?;
        // The process that says the name is no part of what the program has.
        let memory = tree::memory_of(processes.into_iter().filter(|&pid| pid != from.pid as u32));
        peer.write_all(&[1])?;
        Ok(Mark { name, rss_bytes: memory.shared_out_bytes })
    }
}

/// Ends the marks of a run, also if it panics.
struct Ending<'a>(&'a Marks);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Ordering::Release);
        // SAFETY: an open socket. The thread that waits for a process at it gets an error.
        unsafe { libc::shutdown(self.0.listener.as_raw_fd(), libc::SHUT_RDWR) };
    }
}

/// The process at the other end of a socket.
fn credentials(socket: &UnixStream) -> io::Result<libc::ucred> {
    let mut from = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut bytes = size_of::<libc::ucred>() as libc::socklen_t;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
    // SAFETY: an open socket, and valid places for the credentials and for their size.
    match unsafe { libc::getsockopt(socket.as_raw_fd(), level, option, (&raw mut from).cast(), &raw mut bytes) } {
        0 => Ok(from),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The marks that all runs set, in the order of the first run; and notes about the others.
pub(crate) fn over_runs(runs: &[Vec<Mark>]) -> (Vec<AtMark>, Vec<String>) {
    let numbered: Vec<Vec<(Key<'_>, u64)>> =
        runs.iter().map(|marks| with_keys(marks.get(..MARKS_MAX).unwrap_or(marks))).collect();
    let by_key: Vec<BTreeMap<Key<'_>, u64>> = numbered.iter().map(|marks| marks.iter().copied().collect()).collect();
    let spread = |key: &Key<'_>| Spread::of(by_key.iter().map(|marks| marks.get(key).copied()));
    let first = numbered.first().into_iter().flatten();
    let at_marks = first
        .filter_map(|(key, _)| spread(key).map(|rss_bytes| AtMark { mark: key.0.to_string(), rss_bytes }))
        .collect();
    let others: BTreeSet<&str> =
        by_key.iter().flat_map(BTreeMap::keys).filter(|key| spread(key).is_none()).map(|key| key.0).collect();
    let others: Vec<&str> = others.into_iter().collect();
    let missing = || format!("not every run set the marks {}, so they have no RSS", others.join(", "));
    let are_dropped = runs.iter().any(|marks| marks.len() > MARKS_MAX);
    let dropped = || format!("only the first {MARKS_MAX} marks of a run have RSS");
    let notes = [(!others.is_empty()).then(missing), are_dropped.then(dropped)];
    (at_marks, notes.into_iter().flatten().collect())
}

/// A name, and how often it was set before in the run.
type Key<'a> = (&'a str, u32);

fn with_keys(marks: &[Mark]) -> Vec<(Key<'_>, u64)> {
    let mut set: BTreeMap<&str, u32> = BTreeMap::new();
    marks
        .iter()
        .map(|mark| {
            let before = set.entry(&mark.name).or_default();
            *before += 1;
            ((mark.name.as_str(), *before - 1), mark.rss_bytes)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(marks: &[(&str, u64)]) -> Vec<Mark> {
        marks.iter().map(|&(name, rss_bytes)| Mark { name: name.to_string(), rss_bytes }).collect()
    }

    #[test]
    fn marks_of_all_runs_have_medians_and_others_are_named() {
        let runs = [
            run(&[("round", 10), ("round", 20), ("only here", 5), ("end", 1)]),
            run(&[("round", 12), ("late", 3), ("round", 26), ("end", 1)]),
            run(&[("round", 11), ("round", 23), ("end", 1), ("round", 7)]),
        ];
        let (at_marks, notes) = over_runs(&runs);
        let found: Vec<_> =
            at_marks.iter().map(|at| (at.mark.as_str(), at.rss_bytes.median, at.rss_bytes.max)).collect();
        assert_eq!(found, [("round", 11, 12), ("round", 23, 26), ("end", 1, 1)]);
        assert_eq!(notes, ["not every run set the marks late, only here, round, so they have no RSS"]);
        assert_eq!(over_runs(&[Vec::new(), Vec::new()]), (Vec::new(), Vec::new()));
        assert_eq!(over_runs(&[]), (Vec::new(), Vec::new()));
    }

    #[test]
    fn marks_above_the_maximum_are_told() {
        for (marks, notes) in [(MARKS_MAX, 0), (MARKS_MAX + 1, 1)] {
            let runs = vec![run(&vec![("round", 1); marks]); 2];
            let (at_marks, told) = over_runs(&runs);
            assert_eq!((at_marks.len(), told.len()), (MARKS_MAX, notes), "{told:?}");
        }
    }

    #[test]
    fn a_mark_waits_until_memory_has_been_read_and_a_run_without_marks_ends() {
        // This process stands for a keeper: the processes below it are those of these tests.
        let marks = Marks::of(std::process::id()).expect("a socket");
        let (said, taken) = marks.during(|| said(std::process::id(), "loaded"));
        said.expect("an answer");
        assert_eq!(taken.iter().map(|mark| mark.name.as_str()).collect::<Vec<_>>(), ["loaded"]);
        assert_eq!(marks.during(|| 7), (7, Vec::new()));
        assert!(!mark(std::process::id(), "loaded").expect("a good name"), "there is no keeper above this process");
        assert!(mark(std::process::id(), "").is_err());
    }
}
