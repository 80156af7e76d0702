//! Programs whose stacks are small: the recorder needs no more stack than other preloaded allocators.

use std::num::NonZeroU32;

use hksim_record::{Exit, Options, Touch, record};

use crate::support::{compile, events, mallocs_of, scratch};

/// Arguments of `small_stacks.c`, and the mallocs of 100 bytes of the program itself.
const CASES: [(&str, usize); 4] = [("handler", 3), ("coroutine", 3), ("child", 0), ("threads", 20)];

#[test]
fn programs_with_small_stacks_are_recorded() {
    let dir = scratch();
    let program = compile(dir.path(), "small_stacks", &["-Wl,-z,now"]);
    let pages = Touch::Pages { sample: NonZeroU32::MIN };
    for (stack_depth, touch) in [(None, Touch::None), (Some(16), Touch::None), (None, pages.clone()), (Some(16), pages)]
    {
        for (case, mallocs) in CASES {
            let output = dir.path().join("app.hkt");
            let options = Options { output, stack_depth, touch: touch.clone(), ..Options::default() };
            let command = [program.clone().into_os_string(), case.into()];
            let report = record(&options, &command).expect("a recording");
            assert_eq!(report.exit, Some(Exit::Code(0)), "{case}, {stack_depth:?}, {touch:?}");
            let own = events(&report.traces[0]);
            assert_eq!(mallocs_of(&own, 100), mallocs, "{case}, {stack_depth:?}, {touch:?}");
            assert!(report.traces.iter().all(|trace| trace.quality.events_lost == 0), "{case}: nothing is lost");
        }
    }
}
