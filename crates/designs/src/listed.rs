//! The list of designs, and what it knows of each.

use hksim_engine::Design;
use serde_json::Value;

use crate::bump::Bump;
use crate::page_heap::PageHeap;
use crate::settings::Setting;

/// A design that commands find by its name.
pub trait Listed: Design<Settings: Default> + Send + 'static {
    /// What it is, in one sentence without a full stop.
    const SUMMARY: &'static str;

    /// Its settings, one for each field of [`Design::Settings`].
    const SETTINGS: &'static [Setting];

    /// Whether settings that are each within their range fit together.
    ///
    /// # Errors
    /// They do not; one sentence says why, and names the flags.
    fn check(_settings: &Self::Settings) -> Result<(), String> {
        Ok(())
    }
}

/// What is done with the type of each design.
pub trait Visitor {
    /// Is called for each design of a list, in its order.
    fn visit<D: Listed>(&mut self);
}

/// Calls the visitor with each design. To add a design, add its type to this list.
macro_rules! list {
    ($($design:ty),+ $(,)?) => {
        /// Shows every design to a visitor.
        pub fn each(visitor: &mut impl Visitor) {
            $(visitor.visit::<$design>();)+
        }
    };
}

list![Bump, PageHeap];

/// What the list knows of a design, without its type.
#[derive(Clone, Debug)]
pub struct About {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub summary: &'static str,
    /// Its settings.
    pub settings: &'static [Setting],
    /// Its default settings: an object with a value for each field.
    pub default: Value,
    check: fn(&Value) -> Result<(), String>,
}

impl About {
    /// What is known of `D`.
    pub fn of<D: Listed>() -> About {
        About {
            name: D::NAME,
            summary: D::SUMMARY,
            settings: D::SETTINGS,
            default: serde_json::to_value(D::Settings::default()).unwrap_or_default(),
            check: |settings| D::check(&serde_json::from_value(settings.clone()).map_err(|why| why.to_string())?),
        }
    }

    /// Whether settings fit together.
    ///
    /// # Errors
    /// As of [`Listed::check`], or they are not the design's.
    pub fn check(&self, settings: &Value) -> Result<(), String> {
        (self.check)(settings)
    }

    /// The setting with this flag.
    pub fn setting(&self, flag: &str) -> Option<&'static Setting> {
        self.settings.iter().find(|setting| setting.flag == flag)
    }
}

/// Collects what is known of the designs of a list.
#[derive(Default)]
struct Abouts(Vec<About>);

impl Visitor for Abouts {
    fn visit<D: Listed>(&mut self) {
        self.0.push(About::of::<D>());
    }
}

/// All designs.
pub fn all() -> Vec<About> {
    let mut abouts = Abouts::default();
    each(&mut abouts);
    abouts.0
}

/// The design with this name.
pub fn find(name: &str) -> Option<About> {
    all().into_iter().find(|about| about.name == name)
}
