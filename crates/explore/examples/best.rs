//! Ranks allocator designs over two generated workloads by page-table installs.

use std::error::Error;

use hksim_explore::figures::{Figure, Figures};
use hksim_explore::rank::{Case, all_designs, rank};
use hksim_policy::Policy;
use hksim_policy::flags::Flag;
use hksim_sim::{Input, SimConfig, sweep};
use hksim_trace::generate::{RandomMixed, Server, Workload};

/// The designs, as flags.
const DESIGNS: [&[(&str, &str)]; 3] = [&[], &[("huge", "never")], &[("superslab", "256K"), ("huge", "never")]];

fn policy(words: &[(&str, &str)]) -> Result<Policy, Box<dyn Error>> {
    let mut policy = Policy::DEFAULT;
    for (name, word) in words {
        Flag::find(name).ok_or("no such flag")?.set(&mut policy, word)?;
    }
    Ok(policy)
}

fn main() -> Result<(), Box<dyn Error>> {
    let policies = DESIGNS.iter().map(|words| policy(words)).collect::<Result<Vec<_>, _>>()?;
    let designs: Vec<SimConfig> =
        policies.into_iter().map(|policy| SimConfig { policy, ..SimConfig::default() }).collect();
    let workloads = [
        ("server", Workload::Server(Server { events: 50_000, ..Server::default() })),
        ("random-mixed", Workload::RandomMixed(RandomMixed { cycles: 50_000, ..RandomMixed::default() })),
    ];
    let mut cases = Vec::new();
    for (trace, (name, workload)) in workloads.into_iter().enumerate() {
        let input = Input { file: None, open: Box::new(move || workload.source()) };
        let reports = sweep(&input, &designs, &())?;
        let designs = reports.iter().map(|report| Figures::of(report)).collect();
        cases.push(Case { name: name.into(), trace, assumption: None, weight: 1.0, designs });
    }
    let ranking = rank(&cases, &all_designs(&cases), Figure::Installs)?;
    for standing in &ranking.standings {
        println!("{:.3} times the best: {:?}", standing.ratio, DESIGNS[standing.design]);
    }
    Ok(())
}
