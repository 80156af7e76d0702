//! The highest charge of a program's group without a limit, predicted and counted.

use hksim_text::units::bytes_pair;
use serde::{Deserialize, Serialize};

/// The highest charge without a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeakCharge {
    /// Predicted bytes.
    pub predicted_bytes: u64,
    /// What the group counted.
    pub measured_bytes: u64,
    /// The least that it can count if the prediction is right; `None` if that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_bytes_min: Option<u64>,
    /// The most: with the kernel's own memory, what it charges in advance, and what was left after the program's end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub measured_bytes_max: Option<u64>,
}

impl PeakCharge {
    /// Why the prediction is wrong; `None` if it can be right.
    pub(super) fn difference(&self) -> Option<String> {
        let pair = |bound| bytes_pair(self.measured_bytes, bound);
        let too_low = self.measured_bytes_min.filter(|least| self.measured_bytes < *least).map(|least| {
            let [measured, least] = pair(least);
            format!("at most {measured} were charged without a limit, and at least {least} were predicted")
        });
        let too_high = || {
            let most = self.measured_bytes_max.filter(|most| self.measured_bytes > *most)?;
            let [measured, most] = pair(most);
            Some(format!("{measured} were charged without a limit, and at most {most} were predicted"))
        };
        too_low.or_else(too_high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_charge_outside_what_is_possible_is_a_difference() {
        let peak = |measured_bytes, bounds: [Option<u64>; 2]| {
            let [measured_bytes_min, measured_bytes_max] = bounds;
            PeakCharge { predicted_bytes: 2 << 20, measured_bytes, measured_bytes_min, measured_bytes_max }
        };
        let bounds = [Some(2 << 20), Some(3 << 20)];
        assert_eq!(peak(2 << 20, bounds).difference(), None);
        assert_eq!(peak(3 << 20, bounds).difference(), None);
        let low = peak(1 << 20, bounds).difference().expect("a difference");
        assert_eq!(low, "at most 1.0 MiB were charged without a limit, and at least 2.0 MiB were predicted");
        let high = peak(4 << 20, bounds).difference().expect("a difference");
        assert_eq!(high, "4.0 MiB were charged without a limit, and at most 3.0 MiB were predicted");
        assert_eq!(peak(9 << 20, [Some(0), None]).difference(), None, "not known");
    }
}
