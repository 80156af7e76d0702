//! `explain --fit`: which hypotheses explain counts measured elsewhere.

use std::path::Path;

use anyhow::Result;
use hksim_explore::fit::{Demand, fit};
use hksim_policy::classes::Classes;
use hksim_results::fit::{Count, Fitted, demand, read, refuse_repeated};

use crate::flags::{BaseKernel, RunConfig};
use crate::inputs;
use crate::output::table::{Lines, Table, text};
use crate::output::{OutputArgs, units};
use crate::runs::{setup, simulate_all};
use hksim_explore::inputs::Trace;
use hksim_results::Stamp;

/// Number of hypotheses in the text; JSON and CSV have all.
const SHOWN: usize = 12;

/// Ranks hypotheses for the counts of a file.
///
/// # Errors
/// The file or a trace cannot be read.
pub fn run(file: &Path, tolerance: f64, config: &RunConfig, output: &OutputArgs) -> Result<()> {
    let counts = read(file)?;
    let traces = counts.iter().map(|(path, _)| inputs::file(path)).collect::<Result<Vec<Trace>>>()?;
    refuse_repeated(file, &traces)?;
    let classes = Classes::new(config.policy.classes);
    let demands =
        counts.iter().map(|(path, _)| demand(path, &classes, &config.policy)).collect::<Result<Vec<Demand>, _>>()?;
    let runs = traces.into_iter().map(|trace| -> Result<_> {
        let setups = vec![setup(config, &trace, BaseKernel::AsItComes)?];
        Ok((trace, setups))
    });
    let reports = simulate_all(&runs.collect::<Result<Vec<_>>>()?)?;
    let predicted: Vec<u64> = reports.iter().map(|report| report.installs.total).collect();
    let measured: Vec<u64> = counts.iter().map(|&(_, count)| count).collect();
    let fit = fit(&measured, &demands, &predicted, tolerance);
    let counts = counts.iter().zip(&predicted).map(|((path, count), &installs_predicted)| Count {
        trace: path.display().to_string(),
        count: *count,
        installs_predicted,
    });
    let fitted = Fitted { stamp: Stamp::HERE, policy: config.policy, counts: counts.collect(), fit };
    output.emit(&fitted, &fitted.fit.hypotheses, || table(&fitted))
}

fn table(fitted: &Fitted) -> String {
    let mut table = Table::new(["trace", "count", "the design, simulated"], &[0]);
    for Count { trace, count, installs_predicted } in &fitted.counts {
        table.push([trace.clone(), units::count(*count), units::count(*installs_predicted)]);
    }
    let mut lines = table.lines();
    lines.extend([String::new(), fitted.fit.sentence.clone(), String::new()]);
    let mut table = Table::new(["count = fixed + part", "fixed", "part", "largest deviation", ""], &[0, 4]);
    for hypothesis in fitted.fit.hypotheses.iter().take(SHOWN) {
        table.push([
            hypothesis.name.clone(),
            // Rounded first: else it could be -0.
            format!("{:.0}", hypothesis.fixed.round() + 0.0),
            units::digits(hypothesis.per_unit),
            format!("{:.2} %", hypothesis.residual_worst * 100.0),
            match (hypothesis.fits, hypothesis.has_negative_part) {
                (true, _) => "fits".to_string(),
                (false, true) => "negative".to_string(),
                (false, false) => String::new(),
            },
        ]);
    }
    lines.extend(table.lines());
    text(&lines)
}
