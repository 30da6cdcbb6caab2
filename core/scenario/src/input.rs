//! `[input]`: what one micro-batch looks like, by what the model takes.

use plimsoll_ground::{Error, Result};
use serde_json::{Map, Value};

use super::lever::{Group, Kind, Near, levers};
use super::{AttentionMask, Family, Inputs, Mode, ModelSource, Scenario, limits};

levers! {
    /// `[input]`: what one micro-batch looks like.
    pub struct Input = "input", input of Scenario {
        /// Micro-batch on one device, in samples. Of a graph it is 1.
        pub batch: u64 = 1 => {
            link: "batch",
            kind: Kind::Count { most: limits::BATCH },
            label: "Micro-batch",
            help: "Samples at once on one card",
            group: Group::Load,
            slide: Some((1, 512)),
            near: Near::octaves(1.0, 1.0),
        }
        /// Tokens per sample (nodes, for graphs; label tokens, for speech); absent only where a sample has no sequence
        /// (`mlp`, `nbeats`, images), and where speech is transcribed.
        pub seq: Option<u64> = None, or seq => {
            link: "seq",
            kind: Kind::Count { most: limits::SEQ },
            label: "Sequence",
            help: "Tokens in a sample",
            otherwise: "1024, or fewer when the model takes fewer",
            group: Group::Load,
            slide: Some((64, 131_072)),
            near: Near::octaves(1.0, 2.0),
        }
        /// Decoder tokens of an encoder-decoder in training; absent for every other model.
        pub target_seq: Option<u64> = None, or target_seq => {
            link: "target_seq",
            kind: Kind::Count { most: limits::SEQ },
            label: "Target",
            help: "Tokens of the decoder in a sample",
            otherwise: "as many as seq",
            group: Group::Load,
            slide: Some((16, 4096)),
            near: Near::octaves(1.0, 2.0),
        }
        /// Side of a square image in pixels; absent where a sample has no image.
        pub image: Option<u64> = None, or image => {
            link: "image",
            kind: Kind::Count { most: limits::IMAGE },
            label: "Image",
            help: "Side of an image in pixels",
            otherwise: "what the model takes",
            group: Group::Load,
            slide: Some((32, 1024)),
            near: Near::octaves(2.0, 2.0),
        }
        /// Tokens that are generated after the prompt; absent but in inference of a model that generates.
        pub max_new_tokens: Option<u64> = None, or max_new_tokens => {
            link: "new_tokens",
            kind: Kind::Count { most: limits::SEQ },
            label: "New tokens",
            help: "Tokens generated after the prompt, in inference",
            otherwise: "256, or fewer when the model takes fewer",
            group: Group::Load,
            slide: Some((1, 8192)),
            only: Some(Mode::Inference),
            near: Near::octaves(0.5, 1.0),
        }
        /// Whether an attention mask is given, and whether anything in it is padded.
        pub attention_mask: AttentionMask = AttentionMask::None => {
            link: "mask",
            label: "Attention mask",
            near: Near::unlike(1.0),
        }
    }
}

/// Tokens per sample when the model's own limit is not smaller.
const DEFAULT_SEQ: u64 = 1024;

/// Tokens generated when nothing is said, as far as the model has positions for them.
const DEFAULT_NEW_TOKENS: u64 = 256;

/// The sequence of a scenario that says none. A prompt leaves room for what is generated behind it.
fn seq(scenario: &Scenario) -> Option<u64> {
    let (family, source) = (scenario.family(), &scenario.model.source);
    let inference = scenario.training.mode == Mode::Inference;
    let seq = match family.inputs {
        inputs if !inputs.has_sequence() => return None,
        // Labels: there are none.
        Inputs::Speech if inference => return None,
        Inputs::Graph { nodes } => nodes,
        _ => positions(source, family).unwrap_or(DEFAULT_SEQ).clamp(1, DEFAULT_SEQ),
    };
    if !scenario.generates() || family.inputs != Inputs::Tokens {
        return Some(seq);
    }
    let tokens = scenario.input.max_new_tokens.unwrap_or_else(|| new_tokens(scenario, None));
    let room = most_positions(scenario).map(|p| p.saturating_sub(tokens).max(1));
    Some(seq.min(room.unwrap_or(seq)))
}

/// As long as the sequence.
fn target_seq(scenario: &Scenario) -> Option<u64> {
    let has = scenario.family().inputs.has_target() && !scenario.generates();
    if has { scenario.input.seq.or_else(|| seq(scenario)) } else { None }
}

