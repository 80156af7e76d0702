//! Performs an event on an allocator with the interface of `malloc`. All runs use it except the ordered native ones,
//! which use the driver shared with the simulator. Both follow the same touch rules.

use hksim_engine::{BlockAccess, TouchRule, touch_new_bytes};
use hksim_trace::event::{Access, AllocCall, InitialTouch, Op, ReallocCall};

/// An allocator as seen by one thread.
pub(crate) trait Heap {
    /// The location of a block.
    type Place: Copy;

    fn allocate(&mut self, call: AllocCall, bytes: u64, align_log2: u8) -> Option<Self::Place>;
    /// Returns `None` if the request failed; the block is then unchanged.
    fn resize(&mut self, place: Self::Place, bytes: u64, call: ReallocCall) -> Option<Self::Place>;
    fn free(&mut self, place: Self::Place);
    /// A realloc to 0 bytes, which frees the block.
    fn free_by_resize(&mut self, place: Self::Place, call: ReallocCall);
    fn usable_bytes(&self, place: Self::Place) -> u64;
    /// The block's address, or a number congruent to it modulo the page size.
    fn address(&self, place: Self::Place) -> u64;
    fn read(&self, place: Self::Place, offset: u64, bytes: u64);
    fn write(&self, place: Self::Place, offset: u64, bytes: u64);
}

/// A live object of the trace.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Object<P> {
    place: Option<P>,
    bytes: u64,
}

impl<P> Object<P> {
    pub(crate) const DEAD: Object<P> = Object { place: None, bytes: 0 };
}

/// A request that the allocator did not serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refused;

/// Performs an event on its object.
#[inline]
pub(crate) fn apply<H: Heap>(
    heap: &mut H,
    object: &mut Object<H::Place>,
    op: &Op,
    touch: TouchRule,
) -> Result<(), Refused> {
    match *op {
        Op::Alloc { size, align_log2, call, initial_touch, .. } => {
            allocate(heap, object, (call, align_log2), size, touch, initial_touch)
        }
        Op::ReallocUnknown { size, call, .. } => {
            allocate(heap, object, (call.of_null(), 0), size, touch, InitialTouch::None)
        }
        Op::Realloc { size, call, initial_touch, .. } => match object.place {
            Some(place) => resize(heap, object, place, (size, call), touch, initial_touch),
            None => allocate(heap, object, (call.of_null(), 0), size, touch, initial_touch),
        },
        Op::Free { .. } => {
            if let Some(place) = last_touched(heap, object, touch) {
                heap.free(place);
            }
            Ok(())
        }
        Op::ReallocFree { call, .. } => {
            if let Some(place) = last_touched(heap, object, touch) {
                heap.free_by_resize(place, call);
            }
            Ok(())
        }
        Op::UsableSize { .. } => {
            std::hint::black_box(object.place.map(|place| heap.usable_bytes(place)));
            Ok(())
        }
        Op::Touch { offset, bytes, access, .. } => {
            if touch == TouchRule::Recorded {
                touched(heap, object, offset, u64::from(bytes), access);
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

#[inline]
fn allocate<H: Heap>(
    heap: &mut H,
    object: &mut Object<H::Place>,
    (call, align_log2): (AllocCall, u8),
    bytes: u64,
    touch: TouchRule,
    initial_touch: InitialTouch,
) -> Result<(), Refused> {
    let place = heap.allocate(call, bytes, align_log2);
    *object = Object { place, bytes };
    let Some(place) = place else { return Err(Refused) };
    touch_new_bytes(HeapBlock { heap, place }, 0..bytes, touch.initial_touch(initial_touch));
    Ok(())
}

fn resize<H: Heap>(
    heap: &mut H,
    object: &mut Object<H::Place>,
    place: H::Place,
    (bytes, call): (u64, ReallocCall),
    touch: TouchRule,
    initial_touch: InitialTouch,
) -> Result<(), Refused> {
    let place = heap.resize(place, bytes, call).ok_or(Refused)?;
    touch_new_bytes(HeapBlock { heap, place }, object.bytes..bytes, touch.initial_touch(initial_touch));
    *object = Object { place: Some(place), bytes };
    Ok(())
}

/// A block, and the heap that contains it.
struct HeapBlock<'a, H: Heap> {
    heap: &'a H,
    place: H::Place,
}

impl<H: Heap> Copy for HeapBlock<'_, H> {}

impl<H: Heap> Clone for HeapBlock<'_, H> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<H: Heap> BlockAccess for HeapBlock<'_, H> {
    fn page_offset(&self) -> u64 {
        self.heap.address(self.place)
    }

    #[inline]
    fn read(&self, offset: u64, bytes: u64) {
        self.heap.read(self.place, offset, bytes);
    }

    #[inline]
    fn write(&self, offset: u64, bytes: u64) {
        self.heap.write(self.place, offset, bytes);
    }
}

/// Removes the block from its object before a free. Performs the touches that the rule requires at this point.
#[inline]
fn last_touched<H: Heap>(heap: &H, object: &mut Object<H::Place>, touch: TouchRule) -> Option<H::Place> {
    let place = object.place.take()?;
    if touch == TouchRule::AllAtDeath && object.bytes > 0 {
        heap.write(place, 0, object.bytes);
    }
    Some(place)
}

fn touched<H: Heap>(heap: &H, object: &Object<H::Place>, offset: u64, bytes: u64, access: Access) {
    // A trace may claim more bytes than the object has; memory outside the object is not touched.
    let end = offset.saturating_add(bytes).min(object.bytes);
    let Some(place) = object.place.filter(|_| offset < end) else { return };
    match access {
        Access::Read => heap.read(place, offset, end - offset),
        Access::Write => heap.write(place, offset, end - offset),
    }
}
