//! Full scans of khugepaged: model and kernel are compared after every operation. `HKSIM_KERNEL_SCAN_SCRIPTS` sets the
//! number of random scripts, `HKSIM_KERNEL_SCAN_RANGES` that of random ranges, and `HKSIM_KERNEL_SEED` the first seed.

use hksim_conformance::catalogue::{MEASURED_ON, cases};
use hksim_conformance::{ExecuteError, Generator, Observation, Runner, ScriptOutcome, SetModes, kernel_config, shrunk};
use hksim_linux_mm::script::{ARENA_PAGES, Op, ScanOf, Script, Touch};
use hksim_linux_mm::{Advice, PMD_PAGES};
use hksim_testkit::Random;

use super::random::number_from;

const SCRIPTS_DEFAULT: u64 = 25;
const RANGES_DEFAULT: u64 = 120;
const SEED_DEFAULT: u64 = 0x5CA_0001;
const RANGES_PER_SCRIPT: u64 = ARENA_PAGES / PMD_PAGES;

/// A runner that may set the pace of khugepaged.
fn runner() -> Result<Runner, String> {
    let modes = SetModes::new(|| eprintln!("waiting for another run that sets modes"));
    Runner::new(Some(modes.map_err(|why| why.to_string())?)).map_err(|why| why.to_string())
}

/// Runs a script. `None` if it could not be compared, which is printed.
fn measured(runner: &mut Runner, seed: u64, script: &Script) -> Option<Vec<Observation>> {
    match runner.run(script).unwrap_or_else(|why| panic!("seed {seed}: {why}")) {
        ScriptOutcome::Checked(checked) => {
            if let Some(difference) = checked.difference() {
                panic!("seed {seed}: {difference}; shrunk:\n{}", smallest(runner, script));
            }
            Some(checked.measured)
        }
        ScriptOutcome::Skipped(why) | ScriptOutcome::NotReproduced(why) => {
            eprintln!("skipped: seed {seed}: {why}");
            None
        }
    }
}

fn smallest(runner: &mut Runner, script: &Script) -> Script {
    let differs = |candidate: &Script| {
        let outcome = runner.run(candidate)?;
        Ok::<_, ExecuteError>(matches!(outcome, ScriptOutcome::Checked(checked) if checked.difference().is_some()))
    };
    shrunk(script, differs).unwrap_or_else(|_| script.clone())
}

pub fn random_scripts_with_scans_match_the_running_kernel() -> Result<(), String> {
    let mut runner = runner()?;
    let first = number_from("HKSIM_KERNEL_SEED", SEED_DEFAULT);
    let count = number_from("HKSIM_KERNEL_SCAN_SCRIPTS", SCRIPTS_DEFAULT);
    let (mut operations, mut skipped) = (0, 0);
    for seed in first..first + count {
        let script = Generator::new(seed).script_with_scans();
        match measured(&mut runner, seed, &script) {
            Some(observed) => operations += observed.len(),
            None => skipped += 1,
        }
    }
    eprintln!("{count} scripts from seed {first}, {operations} operations, {skipped} skipped");
    assert!(skipped * 10 <= count, "too many scripts were skipped to draw a conclusion");
    Ok(())
}

pub fn each_rule_of_scans_holds_on_the_running_kernel() -> Result<(), String> {
    let mut runner = runner()?;
    let is_on_the_measured_version = kernel_config().is_ok_and(|config| config.rules.version == MEASURED_ON);
    let (mut passed, mut skipped) = (0, 0);
    for case in cases().filter(|case| case.rule.starts_with("R11")) {
        let script = case.script().unwrap_or_else(|why| panic!("{}: {why}", case.title));
        let Some(observed) = measured(&mut runner, 0, &script) else {
            skipped += 1;
            continue;
        };
        let last = observed.last().expect("a script has operations");
        for &(figure, expected) in case.figures.iter().filter(|_| is_on_the_measured_version) {
            assert_eq!(figure.of(last), expected, "{}: {figure:?} of\n{script}", case.title);
        }
        passed += 1;
    }
    eprintln!("{passed} scripts pass, {skipped} skipped");
    assert!(passed > skipped, "too many scripts were skipped to draw a conclusion");
    Ok(())
}

