//! Compares fork in the model with fork on the running kernel. A process and its child perform random operations. After
//! each operation the tests compare results, costs and every page of both processes.
//!
//! The oracle is a C program that needs root to read frame flags. Without root the test is skipped and prints why.
//! `HKSIM_FORK_SCRIPTS` and `HKSIM_FORK_SEED` set the number of scripts and the first seed.

use hksim_linux_mm::script::{ARENA_PAGES, Op};
use hksim_linux_mm::{Errno, Kernel, KernelConfig, KernelVersion, PageState, Rules, SizeMode, ThpConfig, ThpMode};
use hksim_testkit::CProgram;

mod generator;

const BASE: u64 = 1 << 20;

/// A step of a script.
#[derive(Clone, Debug)]
pub enum Step {
    /// The parent forks.
    Fork,
    /// The child exits.
    Exit,
    /// An operation of the parent.
    Parent(Op),
    /// An operation of the child.
    Child(Op),
}

impl std::fmt::Display for Step {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Fork => out.write_str("fork"),
            Self::Exit => out.write_str("exit"),
            Self::Parent(op) => write!(out, "p {op}"),
            Self::Child(op) => write!(out, "c {op}"),
        }
    }
}

/// One line in the format that the oracle prints.
fn line(ret: i64, errno: Option<Errno>, faults: u64, kernels: &[&Kernel]) -> String {
    let errno = match errno {
        None => 0,
        Some(Errno::BadFile) => 9,
        Some(Errno::Again) => 11,
        Some(Errno::NoMemory) => 12,
        Some(Errno::Fault) => 14,
        Some(Errno::Busy) => 16,
        Some(Errno::Invalid) => 22,
    };
    let letter = |state| match state {
        PageState::None => '-',
        PageState::Zero => 'z',
        PageState::Base => 'b',
        PageState::Mthp => 'm',
        PageState::Thp => 'T',
        PageState::HugeZero => 'Z',
        PageState::Hugetlb => 'H',
    };
    let mut text = format!("{ret} {errno} {faults}");
    for kernel in kernels {
        text += &format!(" | {} {}", kernel.rss_pages() * 4, kernel.vma_count());
        for run in kernel.page_states(BASE..BASE + ARENA_PAGES) {
            text += &format!(" {} {}", letter(run.state), run.pages);
        }
    }
    text
}

fn predict(config: &KernelConfig, script: &[Step]) -> Vec<String> {
    let mut parent = Kernel::with_arena(config.clone(), BASE);
    let mut child: Option<Kernel> = None;
    let mut lines = Vec::new();
    for step in script {
        let result = match step {
            Step::Fork => {
                child = Some(parent.fork());
                None
            }
            Step::Exit => {
                child = None;
                None
            }
            Step::Parent(op) => Some(parent.execute(op, BASE)),
            Step::Child(op) => child.as_mut().map(|child| child.execute(op, BASE)),
        };
        let (ret, errno, faults) = result.map_or((0, None, 0), |result| (result.ret, result.errno, result.faults));
        let kernels: Vec<&Kernel> = std::iter::once(&parent).chain(&child).collect();
        lines.push(line(ret, errno, faults, &kernels));
    }
    lines
}

/// The oracle's output lines for each script. `None` if the oracle cannot run; the reason goes to stderr.
fn measure(program: &CProgram, scripts: &[Vec<Step>]) -> Option<Vec<Vec<String>>> {
    let mut input = String::new();
    for script in scripts {
        script.iter().for_each(|step| input += &format!("{step}\n"));
        input += "end\n";
    }
    let text = program.output(&[], &input);
    let mut lines = text.lines();
    match lines.next() {
        Some("ready") => {}
        other => {
            eprintln!("{}", other.unwrap_or("skipped: the oracle printed nothing"));
            return None;
        }
    }
    Some(scripts.iter().map(|script| lines.by_ref().take(script.len()).map(str::to_owned).collect()).collect())
}

fn compile() -> Option<CProgram> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/fork/oracle.c");
    CProgram::compile(source, env!("CARGO_TARGET_TMPDIR")).map_err(|reason| eprintln!("skipped: {reason}")).ok()
}

