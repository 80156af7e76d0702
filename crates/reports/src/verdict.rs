//! Which of several measured or predicted allocators is best, in a sentence.

use hksim_memory_sim::MemoryRow;
use hksim_replay::compare::Spread;
use hksim_text::units::{bytes, count, time};
use hksim_timing::Estimate;

/// The share by which amounts of memory may differ and still count as equal.
const TIE: f64 = 0.01;

/// An allocator among others.
pub(crate) struct Contender {
    pub(crate) name: String,
    /// Its processor time relative to the first one; `None` for the first.
    pub(crate) ratio_to_first: Option<Estimate>,
    /// All contenders have the same amounts.
    pub(crate) amounts: Vec<Amount>,
}

/// A figure of which less is better.
pub(crate) struct Amount {
    /// What the best has: `least peak RSS`.
    what: &'static str,
    /// Its range, and the middle; `None` if it is not known.
    range: Option<[u64; 3]>,
    show: fn(u64) -> String,
}

impl Amount {
    /// An amount of memory in bytes.
    pub(crate) fn bytes(what: &'static str, size: Option<u64>) -> Amount {
        Amount { what, range: size.map(|size| [size; 3]), show: bytes }
    }

    /// The same over several runs. Rows whose middle halves overlap are a tie.
    pub(crate) fn measured(what: &'static str, size: Option<Spread<u64>>) -> Amount {
        let range = size.map(|size| [size.quartile_low, size.median, size.quartile_high]);
        Amount { what, range, show: bytes }
    }
}

/// The best of some predicted rows, which have these names. Rows that no process could live with are left out.
pub fn of_predictions(rows: &[(String, &MemoryRow)]) -> Vec<String> {
    let survives = |row: &MemoryRow| row.prediction.memory_limit.as_ref().is_none_or(|limit| limit.survives());
    let names = distinct("row", rows.iter().map(|(name, _)| name.clone()));
    let contender = |(name, (_, row)): (&String, &(String, &MemoryRow))| {
        let price = row.system_time.as_ref().and_then(|time| time.price);
        let ns = |seconds: f64| (seconds * 1e9) as u64;
        let range = price.map(|price| [price.low_s, price.median_s, price.high_s].map(ns));
        let most = row.prediction.at_most();
        let traps = Amount { what: "fewest traps", range: Some([most.traps; 3]), show: count };
        let memory = [("least peak RSS", most.rss_bytes_peak), ("least RSS at the end", most.rss_bytes_end)];
        let memory = memory.map(|(what, size)| Amount::bytes(what, Some(size)));
        let time = Amount { what: "least system time", range, show: time };
        let amounts = [traps, time].into_iter().chain(memory).collect();
        Contender { name: name.clone(), ratio_to_first: None, amounts }
    };
    let is_whole = |row: &MemoryRow| row.prediction.hugetlb_maps_failed == 0 && survives(row);
    let whole = names.iter().zip(rows).filter(|(_, (_, row))| is_whole(row));
    lines(&whole.map(contender).collect::<Vec<_>>(), None)
}

/// The names of a table's rows or columns (`place`), in their order. Equal names get the numbers of their places, from 1.
pub(crate) fn distinct(place: &str, names: impl IntoIterator<Item = String>) -> Vec<String> {
    let names: Vec<String> = names.into_iter().collect();
    let is_repeated = |name: &String| names.iter().filter(|other| *other == name).count() > 1;
    let numbered = |(at, name): (usize, &String)| match is_repeated(name) {
        true => format!("{name} ({place} {})", at + 1),
        false => name.clone(),
    };
    names.iter().enumerate().map(numbered).collect()
}

/// The best in time and in each amount of memory. `same_again` is the ratio of the first one to itself. Without
/// intervals, nothing is said of times.
pub(crate) fn lines(contenders: &[Contender], same_again: Option<&Estimate>) -> Vec<String> {
    if contenders.len() < 2 {
        return Vec::new();
    }
    let amounts = (0..contenders[0].amounts.len()).filter_map(|at| least(contenders, at));
    let parts: Vec<String> = fastest(contenders, same_again).into_iter().chain(amounts).collect();
    if parts.is_empty() { Vec::new() } else { vec![format!("{}.", parts.join("; "))] }
}

