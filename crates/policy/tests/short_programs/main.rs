//! Programs of a few calls whose every answer is known.

mod adoption;
mod mistakes;
mod reuse;
mod thrift;

use hksim_policy::geometry::Shape;
use hksim_policy::layout::Layout;
use hksim_policy::options::{Header, MetaPlace, Options};
use hksim_policy::{Allocator, Request, RunGeometry};
use hksim_testkit::PlainMemory;

pub(crate) type Plain = Allocator<PlainMemory, RunGeometry>;

pub(crate) const MIB: u64 = 1 << 20;

pub(crate) fn shape() -> Shape {
    Shape {
        superslab_bytes: 2 * MIB,
        slab_bytes: 64 << 10,
        scheme: Default::default(),
        header: Header::None,
        header_bytes: 1,
        carve: Default::default(),
        meta_place: MetaPlace::InBand,
    }
}

pub(crate) fn allocator(shape: Shape, options: Options, before: impl Fn(&PlainMemory)) -> Plain {
    let geometry = RunGeometry::new(shape).unwrap();
    let layout = Layout { align: options.align, ..Layout::new(&geometry, 32 * MIB) };
    let memory = PlainMemory::new(layout, &geometry, layout.ordinals(), 1);
    before(&memory);
    Allocator::new(memory, geometry, options, &layout)
}

pub(crate) fn zeroed(bytes: u64) -> Request {
    Request { zeroed: true, ..Request::plain(bytes) }
}
