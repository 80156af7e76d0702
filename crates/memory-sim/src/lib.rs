//! Predicts what a recorded process would cost under other memory settings of Linux: another THP mode, other folio
//! sizes, another kernel version, or more advice.
//!
//! A recording ([`hksim_memory_trace`]) holds the page operations of a process. They are played to the kernel model
//! ([`hksim_linux_mm`]), once for each [`Setting`]; one pass over the recording serves all settings.
//!
//! ```no_run
//! use std::path::Path;
//!
//! use hksim_linux_mm::{KernelConfig, ThpConfig, ThpMode};
//! use hksim_memory_sim::{Detail, Family, Setting, simulate};
//!
//! let settings = [ThpMode::Never, ThpMode::Always].map(|mode| {
//!     Setting::recorded(KernelConfig { thp: ThpConfig::new(mode), ..KernelConfig::default() })
//! });
//! let result = simulate(Family::open(Path::new("app.hkm"))?, &settings, Detail::Figures)?;
//! for prediction in &result.predictions {
//!     println!("{} faults, {} huge pages", prediction.faults, prediction.huge_pages_peak);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod advisers;
mod at_start;
mod ended;
mod family;
mod family_total;
mod forks;
pub mod groups;
mod least_limit;
mod limit;
mod member;
mod named_sites;
mod page_work;
mod perform;
mod placement;
mod price;
mod ranges;
mod regions;
mod report;
mod row;
mod run;
mod setting;
mod simulate;
mod sites;
mod space;
mod stacks;
mod steps;
mod timeline;
mod unseen_writes;

pub use advisers::AdvisedUse;
pub use family::{Family, FamilyError};
pub use family_total::FamilyTotal;
pub use hksim_linux_mm::{ByKind, Installs};
pub use limit::{LastOperation, OF_RELATIVE};
pub use named_sites::{NamedAdviser, NamedSite, caller_words};
pub use page_work::{AtExit, Calls, PageWork, Spacing};
pub use placement::{place_again, places_alike, places_differently};
pub use price::system_time;
pub use regions::{MappedOutside, Outside, Region, Use};
pub use report::{ObstacleCount, Prediction, RegionPrediction, huge_bytes_peak_max, hugetlb_shortage};
pub use row::{
    Addresses, AfterEvents, AllocatorLabel, MemoryRow, PredictError, Predicted, RecordingLabel, losses, predict,
    predict_at,
};
pub use run::{Place, RunFile, RunFiles};
pub use setting::{Advise, MadvFree, Setting, ThpPrctl};
pub use simulate::{Detail, MemorySimulation, simulate};
pub use sites::{SitePrediction, SiteUse};
pub use stacks::StackPrediction;
pub use steps::MemoryAtStart;
pub use timeline::Sample;
pub use unseen_writes::{RangeEnd, UnseenWrites};
