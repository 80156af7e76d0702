//! Text from files, made safe to print: a name in a trace or result may contain any character.

use std::borrow::Cow;
use std::io::{self, Write};

/// Length of a quoted value in a message that is shortened, and what is left of it, in characters.
const VALUE_MAX: usize = 160;
const VALUE_LEFT: usize = 80;

/// Maximum length of a message, in characters.
const MESSAGE_MAX: usize = 4000;

/// Whether a terminal would act on a character instead of showing it: control characters of ASCII and Latin-1, breaks of
/// lines, and the marks that change the direction of text, which make a line look like another one.
fn is_acted_on(character: char) -> bool {
    let is_direction = matches!(character,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    character.is_control() || is_direction || matches!(character, '\u{2028}' | '\u{2029}')
}

/// One line without such characters: each is shown by its number.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(is_acted_on) {
        return Cow::Borrowed(text);
    }
    let escaped = |character: char| match is_acted_on(character) {
        true => character.escape_default().to_string(),
        false => character.to_string(),
    };
    Cow::Owned(text.chars().map(escaped).collect())
}

/// The same for each line of a text.
pub fn plain_lines(text: &str) -> Cow<'_, str> {
    if !text.contains(|character| is_acted_on(character) && character != '\n') {
        return Cow::Borrowed(text);
    }
    Cow::Owned(text.split('\n').map(plain).collect::<Vec<_>>().join("\n"))
}

/// The same JSON, with such characters in the escapes of JSON.
pub fn plain_json(json: String) -> String {
    let is_escaped = |character: char| is_acted_on(character) && character != '\n';
    if !json.contains(is_escaped) {
        return json;
    }
    // None of them is beyond 16 bits.
    let escaped = |character: char| match is_escaped(character) {
        true => format!("\\u{:04x}", u32::from(character)),
        false => character.to_string(),
    };
    json.chars().map(escaped).collect()
}

/// A message whose long values are cut, with their length.
pub fn shortened(text: &str) -> Cow<'_, str> {
    if text.chars().nth(VALUE_MAX).is_none() {
        return Cow::Borrowed(text);
    }
    let text = ['`', '"'].into_iter().fold(text.to_string(), |text, quote| {
        let parts = text.split(quote).enumerate();
        parts
            .map(|(at, part)| if at % 2 == 1 { shortened_value(part) } else { part.into() })
            .collect::<Vec<_>>()
            .join(&quote.to_string())
    });
    let length = text.chars().count();
    if length <= MESSAGE_MAX {
        return Cow::Owned(text);
    }
    let [begin, end]: [String; 2] =
        [text.chars().take(MESSAGE_MAX / 2).collect(), text.chars().skip(length - MESSAGE_MAX / 2).collect()];
    Cow::Owned(format!("{begin} ... ({} characters left out) ... {end}", length - MESSAGE_MAX))
}

fn shortened_value(value: &str) -> Cow<'_, str> {
    let length = value.chars().count();
    if length <= VALUE_MAX {
        return Cow::Borrowed(value);
    }
    let begin: String = value.chars().take(VALUE_LEFT).collect();
    Cow::Owned(format!("{begin}... ({length} characters)"))
}

/// Makes each line plain before it reaches a terminal.
pub struct PlainLines<W: Write> {
    to: W,
    line: Vec<u8>,
}

impl<W: Write> PlainLines<W> {
    /// Writes to `to`.
    pub fn new(to: W) -> Self {
        PlainLines { to, line: Vec::new() }
    }
}

impl<W: Write> Write for PlainLines<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for part in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.line.extend_from_slice(part);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                self.to.write_all(plain_lines(&String::from_utf8_lossy(&line)).as_bytes())?;
            }
        }
        Ok(bytes.len())
    }

    /// The last line may have no break.
    fn flush(&mut self) -> io::Result<()> {
        let line = std::mem::take(&mut self.line);
        self.to.write_all(plain_lines(&String::from_utf8_lossy(&line)).as_bytes())?;
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "a\u{1b}[31m\u{7}\u{7f}\u{9b}2J\r\u{202e}\u{2066}\u{200f}\u{61c}\u{2028}z";

    #[test]
    fn what_a_terminal_acts_on_is_shown_by_its_number() {
        let shown = "a\\u{1b}[31m\\u{7}\\u{7f}\\u{9b}2J\\r\\u{202e}\\u{2066}\\u{200f}\\u{61c}\\u{2028}z";
        assert_eq!(plain(HOSTILE), shown);
        assert_eq!(plain("x\ny"), "x\\ny");
        assert_eq!(plain_lines(&format!("{HOSTILE}\nnext")), format!("{shown}\nnext"));
        assert_eq!(plain("größe 大きさ"), "größe 大きさ");
        let mut out = Vec::new();
        let mut lines = PlainLines::new(&mut out);
        format!("{HOSTILE}\n{HOSTILE}").as_bytes().chunks(3).for_each(|part| lines.write_all(part).expect("memory"));
        lines.flush().expect("memory");
        assert_eq!(String::from_utf8(out).expect("text"), format!("{shown}\n{shown}"));
    }

    #[test]
    fn json_stays_the_same_value() {
        let value = serde_json::json!({ "name": format!("{HOSTILE}\n\"") });
        let json = plain_json(serde_json::to_string_pretty(&value).expect("JSON"));
        assert_eq!(serde_json::from_str::<serde_json::Value>(&json).expect("JSON"), value);
        assert!(json.chars().all(|character| character == '\n' || !is_acted_on(character)), "{json}");
    }

    #[test]
    fn long_values_are_cut_in_messages() {
        let long = "x".repeat(900_000);
        let said = shortened(&format!("a.json: unknown variant `{long}`, expected `a`")).into_owned();
        assert_eq!(said, format!("a.json: unknown variant `{}... (900000 characters)`, expected `a`", "x".repeat(80)));
        let said = shortened(&format!("a.json: {long}; do this")).into_owned();
        assert!(said.starts_with("a.json: x") && said.ends_with("x; do this") && said.contains("characters left out"));
        assert!(said.chars().count() < MESSAGE_MAX + 50);
        assert_eq!(shortened("short"), "short");
    }
}
