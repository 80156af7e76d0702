//! Watches a run of the program: gives it its load, and stops it after that or at the time limit.

use std::process::{Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::listener::Listener;

/// Interval between two looks at a command, and between two tries of the readiness.
const INTERVAL: Duration = Duration::from_millis(100);
/// After this time the user is told what is waited for.
const SILENCE: Duration = Duration::from_secs(10);
/// Time that a program has to end after its signal.
const GRACE: Duration = Duration::from_secs(20);

/// The signals that can stop a program.
const SIGNALS: [(&str, Signal); 7] = [
    ("HUP", Signal::HUP),
    ("INT", Signal::INT),
    ("QUIT", Signal::QUIT),
    ("TERM", Signal::TERM),
    ("USR1", Signal::USR1),
    ("USR2", Signal::USR2),
    ("KILL", Signal::KILL),
];

/// The signal that stops a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop(Signal);

impl Default for Stop {
    fn default() -> Self {
        Stop(Signal::TERM)
    }
}

impl FromStr for Stop {
    type Err = String;

    fn from_str(word: &str) -> Result<Self, String> {
        let name = word.strip_prefix("SIG").unwrap_or(word);
        let known = SIGNALS.into_iter().find(|(known, _)| *known == name);
        let names = || SIGNALS.map(|(name, _)| name).join(", ");
        known.map(|(_, signal)| Stop(signal)).ok_or_else(|| format!("signals are {}", names()))
    }
}

/// How long a run takes at most, if its user does not say: this many times as long as a known run, and this long in any
/// case.
const TIMES_KNOWN: u32 = 10;
const LIMIT_MIN: Duration = Duration::from_secs(60);

/// What the user says about the load and the end of a run.
#[derive(Clone, Debug, Default)]
pub struct Supervision {
    /// A shell command that uses the program, after which it is stopped.
    pub load: Option<String>,
    /// A shell command that succeeds when the program is ready for its load.
    pub ready: Option<String>,
    /// The signal that stops it.
    pub stop: Stop,
    /// The longest time of a run; `None`: ten times a known run, at least a minute.
    pub time_limit: Option<Duration>,
}

impl Supervision {
    /// What watches a run of a program of which a run is known that took this long.
    pub fn supervisor(&self, known: Duration) -> Supervisor {
        let limit = self.time_limit.unwrap_or((known * TIMES_KNOWN).max(LIMIT_MIN));
        Supervisor { ready: self.ready.clone(), load: self.load.clone(), stop: self.stop, limit }
    }
}

/// A moment of a run with a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// The program is ready; its load starts.
    Ready,
    /// The load has succeeded; the program is stopped.
    Loaded,
}

/// How a run is watched.
#[derive(Clone, Debug)]
pub struct Supervisor {
    /// A shell command that succeeds when the program is ready.
    pub ready: Option<String>,
    /// The shell command that uses the program.
    pub load: Option<String>,
    /// The signal that stops it.
    pub stop: Stop,
    /// The longest time of a run.
    pub limit: Duration,
}

/// Why a run is not the one that was asked for; `None` for one that is.
type Trouble = Option<String>;

/// A run being watched.
struct Watched<'a> {
    how: &'a Supervisor,
    listener: &'a dyn Listener,
    reached: &'a (dyn Fn(Moment) + Sync),
    program: Option<OwnedFd>,
    /// Disconnected when the program has ended.
    end: &'a Receiver<()>,
    begin: Instant,
}

/// How a command of the user's ended.
enum Ran {
    Done(ExitStatus),
    /// The program ended meanwhile.
    ProgramEnded,
    TimeUp,
    Failed(std::io::Error),
}

