//! Hostile inputs out of good ones: as bytes, and as what the bytes say, so that most of it is still read.

mod bytes;
mod link;
mod toml;
mod tree;
mod words;

use std::io;
use std::path::Path;

use serde_json::Value;

use crate::chance::Chance;
use words::Words;

/// What a target reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grammar {
    /// JSON.
    Json,
    /// JSON or TOML.
    Scenario,
    /// An address, whose fragment may carry JSON.
    Link,
    /// A format that nothing of the above writes.
    Bytes,
}

/// The good inputs of a target, and all that is made of them.
#[derive(Debug)]
pub struct Corpus {
    grammar: Grammar,
    seeds: Vec<Seed>,
    /// What the fragments of links carry: configurations and records.
    carried: Vec<Value>,
    words: Words,
}

/// A good input.
#[derive(Debug)]
struct Seed {
    text: Vec<u8>,
    /// What it says, where it is JSON or TOML.
    tree: Option<Value>,
}

/// A good input that is longer than this has its turn less often.
const LONG: usize = 4 << 10;

/// Most changes of an input's tree, and of its bytes.
const CHANGES: usize = 4;

impl Corpus {
    /// The files of `corpus/{name}`, in the order of their names.
    ///
    /// # Errors
    /// They cannot be read, or there are none.
    pub fn read(name: &str, grammar: Grammar) -> io::Result<Self> {
        let seeds: Vec<Seed> = files(name)?.into_iter().map(Seed::new).collect();
        if seeds.is_empty() {
            return Err(io::Error::other(format!("corpus/{name} is empty")));
        }
        let mut carried = Vec::new();
        if grammar == Grammar::Link {
            for name in ["config", "record"] {
                carried.extend(files(name)?.into_iter().filter_map(|text| Seed::new(text).tree));
            }
        }
        let mut words = Words::default();
        seeds.iter().filter_map(|seed| seed.tree.as_ref()).chain(&carried).for_each(|tree| words.learn(tree));
        // A scenario holds a configuration, a link both.
        if matches!(grammar, Grammar::Scenario | Grammar::Link) {
            for name in ["config", "scenario"] {
                files(name)?.into_iter().filter_map(|text| Seed::new(text).tree).for_each(|tree| words.learn(&tree));
            }
        }
        Ok(Self { grammar, seeds, carried, words })
    }

    /// How many good inputs there are.
    pub fn len(&self) -> usize {
        self.seeds.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.seeds.is_empty()
    }

    /// A good input as it is.
    pub fn good(&self, index: usize) -> &[u8] {
        self.seeds.get(index).map_or(&[], |seed| &seed.text)
    }

    /// The hostile input that chance makes.
    pub fn hostile(&self, chance: &mut Chance) -> Vec<u8> {
        let mut seed = chance.below(self.seeds.len());
        // What is long takes long, and says the same over and over.
        if self.good(seed).len() > LONG && !chance.once_in(8) {
            seed = chance.below(self.seeds.len());
        }
        self.hostile_of(seed, chance)
    }

    /// The hostile input that chance makes of a good one.
    pub fn hostile_of(&self, seed: usize, chance: &mut Chance) -> Vec<u8> {
        let Some(seed) = self.seeds.get(seed) else { return Vec::new() };
        let blind = chance.once_in(4);
        let mut input = match &seed.tree {
            _ if blind => seed.text.clone(),
            Some(tree) => self.written(tree, chance),
            None if self.grammar == Grammar::Link => {
                let text = String::from_utf8_lossy(&seed.text);
                link::hostile(&text, &self.seeds, &self.carried, &self.words, chance).into_bytes()
            }
            None => seed.text.clone(),
        };
        if blind || self.grammar == Grammar::Bytes || chance.once_in(8) {
            for _ in 0..=chance.below(CHANGES) {
                bytes::change(&mut input, &self.seeds, chance);
            }
        }
        input
    }

    /// A tree, changed and written in one of the forms that the target reads.
    fn written(&self, tree: &Value, chance: &mut Chance) -> Vec<u8> {
        let tree = self.changed(tree, chance);
        if self.grammar == Grammar::Scenario && chance.once_in(2) {
            return tree::raw(&toml::write(&tree)).into_bytes();
        }
        tree::raw(&tree.to_string()).into_bytes()
    }

    fn changed(&self, tree: &Value, chance: &mut Chance) -> Value {
        let mut tree = tree.clone();
        for _ in 0..=chance.below(CHANGES) {
            let other = chance.one_of(&self.seeds).and_then(|seed| seed.tree.as_ref());
            tree::change(&mut tree, other, &self.words, chance);
        }
        tree
    }
}

impl Seed {
    fn new(text: Vec<u8>) -> Self {
        let tree = serde_json::from_slice(&text).ok();
        let toml = || ::toml::from_str(std::str::from_utf8(&text).ok()?).ok().filter(Value::is_object);
        let tree = tree.or_else(toml);
        Self { text, tree }
    }
}

fn files(name: &str) -> io::Result<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let mut files = std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>()?;
    files.sort();
    files.iter().map(std::fs::read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_number_makes_the_same_input_and_most_can_be_read() {
        let corpus = Corpus::read("scenario", Grammar::Scenario).unwrap();
        let made = |number| corpus.hostile(&mut Chance::of(1, number));
        assert_eq!(made(5), made(5));
        let read = (0..400).filter(|number| Seed::new(made(*number)).tree.is_some()).count();
        assert!(read > 200, "{read} of 400 are JSON or TOML");
    }

    #[test]
    fn a_link_keeps_its_form() {
        let corpus = Corpus::read("link", Grammar::Link).unwrap();
        let made: Vec<Vec<u8>> = (0..400).map(|number| corpus.hostile(&mut Chance::of(1, number))).collect();
        let with = |what: &[u8]| made.iter().filter(|link| link.windows(what.len()).any(|part| part == what)).count();
        assert!(with(b"?") > 200 && with(b"#m=") > 20 && with(b"#r=") > 5, "{}", with(b"#m="));
    }
}
