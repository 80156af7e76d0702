//! Compares SuperSlab sizes on a trace: `designs TRACE.hkt`, or without a trace on a generated workload.

use std::error::Error;
use std::path::PathBuf;

use hksim_engine::TouchRule;
use hksim_policy::Policy;
use hksim_sim::{Input, SimConfig, sweep};
use hksim_trace::generate::{Server, Workload};
use hksim_trace::header::TouchSource;
use hksim_trace::hkt::TraceReader;
use hksim_trace::source::EventSource;

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args_os().nth(1).map(PathBuf::from);
    let input = match file.clone() {
        Some(path) => Input {
            file: Some(path.display().to_string()),
            open: Box::new(move || Ok(Box::new(TraceReader::open(&path)?) as Box<dyn EventSource + Send>)),
        },
        None => {
            let workload = Workload::Server(Server { events: 100_000, ..Server::default() });
            Input { file: None, open: Box::new(move || workload.source()) }
        }
    };
    let is_recorded = (input.open)()?.header().touch != TouchSource::Assumed;
    let touch = if is_recorded { TouchRule::Recorded } else { TouchRule::All };
    let design = |superslab_bytes| SimConfig {
        policy: Policy { superslab_bytes, ..Policy::DEFAULT },
        touch,
        ..SimConfig::default()
    };
    let designs = [256 << 10, 1 << 20, 2 << 20].map(design);
    println!("SuperSlab  installs  peak RSS");
    for report in sweep(&input, &designs, &())? {
        let (superslab, rss) = (report.policy.superslab_bytes >> 10, report.rss_bytes_peak >> 10);
        println!("{superslab:>5} KiB {:>9} {rss:>6} KiB", report.installs.total);
    }
    Ok(())
}
