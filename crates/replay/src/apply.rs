//! An event on an allocator that is called like `malloc`: used by every run but the ordered native one, which has the
//! driver that the simulator shares. Touches are made up by the same rules.

use hksim_engine::TouchRule;
use hksim_policy::PAGE_BYTES;
use hksim_trace::event::{Access, AllocCall, InitialTouch, Op, PageTouches, ReallocCall};

/// What serves one thread's calls.
pub(crate) trait Heap {
    /// Where a block lies.
    type Place: Copy;

    fn allocate(&mut self, call: AllocCall, bytes: u64, align_log2: u8) -> Option<Self::Place>;
    /// `None`: the block is unchanged.
    fn resize(&mut self, place: Self::Place, bytes: u64, call: ReallocCall) -> Option<Self::Place>;
    fn free(&mut self, place: Self::Place);
    /// A resize to no bytes, which frees.
    fn free_by_resize(&mut self, place: Self::Place, call: ReallocCall);
    fn usable_bytes(&self, place: Self::Place) -> u64;
    /// Its address, as far as it says where pages begin.
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
    born(heap, place, 0..bytes, touch.initial_touch(initial_touch));
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
    born(heap, place, object.bytes..bytes, touch.initial_touch(initial_touch));
    *object = Object { place: Some(place), bytes };
    Ok(())
}

#[inline]
fn born<H: Heap>(heap: &H, place: H::Place, range: std::ops::Range<u64>, initial_touch: InitialTouch) {
    if range.is_empty() {
        return;
    }
    let bytes = range.end - range.start;
    match initial_touch {
        InitialTouch::All => heap.write(place, range.start, bytes),
        InitialTouch::Read => heap.read(place, range.start, bytes),
        InitialTouch::ReadThenWrite => {
            heap.read(place, range.start, bytes);
            heap.write(place, range.start, bytes);
        }
        InitialTouch::FirstByte if range.start == 0 => heap.write(place, 0, 1),
        // A grown tail has no first byte of its own; a watched object has its touches as events.
        InitialTouch::FirstByte | InitialTouch::None | InitialTouch::Watched => {}
        InitialTouch::PerPage(sides) => born_apart(heap, place, range, sides),
    }
}

/// The same where the sides of a page boundary differ, if there is one in the block.
#[inline(never)]
fn born_apart<H: Heap>(heap: &H, place: H::Place, range: std::ops::Range<u64>, sides: PageTouches) {
    let boundary = PAGE_BYTES - heap.address(place) % PAGE_BYTES;
    if range.start > 0 || range.end <= boundary {
        return born(heap, place, range, InitialTouch::PerPage(sides).whole());
    }
    born(heap, place, 0..boundary, sides.first());
    born(heap, place, boundary..range.end, sides.second());
}

/// Takes what is to be freed from its object, with the touches that the rule puts before death.
#[inline]
fn last_touched<H: Heap>(heap: &H, object: &mut Object<H::Place>, touch: TouchRule) -> Option<H::Place> {
    let place = object.place.take()?;
    if touch == TouchRule::AllAtDeath && object.bytes > 0 {
        heap.write(place, 0, object.bytes);
    }
    Some(place)
}

fn touched<H: Heap>(heap: &H, object: &Object<H::Place>, offset: u64, bytes: u64, access: Access) {
    // A trace may claim more than the object has; nobody's memory is touched for that.
    let end = offset.saturating_add(bytes).min(object.bytes);
    let Some(place) = object.place.filter(|_| offset < end) else { return };
    match access {
        Access::Read => heap.read(place, offset, end - offset),
        Access::Write => heap.write(place, offset, end - offset),
    }
}
