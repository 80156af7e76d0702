//! The ranking against a second, naive implementation: products of powers instead of sums of logarithms, every pair of
//! designs compared, on random tables. The seed is printed; HKSIM_SEED repeats a run.

use hksim_explore::figures::{Figure, Figures};
use hksim_explore::rank::{Case, RankError, all_designs, rank};
use hksim_testkit::Random;

fn seed() -> u64 {
    let given = std::env::var("HKSIM_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| u64::from(std::process::id()));
    println!("HKSIM_SEED={seed}");
    seed
}

fn random_cases(random: &mut Random) -> Vec<Case> {
    let designs = 1 + random.below(7);
    let cases = 1 + random.below(5);
    let figures = |random: &mut Random| Figures {
        // Few values, so that ties and zeros are frequent.
        installs: random.pick(&[0, 0, 1, 2, 3, 100, 101, 1_000_000]),
        rss_bytes_peak: random.pick(&[4096, 8192, 1 << 20, 1 << 30]),
        vmas_peak: 1 + random.below(3),
        requests_failed: u64::from(random.per_mille(100)),
        ..Figures::default()
    };
    let case = |number: u64, random: &mut Random| Case {
        name: number.to_string(),
        trace: number as usize,
        assumption: None,
        weight: (1 + random.below(4)) as f64 / 2.0,
        designs: (0..designs).map(|_| figures(random)).collect(),
    };
    (0..cases).map(|number| case(number, random)).collect()
}

fn amount(figures: &Figures, figure: Figure) -> f64 {
    let amount = match figure {
        Figure::Installs => figures.installs,
        Figure::Rss => figures.rss_bytes_peak,
        Figure::RssEnd => figures.rss_bytes_end,
        Figure::Vmas => figures.vmas_peak,
        Figure::Time | Figure::SysTime | Figure::TlbMisses => panic!("not in these tables"),
    };
    if amount == 0 { 1.0 } else { amount as f64 }
}

/// Mean ratio of a design, by powers.
fn mean_ratio(cases: &[Case], among: &[usize], design: usize, figure: Figure) -> f64 {
    let mut product = 1.0;
    let weights: f64 = cases.iter().map(|case| case.weight).sum();
    for case in cases {
        let mut least = f64::MAX;
        for &other in among {
            least = least.min(amount(&case.designs[other], figure));
        }
        product *= (amount(&case.designs[design], figure) / least).powf(case.weight / weights);
    }
    product
}

#[test]
fn rankings_equal_those_of_a_naive_implementation() {
    let seed = seed();
    let mut random = Random::new(seed);
    let mut ranked = 0;
    for number in 0..3000 {
        let cases = random_cases(&mut random);
        let figure = random.pick(&[Figure::Installs, Figure::Rss, Figure::Vmas]);
        let place = format!("seed {seed}, table {number}: {figure} of {cases:#?}");
        let designs = cases[0].designs.len();
        let among: Vec<usize> =
            (0..designs).filter(|&design| cases.iter().all(|case| case.designs[design].requests_failed == 0)).collect();
        let ranking = match rank(&cases, &all_designs(&cases), figure) {
            Ok(ranking) => ranking,
            Err(why) => {
                assert!(why == RankError::NoDesign && among.is_empty(), "{place}");
                continue;
            }
        };
        ranked += 1;
        assert_eq!(ranking.standings.len() + ranking.failed.len(), designs, "{place}");
        for standing in &ranking.standings {
            let expected = mean_ratio(&cases, &among, standing.design, figure);
            assert!((standing.ratio / expected - 1.0).abs() < 1e-6, "{place}: {standing:?}, expected {expected}");
            let regrets = cases.iter().map(|case| {
                let least = among.iter().map(|&other| amount(&case.designs[other], figure)).fold(f64::MAX, f64::min);
                amount(&case.designs[standing.design], figure) / least - 1.0
            });
            let worst = regrets.clone().fold(0.0, f64::max);
            assert!((standing.regret_worst - worst).abs() <= 1e-6 * worst.max(1.0), "{place}: {standing:?}");
            let at_worst = regrets.clone().nth(standing.regret_worst_case).expect("a case");
            assert!((at_worst - worst).abs() <= 1e-6 * worst.max(1.0), "{place}: {standing:?}");
        }
        // No design stands before one that is better in the goal, or equal and better in peak RSS.
        for (place_before, before) in ranking.standings.iter().enumerate() {
            for after in &ranking.standings[place_before + 1..] {
                let ratio = |design| mean_ratio(&cases, &among, design, figure);
                let rss = |design| mean_ratio(&cases, &among, design, Figure::Rss);
                let (one, other) = (ratio(before.design), ratio(after.design));
                assert!(one <= other * (1.0 + 1e-6), "{place}: {before:?} before {after:?}");
                if (one / other - 1.0).abs() < 1e-12 {
                    assert!(rss(before.design) <= rss(after.design) * (1.0 + 1e-6), "{place}: {before:?}, {after:?}");
                }
            }
        }
    }
    assert!(ranked > 1000, "{ranked} tables were ranked");
}

#[test]
fn a_figure_that_is_not_known_is_an_error() {
    let case =
        Case { name: "app.hkt".into(), trace: 0, assumption: None, weight: 1.0, designs: vec![Figures::default()] };
    let why = |figure| rank(std::slice::from_ref(&case), &[0], figure).expect_err("not known").to_string();
    assert!(
        why(Figure::TlbMisses).starts_with("tlb-misses: app.hkt: misses are known only if the trace has every access")
    );
    assert!(why(Figure::SysTime).starts_with("sys-time: app.hkt: no times: run `hksim calibrate`"));
}
