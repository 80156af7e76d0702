//! Stacks that grow, against figures measured on Linux 6.18 with an array of 6 MiB on the main stack (`setarch -R`): the
//! faults of touching it upward and downward, under mode `always` and with folios of 64 KiB.

use hksim_linux_mm::{KernelConfig, SizeMode, ThpConfig, ThpMode};
use hksim_memory_sim::{Detail, Family, Prediction, Setting, StackPrediction, simulate};
use hksim_memory_trace::{Event, Footer, Header, MapOp, MappingKind, Op, Origin, SiteId, TouchKind, Writer};

/// The end of a main stack with a fixed address.
const TOP: u64 = 0x7_ffff_ffff;
const MADV_HUGEPAGE: u32 = 14;

/// The main stack, from `distance` pages below its end.
fn stack(distance: u64, origin: Origin) -> Op {
    let (pages, kind) = (TOP - distance..TOP, MappingKind::GrowingStack);
    Op::Map(Box::new(MapOp { pages, hint_page: 0, kind, origin, protection: 3, flags: 2, name: None }))
}

fn write(distance: u64) -> Op {
    Op::Touch { page: TOP - distance, kind: TouchKind::Write }
}

/// What exec and the program's first frame do: one page of arguments, and a touch below it.
fn begun() -> Vec<Op> {
    vec![stack(33, Origin::Exec), write(2)]
}

/// Touches of an array that is the part of the stack from 1537 to 3 pages below its end.
fn upward() -> Vec<Op> {
    let mut ops = begun();
    // The kernel reports the fault first, and then that the stack has grown.
    ops.extend([write(1537), stack(1537, Origin::Kernel)]);
    ops.extend((3..1537).rev().map(write));
    ops
}

fn downward() -> Vec<Op> {
    let grown = (34..=1537).flat_map(|distance| [write(distance), stack(distance, Origin::Kernel)]);
    begun().into_iter().chain((3..34).map(write)).chain(grown).collect()
}

fn predicted(ops: Vec<Op>, thp: ThpConfig, addresses_random: bool) -> Prediction {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("a.hkm");
    let mut header = Header::example(&["a"]);
    header.machine.addresses_random = addresses_random;
    let mut writer = Writer::create(&path, &header).expect("a file");
    for (number, op) in ops.into_iter().enumerate() {
        writer.push(Event { time_ns: 1000 * number as u64, thread: 0, op, site: SiteId::UNKNOWN }).expect("an event");
    }
    writer.finish(&Footer::default()).expect("a file");
    let kernel = KernelConfig { thp, ..KernelConfig::default() };
    let setting = Setting::recorded(kernel);
    let result = simulate(Family::open(&path).expect("a recording"), &[setting], Detail::Figures).expect("a result");
    assert!(result.traps_outside.is_empty() && result.traps_recorded == 0);
    result.predictions.into_iter().next().expect("a prediction")
}

fn stack_of(ops: Vec<Op>, thp: ThpConfig) -> StackPrediction {
    predicted(ops, thp, false).stack.expect("a stack")
}

fn folios_of_64k() -> ThpConfig {
    let mut thp = ThpConfig::new(ThpMode::Never);
    thp.sizes[4] = SizeMode::Always;
    thp
}

#[test]
fn faults_are_those_measured() {
    let modes = [ThpConfig::new(ThpMode::Never), ThpConfig::new(ThpMode::Always), folios_of_64k()];
    // Without the touch before the array.
    let traps = |ops: fn() -> Vec<Op>| modes.map(|thp| stack_of(ops(), thp).traps - 1);
    assert_eq!(traps(upward), [1535, 513, 110]);
    assert_eq!(traps(downward), [1535, 1535, 1520]);
    let always = stack_of(upward(), modes[1]);
    assert_eq!((always.huge_pages_peak, always.touches, always.rss_bytes_peak), (2, 1536, 1537 * 4096));
}

#[test]
fn random_addresses_give_a_range() {
    // An array between 711 and 11 pages below the stack's end. The 2 MiB boundary before that end is 511 pages below.
    let mut ops = begun();
    ops.extend([write(711), stack(711, Origin::Kernel)]);
    ops.extend((11..711).rev().map(write));
    let at = |random| predicted(ops.clone(), ThpConfig::new(ThpMode::Always), random).stack.expect("a stack");
    let traps = |stack: StackPrediction| [stack.traps, stack.traps_min, stack.traps_max];
    assert_eq!(traps(at(false)), [702; 3]);
    // Where it is 56 pages below, the array holds a whole range.
    assert_eq!(traps(at(true)), [702, 702 - 511, 702]);
}

#[test]
fn a_stack_is_copied_after_a_fork_and_obeys_advice() {
    let mut ops = begun();
    ops.extend([Op::Fork { child_pid: 7 }, write(2), write(1), Op::ChildEnded { child_pid: 7 }, write(2)]);
    let stack_now = stack_of(ops, ThpConfig::new(ThpMode::Always));
    // The first touch, and two copies. The second touch after them costs nothing.
    assert_eq!((stack_now.traps, stack_now.installs.by_kind.cow), (3, 2));

    let mut ops = begun();
    ops.extend([write(1537), stack(1537, Origin::Kernel)]);
    let pages = TOP - 1537..TOP;
    ops.push(Op::Advise { pages: pages.clone(), advice: MADV_HUGEPAGE, errno: 0 });
    ops.extend((3..1537).rev().map(write));
    assert_eq!(stack_of(ops.clone(), ThpConfig::new(ThpMode::Madvise)).huge_pages_peak, 2);
    ops.push(Op::Advise { pages: pages.clone(), advice: 4, errno: 0 });
    ops.extend([write(1000), Op::Unmap(pages)]);
    let dropped = stack_of(ops, ThpConfig::new(ThpMode::Madvise));
    assert_eq!(dropped.installs.by_kind.thp, 3, "a dropped huge page is installed again");
}
