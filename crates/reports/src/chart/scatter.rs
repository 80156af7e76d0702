//! Installs, or the time of a call, against peak residency.

use crate::error::{ReportError, Result};
use plotters::coord::combinators::{BindKeyPoints, LogCoord, WithKeyPoints};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::canvas::{Area, Canvas};
use super::data::{Cost, Panel, Series};
use super::hits::Hit;
use super::labels::{Box, LABEL_HEIGHT, first_free, label_width, place};
use super::style::{
    FRONT, Look, Marker, SMALL_PX, byte_unit, labels_along, log_ticks, plain, rss_bytes_max, text, tick,
};
use hksim_text::units::count;

type Costs = WithKeyPoints<LogCoord<f64>>;
type Plane = Cartesian2d<Costs, plotters::coord::types::RangedCoordf64>;
type Chart<'a, 'b> = ChartContext<'a, Canvas<'b>, Plane>;

/// Draws the scatter of a panel. Returns the places of the points.
pub fn draw(area: &Area, panel: &Panel) -> Result<Vec<Hit>> {
    let (unit, unit_name) = byte_unit(rss_bytes_max(&panel.series).max(panel.floor_bytes));
    let costs = cost_range(panel);
    let (desc, label): (_, fn(&f64) -> String) = match panel.cost {
        Cost::Installs => ("page-table installs (log scale)", |installs| count(*installs as u64)),
        Cost::Time => ("ns per call, predicted (log scale)", tick),
    };
    let ticks = log_ticks(&costs, labels_along(area));
    let mut chart = ChartBuilder::on(area)
        .margin(10)
        .margin_right(24)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(costs.clone().log_scale().with_key_points(ticks), rss_range(panel, unit))
        .map_err(drawing)?;
    let mut mesh = chart.configure_mesh();
    plain(&mut mesh)
        .x_desc(desc)
        .y_desc(format!("peak RSS ({unit_name})"))
        .x_labels(labels_along(area))
        .x_label_formatter(&label)
        .y_label_formatter(&tick)
        .draw()
        .map_err(drawing)?;
    // Recordings of page operations have no live bytes.
    if panel.floor_bytes > 0 {
        floor_line(&mut chart, panel.floor_bytes as f64 / unit)?;
    }
    front_line(&mut chart, panel, unit)?;
    points(&mut chart, panel, unit)?;
    names(area, &chart, panel, unit)?;
    let hit = |series| Some(Hit::of(chart.plotting_area(), series, &[at(series, panel.cost, unit)?]));
    Ok(panel.series.iter().filter_map(hit).collect())
}

/// The range of the points with a margin on both sides; never empty. Times differ by less than counts.
fn cost_range(panel: &Panel) -> std::ops::Range<f64> {
    let costs = || panel.series.iter().filter_map(|series| series.cost(panel.cost));
    let low = costs().fold(f64::INFINITY, f64::min).min(1e18);
    let high = costs().fold(low, f64::max);
    match panel.cost {
        Cost::Installs => low / 2.0..high * 3.0,
        Cost::Time => low / 1.2..high * 1.4,
    }
}

/// The range from the floor to the highest point, with space for names. It starts at 0 if the floor is low.
fn rss_range(panel: &Panel, unit: f64) -> std::ops::Range<f64> {
    let bytes = || panel.series.iter().map(|series| series.rss_bytes_peak).chain([panel.floor_bytes]);
    let low = bytes().min().unwrap_or(0) as f64 / unit;
    let high = bytes().max().unwrap_or(0).max(1) as f64 / unit;
    let room = (high - low).max(high * 0.05) * 0.2;
    let start = if low > high / 3.0 { low - room } else { 0.0 };
    start..high + room
}

/// The place of a design; `None` if its cost is not known.
fn at(series: &Series, cost: Cost, unit: f64) -> Option<(f64, f64)> {
    Some((series.cost(cost)?, series.rss_bytes_peak as f64 / unit))
}

fn floor_line(chart: &mut Chart, floor: f64) -> Result<()> {
    let range = chart.x_range();
    let line = DashedLineSeries::new([(range.start, floor), (range.end, floor)], 5, 4, FRONT.stroke_width(1));
    chart.draw_series(line).map_err(drawing).map(drop)
}

/// Connects the points of the front with steps. Points above and to the right of the steps are dominated.
fn front_line(chart: &mut Chart, panel: &Panel, unit: f64) -> Result<()> {
    chart.draw_series(LineSeries::new(front_corners(panel, unit), FRONT.stroke_width(1))).map_err(drawing).map(drop)
}

