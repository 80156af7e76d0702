use std::collections::BTreeMap;

fn main() {
    let mut groups: BTreeMap<u64, Vec<String>> = BTreeMap::new();
    for n in 0..400_000u64 {
        groups.entry(n * 7919 % 9001).or_default().push(format!("row {n}"));
    }
    let mut all: Vec<&String> = groups.values().flatten().collect();
    all.sort();
    println!("{} {}", groups.len(), all.len());
}
