//! Which crate the code of a WebAssembly module is of: its functions' sizes, by their names.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};

/// The code of one crate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crate {
    /// Its name; `other` for what no crate can be named of.
    pub name: String,
    /// How many functions.
    pub functions: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Every crate of a module that still has its names, the largest first.
///
/// # Errors
/// It is no module, or has no names.
pub fn sizes(module: &[u8]) -> Result<Vec<Crate>> {
    let sections = sections(module).context("it is no WebAssembly module")?;
    let find = |id: u8, name: &str| sections.iter().find(|s| s.id == id && s.name == name).map(|s| s.content);
    let code = find(10, "").and_then(bodies).context("the module has no code")?;
    let imported = find(2, "").map_or(Some(0), imported).context("the module's imports cannot be read")?;
    let names = find(0, "name").and_then(names).context("the module has no names: it was stripped")?;
    let mut crates: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for (index, size) in (imported..).zip(&code) {
        let name = names.get(&index).map_or("", String::as_str);
        let entry = crates.entry(owner(name)).or_default();
        *entry = (entry.0 + 1, entry.1 + size);
    }
    let crates = crates.into_iter().map(|(name, (functions, bytes))| Crate { name, functions, bytes });
    let mut crates: Vec<Crate> = crates.collect();
    ensure!(!crates.is_empty(), "the module has no functions");
    crates.sort_by(|a, b| b.bytes.cmp(&a.bytes).then_with(|| a.name.cmp(&b.name)));
    Ok(crates)
}

/// The crate a function's name begins with: of `_RNv..3foo` and `_ZN3foo..` the first path, of `<foo::T as bar::U>::f` the
/// type's.
fn owner(name: &str) -> String {
    let word = |text: &str| -> String { text.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect() };
    let counted = |text: &str| -> Option<String> {
        let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
        let length: usize = digits.parse().ok()?;
        text.get(digits.len()..digits.len() + length).map(str::to_owned)
    };
    let found = if let Some(legacy) = name.strip_prefix("_ZN") {
        // `_$LT$foo..T$u20$as$u20$bar..U$GT$`: the type's crate stands first.
        counted(legacy).map(|first| {
            let path = first.trim_start_matches('_');
            let path = path.strip_prefix("$LT$").unwrap_or(path);
            let path = path.trim_start_matches("$RF$").trim_start_matches("mut$u20$").trim_start_matches("dyn$u20$");
            word(path)
        })
    } else if name.starts_with("_R") {
        // The first crate's root: `C`, perhaps a disambiguator up to `_`, a length, the name.
        name.match_indices('C').find_map(|(at, _)| {
            let rest = name.get(at + 1..)?;
            let rest = rest.strip_prefix('s').and_then(|rest| Some(rest.split_once('_')?.1)).unwrap_or(rest);
            counted(rest)
        })
    } else {
        let path = name.trim_start_matches(['<', '&', '[', '(', '*']);
        let path = path.trim_start_matches("mut ").trim_start_matches("dyn ").trim_start_matches("const ");
        Some(word(path)).filter(|_| name.contains("::"))
    };
    found.filter(|found| !found.is_empty()).unwrap_or_else(|| "other".to_owned())
}

struct Section<'a> {
    id: u8,
    /// Of a custom section.
    name: String,
    content: &'a [u8],
}

/// What is read one after the other.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    /// An unsigned LEB128.
    fn number(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift)?;
            if byte & 0x80 == 0 {
                return Some(value);
            }
            shift += 7;
        }
    }

    fn take(&mut self, length: u64) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(usize::try_from(length).ok()?)?;
        self.0 = rest;
        Some(taken)
    }

    fn text(&mut self) -> Option<String> {
        let length = self.number()?;
        Some(String::from_utf8_lossy(self.take(length)?).into_owned())
    }
}

