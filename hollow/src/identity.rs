//! Which cards a process sees, and how each is told from the others.

/// Which of `count` cards a process sees, and in which order: `CUDA_VISIBLE_DEVICES` as the CUDA C++ Programming Guide has
/// it. Cut at the first entry that is no card; nothing at all where one is named twice.
pub(crate) fn visible(list: Option<&str>, count: usize) -> Vec<usize> {
    let Some(list) = list else { return (0..count).collect() };
    let mut seen = Vec::new();
    for entry in list.split(',').map(str::trim) {
        let found = match entry.strip_prefix("GPU-") {
            Some(_) => (0..count).find(|&i| entry.len() > 4 && uuid_text(i).starts_with(entry)),
            None => entry.parse().ok().filter(|&i| i < count),
        };
        match found {
            Some(i) if seen.contains(&i) => return Vec::new(),
            Some(i) => seen.push(i),
            None => break,
        }
    }
    seen
}

/// The card's identity: "HollowGP" in ASCII, which happens to be a version 4 UUID, and its index.
pub(crate) fn uuid(index: usize) -> [u8; 16] {
    let mut bytes = *b"HollowGP\x80\x55\0\0\0\0\0\0";
    bytes[15] = index as u8;
    bytes
}

/// The identity as `nvidia-smi -L` writes one.
pub(crate) fn uuid_text(index: usize) -> String {
    let hex: Vec<String> = uuid(index).iter().map(|b| format!("{b:02x}")).collect();
    let part = |from: usize, to: usize| hex[from..to].concat();
    format!("GPU-{}-{}-{}-{}-{}", part(0, 4), part(4, 6), part(6, 8), part(8, 10), part(10, 16))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cards_are_seen_as_the_list_says() {
        assert_eq!(visible(None, 3), [0, 1, 2]);
        assert_eq!(visible(Some("2,0"), 3), [2, 0]);
        assert_eq!(visible(Some("1, 7, 0"), 3), [1], "cut at the first that is none");
        assert_eq!(visible(Some("1,1"), 3), [0usize; 0], "twice the same: none");
        assert_eq!(visible(Some(""), 3), [0usize; 0]);
        assert_eq!(visible(Some(&uuid_text(2)), 3), [2]);
    }
}
