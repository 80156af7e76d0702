//! `hksim gen`: traces of synthetic workloads.

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

/// A generator with its parameters.
#[derive(Debug, clap::Subcommand)]
pub enum Generator {
    /// Random allocations and frees on a table of slots (xorshift32; writes the first byte of each block)
    RandomMixed(RandomMixedArgs),
    /// One block, allocated and freed over and over
    TinyHot(TinyHotArgs),
    /// A phased server load: ramp up, steady churn, burst, ramp down
    Server(ServerArgs),
}

/// Parameters of `random-mixed`.
#[derive(Debug, clap::Args)]
pub struct RandomMixedArgs {
    /// Cycles; each frees the slot it draws or fills it
    #[arg(long, value_name = "N", value_parser = parse_count, default_value_t = RandomMixed::default().cycles)]
    cycles: u64,
    /// Slots
    #[arg(long, value_name = "N", value_parser = parse_count_32, default_value_t = RandomMixed::default().ws)]
    ws: u32,
    /// Seed of the random numbers, above 0
    #[arg(long, value_name = "N", value_parser = parse_count_32, default_value_t = RandomMixed::default().seed)]
    seed: u32,
    /// Smallest request
    #[arg(long, value_name = "SIZE", value_parser = parse_block_size, default_value_t = RandomMixed::default().min)]
    min: u32,
    /// Largest request
    #[arg(long, value_name = "SIZE", value_parser = parse_block_size, default_value_t = RandomMixed::default().max)]
    max: u32,
    /// Cycles before the main part, on the same slots with the seed + 0xDEADBEEF; a mark ends them
    #[arg(long, value_name = "N", value_parser = parse_count, default_value_t = RandomMixed::default().warmup)]
    warmup: u64,
    #[command(flatten)]
    out: TraceOut,
}

/// Parameters of `tiny-hot`.
#[derive(Debug, clap::Args)]
pub struct TinyHotArgs {
    /// Pairs of an allocation and its free
    #[arg(long, value_name = "N", value_parser = parse_count, default_value_t = TinyHot::default().cycles)]
    cycles: u64,
    /// Size of the block
    #[arg(long, value_name = "SIZE", value_parser = parse_block_size, default_value_t = TinyHot::default().size)]
    size: u32,
    #[command(flatten)]
    out: TraceOut,
}

/// Parameters of `server`.
#[derive(Debug, clap::Args)]
pub struct ServerArgs {
    /// Requested bytes live at once, at the most
    #[arg(long, value_name = "SIZE", value_parser = parse_size, default_value_t = Server::default().live)]
    live: u64,
    /// Threads
    #[arg(long, value_name = "N", value_parser = parse_count_32, default_value_t = Server::default().threads)]
    threads: u32,
    /// Length in events
    #[arg(long, value_name = "N", value_parser = parse_count, default_value_t = Server::default().events)]
    events: u64,
    /// Seed of the random numbers
    #[arg(long, value_name = "N", value_parser = parse_count, default_value_t = Server::default().seed)]
    seed: u64,
    #[command(flatten)]
    out: TraceOut,
}

/// What was written.
#[derive(Debug, Serialize)]
struct Written {
    schema: u32,
    file: String,
    workload: Workload,
    #[serde(flatten)]
    summary: Summary,
}

/// Bytes of a block: generated ones are below 4 GiB.
fn parse_block_size(word: &str) -> Result<u32, String> {
    let bytes = parse_size(word).map_err(|why| why.to_string())?;
    u32::try_from(bytes).map_err(|_| "is too large; generated blocks are smaller than 4G".to_string())
}

/// Writes the trace.
///
/// # Errors
/// Parameters that cannot be; a file that cannot be written.
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
    let written = Written { schema: hksim_sim::report::SCHEMA, file, workload, summary };
    out.tell(&written, || out.line(&summary))
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
