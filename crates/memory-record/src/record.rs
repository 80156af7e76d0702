//! Records of the kernel's rings.

use hksim_linux_probe::ring::{
    HEADER_BYTES, MISC_COMM_EXEC, RECORD_COMM, RECORD_EXIT, RECORD_FORK, RECORD_LOST, RECORD_SAMPLE, RecordHeader,
};
use hksim_memory_trace::TouchKind;

use crate::attach::Attached;
use crate::calls::Arguments;
use crate::stack_dump::{SAMPLED, STACK_POINTER, StackDump};

/// `PERF_RECORD_MMAP2` (`include/uapi/linux/perf_event.h`).
const RECORD_MMAP2: u32 = 10;
/// Bytes of process, thread and time at the end of records that are not samples.
const TRAILER_BYTES: usize = 16;
/// Offset of the address in a sample of a software event: after header, process and thread, and time.
const ADDRESS_AT: usize = HEADER_BYTES + 2 * 8;
/// Offset of a tracepoint's data: after header, process and thread, time, and the data's length.
const RAW_AT: usize = HEADER_BYTES + 2 * 8 + 4;
/// Bit of the processor's page-fault error code that is set for writes.
const ERROR_WRITE: u64 = 2;
/// `PERF_SAMPLE_REGS_ABI_64`.
const ABI_64: u64 = 2;
/// Start of the kernel's half of the address space.
const KERNEL_HALF: u64 = 1 << 63;

/// What samples contain.
#[derive(Clone, Copy, Debug)]
pub enum Samples {
    /// Data of tracepoints.
    Tracepoints(Layout),
    /// The address of a page fault, without read or write.
    Faults,
}

/// Where tracepoint data holds its fields, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    /// Ids of the two tracepoints of page faults.
    pub fault_ids: [u16; 2],
    pub fault_address_at: usize,
    pub fault_error_at: usize,
    pub enter_id: u16,
    pub enter_number_at: usize,
    pub enter_arguments_at: usize,
    /// The entry of madvise, which has a tracepoint of its own, and where its arguments begin.
    pub madvise: Option<(u16, usize)>,
    pub exit_id: u16,
    pub exit_number_at: usize,
    pub exit_result_at: usize,
    pub new_task_id: u16,
    pub new_task_flags_at: usize,
}

/// One record, with its process, thread and time (CLOCK_MONOTONIC, ns).
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub time_ns: u64,
    pub pid: u32,
    pub tid: u32,
    pub what: What,
}

/// What a record reports.
#[derive(Clone, Debug, PartialEq)]
pub enum What {
    /// A page fault.
    Fault { address: u64, kind: TouchKind },
    /// The entry of a system call, with its registers and stack if they were asked for.
    Enter { number: i64, arguments: Box<Arguments>, dump: Option<Box<StackDump>> },
    /// The exit of a system call.
    Exit { number: i64, result: i64 },
    /// The thread has created a thread or process, of which the next [`What::NewTask`] of the same thread has the
    /// flags.
    Fork { child_pid: u32, child_tid: u32 },
    /// The `CLONE_*` flags of the thread or process created last.
    NewTask { clone_flags: u64 },
    /// The thread ended.
    ThreadEnd,
    /// The process has a new address space, with a program of this name.
    Exec { name: String },
    /// A new or grown mapping.
    Mapped { address: u64, bytes: u64, offset: u64, protection: u32, flags: u32, file: String },
    /// Records that did not fit into the ring.
    Lost(u64),
    /// The process was attached to; all its earlier records are of no use.
    Attached(Box<Attached>),
}

impl Samples {
    /// Parses a record; `None` for records that are not used.
    pub fn parse(&self, header: RecordHeader, bytes: &[u8]) -> Option<Record> {
        let bytes = Bytes(bytes);
        match header.kind {
            RECORD_SAMPLE => self.sample(bytes),
            RECORD_LOST => {
                let (pid, tid, time_ns) = bytes.trailer()?;
                Some(Record { time_ns, pid, tid, what: What::Lost(bytes.long(HEADER_BYTES + 8)?) })
            }
            RECORD_EXIT => {
                // The trailer may lack the ids: the thread is about to lose them.
                let (pid, tid) = (bytes.word(HEADER_BYTES)?, bytes.word(HEADER_BYTES + 8)?);
                Some(Record { time_ns: bytes.trailer()?.2, pid, tid, what: What::ThreadEnd })
            }
            _ => {
                let (pid, tid, time_ns) = bytes.trailer()?;
                Some(Record { time_ns, pid, tid, what: bytes.about_processes(header)? })
            }
        }
    }

