//! Finding a row of the catalog by what people have in hand: a name, a part of one, a Hub id or its address, a quantized or
//! instructed variant, an amount of memory, several cards.

use crate::{Gpu, Model, Recorded, Vendor, gpus, models, recorded};

/// Words of a name that say how the weights are published or tuned: the architecture is the same.
const VARIANT: [&str; 30] = [
    "instruct", "chat", "it", "base", "hf", "pt", "sft", "dpo", "think", "thinking", "gguf", "gptq", "awq", "bnb",
    "4bit", "8bit", "bit", "int4", "int8", "fp8", "fp16", "bf16", "nf4", "mxfp4", "nvfp4", "mlx", "dynamic", "unsloth",
    "latest", "meta",
];

/// Words that stand before the name of many a card.
const MAKE: [&str; 13] = [
    "nvidia", "amd", "geforce", "radeon", "instinct", "tesla", "quadro", "gpu", "graphics", "card", "apple", "pro",
    "gb",
];

/// One row, as far as it is searched.
struct Entry {
    id: String,
    /// Everything else by which it is called.
    names: Vec<String>,
    /// Memory in GiB, where it has some.
    gib: Option<f64>,
}

/// A model that can be named: one whose architecture the engine knows, or a recording.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Named {
    /// Of a family.
    Model(&'static Model),
    /// A hull.
    Recorded(&'static Recorded),
}

impl Named {
    /// The word that names it.
    pub fn id(self) -> &'static str {
        match self {
            Self::Model(model) => model.id,
            Self::Recorded(recorded) => recorded.id,
        }
    }

    /// What people call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Model(model) => model.name,
            Self::Recorded(recorded) => recorded.name,
        }
    }

    /// Who published it.
    pub fn publisher(self) -> &'static str {
        match self {
            Self::Model(model) => model.publisher,
            Self::Recorded(recorded) => recorded.publisher,
        }
    }

    /// Exact number of parameters; tied weights count once.
    pub fn parameters(self) -> u64 {
        match self {
            Self::Model(model) => model.parameters,
            Self::Recorded(recorded) => recorded.parameters,
        }
    }

    fn entry(&self) -> Entry {
        let (source, aliases): (&str, &[&str]) = match self {
            Self::Model(model) => (model.source, &[]),
            Self::Recorded(recorded) => (recorded.source, recorded.aliases),
        };
        let names = [self.name(), self.publisher(), source].into_iter().chain(aliases.iter().copied());
        Entry { id: self.id().to_lowercase(), names: names.map(str::to_lowercase).collect(), gib: None }
    }
}

/// Whatever can be named and matches, best first; an empty query matches all.
pub fn find_named(query: &str) -> Vec<Named> {
    let all = models().iter().map(Named::Model).chain(recorded().iter().map(Named::Recorded));
    find(&hub_name(query), all.collect(), Named::entry, &VARIANT)
}

/// The models of families that match, best first; an empty query matches all.
pub fn find_models(query: &str) -> Vec<&'static Model> {
    let of_family = |named| match named {
        Named::Model(model) => Some(model),
        Named::Recorded(_) => None,
    };
    find_named(query).into_iter().filter_map(of_family).collect()
}

/// The cards that match, best first; an empty query matches all. What several of it are called finds the one.
pub fn find_gpus(query: &str) -> Vec<&'static Gpu> {
    let (_, query) = count(query);
    let entry = |g: &&'static Gpu| {
        let vendor = match g.vendor {
            Vendor::Nvidia => "nvidia",
            Vendor::Amd => "amd",
            Vendor::Apple => "apple",
        };
        let mobile = if g.form == "laptop" { "mobile" } else { "" };
        Entry {
            id: g.id.to_lowercase(),
            names: [g.name, g.architecture, vendor, mobile].map(str::to_lowercase).into(),
            gib: Some(g.memory.gib()),
        }
    };
    find(query, gpus().iter().collect(), entry, &MAKE)
}

