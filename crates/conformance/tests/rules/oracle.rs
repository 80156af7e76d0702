//! Compares the executor with a C program that executes the same scripts.

use hksim_conformance::{Checked, Generator, Machine, Observation, Verdict, check};
use hksim_linux_mm::script::{Op, Script, Thread};
use hksim_linux_probe::{pressure, sysfs};
use hksim_testkit::CProgram;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rules/executor.c");
const SCRIPTS: u64 = 150;
const FIRST_SEED: u64 = 4_000_000;
/// Maximum number of scripts that may differ once without a sign of a disturbance.
const UNEXPLAINED_MAX: usize = 3;
/// Maximum number of attempts for a disturbed script.
const TRIES: usize = 6;

/// Compiles the C program. `Err` has the reason why it cannot run here.
pub fn compile() -> Result<CProgram, String> {
    let program = CProgram::compile(SOURCE, env!("CARGO_TARGET_TMPDIR"))?;
    let output = program.output(&[], "");
    match output.lines().next().and_then(|line| line.strip_prefix("skipped: ")) {
        Some(reason) => Err(reason.to_string()),
        None => Ok(program),
    }
}

/// The C program's observations, script by script.
fn seen_by(program: &CProgram, scripts: &[Script]) -> Vec<Vec<Observation>> {
    let text: String = scripts.iter().map(|script| format!("{script}end\n")).collect();
    let output = program.output(&[], &text);
    let mut lines = output.lines().skip(1);
    let mut all = vec![Vec::new()];
    while let Some(line) = lines.next() {
        match line.split_once(' ') {
            Some(("op", op)) => {
                let state = lines.next().and_then(|line| line.strip_prefix("st ")).expect("state after op");
                let last = all.last_mut().expect("never empty");
                last.push(Observation::read(op, state).expect("numbers and states"));
            }
            Some(("end", _)) => all.push(Vec::new()),
            _ => panic!("unexpected line from the C program: {line}"),
        }
    }
    all.pop();
    all
}

/// Machine-wide events so far that disturb a measurement: signs of memory shortage, and pages collapsed by khugepaged.
fn disturbances() -> u64 {
    let collapsed = sysfs::number(&format!("{}/khugepaged/pages_collapsed", sysfs::THP));
    [pressure::reclaim_scanned_pages(), pressure::thp_fallbacks(), collapsed].into_iter().flatten().sum()
}

/// Describes the first difference between the executor and the C program, if there is one.
fn difference(script: &Script, ours: &Checked, in_c: &[Observation]) -> Option<String> {
    if ours.measured.len() != in_c.len() {
        return Some(format!("{} and {} operations of\n{script}", ours.measured.len(), in_c.len()));
    }
    let differs = |(ours, in_c): (&Observation, &Observation)| {
        // The counter of splits is machine-wide, so it is not compared.
        let pmd_splits = in_c.left.pmd_splits;
        let left = hksim_conformance::ArenaState { pmd_splits, ..ours.left.clone() };
        ours.did != in_c.did || left != in_c.left
    };
    let at = ours.measured.iter().zip(in_c).position(differs)?;
    Some(format!("operation {at} of\n{script}{:?}\n{:?}", ours.measured[at], in_c[at]))
}

fn is_disturbed(ours: &Checked) -> bool {
    matches!(ours.verdict, Verdict::Disturbed(_))
}

/// Compares both on one script. Returns the number of operations compared, or `None` if every attempt was disturbed.
fn compare(program: &CProgram, machine: &mut Machine, script: &Script) -> Option<usize> {
    for _ in 0..TRIES {
        let before = disturbances();
        let in_c = seen_by(program, std::slice::from_ref(script)).pop().expect("one script");
        let was_disturbed = disturbances() > before;
        let ours = check(machine, script).expect("the script is executed");
        match difference(script, &ours, &in_c) {
            None => return Some(in_c.len()),
            Some(difference) => assert!(was_disturbed || is_disturbed(&ours), "{difference}"),
        }
    }
    None
}

pub fn a_c_program_makes_the_same_observations() -> Result<(), String> {
    let _held = hksim_testkit::modes::hold();
    let program = compile()?;
    let mut machine = Machine::open().map_err(|why| why.to_string())?;
    // The C program supports no second thread, no forks, no scans, no files and no modes.
    let is_supported = |op: &Op| !matches!(op, Op::Fork(..) | Op::Scan(..) | Op::MapFile(..) | Op::TouchFile(..));
    let of_one_thread =
        |script: &Script| script.steps.iter().all(|step| step.thread == Thread::First && is_supported(&step.op));
    let scripts = (FIRST_SEED..).map(|seed| Generator::new(seed).script());
    let plain = |script: &Script| script.header == Default::default() && of_one_thread(script);
    let scripts: Vec<Script> = scripts.filter(plain).take(SCRIPTS as usize).collect();
    let before = disturbances();
    let all_in_c = seen_by(&program, &scripts);
    let was_disturbed = disturbances() > before;
    let (mut operations, mut disturbed, mut unexplained) = (0, 0, 0);
    for (script, in_c) in scripts.iter().zip(all_in_c) {
        let ours = check(&mut machine, script).expect("the script is executed");
        let compared = match difference(script, &ours, &in_c) {
            None => Some(in_c.len()),
            Some(difference) => {
                // Pages that another processor has not put on its lists yet make a collapse fail with EAGAIN, and no
                // counter shows it. A difference between the programs shows every time.
                let compared = compare(&program, &mut machine, script);
                if !was_disturbed && !is_disturbed(&ours) {
                    eprintln!("skipped: differed once, and not when tried again: {difference}");
                    unexplained += 1;
                }
                compared
            }
        };
        operations += compared.unwrap_or(0);
        disturbed += usize::from(compared.is_none());
    }
    assert!(unexplained <= UNEXPLAINED_MAX, "{unexplained} scripts differed once");
    if disturbed > 0 {
        eprintln!("skipped: {disturbed} of {SCRIPTS} scripts: memory was short or fragmented");
    }
    if disturbed < SCRIPTS as usize / 4 {
        assert!(operations > 1000, "only {operations} operations were compared");
    }
    Ok(())
}
