//! Which modules a name with `*` in it means.

/// Whether a module's dotted name is one that a pattern means: part for part, `*` for whatever is between two dots.
pub fn names_match(pattern: &str, name: &str) -> bool {
    let (mut wanted, mut parts) = (pattern.split('.'), name.split('.'));
    loop {
        match (wanted.next(), parts.next()) {
            (None, None) => return true,
            (Some(piece), Some(part)) if part_matches(piece, part) => {}
            _ => return false,
        }
    }
}

/// `*` stands for any number of characters.
fn part_matches(pattern: &str, part: &str) -> bool {
    let mut pieces = pattern.split('*');
    let Some(first) = pieces.next() else { return false };
    let Some(mut rest) = part.strip_prefix(first) else { return false };
    let mut last = None;
    for piece in pieces {
        if let Some(before) = last.replace(piece) {
            let Some(at) = rest.find(before) else { return false };
            rest = &rest[at + before.len()..];
        }
    }
    match last {
        None => rest.is_empty(),
        Some(end) => rest.ends_with(end),
    }
}
