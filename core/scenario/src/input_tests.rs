//! What `[input]` takes of every kind of model, on rows made for these tests.

use plimsoll_ground::Result;
use serde_json::{Value, json};

use super::model::Traits;
use super::supported::ModelType;
use super::table::Table;
use super::*;

const fn row(name: &'static str, task: &'static [Task], inputs: Inputs, keys: &'static [&'static str]) -> ModelType {
    ModelType {
        name,
        tasks: task,
        inputs,
        has_mask: !matches!(inputs, Inputs::Image { .. } | Inputs::Speech),
        position_keys: keys,
        positions: 512,
        learned_positions: true,
    }
}

const IMAGE: Inputs = Inputs::Image { key: "image_size", side: 224, fixed: false };
const POSITIONS: &[&str] = &["max_position_embeddings"];

static ENCODER: ModelType = row("bert", &[Task::MaskedLm], Inputs::Tokens, POSITIONS);
static PAIR: ModelType = row("bart", &[Task::Seq2SeqLm], Inputs::EncoderDecoder, POSITIONS);
static VISION: ModelType = row("swin", &[Task::ImageClassification], IMAGE, &[]);
static PATCHES: ModelType =
    row("vit", &[Task::ImageClassification], Inputs::Image { key: "image_size", side: 224, fixed: true }, &[]);
static CLIP: ModelType = ModelType {
    positions: 77,
    ..row(
        "clip",
        &[Task::Contrastive],
        Inputs::TextAndImage { key: "vision_config.image_size", side: 224 },
        &["text_config.max_position_embeddings"],
    )
};
static SPEECH: ModelType =
    ModelType { positions: 448, ..row("whisper", &[Task::SpeechSeq2Seq], Inputs::Speech, &["max_target_positions"]) };

fn config(value: Value) -> ModelSource {
    let Value::Object(config) = value else { panic!("a table") };
    ModelSource::HuggingFace(config)
}

