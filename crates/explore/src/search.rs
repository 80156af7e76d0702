//! Searches spaces of designs that are too large for a grid: coordinate descent with restarts.
//!
//! A point is one word for each axis (a flag). The search starts at the first word of every axis. It takes the axes in
//! random order, tries every word of an axis with the other words fixed, and moves to the best one. When no axis
//! improves the point, it restarts, until the budget of points is used up:
//!
//! 1. From each word that would improve the point but breaks a limit. The word stays, and the other words are changed
//!    until they meet the limit: a design that meets a limit narrowly often needs several words at once.
//! 2. Then in turn from the best point with a few words changed, and from a random point.
//!
//! The same seed gives the same search. A space that fits into the budget is searched completely.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use hksim_trace::splitmix::Splitmix64;

/// Number of words that a restart from the best point changes at most.
const KICKS: usize = 3;

/// A flag and the words to try, the start first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Axis {
    /// The flag, without dashes.
    pub flag: String,
    /// Its words, at least one.
    pub words: Vec<String>,
}

/// Indices of the words of a point, one for each axis.
pub type Point = Vec<usize>;

/// A space of designs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Space {
    /// Its axes.
    pub axes: Vec<Axis>,
}

impl Space {
    /// Number of points; `None` if it does not fit into 64 bits.
    pub fn points(&self) -> Option<u64> {
        self.axes.iter().try_fold(1u64, |points, axis| points.checked_mul(axis.words.len() as u64))
    }

    /// The start: the first word of every axis.
    pub fn start(&self) -> Point {
        vec![0; self.axes.len()]
    }

    /// All points in the order of a grid, the first axis varying slowest.
    fn grid(&self) -> Vec<Point> {
        self.axes.iter().fold(vec![Vec::new()], |points, axis| {
            let extended = points.iter().flat_map(|point| {
                (0..axis.words.len()).map(|word| point.iter().copied().chain([word]).collect::<Point>())
            });
            extended.collect()
        })
    }
}

/// The value of a point. Smaller is better.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// By how much it exceeds the limits: 0 if it meets them.
    pub excess: f64,
    /// What is minimised within the limits, compared from left to right.
    pub aims: Vec<f64>,
}

impl Value {
    fn order(&self, other: &Value) -> Ordering {
        let aims = self.aims.iter().zip(&other.aims).map(|(one, other)| one.total_cmp(other));
        aims.fold(self.excess.total_cmp(&other.excess), Ordering::then)
    }

    fn is_less(&self, other: &Value) -> bool {
        self.order(other).is_lt()
    }
}

/// Evaluates points: returns the value of each, `None` for a point that is no design, because its words exclude each
/// other. `E` is the error of an evaluation.
pub type Evaluate<'a, E> = dyn FnMut(&[Point]) -> Result<Vec<Option<Value>>, E> + 'a;

/// The effort of a search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// Maximum number of points that are evaluated.
    pub points_max: usize,
    /// Decides the order of axes and the restarts.
    pub seed: u64,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct Found {
    /// The best point; `None` if no point is a design.
    pub best: Option<Point>,
    /// The points that were evaluated.
    pub tried: Vec<Point>,
    /// Whether every point of the space was evaluated.
    pub is_complete: bool,
}

/// A search in progress.
struct Search<'a, E> {
    space: &'a Space,
    effort: Effort,
    evaluate: &'a mut Evaluate<'a, E>,
    values: BTreeMap<Point, Option<Value>>,
    tried: Vec<Point>,
}

/// Searches a space. `evaluate` returns the value of each point; it is called with points that it has not seen before.
///
/// # Errors
/// An evaluation fails.
pub fn search<'a, E>(space: &'a Space, effort: Effort, evaluate: &'a mut Evaluate<'a, E>) -> Result<Found, E> {
    let mut search = Search { space, effort, evaluate, values: BTreeMap::new(), tried: Vec::new() };
    let is_complete = space.points().is_some_and(|points| points <= effort.points_max as u64);
    if is_complete {
        search.look_at(space.grid())?;
    } else {
        search.descend()?;
    }
    Ok(Found { best: search.best(), is_complete, tried: search.tried })
}

