//! What cannot be done is one clear error, and equal in both worlds.

use hksim_designs::bump::{Bump, BumpSettings};
use hksim_engine::{
    AddressSpace, Advice, Cause, Design, Errno, Growth, Mapping, PAGE_BYTES, Region, Request, TouchRule,
};
use hksim_replay::{Mode, Target, replay};
use hksim_sim::{Marks, simulate_design};
use hksim_trace::hkt::TraceReader;

use crate::common::{NoThp, Setup, Trace, malloc};

pub fn bad_settings_and_unknown_designs_are_errors() -> Result<(), String> {
    let trace = Trace::of_ops([malloc(0, 100)]);
    let setup = Setup::<Bump>::without_thp(BumpSettings { chunk_bytes: 100 }, TouchRule::All)?;
    let starting = "the design `bump` cannot start: errno 22";
    let predicted = simulate_design::<Bump>(
        &mut TraceReader::open(&trace.path()).expect("a trace"),
        &setup.config(),
        Marks::Skip,
        &|_| {},
    );
    assert!(predicted.expect_err("an error").to_string().starts_with(starting));
    let refused = |change: &dyn Fn(&mut hksim_replay::ReplaySpec)| {
        let mut spec = setup.spec(&trace);
        change(&mut spec);
        replay(&spec).expect_err("an error").to_string()
    };
    assert!(refused(&|_| {}).starts_with(starting), "{}", refused(&|_| {}));
    let unknown = refused(&|spec| spec.on = Target::Design { name: "none".into(), settings: serde_json::Value::Null });
    assert_eq!(
        unknown,
        "the replay's child does not know the design `none`; it knows: bump, page-heap, runs, refusing"
    );
    let garbled = refused(&|spec| spec.on = Target::Design { name: "bump".into(), settings: serde_json::Value::Null });
    assert!(garbled.starts_with("the settings of the design `bump` are invalid: "), "{garbled}");
    let threaded = refused(&|spec| spec.mode = Mode::Threaded);
    assert_eq!(threaded, "the design `bump` has no threads of its own: replay it in ordered mode");
    Ok(())
}

/// A design that makes calls which must fail. It serves requests only if all of them returned what they should.
pub struct Refusing {
    block: Option<u64>,
}

impl Refusing {
    /// The errors of calls with bad arguments, and the effect of those that succeed.
    fn results(memory: &mut impl AddressSpace) -> Option<Vec<i32>> {
        let three = memory.map(3 * PAGE_BYTES, PAGE_BYTES, Mapping::Plain).ok()?;
        memory.write(three, 7, Cause::Metadata);
        memory.write(three + 2 * PAGE_BYTES, 9, Cause::Metadata);
        memory.unmap(three + PAGE_BYTES, PAGE_BYTES).ok()?;
        let (first, last) = (three, three + 2 * PAGE_BYTES);
        let code = |result: Result<u64, Errno>| result.map_or_else(|errno| errno.0, |_| 0);
        let unit = |result: Result<(), Errno>| code(result.map(|()| 0));
        let two = 2 * PAGE_BYTES;
        let mut results = vec![
            code(memory.map(100, PAGE_BYTES, Mapping::Plain)),
            code(memory.map(PAGE_BYTES, 3 * PAGE_BYTES, Mapping::Plain)),
            code(memory.map(2 * Region::BYTES, PAGE_BYTES, Mapping::Plain)),
            code(memory.map(PAGE_BYTES, PAGE_BYTES, Mapping::Hugetlb)),
            unit(memory.unmap(first + 1, PAGE_BYTES)),
            unit(memory.unmap(PAGE_BYTES, PAGE_BYTES)),
            unit(memory.advise(first, 3 * PAGE_BYTES, Advice::DontNeed)),
            unit(memory.advise(first + PAGE_BYTES, PAGE_BYTES, Advice::PopulateWrite)),
            code(memory.remap(first, PAGE_BYTES, 3 * PAGE_BYTES, Growth::InPlace)),
            code(memory.remap(first + PAGE_BYTES, PAGE_BYTES, two, Growth::Move { align: PAGE_BYTES })),
            code(memory.remap(first, PAGE_BYTES, 0, Growth::InPlace)),
        ];
        // The advice over a hole has dropped what is mapped; in place, the first mapping grows up to the last.
        results.push(memory.read(first, Cause::Metadata) as i32);
        results.push(memory.read(last, Cause::Metadata) as i32);
        memory.write(first, 5, Cause::Metadata);
        results.push(code(memory.remap(first, PAGE_BYTES, two, Growth::InPlace)));
        results.push(memory.read(first, Cause::Metadata) as i32);
        let moved = memory.remap(first, two, 4 * PAGE_BYTES, Growth::Move { align: 4 * PAGE_BYTES }).ok()?;
        results.extend([(moved % (4 * PAGE_BYTES)) as i32, memory.read(moved, Cause::Metadata) as i32]);
        let shrunk = memory.remap(moved, 4 * PAGE_BYTES, PAGE_BYTES, Growth::InPlace).ok()?;
        results.extend([i32::from(shrunk == moved), memory.read(shrunk, Cause::Metadata) as i32]);
        // Unmapping what is not mapped is no error; the next mapping takes the lowest free address.
        results.push(unit(memory.unmap(first, two)));
        results.push(i32::from(memory.map(PAGE_BYTES, PAGE_BYTES, Mapping::Populated) == Ok(first)));
        Some(results)
    }
}

/// As Linux and the contract of an address space say.
const EXPECTED: [i32; 21] = [22, 22, 12, 22, 22, 22, 12, 12, 12, 14, 22, 0, 0, 0, 5, 0, 5, 1, 5, 0, 1];

impl Design for Refusing {
    const NAME: &'static str = "refusing";
    type Settings = ();

    fn start(_settings: &(), memory: &mut impl AddressSpace) -> Result<Refusing, Errno> {
        let results = Refusing::results(memory).unwrap_or_default();
        let block = memory.map(1 << 20, PAGE_BYTES, Mapping::Plain)?;
        if results != EXPECTED {
            eprintln!("{results:?} instead of {EXPECTED:?}");
        }
        Ok(Refusing { block: (results == EXPECTED).then_some(block) })
    }

    fn allocate(&mut self, memory: &mut impl AddressSpace, _thread: u32, _request: Request) -> Option<u64> {
        let block = self.block?;
        memory.write(block, 1, Cause::Metadata);
        Some(block)
    }

    fn free(&mut self, _memory: &mut impl AddressSpace, _thread: u32, _block: u64) {}

    fn usable_bytes(&mut self, _memory: &mut impl AddressSpace, _block: u64) -> u64 {
        8
    }
}

pub fn calls_that_cannot_be_made_are_refused_equally() -> Result<(), String> {
    let _no_thp = NoThp::new()?;
    let setup = Setup::<Refusing>::without_thp((), TouchRule::None)?;
    let trace = Trace::of_ops([malloc(0, 8)]);
    let (predicted, measured) = setup.check(&trace, "refused calls")?;
    assert_eq!((predicted.report.requests_failed, measured.requests_failed), (0, 0));
    assert_eq!(predicted.report.os_calls_failed, 3, "those that the kernel refused, not the address space");
    Ok(())
}
