//! Characters that are not seen: they command a terminal, turn the order of what is read around, or take no room.

/// Ranges of characters that nobody sees, besides control characters: Unicode 17's general category Cf (format), the line
/// and paragraph separators, the fillers that are letters by name only, and the selectors of variants
/// (<https://www.unicode.org/Public/17.0.0/ucd/extracted/DerivedGeneralCategory.txt>,
/// <https://www.unicode.org/Public/17.0.0/ucd/DerivedCoreProperties.txt>, `Default_Ignorable_Code_Point`).
const HIDDEN: [(u32, u32); 28] = [
    (0x00ad, 0x00ad),
    (0x034f, 0x034f),
    (0x0600, 0x0605),
    (0x061c, 0x061c),
    (0x06dd, 0x06dd),
    (0x070f, 0x070f),
    (0x0890, 0x0891),
    (0x08e2, 0x08e2),
    (0x115f, 0x1160),
    (0x17b4, 0x17b5),
    (0x180b, 0x180f),
    (0x200b, 0x200f),
    (0x2028, 0x202e),
    (0x2060, 0x206f),
    (0x3164, 0x3164),
    (0xfe00, 0xfe0f),
    (0xfeff, 0xfeff),
    (0xffa0, 0xffa0),
    (0xfff0, 0xfffb),
    (0x110bd, 0x110bd),
    (0x110cd, 0x110cd),
    (0x13430, 0x1343f),
    (0x1bca0, 0x1bca3),
    (0x1d173, 0x1d17a),
    (0xe0000, 0xe0fff),
    (0xe000, 0xf8ff),
    (0xf0000, 0xffffd),
    (0x10_0000, 0x10_fffd),
];

/// Whether a character is one that nobody sees, or that does something where it is shown.
pub fn is_hidden(c: char) -> bool {
    let code = u32::from(c);
    c.is_control() || HIDDEN.iter().any(|(first, last)| (*first..=*last).contains(&code))
}

/// A text as it may be shown: what is hidden is written out, `\u{202e}`; line feeds stay.
pub fn shown(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if is_hidden(c) && c != '\n' {
            out.extend(c.escape_unicode());
        } else {
            out.push(c);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden_is_written_out() {
        assert_eq!(
            shown("\u{1b}]0;pwn\u{7}a\u{202e}b\u{200b}\u{e0041}\u{9b}"),
            "\\u{1b}]0;pwn\\u{7}a\\u{202e}b\\u{200b}\\u{e0041}\\u{9b}"
        );
        let plain = "Größe 12 GiB — 模型 naïve e\u{301} 🚢\nnext";
        assert_eq!(shown(plain), plain);
    }
}
