//! `[input]`: what one micro-batch looks like, by what the model takes.

use plimsoll_ground::{Error, Result};
use serde_json::{Map, Value};

use super::model::Traits;
use super::table::Table;
use super::{AttentionMask, Input, Inputs, ModelSource, keys, limits};

/// Tokens per sample when the model's own limit is not smaller.
const DEFAULT_SEQ: u64 = 1024;

/// The input of a scenario that says nothing about it.
pub fn default(source: &ModelSource, traits: Traits) -> Input {
    let inputs = traits.inputs();
    let seq = inputs.has_sequence().then(|| default_seq(source, traits));
    Input {
        batch: 1,
        seq,
        target_seq: seq.filter(|_| inputs.has_target()),
        image: inputs.image().map(|(key, side)| config_side(source, key).unwrap_or(side)),
        max_new_tokens: None,
        attention_mask: AttentionMask::None,
    }
}

/// Reads `[input]`.
pub fn read(table: &Table<'_>, source: &ModelSource, traits: Traits) -> Result<Input> {
    table.only(&keys::names("input"))?;
    let inputs = traits.inputs();
    let input = Input {
        batch: batch(table, inputs)?,
        seq: seq(table, source, traits)?,
        target_seq: None,
        image: image(table, source, traits)?,
        max_new_tokens: None,
        attention_mask: attention_mask(table, traits)?,
    };
    let input = Input { target_seq: target_seq(table, source, traits, input.seq)?, ..input };
    bounded(table, &input)?;
    Ok(input)
}

fn batch(table: &Table<'_>, inputs: Inputs) -> Result<u64> {
    let batch = table.count("batch", limits::BATCH)?.unwrap_or(1);
    Ok(if matches!(inputs, Inputs::Graph { .. }) { 1 } else { batch })
}

fn seq(table: &Table<'_>, source: &ModelSource, traits: Traits) -> Result<Option<u64>> {
    let inputs = traits.inputs();
    let most = if matches!(inputs, Inputs::Graph { .. }) { limits::NODES } else { limits::SEQ };
    let given = table.count("seq", most)?;
    if !inputs.has_sequence() {
        // A batch-and-sequence sweep gives every family the same keys: a sound `seq` says nothing here and does no
        // harm. Only a model nobody knows keeps it: it may be one that reads it.
        return Ok(given.filter(|_| traits.takes_anything()));
    }
    let Some(seq) = given else { return Ok(Some(default_seq(source, traits))) };
    if let (Inputs::TextAndImage { .. }, Some(longest)) = (inputs, positions(source, traits)) {
        return Ok(Some(seq.min(longest.max(1))));
    }
    within_positions(table, "seq", seq, source, traits)?;
    Ok(Some(seq))
}

fn target_seq(table: &Table<'_>, source: &ModelSource, traits: Traits, seq: Option<u64>) -> Result<Option<u64>> {
    let inputs = traits.inputs();
    if !inputs.has_target() && !traits.takes_anything() {
        let whose = "it is the number of decoder tokens, which only encoder-decoder models have";
        return foreign(table, "target_seq", whose, traits).map(|()| None);
    }
    let Some(target) = table.optional("target_seq").map(|_| table.count("target_seq", limits::SEQ)).transpose()? else {
        return Ok(seq.filter(|_| inputs.has_target()));
    };
    if let Some(target) = target {
        within_positions(table, "target_seq", target, source, traits)?;
    }
    Ok(target)
}

fn image(table: &Table<'_>, source: &ModelSource, traits: Traits) -> Result<Option<u64>> {
    let inputs = traits.inputs();
    let given = match table.optional("image") {
        Some(_) if inputs.image().is_none() && !traits.takes_anything() => {
            return foreign(table, "image", "it is the side of an image, which only vision models take", traits)
                .map(|()| None);
        }
        Some(_) => table.count("image", limits::IMAGE)?,
        None => None,
    };
    let Some((key, side)) = inputs.image() else { return Ok(given) };
    let own = config_side(source, key).unwrap_or(side);
    let fixed = matches!(inputs, Inputs::Image { fixed: true, .. } | Inputs::TextAndImage { .. });
    match given {
        Some(given) if fixed && given != own && !traits.takes_anything() => Err(Error::new(
            table.at("image"),
            format!("{} takes images of {own} pixels a side only, as its config says", traits.name()),
            format!("leave image out, or change {key} in the config too"),
        )),
        given => Ok(Some(given.unwrap_or(own))),
    }
}

