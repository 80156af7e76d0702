//! Cache lines and system time of designs, as JSON for `tools/time-terms`: `line_time PROFILE.toml TRACE.hkt DESIGN.json...`.
//! Without the profile's file, this machine is measured and the file is written.

use std::error::Error;
use std::path::Path;
use std::time::Duration;

use hksim_cost_model::line_price::LinePrice;
use hksim_cost_model::measure::{Effort, measure};
use hksim_cost_model::{Profile, SystemTime};
use hksim_explore::priced::work;
use hksim_policy::Policy;
use hksim_sim::simulate::Marks;
use hksim_sim::{Counted, SimConfig, simulate};
use hksim_time_model::line_accesses;
use hksim_trace::hkt::TraceReader;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [profile, trace, designs @ ..] = arguments.as_slice() else {
        return Err("usage: line_time PROFILE.toml TRACE.hkt DESIGN.json...".into());
    };
    let profile = Path::new(profile);
    if !profile.exists() {
        std::fs::write(profile, measure(Effort { rounds: 20, time_max: Duration::from_secs(20), rests: &[] })?.text())?;
    }
    let profile = Profile::read(profile)?;
    for design in designs {
        let policy: Policy = serde_json::from_str(design)?;
        let config = SimConfig { policy, counted: Counted::Time, ..SimConfig::default() };
        let simulated = simulate(&mut TraceReader::open(trace.as_ref())?, &config, Marks::Skip, &|_| ())?;
        let lines = line_accesses(simulated.report.lines.as_ref().ok_or("no lines were counted")?);
        let price = profile.memory.as_ref().and_then(|memory| LinePrice::of(&lines, memory));
        let rows: Vec<_> =
            lines.iter().map(|row| serde_json::json!([row.part, row.is_huge, row.reuse_bytes, row.accesses])).collect();
        let system = SystemTime::of(&work(&simulated.report), &profile);
        let row = serde_json::json!({
            "trace": trace, "design": design, "events": simulated.report.events, "system_time": system,
            "installs": simulated.report.installs.total, "lines": rows, "line_price": price,
        });
        println!("{row}");
    }
    Ok(())
}
