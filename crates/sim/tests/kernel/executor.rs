//! Runs page-op scripts on the running kernel, through a C program, and compares the model with what it saw.

use std::fmt::Write as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::c_program::CProgram;
use hksim_sim::kernel::script::{ARENA_PAGES, Op, OpResult};
use hksim_sim::kernel::{Errno, Kernel, KernelConfig, PageState, SizeMode, ThpConfig, ThpMode};

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernel/executor.c");

/// First page of the simulated arena; any block will do.
const BASE: u64 = 1 << 20;

/// What one operation did and left behind, in the executor's units.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub ret: i64,
    pub errno: i64,
    pub faults: i64,
    pub traps: i64,
    pub rss_kb: i64,
    pub huge_kb: i64,
    pub lazy_kb: i64,
    pub vmas: i64,
    pub page_table_kb: i64,
    pub entry_splits: i64,
    /// Letters and counts: - none, z zero, b base, m piece of a large folio, T huge page, Z huge zero, H hugetlb.
    pub states: String,
}

/// What the kernel did with one script.
pub struct Observed {
    steps: Vec<Step>,
    collapsed: i64,
}

pub enum Verdict {
    Equal,
    /// khugepaged collapsed something, or another process split huge entries, which one counter for the whole machine
    /// cannot tell from ours.
    Disturbed,
    Differs(String),
}

/// The compiled program, and the modes of this machine.
pub struct Executor {
    program: CProgram,
    pub config: KernelConfig,
    /// Tests take turns: counters of the whole machine are among what is compared.
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

impl Executor {
    /// Nothing, with the reason on stderr, where this machine cannot run it.
    pub fn new() -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        let program = CProgram::compile(SOURCE)?;
        let Some(config) = machine_config() else { return skipped("no transparent huge pages in this kernel") };
        let executor = Self { program, config, _turn: turn };
        let output = executor.program.output(&[], "");
        match output.lines().next().and_then(|line| line.strip_prefix("skipped: ")) {
            Some(reason) => skipped(reason),
            None => Some(executor),
        }
    }

    /// Executes scripts one after the other, each on a fresh arena.
    pub fn run<'a>(&self, scripts: impl Iterator<Item = &'a [Op]>) -> Vec<Observed> {
        self.run_texts(scripts.map(text_of))
    }

    /// The same, with scripts as text, which may hold `fill` lines.
    pub fn run_texts(&self, scripts: impl Iterator<Item = String>) -> Vec<Observed> {
        let output = self.program.output(&[], &scripts.map(|text| text + "end\n").collect::<String>());
        let mut observed = Vec::new();
        let mut steps = Vec::new();
        let mut lines = output.lines().skip(1);
        while let Some(line) = lines.next() {
            match line.split_once(' ') {
                Some(("op", op)) => {
                    let state = lines.next().and_then(|line| line.strip_prefix("st ")).expect("state after op");
                    steps.push(parse_step(op, state));
                }
                Some(("end", count)) => observed.push(Observed {
                    steps: std::mem::take(&mut steps),
                    collapsed: count.parse().expect("a number after end"),
                }),
                _ => panic!("unexpected line from the executor: {line}"),
            }
        }
        observed
    }

    /// How many of 20 anonymous maps of `pages`, at no given address, start on a 2 MiB boundary.
    pub fn aligned_of_20(&self, pages: u64) -> u64 {
        let output = self.program.output(&[], &format!("aligned {pages}\n"));
        output.lines().find_map(|line| line.strip_prefix("aligned ")?.parse().ok()).expect("a count")
    }
}

/// A script as text.
pub fn text_of(ops: &[Op]) -> String {
    ops.iter().map(|op| format!("{op}\n")).collect()
}

fn skipped<T>(reason: &str) -> Option<T> {
    eprintln!("skipped: {reason}");
    None
}

/// The chosen word of a sysfs mode file: the one in brackets.
fn mode_of(path: &str) -> Option<String> {
    let text = std::fs::read_to_string(format!("/sys/kernel/mm/transparent_hugepage/{path}")).ok()?;
    let chosen = text.split_once('[')?.1.split_once(']')?.0;
    Some(chosen.to_owned())
}

fn machine_config() -> Option<KernelConfig> {
    let global = match mode_of("enabled")?.as_str() {
        "always" => ThpMode::Always,
        "madvise" => ThpMode::Madvise,
        _ => ThpMode::Never,
    };
    let mut thp = ThpConfig::new(global);
    for (order, size) in thp.sizes.iter_mut().enumerate() {
        match mode_of(&format!("hugepages-{}kB/enabled", 4 << order)).as_deref() {
            Some("always") => *size = SizeMode::Always,
            Some("madvise") => *size = SizeMode::Madvise,
            Some("inherit") => *size = SizeMode::Inherit,
            _ => *size = SizeMode::Never,
        }
    }
    let zero = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/use_zero_page").ok()?;
    Some(KernelConfig { thp, use_zero_page: zero.trim() == "1", ..KernelConfig::default() })
}

