//! What `[input]` takes of every kind of model.

use plimsoll_ground::Result;
use serde_json::{Value, json};

use super::*;

/// `[input]` of a model of this type; what was read, written and read again must be the same.
fn read(model_type: &str, config: Value, given: Value) -> Result<Input> {
    let mut config = config;
    config["model_type"] = model_type.into();
    let scenario = Scenario::from_value(&json!({ "model": { "hf": config }, "input": given }))?;
    assert_eq!(Scenario::from_value(&scenario.to_value()), Ok(scenario.clone()));
    if given == json!({}) {
        assert_eq!(Scenario::of(scenario.model.source.clone()), scenario);
    }
    Ok(scenario.input)
}

/// A BART of 512 positions.
fn pair(given: Value) -> Result<Input> {
    read("bart", json!({ "max_position_embeddings": 512 }), given)
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
    assert_eq!(sizes(pair(json!({}))), (Some(512), Some(512), None));
    assert_eq!(sizes(pair(json!({ "seq": 128 }))), (Some(128), Some(128), None));
    assert_eq!(sizes(pair(json!({ "target_seq": 64 }))), (Some(512), Some(64), None));
    assert_eq!(sizes(pair(json!({ "target_seq": null }))), (Some(512), Some(512), None));
    assert_eq!(
        refused(pair(json!({ "target_seq": 513 }))),
        "input.target_seq: 513 tokens are more than the 512 positions this model has parameters for; give at most 512"
    );
    assert!(refused(pair(json!({ "target_seq": 0 }))).starts_with("input.target_seq: 0 is too small"));
    assert_eq!(
        refused(pair(json!({ "image": 224 }))),
        "input.image: it is the side of an image, which only vision models take; bart takes encoder and decoder \
         tokens; leave image out"
    );
}

#[test]
fn the_longer_of_two_lengths_bounds_the_batch() {
    let asked = json!({ "batch": 1 << 24, "seq": 1, "target_seq": 512 });
    assert!(refused(pair(asked)).contains("samples of 512 tokens are more than 4294967296 tokens"));
}

#[test]
fn images_take_the_side_of_the_config() {
    assert_eq!(sizes(read("swin", json!({}), json!({}))), (None, None, Some(224)));
    assert_eq!(sizes(read("swin", json!({ "image_size": 384 }), json!({}))), (None, None, Some(384)));
    assert_eq!(sizes(read("swin", json!({ "image_size": [192, 192] }), json!({}))), (None, None, Some(192)));
    assert_eq!(sizes(read("swin", json!({ "image_size": "big" }), json!({}))), (None, None, Some(224)));
    assert_eq!(sizes(read("swin", json!({ "image_size": 0 }), json!({}))), (None, None, Some(224)));
    assert_eq!(sizes(read("swin", json!({}), json!({ "image": 512 }))), (None, None, Some(512)));
    // A sweep's `seq` says nothing here.
    assert_eq!(sizes(read("swin", json!({}), json!({ "seq": 128 }))), (None, None, Some(224)));
    assert!(refused(read("swin", json!({}), json!({ "seq": -1 }))).starts_with("input.seq: -1 is negative"));
    assert!(refused(read("swin", json!({}), json!({ "image": 1 << 15 }))).contains("from 1 to 16384"));
    assert!(
        refused(read("swin", json!({}), json!({ "attention_mask": "ones" }))).contains("swin takes no attention mask")
    );
    let much = refused(read("swin", json!({}), json!({ "batch": 1 << 24, "image": 1 << 14 })));
    assert!(much.starts_with("input.batch: 16777216 images of 16384 x 16384 are more than"), "{much}");
    assert!(refused(read("swin", json!({}), json!({ "target_seq": 4 }))).contains("swin takes images"));
}

#[test]
fn a_table_of_patch_positions_takes_one_side_only() {
    assert_eq!(sizes(read("vit", json!({ "image_size": 384 }), json!({ "image": 384 }))), (None, None, Some(384)));
    assert_eq!(
        refused(read("vit", json!({ "image_size": 384 }), json!({ "image": 224 }))),
        "input.image: vit takes images of 384 pixels a side only, as its config says; leave image out, or change \
         image_size in the config too"
    );
}

#[test]
fn pairs_cut_their_text_as_the_tokenizer_does() {
    assert_eq!(sizes(read("clip", json!({}), json!({}))), (Some(77), None, Some(224)));
    assert_eq!(sizes(read("clip", json!({}), json!({ "seq": 128, "image": 224 }))), (Some(77), None, Some(224)));
    assert_eq!(sizes(read("clip", json!({}), json!({ "seq": 32 }))), (Some(32), None, Some(224)));
    let large = json!({ "text_config": { "max_position_embeddings": 64 }, "vision_config": { "image_size": 336 } });
    assert_eq!(sizes(read("clip", large.clone(), json!({}))), (Some(64), None, Some(336)));
    assert!(refused(read("clip", large, json!({ "image": 224 }))).contains("336 pixels a side only"));
    assert_eq!(sizes(read("clip", json!({ "text_config": 4 }), json!({}))), (Some(77), None, Some(224)));
}

#[test]
fn speech_counts_label_tokens() {
    assert_eq!(sizes(read("whisper", json!({}), json!({}))), (Some(448), None, None));
    assert_eq!(sizes(read("whisper", json!({ "max_target_positions": 100 }), json!({}))), (Some(100), None, None));
    assert!(refused(read("whisper", json!({}), json!({ "seq": 449 }))).contains("448 positions"));
    assert!(
        refused(read("whisper", json!({}), json!({ "target_seq": 64 }))).contains("speech features and label tokens")
    );
}

#[test]
fn an_encoder_takes_tokens() {
    assert_eq!(sizes(read("bert", json!({}), json!({ "attention_mask": "ones" }))), (Some(512), None, None));
    assert!(refused(read("bert", json!({}), json!({ "target_seq": 64 }))).contains("bert takes tokens"));
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
