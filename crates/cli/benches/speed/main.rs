//! Speed of the simulator and of real allocators on random_mixed, in events per second.
//!
//! | Row | What runs |
//! |---|---|
//! | `sim` | from the trace file to the report, on all cores: one decodes while another simulates |
//! | `sim, one core` | the same on one core |
//! | `placements` | the same for four designs, each with a placement of its own, on one core |
//! | `native` | from the trace file: the same allocator on memory from mmap |
//! | `read` | from the trace file: the reader alone |
//! | `minimal, file` | from the trace file, on all cores: the least work of any simulator ([`minimal`]) |
//! | `minimal` | decoded calls: the same |
//! | `mimalloc`, `glibc` | decoded calls: the real allocators, with a write of the first byte of each block |
//!
//! The last lines give the ratios of the medians, and the time that each further placement adds to an event.
//! `cargo bench -p hksim --bench speed`

mod calls;
mod file;
mod minimal;

use std::path::{Path, PathBuf};
use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, Throughput};
use hksim_trace::generate::{RandomMixed, Workload};
use hksim_trace::hkt::{TraceReader, TraceWriter};

/// A random_mixed trace: its name, cycles and slots.
struct Load {
    name: &'static str,
    cycles: u64,
    slots: u32,
}

const LOADS: [Load; 2] = [
    Load { name: "random_mixed ws=400", cycles: 20_000_000, slots: 400 },
    Load { name: "random_mixed ws=1M", cycles: 10_000_000, slots: 1_000_000 },
];

/// The rows of a load, in their order.
const ROWS: [&str; 9] =
    ["sim", "sim, one core", "placements", "native", "read", "minimal, file", "minimal", "mimalloc", "glibc"];

fn generate(path: &Path, load: &Load) {
    let parameters = RandomMixed { cycles: load.cycles, ws: load.slots, ..RandomMixed::default() };
    let mut source = Workload::RandomMixed(parameters).source().expect("the parameters are in range");
    let mut writer = TraceWriter::create(path, source.header()).expect("a temporary file");
    while let Some(batch) = source.next_batch().expect("a generator") {
        batch.iter().for_each(|event| writer.push(event).expect("free disk space"));
    }
    writer.finish(source.footer()).expect("free disk space");
}

fn bench_load(group: &mut BenchmarkGroup<'_, WallTime>, path: &Path) {
    let mut reader = TraceReader::open(path).expect("a trace");
    let calls = calls::decode(&mut reader);
    group.sampling_mode(SamplingMode::Flat).sample_size(15).measurement_time(Duration::from_secs(8));
    group.throughput(Throughput::Elements(calls.calls.len() as u64));
    let one_core = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a thread");
    for row in ROWS {
        group.bench_function(row, |bencher| match row {
            "sim" => bencher.iter(|| file::sim(path, 1)),
            "sim, one core" => bencher.iter(|| one_core.install(|| file::sim(path, 1))),
            "placements" => bencher.iter(|| one_core.install(|| file::sim(path, file::SUPERSLABS_BYTES.len()))),
            "native" => bencher.iter(|| file::native(path)),
            "read" => bencher.iter(|| file::read(path)),
            "minimal, file" => bencher.iter(|| file::minimal(path)),
            "minimal" => bencher.iter(|| minimal::simulate(&calls)),
            malloc => {
                let malloc = calls::MALLOCS.iter().find(|known| known.name == malloc).expect("a row");
                let mut live = calls.empty_table();
                bencher.iter(|| calls::replay(&calls, &mut live, *malloc));
            }
        });
    }
}

/// The median seconds of a row, from criterion's files.
fn median_s(folder: &Path, load: &Load, row: &str) -> Option<f64> {
    let file = folder.join(load.name).join(row).join("new/estimates.json");
    let estimates: serde_json::Value = serde_json::from_slice(&std::fs::read(file).ok()?).ok()?;
    Some(estimates["median"]["point_estimate"].as_f64()? / 1e9)
}

/// Prints events per second, and the ratios of speed to mimalloc and to the minimal simulator. Rows that a filter left
/// out are missing.
fn print_ratios(folder: &Path) {
    println!("\n{:<20} {:<14} {:>11} {:>11} {:>10}", "load", "row", "M events/s", "/ mimalloc", "/ minimal");
    for load in &LOADS {
        let [mimalloc, minimal] = ["mimalloc", "minimal"].map(|row| median_s(folder, load, row));
        for row in ROWS {
            let Some(own) = median_s(folder, load, row) else { continue };
            let speed = load.cycles as f64 / own / 1e6;
            let ratio = |other: Option<f64>| other.map_or(String::new(), |other| format!("{:.2}", other / own));
            println!("{:<20} {row:<14} {speed:>11.1} {:>11} {:>10}", load.name, ratio(mimalloc), ratio(minimal));
        }
    }
}

/// Prints what a further placement costs an event, beside the whole work of the minimal simulator and of mimalloc.
fn print_further_placements(folder: &Path) {
    let further = (file::SUPERSLABS_BYTES.len() - 1) as f64;
    for load in &LOADS {
        let row_ns = |row| Some(median_s(folder, load, row)? * 1e9 / load.cycles as f64);
        let (Some(one), Some(all)) = (row_ns("sim, one core"), row_ns("placements")) else { continue };
        print!("{}, ns per event: further placement {:.1}", load.name, (all - one) / further);
        for row in ["minimal", "mimalloc"] {
            if let Some(own) = row_ns(row) {
                print!(", {row} {own:.1}");
            }
        }
        println!();
    }
}

fn main() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    // SAFETY: returns a number.
    println!("mimalloc version {}", unsafe { libmimalloc_sys::mi_version() });
    let results = tempfile::tempdir().expect("a temporary folder");
    let mut criterion = Criterion::default().output_directory(results.path()).configure_from_args();
    for load in &LOADS {
        let path: PathBuf = folder.path().join("random_mixed.hkt");
        generate(&path, load);
        let mut group = criterion.benchmark_group(load.name);
        bench_load(&mut group, &path);
        group.finish();
    }
    criterion.final_summary();
    print_ratios(results.path());
    print_further_placements(results.path());
}
