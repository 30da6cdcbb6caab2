//! What was estimated already, as far as it is remembered.

use std::cell::RefCell;
use std::collections::HashSet;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};

/// How many are remembered: beyond that it begins anew.
const REMEMBERED: usize = 1 << 20;

/// A text's mark when it is seen for the first time, or the first time for long.
pub(crate) fn first(text: &str) -> Option<u64> {
    thread_local! {
        static SEEN: RefCell<HashSet<u64>> = RefCell::default();
    }
    let mark = BuildHasherDefault::<DefaultHasher>::default().hash_one(text);
    SEEN.with_borrow_mut(|seen| {
        if seen.len() >= REMEMBERED {
            seen.clear();
        }
        seen.insert(mark).then_some(mark)
    })
}

#[cfg(test)]
mod tests {
    use super::first;

    #[test]
    fn the_same_text_is_seen_once() {
        assert!(first("a").is_some() && first("b").is_some());
        assert_eq!(first("a"), None);
    }
}
