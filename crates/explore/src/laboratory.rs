//! Simulates the designs that advice asks for.

use std::collections::BTreeMap;

use hksim_cost_model::Profile;
use hksim_engine::TouchRule;
use hksim_policy::Policy;
use hksim_sim::SimConfig;
use hksim_sim::tlb::Geometry;
use hksim_trace::header::TouchSource;

use crate::advise::{Compared, Laboratory, Trial};
use crate::answer::Design;
use crate::answers;
use crate::error::ExploreError;
use crate::figures::Figures;
use crate::flags::table::{FLAGS, Flag, Subject, find};
use crate::flags::{BaseKernel, RunConfig};
use crate::inputs::Trace;
use crate::priced::{self, Priced};
use crate::rank::Case;
use crate::runs::{BRACKET, Listener, setup, simulate_once};
use crate::search::{Axis, Point, Space};

/// Simulations of designs on some traces.
pub struct Simulations<'a> {
    /// The traces, each with the setups of the current batch.
    runs: Vec<(Trace, Vec<SimConfig>)>,
    weights: Vec<f64>,
    /// The flag and the words of each axis.
    axes: Vec<(&'static Flag, &'a [String])>,
    base: RunConfig,
    profile: Option<&'a Profile>,
    core: Option<&'static Geometry>,
    listener: &'a dyn Listener,
    /// The run configuration of each design, by name.
    configs: BTreeMap<String, RunConfig>,
}

impl<'a> Simulations<'a> {
    /// Simulations of the points of a space, which modify `base`.
    ///
    /// # Errors
    /// An axis has no flag.
    pub fn new(
        traces: Vec<Trace>,
        weights: Vec<f64>,
        space: &'a Space,
        base: RunConfig,
        profile: Option<&'a Profile>,
        core: Option<&'static Geometry>,
        listener: &'a dyn Listener,
    ) -> Result<Simulations<'a>, ExploreError> {
        let axis = |axis: &'a Axis| {
            let flag = find(&axis.flag).ok_or_else(|| ExploreError::NoFlag(axis.flag.clone()))?;
            Ok((flag, axis.words.as_slice()))
        };
        let axes = space.axes.iter().map(axis).collect::<Result<_, ExploreError>>()?;
        let runs = traces.into_iter().map(|trace| (trace, Vec::new())).collect();
        Ok(Simulations { runs, weights, axes, base, profile, core, listener, configs: BTreeMap::new() })
    }

    /// The run configuration of a point.
    ///
    /// # Errors
    /// Its words exclude each other.
    fn config(&self, point: &Point) -> Result<RunConfig, ExploreError> {
        let words = self.axes.iter().zip(point).filter_map(|((flag, words), &word)| Some((*flag, words.get(word)?)));
        with_words(&self.base, words)
    }

    /// Why the words of the space's start exclude each other.
    pub fn refusal(&self) -> Option<ExploreError> {
        self.config(&vec![0; self.axes.len()]).err()
    }

    /// The design that others are compared with: the base with every word that all designs have. If these words need
    /// another policy than the base's, the base's policy itself.
    fn baseline(&self) -> Result<RunConfig, ExploreError> {
        let fixed =
            || self.axes.iter().filter_map(|(flag, words)| if let [word] = words { Some((*flag, word)) } else { None });
        let outside_policy = fixed().filter(|(flag, _)| flag.subject != Subject::Policy);
        with_words(&self.base, fixed()).or_else(|_| with_words(&self.base, outside_policy))
    }

    /// The flags in which a design differs from the base.
    fn name(&self, config: &RunConfig) -> String {
        let base = RunConfig { policy: self.base.policy, ..config.clone() };
        differences(config, &base)
    }

    /// The figures of each configuration, one per trace. `touch` replaces assumed touches.
    fn simulate(&mut self, configs: &[RunConfig], touch: Option<TouchRule>) -> Result<Vec<Vec<Figures>>, ExploreError> {
        for (trace, setups) in &mut self.runs {
            let is_assumed = trace.header.touch == TouchSource::Assumed;
            *setups = configs
                .iter()
                .map(|config| {
                    let given = touch.filter(|_| is_assumed).or(config.touch);
                    let config = RunConfig { touch: given, ..config.clone() };
                    let counted = priced::counted(&config.policy, self.profile);
                    let setup = SimConfig { tlb: self.core, counted, ..setup(&config, trace, BaseKernel::AsItComes)? };
                    self.listener.simulates(&setup.policy, &setup.kernel);
                    Ok(setup)
                })
                .collect::<Result<Vec<SimConfig>, ExploreError>>()?;
        }
        if configs.is_empty() {
            return Ok(Vec::new());
        }
        let rows = simulate_once(&self.runs, &*self.listener.begin())?;
        let figures: Vec<Figures> =
            rows.into_iter().map(|row| priced::figures(&Priced::new(row, self.profile))).collect();
        let designs = 0..configs.len();
        Ok(designs.map(|design| figures.iter().skip(design).step_by(configs.len()).copied().collect()).collect())
    }

    fn trial(&mut self, config: &RunConfig, baseline: &Policy, figures: Vec<Figures>) -> Trial {
        let name = self.name(config);
        self.configs.insert(name.clone(), config.clone());
        Trial { design: Design::compared_with(name, &config.policy, baseline), policy: config.policy, figures }
    }
}

