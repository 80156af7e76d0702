//! Turns the kernel's records into page operations of address spaces.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;

use hksim_memory_trace::{End, MapOp, MappingKind, NameId, Op, Origin, PAGE_BYTES, ThpDisabled};

use crate::attach::{Attached, AttachedProcess};
use crate::calls::{self, Arguments, Effect};
use crate::order::Order;
use crate::record::{Record, What};
use crate::spaces::{EndedSpace, SpaceId, Spaces, ThpState};
use crate::stack_dump::StackDump;
use crate::unwind::{Unwinder, Walked};

/// `CLONE_VM`, `CLONE_THREAD` (`include/uapi/linux/sched.h`).
const CLONE_VM: u64 = 0x100;
const CLONE_THREAD: u64 = 0x10000;
/// Its private mappings are anonymous memory (`mmap_zero` in drivers/char/mem.c).
pub(crate) const ZERO_DEVICE: &str = "/dev/zero";
/// First address that a 32-bit program cannot have.
const ADDRESSES_32_BIT: u64 = 1 << 32;

/// What the records said, in order.
#[derive(Clone, Debug, PartialEq)]
pub enum Output {
    /// An address space begins.
    Begin {
        /// Its process.
        pid: u32,
        /// Its number within the process.
        image: u32,
        /// How it begins.
        origin: SpaceOrigin,
        /// Whether it can get huge pages.
        thp: ThpState,
    },
    /// An address space ends.
    End(End),
    /// An operation of a thread. A name, if any, belongs to the mapping.
    Op {
        /// Kernel thread id.
        tid: u32,
        /// The operation.
        op: Op,
        /// The mapping's file.
        name: Option<String>,
        /// The stack of the call, if it was asked for.
        stack: Option<Box<Walked>>,
    },
}

/// How an address space begins.
#[derive(Clone, Debug, PartialEq)]
pub enum SpaceOrigin {
    /// By exec of a program of this name.
    Executed(String),
    /// As a copy of another one.
    Forked(SpaceId),
    /// It was there before.
    Attached(Box<AttachedProcess>),
}

/// A call in progress.
#[derive(Clone, Debug)]
struct Call {
    number: i64,
    arguments: Arguments,
    /// The name of the mapping that it made.
    file: Option<String>,
    dump: Option<Box<StackDump>>,
}

/// Interprets records. Output is for address spaces, numbered in order of their beginning.
pub struct Interpreter {
    spaces: Spaces,
    calls: HashMap<u32, Call>,
    /// Children created by threads that have not reported their flags yet.
    created: HashMap<u32, (u32, u32)>,
    order: Order<(SpaceId, Output)>,
    /// Calls whose effect is not recorded, by address space and name.
    pub unrecorded: HashMap<SpaceId, BTreeMap<String, u64>>,
    /// Lost records.
    pub lost: u64,
    /// Finds call sites, if they were asked for.
    unwinder: Option<Unwinder>,
    /// Address spaces of 32-bit programs, whose calls have other numbers: process and image.
    pub programs_32_bit: Vec<(u32, u32)>,
}

impl Interpreter {
    /// An interpreter for the started process, which inherited `thp_at_start`, and its descendants. Call stacks have up
    /// to `stack_depth` frames.
    pub fn new(root_pid: u32, thp_at_start: ThpDisabled, stack_depth: Option<u32>) -> Self {
        Self::with(Spaces::new(root_pid, thp_at_start), stack_depth)
    }

    /// An interpreter for processes that are attached to, and their descendants.
    pub fn of_running(stack_depth: Option<u32>) -> Self {
        Self::with(Spaces::none(), stack_depth)
    }

    fn with(spaces: Spaces, stack_depth: Option<u32>) -> Self {
        Self {
            spaces,
            calls: HashMap::new(),
            created: HashMap::new(),
            order: Order::new(),
            unrecorded: HashMap::new(),
            lost: 0,
            unwinder: stack_depth.map(Unwinder::new),
            programs_32_bit: Vec::new(),
        }
    }

