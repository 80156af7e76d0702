//! Words and command lines that a shell reads as they are.

/// A word that a shell reads as one.
pub fn quoted(word: &str) -> String {
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "-_./,+=:%@".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.into()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// A command line that a shell reads as these words.
pub fn line<'a>(words: impl IntoIterator<Item = &'a str>) -> String {
    words.into_iter().map(quoted).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_each_word_as_one() {
        assert_eq!(line(["sim", "a b.hkt", "<x>", "it's", "rss+10%"]), "sim 'a b.hkt' '<x>' 'it'\\''s' rss+10%");
    }
}
