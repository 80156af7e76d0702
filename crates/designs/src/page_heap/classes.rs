//! Size classes: up to 128 bytes every 16 bytes, then eight for each doubling, so that at most an eighth is unused.

use super::PageHeapSettings;

/// Classes of at most this many bytes are 16 bytes apart.
const FINE_BYTES: u64 = 128;
const STEP_BYTES: u64 = 16;
/// Classes of a doubling.
const STEPS: u64 = 8;
/// A batch has at most this many bytes, but at least two objects.
const BATCH_BYTES: u64 = 64 << 10;

/// Highest number of classes: those of 256 KiB.
pub(super) const CLASSES_MAX: u64 = FINE_BYTES / STEP_BYTES + 11 * STEPS;

/// The classes of some settings.
#[derive(Clone, Copy, Debug)]
pub(super) struct Classes {
    page_bytes: u64,
    small_bytes_max: u64,
    batch_objects_max: u64,
}

impl Classes {
    /// `None` if a setting is out of range.
    pub(super) fn new(settings: &PageHeapSettings) -> Option<Classes> {
        let PageHeapSettings { span_page_bytes: page_bytes, small_bytes_max, batch_objects_max, .. } = *settings;
        let is_valid = page_bytes.is_power_of_two()
            && small_bytes_max.is_power_of_two()
            && (4 << 10..=256 << 10).contains(&page_bytes)
            && (1 << 10..=256 << 10).contains(&small_bytes_max)
            && (2..=1024).contains(&batch_objects_max)
            && settings.transfer_batches_max <= super::tables::BATCHES_MAX;
        is_valid.then_some(Classes { page_bytes, small_bytes_max, batch_objects_max })
    }

    /// The class for a request; `None` if it needs a span of its own. A class serves an alignment that divides its size,
    /// because its objects begin at multiples of that in a span.
    pub(super) fn of(&self, bytes: u64, align: u64) -> Option<u64> {
        if bytes > self.small_bytes_max || align > self.page_bytes {
            return None;
        }
        let first = class_of(bytes);
        (first..=class_of(self.small_bytes_max)).find(|&class| self.bytes(class).is_multiple_of(align))
    }

    /// Bytes of an object.
    pub(super) fn bytes(&self, class: u64) -> u64 {
        let fine = FINE_BYTES / STEP_BYTES;
        if class < fine {
            return (class + 1) * STEP_BYTES;
        }
        let (doubling, step) = ((class - fine) / STEPS, (class - fine) % STEPS);
        let start = FINE_BYTES << doubling;
        start + (step + 1) * (start / STEPS)
    }

    /// Number of classes.
    pub(super) fn count(&self) -> u64 {
        class_of(self.small_bytes_max) + 1
    }

    /// Objects of a batch.
    pub(super) fn batch(&self, class: u64) -> u64 {
        (BATCH_BYTES / self.bytes(class)).clamp(2, self.batch_objects_max)
    }

    /// Pages of a span: the fewest with a quarter of a batch of objects, of which at most an eighth remains unused.
    pub(super) fn pages(&self, class: u64) -> u64 {
        let (object_bytes, objects_min) = (self.bytes(class), (self.batch(class) / 4).max(1));
        let suits = |pages: &u64| {
            let bytes = pages * self.page_bytes;
            bytes / object_bytes >= objects_min && bytes % object_bytes <= bytes / 8
        };
        // A span of eight objects or more wastes less than an eighth.
        let pages_max = (objects_min.max(8) * object_bytes).div_ceil(self.page_bytes);
        (1..pages_max).find(suits).unwrap_or(pages_max)
    }

    /// Objects of a span.
    pub(super) fn objects(&self, class: u64) -> u64 {
        self.pages(class) * self.page_bytes / self.bytes(class)
    }
}

/// The smallest class with this many bytes.
fn class_of(bytes: u64) -> u64 {
    if bytes <= FINE_BYTES {
        return bytes.max(1).div_ceil(STEP_BYTES) - 1;
    }
    let doubling = u64::from((bytes - 1).ilog2() - FINE_BYTES.ilog2());
    let start = FINE_BYTES << doubling;
    FINE_BYTES / STEP_BYTES + doubling * STEPS + (bytes - start).div_ceil(start / STEPS) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_gets_the_smallest_class_that_holds_it_and_wastes_an_eighth_at_most() {
        let classes = Classes::new(&PageHeapSettings::default()).expect("valid settings");
        assert_eq!(classes.count(), CLASSES_MAX);
        let mut sizes: Vec<u64> = (0..classes.count()).map(|class| classes.bytes(class)).collect();
        assert_eq!((sizes[0], sizes[8], sizes[CLASSES_MAX as usize - 1]), (16, 144, 256 << 10));
        assert!(sizes.iter().all(|bytes| bytes.is_multiple_of(16)) && sizes.is_sorted());
        sizes.insert(0, 0);
        for bytes in 1..=256 << 10 {
            let smallest = sizes.iter().position(|&size| size >= bytes).expect("a class") as u64 - 1;
            assert_eq!(classes.of(bytes, 1), Some(smallest), "{bytes}");
        }
    }

    #[test]
    fn spans_hold_some_objects_with_little_waste() {
        for page_bytes in [4 << 10, 8 << 10, 64 << 10, 256 << 10] {
            let settings = PageHeapSettings { span_page_bytes: page_bytes, ..PageHeapSettings::default() };
            let classes = Classes::new(&settings).expect("valid settings");
            for class in 0..classes.count() {
                let bytes = classes.pages(class) * page_bytes;
                let used = classes.objects(class) * classes.bytes(class);
                assert!(classes.objects(class) >= (classes.batch(class) / 4).max(1), "{page_bytes} {class}");
                assert!(bytes - used <= bytes / 8, "{page_bytes} {class}");
            }
        }
    }

    #[test]
    fn an_aligned_request_gets_a_class_that_is_a_multiple() {
        let classes = Classes::new(&PageHeapSettings::default()).expect("valid settings");
        let bytes = |bytes, align| classes.of(bytes, align).map(|class| classes.bytes(class));
        assert_eq!(bytes(100, 64), Some(128));
        assert_eq!(bytes(130, 64), Some(192));
        assert_eq!(bytes(1, 4096), Some(4096));
        assert_eq!(bytes(5000, 4096), Some(8192));
        assert_eq!(bytes(1, 16 << 10), None, "above a page");
        assert_eq!(bytes((256 << 10) + 1, 1), None);
    }
}