    fn sample(&self, bytes: Bytes<'_>) -> Option<Record> {
        let (pid, tid, time_ns) =
            (bytes.word(HEADER_BYTES)?, bytes.word(HEADER_BYTES + 4)?, bytes.long(HEADER_BYTES + 8)?);
        let what = match self {
            Self::Tracepoints(layout) => layout.what(bytes)?,
            Self::Faults => fault(bytes.long(ADDRESS_AT)?, TouchKind::Unknown)?,
        };
        Some(Record { time_ns, pid, tid, what })
    }
}

/// A fault; `None` for addresses of the kernel.
fn fault(address: u64, kind: TouchKind) -> Option<What> {
    (address < KERNEL_HALF).then_some(What::Fault { address, kind })
}

impl Layout {
    fn what(&self, bytes: Bytes<'_>) -> Option<What> {
        let id = bytes.word(RAW_AT)? as u16;
        let raw = |at: usize| bytes.long(RAW_AT + at);
        Some(if self.fault_ids.contains(&id) {
            let writes = raw(self.fault_error_at)? & ERROR_WRITE != 0;
            fault(raw(self.fault_address_at)?, if writes { TouchKind::Write } else { TouchKind::Read })?
        } else if id == self.enter_id {
            let mut arguments = Arguments::default();
            for (index, argument) in arguments.iter_mut().enumerate() {
                *argument = raw(self.enter_arguments_at + 8 * index)?;
            }
            let number = raw(self.enter_number_at)? as i64;
            What::Enter { number, arguments: Box::new(arguments), dump: bytes.dump().map(Box::new) }
        } else if let Some((_, arguments_at)) = self.madvise.filter(|&(madvise, _)| id == madvise) {
            let [start, bytes_advised, advice] = [0, 8, 16].map(|at| raw(arguments_at + at));
            let arguments = Box::new([start?, bytes_advised?, advice?, 0, 0, 0]);
            What::Enter { number: libc::SYS_madvise, arguments, dump: bytes.dump().map(Box::new) }
        } else if id == self.exit_id {
            What::Exit { number: raw(self.exit_number_at)? as i64, result: raw(self.exit_result_at)? as i64 }
        } else if id == self.new_task_id {
            What::NewTask { clone_flags: raw(self.new_task_flags_at)? }
        } else {
            return None;
        })
    }
}

/// The bytes of a record.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn word(&self, at: usize) -> Option<u32> {
        Some(u32::from_ne_bytes(self.0.get(at..at + 4)?.try_into().ok()?))
    }

    fn long(&self, at: usize) -> Option<u64> {
        Some(u64::from_ne_bytes(self.0.get(at..at + 8)?.try_into().ok()?))
    }

    /// Process, thread and time of a record that is not a sample.
    fn trailer(&self) -> Option<(u32, u32, u64)> {
        let at = self.0.len().checked_sub(TRAILER_BYTES)?;
        Some((self.word(at)?, self.word(at + 4)?, self.long(at + 8)?))
    }

    fn text(&self, at: usize) -> Option<String> {
        let bytes = self.0.get(at..self.0.len().checked_sub(TRAILER_BYTES)?)?;
        let length = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    /// Registers and stack after a tracepoint's data; `None` without them.
    fn dump(&self) -> Option<StackDump> {
        let registers_at = RAW_AT + self.word(RAW_AT - 4)? as usize;
        // The interface of the registers: none, 32 or 64 bits.
        if self.long(registers_at)? != ABI_64 {
            return None;
        }
        let mut dump = StackDump::default();
        for (index, &(_, register)) in SAMPLED.iter().enumerate() {
            dump.registers[register] = Some(self.long(registers_at + 8 + 8 * index)?);
        }
        let stack_at = registers_at + 8 + 8 * SAMPLED.len() + 8;
        let reserved = self.long(stack_at - 8)? as usize;
        if reserved > 0 {
            let used = self.long(stack_at.checked_add(reserved)?)?.min(reserved as u64) as usize;
            dump.bytes = self.0.get(stack_at..stack_at + used)?.to_vec();
        }
        dump.registers[STACK_POINTER].is_some().then_some(dump)
    }

    fn about_processes(&self, header: RecordHeader) -> Option<What> {
        let at = HEADER_BYTES;
        match header.kind {
            RECORD_FORK => Some(What::Fork { child_pid: self.word(at)?, child_tid: self.word(at + 8)? }),
            RECORD_COMM if header.misc & MISC_COMM_EXEC != 0 => Some(What::Exec { name: self.text(at + 8)? }),
            RECORD_MMAP2 => Some(What::Mapped {
                address: self.long(at + 8)?,
                bytes: self.long(at + 16)?,
                offset: self.long(at + 24)?,
                protection: self.word(at + 56)?,
                flags: self.word(at + 60)?,
                file: self.text(at + 64)?,
            }),
            _ => None,
        }
    }
}