/// The side the model was made for.
fn image(scenario: &Scenario) -> Option<u64> {
    let (key, side) = scenario.family().inputs.image()?;
    Some(config_side(&scenario.model.source, key).unwrap_or(side))
}

/// As many as there are positions left for, and no more than people ask for.
fn max_new_tokens(scenario: &Scenario) -> Option<u64> {
    scenario.generates().then(|| new_tokens(scenario, scenario.input.seq))
}

/// The same behind a sequence that is said, or one that makes room for them.
fn new_tokens(scenario: &Scenario, said: Option<u64>) -> u64 {
    let left = most_positions(scenario).map(|p| match said {
        Some(_) => p.saturating_sub(begin(scenario)),
        None => p / 2,
    });
    DEFAULT_NEW_TOKENS.min(left.unwrap_or(DEFAULT_NEW_TOKENS)).max(1)
}

/// Tokens the decoder has seen before the first new one.
fn begin(scenario: &Scenario) -> u64 {
    match scenario.family().inputs {
        Inputs::EncoderDecoder | Inputs::Speech => 1,
        _ => scenario.input.seq.unwrap_or(1),
    }
}

/// The positions that are parameters: more tokens than these cannot run.
fn most_positions(scenario: &Scenario) -> Option<u64> {
    let family = scenario.family();
    if family.positions.learned { positions(&scenario.model.source, family) } else { None }
}

/// Lets go of what says nothing for this model: a batch-and-sequence sweep gives every family the same keys, and a sound
/// value that nobody reads does no harm. Only a model nobody knows keeps it: it may be one that reads it.
pub fn settle(scenario: &mut Scenario) {
    let family = scenario.family();
    let (inputs, inference) = (family.inputs, scenario.training.mode == Mode::Inference);
    if matches!(inputs, Inputs::Graph { .. }) {
        scenario.input.batch = 1;
    }
    if !inputs.has_sequence() && !family.is_unlisted() || inputs == Inputs::Speech && inference {
        scenario.input.seq = None;
    }
    // A tokenizer cuts a text to the longest the model takes.
    if let (Inputs::TextAndImage { .. }, Some(longest)) = (inputs, positions(&scenario.model.source, family)) {
        scenario.input.seq = scenario.input.seq.map(|seq| seq.min(longest.max(1)));
    }
}

/// Whether the model takes such an input.
///
/// # Errors
/// The first key that says something about another kind of model, or too much for this one.
pub fn check(scenario: &Scenario) -> Result<()> {
    let (input, family) = (&scenario.input, scenario.family());
    let inputs = family.inputs;
    if input.target_seq.is_some() && !inputs.has_target() && !family.is_unlisted() {
        let whose = "it is the number of decoder tokens, which only encoder-decoder models have";
        return foreign("target_seq", whose, family);
    }
    if input.image.is_some() && inputs.image().is_none() && !family.is_unlisted() {
        return foreign("image", "it is the side of an image, which only vision models take", family);
    }
    if let (Inputs::Graph { .. }, Some(nodes)) = (inputs, input.seq.filter(|nodes| *nodes > limits::NODES)) {
        let hint = format!("give a whole number from 1 to {}", limits::NODES);
        return Err(Error::new(at::seq, format!("{nodes} is too large"), hint));
    }
    for (key, length) in [(at::seq, input.seq), (at::target_seq, input.target_seq)] {
        if let (Some(length), Some(positions)) = (length, most_positions(scenario))
            && length > positions
        {
            let problem =
                format!("{length} tokens are more than the {positions} positions this model has parameters for");
            return Err(Error::new(key, problem, format!("give at most {positions}")));
        }
    }
    fixed_image(scenario, family)?;
    if input.attention_mask != AttentionMask::None && !family.has_mask {
        let problem = format!("{} takes no attention mask", family.name);
        return Err(Error::new(at::attention_mask, problem, "leave attention_mask out"));
    }
    bounded(scenario)?;
    generated(scenario, family)
}

/// Refuses a key that says something about another kind of model.
fn foreign(key: &str, whose: &str, family: &Family) -> Result<()> {
    let problem = format!("{whose}; {} takes {}", family.name, family.inputs.words());
    Err(Error::new(format!("input.{key}"), problem, format!("leave {key} out")))
}

/// Refuses images of another side than positions were made for.
fn fixed_image(scenario: &Scenario, family: &Family) -> Result<()> {
    let (key, own) = match family.inputs {
        Inputs::Image { key, side, fixed: true } | Inputs::TextAndImage { key, side } if !family.is_unlisted() => {
            (key, config_side(&scenario.model.source, key).unwrap_or(side))
        }
        _ => return Ok(()),
    };
    if scenario.input.image.is_none_or(|given| given == own) {
        return Ok(());
    }
    Err(Error::new(
        at::image,
        format!("{} takes images of {own} pixels a side only, as its config says", family.name),
        format!("leave image out, or change {key} in the config too"),
    ))
}