impl Supervisor {
    /// Watches what `run` does, which calls its argument with the process id of the program, and returns when the program
    /// has ended. `reached` is called at the moments of its load. Returns also why the run is not the one that was asked
    /// for.
    pub fn watch<T>(
        &self,
        listener: &dyn Listener,
        reached: &(dyn Fn(Moment) + Sync),
        run: impl FnOnce(&mut dyn FnMut(i32)) -> T,
    ) -> (T, Trouble) {
        thread::scope(|scope| {
            let (running, end) = mpsc::channel::<()>();
            let mut end = Some(end);
            let mut watcher = None;
            let result = run(&mut |pid| {
                let Some(end) = end.take() else { return };
                watcher = Some(scope.spawn(move || self.look_after((listener, reached), pid, &end)));
            });
            drop(running);
            let trouble = watcher.and_then(|watcher| watcher.join().unwrap_or(None));
            (result, trouble)
        })
    }

    fn look_after(
        &self,
        (listener, reached): (&dyn Listener, &(dyn Fn(Moment) + Sync)),
        pid: i32,
        end: &Receiver<()>,
    ) -> Trouble {
        // A descriptor names this process only, even after its end.
        let program = Pid::from_raw(pid).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        let watched = Watched { how: self, listener, reached, program, end, begin: Instant::now() };
        match &self.load {
            Some(load) => watched.with_load(load),
            None => watched.alone(),
        }
    }
}

impl Watched<'_> {
    fn alone(&self) -> Trouble {
        if self.ends_within(SILENCE.min(self.how.limit)) {
            return None;
        }
        let limit = self.how.limit.as_secs_f64();
        if self.how.limit > SILENCE {
            self.listener.note(&format!("waiting for the program; it is stopped after {limit} s (--time-limit)"));
            if self.ends_within(self.remaining()) {
                return None;
            }
        }
        self.stop();
        Some(format!("the program was stopped after {limit} s; a server needs --load, a long run --time-limit"))
    }

    fn with_load(&self, load: &str) -> Trouble {
        if let Some(ready) = &self.how.ready {
            loop {
                match self.run(ready) {
                    Ran::Done(status) if status.success() => break,
                    Ran::Done(_) if self.ends_within(INTERVAL) => return Some(ended_before("ready")),
                    Ran::Done(_) if self.remaining().is_zero() => return self.late("not ready"),
                    Ran::Done(_) => {}
                    Ran::ProgramEnded => return Some(ended_before("ready")),
                    Ran::TimeUp => return self.late("not ready"),
                    Ran::Failed(why) => return self.failed("--ready", &why.to_string()),
                }
            }
        }
        (self.reached)(Moment::Ready);
        match self.run(load) {
            Ran::Done(status) if status.success() => {
                (self.reached)(Moment::Loaded);
                self.stop();
                None
            }
            Ran::Done(status) => self.failed("--load", &status.to_string()),
            Ran::ProgramEnded => Some(ended_before("loaded")),
            Ran::TimeUp => self.late("not loaded"),
            Ran::Failed(why) => self.failed("--load", &why.to_string()),
        }
    }

    fn late(&self, what: &str) -> Trouble {
        self.stop();
        Some(format!("the program was {what} after {} s (--time-limit)", self.how.limit.as_secs_f64()))
    }

    fn failed(&self, flag: &str, why: &str) -> Trouble {
        self.stop();
        Some(format!("the command of {flag} failed: {why}"))
    }

    /// Runs a shell command while the program runs, until the time limit. Its errors are shown.
    fn run(&self, command: &str) -> Ran {
        let mut shell = Command::new("/bin/sh");
        shell.args(["-c", command]).stdin(Stdio::null()).stdout(Stdio::null());
        if self.how.ready.as_deref() == Some(command) {
            // Its failures are expected.
            shell.stderr(Stdio::null());
        }
        let mut child = match shell.spawn() {
            Ok(child) => child,
            Err(why) => return Ran::Failed(why),
        };
        loop {
            match child.try_wait() {
                Ok(Some(status)) => return Ran::Done(status),
                Ok(None) => {}
                Err(why) => return Ran::Failed(why),
            }
            let has_ended = self.ends_within(INTERVAL / 10);
            if !has_ended && !self.remaining().is_zero() {
                continue;
            }
            // A load may stop the program itself, and end soon after it.
            let until = Instant::now() + INTERVAL * 10;
            while has_ended && Instant::now() < until {
                if let Ok(Some(status)) = child.try_wait() {
                    return Ran::Done(status);
                }
                thread::sleep(INTERVAL / 10);
            }
            let _ = child.kill();
            let _ = child.wait();
            return if has_ended { Ran::ProgramEnded } else { Ran::TimeUp };
        }
    }

    /// Stops the program with its signal, then by force.
    fn stop(&self) {
        self.signal(self.how.stop.0);
        if !self.ends_within(GRACE) {
            self.listener
                .note(&format!("the program did not end {} s after its signal; it is killed", GRACE.as_secs()));
            self.signal(Signal::KILL);
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(program) = &self.program {
            // It may have ended by itself.
            let _ = pidfd_send_signal(program, signal);
        }
    }

    fn ends_within(&self, time: Duration) -> bool {
        !matches!(self.end.recv_timeout(time), Err(RecvTimeoutError::Timeout))
    }

    fn remaining(&self) -> Duration {
        self.how.limit.saturating_sub(self.begin.elapsed())
    }
}

