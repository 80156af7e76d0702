//! The second thread of the process, which executes the operations marked `t`.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use hksim_linux_mm::script::Op;
use hksim_linux_probe::traps::{Mode, TrapCounter};

use super::Unsupported;
use super::arena::{Arena, Returned};

/// The state shared by both threads.
#[derive(Default)]
struct Exchange {
    job: Option<(Arena, Op)>,
    done: Option<Returned>,
}

/// The second thread, which lives as long as the process.
pub(super) struct SecondThread {
    mailbox: Arc<(Mutex<Exchange>, Condvar)>,
    traps: TrapCounter,
}

impl SecondThread {
    /// Starts the thread.
    pub(super) fn start(mode: Mode) -> Result<SecondThread, Unsupported> {
        let mailbox = Arc::new((Mutex::new(Exchange::default()), Condvar::new()));
        let (sender, receiver) = std::sync::mpsc::channel();
        let shared = Arc::clone(&mailbox);
        let thread = move || {
            let traps = TrapCounter::of_thread(mode);
            // The receiver still exists, because it waits for this message.
            let _ = sender.send(traps);
            serve(&shared);
        };
        std::thread::Builder::new().spawn(thread).map_err(|why| Unsupported::new("a second thread", why))?;
        let traps = receiver.recv().map_err(|why| Unsupported::new("a second thread", std::io::Error::other(why)))?;
        let traps = traps.map_err(|why| Unsupported::new("page-fault events", why))?;
        traps.enable();
        Ok(SecondThread { mailbox, traps })
    }

    /// Executes an operation on the thread, and waits for its result.
    pub(super) fn perform(&self, arena: Arena, op: &Op) -> Returned {
        let (mutex, changed) = &*self.mailbox;
        let mut mailbox = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        mailbox.job = Some((arena, *op));
        changed.notify_all();
        loop {
            if let Some(returned) = mailbox.done.take() {
                return returned;
            }
            mailbox = changed.wait(mailbox).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The thread's exceptions so far.
    pub(super) fn traps(&self) -> u64 {
        self.traps.count()
    }
}

fn serve((mutex, changed): &(Mutex<Exchange>, Condvar)) {
    let mut mailbox = mutex.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if let Some((arena, op)) = mailbox.job.take() {
            mailbox.done = Some(arena.perform(&op));
            changed.notify_all();
        }
        mailbox = changed.wait(mailbox).unwrap_or_else(PoisonError::into_inner);
    }
}