fn sections(module: &[u8]) -> Option<Vec<Section<'_>>> {
    let mut reader = Reader(module.strip_prefix(b"\0asm\x01\0\0\0")?);
    let mut sections = Vec::new();
    while !reader.0.is_empty() {
        let id = reader.byte()?;
        let length = reader.number()?;
        let mut content = Reader(reader.take(length)?);
        let name = if id == 0 { content.text()? } else { String::new() };
        sections.push(Section { id, name, content: content.0 });
    }
    Some(sections)
}

/// The size of every function's body.
fn bodies(code: &[u8]) -> Option<Vec<u64>> {
    let mut reader = Reader(code);
    (0..reader.number()?)
        .map(|_| {
            let length = reader.number()?;
            reader.take(length)?;
            Some(length)
        })
        .collect()
}

/// How many functions are imported: those that are not stand after them.
fn imported(imports: &[u8]) -> Option<u64> {
    let mut reader = Reader(imports);
    let mut functions = 0;
    for _ in 0..reader.number()? {
        reader.text()?;
        reader.text()?;
        match reader.byte()? {
            0 => {
                functions += 1;
                reader.number()?;
            }
            kind => {
                // A table has a type before its limits; a global is a type and whether it changes.
                if kind == 1 {
                    reader.byte()?;
                }
                if kind == 3 {
                    reader.take(2)?;
                } else {
                    let limits = reader.byte()?;
                    reader.number()?;
                    if limits & 1 == 1 {
                        reader.number()?;
                    }
                }
            }
        }
    }
    Some(functions)
}

/// The functions' names, by their index.
fn names(section: &[u8]) -> Option<BTreeMap<u64, String>> {
    let mut reader = Reader(section);
    while !reader.0.is_empty() {
        let kind = reader.byte()?;
        let length = reader.number()?;
        let mut content = Reader(reader.take(length)?);
        if kind == 1 {
            return (0..content.number()?).map(|_| Some((content.number()?, content.text()?))).collect();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_of_the_crate_they_begin_with() {
        for (name, of) in [
            ("_ZN14plimsoll_torch3ops4plus17h0123456789abcdefE", "plimsoll_torch"),
            ("_ZN71_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..ops..drop..Drop$GT$4drop17h0E", "alloc"),
            ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate"),
            ("_RINvNtC4core3ptr13drop_in_placeE", "core"),
            ("<plimsoll_families::gpt2::Gpt2 as core::clone::Clone>::clone::h01", "plimsoll_families"),
            ("core::ptr::drop_in_place<plimsoll_torch::Tensor>::h01", "core"),
            ("<&mut serde_json::de::Deserializer as x>::f", "serde_json"),
            ("memcpy", "other"),
            ("", "other"),
        ] {
            assert_eq!(owner(name), of, "{name}");
        }
    }

    /// Two functions and an imported one: `(import "a" "b" (func))`, bodies of 2 and of 4 bytes, named.
    #[test]
    fn bodies_are_counted_by_name() {
        let mut module = b"\0asm\x01\0\0\0".to_vec();
        module.extend([1, 4, 1, 0x60, 0, 0]);
        module.extend([2, 7, 1, 1, b'a', 1, b'b', 0, 0]);
        module.extend([3, 3, 2, 0, 0]);
        module.extend([10, 9, 2, 2, 0, 0x0b, 4, 0, 1, 1, 0x0b]);
        let mut names = vec![1, 21, 2, 1, 8];
        names.extend(b"one::a()");
        names.extend([2, 8]);
        names.extend(b"two::b()");
        module.extend([0, 5 + names.len() as u8, 4]);
        module.extend(b"name");
        module.extend(&names);
        let of = |name: &str, bytes| Crate { name: name.to_owned(), functions: 1, bytes };
        assert_eq!(sizes(&module).unwrap(), [of("two", 4), of("one", 2)]);
        assert!(sizes(b"\0asm").is_err());
        let stripped = &module[..module.len() - 7 - names.len()];
        assert!(sizes(stripped).unwrap_err().to_string().contains("stripped"));
    }
}
