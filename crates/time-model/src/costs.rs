//! The instructions of each path in the compiled allocator: a table that `tools/path-costs` measures.

use std::sync::OnceLock;

use hksim_policy::geometry::is_same;
use hksim_policy::{ConstGeometry, Path, Policy, RunGeometry};
use thiserror::Error;

/// The measured table.
const TABLE: &str = include_str!("paths.tsv");
/// The compiler and target of the object that the table was measured on.
pub const TABLE_COMPILER: &str = first_note(TABLE);

/// The object contains the allocator twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// With the sizes of `preset default` as constants.
    Constant,
    /// With any other sizes, as values.
    Configured,
}

impl Variant {
    /// The variant that serves a policy.
    pub fn of(policy: &Policy) -> Variant {
        let geometry = RunGeometry::new(policy);
        let is_constant = geometry.is_ok_and(|geometry| is_same(&geometry, &ConstGeometry::<21, 16>));
        if is_constant { Variant::Constant } else { Variant::Configured }
    }
}

/// Instructions of each path.
#[derive(Clone, Debug, PartialEq)]
pub struct PathCosts([f64; Path::COUNT]);

/// Why a table of costs is invalid.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CostsError {
    /// A line is not a path and two numbers.
    #[error("line {0}: expected a path and two numbers, separated by tabs")]
    Line(usize),
    /// There is no such path.
    #[error("line {line}: `{name}` is no path; measure the table again (tools/path-costs)")]
    Name {
        /// The line, from 1.
        line: usize,
        /// The name.
        name: String,
    },
    /// A path has no line.
    #[error("`{0}` has no line; measure the table again (tools/path-costs)")]
    Missing(&'static str),
}

impl PathCosts {
    /// The measured costs of the variant that serves a policy.
    pub fn of(policy: &Policy) -> &'static PathCosts {
        static MEASURED: OnceLock<[PathCosts; 2]> = OnceLock::new();
        let [constant, configured] = MEASURED.get_or_init(|| match PathCosts::parse(TABLE) {
            Ok(costs) => costs,
            Err(why) => unreachable!("a test parses the table: {why}"),
        });
        match Variant::of(policy) {
            Variant::Constant => constant,
            Variant::Configured => configured,
        }
    }

    /// Reads a table: notes that begin with `#`, then a line for each path with its name and its instructions in both
    /// variants, constant sizes first.
    ///
    /// # Errors
    /// A line is invalid, or a path is missing.
    pub fn parse(text: &str) -> Result<[PathCosts; 2], CostsError> {
        let mut costs = [[f64::NAN; Path::COUNT]; 2];
        for (number, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            let line_number = number + 1;
            let mut words = line.split('\t');
            let name = words.next().unwrap_or_default();
            let path =
                Path::named(name).ok_or_else(|| CostsError::Name { line: line_number, name: name.to_string() })?;
            for costs in &mut costs {
                let cost = words.next().and_then(|word| word.parse().ok()).filter(|cost: &f64| cost.is_finite());
                costs[path as usize] = cost.ok_or(CostsError::Line(line_number))?;
            }
            if words.next().is_some() {
                return Err(CostsError::Line(line_number));
            }
        }
        let missing = Path::ALL.iter().find(|&&path| costs[0][path as usize].is_nan());
        missing.map_or(Ok(costs.map(PathCosts)), |path| Err(CostsError::Missing(path.name())))
    }

    /// Instructions of one run of a path.
    pub fn instructions(&self, path: Path) -> f64 {
        self.0[path as usize]
    }
}

/// The text of the first line, without `# `.
const fn first_note(table: &'static str) -> &'static str {
    let (head, _) = table.split_at(line_end(table));
    let (_, note) = head.split_at(2);
    note
}

const fn line_end(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut end = 0;
    while end < bytes.len() && bytes[end] != b'\n' {
        end += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_every_path() {
        let [constant, configured] = PathCosts::parse(TABLE).expect("the measured table");
        assert!(constant.instructions(Path::Ready) < configured.instructions(Path::Malloc) + 60.0);
    }

    #[test]
    fn invalid_tables_are_refused() {
        assert_eq!(PathCosts::parse("# note\nfree\t1\n"), Err(CostsError::Line(2)));
        assert_eq!(PathCosts::parse("free\t1\t2\t3\n"), Err(CostsError::Line(1)));
        assert_eq!(PathCosts::parse("fre\t1\t2\n"), Err(CostsError::Name { line: 1, name: "fre".into() }));
        assert_eq!(PathCosts::parse("free\t1\t2\n"), Err(CostsError::Missing(Path::ALL[0].name())));
    }

    #[test]
    fn the_default_sizes_are_constants() {
        assert_eq!(Variant::of(&Policy::DEFAULT), Variant::Constant);
        assert_eq!(Variant::of(&Policy { front_cache: 8, ..Policy::DEFAULT }), Variant::Configured);
        assert_eq!(Variant::of(&Policy { warm_slabs: 3, ..Policy::DEFAULT }), Variant::Constant);
    }
}
