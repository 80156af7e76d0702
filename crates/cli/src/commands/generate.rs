//! `hksim gen`: generates traces of synthetic workloads.

use std::path::Path;

use anyhow::Result;
use hksim_policy::units::{parse_count, parse_count_32, parse_size};
use hksim_trace::error::TraceError;
use hksim_trace::generate::{RandomMixed, Server, TinyHot, Workload};
use hksim_trace::header::Summary;
use hksim_trace::hkt::TraceWriter;
use hksim_trace::source::EventSource;
use serde::Serialize;

use crate::output::progress::Progress;
use crate::output::trace::TraceOut;
use hksim_results::Stamp;

/// A generator with its parameters.
#[derive(Debug, clap::Subcommand)]
pub enum Generator {
    /// Generate random allocations and frees on a table of slots, and write the first byte of each block (xorshift32)
    RandomMixed(RandomMixedArgs),
    /// Allocate and free one block repeatedly
    TinyHot(TinyHotArgs),
    /// Generate a phased server load: ramp up, steady churn, burst, ramp down
    Server(ServerArgs),
}

/// Parameters of `random-mixed`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:\n  hksim gen random-mixed --cycles 100k --ws 4k -o rm.hkt")]
pub struct RandomMixedArgs {
    /// Run this many cycles; each picks a random slot and frees its block, or allocates one if the slot is empty
    #[arg(long, value_name = "N", value_parser = parse_count, default_value_t = RandomMixed::default().cycles)]
    cycles: u64,
    /// Use this many slots
    #[arg(long, value_name = "N", value_parser = parse_count_32, default_value_t = RandomMixed::default().ws)]
    ws: u32,
    /// Seed the random numbers; must be above 0
    #[arg(long, value_name = "N", value_parser = parse_count_32, default_value_t = RandomMixed::default().seed)]
    seed: u32,
    /// Request at least this size
    #[arg(long, value_name = "SIZE", value_parser = parse_block_size, default_value_t = RandomMixed::default().min)]
    min: u32,
    /// Request at most this size
    #[arg(long, value_name = "SIZE", value_parser = parse_block_size, default_value_t = RandomMixed::default().max)]
    max: u32,
    /// Run this many cycles before the main part, on the same slots with seed + 0xDEADBEEF, followed by a mark
    #[arg(long, value_name = "N", value_parser = parse_count, default_value_t = RandomMixed::default().warmup)]
    warmup: u64,
    #[command(flatten)]
    out: TraceOut,
}

/// Parameters of `tiny-hot`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:\n  hksim gen tiny-hot --size 128 -o hot.hkt")]
pub struct TinyHotArgs {
    /// Run this many pairs of an allocation and its free
    #[arg(long, value_name = "N", value_parser = parse_count, default_value_t = TinyHot::default().cycles)]
    cycles: u64,
    /// Set the size of the block
    #[arg(long, value_name = "SIZE", value_parser = parse_block_size, default_value_t = TinyHot::default().size)]
    size: u32,
    #[command(flatten)]
    out: TraceOut,
}

/// Parameters of `server`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:\n  hksim gen server --live 64M --threads 8 -o server.hkt")]
pub struct ServerArgs {
    /// Limit the requested bytes that are live at the same time
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value_t = Server::default().live)]
    live: u64,
    /// Run this many threads
    #[arg(long, value_name = "N", value_parser = parse_count_32, default_value_t = Server::default().threads)]
    threads: u32,
    /// Generate this many events
    #[arg(long, value_name = "N", value_parser = parse_count, default_value_t = Server::default().events)]
    events: u64,
    /// Seed the random numbers
    #[arg(long, value_name = "N", value_parser = parse_count, default_value_t = Server::default().seed)]
    seed: u64,
    #[command(flatten)]
    out: TraceOut,
}

/// What was written.
#[derive(Debug, Serialize)]
struct Written {
    #[serde(flatten)]
    stamp: Stamp,
    file: String,
    workload: Workload,
    #[serde(flatten)]
    summary: Summary,
}

/// Parses the size of a generated block, which is below 4 GiB.
fn parse_block_size(word: &str) -> Result<u32, String> {
    let bytes = parse_size(word).map_err(|why| why.to_string())?;
    u32::try_from(bytes).map_err(|_| "expected a size below 4G".to_string())
}

/// Writes the trace.
///
/// # Errors
/// The parameters are invalid, or the file cannot be written.
pub fn run(generator: &Generator) -> Result<()> {
    let (workload, out) = match generator {
        Generator::RandomMixed(args) => {
            let RandomMixedArgs { cycles, ws, seed, min, max, warmup, .. } = *args;
            (Workload::RandomMixed(RandomMixed { cycles, ws, seed, min, max, warmup }), &args.out)
        }
        Generator::TinyHot(args) => (Workload::TinyHot(TinyHot { cycles: args.cycles, size: args.size }), &args.out),
        Generator::Server(args) => {
            let ServerArgs { live, threads, events, seed, .. } = *args;
            (Workload::Server(Server { live, threads, events, seed }), &args.out)
        }
    };
    let mut source = workload.source()?;
    let summary = out.write(&[], |path| write(source.as_mut(), path))?;
    let file = out.output.display().to_string();
    let written = Written { stamp: Stamp::here(), file, workload, summary };
    out.print_report(&written, || out.line(&summary))
}

fn write(source: &mut dyn EventSource, path: &Path) -> Result<Summary, TraceError> {
    let progress = Progress::events(source.summary().events);
    let mut writer = TraceWriter::create(path, source.header())?;
    while let Some(batch) = source.next_batch()? {
        batch.iter().try_for_each(|event| writer.push(event))?;
        progress.advance(batch.len() as u64);
    }
    writer.finish(source.footer())
}
