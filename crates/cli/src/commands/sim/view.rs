//! A simulation as text.

use hksim_explore::described::Described;
use hksim_reports::{simulation, simulation_head};
use hksim_sim::SimReport;

use crate::flags::{ModesFrom, RunConfig};
use crate::output::screen;
use crate::output::table::text;

/// The whole report.
pub fn table<P: Described>(report: &SimReport<P>, config: &RunConfig) -> String {
    let figures = simulation::lines(report, screen::columns());
    text(&[head(report, config), figures].concat())
}

/// The inputs and the assumptions.
pub fn head<P: Described>(report: &SimReport<P>, config: &RunConfig) -> Vec<String> {
    simulation_head::lines(report, ModesFrom::of(std::slice::from_ref(config)))
}
