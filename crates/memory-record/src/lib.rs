//! Records the page operations of a program and its children: every system call that changes memory, and every page
//! fault, in one order. Each address space gets a `.hkm` file ([`hksim_memory_trace`]).
//!
//! The program itself is not changed, so static programs, and programs with an allocator of their own, are recorded as
//! well. Huge pages are off for the recorded processes (`PR_SET_THP_DISABLE`), so that the first touch of each page
//! shows.
//!
//! There are two ways of recording ([`Source`]). With root's rights, the kernel's tracepoints report everything. Without
//! them, the program is stopped at its memory calls (ptrace and seccomp), and the kernel's page-fault event reports the
//! faults: without read or write, and only those in user mode if `kernel.perf_event_paranoid` is 2.
//!
//! | Module | |
//! |---|---|
//! | `launch` | starts the program, stopped until the events are open |
//! | `source` | chooses the way of recording |
//! | `kernel_events` | tracepoints |
//! | `filter`, `ptrace`, `tracer`, `call_log` | calls by stops |
//! | `fault_events` | page faults without tracepoints |
//! | `attach` | processes that run already |
//! | `session` | a recording in progress |
//! | `record`, `merge` | the records of all rings and of the tracer, merged by time |
//! | `interpreter`, `calls`, `spaces`, `order` | records to page operations of address spaces |
//! | `fault_check` | recorded faults against those that the kernel charged |
//! | `stack_dump`, `unwind`, `code_map`, `module_file` | callers of memory calls |
//! | `shown_mode` | another THP mode than the machine's, for programs that read it |
//! | `thp_guard` | huge pages for processes that outlive the recorder |
//! | `signals` | Ctrl-C while the program runs |
//! | `files` | one file for each address space |
//! | `recovery` | the files of a recorder that was killed |
//! | `snapshot` | the memory of a program at its exit |
//! | `anonymous_peak`, `levels` | its anonymous memory over time, and the highest |

mod anonymous_peak;
mod attach;
mod call_log;
mod calls;
mod clock;
mod code_map;
mod error;
mod fault_check;
mod fault_events;
mod files;
mod filter;
mod interpreter;
mod kernel_events;
mod launch;
mod levels;
mod machine;
mod merge;
mod module_file;
mod order;
mod ptrace;
mod record;
mod recorder;
mod recovery;
mod session;
mod shown_mode;
mod signals;
mod snapshot;
mod source;
mod spaces;
mod stack_dump;
mod thp_guard;
mod tracer;
mod unwind;

pub use attach::{AttachOptions, HugePagesOfRunning, attach};
pub use error::{AttachError, MemoryRecordError};
pub use launch::{Ended, Launch, Running, Stopped, Streams};
pub use levels::Levels;
pub use machine::{inherited_here, is_allocator_variable};
pub use recorder::{HugePages, LeftOut, Options, RecordedFile, RecordingReport, Starting, record, record_with};
pub use recovery::{is_interrupted, recover};
pub use signals::SignalsToProgram;
pub use snapshot::{Anonymous, MeasuredMapping, Peak, Snapshot, Snapshots, SnapshotsOf};
pub use source::Source;
pub use tracer::Traced;
