//! Ordered runs on the process's own `malloc`.

use hksim_drive::TouchRule;

use crate::error::ChildError;
use crate::protocol::Report;
use crate::spec::Run;
use crate::window::Prepared;

pub(crate) fn run(_run: Run, _touch: TouchRule, _trace: &mut Prepared) -> Result<Report, ChildError> {
    todo!()
}