/// The id of the one model that is meant, where there is no doubt.
pub fn called(text: &str) -> Option<&'static str> {
    model_called(text).map(|model| model.id).or_else(|| recorded_called(text).map(|recorded| recorded.id))
}

/// The one model of a family that is meant, where there is no doubt.
pub fn model_called(text: &str) -> Option<&'static Model> {
    if text.len() > LONGEST {
        return None;
    }
    let name = hub_name(text);
    let source = |m: &Model| m.source.eq_ignore_ascii_case(text.trim()) || m.source.eq_ignore_ascii_case(&name);
    let exact = || models().iter().find(|m| m.id.eq_ignore_ascii_case(text.trim()) || source(m));
    exact().or_else(|| {
        let tail = name.rsplit('/').next().unwrap_or_default().to_owned();
        let wanted = core(&tail, &VARIANT);
        only(models().iter().filter(|m| core(m.id, &VARIANT) == wanted || core(m.name, &VARIANT) == wanted))
    })
}

/// The one recording that is meant: several may be of what a repository of the Hub holds.
fn recorded_called(text: &str) -> Option<&'static Recorded> {
    if text.len() > LONGEST {
        return None;
    }
    let name = hub_name(text);
    let exact = recorded().iter().find(|r| r.id.eq_ignore_ascii_case(&name) || r.name.eq_ignore_ascii_case(&name));
    let alias = |r: &&'static Recorded| r.aliases.iter().chain([&r.source]).any(|a| a.eq_ignore_ascii_case(&name));
    exact.or_else(|| only(recorded().iter().filter(alias)))
}

/// The one card that is meant, where there is no doubt, and how many of it: `rtx 5070 ti 12gb`, `8xh200`.
pub fn gpu_called(text: &str) -> Option<(u64, &'static Gpu)> {
    if text.len() > LONGEST {
        return None;
    }
    let (cards, name) = count(text);
    let wanted = core(name, &CARD);
    let exact = || gpus().iter().find(|g| g.id.eq_ignore_ascii_case(name));
    let alike = || only(gpus().iter().filter(|g| core(g.id, &CARD) == wanted || core(g.name, &CARD) == wanted));
    // Its name and what tells it from others of that name.
    let found = || only(find_gpus(name).into_iter().filter(|_| words(name).count() > 1));
    exact().or_else(alike).or_else(found).map(|gpu| (cards.max(1), gpu))
}

/// What a card may be called without.
const CARD: [&str; 11] =
    ["nvidia", "amd", "geforce", "radeon", "instinct", "tesla", "gpu", "rtx", "gtx", "rx", "graphics"];

/// Longer text is no name: a config, perhaps.
const LONGEST: usize = 200;

/// More than that is a name: 7900XTX.
const MOST_CARDS: u64 = 1024;

/// `2x4090` and `8 x H100`: how many, and of what.
pub fn count(text: &str) -> (u64, &str) {
    let text = text.trim();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, rest) = text.split_at(digits);
    let rest = rest.trim_start();
    let after = rest.strip_prefix(['x', 'X', '×', '*']);
    match (number.parse::<u64>(), after) {
        (Ok(n), Some(name)) if n <= MOST_CARDS && !name.trim().is_empty() => (n, name.trim()),
        _ => (1, text),
    }
}

/// `publisher/name` of an address of the Hub; other text as it is.
fn hub_name(text: &str) -> String {
    let text = text.trim();
    let Some((_, path)) = text.split_once("huggingface.co/").or_else(|| text.split_once("hf.co/")) else {
        return text.to_owned();
    };
    let path = path.split(['?', '#']).next().unwrap_or_default();
    path.split('/').take(2).collect::<Vec<_>>().join("/")
}

fn only<T>(mut rows: impl Iterator<Item = T>) -> Option<T> {
    rows.next().filter(|_| rows.next().is_none())
}

/// Letters and digits of a name without the words that do not tell.
fn core(name: &str, idle: &[&str]) -> String {
    words(name).filter(|word| !idle.contains(&word.as_str())).collect()
}

fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '.').filter(|w| !w.is_empty());
    words.map(str::to_lowercase)
}

/// `24gb`, `24GiB`.
fn memory(word: &str) -> Option<f64> {
    let number = word.strip_suffix("gib").or_else(|| word.strip_suffix("gb"))?;
    number.parse::<f64>().ok().filter(|n| *n > 0.0)
}

fn find<T: Copy>(query: &str, rows: Vec<T>, entry: impl Fn(&T) -> Entry, idle: &[&str]) -> Vec<T> {
    // Who publishes a copy says nothing of what it is.
    let (publisher, name) = query.rsplit_once('/').unwrap_or(("", query));
    let asked: Vec<(String, bool)> = words(publisher)
        .map(|word| (word, true))
        .chain(words(name).map(|word| {
            let optional = idle.contains(&word.as_str());
            (word, optional)
        }))
        .collect();
    let head = (squeeze(name), squeeze(&core(name, idle)));
    let mut hits: Vec<(u32, usize)> = rows
        .iter()
        .enumerate()
        .filter_map(|(index, row)| rank(&asked, (&head.0, &head.1), &entry(row)).map(|score| (score, index)))
        .collect();
    // A month or a revision behind the name: the architecture is that of the name without.
    if hits.is_empty() && asked.len() > 1 {
        let digits = |word: &str| word.len() == 4 && word.chars().all(|c| c.is_ascii_digit());
        if let Some(shorter) = name.rsplit_once(['-', ' ']).filter(|(_, last)| digits(last)).map(|(front, _)| front) {
            return find(shorter, rows, entry, idle);
        }
    }
    hits.sort_unstable();
    hits.into_iter().filter_map(|(_, index)| rows.get(index).copied()).collect()
}

/// Where the words stand in a row: `None` when one that counts is missing, else lower is better.
///
/// Words may be parts (`5070`), run together (`5070ti`, `llama3`) or in another order (`8b llama`).
fn rank(asked: &[(String, bool)], (head, bare): (&str, &str), entry: &Entry) -> Option<u32> {
    let full = format!("{} {}", entry.id, entry.names.join(" "));
    let tight_id = squeeze(&entry.id);
    let tight: Vec<String> = entry.names.iter().map(|name| squeeze(name)).collect();
    let names = || tight.iter().chain([&tight_id]);
    // Without the words that do not tell: `qwen3-30b-a3b-instruct` before a `qwen3-vl-30b-a3b` that has the last word as well.
    let called = !bare.is_empty() && names().any(|name| name == bare);
    let mut score = 0;
    for (word, optional) in asked {
        let packed = squeeze(word);
        let parts = || full.split([' ', '-', '/']);
        let holds = |n: f64| entry.gib.is_some_and(|gib| (gib - n).abs() <= n * 0.04);
        score += if parts().any(|part| part == word) || memory(word).is_some_and(holds) {
            0
        } else if parts().any(|part| part.starts_with(word)) {
            1
        } else if !packed.is_empty() && (tight_id.contains(&packed) || tight.iter().any(|name| name.contains(&packed)))
        {
            2
        } else if *optional {
            if called { 0 } else { 3 }
        } else {
            return None;
        };
    }
    // The whole query as the start of the id beats scattered hits: `llama-3` before `tinyllama ... 3t`.
    score += if head.is_empty() || called || names().any(|name| name == head) {
        0
    } else if tight_id.starts_with(head) {
        1
    } else if names().any(|name| name.starts_with(head)) {
        2
    } else {
        3
    };
    Some(score)
}

