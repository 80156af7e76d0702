//! Live bytes over time in bounded memory: the first, lowest, highest and last value of each time span.
//!
//! If these values are drawn as steps with one pixel per span, the plot is the same as with all values: no peak is
//! lost, and the line is level in spans without events.

use super::LivePoint;

/// Number of time spans.
const SPANS: u64 = 256;

/// The points kept of one span.
#[derive(Clone, Copy)]
struct Span {
    first: LivePoint,
    lowest: LivePoint,
    highest: LivePoint,
    last: LivePoint,
}

/// Collects the points, which must be added in order of time.
pub(super) struct OverTime {
    duration_ns: u64,
    spans: Vec<Span>,
    /// The end of the newest span, exclusive.
    end_ns: u64,
}

impl OverTime {
    /// A collector for a trace of this duration.
    pub(super) fn new(duration_ns: u64) -> OverTime {
        OverTime { duration_ns, spans: Vec::with_capacity(SPANS as usize), end_ns: 0 }
    }

    /// Adds the point after an event.
    #[inline]
    pub(super) fn add(&mut self, point: LivePoint) {
        match self.spans.last_mut() {
            // Times never decrease.
            Some(span) if point.time_ns < self.end_ns => span.add(point),
            _ => self.begin(point),
        }
    }

    fn begin(&mut self, point: LivePoint) {
        let length = u128::from(self.duration_ns) + 1;
        let number = u128::from(point.time_ns) * u128::from(SPANS) / length;
        let end_ns = ((number + 1) * length).div_ceil(u128::from(SPANS));
        self.end_ns = u64::try_from(end_ns).unwrap_or(u64::MAX);
        self.spans.push(Span { first: point, lowest: point, highest: point, last: point });
    }

    /// The points in order, at most four per span.
    pub(super) fn finish(self) -> Vec<LivePoint> {
        self.spans.into_iter().flat_map(Span::points).collect()
    }
}

impl Span {
    fn add(&mut self, point: LivePoint) {
        if point.live_bytes < self.lowest.live_bytes {
            self.lowest = point;
        }
        if point.live_bytes > self.highest.live_bytes {
            self.highest = point;
        }
        self.last = point;
    }

    fn points(self) -> Vec<LivePoint> {
        let mut points = vec![self.first, self.lowest, self.highest, self.last];
        points.sort_by_key(|point| point.event);
        points.dedup();
        points
    }
}
