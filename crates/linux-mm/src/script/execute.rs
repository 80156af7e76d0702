//! Execution of scripts on the model.

use super::{ARENA_PAGES, ForkWriter, Op, OpResult, ScanOf, Script, Touch};
use crate::{Access, Content, Counters, Errno, FullScan, Kernel, KernelConfig, MapFlags, RemapSource};

/// Where the model places an arena: 2 MiB-aligned, with nothing else mapped in the same 512 GiB.
const BASE: u64 = 1 << 20;

impl Script {
    /// The arena's first page in a model that executes this script.
    pub fn first_page(&self) -> u64 {
        BASE + self.header.base
    }

    /// The model before the first step of this script: `config`, changed by the script's header.
    pub fn kernel(&self, config: &KernelConfig) -> Kernel {
        Kernel::with_arena(self.header.applied_to(config), self.first_page())
    }
}

impl Kernel {
    /// A kernel with only a script's arena in its address space: one writable NORESERVE mapping from page `base` on.
    /// The address space stays empty if the arena would end beyond it.
    pub fn with_arena(config: KernelConfig, base: u64) -> Self {
        let mut kernel = Self::new(config);
        let flags = MapFlags { noreserve: true, ..MapFlags::READ_WRITE };
        let _ = kernel.map(base..base + ARENA_PAGES, flags);
        kernel
    }

    /// Executes one operation on the arena that starts at page `base`.
    pub fn execute(&mut self, op: &Op, base: u64) -> OpResult {
        let before = self.counters;
        let range = |start: u64, length: u64| base + start..base + start + length;
        let result = match *op {
            Op::Map(start, length, flags) => self.map(range(start, length), flags).result,
            Op::Unmap(start, length) => self.unmap(range(start, length)),
            Op::Advise(advice, start, length) => self.advise(range(start, length), advice).result,
            Op::Protect(start, length, protection) => self.protect(range(start, length), protection),
            Op::Remap(old, length, new, source) => self.remap(base + old, length, base + new, source),
            Op::Resize(start, old, new) => self.resize(base + start, old, new),
            Op::Mremap(old, length, new, new_length) => {
                self.mremap(range(old, length), range(new, new_length), RemapSource::Unmapped)
            }
            Op::LockAll(flags) => self.lock_all(flags).result,
            Op::UnlockAll => {
                self.unlock_all();
                Ok(())
            }
            Op::Lock(start, length, on_fault) => self.lock(range(start, length), on_fault).result,
            Op::Unlock(start, length) => self.unlock(range(start, length)),
            Op::Name(start, length, name) => self.name(range(start, length), name),
            Op::MapFile(start, length) => self.map_unmodelled(range(start, length)),
            Op::TouchFile(start, length, stride) => {
                for page in range(start, length).step_by(usize::try_from(stride).unwrap_or(usize::MAX)) {
                    self.touch_unmodelled(page);
                }
                Ok(())
            }
            Op::Touch(touch, start, length, stride) => {
                let pages = range(start, length).step_by(usize::try_from(stride).unwrap_or(usize::MAX));
                let failed = pages.filter(|&page| self.touch(page, touch.access()).is_err()).count();
                return self.op_result(before, failed as i64, None);
            }
            Op::Scan(of, _) => {
                self.execute_scan(of);
                Ok(())
            }
            Op::Fork(writer, start, length, stride) => {
                let pages = range(start, length).step_by(usize::try_from(stride).unwrap_or(usize::MAX));
                return self.execute_fork(writer, pages);
            }
        };
        self.op_result(before, if result.is_ok() { 0 } else { -1 }, result.err())
    }

    fn execute_fork(&mut self, writer: ForkWriter, pages: impl Iterator<Item = u64>) -> OpResult {
        let before = self.counters;
        let mut child = self.fork();
        let writing = match writer {
            ForkWriter::Child => &mut child,
            ForkWriter::Parent => &mut *self,
        };
        let faults_before = writing.counters.faults;
        for page in pages {
            // A failing access costs the writing process an exception. No process is charged a fault.
            let _ = writing.touch(page, Touch::WriteOne.access());
        }
        let faults = writing.counters.faults - faults_before;
        // The kernel's counter is machine-wide.
        self.counters.pmd_splits += child.counters.pmd_splits;
        drop(child);
        self.op_result(before, faults as i64, None)
    }

    /// Scans until nothing changes. One scan of a single process suffices, so the number of scans does not matter; with a
    /// child a collapse in one process changes what the other shares.
    fn execute_scan(&mut self, of: ScanOf) {
        let mut child = (of == ScanOf::ProcessAndChild).then(|| self.fork());
        loop {
            let done = self.khugepaged_scan();
            let by_child = child.as_mut().map(Kernel::khugepaged_scan).unwrap_or_default();
            if done == FullScan::default() && by_child == FullScan::default() {
                return;
            }
        }
    }

    fn op_result(&self, before: Counters, ret: i64, errno: Option<Errno>) -> OpResult {
        let now = self.counters;
        OpResult { ret, errno, faults: now.faults - before.faults, traps: now.traps - before.traps }
    }
}

impl Touch {
    fn access(self) -> Access {
        match self {
            Self::Read => Access::Read,
            Self::WriteOne => Access::Write(Content::NonZero),
            Self::WriteZero | Self::SystemCall => Access::Write(Content::Zero),
        }
    }
}
