//! The executor compared with a C program that executes the same scripts.

use hksim_conformance::{Generator, Machine, Observation, check};
use hksim_linux_mm::script::{Op, Script, Thread};
use hksim_testkit::CProgram;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/rules/executor.c");
const SCRIPTS: u64 = 150;
const FIRST_SEED: u64 = 4_000_000;

/// The C program; `Err` has the reason why it does not run here.
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

pub fn a_c_program_observes_the_same() -> Result<(), String> {
    let program = compile()?;
    let mut machine = Machine::open().map_err(|why| why.to_string())?;
    // It supports no second thread, no forks and no modes.
    let of_one_thread = |script: &Script| {
        script.steps.iter().all(|step| step.thread == Thread::First && !matches!(step.op, Op::Fork(..)))
    };
    let scripts = (FIRST_SEED..).map(|seed| Generator::new(seed).script());
    let plain = |script: &Script| script.header == Default::default() && of_one_thread(script);
    let scripts: Vec<Script> = scripts.filter(plain).take(SCRIPTS as usize).collect();
    let mut operations = 0;
    for (script, in_c) in scripts.iter().zip(seen_by(&program, &scripts)) {
        let ours = check(&mut machine, script).expect("the script is executed");
        for (at, (ours, in_c)) in ours.measured.iter().zip(&in_c).enumerate() {
            // The counter of splits is machine-wide.
            assert_eq!(ours.did, in_c.did, "operation {at} of\n{script}");
            let entry_splits = in_c.left.entry_splits;
            let left = hksim_conformance::ArenaState { entry_splits, ..ours.left.clone() };
            assert_eq!(left, in_c.left, "after operation {at} of\n{script}");
            operations += 1;
        }
        assert_eq!(ours.measured.len(), in_c.len());
    }
    assert!(operations > 1000, "only {operations} operations were compared");
    Ok(())
}
