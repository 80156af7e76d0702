//! The surface that all figures are drawn on, in either format.

use std::io;
use std::sync::Once;

use epaint_default_fonts::UBUNTU_LIGHT;
use plotters::coord::Shift;
use plotters::prelude::{BitMapBackend, DrawingArea, FontDesc, IntoDrawingArea, SVGBackend};
use plotters::style::{RGBAColor, ShapeStyle, TextStyle, register_font};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingBackend, DrawingErrorKind, FontFamily, FontStyle,
};

/// Pixels of a PNG per pixel of the figure, for sharp text.
pub const SCALE: u32 = 2;

/// The area of a picture.
pub type Area<'a> = DrawingArea<Canvas<'a>, Shift>;

/// SVG text, or pixels in RGB.
pub enum Canvas<'a> {
    /// Writes elements.
    Svg(SVGBackend<'a>),
    /// Sets pixels, [`SCALE`] in each direction for one of the figure.
    Pixels(BitMapBackend<'a>),
}

type Drawn = Result<(), DrawingErrorKind<io::Error>>;

/// Gives both formats one type of error.
fn unified<E: std::error::Error + Send + Sync + 'static>(why: DrawingErrorKind<E>) -> DrawingErrorKind<io::Error> {
    match why {
        DrawingErrorKind::DrawingError(why) => DrawingErrorKind::DrawingError(io::Error::other(why)),
        DrawingErrorKind::FontError(why) => DrawingErrorKind::FontError(why),
    }
}

impl<'a> Canvas<'a> {
    /// An empty SVG picture, which is in `text` after the area is presented.
    pub fn svg(text: &'a mut String, size: (u32, u32)) -> Area<'a> {
        register_text();
        Canvas::Svg(SVGBackend::with_string(text, size)).into_drawing_area()
    }

    /// A picture in `pixels`, of three bytes each, with [`SCALE`] times the size in both directions.
    pub fn pixels(pixels: &'a mut [u8], (width, height): (u32, u32)) -> Area<'a> {
        register_text();
        let scaled = (width * SCALE, height * SCALE);
        Canvas::Pixels(BitMapBackend::with_buffer(pixels, scaled)).into_drawing_area()
    }
}

/// Registers the font that text is measured with, and drawn with in PNG: the machine may have none.
fn register_text() {
    static FONT: Once = Once::new();
    FONT.call_once(|| {
        // It fails only if the font is damaged, which is a part of the program. Drawing text would report that.
        let _ = register_font(FontFamily::SansSerif.as_str(), FontStyle::Normal, UBUNTU_LIGHT);
    });
}

fn scaled((x, y): BackendCoord) -> BackendCoord {
    (x * SCALE as i32, y * SCALE as i32)
}

fn scaled_style(style: &impl BackendStyle) -> ShapeStyle {
    let BackendColor { alpha, rgb: (red, green, blue) } = style.color();
    ShapeStyle { color: RGBAColor(red, green, blue, alpha), filled: true, stroke_width: style.stroke_width() * SCALE }
}

impl DrawingBackend for Canvas<'_> {
    type ErrorType = io::Error;

    fn get_size(&self) -> (u32, u32) {
        match self {
            Canvas::Svg(svg) => svg.get_size(),
            Canvas::Pixels(pixels) => {
                let (width, height) = pixels.get_size();
                (width / SCALE, height / SCALE)
            }
        }
    }

    fn ensure_prepared(&mut self) -> Drawn {
        match self {
            Canvas::Svg(svg) => svg.ensure_prepared().map_err(unified),
            Canvas::Pixels(pixels) => pixels.ensure_prepared().map_err(unified),
        }
    }

    fn present(&mut self) -> Drawn {
        match self {
            Canvas::Svg(svg) => svg.present().map_err(unified),
            Canvas::Pixels(pixels) => pixels.present().map_err(unified),
        }
    }

    fn draw_pixel(&mut self, (x, y): BackendCoord, color: BackendColor) -> Drawn {
        match self {
            Canvas::Svg(svg) => svg.draw_pixel((x, y), color).map_err(unified),
            Canvas::Pixels(_) => self.draw_rect((x, y), (x + 1, y + 1), &color, true),
        }
    }

    fn draw_line<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S) -> Drawn {
        match self {
            Canvas::Svg(svg) => svg.draw_line(from, to, style).map_err(unified),
            // As a path, because a line of the bitmap is one pixel thick at any width.
            Canvas::Pixels(pixels) => {
                pixels.draw_path([scaled(from), scaled(to)], &scaled_style(style)).map_err(unified)
            }
        }
    }

    fn draw_rect<S: BackendStyle>(&mut self, from: BackendCoord, to: BackendCoord, style: &S, fill: bool) -> Drawn {
        match self {
            Canvas::Svg(svg) => svg.draw_rect(from, to, style, fill).map_err(unified),
            Canvas::Pixels(pixels) => {
                // Like SVG, a filled area of the bitmap ends before the last row and column.
                pixels.draw_rect(scaled(from), scaled(to), &scaled_style(style), fill).map_err(unified)
            }
        }
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, path: I, style: &S) -> Drawn {
        match self {
            Canvas::Svg(svg) => svg.draw_path(path, style).map_err(unified),
            Canvas::Pixels(pixels) => {
                pixels.draw_path(path.into_iter().map(scaled), &scaled_style(style)).map_err(unified)
            }
        }
    }

    fn draw_circle<S: BackendStyle>(&mut self, centre: BackendCoord, radius: u32, style: &S, fill: bool) -> Drawn {
        match self {
            Canvas::Svg(svg) => svg.draw_circle(centre, radius, style, fill).map_err(unified),
            Canvas::Pixels(pixels) => {
                pixels.draw_circle(scaled(centre), radius * SCALE, &scaled_style(style), fill).map_err(unified)
            }
        }
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(&mut self, corners: I, style: &S) -> Drawn {
        match self {
            Canvas::Svg(svg) => svg.fill_polygon(corners, style).map_err(unified),
            Canvas::Pixels(pixels) => {
                pixels.fill_polygon(corners.into_iter().map(scaled), &scaled_style(style)).map_err(unified)
            }
        }
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, at: BackendCoord) -> Drawn {
        match self {
            Canvas::Svg(svg) => svg.draw_text(text, style, at).map_err(unified),
            Canvas::Pixels(pixels) => {
                let font = FontDesc::new(style.family(), style.size() * f64::from(SCALE), style.style());
                let font = font.transform(style.transform());
                let large = TextStyle { font, color: style.color(), pos: style.anchor() };
                pixels.draw_text(text, &large, scaled(at)).map_err(unified)
            }
        }
    }
}
