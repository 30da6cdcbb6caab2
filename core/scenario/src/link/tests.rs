//! Links round-trip, and no text breaks them.

use base64::Engine as _;
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::{ModelSource, linked, samples};

fn good(link: &str) -> Scenario {
    let decoded = Link::decode(link);
    assert_eq!(decoded.notices, Vec::<String>::new(), "{link}");
    decoded.scenario
}

fn scenario(value: Value) -> Scenario {
    Scenario::from_value(&value).unwrap()
}

proptest! {
    #[test]
    fn every_scenario_survives_its_link(scenario in samples::scenario()) {
        let link = Link::encode(&scenario);
        prop_assert!(link.len() < QUERY + FRAGMENT);
        let decoded = Link::decode(&link);
        prop_assert_eq!(&decoded.notices, &Vec::<String>::new(), "{}", link);
        prop_assert_eq!(&decoded.scenario, &scenario, "{}", link);
        prop_assert_eq!(Link::decode_strict(&format!("https://example.org/plan/{link}")), Ok(scenario));
    }

    #[test]
    fn no_text_panics(text in "\\PC*", bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for link in [text.clone(), format!("?{text}"), format!("#m={text}"), String::from_utf8_lossy(&bytes).into_owned()] {
            let decoded = Link::decode(&link);
            prop_assert!(decoded.notices.len() <= 13);
            prop_assert!(Scenario::from_value(&decoded.scenario.to_value()).is_ok());
            let _ = Link::decode_strict(&link);
        }
    }

    #[test]
    fn garbage_values_of_real_parameters_leave_a_valid_scenario(
        pairs in prop::collection::vec((prop::sample::select(crate::levers().collect::<Vec<_>>()), "[a-z0-9.%+-]{0,12}"), 0..12)
    ) {
        let query: Vec<String> = pairs.iter().map(|(lever, text)| format!("{}={text}", lever.row.link)).collect();
        let decoded = Link::decode(&query.join("&"));
        prop_assert!(Scenario::from_value(&decoded.scenario.to_value()).is_ok());
    }
}

#[test]
fn only_what_is_not_default_is_written() {
    let model = |value| Link::encode(&scenario(value));
    assert_eq!(Link::encode(&Scenario::default()), "?model=llama-3.2-1b");
    assert_eq!(
        model(json!({
            "model": { "catalog": "gpt2" },
            "input": { "batch": 4, "seq": 1024 },
            "device": { "gpu": "rtx-5070-ti", "memory": "11.6 GiB" },
            "training": { "precision": "fp32", "clip_grad_norm": false, "lora": { "targets": ["c_attn"] } },
        })),
        "?model=gpt2&gpu=rtx-5070-ti&memory=11.6GiB&batch=4&precision=fp32&clip=false&lora=8&lora_targets=c_attn"
    );
    assert_eq!(
        model(json!({ "model": { "family": "nbeats", "stacks": 30, "width": 256 } })),
        "?family=nbeats&width=256"
    );
    let adafactor = json!({ "model": { "catalog": "gpt2" }, "training": { "optimizer": "adafactor" } });
    assert_eq!(model(adafactor), "?model=gpt2&optimizer=adafactor");
    let link =
        model(json!({ "model": { "hf": { "model_type": "llama", "hidden_size": 64 } }, "input": { "batch": 2 } }));
    assert!(link.starts_with("?hf=llama&batch=2#m="), "{link}");
}

#[test]
fn whole_addresses_and_parts_of_them() {
    let expected = good("?model=gpt2&batch=4");
    assert_eq!(expected.input.batch, 4);
    for link in [
        "model=gpt2&batch=4",
        "  ?model=gpt2&batch=4\n",
        "https://example.org/?model=gpt2&batch=4",
        "http://127.0.0.1:7070/plan?v=1&batch=4&model=gpt2#timeline",
        "?model=gpt2&&batch=4&",
        "?model=%67pt2&batch=4#",
    ] {
        assert_eq!(good(link), expected, "{link}");
        assert_eq!(Link::decode_strict(link), Ok(expected.clone()), "{link}");
    }
    for link in ["", "?", "#", "https://example.org/", "https://example.org/#top"] {
        assert_eq!(good(link), Scenario::default(), "{link}");
        assert!(Link::decode_strict(link).unwrap_err().problem.contains("no scenario"), "{link}");
    }
}