impl<E> Search<'_, E> {
    fn descend(&mut self) -> Result<(), E> {
        let mut random = Random::new(self.effort.seed);
        let point = self.descend_from(self.space.start(), None, &mut random)?;
        for (axis, tempting) in self.tempting(&point) {
            self.descend_from(tempting, Some(axis), &mut random)?;
        }
        // Restarts that find nothing new end the search, so that a nearly exhausted space cannot keep it running.
        let (mut idle, mut restarts) = (0, 0);
        while self.has_budget() && idle < 32 {
            let before = self.tried.len();
            let point = match self.best() {
                Some(best) if restarts % 2 == 0 => self.kicked(best, &mut random),
                _ => self.space.axes.iter().map(|axis| random.below(axis.words.len())).collect(),
            };
            self.descend_from(point, None, &mut random)?;
            idle = if self.tried.len() == before { idle + 1 } else { 0 };
            restarts += 1;
        }
        Ok(())
    }

    /// The best point so far, the earliest of several equal ones.
    fn best(&self) -> Option<Point> {
        let valued = self.tried.iter().filter_map(|point| Some((self.values.get(point)?.as_ref()?, point)));
        let best = valued.reduce(|best, other| if other.0.is_less(best.0) { other } else { best });
        best.map(|(_, point)| point.clone())
    }

    /// The points that differ from this one in one word, would be better, and exceed the limits; the best first. Each
    /// with the axis of its word.
    fn tempting(&self, point: &Point) -> Vec<(usize, Point)> {
        let Some(own) = self.values.get(point).and_then(Option::as_ref) else { return Vec::new() };
        let mut found = Vec::new();
        for (axis, words) in self.space.axes.iter().map(|axis| axis.words.len()).enumerate() {
            for other in (0..words).map(|word| with_word(point, axis, word)) {
                let value = self.values.get(&other).and_then(Option::as_ref).filter(|value| value.excess > own.excess);
                let within = value.map(|value| Value { excess: own.excess, ..value.clone() });
                found.extend(within.filter(|value| value.is_less(own)).map(|value| (value, axis, other)));
            }
        }
        found.sort_by(|(one, ..), (other, ..)| one.order(other));
        found.into_iter().map(|(_, axis, other)| (axis, other)).collect()
    }

    /// A point with up to [`KICKS`] random words.
    fn kicked(&self, mut point: Point, random: &mut Random) -> Point {
        for _ in 0..KICKS {
            let axis = random.below(point.len());
            point[axis] = random.below(self.space.axes[axis].words.len());
        }
        point
    }

    /// Improves a point along its axes, except the one `kept`, until none helps. Returns the last point.
    fn descend_from(&mut self, mut point: Point, kept: Option<usize>, random: &mut Random) -> Result<Point, E> {
        self.look_at(vec![point.clone()])?;
        let mut order: Vec<usize> = (0..self.space.axes.len()).filter(|&axis| Some(axis) != kept).collect();
        loop {
            random.shuffle(&mut order);
            let mut has_moved = false;
            for &axis in &order {
                if !self.has_budget() {
                    return Ok(point);
                }
                let words = 0..self.space.axes[axis].words.len();
                let line: Vec<Point> = words.map(|word| with_word(&point, axis, word)).collect();
                self.look_at(line.clone())?;
                for other in line {
                    if self.is_better(&other, &point) {
                        point = other;
                        has_moved = true;
                    }
                }
            }
            if !has_moved {
                return Ok(point);
            }
        }
    }

    fn has_budget(&self) -> bool {
        self.tried.len() < self.effort.points_max
    }

    /// Evaluates points that are not known yet, as far as the budget allows.
    fn look_at(&mut self, points: Vec<Point>) -> Result<(), E> {
        let budget = self.effort.points_max - self.tried.len();
        let new: Vec<Point> =
            points.into_iter().filter(|point| !self.values.contains_key(point)).take(budget).collect();
        if new.is_empty() {
            return Ok(());
        }
        let values = (self.evaluate)(&new)?;
        self.tried.extend(new.iter().cloned());
        self.values.extend(new.into_iter().zip(values));
        Ok(())
    }

    fn is_better(&self, one: &Point, other: &Point) -> bool {
        let value = |point| self.values.get(point).and_then(Option::as_ref);
        match (value(one), value(other)) {
            (Some(one), Some(other)) => one.is_less(other),
            (Some(_), None) => true,
            (None, _) => false,
        }
    }
}

fn with_word(point: &Point, axis: usize, word: usize) -> Point {
    let mut point = point.clone();
    point[axis] = word;
    point
}

