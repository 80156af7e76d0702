//! Runs every fuzz target for traces on its seeds and on mutations of them, without a nightly toolchain.
//!
//! `HKSIM_FUZZ_INPUTS` is the number of mutations per target, and `HKSIM_FUZZ_SEED` their random seed. A failing input
//! is kept.

#[path = "../../../../fuzz/src/lib.rs"]
mod bodies;
#[path = "../../../../fuzz/src/mutate.rs"]
mod mutate;
use crate::support::Random;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, thread};

const INPUTS_DEFAULT: u64 = 500;
const SEED_DEFAULT: u64 = 0xF022;
/// Twice `-timeout` in fuzz/run.sh, for builds without optimisation.
const INPUT_TIME_MAX: Duration = Duration::from_secs(40);

/// The function that a target calls.
#[derive(Clone, Debug)]
enum Body {
    ImportAs(String),
    ImportAny,
    ReadTrace,
    ReadPayloads,
}

impl Body {
    fn run(&self, input: &[u8]) {
        match self {
            Body::ImportAs(format) => bodies::import_as(format, input),
            Body::ImportAny => bodies::import_any(input),
            Body::ReadTrace => bodies::read_trace(input),
            Body::ReadPayloads => bodies::read_payloads(input),
        }
    }
}

struct Target {
    name: String,
    body: Body,
    seeds: Vec<Vec<u8>>,
}

fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn number_from(variable: &str, default: u64) -> u64 {
    let Ok(value) = std::env::var(variable) else { return default };
    value.parse().unwrap_or_else(|_| panic!("{variable} is {value:?}; it must be a whole number"))
}

/// The body that a target's source calls.
fn body_of(source: &str) -> Body {
    let call = source.split("hksim_fuzz::").nth(1).expect("the target calls no body");
    let (function, arguments) = call.split_once('(').expect("the target calls no body");
    match function {
        "import_as" => Body::ImportAs(arguments.split('"').nth(1).expect("import_as without a format").into()),
        "import_any" => Body::ImportAny,
        "read_trace" => Body::ReadTrace,
        "read_payloads" => Body::ReadPayloads,
        other => panic!("{other}: add it to Body"),
    }
}

/// The files of a folder that are under version control, in order. Fuzzing runs add further files.
fn seeds(folder: &Path) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap_or_else(|why| panic!("{}: {why}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"seed-")));
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("a seed")).collect()
}

fn targets() -> Vec<Target> {
    let sources = fs::read_dir(fuzz_folder().join("fuzz_targets")).expect("the fuzz targets");
    let mut paths: Vec<PathBuf> = sources.map(|entry| entry.expect("an entry").path()).collect();
    // crates/memory-trace/tests/it/fuzz_targets.rs runs the targets for memory recordings.
    paths.retain(|path| path.file_name().is_some_and(|name| !name.as_encoded_bytes().starts_with(b"memory_")));
    paths.sort();
    let target = |path: &PathBuf| {
        let name = path.file_stem().expect("a name").to_str().expect("UTF-8").to_string();
        let body = body_of(&fs::read_to_string(path).expect("a target"));
        let seeds = seeds(&fuzz_folder().join("corpus").join(&name));
        Target { name, body, seeds }
    };
    paths.iter().map(target).collect()
}

/// Runs one input. If it fails or takes too long, saves it and panics with the file's name.
fn run(target: &Target, input: &[u8], what: &str) {
    let begin = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| target.body.run(input)));
    if outcome.is_ok() && begin.elapsed() < INPUT_TIME_MAX {
        return;
    }
    let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{}", target.name));
    fs::write(&kept, input).expect("cannot save the input");
    let verdict = if outcome.is_ok() { "took too long" } else { "failed" };
    panic!("{}: {what} {verdict} after {:?}; the input: {}", target.name, begin.elapsed(), kept.display());
}

#[test]
fn every_target_accepts_one_of_its_seeds() {
    let targets = targets();
    assert!(targets.len() >= 19, "{} targets", targets.len());
    let mut unaccepted = Vec::new();
    for target in &targets {
        assert!(!target.seeds.is_empty(), "{}: no seeds in fuzz/corpus", target.name);
        let before = bodies::accepted();
        for (number, seed) in target.seeds.iter().enumerate() {
            run(target, seed, &format!("seed {}", number + 1));
        }
        if bodies::accepted() == before {
            unaccepted.push(&target.name);
        }
    }
    // A fuzzer makes little progress from seeds that are rejected immediately.
    assert!(unaccepted.is_empty(), "{unaccepted:?}: no seed is accepted");
}

#[test]
fn no_target_fails_on_mutations_of_its_seeds() {
    let (inputs, seed) =
        (number_from("HKSIM_FUZZ_INPUTS", INPUTS_DEFAULT), number_from("HKSIM_FUZZ_SEED", SEED_DEFAULT));
    let mut targets = targets();
    // The target `any` recognises the format, so it gets the seeds of all targets.
    let all: Vec<Vec<u8>> = targets.iter().flat_map(|target| target.seeds.clone()).collect();
    targets.iter_mut().filter(|target| target.name == "any").for_each(|target| target.seeds.clone_from(&all));
    let accepted = |target: &Target| {
        let mut random = Random::new(seed);
        for number in 0..inputs {
            run(
                target,
                &mutate::mutated(&mut |end| random.below(end), &target.seeds),
                &format!("input {number} of seed {seed}"),
            );
        }
        bodies::accepted()
    };
    let counts: Vec<u64> = thread::scope(|scope| {
        let (accepted, threads) = (&accepted, targets.iter());
        let threads: Vec<_> = threads.map(|target| scope.spawn(move || accepted(target))).collect();
        threads.into_iter().map(|thread| thread.join().expect("a target failed")).collect()
    });
    println!("seed {seed}, {inputs} inputs per target; accepted of {inputs}:");
    targets.iter().zip(&counts).for_each(|(target, count)| println!("{}: {count}", target.name));
    // Some mutations must be accepted. Otherwise the readers reject all inputs early, and little of their code is
    // tested.
    assert!(inputs < 100 || counts.iter().sum::<u64>() > inputs, "{counts:?}");
}
