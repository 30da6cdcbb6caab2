//! Every hand-written family against a recording of the real code, to the byte, in every phase.

use std::path::Path;

use plimsoll_tests::accuracy::{FamilyOutcome, FamilyRecipe, FamilyRow, RECIPES, families};

#[test]
fn families_come_out_as_recordings_of_the_real_code_do() {
    let (mut same, mut wrong, mut recorded) = (0, Vec::new(), 0);
    for row in families().unwrap() {
        let Some(recording) = row.recording() else { continue };
        recorded += 1;
        for recipe in &RECIPES {
            let known = row.differs.contains_key(recipe.name);
            match row.compared(&recording, recipe) {
                FamilyOutcome::Same if known => {
                    wrong.push(format!("{} {}: known to differ, and is the same", row.name, recipe.name))
                }
                FamilyOutcome::Same => same += 1,
                FamilyOutcome::Differs(_) if known => {}
                FamilyOutcome::Differs(what) => wrong.push(format!("{} {}: {what}", row.name, recipe.name)),
                FamilyOutcome::Refused(why) => println!("{} {}: refused, {why}", row.name, recipe.name),
            }
        }
    }
    println!("{recorded} families recorded, {same} comparisons exact");
    assert!(recorded >= 58 && same >= 400, "{recorded} families, {same} comparisons");
    assert!(wrong.is_empty(), "{} of {} differ:\n{}", wrong.len(), wrong.len() + same, wrong.join("\n"));
}

/// What the recordings of `corpus/quantized.jsonl` hold, and a recipe that asks for it.
const QUANTIZED: [(&str, &str); 8] = [
    ("nf4", r#"{"quantization":"nf4","lora":{"rank":16}}"#),
    (
        "nf4, 3 micro-batches",
        r#"{"quantization":"nf4","lora":{"rank":16},"accumulation":3,"optimizer":"sgd-momentum"}"#,
    ),
    ("nf4, checkpointing", r#"{"quantization":"nf4","lora":{"rank":16},"checkpointing":"full","accumulation":2}"#),
    ("nf4-double", r#"{"quantization":"nf4-double","lora":{"rank":8,"dropout":0.1},"optimizer":"paged-adamw-8bit"}"#),
    ("int8", r#"{"quantization":"int8","lora":{"rank":8},"accumulation":2}"#),
    ("int8, checkpointing", r#"{"quantization":"int8","lora":{"rank":8},"checkpointing":"full"}"#),
    ("nf4-double, DDP", r#"{"quantization":"nf4-double","lora":{"rank":8,"dropout":0.1},"accumulation":2}"#),
    ("nf4 as loaded", r#"{"quantization":"nf4","prepare_kbit":false,"lora":{"rank":8},"accumulation":2}"#),
];

/// bitsandbytes' layers on fake tensors are what the families have of them, which a hollow card has to the byte as well.
#[test]
fn quantized_layers_come_out_as_recordings_of_the_real_code_do() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let text = std::fs::read_to_string(corpus.join("quantized.jsonl")).unwrap();
    let (mut same, mut wrong) = (0, Vec::new());
    for line in text.lines() {
        let row: FamilyRow = serde_json::from_str(line).unwrap();
        let recording = std::fs::read(corpus.join("hulls/quantized").join(format!("{}.hull", row.name))).unwrap();
        for (name, training) in QUANTIZED {
            let recipe = FamilyRecipe {
                name,
                training,
                parallel: name.ends_with("DDP").then_some(r#"{"gpus":4,"strategy":"ddp"}"#),
                batch: 5,
                lengths: (56, 72),
            };
            let known = row.differs.contains_key(name);
            match row.compared(&recording, &recipe) {
                FamilyOutcome::Same if !known => same += 1,
                FamilyOutcome::Differs(_) | FamilyOutcome::Refused(_) if known => {}
                outcome => wrong.push(format!("{} {name}: {outcome:?}", row.name)),
            }
        }
    }
    println!("{same} comparisons exact");
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(same >= 21, "{same}");
}
