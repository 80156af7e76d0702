//! Searches spaces of designs that are too large for a grid: coordinate descent with restarts.
//!
//! A point is one word for each axis (a flag). The search starts at the first word of every axis. It takes the axes in
//! random order, tries every word of an axis with the other words fixed, and moves to the best one. When no axis
//! improves the point, it restarts from a random point, until the budget of points is used up. The same seed gives the
//! same search. A space that fits into the budget is searched completely.

use std::collections::BTreeMap;

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

/// The value of a point: smaller is better, compared from left to right. `None` for a point that is no design, because
/// its words exclude each other.
pub type Value = Option<Vec<f64>>;

/// Evaluates points: returns the value of each. `E` is the error of an evaluation.
pub type Evaluate<'a, E> = dyn FnMut(&[Point]) -> Result<Vec<Value>, E> + 'a;

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
    values: BTreeMap<Point, Value>,
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
    let valued = search.tried.iter().filter_map(|point| Some((search.values.get(point)?.as_ref()?, point)));
    // The earliest of several equal ones.
    let best = valued.reduce(|best, other| if is_less(other.0, best.0) { other } else { best });
    Ok(Found { best: best.map(|(_, point)| point.clone()), is_complete, tried: search.tried })
}

/// Whether a value is better than another.
fn is_less(one: &[f64], other: &[f64]) -> bool {
    let order = one.iter().zip(other).map(|(one, other)| one.total_cmp(other));
    order.fold(std::cmp::Ordering::Equal, std::cmp::Ordering::then).is_lt()
}

impl<E> Search<'_, E> {
    fn descend(&mut self) -> Result<(), E> {
        let mut random = Random(self.effort.seed);
        let mut point = self.space.start();
        // Restarts that find nothing new end the search, so that a nearly exhausted space cannot keep it running.
        let mut idle = 0;
        while self.has_budget() && idle < 32 {
            let before = self.tried.len();
            self.look_at(vec![point.clone()])?;
            self.descend_from(point, &mut random)?;
            idle = if self.tried.len() == before { idle + 1 } else { 0 };
            point = self.space.axes.iter().map(|axis| random.below(axis.words.len())).collect();
        }
        Ok(())
    }

    /// Improves a point along its axes until none helps.
    fn descend_from(&mut self, mut point: Point, random: &mut Random) -> Result<(), E> {
        let mut order: Vec<usize> = (0..self.space.axes.len()).collect();
        loop {
            random.shuffle(&mut order);
            let mut has_moved = false;
            for &axis in &order {
                if !self.has_budget() {
                    return Ok(());
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
                return Ok(());
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
            (Some(one), Some(other)) => is_less(one, other),
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

/// Seeded random numbers (splitmix64), equal on all machines.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`, which must be above 0.
    fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.bits()) * end as u128) >> 64) as usize
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

    fn found(space: &Space, points_max: usize, seed: u64, value: impl Fn(&Point) -> Value) -> Found {
        let mut evaluate = |points: &[Point]| Ok::<_, Infallible>(points.iter().map(&value).collect());
        let Ok(found) = search(space, Effort { points_max, seed }, &mut evaluate);
        found
    }

    #[test]
    fn a_separable_valley_is_found_within_the_budget() {
        let space = space(&[9, 9, 9, 9, 9, 9]);
        let distance = |point: &Point| {
            let terms = point.iter().enumerate().map(|(axis, &word)| (word as f64 - (axis + 2) as f64).powi(2));
            Some(vec![terms.sum()])
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
            [0, 0] => Some(vec![1.0]),
            [5, 5] => Some(vec![0.0]),
            [0, _] | [_, 0] => Some(vec![3.0]),
            [one, other] => Some(vec![2.0 + one.abs_diff(5) as f64 / 10.0 + other.abs_diff(5) as f64 / 10.0]),
            _ => None,
        };
        assert_eq!(found(&space, 63, 7, value).best, Some(vec![5, 5]));
    }

    #[test]
    fn a_small_space_is_searched_completely_and_invalid_points_are_skipped() {
        let space = space(&[3, 4]);
        let value = |point: &Point| (point[0] != 0).then(|| vec![0.0, (point[0] * 4 + point[1]) as f64]);
        let found = found(&space, 12, 1, value);
        assert!(found.is_complete && found.tried.len() == 12);
        assert_eq!(found.best, Some(vec![1, 0]));
    }

    #[test]
    fn the_same_seed_gives_the_same_search() {
        let space = space(&[6, 6, 6, 6]);
        let value = |point: &Point| Some(vec![point.iter().map(|&word| (word * 7 % 6) as f64).product()]);
        let tried = |seed| found(&space, 50, seed, value).tried;
        assert_eq!(tried(3), tried(3));
        assert_ne!(tried(3), tried(4));
    }
}
