//! Which functions of the planner wait: those that nobody calls while the page opens.
//!
//! `later.txt` beside this package names them; `cargo xtask bench browser` writes it, from the build that is given away and
//! what a browser called of it. A function that is not in it belongs to what is sent first. A stale list makes that larger, or
//! has the page wait for what it calls of the rest; it breaks nothing.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};
use walrus::Function;

/// Its name beside this package.
pub const NAME: &str = "later.txt";

/// The functions that wait, each by the [mark] of its name.
#[derive(Debug, Default)]
pub struct Later(BTreeSet<u32>);

impl Later {
    /// Reads the list: a mark in hexadecimal digits a line, `#` before what is none.
    ///
    /// # Errors
    /// A line is no mark.
    pub fn read(text: &str) -> Result<Self> {
        let lines = text.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let mark = |(at, line): (usize, &str)| {
            u32::from_str_radix(line, 16).with_context(|| format!("{NAME}, line {}: {line:?} is no mark", at + 1))
        };
        Ok(Self(lines.map(mark).collect::<Result<_>>()?))
    }

    /// Whether this function waits. One without a name does not.
    pub fn has(&self, function: &Function) -> bool {
        function.name.as_deref().is_some_and(|name| self.0.contains(&mark(name)))
    }
}

/// What stands for a function in the list: the first four bytes of the SHA-256 of its name, without what the compiler adds to
/// tell builds apart. Names are long and many; two that share a mark wait together, or not.
pub fn mark(name: &str) -> u32 {
    let name = format!("{:#}", rustc_demangle::demangle(name));
    let digest = Sha256::digest(name.as_bytes());
    digest.iter().take(4).fold(0, |mark, byte| mark << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn builds_have_the_same_marks() {
        // `core::fmt::Formatter::pad` of two compilers.
        assert_eq!(mark("_RNvMsa_NtCs1vqRVN3ibwV_4core3fmtNtB5_9Formatter3pad"), {
            mark("_RNvMsa_NtCs9ltgdHTiPiY_4core3fmtNtB5_9Formatter3pad")
        });
        assert_ne!(mark("a"), mark("b"));
    }

    #[test]
    fn a_list_is_marks() {
        let list = Later::read(&format!("# what it is\n{:08x}\n\n", mark("a"))).unwrap();
        assert_eq!(list.0.into_iter().collect::<Vec<_>>(), [mark("a")]);
        assert!(Later::read("0000000g").unwrap_err().to_string().contains("line 1"));
    }

    /// A list that has nothing of this planner in it would send everything first.
    #[test]
    fn there_is_one() {
        let text = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/later.txt")).unwrap();
        assert!(Later::read(&text).unwrap().0.len() > 1000);
    }
}
