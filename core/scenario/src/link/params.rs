//! A link's parameters: found in its text, turned into a scenario's table.

use percent_encoding::percent_decode_str;
use plimsoll_catalog::families::{FamilyKeyKind, OWN};
use plimsoll_ground::{Error, Result};
use plimsoll_ground::{nearest, quoted};
use serde_json::{Map, Value, json};

use super::{BESIDE, FRAGMENT, QUERY, Reading, fragment};
use crate::read::newer;
use crate::{CONTENT, DEFAULT_MODEL, Kind, SCHEMA, Scenario, at, hull, linked};

/// One parameter that says something about the scenario.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Param {
    /// Where it belongs: `training.precision`.
    pub path: String,
    /// What it says.
    pub value: Value,
}

/// Reads the parameters of a link; what cannot be read is a problem, and left out.
pub(super) fn read(link: &str) -> Reading {
    let (query, fragment) = split(link.trim());
    let mut reading = Reading { params: Vec::new(), problems: Vec::new() };
    if let Err(problem) = read_query(query, fragment, &mut reading) {
        // Nothing in the rest can be trusted.
        reading = Reading { params: Vec::new(), problems: vec![problem] };
    }
    reading
}

/// Query and fragment of a whole address, of `?query#fragment`, or of a bare query.
fn split(link: &str) -> (&str, &str) {
    let (front, fragment) = link.split_once('#').unwrap_or((link, ""));
    let query = match front.split_once('?') {
        Some((_, query)) => query,
        // An address without a query, `https://host/path`.
        None if front.contains("://") => "",
        None => front,
    };
    (query, fragment)
}

fn read_query(query: &str, fragment: &str, reading: &mut Reading) -> Result<()> {
    let too_long = |what: &str, most: usize| {
        Error::new("link", format!("its {what} is longer than {most} bytes"), "copy the link again")
    };
    if query.len() > QUERY {
        return Err(too_long("query", QUERY));
    }
    if fragment.len() > FRAGMENT {
        return Err(too_long("part behind #", FRAGMENT));
    }
    let mut promised = None;
    let mut hull = None;
    let mut seen: Vec<String> = Vec::new();
    for part in query.split('&').filter(|p| !p.is_empty()) {
        let (name, text) = part.split_once('=').unwrap_or((part, ""));
        let (Some(name), Some(text)) = (unescape(name), unescape(text)) else {
            let problem = format!("{} is not valid percent-encoding", quoted(part));
            reading.problems.push(Error::new("link", problem, "copy the link again"));
            continue;
        };
        if seen.contains(&name) {
            reading.problems.push(Error::new(short(&name), "it is given twice", "keep one of them"));
            continue;
        }
        match name.as_str() {
            "v" => version(&text)?,
            "hf" => promised = Some(text),
            "hull" => hull = Some(text),
            "axes" => match axes(&text) {
                Ok(axes) => reading.params.extend(axes),
                Err(problem) => reading.problems.push(problem),
            },
            _ => match param(&name, &text) {
                Ok(param) => reading.params.push(param),
                Err(problem) => {
                    reading.problems.push(problem);
                    continue;
                }
            },
        }
        seen.push(name);
    }
    read_fragment(fragment, promised, reading);
    read_hull(fragment, hull, reading);
    Ok(())
}

/// The axes of a hull: `S:224,T:77`.
fn axes(text: &str) -> Result<Vec<Param>> {
    let pair = |pair: &str| {
        let (name, value) = pair.split_once(':')?;
        let named = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        named.then(|| Param { path: format!("model.{name}"), value: Kind::number(value) })
    };
    let refuse = || Error::new("axes", format!("{} are no sizes of a hull", quoted(text)), "write axes=S:224");
    text.split(',').map(|given| pair(given).ok_or_else(refuse)).collect()
}

/// The hull that the query names by its hash; the fragment's `h=...` carries it, or else whoever opens the link has it.
fn read_hull(fragment: &str, named: Option<String>, reading: &mut Reading) {
    let carried = fragment.split('&').find_map(|part| part.strip_prefix("h="));
    let value = match (carried, &named) {
        (Some(content), _) => {
            let found = hull::hash_of(content);
            let problem = match found {
                Ok(hash) if named.as_ref().is_none_or(|named| *named == hash) => None,
                Ok(_) => Some("the hull behind # is not the one that the link names".to_owned()),
                Err(error) => Some(error.problem),
            };
            if let Some(problem) = problem {
                let hint = "copy the whole link again, the part behind # too";
                return reading.problems.push(Error::new("hull", problem, hint));
            }
            format!("{CONTENT}{content}")
        }
        (None, Some(hash)) if hull::is_hash(hash) => hash.clone(),
        (None, Some(other)) => {
            let problem = format!("{} is no hash of a hull", quoted(other));
            return reading.problems.push(Error::new("hull", problem, "copy the link again"));
        }
        (None, None) => return,
    };
    reading.params.push(Param { path: at::model::hull.to_owned(), value: value.into() });
}

