//! Charts of results: installs against peak residency, and below it residency over time.
//!
//! - `figure`: the figures that a result can be drawn as: [`designs`], `page_map`, `occupancy`, `huge`,
//!   `bars`, `miss_curves`, `ranges`.
//! - `subject`: a result to draw, and which colour each of its designs has.
//! - [`live`]: live bytes of a trace; [`faults`]: page faults of a program; both use `over_time`. [`comparison`]:
//!   allocators side by side.
//! - `data` and `recordings`: the data of charts; `scatter` and `timeline`: the panels; `names` and `labels`: names of designs
//!   and their places; `style`: colours. `hits`: where designs are drawn.
//! - `medium`: what a figure is for, which decides its layout; `head`: titles and keys of colours.
//! - `canvas`: the surface that they are drawn on; `sketch`: a figure, which becomes an SVG or PNG file.

mod bars;
mod canvas;
pub mod comparison;
mod data;
mod designs;
pub mod faults;
mod figure;
mod head;
mod hits;
mod huge;
mod labels;
pub mod live;
mod medium;
mod miss_curves;
mod names;
mod occupancy;
mod over_time;
mod page_map;
mod ranges;
mod recordings;
mod scatter;
mod sketch;
mod style;
mod subject;
mod timeline;

pub use data::{Panel, Progress, Sample, Series};
pub use figure::Figure;
pub use hits::{Hit, Picture, Shape};
pub use medium::Medium;
pub use sketch::{Sketch, parse_picture};
pub use subject::{Subject, rank};

/// The designs of a result: installs against peak residency, and residency over time. `None` if it has none.
pub fn designs<'a>(subject: &'a Subject<'_>) -> Option<Sketch<'a>> {
    designs::sketch(&subject.panels, Medium::File)
}
