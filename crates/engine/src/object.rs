//! One object of a trace: what an event does to it. Simulation, ordered and threaded replays of every allocator use these
//! functions.

use std::ops::Range;

use hksim_trace::event::{Access, AllocCall, InitialTouch, ObjectId, Op, ReallocCall};

use crate::TouchRule;
use crate::heaps::{Heaps, PlacedBlock};
use crate::initial_touch::touch_new_bytes;

/// An object, and its block while it has one.
#[derive(Clone, Copy, Debug)]
pub struct Object<P> {
    pub(crate) place: Option<P>,
    pub(crate) bytes: u64,
    /// The length of the touched prefix. [`crate::scattered::Scattered`] stores the touched bytes beyond it.
    pub(crate) touched_bytes: u64,
}

impl<P> Object<P> {
    /// An object without a block.
    pub const DEAD: Object<P> = Object { place: None, bytes: 0, touched_bytes: 0 };
}

/// A request that the allocator did not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// What an execution counts about its objects. `()` counts nothing.
pub trait Counts {
    /// The object was placed, or placed again after a resize.
    fn placed(&mut self, object: ObjectId, identity: impl FnOnce() -> u64);
    /// A new object of `bytes` bytes was placed, and its first `touched_bytes` bytes were touched.
    fn added(&mut self, bytes: u64, touched_bytes: u64);
    /// Every byte of an object of `bytes` bytes is touched, right before it is removed.
    fn all_touched(&mut self, bytes: u64);
    /// The object was removed.
    fn removed<P>(&mut self, object: ObjectId, removed: &Object<P>);
    /// The object now has `bytes` bytes. Sets its size and its touched prefix.
    fn resized<P>(&mut self, object: ObjectId, resized: &mut Object<P>, bytes: u64);
    /// Bytes of the object were touched.
    fn touched<P>(&mut self, object: ObjectId, touched: &mut Object<P>, range: Range<u64>);
}

impl Counts for () {
    #[inline(always)]
    fn placed(&mut self, _object: ObjectId, _identity: impl FnOnce() -> u64) {}
    #[inline(always)]
    fn added(&mut self, _bytes: u64, _touched_bytes: u64) {}
    #[inline(always)]
    fn all_touched(&mut self, _bytes: u64) {}
    #[inline(always)]
    fn removed<P>(&mut self, _object: ObjectId, _removed: &Object<P>) {}
    #[inline(always)]
    fn resized<P>(&mut self, _object: ObjectId, resized: &mut Object<P>, bytes: u64) {
        resized.bytes = bytes;
    }
    #[inline(always)]
    fn touched<P>(&mut self, _object: ObjectId, _touched: &mut Object<P>, _range: Range<u64>) {}
}

impl<P: Copy> Object<P> {
    /// Places a new object of `bytes` bytes. `initial_touch` is that of the touch rule.
    #[inline(always)]
    pub(crate) fn place<A: Heaps<Place = P>>(
        &mut self,
        allocator: &A,
        counts: &mut impl Counts,
        id: ObjectId,
        (place, bytes): (P, u64),
        initial_touch: InitialTouch,
    ) {
        counts.placed(id, || allocator.identity(place));
        let touched_bytes = touch_new_bytes(PlacedBlock { allocator, place }, 0..bytes, initial_touch);
        *self = Object { place: Some(place), bytes, touched_bytes };
        counts.added(bytes, touched_bytes);
    }

    /// Removes an object. Returns its block, which the caller must free; `None` if its allocation had failed.
    #[inline(always)]
    pub(crate) fn remove<A: Heaps<Place = P>>(
        &mut self,
        allocator: &A,
        counts: &mut impl Counts,
        id: ObjectId,
        touch: TouchRule,
    ) -> Option<P> {
        let place = self.place?;
        self.place = None;
        if touch == TouchRule::AllAtDeath && self.bytes > 0 {
            allocator.write(place, 0, self.bytes);
            counts.all_touched(self.bytes);
        }
        counts.removed(id, self);
        Some(place)
    }

    /// The object now has `bytes` bytes and is in `place`, which contains its old bytes.
    #[inline(always)]
    fn resize<A: Heaps<Place = P>>(
        &mut self,
        allocator: &A,
        counts: &mut impl Counts,
        id: ObjectId,
        (place, bytes): (P, u64),
        initial_touch: InitialTouch,
    ) {
        let old_bytes = self.bytes;
        counts.placed(id, || allocator.identity(place));
        let touched_end = touch_new_bytes(PlacedBlock { allocator, place }, old_bytes..bytes, initial_touch);
        self.place = Some(place);
        counts.resized(id, self, bytes);
        counts.touched(id, self, old_bytes..touched_end);
    }

