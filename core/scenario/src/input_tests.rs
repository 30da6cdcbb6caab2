//! What `[input]` takes of every kind of model, on rows made for these tests.

use plimsoll_ground::Result;
use serde_json::{Value, json};

use plimsoll_catalog::families::{self, Positions};

use super::table::Table;
use super::*;

/// A row made for these tests: as if this type had been listed so.
fn row(name: &str, inputs: Inputs, keys: &'static [&'static str], positions: u64) -> Family {
    Family {
        inputs,
        has_mask: !matches!(inputs, Inputs::Image { .. } | Inputs::Speech),
        positions: Positions {
            keys,
            default: (!keys.is_empty()).then_some(positions),
            learned: true,
            ..Positions::NONE
        },
        ..*families::of_type(name).unwrap()
    }
}

const POSITIONS: &[&str] = &["max_position_embeddings"];

fn encoder() -> Family {
    row("bert", Inputs::Tokens, POSITIONS, 512)
}

fn pair() -> Family {
    row("bart", Inputs::EncoderDecoder, POSITIONS, 512)
}

fn vision() -> Family {
    row("swin", Inputs::Image { key: "image_size", side: 224, fixed: false }, &[], 0)
}

fn patches() -> Family {
    row("vit", Inputs::Image { key: "image_size", side: 224, fixed: true }, &[], 0)
}

fn clip() -> Family {
    let inputs = Inputs::TextAndImage { key: "vision_config.image_size", side: 224 };
    row("clip", inputs, &["text_config.max_position_embeddings"], 77)
}

fn speech() -> Family {
    row("whisper", Inputs::Speech, &["max_target_positions"], 448)
}

fn config(value: Value) -> ModelSource {
    let Value::Object(config) = value else { panic!("a table") };
    ModelSource::HuggingFace(config)
}

/// `[input]` of a model of `row`; what was read, written and read again must be the same.
fn read(family: &Family, source: Value, given: Value) -> Result<Input> {
    let source = config(source);
    let root = json!({ "input": given });
    let input = input::read(&Table::root(&root)?.table("input")?, &source, family)?;
    let written = Scenario { input: input.clone(), ..Scenario::of(source.clone()) }.to_value();
    assert_eq!(input::read(&Table::root(&written)?.table("input")?, &source, family), Ok(input.clone()));
    if given == json!({}) {
        assert_eq!(input::default(&source, family), input);
    }
    Ok(input)
}

fn sizes(input: Result<Input>) -> (Option<u64>, Option<u64>, Option<u64>) {
    let input = input.unwrap();
    (input.seq, input.target_seq, input.image)
}

fn refused(input: Result<Input>) -> String {
    input.unwrap_err().to_string()
}

#[test]
fn an_encoder_decoder_has_two_lengths() {
    assert_eq!(sizes(read(&pair(), json!({}), json!({}))), (Some(512), Some(512), None));
    assert_eq!(sizes(read(&pair(), json!({}), json!({ "seq": 128 }))), (Some(128), Some(128), None));
    assert_eq!(sizes(read(&pair(), json!({}), json!({ "target_seq": 64 }))), (Some(512), Some(64), None));
    assert_eq!(sizes(read(&pair(), json!({}), json!({ "target_seq": null }))), (Some(512), Some(512), None));
    assert_eq!(
        refused(read(&pair(), json!({}), json!({ "target_seq": 513 }))),
        "input.target_seq: 513 tokens are more than the 512 positions this model has parameters for; give at most 512"
    );
    assert!(
        refused(read(&pair(), json!({}), json!({ "target_seq": 0 }))).starts_with("input.target_seq: 0 is too small")
    );
    assert_eq!(
        refused(read(&pair(), json!({}), json!({ "image": 224 }))),
        "input.image: it is the side of an image, which only vision models take; bart takes encoder and decoder \
         tokens; leave image out"
    );
}

#[test]
fn the_longer_of_two_lengths_bounds_the_batch() {
    let asked = json!({ "batch": 1 << 24, "seq": 1, "target_seq": 512 });
    assert!(refused(read(&pair(), json!({}), asked)).contains("samples of 512 tokens are more than 4294967296 tokens"));
}

