//! Which designs' paths have measured instructions.

use hksim_policy::Policy;
use hksim_policy::vocabulary::{Align, Header};

/// What of a policy runs code that `tools/path-costs` has not measured; `None` if all of it was. Such a design has no
/// predicted time.
pub fn not_calibrated(policy: &Policy) -> Option<&'static str> {
    match policy {
        Policy { huge, .. } if huge.is_hugetlb() => Some("pages of the hugetlb pool"),
        Policy { header, header_bytes: 1, .. } if *header != Header::None => Some("headers of 1 byte"),
        Policy { align, .. } if *align != Align::Arena => Some("separate mappings of SuperSlabs"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_measured_is_named() {
        let default = Policy::DEFAULT;
        assert_eq!(not_calibrated(&default), None);
        assert_eq!(not_calibrated(&Policy { header: Header::Full, header_bytes: 16, ..default }), None);
        assert_eq!(not_calibrated(&Policy { header: Header::Full, ..default }), Some("headers of 1 byte"));
        assert_eq!(not_calibrated(&Policy { align: Align::Trim, ..default }), Some("separate mappings of SuperSlabs"));
    }
}
