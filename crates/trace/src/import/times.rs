//! Timestamps of text traces, in nanoseconds.

const SECOND_NS: u64 = 1_000_000_000;
const DAY_NS: u64 = 24 * 3600 * SECOND_NS;

/// `SECONDS.FRACTION`, with up to nine digits after the point.
pub(super) fn seconds_ns(word: &str) -> Option<u64> {
    let (seconds, fraction) = word.split_once('.')?;
    if fraction.is_empty() || fraction.len() > 9 || !fraction.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let fraction_ns = fraction.parse::<u64>().ok()? * 10u64.pow(9 - fraction.len() as u32);
    seconds.parse::<u64>().ok()?.checked_mul(SECOND_NS)?.checked_add(fraction_ns)
}

/// `HH:MM:SS.FRACTION`, since midnight.
pub(super) fn time_of_day_ns(word: &str) -> Option<u64> {
    let mut parts = word.splitn(3, ':');
    let [hours, minutes] = [parts.next()?, parts.next()?].map(|part| part.parse::<u64>().ok());
    let seconds_ns = seconds_ns(parts.next()?)?;
    let time_ns = hours?.checked_mul(60)?.checked_add(minutes?)?.checked_mul(60 * SECOND_NS)?;
    time_ns.checked_add(seconds_ns).filter(|&time_ns| time_ns < DAY_NS)
}

/// Converts times of day without a date. A large step back means that midnight has passed.
#[derive(Default)]
pub(super) struct Days {
    base_ns: u64,
    last_ns: u64,
}

impl Days {
    /// The time since midnight of the first day.
    pub(super) fn time_ns(&mut self, of_day_ns: u64) -> u64 {
        if of_day_ns + DAY_NS / 2 < self.last_ns {
            self.base_ns = self.base_ns.saturating_add(DAY_NS);
        }
        self.last_ns = of_day_ns;
        self.base_ns.saturating_add(of_day_ns)
    }
}
