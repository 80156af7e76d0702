//! An allocator of one's own, simulated, replayed on real memory, and compared: the whole way from a design to a checked
//! prediction. Run it with `cargo run -p hksim-designs --example bump`.
//!
//! A crate outside hksim has its design in a file of its own, and needs `hksim-engine`, `hksim-sim`, `hksim-replay`,
//! `hksim-trace`, `hksim-conformance` and `serde`.

use std::error::Error;
use std::path::Path;
use std::process::ExitCode;

use hksim_designs::bump::{Bump, BumpSettings};
use hksim_engine::{Comparison, DesignLabel, TouchRule};
use hksim_replay::{CHILD_ARGUMENT, KnownDesign, Measure, ReplaySpec, Target, child_main_with, replay};
use hksim_sim::{Addresses, DesignConfig, Marks, simulate_design};
use hksim_trace::event::{AllocCall, Event, InitialTouch, ObjectId, Op, ThreadId};
use hksim_trace::header::{Clock, Footer, Header, Origin, TouchSource};
use hksim_trace::hkt::{TraceReader, TraceWriter};

fn main() -> ExitCode {
    // A replay runs this program again, in a fresh child.
    if std::env::args().nth(1).is_some_and(|argument| argument == CHILD_ARGUMENT) {
        return child_main_with(&[KnownDesign::of::<Bump>()]);
    }
    match predict_and_check() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::from(2)
        }
    }
}

fn predict_and_check() -> Result<bool, Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let trace = folder.path().join("blocks.hkt");
    write_trace(&trace)?;
    let settings = BumpSettings { chunk_bytes: 256 << 10 };

    let config = DesignConfig::<Bump> {
        policy: DesignLabel::of::<Bump>(&settings),
        touch: TouchRule::All,
        kernel: hksim_conformance::kernel_config()?,
        tlb: None,
        memory_policy: Default::default(),
        addresses: Addresses::default(),
        forks: Vec::new(),
        counted: Default::default(),
        file: None,
    };
    let predicted = simulate_design::<Bump>(&mut TraceReader::open(&trace)?, &config, Marks::Collect, &|_| {})?;
    println!(
        "predicted: {} installs, peak RSS {} bytes",
        predicted.report.installs.total, predicted.report.rss_bytes_peak
    );

    let spec = ReplaySpec::ordered(trace, Target::design::<Bump>(&settings)?, TouchRule::All);
    let measured = replay(&ReplaySpec { measure: Measure::PAGES, ..spec })?;
    let comparison = Comparison::of(&predicted.figures(), &measured.figures());
    comparison.differences.iter().for_each(|difference| println!("differs: {difference}"));
    println!("not measured: {:?}", comparison.not_measured);
    if comparison.differences.is_empty() {
        println!("every measured figure equals its prediction");
    }
    Ok(comparison.differences.is_empty())
}

/// A program that allocates blocks of 16 B to 16 KiB. A recording is made by `hksim record`.
fn write_trace(path: &Path) -> Result<(), Box<dyn Error>> {
    let origin = Origin::Imported { format: "example".into(), file: "none".into() };
    let mut writer = TraceWriter::create(path, &Header::new(origin, TouchSource::Assumed, Clock::PerEvent))?;
    for number in 0..2000u32 {
        let (size, call) = (16 << (number % 11), AllocCall::Malloc);
        let object = ObjectId(number);
        let op = Op::Alloc { object, size, align_log2: 0, call, initial_touch: InitialTouch::All };
        writer.push(&Event::new(u64::from(number) * Clock::EVENT_NS, ThreadId(0), op))?;
    }
    writer.finish(&Footer::default())?;
    Ok(())
}
