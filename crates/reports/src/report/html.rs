//! Pieces of HTML.

use std::fmt::Write;

use crate::chart::{Hit, Picture, Shape};
use hksim_text::table::Table;

/// A text with the characters replaced that have a meaning in HTML.
pub fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A paragraph. Text between backquotes is code.
pub fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", with_code(text))
}

fn with_code(text: &str) -> String {
    let parts = text.split('`').enumerate();
    parts
        .map(|(index, part)| if index % 2 == 1 { format!("<code>{}</code>", escaped(part)) } else { escaped(part) })
        .collect()
}

/// A table. Each cell names its column, for narrow screens, where a row is a list. Rows of what failed are marked.
pub fn table(table: &Table) -> String {
    let mut rows = table.rows();
    let head = rows.next().unwrap_or_default();
    let class = |column: usize| if table.is_words(column) { " class=\"words\"" } else { "" };
    let names = head.iter().enumerate().map(|(column, name)| format!("<th{}>{}</th>", class(column), escaped(name)));
    let names: String = names.collect();
    let mut text = format!("<div class=\"scroll\"><table>\n<thead><tr>{names}</tr></thead>\n");
    for row in rows {
        let cell = |(column, cell): (usize, &String)| {
            let name = head.get(column).map(|name| escaped(name)).unwrap_or_default();
            format!("<td{} data-column=\"{name}\">{}</td>", class(column), escaped(cell))
        };
        let has_failed = row.iter().any(|cell| matches!(cell.to_lowercase().as_str(), "failed" | "broken"));
        let failed = if has_failed { " class=\"failed\"" } else { "" };
        let _ = writeln!(text, "<tr{failed}>{}</tr>", row.iter().enumerate().map(cell).collect::<String>());
    }
    text + "</table></div>\n"
}

/// A figure with its caption, drawn for several classes of screens. `command` repeats it.
pub fn figure(title: &str, pictures: [(&str, &Picture); 2], command: &str) -> String {
    let svgs = pictures.map(|(class, picture)| {
        let places: String = picture.hits.iter().map(place).collect();
        let (drawing, after) = picture.svg.rsplit_once("</svg>").unwrap_or((&picture.svg, ""));
        // The SVG's own size is its ratio; the style scales it.
        let tall = if picture.is_tall { " tall" } else { "" };
        drawing.replacen("<svg ", &format!("<svg class=\"{class}{tall}\" "), 1)
            + &format!("<g>{places}</g></svg>{after}")
    });
    format!(
        "<h3>{}</h3>\n<figure>\n{}\n</figure>\n<p class=\"repeat\">Repeat: <code>{}</code></p>\n",
        escaped(title),
        svgs.concat(),
        escaped(command)
    )
}

/// Radius of the area around a point that reacts to the pointer, in pixels.
const REACH: u32 = 9;

/// The invisible element above a design in a picture.
fn place(hit: &Hit) -> String {
    let text = escaped(&hit.text);
    let data = format!("class=\"hit\" data-design=\"{}\" data-text=\"{text}\"", hit.rank);
    match &hit.shape {
        Shape::Point(x, y) => {
            format!("<circle {data} cx=\"{x}\" cy=\"{y}\" r=\"{REACH}\"><title>{text}</title></circle>\n")
        }
        Shape::Line(corners) => {
            let corners: Vec<String> = corners.iter().map(|(x, y)| format!("{x},{y}")).collect();
            format!("<polyline {data} points=\"{}\"><title>{text}</title></polyline>\n", corners.join(" "))
        }
    }
}

/// The list of designs, which highlights them in the pictures.
pub fn designs(hits: &[Hit]) -> String {
    let mut named: Vec<&Hit> = Vec::new();
    for hit in hits {
        if !named.iter().any(|known| known.rank == hit.rank) {
            named.push(hit);
        }
    }
    if named.len() < 2 {
        return String::new();
    }
    let item = |hit: &&Hit| {
        let text = escaped(&hit.text);
        format!("<li><button data-design=\"{}\" data-text=\"{text}\">{text}</button></li>\n", hit.rank)
    };
    let items: String = named.iter().map(item).collect();
    format!("<p class=\"said\" aria-live=\"polite\"></p>\n<ul class=\"designs\">\n{items}</ul>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_a_text_is_markup() {
        assert_eq!(escaped("<b>\"&\"</b>"), "&lt;b&gt;&quot;&amp;&quot;&lt;/b&gt;");
        assert_eq!(paragraph("use `a<b` & c"), "<p>use <code>a&lt;b</code> &amp; c</p>\n");
    }
}
