//! Which of several measured allocators is best, in a sentence.

use hksim_text::units::bytes;
use hksim_timing::Estimate;

/// The share by which amounts of memory may differ and still count as equal.
const TIE: f64 = 0.01;

/// A measured allocator.
pub(crate) struct Contender {
    pub(crate) name: String,
    /// Its processor time relative to the first one; `None` for the first.
    pub(crate) ratio_to_first: Option<Estimate>,
    /// Amounts of memory, by name. All contenders have the same names.
    pub(crate) bytes: Vec<(&'static str, Option<u64>)>,
}

/// The best in time and in each amount of memory. `same_again` is the ratio of the first one to itself. Without
/// intervals, nothing is said of times.
pub(crate) fn lines(contenders: &[Contender], same_again: Option<&Estimate>) -> Vec<String> {
    if contenders.len() < 2 {
        return Vec::new();
    }
    let memory = contenders[0].bytes.iter().enumerate().filter_map(|(at, (what, _))| least(contenders, at, what));
    let parts: Vec<String> = fastest(contenders, same_again).into_iter().chain(memory).collect();
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

fn least(contenders: &[Contender], at: usize, what: &str) -> Option<String> {
    let amounts: Vec<(usize, u64)> =
        contenders.iter().enumerate().filter_map(|(row, contender)| Some((row, contender.bytes[at].1?))).collect();
    let (best, amount) = amounts.iter().copied().min_by_key(|&(_, amount)| amount)?;
    let is_tied = |other: u64| other as f64 <= amount.max(1) as f64 * (1.0 + TIE);
    let tied = amounts.iter().filter(|&&(row, other)| row != best && is_tied(other)).map(|&(row, _)| row);
    Some(format!("least {what}: {} ({}){}", contenders[best].name, bytes(amount), ties(contenders, tied)))
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
        Contender { name: name.into(), ratio_to_first, bytes: vec![("peak RSS", Some(peak))] }
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