/// A range of 2 MiB before a scan: which pages are written. Pages of one more run are read first.
struct RandomRange {
    runs: Vec<(Touch, u64, u64, u64)>,
    written: Vec<bool>,
}

impl RandomRange {
    fn new(random: &mut Random) -> Self {
        let mut range = Self { runs: Vec::new(), written: vec![false; PMD_PAGES as usize] };
        for run in 0..1 + random.below(3) {
            let touch =
                [Touch::Read, Touch::WriteOne, Touch::WriteZero][if run == 0 { 0 } else { random.below(3) as usize }];
            let (start, stride) = (random.below(PMD_PAGES), 1 + random.below(4));
            let length = 1 + random.below(PMD_PAGES - start);
            range.runs.push((touch, start, length, stride));
            if touch != Touch::Read {
                (start..start + length).step_by(stride as usize).for_each(|page| range.written[page as usize] = true);
            }
        }
        range
    }

    fn written_pages(&self) -> u64 {
        self.written.iter().filter(|&&written| written).count() as u64
    }
}

/// The rule in one line, independent of the model: a range is collapsed if at least one page is written, and no more than
/// `max_ptes_none` are not.
pub fn random_ranges_collapse_by_the_number_of_written_pages() -> Result<(), String> {
    let mut runner = runner()?;
    let first = number_from("HKSIM_KERNEL_SEED", SEED_DEFAULT);
    let count = number_from("HKSIM_KERNEL_SCAN_RANGES", RANGES_DEFAULT).div_ceil(RANGES_PER_SCRIPT);
    let (mut ranges, mut near, mut collapsed) = (0, 0, 0);
    for seed in first..first + count {
        let mut random = Random::new(seed);
        let all: Vec<RandomRange> = (0..RANGES_PER_SCRIPT).map(|_| RandomRange::new(&mut random)).collect();
        // At, just above or just below what one of the ranges needs.
        let limit = PMD_PAGES + 1 - all[random.below(RANGES_PER_SCRIPT) as usize].written_pages();
        let limit = (limit + random.below(3)).saturating_sub(2).min(PMD_PAGES - 1);
        let touches = all.iter().enumerate().flat_map(|(number, range)| {
            let at = number as u64 * PMD_PAGES;
            range.runs.iter().map(move |&(touch, start, length, stride)| Op::Touch(touch, at + start, length, stride))
        });
        let after = [Op::Advise(Advice::HugePage, 0, ARENA_PAGES), Op::Scan(ScanOf::Process, 1)];
        let mut script = Script::of(touches.chain(after));
        script.header = script.header.with_all_modes();
        script.header.max_ptes_none = Some(limit);
        let Some(observed) = measured(&mut runner, seed, &script) else { continue };
        let huge = observed.last().expect("a script has operations").left.anon_huge_bytes / (2 << 20);
        let expected = all
            .iter()
            .filter(|range| (1..).contains(&range.written_pages()) && PMD_PAGES - range.written_pages() <= limit);
        let expected = expected.count() as u64;
        assert_eq!(huge, expected, "seed {seed}:\n{script}");
        collapsed += expected;
        ranges += RANGES_PER_SCRIPT;
        near += all.iter().filter(|range| (PMD_PAGES - range.written_pages()).abs_diff(limit) <= 1).count();
    }
    eprintln!("{ranges} ranges from seed {first}: {collapsed} collapsed, {near} within a page of the limit");
    assert!(ranges * 10 >= count * RANGES_PER_SCRIPT * 9, "too many scripts were skipped to draw a conclusion");
    assert!(collapsed > 0 && collapsed < ranges, "the limit decides");
    Ok(())
}
