//! Short names of designs: the values of the flags in which they differ.

use hksim_explore::flags::{RunConfig, varied};

/// The designs of a panel, each with the values of the flags that vary.
pub struct Names {
    flags: Vec<&'static str>,
    words: Vec<Vec<String>>,
}

impl Names {
    /// The names of run configurations.
    pub fn of(configs: &[RunConfig]) -> Names {
        let flags = varied(configs);
        let words = |config: &RunConfig| flags.iter().map(|flag| config.word(flag)).collect();
        Names { words: configs.iter().map(words).collect(), flags }
    }

    /// The names of designs with these values of `flags`. Flags that do not vary are left out.
    pub fn of_words(flags: &[&'static str], words: Vec<Vec<String>>) -> Names {
        let varies = |column: &usize| words.iter().any(|row| row[*column] != words[0][*column]);
        let columns: Vec<usize> = (0..flags.len()).filter(varies).collect();
        let kept = words.iter().map(|row| columns.iter().map(|&column| row[column].clone()).collect());
        Names { words: kept.collect(), flags: columns.iter().map(|&column| flags[column]).collect() }
    }

    /// A common name of several designs: `2M thp/hugetlb any purge` if they are all combinations of some values, else the
    /// first name and the number of others.
    pub fn of_group(&self, members: &[usize]) -> String {
        if self.flags.is_empty() {
            return "this design".to_string();
        }
        let everyone: Vec<usize> = (0..self.words.len()).collect();
        let columns: Vec<Vec<&str>> = (0..self.flags.len()).map(|column| self.values(members, column)).collect();
        let product: usize = columns.iter().map(Vec::len).product();
        if product == members.len() {
            let part = |(column, values): (usize, &Vec<&str>)| {
                let is_any = values.len() > 1 && values.len() == self.values(&everyone, column).len();
                if is_any { format!("any {}", self.flags[column]) } else { values.join("/") }
            };
            return columns.iter().enumerate().map(part).collect::<Vec<_>>().join(" ");
        }
        let first = members.first().map(|&member| self.words[member].join(" ")).unwrap_or_default();
        format!("{first} + {} equal", members.len() - 1)
    }

    /// The distinct values of a flag among several designs.
    fn values(&self, members: &[usize], column: usize) -> Vec<&str> {
        let mut values: Vec<&str> = Vec::new();
        for word in members.iter().map(|&member| self.words[member][column].as_str()) {
            if !values.contains(&word) {
                values.push(word);
            }
        }
        values
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Names {
        let words = ["1M never", "1M thp", "1M hugetlb", "2M never", "2M thp", "2M hugetlb"];
        let words = words.iter().map(|name| name.split(' ').map(str::to_string).collect()).collect();
        Names { flags: vec!["superslab", "huge"], words }
    }

    #[test]
    fn groups_are_named_by_what_they_share() {
        let names = names();
        assert_eq!(names.of_group(&[4]), "2M thp");
        assert_eq!(names.of_group(&[1, 2]), "1M thp/hugetlb");
        assert_eq!(names.of_group(&[1, 2, 4, 5]), "any superslab thp/hugetlb");
        assert_eq!(names.of_group(&[0, 4]), "1M never + 1 equal");
        assert_eq!(names.of_group(&[0, 1, 2, 3, 4, 5]), "any superslab any huge");
    }
}
