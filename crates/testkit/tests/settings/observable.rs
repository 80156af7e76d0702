//! How the effect of a setting shows: a load, a figure of it, and how the figure changes.

/// `LOAD: FIGURE RELATION`, as in `blocks: calls MADV_HUGEPAGE appear`.
#[derive(Debug, PartialEq)]
pub struct Observable {
    /// The load, as `play.c` names it.
    pub load: String,
    /// The figure.
    pub figure: Figure,
    /// How it changes.
    pub relation: Relation,
}

/// What is looked at.
#[derive(Debug, PartialEq)]
pub enum Figure {
    /// A figure that the program prints.
    Printed(String),
    /// System calls whose line contains the word, during the load.
    Calls(String),
    /// The same from the start of the program.
    AllCalls(String),
}

/// How a figure with the setting differs from the one without.
#[derive(Debug, PartialEq)]
pub enum Relation {
    /// From zero to more.
    Appears,
    /// To zero.
    Vanishes,
    /// By half or more.
    Grows,
    /// To two thirds or less.
    Shrinks,
    /// To this number.
    Is(i64),
    /// To this number, plus or minus half.
    About(i64),
    /// From above this number to at most it.
    AtMost(i64),
}

impl Observable {
    /// Reads the form above; `None` if it has another form.
    pub fn parse(text: &str) -> Option<Observable> {
        let (load, rest) = text.split_once(": ")?;
        let words: Vec<&str> = rest.split(' ').collect();
        let (figure, relation) = match &words[..] {
            [figure @ .., "appear" | "appears"] => (figure, Relation::Appears),
            [figure @ .., "vanish" | "vanishes"] => (figure, Relation::Vanishes),
            [figure @ .., "grow" | "grows"] => (figure, Relation::Grows),
            [figure @ .., "shrink" | "shrinks"] => (figure, Relation::Shrinks),
            [figure @ .., "is", number] => (figure, Relation::Is(number.parse().ok()?)),
            [figure @ .., "about", number] => (figure, Relation::About(number.parse().ok()?)),
            [figure @ .., "at-most", number] => (figure, Relation::AtMost(number.parse().ok()?)),
            _ => return None,
        };
        let figure = match figure {
            ["calls", word] => Figure::Calls((*word).to_string()),
            ["all-calls", word] => Figure::AllCalls((*word).to_string()),
            [name] => Figure::Printed((*name).to_string()),
            _ => return None,
        };
        Some(Observable { load: load.to_string(), figure, relation })
    }
}

impl Relation {
    /// Whether the figures differ in this way. It never holds for equal figures.
    pub fn holds(&self, with: i64, without: i64) -> bool {
        let is_about = |number: i64, figure: i64| (figure - number).abs() <= number / 2;
        match *self {
            Relation::Appears => without == 0 && with > 0,
            Relation::Vanishes => without > 0 && with == 0,
            Relation::Grows => with > without && 2 * with >= 3 * without,
            Relation::Shrinks => with < without && 3 * with <= 2 * without,
            Relation::Is(number) => with == number && without != number,
            Relation::About(number) => is_about(number, with) && !is_about(number, without),
            Relation::AtMost(number) => with <= number && without > number,
        }
    }
}

#[test]
fn no_relation_holds_for_equal_figures() {
    for relation in ["appears", "vanishes", "grows", "shrinks", "is 4", "about 4", "at-most 4"] {
        let relation = Observable::parse(&format!("blocks: kept {relation}")).expect(relation).relation;
        for figure in [0, 1, 4, 5, 100] {
            assert!(!relation.holds(figure, figure), "{relation:?} {figure}");
        }
        let somewhere = [(0, 4), (4, 0), (4, 100), (100, 4)];
        assert!(somewhere.iter().any(|&(with, without)| relation.holds(with, without)), "{relation:?}");
    }
    assert_eq!(Observable::parse("blocks: kept rises"), None);
}
