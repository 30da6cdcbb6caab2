//! Dotted names, each by what it has of the one before: how many of that one's last parts go, and what comes in their place. Layers that
//! repeat have the same text then.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::file::{LONGEST_NAME, MOST_UNPACKED};

/// The parts of a name; the model's own has none.
fn parts(name: &str) -> Vec<&str> {
    if name.is_empty() { Vec::new() } else { name.split('.').collect() }
}

/// Names as a file has them.
pub(super) fn folded<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut before: Vec<&str> = Vec::new();
    let fold = |name: &'n str| {
        let now = parts(name);
        let same = before.iter().zip(&now).take_while(|(a, b)| a == b).count();
        let text = format!("{} {}", before.len() - same, now.get(same..).unwrap_or_default().join("."));
        before = now;
        text
    };
    names.map(fold).collect()
}

/// The names that a file has so; `None` where one takes away more than there is, or they are longer than any.
pub(super) fn unfolded<'n>(folded: impl Iterator<Item = &'n str>) -> Option<Vec<String>> {
    let (mut names, mut total): (Vec<String>, usize) = (Vec::new(), 0);
    for text in folded {
        let (gone, rest) = text.split_once(' ')?;
        let before = names.last().map_or("", String::as_str);
        let kept = parts(before).len().checked_sub(gone.parse().ok()?)?;
        let mut name = parts(before).get(..kept)?.join(".");
        if !name.is_empty() && !rest.is_empty() {
            name.push('.');
        }
        name.push_str(rest);
        total = total.checked_add(name.len()).filter(|total| *total <= MOST_UNPACKED && name.len() <= LONGEST_NAME)?;
        names.push(name);
    }
    Some(names)
}

/// How a list of names stands in a file; one of an older plimsoll has each as it is.
#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Whole(Vec<String>),
    Since { since: Vec<String> },
}

#[derive(Serialize)]
struct Since {
    since: Vec<String>,
}

pub(super) fn serialize<S: Serializer>(names: &[String], serializer: S) -> Result<S::Ok, S::Error> {
    Since { since: folded(names.iter().map(String::as_str)) }.serialize(serializer)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<String>, D::Error> {
    match Written::deserialize(deserializer)? {
        Written::Whole(names) => Ok(names),
        Written::Since { since } => {
            unfolded(since.iter().map(String::as_str)).ok_or_else(|| D::Error::custom("a module's name is none"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{folded, unfolded};

    #[test]
    fn names_come_back_as_they_were() {
        let names =
            ["", "model", "model.h.0", "model.h.0.attn", "model.h.1", "model.h.1.attn", "", "head", "a..b", "."];
        let text = folded(names.into_iter());
        assert_eq!(text[3..6], ["0 attn", "2 1", "0 attn"]);
        assert_eq!(unfolded(text.iter().map(String::as_str)).unwrap(), names);
    }

    #[test]
    fn names_that_are_none_are_refused() {
        for text in [["0 a", "2 b"], ["0 a", "b"], ["0 a", "-1 b"]] {
            assert_eq!(unfolded(text.into_iter()), None, "{text:?}");
        }
        let long = format!("0 {}", "a".repeat(600));
        assert_eq!(unfolded([long.as_str(), long.as_str()].into_iter()), None);
    }
}
