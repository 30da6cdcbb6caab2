//! Texts that nobody means well with: they end in an answer or an error, soon.

use plimsoll_exchange::{Source, read};
use proptest::prelude::*;

const NAMES: [&str; 8] = ["", "a.yaml", "a.json", "a.toml", "a.py", "a.ipynb", "a.sh", "a.txt"];

/// Pieces that mean something to one reader or another.
const PIECES: [&str; 46] = [
    "TrainingArguments(",
    "LoraConfig(",
    "FastLanguageModel.from_pretrained(",
    "torch.optim.AdamW(",
    "=",
    "==",
    ",",
    "(",
    ")",
    "[",
    "]",
    "{",
    "}",
    ":",
    "\n",
    "  ",
    "- ",
    "'",
    "\"",
    "\"\"\"",
    "#",
    "\\",
    "\\\n",
    "--",
    "torchrun ",
    "swift sft ",
    "&a ",
    "*a",
    "<<: ",
    "!!",
    "|",
    ">",
    "%",
    "base_model",
    "micro_batch_size",
    "r",
    "bf16",
    "per_device_train_batch_size",
    "zero_optimization",
    "stage",
    "1e999",
    "-1",
    "18446744073709551616",
    "nan",
    "\u{202e}",
    "\u{0}",
];

fn text() -> impl Strategy<Value = String> {
    let pieces =
        proptest::collection::vec(proptest::sample::select(&PIECES[..]), 0..60).prop_map(|pieces| pieces.concat());
    prop_oneof![4 => pieces, 1 => ".{0,200}"]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn any_text_ends_in_an_answer(name in proptest::sample::select(&NAMES[..]), text in text(), gpus in proptest::option::of(1_u64..)) {
        match read(&[Source { name: name.to_owned(), text }], gpus) {
            Ok(imported) => {
                for key in imported.parts.iter().flat_map(|part| &part.keys) {
                    prop_assert!(key.value.chars().count() < 80, "{}", key.value);
                    prop_assert!(!key.value.chars().chain(key.key.chars()).any(plimsoll_ground::is_hidden), "{key:?}");
                }
            }
            Err(error) => prop_assert!(!error.hint.is_empty(), "{error}"),
        }
    }
}

#[test]
fn long_texts_end_soon() {
    for piece in [
        "f(", "f(a=", "[", "{", "a: [", "x = (", "--a ", "- ", "&a ", "a:\n ", "'", "\"\"\"", "f(a=1)", "\\\n", "1e",
        "-",
    ] {
        for name in NAMES {
            let text = piece.repeat(200_000 / piece.len());
            let begun = std::time::Instant::now();
            let _ = read(&[Source { name: name.to_owned(), text }], None);
            // Linear work takes some hundredths of a second; the square of it would take minutes.
            assert!(begun.elapsed().as_secs() < 20, "{piece:?} as {name:?}");
        }
    }
}