fn ended_before(what: &str) -> String {
    format!("the program ended before it was {what}")
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    /// Watches a shell command as if it were the program.
    fn watched(program: &str, ready: Option<&str>, load: Option<&str>, limit: Duration) -> (ExitStatus, Trouble) {
        let (ready, load) = (ready.map(str::to_string), load.map(str::to_string));
        let supervisor = Supervisor { ready, load, stop: Stop(Signal::TERM), limit };
        let reached = Mutex::new(Vec::new());
        let note = |moment| reached.lock().expect("no panic").push(moment);
        let watched = supervisor.watch(&(), &note, |started| {
            let mut child = Command::new("/bin/sh").args(["-c", program]).spawn().expect("a shell");
            started(child.id() as i32);
            child.wait().expect("its end")
        });
        let is_loaded = supervisor.load.is_some() && watched.1.is_none();
        let reached = reached.into_inner().expect("no panic");
        assert_eq!(reached == [Moment::Ready, Moment::Loaded], is_loaded, "{reached:?}");
        watched
    }

    #[test]
    fn a_server_is_loaded_when_it_is_ready_and_then_stopped() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (up, used) = (path("up"), path("used"));
        let server = format!("trap 'exit 5' TERM; sleep 0.3; : > {up}; while :; do sleep 0.05; done");
        let (ready, load) = (format!("test -e {up}"), format!("test -e {up} && : > {used}"));
        let (status, trouble) = watched(&server, Some(&ready), Some(&load), Duration::from_secs(30));
        assert_eq!((status.code(), trouble), (Some(5), None));
        assert!(folder.path().join("used").exists());
    }

    #[test]
    fn what_is_not_as_asked_for_has_a_reason() {
        let second = Duration::from_secs(1);
        let reason = |program, ready, load| watched(program, ready, load, second).1.unwrap_or_default();
        assert_eq!(reason("true", None, None), "");
        assert!(reason("exec sleep 60", None, None).contains("stopped after 1 s; a server needs --load"));
        assert!(reason("exec sleep 60", Some("false"), Some("true")).contains("not ready after 1 s"));
        assert!(reason("exec sleep 60", None, Some("exit 3")).contains("--load failed: exit status: 3"));
        assert!(reason("exec sleep 60", None, Some("exec sleep 60")).contains("not loaded after 1 s"));
        assert!(reason("true", Some("sleep 0.1; false"), Some("true")).contains("ended before it was ready"));
    }

    #[test]
    fn signals_have_two_spellings() {
        assert_eq!("SIGINT".parse(), Ok(Stop(Signal::INT)));
        assert_eq!("INT".parse(), Ok(Stop(Signal::INT)));
        assert!("STOP".parse::<Stop>().is_err_and(|why| why.contains("HUP, INT")));
    }
}