    /// The next output, with its time and address space.
    pub fn next_output(&mut self) -> Option<(u64, SpaceId, Output)> {
        self.order.pop().map(|(time_ns, (space, output))| (time_ns, space, output))
    }

    /// Address spaces in use when the recording ends.
    pub fn in_use(&self) -> Vec<SpaceId> {
        self.spaces.in_use()
    }

    /// Interprets a record. Records come in the order of their times.
    pub fn take(&mut self, record: Record) {
        let Record { time_ns, pid, tid, what } = record;
        match what {
            What::Fault { address, kind } => {
                self.op(time_ns, pid, tid, Op::Touch { page: address / PAGE_BYTES, kind });
            }
            What::Enter { number, arguments, dump } => {
                self.enter(time_ns, tid, Call { number, arguments: *arguments, file: None, dump });
            }
            What::Exit { number, result } => self.exit(time_ns, pid, tid, number, result),
            What::Fork { child_pid, child_tid } => {
                self.created.insert(tid, (child_pid, child_tid));
            }
            What::NewTask { clone_flags } => self.new_task(time_ns, pid, tid, clone_flags),
            What::ThreadEnd => self.thread_end(time_ns, pid, tid),
            What::Exec { name } => self.exec(time_ns, pid, name),
            What::Attached(attached) => self.attached(time_ns, pid, *attached),
            What::Mapped { address, bytes, offset, protection, flags, file } => {
                self.mapped(time_ns, pid, tid, Mapped { address, bytes, offset, protection, flags, file });
            }
            What::Lost(events) => {
                self.lost += events;
                for space in self.spaces.in_use() {
                    self.push(time_ns, space, tid, Op::Lost { events });
                }
            }
        }
    }

    fn op(&mut self, time_ns: u64, pid: u32, tid: u32, op: Op) {
        if let Some(space) = self.spaces.of(pid) {
            self.push(time_ns, space, tid, op);
        }
    }

    fn push(&mut self, time_ns: u64, space: SpaceId, tid: u32, op: Op) {
        self.order.push(time_ns, (space, Output::Op { tid, op, name: None, stack: None }));
    }

    fn enter(&mut self, time_ns: u64, tid: u32, call: Call) {
        // brk gives memory up only if it lowers the end, which is known at its exit; no other thread can get that
        // memory in between, because only brk hands it out.
        self.order.enter(tid, time_ns, calls::effect(call.number) == Effect::AtEntry);
        self.calls.insert(tid, call);
    }

    fn exit(&mut self, time_ns: u64, pid: u32, tid: u32, number: i64, result: i64) {
        let entered_ns = self.order.exit(tid);
        let Some(call) = self.calls.remove(&tid).filter(|call| call.number == number) else { return };
        let Some(space) = self.spaces.of(pid) else { return };
        if let Some(name) = calls::unrecorded(number) {
            *self.unrecorded.entry(space).or_default().entry(name.to_string()).or_default() += 1;
        }
        let op = match number {
            libc::SYS_brk => self.brk(space, call.arguments[0], result as u64),
            libc::SYS_shmdt if calls::errno(result) == 0 => {
                let attached = self.spaces.get(space).attached.remove(&call.arguments[0]);
                attached.map(|bytes| Op::Unmap(calls::range(call.arguments[0], bytes)))
            }
            _ => calls::completed(number, &call.arguments, result),
        };
        let Some(mut op) = op else { return };
        if let Op::Map(map) = &mut op
            && map.kind == MappingKind::PrivateFile
            && call.file.as_deref() == Some(ZERO_DEVICE)
        {
            map.kind = MappingKind::Anonymous;
        }
        if let &Op::DisableThp { value, flags } = &op {
            self.spaces.get(space).thp = ThpState { disable: ThpDisabled::set(value, flags), is_chosen: true };
        }
        let stack = self.stack(space, call.dump.as_deref());
        if let (libc::SYS_munmap, Op::Unmap(pages)) = (number, &op) {
            let range = pages.start * PAGE_BYTES..pages.end.saturating_mul(PAGE_BYTES);
            self.spaces.get(space).code.unmap(&range);
        }
        let at_ns = match calls::effect(number) {
            Effect::AtEntry => entered_ns.unwrap_or(time_ns),
            Effect::AtExit => time_ns,
        };
        if let Op::Remap { old, .. } = &op {
            let (old, output) = (old.clone(), Output::Op { tid, op, name: None, stack });
            return self.remap(space, at_ns, time_ns, old, output);
        }
        self.order.push(at_ns, (space, Output::Op { tid, op, name: call.file, stack }));
    }