    /// Performs a recorded access.
    #[inline(never)]
    fn access<A: Heaps<Place = P>>(
        &mut self,
        allocator: &A,
        counts: &mut impl Counts,
        id: ObjectId,
        (offset, bytes): (u64, u64),
        access: Access,
    ) {
        let (Some(place), Some(end)) = (self.place, offset.checked_add(bytes)) else { return };
        // A trace may contain touches beyond the object's end. Such touches are truncated.
        let end = end.min(self.bytes);
        if offset >= end {
            return;
        }
        match access {
            Access::Read => allocator.read(place, offset, end - offset),
            Access::Write => allocator.write(place, offset, end - offset),
        }
        counts.touched(id, self, offset..end);
    }
}

/// Performs an event on its object, which `object` returns. `heap` returns the heap of the event's thread; it is called only
/// if the event allocates, or frees or resizes a block. `touch` decides on the program's touches. Does nothing for an event
/// without an object.
///
/// # Errors
/// The error of `heap`; otherwise whether the allocator served the request.
#[inline(always)]
pub fn perform<'a, A: Heaps + 'a, E>(
    allocator: &A,
    heap: impl FnOnce() -> Result<&'a mut A::Heap, E>,
    object: impl FnOnce(ObjectId) -> &'a mut Object<A::Place>,
    op: &Op,
    touch: TouchRule,
    counts: &mut impl Counts,
) -> Result<Result<(), Refused>, E> {
    // The rarer events are not inlined, because most events are plain mallocs and frees.
    match *op {
        Op::Alloc { object: id, size, align_log2: 0, call: AllocCall::Malloc, initial_touch } => {
            let (call, initial_touch) = (AllocCall::Malloc, touch.initial_touch(initial_touch));
            return Ok(allocate(allocator, heap()?, (id, object(id)), (call, size, 0), initial_touch, counts));
        }
        Op::Alloc { object: id, size, align_log2, call, initial_touch } => {
            let (request, initial_touch) = ((call, size, align_log2), touch.initial_touch(initial_touch));
            return Ok(allocate_as(allocator, heap()?, (id, object(id)), request, initial_touch, counts));
        }
        Op::ReallocUnknown { object: id, size, call } => {
            let (request, initial_touch) = ((call.of_null(), size, 0), touch.initial_touch(InitialTouch::None));
            return Ok(allocate_as(allocator, heap()?, (id, object(id)), request, initial_touch, counts));
        }
        Op::Realloc { object: id, size, call, initial_touch } => {
            let initial_touch = touch.initial_touch(initial_touch);
            return Ok(resize(allocator, heap()?, (id, object(id)), (size, call), initial_touch, counts));
        }
        Op::Free { object: id } => {
            let object = object(id);
            if object.place.is_some() {
                let heap = heap()?;
                if let Some(place) = object.remove(allocator, counts, id, touch) {
                    allocator.free(heap, place);
                }
            }
        }
        Op::ReallocFree { object: id, call } => {
            let object = object(id);
            if object.place.is_some() {
                let heap = heap()?;
                if let Some(place) = object.remove(allocator, counts, id, touch) {
                    allocator.free_by_resize(heap, place, call);
                }
            }
        }
        Op::UsableSize { object: id } => {
            std::hint::black_box(object(id).place.map(|place| allocator.usable_bytes(place)));
        }
        Op::Touch { object: id, offset, bytes, access } if touch == TouchRule::Recorded => {
            object(id).access(allocator, counts, id, (offset, u64::from(bytes)), access);
        }
        _ => {}
    }
    Ok(Ok(()))
}

#[inline(always)]
fn allocate<A: Heaps>(
    allocator: &A,
    heap: &mut A::Heap,
    (id, object): (ObjectId, &mut Object<A::Place>),
    (call, bytes, align_log2): (AllocCall, u64, u8),
    initial_touch: InitialTouch,
    counts: &mut impl Counts,
) -> Result<(), Refused> {
    match allocator.allocate(heap, call, bytes, align_log2) {
        Some(place) => {
            object.place(allocator, counts, id, (place, bytes), initial_touch);
            Ok(())
        }
        None => {
            object.place = None;
            Err(Refused)
        }
    }
}

/// [`allocate`] for every call except a plain malloc.
#[inline(never)]
fn allocate_as<A: Heaps>(
    allocator: &A,
    heap: &mut A::Heap,
    object: (ObjectId, &mut Object<A::Place>),
    request: (AllocCall, u64, u8),
    initial_touch: InitialTouch,
    counts: &mut impl Counts,
) -> Result<(), Refused> {
    allocate(allocator, heap, object, request, initial_touch, counts)
}

#[inline(never)]
fn resize<A: Heaps>(
    allocator: &A,
    heap: &mut A::Heap,
    (id, object): (ObjectId, &mut Object<A::Place>),
    (bytes, call): (u64, ReallocCall),
    initial_touch: InitialTouch,
    counts: &mut impl Counts,
) -> Result<(), Refused> {
    let Some(old) = object.place else {
        return allocate(allocator, heap, (id, object), (call.of_null(), bytes, 0), initial_touch, counts);
    };
    let place = allocator.resize(heap, old, bytes, call).ok_or(Refused)?;
    object.resize(allocator, counts, id, (place, bytes), initial_touch);
    Ok(())
}
