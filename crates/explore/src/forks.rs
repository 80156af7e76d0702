//! Forks of the program, recorded or added.

use std::str::FromStr;

use hksim_engine::ForkWindow;
use hksim_policy::units::{parse_count, parse_time};
use hksim_text::plain;
use hksim_trace::error::TraceError;
use hksim_trace::event::{Event, Op};
use thiserror::Error;

use crate::inputs::Trace;
use crate::marks::Marks;
use crate::point::Point;

/// Where to fork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForkPoint {
    /// At the recorded program's own forks.
    Recorded,
    /// At this point.
    At(Point),
}

impl FromStr for ForkPoint {
    type Err = std::convert::Infallible;

    fn from_str(word: &str) -> Result<ForkPoint, Self::Err> {
        if word == "recorded" { Ok(ForkPoint::Recorded) } else { word.parse().map(ForkPoint::At) }
    }
}

/// How long a child lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// This much trace time, in nanoseconds.
    Ns(u64),
    /// This many events.
    Events(u64),
}

impl Life {
    /// Whether the child exits as soon as it is forked.
    fn is_nothing(self) -> bool {
        matches!(self, Life::Ns(0) | Life::Events(0))
    }
}

impl FromStr for Life {
    type Err = String;

    fn from_str(word: &str) -> Result<Life, String> {
        let count = parse_count(word).map(Life::Events);
        count
            .or_else(|_| parse_time(word).map(Life::Ns))
            .map_err(|_| format!("`{word}` is neither a time nor a count of events; write 200ms, or 100k"))
    }
}

/// Forks to simulate.
#[derive(Clone, Debug, Default)]
pub struct Forks {
    /// Where the program forks.
    pub at: Vec<ForkPoint>,
    /// How long the children live; `None`: until the end.
    pub life: Option<Life>,
}

/// The fork windows of a trace, and what the user should know about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Windows {
    /// The windows, in order.
    pub windows: Vec<ForkWindow>,
    /// A note, if the end of some children is not recorded.
    pub note: Option<String>,
}

/// Forks do not fit a trace.
#[derive(Debug, Error)]
pub enum ForkError {
    /// The trace cannot be read.
    #[error(transparent)]
    Trace(#[from] TraceError),
    /// A point does not exist, or cannot be used.
    #[error("{0}")]
    Point(String),
}

impl Forks {
    /// The fork windows of a trace, in order.
    ///
    /// # Errors
    /// The trace lacks the event or mark, or does not record when its children ended; or two points are the same event.
    pub fn windows(&self, trace: &Trace) -> Result<Windows, ForkError> {
        if self.at.is_empty() {
            return Ok(Windows::default());
        }
        let name = trace.input.file.as_deref().unwrap_or("the workload");
        if self.at.contains(&ForkPoint::Recorded) {
            return self.recorded(trace, name);
        }
        let mut source = (trace.input.open)()?;
        let names = source.footer().mark_names.clone();
        let mut finder = Finder::new(self, names);
        while let Some(batch) = source.next_batch()? {
            batch.iter().for_each(|event| finder.see(event));
        }
        Ok(Windows { windows: finder.finish(name)?, note: None })
    }

    /// The windows of the recorded program's children.
    fn recorded(&self, trace: &Trace, name: &str) -> Result<Windows, ForkError> {
        if self.at.len() > 1 || self.life.is_some() {
            return Err(ForkError::Point(
                "--fork-at recorded: the trace gives the points and durations; leave out other points and --fork-for"
                    .to_string(),
            ));
        }
        let mut source = (trace.input.open)()?;
        let mut recorded = Recorded::default();
        while let Some(batch) = source.next_batch()? {
            batch.iter().for_each(|event| recorded.see(event));
        }
        recorded.finish(name)
    }