    /// mremap gives memory up and makes memory available. It counts at its exit, or before the first mapping that
    /// another thread got in the range given up.
    fn remap(&mut self, space: SpaceId, entered_ns: u64, exit_ns: u64, old: Range<u64>, output: Output) {
        let reuses = |waiting: &(SpaceId, Output)| match waiting {
            (other, Output::Op { op: Op::Map(map), .. }) => {
                *other == space && map.pages.start < old.end && old.start < map.pages.end
            }
            _ => false,
        };
        let output = (space, output);
        match self.order.first_waiting(entered_ns, reuses) {
            Some(reused_ns) => self.order.push_before(reused_ns, output),
            None => self.order.push(exit_ns, output),
        }
    }

    /// The stack of a call.
    fn stack(&mut self, space: SpaceId, dump: Option<&StackDump>) -> Option<Box<Walked>> {
        let code = &self.spaces.get(space).code;
        Some(Box::new(self.unwinder.as_mut()?.walk(dump?, code)))
    }

    fn brk(&mut self, space: SpaceId, requested: u64, result: u64) -> Option<Op> {
        let space = self.spaces.get(space);
        let before = space.brk.replace(result)?;
        if requested != result {
            return None;
        }
        let (old, new) = (before.div_ceil(PAGE_BYTES), result.div_ceil(PAGE_BYTES));
        let (kind, origin) = (MappingKind::Anonymous, Origin::Brk);
        match new.cmp(&old) {
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Less => Some(Op::Unmap(new..old)),
            std::cmp::Ordering::Greater => {
                let protection = (libc::PROT_READ | libc::PROT_WRITE) as u32;
                let (pages, hint_page, flags, name) = (old..new, 0, 0, None::<NameId>);
                Some(Op::Map(Box::new(MapOp { pages, hint_page, kind, origin, protection, flags, name })))
            }
        }
    }

    fn new_task(&mut self, time_ns: u64, pid: u32, tid: u32, clone_flags: u64) {
        let Some((child_pid, _)) = self.created.remove(&tid) else { return };
        if clone_flags & CLONE_THREAD != 0 {
            self.spaces.thread_began(pid);
        } else if clone_flags & CLONE_VM != 0 {
            self.spaces.shared(pid, child_pid);
        } else if let Some((parent, child)) = self.spaces.forked(pid, child_pid) {
            let (image, thp) = (self.spaces.get(child).image, self.spaces.get(child).thp);
            let begin = Output::Begin { pid: child_pid, image, origin: SpaceOrigin::Forked(parent), thp };
            self.push(time_ns, parent, tid, Op::Fork { child_pid });
            self.order.push(time_ns, (child, begin));
        }
    }

    fn exec(&mut self, time_ns: u64, pid: u32, name: String) {
        let Some((space, ended)) = self.spaces.executed(pid) else { return };
        if let Some(ended) = ended {
            self.end(time_ns, ended, End::Exec);
        }
        let (image, thp) = (self.spaces.get(space).image, self.spaces.get(space).thp);
        self.order.push(time_ns, (space, Output::Begin { pid, image, origin: SpaceOrigin::Executed(name), thp }));
    }

    /// A process that was attached to: its address space begins with what it has.
    fn attached(&mut self, time_ns: u64, pid: u32, attached: Attached) {
        let Attached { process, space, threads, operations } = attached;
        let thp = space.thp;
        let space = self.spaces.attached(pid, threads, space);
        let origin = SpaceOrigin::Attached(Box::new(process));
        self.order.push(time_ns, (space, Output::Begin { pid, image: 0, origin, thp }));
        for (op, name) in operations {
            self.order.push(time_ns, (space, Output::Op { tid: pid, op, name, stack: None }));
        }
    }

