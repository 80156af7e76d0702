//! The allocator in its native memory, with pointers and threads that are real ones. All of it runs under Miri, too, where
//! programs are shorter and the kernel is played.

mod faults;
mod forks;
mod jitter;
mod kernel;
mod threads;

use hksim_policy::classes::Scheme;
use hksim_policy::geometry::Shape;
use hksim_policy::options::{Carve, Header, MetaPlace};

/// Many SuperSlabs and few blocks in a slab: slabs fill, post, empty and change hands all the time.
const SMALL: Shape = Shape {
    superslab_bytes: 256 << 10,
    slab_bytes: 16 << 10,
    scheme: Scheme::Default,
    header: Header::None,
    header_bytes: 1,
    carve: Carve::Page,
    meta_place: MetaPlace::InBand,
};
