//! Colours, fonts and scales of charts.

use plotters::chart::MeshStyle;
use plotters::coord::ranged1d::Ranged;
use plotters::style::{Color, IntoFont, RGBColor, ShapeStyle, TRANSPARENT, TextStyle};

use super::canvas::{Area, Canvas};
use super::data::Series;
use hksim_text::units::count;

/// Okabe and Ito's palette for colour-blind readers, without yellow, which is too pale on white.
const PALETTE: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(86, 180, 233),
    RGBColor(230, 159, 0),
    RGBColor(0, 0, 0),
];
/// Series without an individual colour.
pub const GREY: RGBColor = RGBColor(176, 176, 176);
/// Text and axes.
pub const INK: RGBColor = RGBColor(51, 51, 51);
/// Lines of the grid.
const GRID: RGBColor = RGBColor(232, 232, 232);
/// Points of the front and the line that connects them.
pub const FRONT: RGBColor = RGBColor(130, 130, 130);

/// Number of series with an individual style: the first half with solid lines, the second half dashed.
pub const COLOURED_MAX: usize = 2 * PALETTE.len();

/// Size of small text: fonts are scaled so that its letters have 11.3 pixels per em.
pub const SMALL_PX: i32 = 14;
/// Size of titles.
pub const TITLE_PX: i32 = 18;

/// Small text in a colour.
pub fn text(px: i32, colour: &RGBColor) -> TextStyle<'static> {
    ("sans-serif", px).into_font().color(colour)
}

/// Sets the common style of axes and grid.
pub fn plain<'m, 'a, 'b, 'c, X: Ranged, Y: Ranged>(
    mesh: &'m mut MeshStyle<'a, 'b, X, Y, Canvas<'c>>,
) -> &'m mut MeshStyle<'a, 'b, X, Y, Canvas<'c>> {
    mesh.axis_style(INK)
        .bold_line_style(GRID)
        .light_line_style(TRANSPARENT)
        .label_style(text(SMALL_PX, &INK))
        .axis_desc_style(text(SMALL_PX, &INK))
}

/// The number of labels that fit along the bottom of an area.
pub fn labels_along(area: &Area) -> usize {
    const LABEL_WIDTH: u32 = 90;
    (area.dim_in_pixel().0 / LABEL_WIDTH).max(3) as usize
}

/// How a series is drawn.
#[derive(Clone, Copy, Debug)]
pub struct Look {
    /// Its colour.
    pub colour: RGBColor,
    /// Whether its line is dashed.
    pub is_dashed: bool,
    /// Whether it has an individual colour and label.
    pub is_named: bool,
}

/// The shape of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marker {
    /// Used with solid lines.
    Circle,
    /// Used with dashed lines, which repeat the colours.
    Square,
}

impl Look {
    /// The style of a rank.
    pub fn of(place: usize) -> Look {
        let is_named = place < COLOURED_MAX;
        let colour = if is_named { PALETTE[place % PALETTE.len()] } else { GREY };
        Look { colour, is_dashed: is_named && place >= PALETTE.len(), is_named }
    }

    /// Its points.
    pub fn marker(&self) -> Marker {
        if self.is_dashed { Marker::Square } else { Marker::Circle }
    }

    /// Its line.
    pub fn line(&self) -> ShapeStyle {
        self.colour.stroke_width(if self.is_named { 2 } else { 1 })
    }
}

/// A suitable unit for bytes up to `bytes_max`: the bytes per unit, and the unit's name.
pub fn byte_unit(bytes_max: u64) -> (f64, &'static str) {
    match bytes_max {
        0..0x20_0000 => (1024.0, "KiB"),
        0x20_0000..0x8000_0000 => (1_048_576.0, "MiB"),
        _ => (1_073_741_824.0, "GiB"),
    }
}

/// A suitable unit for events up to `events_max`: the events per unit, and the name of the axis.
pub fn event_unit(events_max: u64) -> (f64, &'static str) {
    match events_max {
        0..10_000 => (1.0, "events"),
        10_000..2_000_000 => (1e3, "events (thousands)"),
        _ => (1e6, "events (millions)"),
    }
}

/// A suitable unit for a time: the nanoseconds per unit, and the name of the axis.
pub fn time_unit(ns: u64) -> (f64, &'static str) {
    match ns {
        0..2_000_000 => (1e3, "time (us)"),
        2_000_000..2_000_000_000 => (1e6, "time (ms)"),
        _ => (1e9, "time (s)"),
    }
}

/// The number at a tick, without trailing digits.
pub fn tick(value: &f64) -> String {
    let text = format!("{value:.2}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    // A number of four digits or more has no part below 1.
    if *value >= 1000.0 { count(value.round() as u64) } else { text.to_string() }
}

/// Ticks of a logarithmic axis: 1, 2 and 5 times the powers of 10; fewer if they are more than `most`.
pub fn log_ticks(range: &std::ops::Range<f64>, most: usize) -> Vec<f64> {
    let ticks = |steps: &[f64]| -> Vec<f64> {
        let powers = (0..19).map(|power| 10f64.powi(power));
        let all = powers.flat_map(|power| steps.iter().map(move |step| step * power));
        all.filter(|tick| range.contains(tick) && tick.fract() == 0.0).collect()
    };
    let is_narrow = range.end < 8.0 * range.start;
    let steps: &[f64] = if is_narrow { &[1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 7.0] } else { &[1.0, 2.0, 5.0] };
    let choices = [ticks(steps), ticks(&[1.0, 2.0, 5.0]), ticks(&[1.0, 3.0]), ticks(&[1.0])];
    let fitting = choices.iter().find(|ticks| ticks.len() <= most);
    fitting.or(choices.last()).cloned().unwrap_or_default()
}

/// The highest residency of any series.
pub fn rss_bytes_max(series: &[Series]) -> u64 {
    series.iter().map(|series| series.rss_bytes_peak).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_axis_has_several_ticks_that_fit() {
        assert_eq!(log_ticks(&(700.0..6000.0), 8), [1000.0, 2000.0, 5000.0]);
        assert_eq!(log_ticks(&(9.0..24.0), 8), [10.0, 15.0, 20.0]);
        assert_eq!(log_ticks(&(1.0..2000.0), 8), [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0]);
        assert_eq!(log_ticks(&(1.0..2e6), 8).len(), 7);
        assert_eq!([0.25, 4.0, 4000.0].map(|value| tick(&value)), ["0.25", "4", "4 000"]);
    }
}