    /// The windows at the given points.
    fn points(&self) -> Vec<Point> {
        let point = |point: &ForkPoint| match point {
            ForkPoint::Recorded => None,
            ForkPoint::At(point) => Some(point.clone()),
        };
        self.at.iter().filter_map(point).collect()
    }
}

/// Collects the windows of a program's children while its trace is read.
#[derive(Default)]
struct Recorded {
    windows: Vec<ForkWindow>,
    /// Children that have not ended yet: process id and number of the window.
    alive: Vec<(u32, usize)>,
    events: u64,
}

impl Recorded {
    fn see(&mut self, event: &Event) {
        self.events += 1;
        match event.op {
            Op::Fork { child_pid } => {
                self.alive.push((child_pid, self.windows.len()));
                self.windows.push(ForkWindow { from_event: self.events, until_event: u64::MAX });
            }
            Op::ForkEnd { child_pid, outlives } => {
                // A process id can be reused: the latest child with this id is meant.
                let Some(at) = self.alive.iter().rposition(|&(pid, _)| pid == child_pid) else { return };
                let (_, window) = self.alive.remove(at);
                if let Some(window) = self.windows.get_mut(window).filter(|_| !outlives) {
                    window.until_event = self.events;
                }
            }
            _ => {}
        }
    }

    fn finish(self, trace: &str) -> Result<Windows, ForkError> {
        let (forks, unknown) = (self.windows.len(), self.alive.len());
        if unknown > 0 && unknown == forks {
            return Err(ForkError::Point(format!(
                "{trace}: records forks, but not when the children ended (a recording by an older version, with --accesses full, or on \
                 overlayfs); record it again, or name the forks: --fork-at {} --fork-for TIME",
                self.windows[0].from_event
            )));
        }
        let note = (unknown > 0).then(|| {
            format!(
                "{trace}: the end of {unknown} of {forks} children is not recorded; they are kept until the end of the trace"
            )
        });
        Ok(Windows { windows: self.windows, note })
    }
}

/// Collects windows while a trace is read.
struct Finder {
    wanted: Vec<Point>,
    life: Option<Life>,
    names: Vec<String>,
    marks: Marks,
    /// The windows, each with the time of its fork.
    found: Vec<(ForkWindow, u64)>,
    /// Two points at the same event, and that event.
    twice: Option<(Point, Point, u64)>,
    events: u64,
}

impl Finder {
    fn new(forks: &Forks, names: Vec<String>) -> Finder {
        let marks = Marks::default();
        Finder { wanted: forks.points(), life: forks.life, names, marks, found: Vec::new(), twice: None, events: 0 }
    }

    fn see(&mut self, event: &Event) {
        self.events += 1;
        self.marks.see(&event.op, &self.names);
        let (number, time_ns) = (self.events, event.time_ns);
        for (window, forked_ns) in &mut self.found {
            let is_over = match self.life {
                Some(Life::Events(events)) => number == window.from_event.saturating_add(events),
                Some(Life::Ns(ns)) => time_ns >= forked_ns.saturating_add(ns),
                None => false,
            };
            if is_over && window.until_event == u64::MAX {
                window.until_event = number;
            }
        }
        let mark = match event.op {
            Op::Mark { name } => self.names.get(name as usize),
            _ => None,
        };
        let is_here = |point: &Point| match point {
            Point::Event(event) => *event == number,
            Point::Mark(name) => mark == Some(name),
            Point::End => false,
        };
        let Some(index) = self.wanted.iter().position(is_here) else { return };
        let point = self.wanted.remove(index);
        // A mark given twice means its first two occurrences, not one point given twice.
        if let Some(other) = self.wanted.iter().find(|other| is_here(other) && !is_same_mark(other, &point)) {
            self.twice = Some((point, other.clone(), number));
        }
        let until_event = if self.life.is_some_and(Life::is_nothing) { number } else { u64::MAX };
        self.found.push((ForkWindow { from_event: number, until_event }, time_ns));
    }

