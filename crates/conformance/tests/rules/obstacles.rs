//! The obstacles that the model names, against what a write then installs. Needs no kernel.

use hksim_conformance::Generator;
use hksim_conformance::random::all_modes;
use hksim_linux_mm::script::ARENA_PAGES;
use hksim_linux_mm::{Access, Content, InstallKind, Kernel, KernelConfig, KernelVersion, PageState, Rules, ThpDisable};
use hksim_testkit::Random;

const SCRIPTS: u64 = 1500;
const FIRST_SEED: u64 = 0x0B57;
const DISABLE: [ThpDisable; 4] = [ThpDisable::Off, ThpDisable::Off, ThpDisable::All, ThpDisable::ExceptAdvised];

/// Writes to some pages that are not present. Returns the number of huge pages and of other outcomes.
fn probe(kernel: &mut Kernel, first_page: u64, random: &mut Random, context: &dyn Fn() -> String) -> [u64; 2] {
    let mut seen = [0; 2];
    for _ in 0..3 {
        let page = first_page + random.below(ARENA_PAGES);
        if kernel.page_state(page) != PageState::None {
            continue;
        }
        let obstacles = kernel.obstacles(page);
        let installed = kernel.touch(page, Access::Write(Content::NonZero));
        let is_huge = matches!(installed, Ok(Some(install)) if install.kind == InstallKind::Thp);
        assert_eq!(obstacles.is_empty(), is_huge, "page {page}: {obstacles:?}, {installed:?}; {}", context());
        seen[usize::from(!is_huge)] += 1;
    }
    seen
}

pub fn a_write_installs_a_huge_page_exactly_without_obstacles() -> Result<(), String> {
    let modes = all_modes();
    let mut totals = [0; 2];
    for seed in FIRST_SEED..FIRST_SEED + SCRIPTS {
        let mut random = Random::new(seed);
        let mut script = Generator::new(seed).script();
        script.header.thp = modes[seed as usize % modes.len()].thp;
        script.header.sizes = modes[seed as usize % modes.len()].sizes;
        let version = random.pick(&KernelVersion::ALL);
        let config = KernelConfig { rules: Rules::of(version), ..KernelConfig::default() };
        let mut kernel = script.kernel(&config);
        let context = || format!("seed {seed}, {version:?}:\n{script}");
        for step in &script.steps {
            if random.below(6) == 0 {
                kernel.disable_thp(random.pick(&DISABLE));
            }
            let seen = probe(&mut kernel, script.first_page(), &mut random, &context);
            totals = [totals[0] + seen[0], totals[1] + seen[1]];
            kernel.execute(&step.op, script.first_page());
        }
    }
    eprintln!("{SCRIPTS} scripts from seed {FIRST_SEED}: {} huge pages, {} other outcomes", totals[0], totals[1]);
    assert!(totals.iter().all(|&count| count > 1000), "too few cases to draw a conclusion");
    Ok(())
}