fn attention_mask(table: &Table<'_>, traits: Traits) -> Result<AttentionMask> {
    let mask = table.word("attention_mask")?.unwrap_or(AttentionMask::None);
    if mask != AttentionMask::None && !traits.has_mask() {
        return Err(Error::new(
            table.at("attention_mask"),
            format!("{} takes no attention mask", traits.name()),
            "leave attention_mask out",
        ));
    }
    Ok(mask)
}

/// Refuses a key that says something about another kind of model.
fn foreign(table: &Table<'_>, key: &str, whose: &str, traits: Traits) -> Result<()> {
    if table.optional(key).is_none() {
        return Ok(());
    }
    let problem = format!("{whose}; {} takes {}", traits.name(), traits.inputs().words());
    Err(Error::new(table.at(key), problem, format!("leave {key} out")))
}

fn within_positions(table: &Table<'_>, key: &str, length: u64, source: &ModelSource, traits: Traits) -> Result<()> {
    match positions(source, traits).filter(|p| traits.learned_positions() && length > *p) {
        None => Ok(()),
        Some(positions) => Err(Error::new(
            table.at(key),
            format!("{length} tokens are more than the {positions} positions this model has parameters for"),
            format!("give at most {positions}"),
        )),
    }
}

/// Refuses a micro-batch beyond anything that is trained.
fn bounded(table: &Table<'_>, input: &Input) -> Result<()> {
    let hint = "give a smaller batch, and make up for it with training.accumulation";
    let longest = input.seq.max(input.target_seq).unwrap_or(0);
    let batch = input.batch;
    if batch.saturating_mul(longest) > limits::TOKENS {
        let problem = format!("{batch} samples of {longest} tokens are more than {} tokens", limits::TOKENS);
        return Err(Error::new(table.at("batch"), format!("{problem} in one micro-batch"), hint));
    }
    let side = input.image.unwrap_or(0);
    if batch.saturating_mul(side).saturating_mul(side) > limits::PIXELS {
        let problem = format!("{batch} images of {side} x {side} are more than {} pixels", limits::PIXELS);
        return Err(Error::new(table.at("batch"), format!("{problem} in one micro-batch"), hint));
    }
    Ok(())
}

fn default_seq(source: &ModelSource, traits: Traits) -> u64 {
    match traits.inputs() {
        Inputs::Graph { nodes } => nodes,
        _ => positions(source, traits).unwrap_or(DEFAULT_SEQ).clamp(1, DEFAULT_SEQ),
    }
}

/// The longest sequence the model was made for, in tokens; `None` where it has no sequence or nothing says.
pub fn positions(source: &ModelSource, traits: Traits) -> Option<u64> {
    if let (Traits::Family(family), ModelSource::Family { keys, .. }) = (traits, source) {
        return keys.get(family.position_key?)?.as_u64();
    }
    let (keys, default) = traits.position_keys();
    // RoBERTa's positions begin behind the padding token's id: that many and one more stand for no token.
    let counted = matches!(traits, Traits::HuggingFace(model_type) if model_type.name == "roberta");
    let padding = |config: &Map<String, Value>| config.get("pad_token_id").and_then(Value::as_u64).unwrap_or(1);
    let given = |config: &Map<String, Value>| {
        let positions = keys.iter().find_map(|key| nested(config, key)?.as_u64())?;
        let reserved = if counted { padding(config).saturating_add(1) } else { 0 };
        Some(positions.saturating_sub(reserved))
    };
    let given = match source {
        ModelSource::HuggingFace(config) => given(config),
        other => other.config().as_ref().and_then(given),
    };
    given.or(default)
}

/// The side of an image as the model's config has it.
fn config_side(source: &ModelSource, key: &str) -> Option<u64> {
    let side = |config: &Map<String, Value>| match nested(config, key)? {
        // Some configs write height and width.
        Value::Array(sides) => sides.iter().filter_map(Value::as_u64).max(),
        side => side.as_u64(),
    };
    let side = match source {
        ModelSource::HuggingFace(config) => side(config),
        other => side(&other.config()?),
    };
    side.filter(|side| (1..=limits::IMAGE).contains(side))
}

/// The value at a key, or at a key of a nested table (`vision_config.image_size`).
fn nested<'a>(config: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    let value = config.get(first)?;
    rest.map_or(Some(value), |rest| nested(value.as_object()?, rest))
}
