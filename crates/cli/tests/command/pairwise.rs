//! Pairwise coverage: each pair of flag values occurs in at least one validated design. The full grid is
//! benches/validate-grid.sh.

use crate::support::Bench;

/// The factors and their values.
const FACTORS: [(&str, &[&str]); 9] = [
    ("--prefault", &["off", "populate", "populate-write", "populate-read", "touch", "memset"]),
    ("--superslab", &["256K", "1M", "2M", "4M", "32M"]),
    ("--huge", &["never", "thp", "hugetlb", "mthp-64K", "collapse"]),
    ("--purge", &["none", "dontneed", "free", "unmap"]),
    ("--prefault-scope", &["superslab", "slab", "init"]),
    ("--header", &["none", "full", "light", "off"]),
    ("--meta", &["inband", "sidecar"]),
    ("--purge-delay", &["0", "300us"]),
    ("trace", &["mixed.hkt", "server.hkt"]),
];

/// A value of each factor.
type Case = [usize; FACTORS.len()];

/// Pairs of values of two factors: (factor, value, factor, value), the lower factor first.
fn pairs(case: &Case) -> impl Iterator<Item = (usize, usize, usize, usize)> + '_ {
    (0..case.len()).flat_map(move |one| (one + 1..case.len()).map(move |two| (one, case[one], two, case[two])))
}

/// Cases that cover all pairs. Each starts with an uncovered pair and takes for every other factor the value that
/// covers most new pairs.
fn cover() -> Vec<Case> {
    let values = |factor: usize| FACTORS[factor].1.len();
    let factors = || (0..FACTORS.len()).flat_map(|one| (one + 1..FACTORS.len()).map(move |two| (one, two)));
    let mut missing: Vec<_> = factors()
        .flat_map(|(one, two)| (0..values(one)).flat_map(move |a| (0..values(two)).map(move |b| (one, a, two, b))))
        .collect();
    let mut cases = Vec::new();
    while let Some(&(one, a, two, b)) = missing.first() {
        let mut case: [Option<usize>; FACTORS.len()] = [None; FACTORS.len()];
        (case[one], case[two]) = (Some(a), Some(b));
        for factor in 0..FACTORS.len() {
            if case[factor].is_some() {
                continue;
            }
            let new = |value: usize| {
                let with = |other: usize| case[other].map(|chosen| (other, chosen));
                let met = (0..FACTORS.len()).filter_map(with).filter(|&(other, chosen)| {
                    let pair =
                        if other < factor { (other, chosen, factor, value) } else { (factor, value, other, chosen) };
                    missing.contains(&pair)
                });
                met.count()
            };
            case[factor] = (0..values(factor)).rev().max_by_key(|&value| new(value));
        }
        let case: Case = case.map(Option::unwrap_or_default);
        missing.retain(|pair| !pairs(&case).any(|met| met == *pair));
        cases.push(case);
    }
    cases
}

/// The flags of every case, without its trace.
pub fn policies() -> Vec<String> {
    let words = |case: &Case| {
        let words = case.iter().zip(FACTORS).filter(|(_, (name, _))| name.starts_with("--"));
        words.map(|(&value, (name, values))| format!("{name} {}", values[value])).collect::<Vec<String>>().join(" ")
    };
    cover().iter().map(words).collect()
}

#[test]
fn every_pair_of_values_is_predicted_exactly() {
    let bench = Bench::new();
    bench.ok("gen random-mixed --cycles 6k --ws 900 --min 100 --max 6k -o mixed.hkt");
    bench.ok("gen server --live 4M --events 17k --threads 3 -o server.hkt");
    let (mut equal, mut skipped) = (0, 0);
    for case in cover() {
        let words = case.iter().zip(FACTORS).map(|(&value, (name, values))| (name, values[value]));
        let trace = words.clone().find(|(name, _)| *name == "trace").map_or("", |(_, value)| value);
        let flags: Vec<String> =
            words.filter(|(name, _)| *name != "trace").map(|(name, value)| format!("{name} {value}")).collect();
        let line = format!("validate {trace} --prewarm 1 --arena 1G {}", flags.join(" "));
        let held = hksim_testkit::modes::hold();
        let ran = bench.run(&line);
        drop(held);
        assert_eq!(ran.code, Some(0), "{line}: {}{}", ran.stdout, ran.stderr);
        match ran.stdout.lines().find(|line| line.starts_with("row 0: skipped")) {
            Some(reason) => {
                skipped += 1;
                eprintln!("skipped: {}: {reason}", flags.join(" "));
            }
            None => equal += 1,
        }
    }
    eprintln!("{equal} designs equal page by page, {skipped} skipped");
    assert!(equal + skipped >= 30, "too few cases to cover all pairs");
}
