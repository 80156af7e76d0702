//! Random scripts: model and kernel are compared after every operation. `HKSIM_KERNEL_SCRIPTS` and `HKSIM_KERNEL_SEED`
//! set the number of scripts and the first seed.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use hksim_conformance::{Generator, Runner, ScriptOutcome, Unobservable, predict, shrunk};
use hksim_linux_mm::script::Script;
use hksim_linux_mm::{EmptyPteTables, KernelConfig, Rules};

const SCRIPTS_DEFAULT: u64 = 300;
const SEED_DEFAULT: u64 = 0x5EED_0001;

pub fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable}: {text}")))
}

pub fn random_scripts_match_the_running_kernel() -> Result<(), String> {
    let _held = hksim_testkit::modes::hold();
    let mut runner = Runner::new(None).map_err(|why| why.to_string())?;
    let first = number_from("HKSIM_KERNEL_SEED", SEED_DEFAULT);
    let count = number_from("HKSIM_KERNEL_SCRIPTS", SCRIPTS_DEFAULT);
    let (mut operations, mut skipped, mut differing) = (0, 0, Vec::new());
    for seed in first..first + count {
        let script = Generator::new(seed).script();
        operations += script.steps.len();
        match runner.run(&script).unwrap_or_else(|why| panic!("seed {seed}: {why}")) {
            ScriptOutcome::Skipped(why) => {
                eprintln!("skipped: seed {seed}: {why}");
                skipped += 1;
            }
            ScriptOutcome::NotReproduced(difference) => {
                eprintln!("skipped: seed {seed}: differed once, and not when tried again: {difference}");
                skipped += 1;
            }
            ScriptOutcome::Checked(checked) => {
                if let Some(difference) = checked.difference() {
                    eprintln!("seed {seed}: {difference}; the script:\n{script}");
                    differing.push(seed);
                }
            }
        }
    }
    eprintln!("{count} scripts from seed {first}, {operations} operations, {skipped} skipped");
    assert!(differing.is_empty(), "seeds that differ: {differing:?}");
    assert!(skipped * 10 <= count, "too many scripts were skipped to draw a conclusion");
    Ok(())
}

/// First argument of a process that runs scripts as an ordinary user.
pub const AS_NOBODY_ARGUMENT: &str = "as-nobody";
const NOBODY: u32 = 65_534;
/// Exit status of the unprivileged process if it cannot run scripts.
const CANNOT: u8 = 77;

/// The `main` of the unprivileged process.
pub fn as_nobody() -> ExitCode {
    let mut runner = match Runner::new(None) {
        Ok(runner) => runner,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(CANNOT);
        }
    };
    assert!(runner.unobservable().contains(&Unobservable::Folios), "{:?}", runner.unobservable());
    for seed in 0..40 {
        let script = Generator::new(seed).script();
        match runner.run(&script).unwrap_or_else(|why| panic!("seed {seed}: {why}")) {
            ScriptOutcome::Skipped(_) | ScriptOutcome::NotReproduced(_) => {}
            ScriptOutcome::Checked(checked) => assert_eq!(checked.difference(), None, "seed {seed}:\n{script}"),
        }
    }
    ExitCode::SUCCESS
}

pub fn an_unprivileged_user_observes_less_and_finds_no_difference() -> Result<(), String> {
    // SAFETY: no arguments.
    if unsafe { libc::geteuid() } != 0 {
        return Err("needs root, to run as another user".into());
    }
    // Other users may have no access to the build directory.
    let folder = tempfile::TempDir::with_prefix("hksim-conformance-").expect("a temporary folder");
    let readable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(folder.path(), readable).expect("our own folder");
    let program = folder.path().join("rules");
    std::fs::copy(std::env::current_exe().expect("this program"), &program).expect("a copy");
    let mut command = Command::new(program);
    let status = command.arg(AS_NOBODY_ARGUMENT).uid(NOBODY).gid(NOBODY).status().expect("the copy starts");
    match status.code() {
        Some(0) => Ok(()),
        Some(code) if code == i32::from(CANNOT) => Err("an ordinary user cannot run scripts here".into()),
        _ => panic!("as an ordinary user: {status}"),
    }
}

/// A random script must detect a model with one rule of an older kernel. It must shrink to the two operations that show
/// the rule.
pub fn a_wrong_model_is_found_and_shrunk() -> Result<(), String> {
    let right = KernelConfig::default();
    let wrong =
        KernelConfig { rules: Rules { empty_pte_tables: EmptyPteTables::Keep, ..right.rules }, ..right.clone() };
    let differs = |script: &Script| predict(&right, script) != predict(&wrong, script);
    let script =
        (1..).map(|seed| Generator::new(seed).script()).find(|script| differs(script)).expect("seeds do not run out");
    let small = shrunk(&script, |script| Ok::<_, std::convert::Infallible>(differs(script))).expect("infallible");
    assert!(differs(&small));
    assert_eq!(small.steps.len(), 2, "one operation creates a table, the other drops its 2 MiB range:\n{small}");
    Ok(())
}
