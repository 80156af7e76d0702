//! Where a trace comes from and what it records, as text.

use hksim_text::plain;
use hksim_trace::header::{Origin, TouchSource};

/// The origin of a trace, as text.
pub fn origin_text(origin: &Origin) -> String {
    match origin {
        Origin::Recorded { command, pid, attached, .. } => {
            let when = if *attached { ", from the middle of its run" } else { "" };
            format!("recorded: {} (pid {pid}){when}", plain(&command.join(" ")))
        }
        Origin::Imported { format, file } => format!("imported: {} ({})", plain(file), plain(format)),
        Origin::Generated { name, parameters, seed } => {
            let parameters = parameters.iter().map(|(name, value)| format!("{name} {value}"));
            format!("generated: {name}, {}, seed {seed}", parameters.collect::<Vec<_>>().join(", "))
        }
    }
}

/// What the trace records about accesses, as text.
pub fn touch_text(touch: TouchSource) -> &'static str {
    match touch {
        TouchSource::Assumed => "not recorded",
        TouchSource::FirstTouch => "first access to each page",
        TouchSource::Sampled => "first accesses of a sample of objects",
        TouchSource::FullStream => "every access",
    }
}