/// The fragment holds `m=...`; `promised` is the `model_type` the query says is in it.
fn read_fragment(fragment: &str, promised: Option<String>, reading: &mut Reading) {
    let mut failed = false;
    for part in fragment.split('&').filter(|p| !p.is_empty()) {
        match part.split_once('=') {
            Some(("m", packed)) => match fragment::decode(packed) {
                Ok(config) => reading.params.push(Param { path: "model.hf".to_owned(), value: Value::Object(config) }),
                Err(problem) => {
                    failed = true;
                    reading.problems.push(problem);
                }
            },
            // A measurement or the plans beside it, which are no part of the scenario, or a place on the page.
            Some(("r" | "h" | BESIDE, _)) | None => {}
            Some((name, _)) => reading.problems.push(Error::new(short(name), "unknown part behind #", "take it out")),
        }
    }
    let carried = failed || reading.params.iter().any(|p| p.path == "model.hf");
    if let Some(name) = promised.filter(|_| !carried) {
        reading.problems.push(Error::new(
            "hf",
            format!("the link stands for a pasted config of model_type {} but does not carry it", quoted(&name)),
            "copy the whole link again, the part behind # too",
        ));
    }
}

fn version(text: &str) -> Result<()> {
    match text.parse::<u64>() {
        Ok(SCHEMA) => Ok(()),
        Ok(n) if n > SCHEMA => Err(newer("v", text)),
        _ => Err(Error::new("v", format!("there is no link version {}", quoted(text)), "copy the link again")),
    }
}

/// What one `name=text` says.
fn param(name: &str, text: &str) -> Result<Param> {
    if let Some(lever) = linked().find(|lever| lever.row.link == name) {
        return Ok(Param { path: lever.path.to_owned(), value: lever.row.kind.value(text) });
    }
    let own = OWN.iter().flat_map(|family| family.keys()).find(|key| key.name == name);
    if let Some(key) = own {
        let value = match key.kind {
            FamilyKeyKind::Count { .. } | FamilyKeyKind::Fraction { .. } => Kind::number(text),
            FamilyKeyKind::Flag { .. } => Kind::Flag.value(text),
            FamilyKeyKind::Word { .. } => text.into(),
        };
        return Ok(Param { path: format!("model.{name}"), value });
    }
    let known: Vec<&str> = linked().map(|lever| lever.row.link).collect();
    let hint = match linked().find(|lever| lever.id("_") == name || lever.path == name) {
        Some(lever) => format!("in a link it is called {}", lever.row.link),
        None => {
            // A word cut short may stand for several.
            let begun: Vec<&str> = known.iter().filter(|k| name.len() > 2 && k.starts_with(name)).copied().collect();
            match (&begun[..], nearest(name, &known)) {
                ([_, _, ..], _) => format!("did you mean {}?", begun.join(" or ")),
                (_, Some(near)) => format!("did you mean {near}?"),
                (_, None) => format!("copy the link again; docs/scenario.md has all {} names", known.len()),
            }
        }
    };
    Err(Error::new(short(name), "unknown parameter of the link", hint))
}

/// The scenario's table. A link that names no model is about the default one.
pub(super) fn assemble(params: &[Param]) -> Value {
    let mut sections = Map::new();
    for param in params {
        let mut place = &mut sections;
        let mut steps = param.path.split('.').peekable();
        while let Some(step) = steps.next() {
            if steps.peek().is_none() {
                place.insert(step.to_owned(), param.value.clone());
                break;
            }
            let Value::Object(inner) = place.entry(step).or_insert_with(|| json!({})) else { break };
            place = inner;
        }
    }
    if let Value::Object(model) = sections.entry("model").or_insert_with(|| json!({}))
        && !["catalog", "family", "hf", "hull"].iter().any(|key| model.contains_key(*key))
    {
        model.insert("catalog".to_owned(), json!(DEFAULT_MODEL));
    }
    Value::Object(sections)
}

/// The last parameter without which the rest is a scenario, where leaving out one is enough. The model stays: what is asked of
/// it can be put right on the page, another model would be another question. A hull would be unpacked for each of them, so
/// that none is tried beside one.
pub(super) fn in_the_way(params: &[Param]) -> Option<usize> {
    if params.iter().any(|param| param.path == at::model::hull) {
        return None;
    }
    let others = (0..params.len()).rev().filter(|index| !params[*index].path.starts_with("model."));
    others.into_iter().find(|left_out| {
        let rest: Vec<Param> =
            params.iter().enumerate().filter(|(index, _)| index != left_out).map(|(_, param)| param.clone()).collect();
        Scenario::from_value(&assemble(&rest)).is_ok()
    })
}

/// The parameter an error is about.
pub(super) fn culprit(params: &[Param], error: &Error) -> Option<usize> {
    let key = error.key.as_str();
    let below = |inner: &str, outer: &str| inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.'));
    let exact = params.iter().position(|p| p.path == key);
    exact.or_else(|| params.iter().position(|p| below(key, &p.path) || below(&p.path, key)))
}

/// Percent-decoded, `+` a space as in forms; `None` when it is not UTF-8 or a `%` leads nowhere.
fn unescape(text: &str) -> Option<String> {
    let hex = |b: Option<&u8>| b.is_some_and(u8::is_ascii_hexdigit);
    let bytes = text.as_bytes();
    let broken = |at: usize| bytes.get(at) == Some(&b'%') && !(hex(bytes.get(at + 1)) && hex(bytes.get(at + 2)));
    if (0..bytes.len()).any(broken) {
        return None;
    }
    percent_decode_str(&text.replace('+', " ")).decode_utf8().ok().map(|text| text.into_owned())
}

/// A name from a link, fit to be an error's key.
fn short(name: &str) -> String {
    let plain = !name.is_empty() && name.len() <= 48 && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if plain { name.to_owned() } else { quoted(name) }
}
