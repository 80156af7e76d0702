//! Draws A/A pairs of real work: how often the interval contains 1 if both variants are the same.
//!
//!     cargo run --release -p hksim-timing --example same_work [DRAWS]

use std::convert::Infallible;
use std::time::{Duration, Instant};

use hksim_timing::clock::thread_cpu_ns;
use hksim_timing::{Arrangement, Effort, Ended, Plan, Sample, Subject, Verdict, time};

/// Work of a fraction of a millisecond.
struct Work(fn());

impl Subject for Work {
    type Error = Infallible;

    fn run(&self, _cpu: Option<usize>) -> Result<Sample, Infallible> {
        let (start, cpu_before_ns) = (Instant::now(), thread_cpu_ns());
        (self.0)();
        let cpu_ns = thread_cpu_ns() - cpu_before_ns;
        Ok(Sample { cpu_ns, wall_ns: start.elapsed().as_nanos() as u64, calls: 1000, start_end_ns: None })
    }
}

/// Instructions only.
fn arithmetic() {
    std::hint::black_box((0..300_000u64).fold(1u64, |sum, n| sum.wrapping_mul(31) ^ std::hint::black_box(n)));
}

/// 256 page faults.
fn page_faults() {
    let mut block = vec![0u8; 1 << 20];
    block.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    std::hint::black_box(&block);
}

/// Blocks of many sizes.
fn blocks() {
    let blocks: Vec<Vec<u8>> = (0..4000).map(|n| vec![1; 16 + n % 700]).collect();
    std::hint::black_box(&blocks);
}

fn main() {
    let draws = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(100u64);
    println!("| Work | Draws | A/A interval contains 1 | Second variant contains 1 | Tie | Rounds, mean | Precise |");
    println!("|---|--:|--:|--:|--:|--:|--:|");
    let works: [(&str, fn()); 3] = [("arithmetic", arithmetic), ("page faults", page_faults), ("blocks", blocks)];
    for (name, work) in works {
        let (mut own, mut second, mut ties, mut rounds, mut precise) = (0, 0, 0, 0, 0);
        for seed in 0..draws {
            let effort = Effort { time_max: Duration::from_secs(5), ..Effort::default() };
            let plan = Plan { effort, warm_up_rounds: 1, arrangement: Arrangement::InTurn, seed };
            let timings = time(&[&Work(work), &Work(work)], &plan, &mut |_| {});
            let contains = |ratio: Option<hksim_timing::Estimate>| ratio.and_then(|ratio| ratio.contains(1.0));
            own += u32::from(contains(timings.same_again()) == Some(true));
            second += u32::from(contains(timings.subjects[1].ratio_to_first()) == Some(true));
            ties += u32::from(timings.verdict(1) == Some(Verdict::Tie));
            rounds += u64::from(timings.rounds);
            precise += u32::from(timings.ended == Ended::Precise);
        }
        println!("| {name} | {draws} | {own} | {second} | {ties} | {} | {precise} |", rounds / draws);
    }
}
