//! A mistake in a data file stops the build with a message that says which row and what is wrong.

#[path = "../build/gpus.rs"]
mod gpus;
#[path = "../build/models.rs"]
mod models;
#[path = "../build/rows.rs"]
mod rows;

const SERIES: &str = r#"
[[series]]
vendor = "nvidia"
architecture = "ada"
compute_capability = "8.9"
form = "desktop"
source = "a data sheet"
"#;

const CARD: &str = r#"id = "rtx-1", name = "RTX 1", gib = 12, mib = 12282, gb_s = 504, fp32 = 29.1, fp16 = 58.3"#;

fn cards(cards: &[&str]) -> Result<String, Vec<String>> {
    let lines: String = cards.iter().map(|c| format!("  {{ {c} }},\n")).collect();
    gpus::generate("gpus.toml", &format!("{SERIES}cards = [\n{lines}]\n"))
}

fn refusal(outcome: Result<String, Vec<String>>) -> String {
    match outcome {
        Ok(rust) => panic!("this file is wrong, yet it was taken: {rust}"),
        Err(problems) => problems.join("\n"),
    }
}

#[test]
fn a_good_card_is_taken() {
    let rust = cards(&[CARD]).unwrap();
    assert!(rust.contains(r#"id: "rtx-1""#) && rust.contains("Bytes::new(12878610432)"), "{rust}");
}

#[test]
fn the_same_id_twice() {
    assert_eq!(refusal(cards(&[CARD, CARD])), r#"gpus.toml: card "rtx-1": the id "rtx-1" is used twice"#);
}

#[test]
fn an_id_nobody_can_type() {
    assert!(refusal(cards(&[&CARD.replace("rtx-1", "RTX 1!")])).contains("is not an id: use small letters"));
    assert!(refusal(cards(&[&CARD.replace("rtx-1", "rtx-1-")])).contains("is not an id"));
}

#[test]
fn a_card_without_a_source() {
    let text = SERIES.replace("source = \"a data sheet\"\n", "") + &format!("cards = [ {{ {CARD} }} ]");
    assert_eq!(refusal(gpus::generate("gpus.toml", &text)), r#"gpus.toml: card "rtx-1": source is missing"#);
}

#[test]
fn memory_that_cannot_be_this_cards() {
    assert!(refusal(cards(&[&CARD.replace("12282", "1228")])).contains("is not the memory of a 12 GiB card"));
}

#[test]
fn a_misspelt_key() {
    assert!(
        refusal(cards(&[&CARD.replace("fp16", "fp_16")])).contains("nothing reads the key fp_16; it may be one of id")
    );
}

#[test]
fn every_problem_is_reported_at_once() {
    let problems =
        cards(&[&CARD.replace("504", "-1"), &CARD.replace("12282", "\"12 GB\"")]).expect_err("both are wrong");
    assert_eq!(problems.len(), 2, "{problems:?}");
}

fn model(change: (&str, &str)) -> Result<String, Vec<String>> {
    let text = r#"
[[model]]
id = "tiny"
name = "Tiny"
publisher = "Us"
source = "us/tiny"
parameters = 12
config = '{"model_type": "llama", "hidden_size": 4}'
"#;
    models::generate(&[("llama".into(), "llama.toml".into(), text.replace(change.0, change.1))])
}

#[test]
fn models_are_checked_alike() {
    assert!(model(("", "")).unwrap().contains("parameters: 12"));
    assert_eq!(refusal(model(("source = \"us/tiny\"\n", ""))), r#"llama.toml: model "tiny": source is missing"#);
    assert!(refusal(model(("parameters = 12\n", ""))).contains("parameters is missing"));
    assert!(refusal(model(("\"llama\"", "\"gpt2\""))).contains("config says model_type gpt2; this file holds llama"));
    assert!(refusal(model(("4}", "4"))).contains("config must be the JSON object of a config.json"));
    assert!(refusal(model(("[[model]]", "[[modell]]"))).contains("there is no model"));
}