fn fastest(contenders: &[Contender], same_again: Option<&Estimate>) -> Option<String> {
    let own_error = same_again?.half_width()?;
    let one = Estimate { median: 1.0, low: Some(1.0), high: Some(1.0) };
    let ratio = |at: usize| if at == 0 { Some(one) } else { contenders[at].ratio_to_first };
    let timed: Vec<(usize, Estimate)> = (0..contenders.len()).filter_map(|at| Some((at, ratio(at)?))).collect();
    let (best, best_ratio) = timed.iter().copied().min_by(|one, other| one.1.median.total_cmp(&other.1.median))?;
    let (_, best_high) = best_ratio.interval()?;
    let is_tied = |ratio: &Estimate| {
        let low = ratio.interval().map_or(f64::INFINITY, |(low, _)| low);
        low <= best_high || ratio.median / best_ratio.median - 1.0 < own_error
    };
    let tied = timed.iter().filter(|(at, ratio)| *at != best && is_tied(ratio)).map(|(at, _)| *at);
    Some(format!("fastest: {}{}", contenders[best].name, ties(contenders, tied)))
}

fn least(contenders: &[Contender], at: usize) -> Option<String> {
    let range = |contender: &Contender| contender.amounts.get(at)?.range;
    let ranges: Vec<(usize, [u64; 3])> =
        contenders.iter().enumerate().filter_map(|(row, contender)| Some((row, range(contender)?))).collect();
    let (best, [_, median, high]) = ranges.iter().copied().min_by_key(|&(_, [_, median, _])| median)?;
    let is_tied = |[low, ..]: [u64; 3]| low as f64 <= high as f64 * (1.0 + TIE);
    let tied = ranges.iter().filter(|&&(row, other)| row != best && is_tied(other)).map(|&(row, _)| row);
    let Amount { what, show, .. } = &contenders[best].amounts[at];
    Some(format!("{what}: {} ({}){}", contenders[best].name, show(median), ties(contenders, tied)))
}

fn ties(contenders: &[Contender], tied: impl Iterator<Item = usize>) -> String {
    let names: Vec<&str> = tied.map(|at| contenders[at].name.as_str()).collect();
    if names.is_empty() { String::new() } else { format!(", a tie with {}", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contender(name: &str, ratio: Option<(f64, f64, f64)>, peak: u64) -> Contender {
        let ratio_to_first = ratio.map(|(median, low, high)| Estimate { median, low: Some(low), high: Some(high) });
        Contender { name: name.into(), ratio_to_first, amounts: vec![Amount::bytes("least peak RSS", Some(peak))] }
    }

    #[test]
    fn amounts_with_common_ranges_are_a_tie() {
        let timed = |name: &str, range: [u64; 3]| {
            let amounts = vec![Amount { what: "least system time", range: Some(range), show: time }];
            Contender { name: name.into(), ratio_to_first: None, amounts }
        };
        let all =
            [timed("a", [900, 1_000, 1_200]), timed("b", [1_100, 1_500, 2_000]), timed("c", [1_300, 1_400, 1_500])];
        assert_eq!(lines(&all, None), ["least system time: a (1.0 us), a tie with b."]);
    }

    #[test]
    fn memory_that_varies_between_runs_by_as_much_as_it_differs_is_a_tie() {
        let measured = |name: &str, runs: [u64; 5]| {
            let runs = Spread::of(runs.map(|kib| Some(kib << 10)));
            let amounts = vec![Amount::measured("least peak RSS", runs)];
            Contender { name: name.into(), ratio_to_first: None, amounts }
        };
        let all = [
            measured("a", [1_500, 1_550, 1_600, 1_700, 1_800]),
            measured("b", [1_600, 1_650, 1_750, 1_800, 1_900]),
            measured("c", [1_700, 1_750, 1_800, 1_850, 1_900]),
        ];
        assert_eq!(lines(&all, None), ["least peak RSS: a (1.6 MiB), a tie with b."]);
    }

    #[test]
    fn rows_of_one_name_are_told_apart_by_their_numbers() {
        let names = ["glibc", "a", "glibc", "glibc thp=never"].map(str::to_string);
        assert_eq!(distinct("row", names), ["glibc (row 1)", "a", "glibc (row 3)", "glibc thp=never"]);
    }

    #[test]
    fn what_the_intervals_do_not_separate_is_a_tie() {
        let same_again = Estimate { median: 1.0, low: Some(0.98), high: Some(1.02) };
        let all = [
            contender("a", None, 1 << 20),
            contender("b", Some((0.80, 0.78, 0.82)), 2 << 20),
            contender("c", Some((0.83, 0.81, 0.85)), 3 << 20),
            contender("d", Some((0.95, 0.94, 0.96)), (1 << 20) + 1),
        ];
        assert_eq!(
            lines(&all, Some(&same_again)),
            ["fastest: b, a tie with c; least peak RSS: a (1.0 MiB), a tie with d."]
        );
        assert_eq!(lines(&all, None), ["least peak RSS: a (1.0 MiB), a tie with d."], "no intervals");
        assert!(lines(&all[..1], Some(&same_again)).is_empty(), "nothing to compare");
    }
}
