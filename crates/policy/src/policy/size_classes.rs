//! Size classes: built-in schemes, a rule, or a list of block sizes.

use core::fmt;

use crate::policy::flags::ValueError;

/// Largest block size of a class, in bytes.
pub const STRIDE_MAX: u32 = 64 << 10;
/// Maximum number of classes of a scheme.
pub const CLASSES_MAX: usize = 96;
/// Block sizes are multiples of this many bytes.
const STEP_BYTES: u32 = 8;
/// Most classes per doubling: with more, a scheme would have more than [`CLASSES_MAX`] classes.
const PER_DOUBLING_MAX: u8 = 8;
/// Separates the sizes of a list. A comma separates designs, and a plus sign separates flags.
const SEPARATOR: char = '/';
/// Prefix of the number of classes per doubling.
const SPACING: &str = "spacing-";

/// Size classes up to 64 KiB. Larger blocks have no class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum SizeClasses {
    /// 8; 16 to 128 in steps of 16; then four per doubling.
    #[default]
    Default,
    /// Powers of two from 8 to 1024 (HAKMEM's classes C0 to C7); then four per doubling.
    Hakmem,
    /// 8; then steps of 16 up to 1024; then four per doubling.
    Linear,
    /// 8; then evenly spaced classes in each doubling from 16 on, rounded up to multiples of 16.
    Spacing(PerDoubling),
    /// The sizes of a list; above its last, those of [`Default`](SizeClasses::Default).
    List(ClassList),
}

/// Number of classes per doubling, 1 to 8.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PerDoubling(u8);

impl PerDoubling {
    /// A number of classes per doubling; `None` unless it is 1 to 8.
    pub const fn new(classes: u8) -> Option<PerDoubling> {
        if matches!(classes, 1..=PER_DOUBLING_MAX) { Some(PerDoubling(classes)) } else { None }
    }

    /// The number.
    pub const fn get(self) -> u32 {
        self.0 as u32
    }
}

/// Block sizes: ascending multiples of 8 up to 64 KiB.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClassList {
    count: u8,
    /// In steps of 8 bytes. Zero after the last, so that equal lists have equal fields.
    steps: [u16; CLASSES_MAX],
}

/// Why a list of block sizes is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassListError {
    /// A size is not a number.
    NotANumber,
    /// A size is not a multiple of 8 from 8 to 64 KiB.
    Size(u32),
    /// A size is not larger than the one before.
    Order(u32),
    /// With the default's classes above the last size, there are too many.
    Count,
}

impl fmt::Display for ClassListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClassListError::NotANumber => {
                f.write_str("expected block sizes in bytes, separated by slashes (8/16/32/48/64)")
            }
            ClassListError::Size(bytes) => {
                write!(
                    f,
                    "a block cannot have {bytes} byte{}; use multiples of {STEP_BYTES} up to {STRIDE_MAX}",
                    if *bytes == 1 { "" } else { "s" }
                )
            }
            ClassListError::Order(bytes) => {
                write!(f, "{bytes} is not larger than the size before it; write the sizes in ascending order")
            }
            ClassListError::Count => write!(
                f,
                "these and the default's classes above them are more than {CLASSES_MAX} classes; list fewer sizes"
            ),
        }
    }
}

impl core::error::Error for ClassListError {}

impl ClassList {
    const EMPTY: ClassList = ClassList { count: 0, steps: [0; CLASSES_MAX] };

    /// A list of block sizes in bytes.
    ///
    /// # Errors
    /// The sizes are no ascending multiples of 8 up to 64 KiB, or too many.
    pub fn new(strides: &[u32]) -> Result<ClassList, ClassListError> {
        let list = strides.iter().try_fold(ClassList::EMPTY, |list, &stride| list.and(stride))?;
        list.checked()
    }

    fn parse(word: &str) -> Result<ClassList, ClassListError> {
        let sizes = word.split(SEPARATOR).map(|size| {
            let is_number = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_digit());
            size.parse::<u32>().ok().filter(|_| is_number).ok_or(ClassListError::NotANumber)
        });
        let mut list = ClassList::EMPTY;
        for size in sizes {
            list = list.and(size?)?;
        }
        list.checked()
    }

    /// The list with one size more.
    fn and(mut self, stride: u32) -> Result<ClassList, ClassListError> {
        if !stride.is_multiple_of(STEP_BYTES) || stride == 0 || stride > STRIDE_MAX {
            return Err(ClassListError::Size(stride));
        }
        if self.last().is_some_and(|last| stride <= last) {
            return Err(ClassListError::Order(stride));
        }
        let slot = self.steps.get_mut(usize::from(self.count)).ok_or(ClassListError::Count)?;
        *slot = (stride / STEP_BYTES) as u16;
        self.count += 1;
        Ok(self)
    }

    /// The list, if it leaves room for the default's classes above it.
    fn checked(self) -> Result<ClassList, ClassListError> {
        let mut last = self.last().ok_or(ClassListError::NotANumber)?;
        let mut count = usize::from(self.count);
        while last < STRIDE_MAX {
            last = SizeClasses::Default.stride_after(last);
            count += 1;
        }
        if count <= CLASSES_MAX { Ok(self) } else { Err(ClassListError::Count) }
    }

    /// The sizes in bytes, ascending.
    pub fn strides(&self) -> impl Iterator<Item = u32> + '_ {
        self.steps[..usize::from(self.count)].iter().map(|&steps| u32::from(steps) * STEP_BYTES)
    }

    const fn last(&self) -> Option<u32> {
        if self.count == 0 { None } else { Some(self.steps[self.count as usize - 1] as u32 * STEP_BYTES) }
    }

    /// The smallest size above `stride`.
    const fn after(&self, stride: u32) -> Option<u32> {
        let mut index = 0;
        while index < self.count as usize {
            let listed = self.steps[index] as u32 * STEP_BYTES;
            if listed > stride {
                return Some(listed);
            }
            index += 1;
        }
        None
    }
}

