//! What a figure is drawn for: text has one size, so the layout differs.

/// A medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// A picture file.
    File,
    /// A report on a wide screen or on paper.
    Page,
    /// A report on a phone.
    Phone,
}

impl Medium {
    /// Width of a chart in pixels.
    pub fn width(self) -> u32 {
        match self {
            Medium::File | Medium::Page => 740,
            Medium::Phone => 340,
        }
    }

    /// Columns of several charts. Those of a file are side by side, and a page scrolls.
    pub fn columns(self, charts: usize) -> usize {
        if self == Medium::File { charts.clamp(1, 2) } else { 1 }
    }
}