#[test]
fn a_bad_part_is_left_out_and_the_rest_stays() {
    let decoded =
        Link::decode("?model=gpt2&batch=0&precision=fp8&seq=64&colour=red&batch=3&gpu=voodoo&lora=0&clip=maybe");
    let known: Vec<&str> = linked().map(|lever| lever.row.link).collect();
    assert!(known.len() > 70 && known.contains(&"model"), "{known:?}");
    let all = known.len();
    let unknown = format!(
        "colour: unknown parameter of the link; copy the link again; docs/scenario.md has all {all} names. It was left out."
    );
    assert_eq!(
        decoded.notices,
        [
            unknown.as_str(),
            "batch: it is given twice; keep one of them. It was left out.",
            "input.batch: 0 is too small; give a whole number from 1 to 16777216. It was left out.",
            "training.precision: \"fp8\" is not one of its values; use one of fp32, fp16-amp, bf16-amp, fp16, bf16. \
                 It was left out.",
            "training.clip_grad_norm: expected true or false, found the text \"maybe\"; write true or false, without \
                 quotes. It was left out.",
            "training.lora.rank: 0 is too small; give a whole number from 1 to 65536. It was left out.",
            "device.gpu: no GPU \"voodoo\" in the catalog; ids read like rtx-5070-ti-laptop, a100-80gb, h200; see the \
                 list of GPUs. It was left out.",
        ]
    );
    assert_eq!(decoded.scenario, good("?model=gpt2&seq=64"));
}

/// What is wrong need not stand in the link: a default beside what it says. The model and the card are not lost over it.
#[test]
fn what_is_in_the_way_of_a_default_is_left_out_alone() {
    let decoded =
        Link::decode("?model=llama-3.1-8b&gpu=rtx-4090&gpus=2&strategy=fsdp2&quantization=nf4&lora=16&batch=1");
    let [notice] = &decoded.notices[..] else { panic!("{:?}", decoded.notices) };
    assert!(notice.starts_with("training.quant_storage: "), "{notice}");
    assert!(notice.ends_with(" training.quantization was left out."), "{notice}");
    assert_eq!(decoded.scenario, good("?model=llama-3.1-8b&gpu=rtx-4090&gpus=2&strategy=fsdp2&lora=16&batch=1"));
}

#[test]
fn what_strict_refuses() {
    let refused = |link: &str| Link::decode_strict(link).expect_err(link).to_string();
    assert_eq!(refused("?model=gpt2&bacth=4"), "bacth: unknown parameter of the link; did you mean batch?");
    assert_eq!(
        refused("?model=gpt2&quant=nf4"),
        "quant: unknown parameter of the link; did you mean quantization or quant_storage?"
    );
    assert_eq!(
        refused("?model=gpt2&clip_grad_norm=false"),
        "clip_grad_norm: unknown parameter of the link; in a link it is called clip"
    );
    assert!(refused("?model=gpt2&model=gpt2").contains("given twice"));
    assert!(refused("?model=gpt2&batch=%").contains("percent-encoding"));
    assert!(refused("?model=%ff").contains("percent-encoding"));
    assert!(refused("?model=gpt2&family=mlp").contains("given together"));
    assert!(refused("?model=gpt2#x=1").contains("unknown part behind #"));
    assert!(refused("?v=one&model=gpt2").contains("no link version"));
    assert!(refused(&format!("?model={}", "x".repeat(QUERY))).contains("longer than 8192 bytes"));
    assert!(refused(&format!("?hf=llama#m={}", "x".repeat(FRAGMENT))).contains("longer than 65536 bytes"));
}

#[test]
fn newer_links_are_refused_whole() {
    let decoded = Link::decode("?v=2&model=gpt2&sail=full");
    assert_eq!(decoded.scenario, Scenario::default());
    let newer = "v: made by a newer Plimsoll (schema 2; this one reads schema 1); update Plimsoll. It was left out.";
    assert_eq!(decoded.notices, [newer]);
    assert!(Link::decode_strict("?v=2&model=gpt2").is_err());
}

#[test]
fn broken_fragments() {
    let bomb = {
        let zeros = vec![b' '; 40 << 20];
        let packed = miniz_oxide::deflate::compress_to_vec(&zeros, 9);
        assert!(packed.len() < FRAGMENT / 4 * 3, "a bomb has to be small: {}", packed.len());
        format!("?hf=llama#m={}", BASE64.encode(&packed))
    };
    for link in ["?hf=llama", "?hf=llama#m=", "#m=!!!", "#m=AAAA", "#m=SyvNzQUA", bomb.as_str()] {
        let decoded = Link::decode(link);
        assert_eq!(decoded.scenario, Scenario::default());
        assert_eq!(decoded.notices.len(), 1, "{:?}", decoded.notices);
        assert!(Link::decode_strict(link).is_err());
    }
}

#[test]
fn the_longest_config_fits_its_link() {
    // A generator's output in printable ASCII: deflate can only save the bits a byte has too many.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let noise: String = (0..47_900)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            char::from(b'#' + u8::try_from(state % 57).unwrap())
        })
        .collect();
    let long = scenario(json!({ "model": { "hf": { "model_type": "llama", "noise": noise } } }));
    let link = Link::encode(&long);
    assert!(link.len() > 40_000, "the noise must not compress away: {}", link.len());
    assert_eq!(good(&link), long);
    assert!(matches!(long.model.source, ModelSource::HuggingFace(_)));
}
