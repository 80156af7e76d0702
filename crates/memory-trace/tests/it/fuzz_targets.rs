//! Runs the fuzz targets for memory recordings on their seeds and on mutations of them, without a nightly toolchain.
//!
//! `HKSIM_FUZZ_INPUTS` is the number of mutations per target, and `HKSIM_FUZZ_SEED` their random seed. A failing input
//! is kept. `HKSIM_UPDATE_SEEDS=1` writes the seeds.

#[path = "../../../../fuzz/src/memory.rs"]
mod bodies;
#[path = "../../../../fuzz/src/mutate.rs"]
mod mutate;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use crate::support::{Random, add_sites, random_events, random_sites, write, write_with_sites};

/// A target: its name and its function, which returns whether the input was accepted.
type Target = (&'static str, fn(&[u8]) -> bool);

const TARGETS: [Target; 2] = [("memory_reader", bodies::read_recording), ("memory_contents", bodies::read_contents)];

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target)
}

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let entries = fs::read_dir(corpus(target)).expect("the corpus");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.retain(|path| path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(b"seed-")));
    paths.sort();
    paths.iter().map(|path| fs::read(path).expect("a seed")).collect()
}

/// The plain content of a recording's only chunk. In front: whether it has call stacks, its length and number of events.
fn content(recording: &[u8]) -> Vec<u8> {
    let word = |at: usize| u32::from_le_bytes(recording[at..at + 4].try_into().expect("4 bytes"));
    let chunk = 16 + word(12) as usize + 4;
    let packed = &recording[chunk + 44..][..word(chunk + 4) as usize];
    let plain = zstd::decode_all(packed).expect("a zstd frame");
    let numbers = [plain.len() as u16, word(chunk + 16) as u16].map(u16::to_le_bytes);
    // The version in front says whether there are call stacks.
    [&[recording[8] - 1], &numbers.concat()[..], &plain[..]].concat()
}

fn write_seeds() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t.hkm");
    for (number, count, has_sites) in [(1, 17, false), (2, 100, false), (3, 40, true)] {
        let mut events = random_events(number, count);
        match has_sites {
            false => write(&path, &events),
            true => {
                let sites = random_sites(number, 5);
                add_sites(number, &mut events, &sites);
                write_with_sites(&path, &events, &sites);
            }
        }
        let recording = fs::read(&path).expect("a recording");
        for (target, seed) in [("memory_reader", recording.clone()), ("memory_contents", content(&recording))] {
            fs::create_dir_all(corpus(target)).expect("a folder");
            fs::write(corpus(target).join(format!("seed-{number}")), seed).expect("a seed");
        }
    }
}

/// Runs one input. If it fails, saves it and panics with the file's name.
fn run((name, body): Target, input: &[u8], what: &str) -> bool {
    catch_unwind(AssertUnwindSafe(|| body(input))).unwrap_or_else(|_| {
        let kept = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("fuzz-{name}"));
        fs::write(&kept, input).expect("cannot save the input");
        panic!("{name}: {what} failed; the input: {}", kept.display())
    })
}

#[test]
fn seeds_are_accepted_and_mutations_do_no_harm() {
    if std::env::var_os("HKSIM_UPDATE_SEEDS").is_some() {
        write_seeds();
    }
    let (inputs, seed) = (number_from("HKSIM_FUZZ_INPUTS", 1000), number_from("HKSIM_FUZZ_SEED", 0xF022));
    for target in TARGETS {
        let seeds = seeds(target.0);
        assert!(!seeds.is_empty(), "{}: no seeds", target.0);
        let accepted = seeds.iter().enumerate().filter(|(number, input)| run(target, input, &format!("seed {number}")));
        assert_eq!(accepted.count(), seeds.len(), "{}: every seed is accepted", target.0);
        let mut random = Random::new(seed);
        let mut accepted = 0;
        for number in 0..inputs {
            let input = mutate::mutated(&mut |end| random.below(end), &seeds);
            accepted += u64::from(run(target, &input, &format!("input {number} of seed {seed}")));
        }
        println!("{}: {accepted} of {inputs} inputs accepted, seed {seed}", target.0);
        assert!(accepted > inputs / 100, "{}: the reader rejects everything early", target.0);
    }
}
