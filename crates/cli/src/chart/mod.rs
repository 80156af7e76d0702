//! Pictures of sweeps.
use anyhow::Result;
use hksim_sim::SimReport;
use std::path::Path;
/// x
pub struct ChartRow;
impl ChartRow {
    /// x
    pub fn of_report(_: &SimReport) -> ChartRow {
        ChartRow
    }
}
/// x
pub fn write(_: &Path, _: &[ChartRow]) -> Result<()> {
    Ok(())
}