    fn thread_end(&mut self, time_ns: u64, pid: u32, tid: u32) {
        self.order.abandon(tid);
        self.calls.remove(&tid);
        if let Some(ended) = self.spaces.thread_ended(pid) {
            self.end(time_ns, ended, End::Exit);
        }
    }

    fn end(&mut self, time_ns: u64, ended: EndedSpace, end: End) {
        if let Some(from) = ended.forked_from {
            self.push(time_ns, from.parent, from.child_pid, Op::ChildEnded { child_pid: from.child_pid });
        }
        self.order.push(time_ns, (ended.space, Output::End(end)));
    }

    fn mapped(&mut self, time_ns: u64, pid: u32, tid: u32, mapped: Mapped) {
        let Some(space) = self.spaces.of(pid) else { return };
        if self.unwinder.is_some() {
            let range = mapped.address..mapped.address.saturating_add(mapped.bytes);
            let is_executable = mapped.protection & libc::PROT_EXEC as u32 != 0;
            let path = mapped.path().or(is_executable.then_some(""));
            self.spaces.get(space).code.map(range, path.map(|path| (path, mapped.offset)));
        }
        if let Some(call) = self.calls.get_mut(&tid).filter(|call| calls::tells_mappings(call.number)) {
            if call.number == libc::SYS_mmap {
                call.file = mapped.name();
            }
            return;
        }
        let is_exec = self.calls.get(&tid).is_some_and(|call| calls::is_exec(call.number));
        // Exec makes the stack first. Linux 5.15 and 6.1 report it once more before, without its name and at its first
        // size (`setup_arg_pages` in fs/exec.c).
        let known = self.spaces.get(space);
        known.has_stack |= mapped.file == "[stack]";
        if is_exec && !known.has_stack && mapped.file == "//anon" {
            return;
        }
        if mapped.file == "[stack]" && mapped.address + mapped.bytes < ADDRESSES_32_BIT {
            let image = self.spaces.get(space).image;
            self.programs_32_bit.push((pid, image));
        }
        if self.calls.get(&tid).is_some_and(|call| call.number == libc::SYS_shmat) {
            self.spaces.get(space).attached.insert(mapped.address, mapped.bytes);
        }
        // Outside calls, anonymous memory is reported only when a stack grows: one made with MAP_GROWSDOWN has no name.
        let is_growth = !self.calls.contains_key(&tid) && mapped.file == "//anon";
        let map = MapOp {
            pages: calls::range(mapped.address, mapped.bytes),
            hint_page: 0,
            kind: if is_growth { MappingKind::GrowingStack } else { mapped.kind() },
            origin: if is_exec { Origin::Exec } else { Origin::Kernel },
            protection: mapped.protection,
            flags: mapped.flags,
            name: None,
        };
        let output = Output::Op { tid, op: Op::Map(Box::new(map)), name: mapped.name(), stack: None };
        self.order.push(time_ns, (space, output));
    }
}

/// A mapping as the kernel reports it.
struct Mapped {
    address: u64,
    bytes: u64,
    /// Offset in the file.
    offset: u64,
    protection: u32,
    flags: u32,
    file: String,
}

impl Mapped {
    fn kind(&self) -> MappingKind {
        match self.file.as_str() {
            "[stack]" => MappingKind::GrowingStack,
            "//anon" | "[heap]" => calls::mapping_kind(self.flags, false),
            name if name.starts_with('[') => MappingKind::Special,
            _ => calls::mapping_kind(self.flags, true),
        }
    }

    /// The path of the file, if one is mapped.
    fn path(&self) -> Option<&str> {
        Some(&*self.file).filter(|file| file.starts_with('/') && !file.starts_with("//"))
    }

    fn name(&self) -> Option<String> {
        (self.file != "//anon").then(|| self.file.clone())
    }
}