#[test]
fn images_take_the_side_of_the_config() {
    assert_eq!(sizes(read(&vision(), json!({}), json!({}))), (None, None, Some(224)));
    assert_eq!(sizes(read(&vision(), json!({ "image_size": 384 }), json!({}))), (None, None, Some(384)));
    assert_eq!(sizes(read(&vision(), json!({ "image_size": [192, 192] }), json!({}))), (None, None, Some(192)));
    assert_eq!(sizes(read(&vision(), json!({ "image_size": "big" }), json!({}))), (None, None, Some(224)));
    assert_eq!(sizes(read(&vision(), json!({ "image_size": 0 }), json!({}))), (None, None, Some(224)));
    assert_eq!(sizes(read(&vision(), json!({}), json!({ "image": 512 }))), (None, None, Some(512)));
    // A sweep's `seq` says nothing here.
    assert_eq!(sizes(read(&vision(), json!({}), json!({ "seq": 128 }))), (None, None, Some(224)));
    assert!(refused(read(&vision(), json!({}), json!({ "seq": -1 }))).starts_with("input.seq: -1 is negative"));
    assert!(refused(read(&vision(), json!({}), json!({ "image": 1 << 15 }))).contains("from 1 to 16384"));
    assert!(
        refused(read(&vision(), json!({}), json!({ "attention_mask": "ones" })))
            .contains("swin takes no attention mask")
    );
    let much = refused(read(&vision(), json!({}), json!({ "batch": 1 << 24, "image": 1 << 14 })));
    assert!(much.starts_with("input.batch: 16777216 images of 16384 x 16384 are more than"), "{much}");
    assert!(refused(read(&vision(), json!({}), json!({ "target_seq": 4 }))).contains("swin takes images"));
}

#[test]
fn a_table_of_patch_positions_takes_one_side_only() {
    assert_eq!(sizes(read(&patches(), json!({ "image_size": 384 }), json!({ "image": 384 }))), (None, None, Some(384)));
    assert_eq!(
        refused(read(&patches(), json!({ "image_size": 384 }), json!({ "image": 224 }))),
        "input.image: vit takes images of 384 pixels a side only, as its config says; leave image out, or change \
         image_size in the config too"
    );
}

#[test]
fn pairs_cut_their_text_as_the_tokenizer_does() {
    assert_eq!(sizes(read(&clip(), json!({}), json!({}))), (Some(77), None, Some(224)));
    assert_eq!(sizes(read(&clip(), json!({}), json!({ "seq": 128, "image": 224 }))), (Some(77), None, Some(224)));
    assert_eq!(sizes(read(&clip(), json!({}), json!({ "seq": 32 }))), (Some(32), None, Some(224)));
    let large = json!({ "text_config": { "max_position_embeddings": 64 }, "vision_config": { "image_size": 336 } });
    assert_eq!(sizes(read(&clip(), large.clone(), json!({}))), (Some(64), None, Some(336)));
    assert!(refused(read(&clip(), large, json!({ "image": 224 }))).contains("336 pixels a side only"));
    assert_eq!(sizes(read(&clip(), json!({ "text_config": 4 }), json!({}))), (Some(77), None, Some(224)));
}

#[test]
fn speech_counts_label_tokens() {
    assert_eq!(sizes(read(&speech(), json!({}), json!({}))), (Some(448), None, None));
    assert_eq!(sizes(read(&speech(), json!({ "max_target_positions": 100 }), json!({}))), (Some(100), None, None));
    assert!(refused(read(&speech(), json!({}), json!({ "seq": 449 }))).contains("448 positions"));
    assert!(
        refused(read(&speech(), json!({}), json!({ "target_seq": 64 }))).contains("speech features and label tokens")
    );
}

#[test]
fn an_encoder_takes_tokens() {
    assert_eq!(sizes(read(&encoder(), json!({}), json!({ "attention_mask": "ones" }))), (Some(512), None, None));
    assert!(refused(read(&encoder(), json!({}), json!({ "target_seq": 64 }))).contains("bert takes tokens"));
}

#[test]
fn a_graph_is_its_nodes() {
    let gat = |input: Value| Scenario::from_value_to_measure(&json!({ "model": { "family": "gat" }, "input": input }));
    let read = |given: Value| gat(given).map(|s| (s.input.batch, s.input.seq)).unwrap();
    assert_eq!(read(json!({})), (1, Some(2708)));
    assert_eq!(read(json!({ "seq": 5000, "batch": 64 })), (1, Some(5000)));
    assert!(gat(json!({ "seq": 1 << 21 })).unwrap_err().problem.contains("too large"));
    assert!(gat(json!({ "attention_mask": "ones" })).unwrap_err().problem.contains("gat takes no attention mask"));
}