    fn finish(self, trace: &str) -> Result<Vec<ForkWindow>, ForkError> {
        if let Some((point, other, event)) = self.twice {
            return Err(ForkError::Point(format!(
                "--fork-at: `{point}` and `{other}` are both event {event} of {trace}; name each event once"
            )));
        }
        match self.wanted.first() {
            Some(Point::Mark(name)) => {
                let more = if self.marks.number(name).is_some() { "no more marks" } else { "no mark" };
                return Err(ForkError::Point(format!("{trace}: has {more} `{}`; {}", plain(name), self.marks.known())));
            }
            Some(Point::Event(event)) => {
                return Err(ForkError::Point(format!(
                    "{trace}: has no event {event}; name one of 1 to {}",
                    self.events
                )));
            }
            Some(Point::End) => {
                return Err(ForkError::Point(
                    "--fork-at end: no event follows the end; name a mark or an event".to_string(),
                ));
            }
            None => {}
        }
        Ok(self.found.into_iter().map(|(window, _)| window).collect())
    }
}

/// Whether two points are the same mark.
fn is_same_mark(one: &Point, other: &Point) -> bool {
    matches!((one, other), (Point::Mark(one), Point::Mark(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hksim_trace::event::ThreadId;

    fn windows(at: &[&str], life: Option<&str>) -> Result<Vec<ForkWindow>, ForkError> {
        let at = at.iter().flat_map(|word| word.parse()).collect();
        let life = life.map(|word| word.parse().expect("a life"));
        let mut finder = Finder::new(&Forks { at, life }, vec!["save".into()]);
        for number in 1..=20u64 {
            let op = if number == 4 { Op::Mark { name: 0 } } else { Op::FreeNull };
            finder.see(&Event::new(number * 10, ThreadId(0), op));
        }
        finder.finish("t")
    }

    #[test]
    fn windows_begin_at_events_and_marks_and_end_after_events_or_time() {
        let window = |from_event, until_event| ForkWindow { from_event, until_event };
        assert_eq!(windows(&["10", "save"], Some("3")).expect("two"), [window(4, 7), window(10, 13)]);
        assert_eq!(windows(&["save"], Some("25ns")).expect("one"), [window(4, 7)], "40 + 25 ns are over at 70");
        assert_eq!(windows(&["save"], None).expect("one"), [window(4, u64::MAX)]);
        assert_eq!(windows(&["3", "5"], Some("2")).expect("one after the other"), [window(3, 5), window(5, 7)]);
        assert_eq!(windows(&["3", "5"], Some("3")).expect("two at once"), [window(3, 6), window(5, 8)]);
        for nothing in ["0", "0ns", "0ms"] {
            assert_eq!(windows(&["3", "4"], Some(nothing)).expect("exits at once"), [window(3, 3), window(4, 4)]);
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let refused = |at: &[&str], life| windows(at, life).expect_err("refused").to_string();
        assert!(refused(&["load"], None).contains("has no mark `load`; its marks are save"));
        assert!(refused(&["21"], None).contains("1 to 20"));
        assert!(refused(&["end"], None).contains("end"));
        for at in [["1", "1"], ["4", "save"]] {
            let said = refused(&at, None);
            assert!(said.contains(&format!("`{}` and `{}` are both event {}", at[0], at[1], at[0])), "{said}");
        }
        assert!(refused(&["save", "save"], None).contains("has no more marks `save`"), "there is only one");
        assert!("3 minutes".parse::<Life>().is_err());
    }

    #[test]
    fn recorded_children_live_until_the_trace_says_so() {
        let windows = |ops: &[Op]| {
            let mut recorded = Recorded::default();
            ops.iter().for_each(|&op| recorded.see(&Event::new(0, ThreadId(0), op)));
            recorded.finish("t").map(|found| found.windows).map_err(|why| why.to_string())
        };
        let (fork, end) = (|child_pid| Op::Fork { child_pid }, |child_pid| Op::ForkEnd { child_pid, outlives: false });
        let outlives = Op::ForkEnd { child_pid: 8, outlives: true };
        let window = |from_event, until_event| ForkWindow { from_event, until_event };
        // A number that comes again, a child that lives to the end, and an end without a fork.
        let found = windows(&[fork(7), fork(8), end(7), fork(7), end(9), end(7), outlives]).expect("windows");
        assert_eq!(found, [window(1, 3), window(2, u64::MAX), window(4, 6)]);
        assert_eq!(windows(&[Op::FreeNull]), Ok(Vec::new()), "no forks are none");
        assert!(windows(&[Op::FreeNull, fork(7)]).expect_err("an old trace").contains("--fork-at 2 --fork-for"));
        assert_eq!(windows(&[fork(7), fork(8), end(8)]), Ok(vec![window(1, u64::MAX), window(2, 3)]));
    }
}
