//! Places of designs in a picture, so that a report can react to the pointer.

use plotters::coord::ranged1d::Ranged;
use plotters::prelude::*;

use super::canvas::Canvas;
use super::data::Series;

/// Where a design is drawn, in pixels of the picture.
#[derive(Clone, Debug)]
pub enum Shape {
    /// The centre of a point.
    Point(i32, i32),
    /// The corners of a line.
    Line(Vec<(i32, i32)>),
}

/// A place of a design.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The rank of the design: the same in all pictures of a result.
    pub rank: usize,
    /// Its name and figures.
    pub text: String,
    /// Where it is.
    pub shape: Shape,
}

impl Hit {
    /// The place of a design with a point or line through these values.
    pub fn of<X: Ranged<ValueType = f64>, Y: Ranged<ValueType = f64>>(
        plane: &DrawingArea<Canvas, Cartesian2d<X, Y>>,
        series: &Series,
        values: &[(f64, f64)],
    ) -> Hit {
        let pixels: Vec<(i32, i32)> = values.iter().map(|value| plane.map_coordinate(value)).collect();
        let shape = match pixels[..] {
            [(x, y)] => Shape::Point(x, y),
            _ => Shape::Line(pixels),
        };
        Hit { rank: series.rank, text: series.text(), shape }
    }
}

/// A picture with the places of designs in it.
#[derive(Clone, Debug)]
pub struct Picture {
    /// The picture.
    pub svg: String,
    /// Whether it is higher than wide: several charts above each other.
    pub is_tall: bool,
    /// The places of designs; empty if the picture shows a single one.
    pub hits: Vec<Hit>,
}
