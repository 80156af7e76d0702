//! Allocator designs: what the author of an allocator writes.

use std::cell::{Ref, RefCell, RefMut};

use hksim_policy::{Errno, Request};
use hksim_trace::event::{AllocCall, ReallocCall, ThreadId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::heaps::{Heaps, request};
use crate::region::Region;
use crate::space::{AddressSpace, Cause, Touch};

/// An allocator of your own, written once and run in both worlds: a simulation predicts what a trace costs on it, and a
/// replay measures that.
///
/// Blocks are addresses in `memory`. Everything that the allocator keeps in memory that should cost what it costs in
/// reality (headers, links, bitmaps, page maps) is read and written with [`AddressSpace::read`] and
/// [`AddressSpace::write`]. The fields of the implementing type are for the few words that would be static variables or
/// registers. They must not grow during a run: in a replay, Rust's own heap would take page faults that the simulation
/// does not know.
///
/// Calls come from one thread at a time, in the order of the trace. `thread` is the number of the trace's thread that
/// calls, for caches of each thread.
///
/// # Example
/// An allocator that gives each block a mapping of its own, and a header in front of it, simulated:
///
/// ```
/// use hksim_engine::{
///     AddressSpace, Cause, Design, DesignLabel, Errno, Mapping, PAGE_BYTES, Request, TouchRule,
/// };
/// use hksim_sim::{DesignConfig, Marks, simulate_design};
/// use hksim_trace::generate::{RandomMixed, Workload};
///
/// struct OneMapping;
///
/// impl Design for OneMapping {
///     const NAME: &'static str = "one-mapping";
///     type Settings = ();
///
///     fn start(_settings: &(), _memory: &mut impl AddressSpace) -> Result<OneMapping, Errno> {
///         Ok(OneMapping)
///     }
///
///     fn allocate(&mut self, memory: &mut impl AddressSpace, _thread: u32, request: Request) -> Option<u64> {
///         let offset = request.align.max(16);
///         let bytes = request.bytes.checked_add(offset)?.checked_next_multiple_of(PAGE_BYTES)?;
///         let block = memory.map(bytes, offset.max(PAGE_BYTES), Mapping::Plain).ok()? + offset;
///         memory.write(block - 16, offset, Cause::Header);
///         memory.write(block - 8, bytes, Cause::Header);
///         Some(block)
///     }
///
///     fn free(&mut self, memory: &mut impl AddressSpace, _thread: u32, block: u64) {
///         let offset = memory.read(block - 16, Cause::Header);
///         let bytes = memory.read(block - 8, Cause::Header);
///         // If the kernel's limits prevent it, the mapping is lost.
///         let _ = memory.unmap(block - offset, bytes);
///     }
///
///     fn usable_bytes(&mut self, memory: &mut impl AddressSpace, block: u64) -> u64 {
///         memory.read(block - 8, Cause::Header) - memory.read(block - 16, Cause::Header)
///     }
/// }
///
/// let workload = Workload::RandomMixed(RandomMixed { cycles: 1000, ..RandomMixed::default() });
/// let config = DesignConfig::<OneMapping> {
///     policy: DesignLabel::of::<OneMapping>(&()),
///     touch: TouchRule::All,
///     kernel: Default::default(),
///     tlb: None,
///     memory_policy: Default::default(),
///     addresses: Default::default(),
///     forks: Vec::new(),
///     counted: Default::default(),
///     file: None,
/// };
/// let mut source = workload.source()?;
/// let predicted = simulate_design::<OneMapping>(source.as_mut(), &config, Marks::Skip, &|_| {})?.report;
/// // Every page is installed by its header or by the program, or again after it was unmapped.
/// let by_reason = predicted.installs.by_reason;
/// assert_eq!(by_reason.header + by_reason.application + by_reason.refault_after_purge, predicted.faults);
/// assert!(predicted.os_calls.mmap > 400 && predicted.requests_failed == 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// `examples/bump.rs` of `hksim-designs` is a complete program: a prediction, a replay on real memory, a comparison. A
/// design that is listed in that crate has a name in every command.
pub trait Design: Sized {
    /// Its name in results and in the specifications of replays.
    const NAME: &'static str;

    /// Its settings: a type with fields, or `()` if there are none.
    type Settings: Clone + std::fmt::Debug + PartialEq + Serialize + DeserializeOwned + Send + Sync;

    /// Starts the allocator, before the first event.
    ///
    /// # Errors
    /// The memory that it needs at its start cannot be mapped (the kernel's error), or a setting is out of range (EINVAL).
    fn start(settings: &Self::Settings, memory: &mut impl AddressSpace) -> Result<Self, Errno>;

    /// Allocates `request.bytes` bytes (0 is allowed) at a multiple of `request.align`, zeroed if `request.zeroed`. Live
    /// blocks do not overlap, and each has an address of its own. `None` if the request cannot be served.
    fn allocate(&mut self, memory: &mut impl AddressSpace, thread: u32, request: Request) -> Option<u64>;

    /// Frees a live block.
    fn free(&mut self, memory: &mut impl AddressSpace, thread: u32, block: u64);

    /// The bytes of a live block that the program may use; at least as many as it requested.
    fn usable_bytes(&mut self, memory: &mut impl AddressSpace, block: u64) -> u64;

    /// Changes the size of a live block, and keeps its bytes up to the smaller size. Returns its address, or `None` if the
    /// request cannot be served; the block is then unchanged. The default keeps a block that is large enough, and
    /// otherwise allocates, copies and frees.
    fn resize(&mut self, memory: &mut impl AddressSpace, thread: u32, block: u64, bytes: u64) -> Option<u64> {
        let usable_bytes = self.usable_bytes(memory, block);
        if bytes <= usable_bytes {
            return Some(block);
        }
        let new = self.allocate(memory, thread, Request::plain(bytes))?;
        memory.copy(new, block, usable_bytes);
        self.free(memory, thread, block);
        Some(new)
    }

    /// A thread of the trace ends.
    fn thread_exit(&mut self, _memory: &mut impl AddressSpace, _thread: u32) {}
}

/// The description of a design in results.
#[derive(Clone, Debug, PartialEq, Serialize, serde::Deserialize)]
pub struct DesignLabel<S> {
    /// [`Design::NAME`].
    pub design: String,
    /// [`Design::Settings`].
    pub settings: S,
}

impl<S: Clone> DesignLabel<S> {
    /// The description of a design with these settings.
    pub fn of<D: Design<Settings = S>>(settings: &S) -> DesignLabel<S> {
        DesignLabel { design: D::NAME.into(), settings: settings.clone() }
    }
}

/// The clock of an address space, which the executor of a trace sets.
pub trait SetClock {
    /// Sets the time, in nanoseconds.
    fn set_now(&mut self, now_ns: u64);
}

/// A design in its memory: [`Heaps`] for every design.
pub struct OnSpace<D, M> {
    design: RefCell<D>,
    memory: RefCell<M>,
}

impl<D: Design, M: AddressSpace> OnSpace<D, M> {
    /// Starts a design.
    ///
    /// # Errors
    /// Those of [`Design::start`].
    pub fn start(settings: &D::Settings, mut memory: M) -> Result<OnSpace<D, M>, Errno> {
        let design = D::start(settings, &mut memory)?;
        Ok(OnSpace { design: RefCell::new(design), memory: RefCell::new(memory) })
    }
}

impl<D, M> OnSpace<D, M> {
    /// The design, for tests of its consistency.
    pub fn design(&self) -> Ref<'_, D> {
        self.design.borrow()
    }

    /// The memory.
    pub fn memory(&self) -> Ref<'_, M> {
        self.memory.borrow()
    }

    /// The memory, for its owner.
    pub fn memory_mut(&self) -> RefMut<'_, M> {
        self.memory.borrow_mut()
    }
}