/// Letters and digits only.
fn squeeze(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(query: &str) -> &'static str {
        find_models(query).first().map_or("", |m| m.id)
    }

    fn card(query: &str) -> &'static str {
        find_gpus(query).first().map_or("", |g| g.id)
    }

    #[test]
    fn nothing_typed_shows_everything() {
        assert_eq!(find_models("").len(), models().len());
        assert_eq!(find_named("").len(), models().len() + recorded().len());
        assert_eq!(find_gpus("  -").len(), gpus().len());
    }

    #[test]
    fn what_people_paste_leads_to_the_architecture() {
        for (query, id) in [
            ("qwen 8b", "qwen3-8b"),
            ("qwen3 next", "qwen3-next-80b-a3b"),
            ("Llama-3.1-8B-Instruct", "llama-3.1-8b"),
            ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
            ("https://huggingface.co/meta-llama/Llama-3.2-1B/tree/main", "llama-3.2-1b"),
            ("mistralai/Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
            ("unsloth/llama-3-8b-bnb-4bit", "llama-3-8b"),
            ("qwen3-30b-a3b-instruct-2507", "qwen3-30b-a3b"),
            ("llama 3.2 1b", "llama-3.2-1b"),
        ] {
            assert_eq!(model(query), id, "{query}");
        }
        assert!(find_models("llama 8b instruct").iter().any(|m| m.id == "llama-3.1-8b"));
    }

    #[test]
    fn cards_are_found_by_name_by_memory_and_in_number() {
        for (query, id) in [
            ("5070ti", "rtx-5070-ti"),
            ("5070 ti", "rtx-5070-ti"),
            ("rtx 5070 ti 12gb", "rtx-5070-ti-laptop"),
            ("laptop 5070 ti", "rtx-5070-ti-laptop"),
            ("7900XTX", "rx-7900-xtx"),
            ("2x4090", "rtx-4090"),
            ("nvidia geforce rtx 4090", "rtx-4090"),
        ] {
            assert_eq!(card(query), id, "{query}");
        }
        assert!(card("8xH100").starts_with("h100"));
        let sized = find_gpus("24gb");
        assert!(card("24gb").starts_with("rtx-"), "cards before machines: {}", card("24gb"));
        assert!(sized.iter().any(|g| g.id == "rtx-4090") && sized.iter().any(|g| g.id == "rx-7900-xtx"));
    }

    #[test]
    fn one_that_is_meant_without_a_doubt_is_taken() {
        let model = |text: &str| model_called(text).map(|m| m.id);
        for text in ["Llama-3.2-1B", "meta-llama/Llama-3.2-1B", "llama 3.2 1b", "Llama 3.2 1B Instruct"] {
            assert_eq!(model(text), Some("llama-3.2-1b"), "{text}");
        }
        assert_eq!(model("llama"), None);
        let card = |text: &str| gpu_called(text).map(|(_, g)| g.id);
        for text in ["4090", "RTX 4090", "NVIDIA GeForce RTX 4090", "rtx 4090 24gb"] {
            assert_eq!(card(text), Some("rtx-4090"), "{text}");
        }
        assert_eq!(gpu_called("2x4090").map(|(cards, g)| (cards, g.id)), Some((2, "rtx-4090")));
        assert_eq!(card("rtx 5070 ti 12gb"), Some("rtx-5070-ti-laptop"));
        assert_eq!((card("h100"), card("8xh100"), card("24gb"), card("")), (None, None, None, None));
        assert_eq!((count("8 x H100"), count("4090"), count("8x")), ((8, "H100"), (1, "4090"), (1, "8x")));
        for m in models() {
            assert_eq!(model(m.id), Some(m.id));
        }
        for g in gpus() {
            assert_eq!((card(g.id), find_gpus(g.name).first().map(|g| g.name)), (Some(g.id), Some(g.name)));
        }
    }

    #[test]
    fn an_unknown_name_finds_nothing_and_odd_input_is_harmless() {
        assert!(
            find_gpus("voodoo").is_empty() && find_gpus("5070 voodoo").is_empty() && find_models("voodoo").is_empty()
        );
        for query in ["\u{0}", "é", "𝕏", "((((", "...", "\u{202e}", "9999999999999999999999x4090", "/", "x"] {
            let _ = (find_models(query), find_gpus(query), model_called(query), gpu_called(query));
        }
    }
}
