//! What stands above and below charts: titles, and keys that say what colours mean.

use crate::error::Result;
use plotters::prelude::*;

use super::canvas::Area;
use super::labels::{label_width, shortened, wrapped};
use super::scatter::drawing;
use super::style::{FRONT, INK, SMALL_PX, TITLE_PX, text};

const MARGIN: i32 = 20;
const TOP: i32 = 14;
const TITLE_LINE: i32 = 22;
const CAPTION_LINE: i32 = 18;

/// A title and a caption, in as many lines as they need.
pub struct Head {
    title: Vec<String>,
    caption: Vec<String>,
}

impl Head {
    /// For an area of this width in pixels.
    pub fn new(width: u32, title: &str, caption: &str) -> Head {
        let room = width as i32 - 2 * MARGIN;
        Head { title: wrapped(title, TITLE_PX, room), caption: wrapped(caption, SMALL_PX, room) }
    }

    /// Height in pixels.
    pub fn height(&self) -> i32 {
        TOP + TITLE_LINE * self.title.len() as i32 + CAPTION_LINE * self.caption.len() as i32 + 4
    }

    /// Writes the lines at the top of an area.
    pub fn draw(&self, area: &Area) -> Result<()> {
        let mut y = TOP;
        let title = self.title.iter().map(|line| (line, TITLE_PX, INK, TITLE_LINE));
        let caption = self.caption.iter().map(|line| (line, SMALL_PX, FRONT, CAPTION_LINE));
        for (line, px, colour, height) in title.chain(caption) {
            area.draw_text(line, &text(px, &colour), (MARGIN, y)).map_err(drawing)?;
            y += height;
        }
        Ok(())
    }
}

/// What a colour means.
pub struct Entry {
    /// The name.
    pub name: String,
    /// How it is drawn.
    pub sample: Sample,
}

/// What is drawn beside a name.
pub enum Sample {
    /// A filled area.
    Fill(RGBColor),
    /// A solid line.
    Line(ShapeStyle),
    /// A dashed line.
    Dashes(ShapeStyle),
}

/// A table of entries, with as many columns as fit.
pub struct Key {
    entries: Vec<Entry>,
    columns: usize,
    width: i32,
}

const KEY_LINE: i32 = 20;
const SAMPLE_WIDTH: i32 = 26;
/// Space for the sample and between columns.
const BESIDE_NAME: i32 = SAMPLE_WIDTH + 24;

impl Key {
    /// For an area of this width in pixels. Longer names are shortened.
    pub fn new(width: u32, entries: Vec<Entry>) -> Key {
        let width = width as i32 - MARGIN;
        let longest = entries.iter().map(|entry| label_width(&entry.name, SMALL_PX)).max().unwrap_or(0);
        let columns = (width / (longest + BESIDE_NAME)).clamp(1, 4) as usize;
        Key { entries, columns, width: width / columns as i32 }
    }

    /// Height in pixels; 0 without entries.
    pub fn height(&self) -> i32 {
        let lines = self.entries.len().div_ceil(self.columns) as i32;
        if lines == 0 { 0 } else { lines * KEY_LINE + 8 }
    }

    /// Draws the entries at the top of an area.
    pub fn draw(&self, area: &Area) -> Result<()> {
        for (index, Entry { name, sample }) in self.entries.iter().enumerate() {
            let x = (index % self.columns) as i32 * self.width + MARGIN;
            let y = (index / self.columns) as i32 * KEY_LINE + 4;
            let line = |from: i32, to: i32, style: &ShapeStyle| {
                area.draw(&PathElement::new([(x + from, y + 8), (x + to, y + 8)], *style)).map_err(drawing)
            };
            match sample {
                Sample::Fill(colour) => {
                    let corners = [(x, y + 2), (x + SAMPLE_WIDTH, y + 14)];
                    area.draw(&Rectangle::new(corners, colour.filled())).map_err(drawing)?;
                    // White needs a border to be seen.
                    if *colour == WHITE {
                        area.draw(&Rectangle::new(corners, FRONT.stroke_width(1))).map_err(drawing)?;
                    }
                }
                Sample::Line(style) => line(0, SAMPLE_WIDTH, style)?,
                Sample::Dashes(style) => {
                    line(0, 10, style)?;
                    line(16, SAMPLE_WIDTH, style)?;
                }
            }
            let name = shortened(name, SMALL_PX, self.width - BESIDE_NAME);
            area.draw_text(&name, &text(SMALL_PX, &INK), (x + SAMPLE_WIDTH + 8, y + 2)).map_err(drawing)?;
        }
        Ok(())
    }
}
