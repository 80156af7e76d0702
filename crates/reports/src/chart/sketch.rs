//! A figure before it is drawn: one drawing code, two formats.

use std::io::Write;
use std::path::{Path, PathBuf};

use crate::error::{Context, Result};
use flate2::write::ZlibEncoder;
use flate2::{Compression, Crc};
use plotters::prelude::WHITE;

use super::canvas::{Area, Canvas, SCALE};
use super::hits::{Hit, Picture};
use super::scatter::drawing;

type Draw<'a> = dyn Fn(&Area<'_>) -> Result<Vec<Hit>> + 'a;

/// A figure of a size in pixels, with the code that draws it.
pub struct Sketch<'a> {
    size: (u32, u32),
    draw: Box<Draw<'a>>,
}

/// A format of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Svg,
    Png,
}

impl Format {
    /// The format that a name's ending states.
    fn of(name: &str) -> Option<Format> {
        let name = name.to_ascii_lowercase();
        let endings = [(".svg", Format::Svg), (".png", Format::Png)];
        endings.into_iter().find(|(ending, _)| name.ends_with(ending)).map(|(_, format)| format)
    }
}

/// Reads the name of a picture, for clap. Its ending states the format.
///
/// # Errors
/// The name has another ending.
pub fn parse_picture(name: &str) -> std::result::Result<PathBuf, String> {
    // `-` is refused with its own message when the file is created.
    if name == "-" || Format::of(name).is_some() {
        return Ok(name.into());
    }
    Err("pictures are SVG or PNG: name a file that ends in .svg or .png".to_string())
}

impl<'a> Sketch<'a> {
    /// A figure on white paper. `draw` returns the places of designs.
    pub fn new(size: (u32, u32), draw: impl Fn(&Area<'_>) -> Result<Vec<Hit>> + 'a) -> Sketch<'a> {
        Sketch { size, draw: Box::new(draw) }
    }

    /// The figure as SVG, with the places of designs.
    ///
    /// # Errors
    /// Drawing fails.
    pub fn svg(&self) -> Result<Picture> {
        let mut svg = String::new();
        let hits = self.draw_on(&Canvas::svg(&mut svg, self.size))?;
        // Neighbouring areas of a scaled picture would let the ground shine through.
        let svg = svg.replace("<rect ", "<rect shape-rendering=\"crispEdges\" ");
        Ok(Picture { svg, is_tall: self.size.1 > self.size.0, hits })
    }

    /// The figure as PNG, of twice the size in pixels.
    ///
    /// # Errors
    /// Drawing fails, or the picture is too large.
    pub fn png(&self) -> Result<Vec<u8>> {
        let (width, height) = (self.size.0 * SCALE, self.size.1 * SCALE);
        let bytes = (width as usize).checked_mul(height as usize).and_then(|pixels| pixels.checked_mul(RGB_BYTES));
        // White, as the paper.
        let mut pixels = vec![u8::MAX; bytes.context("the picture is too large")?];
        self.draw_on(&Canvas::pixels(&mut pixels, self.size))?;
        encoded((width, height), &pixels)
    }

    fn draw_on(&self, page: &Area<'_>) -> Result<Vec<Hit>> {
        page.fill(&WHITE).map_err(drawing)?;
        let hits = (self.draw)(page)?;
        page.present().map_err(drawing)?;
        Ok(hits)
    }

    /// The figure as a file, in the format that the ending of its name states.
    ///
    /// # Errors
    /// Drawing fails.
    pub fn bytes(&self, path: &Path) -> Result<Vec<u8>> {
        match Format::of(&path.to_string_lossy()) {
            Some(Format::Png) => self.png(),
            Some(Format::Svg) | None => Ok(self.svg()?.svg.into_bytes()),
        }
    }
}

const RGB_BYTES: usize = 3;

/// A PNG file of RGB pixels: <https://www.w3.org/TR/png-3/>.
fn encoded((width, height): (u32, u32), pixels: &[u8]) -> Result<Vec<u8>> {
    /// 8 bits per channel, RGB, and the only methods of compression, filters and interlacing.
    const FORMAT: [u8; 5] = [8, 2, 0, 0, 0];
    const NO_FILTER: [u8; 1] = [0];
    let mut lines = ZlibEncoder::new(Vec::new(), Compression::default());
    for line in pixels.chunks(width as usize * RGB_BYTES) {
        lines.write_all(&NO_FILTER).and_then(|()| lines.write_all(line)).context("cannot compress the picture")?;
    }
    let lines = lines.finish().context("cannot compress the picture")?;
    let header = [&width.to_be_bytes()[..], &height.to_be_bytes(), &FORMAT].concat();
    let mut file = b"\x89PNG\r\n\x1a\n".to_vec();
    for (kind, data) in [(b"IHDR", header), (b"IDAT", lines), (b"IEND", Vec::new())] {
        file.extend(u32::try_from(data.len()).context("the picture is too large")?.to_be_bytes());
        let mut checksum = Crc::new();
        for part in [&kind[..], &data] {
            checksum.update(part);
            file.extend(part);
        }
        file.extend(checksum.sum().to_be_bytes());
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ending_of_a_name_states_the_format() {
        assert_eq!(["a.svg", "a.b.PNG", "-"].map(Format::of), [Some(Format::Svg), Some(Format::Png), None]);
        for name in ["a.pdf", "svg", "a.svg.gz"] {
            let why = parse_picture(name).expect_err("another ending");
            assert!(why.contains(".svg or .png"), "{why}");
        }
    }
}