/// This machine's modes, if its kernel version is known.
fn machine_config() -> Option<KernelConfig> {
    let chosen = |path: &str| -> Option<String> {
        let text = std::fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{path}")).ok()?;
        Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
    };
    let mut thp = ThpConfig::new(match chosen("enabled")?.as_str() {
        "always" => ThpMode::Always,
        "madvise" => ThpMode::Madvise,
        _ => ThpMode::Never,
    });
    for (order, size) in thp.sizes.iter_mut().enumerate() {
        *size = match chosen(&format!("hugepages-{}kB/enabled", 4 << order)).as_deref() {
            Some("always") => SizeMode::Always,
            Some("madvise") => SizeMode::Madvise,
            Some("inherit") => SizeMode::Inherit,
            _ => SizeMode::Never,
        };
    }
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    let (version, _) = KernelVersion::nearest(&release)?;
    Some(KernelConfig { thp, rules: Rules::of(version), hugetlb_pool_pages: Some(0), ..KernelConfig::default() })
}

/// R16, R27: faults of the last operation, measured on 6.18 before this model was written.
#[test]
fn copies_and_reuses_match_the_measured_faults() {
    let cases: [(&str, u64); 9] = [
        ("p w 0 64 1; fork; c w 0 64 1", 64),
        ("p w 0 64 1; fork; c r 0 64 1", 0),
        ("p adv HUGEPAGE 0 512; p w 0 1 1; fork; c w 0 512 1", 512),
        ("p adv HUGEPAGE 0 512; p w 0 1 1; fork; p w 0 10 1", 10),
        ("p adv HUGEPAGE 0 512; p w 0 1 1; fork; p w 0 10 1; exit; p w 0 512 1", 502),
        ("p adv HUGEPAGE 0 512; p w 0 1 1; fork; exit; p w 0 512 1", 1),
        ("p w 0 64 1; fork; exit; p w 0 64 1", 64),
        // Never written: the child gets no page tables, and later a separate huge page.
        ("p r 0 1 1; fork; c adv HUGEPAGE 0 512; c w 0 512 1", 1),
        ("p w 0 1 1; p r 1 511 1; fork; c adv HUGEPAGE 0 512; c w 0 512 1", 512),
    ];
    for (text, faults) in cases {
        let steps = text.split("; ").map(|step| match step.split_once(' ') {
            None if step == "fork" => Step::Fork,
            None => Step::Exit,
            Some(("c", op)) => Step::Child(op.parse().expect("an operation")),
            Some((_, op)) => Step::Parent(op.parse().expect("an operation")),
        });
        let lines = predict(&KernelConfig::default(), &steps.collect::<Vec<_>>());
        let seen = lines.last().and_then(|line| line.split(' ').nth(2)).map(str::to_owned);
        assert_eq!(seen, Some(faults.to_string()), "{text}");
    }
}

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable}: {text}")))
}

#[test]
fn random_fork_families_match_the_running_kernel() {
    let _held = hksim_testkit::modes::hold();
    let Some(config) = machine_config() else {
        eprintln!(
            "skipped: this kernel has no transparent huge pages, or is older than every version with known rules"
        );
        return;
    };
    let Some(program) = compile() else { return };
    let seed = number_from("HKSIM_FORK_SEED", 0xF04);
    let count = number_from("HKSIM_FORK_SCRIPTS", 150);
    let mut failures = 0;
    let mut steps = 0;
    for number in 0..count {
        let script = generator::script(seed + number);
        steps += script.len();
        let predicted = predict(&config, &script);
        let mut difference = None;
        // khugepaged and the fork itself may disturb a single run. A model error shows in every run.
        for _ in 0..3 {
            let Some(mut measured) = measure(&program, std::slice::from_ref(&script)) else { return };
            let measured = measured.remove(0);
            assert_eq!(measured.len(), predicted.len(), "the oracle's lines for seed {}", seed + number);
            difference = predicted.iter().zip(&measured).position(|(a, b)| a != b).map(|at| (at, measured[at].clone()));
            if difference.is_none() {
                break;
            }
        }
        if let Some((at, measured)) = difference {
            failures += 1;
            let lines: Vec<String> = script[..=at].iter().map(ToString::to_string).collect();
            eprintln!(
                "seed {}:\n{}\npredicted {}\nmeasured  {measured}",
                seed + number,
                lines.join("\n"),
                predicted[at]
            );
        }
    }
    eprintln!("{count} scripts from seed {seed}, {steps} operations, {failures} differ");
    assert_eq!(failures, 0);
}