/// Seeded random numbers, equal on all machines.
#[derive(Clone, Debug)]
pub(crate) struct Random(Splitmix64);

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        Random(Splitmix64::new(seed))
    }

    /// A number below `end`, which must be above 0.
    fn below(&mut self, end: usize) -> usize {
        self.0.below(end as u64) as usize
    }

    /// Puts items in random order.
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for end in (2..=items.len()).rev() {
            items.swap(end - 1, self.below(end));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::convert::Infallible;

    fn space(sizes: &[usize]) -> Space {
        let axis = |&size: &usize| Axis { flag: "f".into(), words: (0..size).map(|word| word.to_string()).collect() };
        Space { axes: sizes.iter().map(axis).collect() }
    }

    fn found(space: &Space, points_max: usize, seed: u64, value: impl Fn(&Point) -> Option<Value>) -> Found {
        let mut evaluate = |points: &[Point]| Ok::<_, Infallible>(points.iter().map(&value).collect());
        let Ok(found) = search(space, Effort { points_max, seed }, &mut evaluate);
        found
    }

    /// The value of a point that meets the limits.
    fn within(aims: Vec<f64>) -> Option<Value> {
        Some(Value { excess: 0.0, aims })
    }

    /// Each axis has a word that saves much and breaks the limit, and words that save less and give back. Only the right
    /// combination of six words is better than the start, and no single step from the start leads there.
    #[test]
    fn a_design_that_meets_a_limit_narrowly_is_found_from_beyond_the_limit() {
        let space = space(&[6, 5, 4, 4, 3, 3, 3, 3, 3, 3, 3, 3]);
        let value = |point: &Point| {
            // The saver breaks the limit by 5; a compensation of any later axis takes away 1 and costs 1 of the saving.
            let saver = point[0] == 4;
            let payments = point[1..6].iter().filter(|&&word| word == 2).count() as f64;
            let others = point[6..].iter().filter(|&&word| word != 0).count() as f64;
            let saved = if saver { 6.0 } else { 0.0 };
            let excess = if saver { 5.0 - payments } else { 0.0 };
            Some(Value { excess, aims: vec![100.0 - saved + payments + others] })
        };
        for seed in 0..20 {
            let found = found(&space, 250, seed, value);
            let best = found.best.expect("a point");
            assert_eq!(
                value(&best).expect("a value"),
                Value { excess: 0.0, aims: vec![99.0] },
                "seed {seed}: {best:?}"
            );
        }
    }

    #[test]
    fn a_separable_valley_is_found_within_the_budget() {
        let space = space(&[9, 9, 9, 9, 9, 9]);
        let distance = |point: &Point| {
            let terms = point.iter().enumerate().map(|(axis, &word)| (word as f64 - (axis + 2) as f64).powi(2));
            within(vec![terms.sum()])
        };
        for seed in 0..20 {
            let found = found(&space, 120, seed, distance);
            assert_eq!(found.best, Some(vec![2, 3, 4, 5, 6, 7]), "seed {seed}");
            assert!(found.tried.len() <= 120 && !found.is_complete, "seed {seed}");
        }
    }

    #[test]
    fn restarts_leave_a_local_minimum() {
        // From the start, every single step is uphill.
        let space = space(&[8, 8]);
        let value = |point: &Point| match point[..] {
            [0, 0] => within(vec![1.0]),
            [5, 5] => within(vec![0.0]),
            [0, _] | [_, 0] => within(vec![3.0]),
            [one, other] => within(vec![2.0 + one.abs_diff(5) as f64 / 10.0 + other.abs_diff(5) as f64 / 10.0]),
            _ => None,
        };
        assert_eq!(found(&space, 63, 7, value).best, Some(vec![5, 5]));
    }

    #[test]
    fn a_small_space_is_searched_completely_and_invalid_points_are_skipped() {
        let space = space(&[3, 4]);
        let value =
            |point: &Point| if point[0] == 0 { None } else { within(vec![0.0, (point[0] * 4 + point[1]) as f64]) };
        let found = found(&space, 12, 1, value);
        assert!(found.is_complete && found.tried.len() == 12);
        assert_eq!(found.best, Some(vec![1, 0]));
    }

    #[test]
    fn the_same_seed_gives_the_same_search() {
        let space = space(&[6, 6, 6, 6]);
        let value = |point: &Point| within(vec![point.iter().map(|&word| (word * 7 % 6) as f64).product()]);
        let tried = |seed| found(&space, 50, seed, value).tried;
        assert_eq!(tried(3), tried(3));
        assert_ne!(tried(3), tried(4));
    }
}