impl fmt::Debug for ClassList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&SizeClasses::List(*self), f)
    }
}

impl SizeClasses {
    /// The words of schemes and rules, in the order of the help text. A list is written as its sizes.
    pub const WORDS: &'static [&'static str] = &[
        "default",
        "hakmem",
        "linear",
        "spacing-1",
        "spacing-2",
        "spacing-3",
        "spacing-4",
        "spacing-5",
        "spacing-6",
        "spacing-7",
        "spacing-8",
    ];

    /// Reads a word, or sizes separated by slashes.
    ///
    /// # Errors
    /// The word is unknown, or the list is invalid.
    pub fn parse(word: &str) -> Result<SizeClasses, ValueError> {
        if word.starts_with(|first: char| first.is_ascii_digit()) {
            return ClassList::parse(word).map(SizeClasses::List).map_err(ValueError::ClassList);
        }
        if let Some(spacing) = word.strip_prefix(SPACING) {
            let digit = spacing.parse().ok().filter(|_| spacing.len() == 1);
            let per_doubling = digit.and_then(PerDoubling::new);
            return per_doubling.map(SizeClasses::Spacing).ok_or(ValueError::Word(SizeClasses::WORDS));
        }
        match word {
            "default" => Ok(SizeClasses::Default),
            "hakmem" => Ok(SizeClasses::Hakmem),
            "linear" => Ok(SizeClasses::Linear),
            _ => Err(ValueError::Word(SizeClasses::WORDS)),
        }
    }

    /// The smallest block size above `stride`, which is below 64 KiB; above 0, the first.
    pub const fn stride_after(&self, stride: u32) -> u32 {
        match self {
            SizeClasses::List(list) => match list.after(stride) {
                Some(listed) => listed,
                None => SizeClasses::Default.stride_after(stride),
            },
            _ if stride < 8 => 8,
            _ if stride < 16 => 16,
            SizeClasses::Spacing(per_doubling) => spaced_after(stride, per_doubling.get()),
            SizeClasses::Hakmem if stride < 1024 => 1 << (stride.ilog2() + 1),
            SizeClasses::Linear if stride < 1024 => next_multiple(stride, 16),
            SizeClasses::Default if stride < 128 => next_multiple(stride, 16),
            _ => spaced_after(stride, 4),
        }
    }
}

/// The smallest multiple above `stride`.
const fn next_multiple(stride: u32, multiple: u32) -> u32 {
    (stride / multiple + 1) * multiple
}

/// The smallest of the classes above `stride` that are evenly spaced in each doubling and rounded up to multiples of 16.
const fn spaced_after(stride: u32, per_doubling: u32) -> u32 {
    let base: u32 = 1 << stride.ilog2();
    let mut part = 1;
    loop {
        let spaced = base + (base * part).div_ceil(per_doubling);
        let rounded = spaced.next_multiple_of(16);
        if rounded > stride {
            return rounded;
        }
        part += 1;
    }
}

impl fmt::Display for SizeClasses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SizeClasses::Default => f.write_str("default"),
            SizeClasses::Hakmem => f.write_str("hakmem"),
            SizeClasses::Linear => f.write_str("linear"),
            SizeClasses::Spacing(per_doubling) => write!(f, "{SPACING}{}", per_doubling.get()),
            SizeClasses::List(list) => list.strides().enumerate().try_for_each(|(index, stride)| {
                if index > 0 {
                    write!(f, "{SEPARATOR}")?;
                }
                write!(f, "{stride}")
            }),
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for SizeClasses {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for SizeClasses {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<SizeClasses, D::Error> {
        struct Word;
        impl serde::de::Visitor<'_> for Word {
            type Value = SizeClasses;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("the name of a scheme of size classes, or block sizes separated by slashes")
            }

            fn visit_str<E: serde::de::Error>(self, word: &str) -> Result<SizeClasses, E> {
                SizeClasses::parse(word).map_err(|why| match why {
                    ValueError::Word(known) => E::unknown_variant(word, known),
                    why => E::custom(format_args!("`{word}`: {why}")),
                })
            }
        }
        deserializer.deserialize_str(Word)
    }
}