/// `[input]` of a model of `row`; what was read, written and read again must be the same.
fn read(row: &'static ModelType, source: Value, given: Value) -> Result<Input> {
    let (source, traits) = (config(source), Traits::HuggingFace(row));
    let root = json!({ "input": given });
    let input = input::read(&Table::root(&root)?.table("input")?, &source, traits)?;
    let written = Scenario { input: input.clone(), ..Scenario::of(source.clone()) }.to_value();
    assert_eq!(input::read(&Table::root(&written)?.table("input")?, &source, traits), Ok(input.clone()));
    if given == json!({}) {
        assert_eq!(input::default(&source, traits), input);
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
    assert_eq!(sizes(read(&PAIR, json!({}), json!({}))), (Some(512), Some(512), None));
    assert_eq!(sizes(read(&PAIR, json!({}), json!({ "seq": 128 }))), (Some(128), Some(128), None));
    assert_eq!(sizes(read(&PAIR, json!({}), json!({ "target_seq": 64 }))), (Some(512), Some(64), None));
    assert_eq!(sizes(read(&PAIR, json!({}), json!({ "target_seq": null }))), (Some(512), Some(512), None));
    assert_eq!(
        refused(read(&PAIR, json!({}), json!({ "target_seq": 513 }))),
        "input.target_seq: 513 tokens are more than the 512 positions this model has parameters for; give at most 512"
    );
    assert!(
        refused(read(&PAIR, json!({}), json!({ "target_seq": 0 }))).starts_with("input.target_seq: 0 is too small")
    );
    assert_eq!(
        refused(read(&PAIR, json!({}), json!({ "image": 224 }))),
        "input.image: it is the side of an image, which only vision models take; bart takes encoder and decoder \
         tokens; leave image out"
    );
}

#[test]
fn the_longer_of_two_lengths_bounds_the_batch() {
    let asked = json!({ "batch": 1 << 24, "seq": 1, "target_seq": 512 });
    assert!(refused(read(&PAIR, json!({}), asked)).contains("samples of 512 tokens are more than 4294967296 tokens"));
}

#[test]
fn images_take_the_side_of_the_config() {
    assert_eq!(sizes(read(&VISION, json!({}), json!({}))), (None, None, Some(224)));
    assert_eq!(sizes(read(&VISION, json!({ "image_size": 384 }), json!({}))), (None, None, Some(384)));
    assert_eq!(sizes(read(&VISION, json!({ "image_size": [192, 192] }), json!({}))), (None, None, Some(192)));
    assert_eq!(sizes(read(&VISION, json!({ "image_size": "big" }), json!({}))), (None, None, Some(224)));
    assert_eq!(sizes(read(&VISION, json!({ "image_size": 0 }), json!({}))), (None, None, Some(224)));
    assert_eq!(sizes(read(&VISION, json!({}), json!({ "image": 512 }))), (None, None, Some(512)));
    // A sweep's `seq` says nothing here.
    assert_eq!(sizes(read(&VISION, json!({}), json!({ "seq": 128 }))), (None, None, Some(224)));
    assert!(refused(read(&VISION, json!({}), json!({ "seq": -1 }))).starts_with("input.seq: -1 is negative"));
    assert!(refused(read(&VISION, json!({}), json!({ "image": 1 << 15 }))).contains("from 1 to 16384"));
    assert!(
        refused(read(&VISION, json!({}), json!({ "attention_mask": "ones" }))).contains("swin takes no attention mask")
    );
    let much = refused(read(&VISION, json!({}), json!({ "batch": 1 << 24, "image": 1 << 14 })));
    assert!(much.starts_with("input.batch: 16777216 images of 16384 x 16384 are more than"), "{much}");
    assert!(refused(read(&VISION, json!({}), json!({ "target_seq": 4 }))).contains("swin takes images"));
}

#[test]
fn a_table_of_patch_positions_takes_one_side_only() {
    assert_eq!(sizes(read(&PATCHES, json!({ "image_size": 384 }), json!({ "image": 384 }))), (None, None, Some(384)));
    assert_eq!(
        refused(read(&PATCHES, json!({ "image_size": 384 }), json!({ "image": 224 }))),
        "input.image: vit takes images of 384 pixels a side only, as its config says; leave image out, or change \
         image_size in the config too"
    );
}

#[test]
fn pairs_cut_their_text_as_the_tokenizer_does() {
    assert_eq!(sizes(read(&CLIP, json!({}), json!({}))), (Some(77), None, Some(224)));
    assert_eq!(sizes(read(&CLIP, json!({}), json!({ "seq": 128, "image": 224 }))), (Some(77), None, Some(224)));
    assert_eq!(sizes(read(&CLIP, json!({}), json!({ "seq": 32 }))), (Some(32), None, Some(224)));
    let large = json!({ "text_config": { "max_position_embeddings": 64 }, "vision_config": { "image_size": 336 } });
    assert_eq!(sizes(read(&CLIP, large.clone(), json!({}))), (Some(64), None, Some(336)));
    assert!(refused(read(&CLIP, large, json!({ "image": 224 }))).contains("336 pixels a side only"));
    assert_eq!(sizes(read(&CLIP, json!({ "text_config": 4 }), json!({}))), (Some(77), None, Some(224)));
}

#[test]
fn speech_counts_label_tokens() {
    assert_eq!(sizes(read(&SPEECH, json!({}), json!({}))), (Some(448), None, None));
    assert_eq!(sizes(read(&SPEECH, json!({ "max_target_positions": 100 }), json!({}))), (Some(100), None, None));
    assert!(refused(read(&SPEECH, json!({}), json!({ "seq": 449 }))).contains("448 positions"));
    assert!(
        refused(read(&SPEECH, json!({}), json!({ "target_seq": 64 }))).contains("speech features and label tokens")
    );
}

#[test]
fn an_encoder_takes_tokens() {
    assert_eq!(sizes(read(&ENCODER, json!({}), json!({ "attention_mask": "ones" }))), (Some(512), None, None));
    assert!(refused(read(&ENCODER, json!({}), json!({ "target_seq": 64 }))).contains("bert takes tokens"));
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