fn front_corners(panel: &Panel, unit: f64) -> Vec<(f64, f64)> {
    let on_front = panel.series.iter().filter(|series| series.is_front);
    let mut front: Vec<(f64, f64)> = on_front.filter_map(|series| at(series, panel.cost, unit)).collect();
    front.sort_by(|a, b| a.0.total_cmp(&b.0));
    let corners = front.windows(2).flat_map(|pair| [pair[0], (pair[1].0, pair[0].1)]);
    corners.chain(front.last().copied()).collect()
}

fn points(chart: &mut Chart, panel: &Panel, unit: f64) -> Result<()> {
    for series in panel.series.iter().rev() {
        let Some(place) = at(series, panel.cost, unit) else { continue };
        let look = Look::of(series.rank);
        let style = if series.is_front { look.colour.filled() } else { look.colour.stroke_width(2) };
        let radius = if series.is_front { 6 } else { 5 };
        let spot = EmptyElement::at(place);
        match look.marker() {
            Marker::Circle => chart.draw_series([spot + Circle::new((0, 0), radius, style)]).map_err(drawing)?,
            Marker::Square => {
                let square = Rectangle::new([(-radius, -radius), (radius, radius)], style);
                chart.draw_series([spot + square]).map_err(drawing)?
            }
        };
    }
    Ok(())
}

/// Writes names next to points, starting with the front. A point without space for its name is named in the legend
/// only.
fn names(area: &Area, chart: &Chart, panel: &Panel, unit: f64) -> Result<()> {
    let plane = chart.plotting_area();
    // Elements have page coordinates, labels have coordinates of this area.
    let ((x0, y0), (xs, ys)) = (area.get_base_pixel(), plane.get_pixel_range());
    let inside = Box { left: xs.start - x0, top: ys.start - y0, right: xs.end - x0, bottom: ys.end - y0 };
    let pixel = |point: (f64, f64)| {
        let (x, y) = plane.map_coordinate(&point);
        (x - x0, y - y0)
    };
    let spot = |series| at(series, panel.cost, unit).map(pixel);
    let spots: Vec<Option<(i32, i32)>> = panel.series.iter().map(spot).collect();
    let mut taken: Vec<Box> = spots.iter().flatten().map(|&spot| Box::around(spot, 7)).collect();
    let corners: Vec<(i32, i32)> = front_corners(panel, unit).into_iter().map(pixel).collect();
    taken.extend(corners.windows(2).map(|ends| Box::along(ends[0], ends[1])));
    let floor = pixel((chart.x_range().start, panel.floor_bytes as f64 / unit)).1;
    taken.push(Box::along((inside.left, floor), (inside.right, floor)));
    for (series, spot) in panel.series.iter().zip(&spots).filter_map(|(series, spot)| Some((series, (*spot)?))) {
        let look = Look::of(series.rank);
        // The beginning of a name would not tell designs apart that differ at its end.
        let name = &series.label;
        let label = place(spot, label_width(name, SMALL_PX), &inside, &taken);
        if let Some(label) = label.filter(|_| look.is_named) {
            if let Some(end) = label.led_from(spot) {
                let line = PathElement::new([spot, end], look.colour.mix(0.6).stroke_width(1));
                area.draw(&line).map_err(drawing)?;
            }
            // Next to the point, on whichever side of it the label is.
            let style = text(SMALL_PX, &look.colour);
            if label.right <= spot.0 {
                let style = style.pos(Pos::new(HPos::Right, VPos::Top));
                area.draw_text(name, &style, (label.right, label.top + 1)).map_err(drawing)?;
            } else {
                area.draw_text(name, &style, (label.left, label.top + 1)).map_err(drawing)?;
            }
            taken.push(label);
        }
    }
    let floor_text = "floor: pages of the live bytes";
    let width = label_width(floor_text, SMALL_PX);
    let steps = (0..4).map(|step| inside.right - width - 4 - step * (inside.right - inside.left - width - 8) / 3);
    let sides = steps.flat_map(|left| [(left, floor + 3), (left, floor - LABEL_HEIGHT - 3)]);
    let spot = first_free(sides, width, &inside, &taken);
    spot.filter(|_| panel.floor_bytes > 0).map_or(Ok(()), |label| {
        area.draw_text(floor_text, &text(SMALL_PX, &FRONT), (label.left, label.top + 1)).map_err(drawing)
    })
}

/// Converts a drawing error. Drawing to memory fails only by an error in the drawing code.
pub fn drawing<E: std::error::Error + Send + Sync>(why: DrawingAreaErrorKind<E>) -> ReportError {
    ReportError::Drawing(why.to_string())
}