/// Refuses a micro-batch beyond anything that is trained.
fn bounded(scenario: &Scenario) -> Result<()> {
    let (input, batch) = (&scenario.input, scenario.input.batch);
    let hint = "give a smaller batch, and make up for it with training.accumulation";
    let longest = input.seq.max(input.target_seq).unwrap_or(0);
    if batch.saturating_mul(longest) > limits::TOKENS {
        let problem = format!("{batch} samples of {longest} tokens are more than {} tokens", limits::TOKENS);
        return Err(Error::new(at::batch, format!("{problem} in one micro-batch"), hint));
    }
    let side = input.image.unwrap_or(0);
    if batch.saturating_mul(side).saturating_mul(side) > limits::PIXELS {
        let problem = format!("{batch} images of {side} x {side} are more than {} pixels", limits::PIXELS);
        return Err(Error::new(at::batch, format!("{problem} in one micro-batch"), hint));
    }
    Ok(())
}

/// What inference changes: tokens that are generated, and where a sequence begins.
fn generated(scenario: &Scenario, family: &Family) -> Result<()> {
    let refuse = |key: &str, problem: &str, hint: &str| Err(Error::new(format!("input.{key}"), problem, hint));
    let Some(tokens) = scenario.input.max_new_tokens else { return Ok(()) };
    if scenario.training.mode == Mode::Train {
        return refuse(
            "max_new_tokens",
            "nothing is generated while a model is trained",
            "leave it out, or set training.mode = \"inference\"",
        );
    }
    if !scenario.generates() {
        return refuse("max_new_tokens", "this model makes no text: inference is one forward", "leave it out");
    }
    if scenario.input.target_seq.is_some() {
        return refuse(
            "target_seq",
            "the decoder begins with one token, and what follows is generated",
            "leave it out, and set input.max_new_tokens",
        );
    }
    let begin = begin(scenario);
    let longest = begin.saturating_add(tokens);
    if let Some(positions) = most_positions(scenario).filter(|p| longest > *p) {
        let hint = match family.inputs {
            Inputs::Tokens => format!("let input.seq and input.max_new_tokens be at most {positions} together"),
            _ => format!("use at most {}", positions.saturating_sub(begin)),
        };
        let read = if begin == 1 { "token" } else { "tokens" };
        return Err(Error::new(
            at::max_new_tokens,
            format!(
                "{begin} {read} and {tokens} new ones are more than the {positions} positions this model has parameters for"
            ),
            hint,
        ));
    }
    let batch = scenario.input.batch;
    if batch.saturating_mul(longest) > limits::TOKENS {
        let problem = format!("{batch} samples of {longest} tokens are more than {} tokens", limits::TOKENS);
        return Err(Error::new(at::batch, problem, "give a smaller batch"));
    }
    Ok(())
}

/// The longest sequence the model was made for, in tokens; `None` where it has no sequence or nothing says.
pub fn positions(source: &ModelSource, family: &Family) -> Option<u64> {
    let row = &family.positions;
    let given = |keys: &Map<String, Value>| {
        let positions = row.keys.iter().find_map(|key| nested(keys, key)?.as_u64())?;
        let padding = || keys.get("pad_token_id").and_then(Value::as_u64).unwrap_or(1);
        let reserved = if row.behind_padding { padding().saturating_add(1) } else { 0 };
        Some(positions.saturating_sub(reserved))
    };
    if row.keys.is_empty() {
        return row.default;
    }
    source.keys().and_then(given).or(row.default)
}

/// The side of an image as the model's config has it.
fn config_side(source: &ModelSource, key: &str) -> Option<u64> {
    let side = |config: &Map<String, Value>| match nested(config, key)? {
        // Some configs write height and width.
        Value::Array(sides) => sides.iter().filter_map(Value::as_u64).max(),
        side => side.as_u64(),
    };
    source.keys().and_then(side).filter(|side| (1..=limits::IMAGE).contains(side))
}

/// The value at a key, or at a key of a nested table (`vision_config.image_size`).
pub fn nested<'a>(config: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    let (first, rest) = key.split_once('.').map_or((key, None), |(first, rest)| (first, Some(rest)));
    let value = config.get(first)?;
    rest.map_or(Some(value), |rest| nested(value.as_object()?, rest))
}