/// A configuration with these words.
fn with_words<'w>(
    base: &RunConfig,
    words: impl Iterator<Item = (&'static Flag, &'w String)>,
) -> Result<RunConfig, ExploreError> {
    let mut config = base.clone();
    for (flag, word) in words {
        flag.set(&mut config, word).map_err(|why| ExploreError::Word { flag: flag.name.into(), why })?;
    }
    config.check()?;
    Ok(config)
}

/// The flags of the allocator and the kernel in which a configuration differs from another.
pub fn differences(config: &RunConfig, from: &RunConfig) -> String {
    let differs = |flag: &&Flag| flag.subject != Subject::Program && flag.show(config) != flag.show(from);
    let words = FLAGS.iter().filter(differs).map(|flag| format!("--{} {}", flag.name, flag.show(config)));
    words.collect::<Vec<_>>().join(" ")
}

impl Laboratory for Simulations<'_> {
    type Error = ExploreError;

    fn cases(&self) -> Vec<Case> {
        let case = |(number, ((trace, _), &weight)): (usize, (&(Trace, Vec<SimConfig>), &f64))| Case {
            name: answers::trace_name(&trace.label()),
            trace: number,
            assumption: None,
            weight,
            designs: Vec::new(),
        };
        self.runs.iter().zip(&self.weights).enumerate().map(case).collect()
    }

    fn baseline_trial(&mut self) -> Result<Trial, ExploreError> {
        let config = self.baseline()?;
        let figures = self.simulate(std::slice::from_ref(&config), None)?;
        Ok(self.trial(&config, &config.policy, figures.into_iter().next().unwrap_or_default()))
    }

    fn trials(&mut self, points: &[Point]) -> Result<Vec<Option<Trial>>, ExploreError> {
        let configs: Vec<Option<RunConfig>> = points.iter().map(|point| self.config(point).ok()).collect();
        let valid: Vec<RunConfig> = configs.iter().flatten().cloned().collect();
        let mut figures = self.simulate(&valid, None)?.into_iter();
        let baseline = self.baseline()?.policy;
        Ok(configs.into_iter().map(|config| Some(self.trial(&config?, &baseline, figures.next()?))).collect())
    }

    fn assumptions(&mut self, winner: &Trial, against: &Trial) -> Result<Vec<(String, Compared)>, ExploreError> {
        let is_assumed = self.runs.iter().any(|(trace, _)| trace.header.touch == TouchSource::Assumed);
        let configs: Vec<RunConfig> =
            [winner, against].iter().filter_map(|trial| self.configs.get(&trial.design.name).cloned()).collect();
        let is_given = configs.iter().any(|config| config.touch.is_some());
        if !is_assumed || is_given || configs.len() != 2 {
            return Ok(Vec::new());
        }
        let mut compared = Vec::new();
        for rule in BRACKET {
            let figures = self.simulate(&configs, Some(rule))?;
            let pairs = figures[0].iter().zip(&figures[1]).map(|(&winner, &against)| [winner, against]);
            compared.push((rule.word().to_string(), pairs.collect()));
        }
        Ok(compared)
    }
}
