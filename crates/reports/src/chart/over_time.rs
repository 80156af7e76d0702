//! A chart of one quantity over time: title, key, axes and grid. The caller draws the series.

use crate::error::Result;
use plotters::coord::types::RangedCoordf64;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::canvas::{Area, Canvas};
use super::head::{Entry, Head, Key};
use super::medium::Medium;
use super::scatter::drawing;
use super::sketch::Sketch;
use super::style::{INK, SMALL_PX, labels_along, plain, text, tick, time_unit};

/// Where series are drawn.
pub type Chart<'page> = ChartContext<'page, Canvas<'page>, Cartesian2d<RangedCoordf64, RangedCoordf64>>;

/// The usual height of a chart in pixels.
pub const HEIGHT: i32 = 376;

/// What the vertical axis counts.
pub enum Scale {
    /// An amount in a unit, up to this value above 0.
    Amount(f64),
    /// Whole things, up to this number.
    Count(u64),
    /// Rows, named by the bands that they belong to.
    Bands(Vec<Band>),
}

/// Consecutive rows with one name.
pub struct Band {
    /// Its name; none if it is empty.
    pub name: String,
    /// Number of rows.
    pub rows: u64,
}

/// What is around the series.
pub struct Frame {
    /// What the picture is for.
    pub medium: Medium,
    /// The title.
    pub title: String,
    /// Names of the colours.
    pub key: Vec<Entry>,
    /// Name of the time axis, if it is not just time.
    pub time_note: &'static str,
    /// The end of the time axis.
    pub end_ns: u64,
    /// Name of the vertical axis.
    pub name: String,
    /// The vertical axis.
    pub scale: Scale,
    /// Height of the chart in pixels.
    pub height: i32,
}

impl Frame {
    /// Nanoseconds in a unit of the time axis.
    pub fn unit_ns(&self) -> f64 {
        time_unit(self.end_ns).0
    }

    fn height_of_axis(&self) -> f64 {
        match &self.scale {
            Scale::Amount(end) => end * 1.08,
            Scale::Count(end) => *end as f64 * 1.08,
            Scale::Bands(bands) => bands.iter().map(|band| band.rows).sum::<u64>() as f64,
        }
        .max(f64::MIN_POSITIVE)
    }

    /// The figure. `draw` draws the series.
    pub fn sketch<'a>(self, draw: impl Fn(&mut Chart<'_>) -> Result<()> + 'a) -> Sketch<'a>
    where
        Self: 'a,
    {
        let width = self.medium.width();
        let (head, key) = (Head::new(width, &self.title, ""), self.key);
        let key = Key::new(width, key);
        let frame = Frame { key: Vec::new(), ..self };
        let height = head.height() + key.height() + frame.height;
        Sketch::new((width, height as u32), move |page| {
            let (above, rest) = page.split_vertically(head.height());
            let (colours, below) = rest.split_vertically(key.height());
            head.draw(&above)?;
            key.draw(&colours)?;
            let mut chart = frame.chart(&below)?;
            draw(&mut chart)?;
            if let Scale::Bands(bands) = &frame.scale {
                name_bands(page, &chart, bands)?;
            }
            Ok(Vec::new())
        })
    }

    fn chart<'page>(&self, area: &Area<'page>) -> Result<Chart<'page>> {
        let (unit, name) = time_unit(self.end_ns);
        let mut chart = ChartBuilder::on(area)
            .margin(10)
            .margin_right(24)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(0.0..self.end_ns as f64 / unit, 0.0..self.height_of_axis())
            .map_err(drawing)?;
        let mut mesh = chart.configure_mesh();
        plain(&mut mesh)
            .x_desc(format!("{name}{}", self.time_note))
            .y_desc(self.name.as_str())
            .x_labels(labels_along(area))
            .x_label_formatter(&tick);
        match self.scale {
            Scale::Amount(_) => mesh.y_label_formatter(&tick),
            // No more labels than whole numbers.
            Scale::Count(end) => mesh.y_labels((end as usize).saturating_add(1).min(8)).y_label_formatter(&tick),
            Scale::Bands(_) => mesh.disable_y_mesh().y_labels(0),
        };
        mesh.draw().map_err(drawing)?;
        Ok(chart)
    }
}

/// Writes the names of bands to the left of their middles, as many as there is space for.
fn name_bands(page: &Area<'_>, chart: &Chart<'_>, bands: &[Band]) -> Result<()> {
    const LINE: i32 = 16;
    let plane = chart.plotting_area();
    let style = text(SMALL_PX, &INK).pos(Pos::new(HPos::Right, VPos::Center));
    let (mut first, mut lowest) = (0, i32::MAX);
    for Band { name, rows } in bands {
        let (x, y) = plane.map_coordinate(&(0.0, first as f64 + *rows as f64 / 2.0));
        first += rows;
        if !name.is_empty() && y + LINE <= lowest {
            page.draw_text(name, &style, (x - 8, y)).map_err(drawing)?;
            lowest = y;
        }
    }
    Ok(())
}
