//! The data of the figures, as rows of CSV files.

use serde_json::{Map, Value, json};

use hksim_results::Kind;
use hksim_results::predictions::Prediction;

/// The tables of a result by name. Tables without rows are left out.
pub fn tables(result: &Value, predictions: &[Prediction<'_>]) -> Vec<(&'static str, Vec<Value>)> {
    let all = [
        ("designs", predictions.iter().map(|prediction| prediction.fields.clone()).collect()),
        ("timeline", timelines(predictions)),
        ("installs-by", breakdown(&result["by"])),
        ("page-map", page_map(&result["page_map"])),
        ("occupancy", occupancy(result)),
        ("miss-curves", miss_curves(predictions)),
        ("ranges", ranges(result)),
    ];
    all.into_iter().filter(|(_, rows)| !rows.is_empty()).collect()
}

fn timelines(predictions: &[Prediction<'_>]) -> Vec<Value> {
    predictions.iter().flat_map(|prediction| at_place(&prediction.place, &prediction.fields["timeline"])).collect()
}

/// The items of a list, each with the place of its prediction.
fn at_place(place: &str, list: &Value) -> Vec<Value> {
    let with_place = |item: &Value| {
        let mut row = Map::from_iter([("prediction".to_string(), json!(place))]);
        row.extend(item.as_object().cloned().unwrap_or_default());
        Value::Object(row)
    };
    list.as_array().into_iter().flatten().map(with_place).collect()
}

fn breakdown(by: &Value) -> Vec<Value> {
    let lists = by.as_object().into_iter().flatten();
    let rows = lists.flat_map(|(key, list)| list.as_array().into_iter().flatten().map(move |part| (key, part)));
    rows.map(|(key, part)| json!({ "by": key, "name": part["name"], "installs": part["installs"] })).collect()
}

/// One row for each time, with one column for each row of the map.
fn page_map(map: &Value) -> Vec<Value> {
    let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let rows = list(&map["rows"]);
    // Columns are sorted by name, so numbers have equal lengths.
    let width = width_of(rows.iter().map(|row| &row["first_page"]));
    let states: Vec<(String, Vec<char>)> = rows
        .iter()
        .map(|row| {
            (
                format!("page_{:0>width$}", row["first_page"].to_string()),
                row["states"].as_str().unwrap_or("").chars().collect(),
            )
        })
        .collect();
    let times = list(&map["times_ns"]).into_iter().enumerate();
    let row = |(at, time_ns): (usize, Value)| {
        let cells = states.iter().map(|(page, states)| (page.clone(), json!(states.get(at).map(char::to_string))));
        Value::Object([("time_ns".to_string(), time_ns)].into_iter().chain(cells).collect())
    };
    times.map(row).collect()
}

/// One row for each time, with one column for each SuperSlab.
fn occupancy(result: &Value) -> Vec<Value> {
    let superslabs = result["occupancy"].as_array().cloned().unwrap_or_default();
    let times = result["page_map"]["times_ns"].as_array().cloned().unwrap_or_default();
    if superslabs.is_empty() {
        return Vec::new();
    }
    let width = width_of(superslabs.iter().map(|superslab| &superslab["superslab"]));
    let row = |(at, time_ns): (usize, Value)| {
        let cell = |superslab: &Value| {
            let number = superslab["superslab"].to_string();
            (format!("superslab_{number:0>width$}_live_bytes"), superslab["live_bytes"][at].clone())
        };
        let cells = superslabs.iter().map(cell);
        Value::Object([("time_ns".to_string(), time_ns)].into_iter().chain(cells).collect())
    };
    times.into_iter().enumerate().map(row).collect()
}

/// The length of the longest number.
fn width_of<'a>(numbers: impl Iterator<Item = &'a Value>) -> usize {
    numbers.map(|number| number.to_string().len()).max().unwrap_or(0)
}

/// The 2 MiB ranges of a process; with two looks, those of both.
fn ranges(result: &Value) -> Vec<Value> {
    if !matches!(Kind::of("", result), Ok(Kind::Inspect)) {
        return Vec::new();
    }
    let of_look = |look: &str, map: &Value| {
        let rows = map.as_array().into_iter().flatten().filter_map(Value::as_object);
        let with_look = |fields: &Map<String, Value>| {
            Value::Object([("look".to_string(), json!(look))].into_iter().chain(fields.clone()).collect())
        };
        rows.map(with_look).collect::<Vec<Value>>()
    };
    [of_look("first", &result["before"]["map"]), of_look("last", &result["map"])].concat()
}

fn miss_curves(predictions: &[Prediction<'_>]) -> Vec<Value> {
    let curves = |prediction: &Prediction<'_>| {
        let curves = prediction.fields["tlb"]["miss_curves"].as_object().cloned().unwrap_or_default();
        let points = curves.into_iter().flat_map(|(pages, points)| {
            let points = at_place(&prediction.place, &points);
            points.into_iter().map(move |mut point| {
                point["pages"] = json!(pages);
                point
            })
        });
        points.collect::<Vec<Value>>()
    };
    predictions.iter().flat_map(curves).collect()
}
