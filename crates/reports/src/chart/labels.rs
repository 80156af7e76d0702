//! Places labels without overlaps.

/// A box in pixels: left, top, right, bottom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Box {
    /// Left edge.
    pub left: i32,
    /// Top edge.
    pub top: i32,
    /// Right edge.
    pub right: i32,
    /// Bottom edge.
    pub bottom: i32,
}

impl Box {
    /// A box around a point.
    pub fn around((x, y): (i32, i32), radius: i32) -> Box {
        Box { left: x - radius, top: y - radius, right: x + radius, bottom: y + radius }
    }

    /// The box of a horizontal or vertical line between two points.
    pub fn along(from: (i32, i32), to: (i32, i32)) -> Box {
        Box {
            left: from.0.min(to.0) - 1,
            top: from.1.min(to.1) - 1,
            right: from.0.max(to.0) + 1,
            bottom: from.1.max(to.1) + 1,
        }
    }

    /// Whether the boxes share a pixel.
    pub fn overlaps(&self, other: &Box) -> bool {
        self.left < other.right && other.left < self.right && self.top < other.bottom && other.top < self.bottom
    }

    /// The end of a line that connects a point to this label; `None` if the label is right next to the point.
    pub fn led_from(&self, (x, y): (i32, i32)) -> Option<(i32, i32)> {
        const BESIDE: i32 = 12;
        let end = (x.clamp(self.left, self.right), y.clamp(self.top, self.bottom));
        let away = (end.0 - x).abs() + (end.1 - y).abs();
        (away > BESIDE).then_some(end)
    }

    /// Whether the other box is inside.
    pub fn contains(&self, other: &Box) -> bool {
        self.left <= other.left && self.top <= other.top && other.right <= self.right && other.bottom <= self.bottom
    }
}

/// Height of a label.
pub const LABEL_HEIGHT: i32 = 16;

/// The approximate width of a label, for the widest common sans-serif fonts.
pub fn label_width(text: &str, font_px: i32) -> i32 {
    (text.chars().count() as f64 * f64::from(font_px) * CHARACTER_EM).ceil() as i32 + 2
}

/// Width of a character, as a share of the font's size.
const CHARACTER_EM: f64 = 0.48;

/// A text in lines of at most this width, broken at spaces. No line if the text is empty.
pub fn wrapped(text: &str, font_px: i32, width: i32) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut().filter(|line| label_width(&format!("{line} {word}"), font_px) <= width) {
            Some(line) => *line += &format!(" {word}"),
            None => lines.push(word.to_string()),
        }
    }
    lines.iter().map(|line| shortened(line, font_px, width)).collect()
}

/// A text cut to this width, which its end shows.
pub fn shortened(text: &str, font_px: i32, width: i32) -> String {
    if label_width(text, font_px) <= width {
        return text.to_string();
    }
    let fits =
        |&kept: &usize| label_width(text, font_px) - (kept as f64 * f64::from(font_px) * CHARACTER_EM) as i32 <= width;
    let cut = (0..=text.chars().count()).find(fits).unwrap_or(0) + 3;
    let kept = text.chars().count().saturating_sub(cut);
    text.chars().take(kept).chain("...".chars()).collect()
}

/// The nearest place to `point` for a label of this width, inside `area` and clear of `taken`. Places to the right of
/// the point are tried first.
pub fn place(point: (i32, i32), width: i32, area: &Box, taken: &[Box]) -> Option<Box> {
    const GAP: i32 = 9;
    const FAR_STEPS: i32 = 4;
    let half = LABEL_HEIGHT / 2;
    let candidates = (0..FAR_STEPS).flat_map(|step| {
        let away = step * (LABEL_HEIGHT - 2);
        let (x, y) = point;
        let (right, left, middle) = (x + GAP, x - GAP - width, x - width / 2);
        let mut tries = vec![(right, y - half - away), (right, y - half + away)];
        tries.extend([(left, y - half - away), (left, y - half + away)]);
        tries.extend([(right, y - GAP - LABEL_HEIGHT - away), (right, y + GAP + away)]);
        tries.extend([(left, y - GAP - LABEL_HEIGHT - away), (left, y + GAP + away)]);
        tries.extend([(middle, y - GAP - LABEL_HEIGHT - away), (middle, y + GAP + away)]);
        tries
    });
    first_free(candidates, width, area, taken)
}

/// The first place (left, top) that is inside `area` and clear of `taken`.
pub fn first_free(places: impl IntoIterator<Item = (i32, i32)>, width: i32, area: &Box, taken: &[Box]) -> Option<Box> {
    let at = |(left, top)| Box { left, top, right: left + width, bottom: top + LABEL_HEIGHT };
    let mut boxes = places.into_iter().map(at);
    boxes.find(|place| area.contains(place) && !taken.iter().any(|other| other.overlaps(place)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_every_word_and_fit() {
        let text = "pages over time; a row is 32 KiB, and the lowest address is at the bottom";
        for width in [90, 200, 340, 2000] {
            let lines = wrapped(text, 18, width);
            assert_eq!(lines.join(" "), text, "{width}");
            assert!(lines.iter().all(|line| label_width(line, 18) <= width), "{lines:?}");
        }
        assert_eq!(wrapped("", 18, 90), Vec::<String>::new());
        let short = shortened(text, 14, 200);
        assert!(short.ends_with("...") && label_width(&short, 14) <= 200 && short.len() > 20, "{short}");
    }

    #[test]
    fn labels_never_overlap_and_stay_inside() {
        let area = Box { left: 0, top: 0, right: 600, bottom: 400 };
        let mut seed = 12345u64;
        let mut draw = |below: u64| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed % below) as i32
        };
        for round in 0..200 {
            let points: Vec<(i32, i32)> = (0..20).map(|_| (draw(600), draw(400))).collect();
            let mut taken: Vec<Box> = points.iter().map(|&point| Box::around(point, 6)).collect();
            let marks = taken.len();
            for &point in &points {
                taken.extend(place(point, 20 + draw(120), &area, &taken));
            }
            assert!(taken.len() > marks + 5, "round {round}: hardly any label found a place");
            for (index, label) in taken.iter().enumerate().skip(marks) {
                assert!(area.contains(label), "round {round}: {label:?} outside");
                assert!(!taken[..index].iter().any(|other| other.overlaps(label)), "round {round}: {label:?} overlaps");
            }
        }
    }
}
