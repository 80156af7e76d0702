//! The word that was probably meant.

/// The known word that is most like this one, if one is.
pub fn nearest<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    // The similarity from which clap suggests flags.
    const LEAST: f64 = 0.7;
    let similarity = |known: &str| {
        // Jaro finds two swapped letters in a short word unlike.
        let swapped = strsim::osa_distance(word, known) == 1;
        strsim::jaro(word, known).max(if swapped { LEAST + f64::EPSILON } else { 0.0 })
    };
    let similar = known.into_iter().map(|known| (known, similarity(known))).filter(|&(_, by)| by > LEAST);
    similar.max_by(|one, other| one.1.total_cmp(&other.1)).map(|(known, _)| known)
}

/// A question at the end of a message, if a known word was probably meant: `; did you mean csv?`.
pub fn question<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or(String::new(), |word| format!("; did you mean {word}?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_right_words_are_found() {
        let words = ["csv", "parquet", "rss", "threaded"];
        for (word, meant) in [("cvs", "csv"), ("rs", "rss"), ("theaded", "threaded"), ("paruqet", "parquet")] {
            assert_eq!(nearest(word, words), Some(meant));
        }
        assert_eq!(question("xyzzy", words), "");
    }
}
