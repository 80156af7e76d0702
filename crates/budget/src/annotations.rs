//! Broken rows as annotations, which a service for continuous integration shows beside the changed lines.

use crate::budget::line_of;
use crate::checked::CheckedRow;
use crate::sentences::broken;

/// The service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// GitHub Actions: workflow commands, `::error file=F,line=N,title=T::MESSAGE`.
    Github,
}

impl Service {
    /// All services.
    pub const ALL: [Service; 1] = [Service::Github];

    /// The word that options use.
    pub const fn word(self) -> &'static str {
        match self {
            Service::Github => "github",
        }
    }

    /// One line for each broken row of the budget with this name and text.
    pub fn annotations(self, name: &str, text: &str, rows: &[CheckedRow]) -> Vec<String> {
        let Service::Github = self;
        let annotation = |checked: &CheckedRow| {
            let message = broken(checked)?;
            let line = line_of(text, &checked.row.design).map_or(String::new(), |line| format!(",line={line}"));
            let title = property(&format!("{} on {}", checked.row.design, checked.row.trace));
            Some(format!("::error file={}{line},title={title}::{}\n", property(name), data(&message)))
        };
        rows.iter().filter_map(annotation).collect()
    }
}

/// A message in a workflow command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// The value of a property in a workflow command.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_end_a_command_are_escaped() {
        assert_eq!(data("50 %\r\na: b, c"), "50 %25%0D%0Aa: b, c");
        assert_eq!(property("a:b,c%\n"), "a%3Ab%2Cc%25%0A");
    }
}