impl<D: Design, M: AddressSpace + SetClock> Heaps for OnSpace<D, M> {
    type Place = u64;
    /// The thread's number.
    type Heap = u32;

    fn open_heap(&self, thread: ThreadId) -> Option<u32> {
        Some(thread.0)
    }

    fn close_heap(&self, thread: u32) {
        self.design.borrow_mut().thread_exit(&mut *self.memory.borrow_mut(), thread);
    }

    fn set_now(&self, now_ns: u64) {
        self.memory.borrow_mut().set_now(now_ns);
    }

    fn allocate(&self, thread: &mut u32, call: AllocCall, bytes: u64, align_log2: u8) -> Option<u64> {
        let request = request(call, bytes, align_log2)?;
        self.design.borrow_mut().allocate(&mut *self.memory.borrow_mut(), *thread, request)
    }

    fn resize(&self, thread: &mut u32, block: u64, bytes: u64, _call: ReallocCall) -> Option<u64> {
        self.design.borrow_mut().resize(&mut *self.memory.borrow_mut(), *thread, block, bytes)
    }

    fn free(&self, thread: &mut u32, block: u64) {
        self.design.borrow_mut().free(&mut *self.memory.borrow_mut(), *thread, block);
    }

    fn usable_bytes(&self, block: u64) -> u64 {
        self.design.borrow_mut().usable_bytes(&mut *self.memory.borrow_mut(), block)
    }

    fn address(&self, block: u64) -> u64 {
        block
    }

    fn identity(&self, block: u64) -> u64 {
        block.wrapping_sub(Region::START)
    }

    fn read(&self, block: u64, offset: u64, bytes: u64) {
        self.memory.borrow_mut().touch(block + offset, bytes, Touch::Read, Cause::Application);
    }

    fn write(&self, block: u64, offset: u64, bytes: u64) {
        self.memory.borrow_mut().touch(block + offset, bytes, Touch::Write, Cause::Application);
    }
}