fn parse_step(op: &str, state: &str) -> Step {
    let numbers = |text: &str| -> Vec<i64> { text.split(' ').map_while(|word| word.parse().ok()).collect() };
    let (op, totals) = (numbers(op), numbers(state));
    let states = state.splitn(7, ' ').nth(6).expect("states behind the totals");
    Step {
        ret: op[0],
        errno: op[1],
        faults: op[2],
        traps: op[3],
        rss_kb: totals[0],
        huge_kb: totals[1],
        lazy_kb: totals[2],
        vmas: totals[3],
        page_table_kb: totals[4],
        entry_splits: totals[5],
        states: states.to_owned(),
    }
}

fn errno_number(errno: Option<Errno>) -> i64 {
    match errno {
        None => 0,
        Some(Errno::Again) => 11,
        Some(Errno::NoMemory) => 12,
        Some(Errno::Fault) => 14,
        Some(Errno::Invalid) => 22,
    }
}

fn predicted_step(kernel: &Kernel, result: OpResult) -> Step {
    let letter = |state| match state {
        PageState::None => '-',
        PageState::Zero => 'z',
        PageState::Base => 'b',
        PageState::Mthp => 'm',
        PageState::Thp => 'T',
        PageState::HugeZero => 'Z',
        PageState::Hugetlb => 'H',
    };
    let runs = kernel.page_states(BASE..BASE + ARENA_PAGES);
    let states: Vec<String> = runs.iter().map(|run| format!("{} {}", letter(run.state), run.pages)).collect();
    Step {
        ret: result.ret,
        errno: errno_number(result.errno),
        faults: result.faults as i64,
        traps: result.traps as i64,
        rss_kb: kernel.rss_pages() as i64 * 4,
        huge_kb: kernel.huge_pages() as i64 * 2048,
        lazy_kb: kernel.lazy_free_pages() as i64 * 4,
        vmas: kernel.vma_count() as i64,
        page_table_kb: kernel.page_table_bytes() as i64 / 1024,
        entry_splits: kernel.counters().entry_splits as i64,
        states: states.join(" "),
    }
}

/// The model's steps through a script.
pub fn predict(config: &KernelConfig, ops: &[Op]) -> Vec<Step> {
    let mut kernel = Kernel::with_arena(config.clone(), BASE);
    ops.iter()
        .map(|op| {
            let result = kernel.execute(op, BASE);
            predicted_step(&kernel, result)
        })
        .collect()
}

/// Compares the model with the kernel after every operation of a script.
pub fn compare(config: &KernelConfig, ops: &[Op], observed: &Observed) -> Verdict {
    let predicted = predict(config, ops);
    if predicted == observed.steps {
        return Verdict::Equal;
    }
    if observed.collapsed > 0 || only_extra_splits(&predicted, &observed.steps) {
        return Verdict::Disturbed;
    }
    let at = predicted.iter().zip(&observed.steps).take_while(|(a, b)| a == b).count();
    let mut report = String::from("the model differs from the kernel after the last of these:\n");
    for op in &ops[..(at + 1).min(ops.len())] {
        writeln!(report, "  {op}").expect("writing to a string");
    }
    match (predicted.get(at), observed.steps.get(at)) {
        (Some(predicted), Some(measured)) => report.push_str(&difference(predicted, measured)),
        (predicted, measured) => {
            write!(report, "predicted {predicted:?}\nmeasured  {measured:?}").expect("writing to a string");
        }
    }
    Verdict::Differs(report)
}

/// Whether both agree but for more entry splits on the machine than the script explains.
fn only_extra_splits(predicted: &[Step], measured: &[Step]) -> bool {
    predicted.len() == measured.len()
        && predicted.iter().zip(measured).all(|(predicted, measured)| {
            let entry_splits = predicted.entry_splits;
            *predicted == Step { entry_splits, ..measured.clone() } && entry_splits <= measured.entry_splits
        })
}

/// The numbers of both, and the page states around the first page that differs.
fn difference(predicted: &Step, measured: &Step) -> String {
    let numbers = |step: &Step| format!("{:?}", Step { states: String::new(), ..step.clone() });
    let (model, kernel) = (page_letters(&predicted.states), page_letters(&measured.states));
    let same = model.chars().zip(kernel.chars()).take_while(|(a, b)| a == b).count();
    let shown = |letters: &str| letters.chars().skip(same).take(64).collect::<String>();
    format!(
        "predicted {}\nmeasured  {}\nfrom page {same} on:\npredicted {}\nmeasured  {}",
        numbers(predicted),
        numbers(measured),
        shown(&model),
        shown(&kernel)
    )
}

/// One letter per page from letters and counts.
fn page_letters(states: &str) -> String {
    let words: Vec<&str> = states.split(' ').collect();
    words.chunks(2).map(|run| run[0].repeat(run[1].parse().expect("a count"))).collect()
}
