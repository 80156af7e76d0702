//! Ranges in lists of numbers: `256K..4M` is `256K,512K,1M,2M,4M`.

/// The words of a list, each range replaced by its values: the first, doubled until the last. `parse` reads the end of a
/// range, and `show` writes a number in the form that it reads.
///
/// # Errors
/// The list is empty, or the end of a range is not a value or not the other end doubled.
pub fn expanded(
    list: &str,
    separator: char,
    parse: impl Fn(&str) -> Result<u64, String>,
    show: impl Fn(u64) -> String,
) -> Result<Vec<String>, String> {
    if list.is_empty() {
        return Err("a value is missing".to_string());
    }
    let mut values = Vec::new();
    for word in list.split(separator) {
        match word.split_once("..") {
            Some((first, last)) => values.extend(doubled(parse(first)?, parse(last)?, &show)?),
            None => values.push(word.to_string()),
        }
    }
    Ok(values)
}

/// The start of a range that ends at `last`: a few doublings below.
fn start_below(last: u64) -> u64 {
    const DOUBLINGS: usize = 3;
    (0..DOUBLINGS).fold(last, |start, _| if start > 1 && start.is_multiple_of(2) { start / 2 } else { start })
}

/// The values from `first` to `last`, each twice the one before.
fn doubled(first: u64, last: u64, show: &impl Fn(u64) -> String) -> Result<Vec<String>, String> {
    if first == 0 {
        return Err(format!(
            "a range starts above 0, because each value is twice the one before; write 0,{}..{}",
            show(start_below(last)),
            show(last)
        ));
    }
    if last < first {
        return Err(format!("the range ends below its start; write {}..{}", show(last), show(first)));
    }
    let values: Vec<u64> =
        std::iter::successors(Some(first), |value| value.checked_mul(2)).take_while(|&value| value <= last).collect();
    let reached = values.last().copied().unwrap_or(first);
    if reached != last {
        let next = reached.checked_mul(2).map_or(String::new(), |next| format!(" or {}", show(next)));
        return Err(format!(
            "each value of a range is twice the one before, so it ends at {}{next}, not at {}",
            show(reached),
            show(last)
        ));
    }
    Ok(values.into_iter().map(show).collect())
}
