//! Random settings of a listed design.

use hksim_designs::{About, Listed, Values};
use hksim_testkit::Random;
use serde_json::Value;

/// Settings that the design accepts.
pub fn random<D: Listed>(random: &mut Random) -> Value {
    let about = About::of::<D>();
    loop {
        let mut settings = about.default.clone();
        for setting in about.settings {
            settings[setting.field] = value(setting.values, random);
        }
        if about.check(&settings).is_ok() {
            return settings;
        }
    }
}

/// A value in the range of a setting; of sizes, more often a small one.
fn value(values: Values, random: &mut Random) -> Value {
    const PAGE: u64 = 4096;
    const BYTES_MAX: u64 = 64 << 20;
    match values {
        Values::PowerOfTwo(min, max) => (min << random.below(u64::from((max / min).ilog2()) + 1)).into(),
        Values::Pages(min, max) if random.per_mille(800) => {
            (random.log_uniform(max.min(BYTES_MAX) / PAGE) * PAGE).max(min).into()
        }
        Values::Pages(min, _) => min.into(),
        Values::Count(min, max) if random.per_mille(800) => random.log_uniform(max).max(min).into(),
        Values::Count(min, max) => random.pick(&[min, max]).into(),
        Values::Words(words) => random.pick(words).into(),
        Values::YesNo => random.per_mille(500).into(),
    }
}
