//! Finding a row of a catalog by what people type.

/// Where the words of `query` stand in `id` and `name`: `None` when one is missing, else lower is better.
///
/// Words may be parts (`5070`), run together (`5070ti`, `llama3`) or in another order (`8b llama`).
fn rank(query: &str, id: &str, name: &str, extra: &str) -> Option<u32> {
    let words = query.split(|c: char| !c.is_alphanumeric() && c != '.').filter(|w| !w.is_empty());
    let full = format!("{} {} {}", fold(id), fold(name), fold(extra));
    let tight_id: String = squeeze(id);
    let tight = format!("{tight_id} {} {}", squeeze(name), squeeze(extra));
    let mut score = 0;
    for word in words {
        let word = fold(word);
        let packed = squeeze(&word);
        score += if full.split([' ', '-']).any(|part| part == word) {
            0
        } else if full.split([' ', '-']).any(|part| part.starts_with(&word)) {
            1
        } else if !packed.is_empty() && tight.contains(&packed) {
            2
        } else {
            return None;
        };
    }
    // The whole query as the start of the id beats scattered hits: `llama-3` before `tinyllama ... 3t`.
    let head = squeeze(query);
    if !head.is_empty() && !tight_id.starts_with(&head) {
        score += if tight.split(' ').any(|part| part.starts_with(&head)) { 1 } else { 2 };
    }
    Some(score)
}

/// Indices of the rows that match, best first, the catalog's own order among equals. An empty query matches all.
pub fn search<'a>(query: &str, rows: impl IntoIterator<Item = (&'a str, &'a str, &'a str)>) -> Vec<usize> {
    let mut hits: Vec<(u32, usize)> = rows
        .into_iter()
        .enumerate()
        .filter_map(|(index, (id, name, extra))| rank(query, id, name, extra).map(|score| (score, index)))
        .collect();
    hits.sort_unstable();
    hits.into_iter().map(|(_, index)| index).collect()
}

fn fold(text: &str) -> String {
    text.to_lowercase()
}

/// Letters and digits only, in lower case.
fn squeeze(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::search;

    const ROWS: [(&str, &str, &str); 5] = [
        ("rtx-5070", "GeForce RTX 5070", "nvidia"),
        ("rtx-5070-ti", "GeForce RTX 5070 Ti", "nvidia"),
        ("rtx-5070-ti-laptop", "GeForce RTX 5070 Ti Laptop GPU", "nvidia"),
        ("rx-7900-xtx", "Radeon RX 7900 XTX", "amd"),
        ("m4-max-64gb", "Apple M4 Max 64 GB", "apple"),
    ];

    #[test]
    fn nothing_typed_shows_everything() {
        assert_eq!(search("", ROWS), [0, 1, 2, 3, 4]);
        assert_eq!(search("  -", ROWS), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn words_may_run_together_or_swap() {
        assert_eq!(search("5070ti", ROWS), [1, 2]);
        assert_eq!(search("laptop 5070", ROWS), [2]);
        assert_eq!(search("7900XTX", ROWS), [3]);
        assert_eq!(search("amd", ROWS), [3]);
    }

    #[test]
    fn an_unknown_name_finds_nothing() {
        assert!(search("voodoo", ROWS).is_empty());
        assert!(search("5070 voodoo", ROWS).is_empty());
    }

    #[test]
    fn odd_input_is_harmless() {
        for query in ["\u{0}", "é", "𝕏", "((((", "...", "\u{202e}"] {
            let _ = search(query, ROWS);
        }
    }
}
