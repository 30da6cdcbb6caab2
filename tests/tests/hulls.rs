//! Models that were recorded by `plimsoll trace`, against rows that were traced directly, at sizes that no recording was made
//! at: to the byte, in every phase.

use std::path::Path;

use plimsoll_core::catalog;
use plimsoll_core::catalog::search;
use plimsoll_core::estimate::Run;
use plimsoll_core::scenario::{Change, HullModel, Link, lever};
use plimsoll_core::{Reason, Scenario};
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// A row of `corpus/hulls.jsonl`.
#[derive(Debug, Deserialize)]
struct Row {
    /// The file in `corpus/hulls` or `data/hulls`.
    hull: String,
    batch: u64,
    /// Axes but the batch.
    axes: Map<String, Value>,
    training: Value,
    /// Several cards.
    #[serde(default)]
    parallel: Option<Value>,
    /// A card, where the file does not hold for the one that is asked of all others.
    #[serde(default = "usual_card")]
    gpu: String,
    peak_requested: u64,
    /// Name, peak and end.
    phases: Vec<(String, u64, u64)>,
}

fn data() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../data")
}

fn corpus() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn usual_card() -> String {
    "h200".to_owned()
}

/// A file that was recorded for the rows, or one that ships with the catalog.
fn content(name: &str) -> Vec<u8> {
    let own = corpus().join("hulls").join(name);
    let path = if own.exists() { own } else { data().join("hulls").join(name) };
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn asked(row: &Row) -> Value {
    let mut model = row.axes.clone();
    model.insert("hull".to_owned(), HullModel::content(&content(&row.hull)).into());
    let mut asked = json!({
        "model": model,
        "input": { "batch": row.batch },
        "training": row.training,
        "device": { "gpu": row.gpu, "workspaces": row.parallel.is_some() },
    });
    if let Some(parallel) = &row.parallel {
        asked["parallel"] = parallel.clone();
    }
    asked
}

fn rows() -> Vec<Row> {
    rows_of("hulls.jsonl")
}

fn rows_of(file: &str) -> Vec<Row> {
    let path = corpus().join(file);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let read = |line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{line}: {error}"));
    text.lines().map(read).collect()
}

/// Models of libraries as PyTorch's allocator had them on a hollow RTX 5070 Ti, what kernels hold of their own included.
#[test]
fn hulls_take_of_a_hollow_card_what_the_model_does() {
    let path = corpus().join("hulls-hollow.jsonl");
    let rows = std::fs::read_to_string(&path).unwrap();
    assert_eq!(rows.lines().count(), 192);
    for line in rows.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let mut asked = row["scenario"].clone();
        let name = asked["model"]["hull"].as_str().unwrap().to_owned();
        let bytes = std::fs::read(corpus().join("hulls/hollow").join(&name)).unwrap();
        asked["model"]["hull"] = HullModel::content(&bytes).into();
        let run = Run::on_hollow_card(&Scenario::from_value(&asked).unwrap()).unwrap();
        let peak = &run.estimate().peak;
        let came = [peak.allocated, peak.reserved].map(|bytes| bytes.get());
        let took = ["allocated", "reserved"].map(|figure| row["expected"][figure].as_u64().unwrap());
        assert_eq!(came, took, "{name}");
    }
}

#[test]
fn hulls_come_out_as_the_model_does() {
    let rows = rows();
    for row in &rows {
        let run = Run::new(&Scenario::from_value(&asked(row)).unwrap()).unwrap();
        let estimate = run.estimate();
        let name = format!("{} batch {} {:?} {}", row.hull, row.batch, row.axes, row.training);
        let phases = estimate.phases.iter();
        let phases: Vec<(String, u64, u64)> =
            phases.map(|p| (p.name.as_str().to_owned(), p.peak_requested.get(), p.end_requested.get())).collect();
        assert_eq!(phases, row.phases, "{name}");
        assert_eq!(estimate.peak.requested.get(), row.peak_requested, "{name}");
    }
    assert!(rows.len() >= 376, "{}", rows.len());
}

/// The first rank under PyTorch's and DeepSpeed's own wrappers, on a hollow card.
#[test]
fn hulls_come_out_as_the_model_does_on_several_cards() {
    let rows = rows_of("hulls-fleet.jsonl");
    for row in &rows {
        let run = Run::new(&Scenario::from_value(&asked(row)).unwrap()).unwrap();
        let estimate = run.estimate();
        let name = format!("{} batch {} {} {:?}", row.hull, row.batch, row.training, row.parallel);
        let phases = estimate.phases.iter();
        // Of loading what it leaves stands in the rows.
        let phase =
            |(name, peak, end): (&str, u64, u64)| (name.to_owned(), if name == "load" { end } else { peak }, end);
        let phases: Vec<(String, u64, u64)> =
            phases.map(|p| phase((p.name.as_str(), p.peak_requested.get(), p.end_requested.get()))).collect();
        let wanted: Vec<(String, u64, u64)> =
            row.phases.iter().map(|(name, peak, end)| phase((name.as_str(), *peak, *end))).collect();
        assert_eq!(phases, wanted, "{name}");
    }
    assert!(rows.len() >= 44, "{}", rows.len());
    for strategy in ["ddp", "fsdp2", "fsdp1", "zero-"] {
        let of = |row: &Row| {
            row.parallel.as_ref().is_some_and(|p| p["strategy"].as_str().is_some_and(|s| s.starts_with(strategy)))
        };
        assert!(rows.iter().any(of), "no row of {strategy}");
    }
}

#[test]
fn what_several_cards_would_need_of_a_hull_is_refused_by_name() {
    let row = rows_of("hulls-fleet.jsonl").into_iter().next().unwrap();
    let said = |row: &Row, parallel: Value| {
        let mut asked = asked(row);
        asked["parallel"] = parallel;
        let scenario = Scenario::from_value(&asked).and_then(|scenario| Run::new(&scenario).map(drop));
        scenario.map_err(|error| error.to_string()).unwrap_err()
    };
    for (parallel, word) in [
        (json!({ "gpus": 4, "strategy": "fsdp1", "fsdp": { "param_dtype": "bf16" } }), "another program"),
        (json!({ "gpus": 4, "strategy": "fsdp1", "fsdp": { "wrap": "torchtitan" } }), "torchtitan"),
        (json!({ "gpus": 4, "strategy": "fsdp1", "fsdp": { "modules": ["nowhere.*"] } }), "nowhere.*"),
        (json!({ "gpus": 4, "strategy": "zero-3" }), "zero-3"),
        (json!({ "gpus": 4, "strategy": "ddp", "ddp": { "static_graph": true } }), "output"),
        (json!({ "gpus": 4, "strategy": "fsdp2", "fsdp": { "param_dtype": "bf16" } }), "another program"),
        (json!({ "gpus": 4, "strategy": "fsdp2", "fsdp": { "wrap": "torchtitan" } }), "torchtitan"),
        (json!({ "gpus": 4, "strategy": "fsdp2", "fsdp": { "modules": ["nowhere.*"] } }), "nowhere.*"),
        (json!({ "gpus": 4, "strategy": "ddp", "fsdp": { "modules": ["layers.*"] } }), "says nothing"),
    ] {
        let said = said(&row, parallel.clone());
        assert!(said.contains(word), "{parallel}: {said}");
    }
    // A file of an older plimsoll.
    let older = rows().into_iter().find(|row| row.hull == "gcn.hull").unwrap();
    let said = said(&older, json!({ "gpus": 4, "strategy": "ddp" }));
    assert!(said.contains("record it again"), "{said}");
    let family = json!({ "model": { "catalog": "gpt2" }, "parallel": { "gpus": 4, "strategy": "fsdp2", "fsdp": { "modules": ["h.*"] } } });
    let said = Scenario::from_value(&family).unwrap_err().to_string();
    assert!(said.contains("every layer"), "{said}");
}

#[test]
fn what_a_hull_does_not_hold_is_refused_by_name() {
    let row = rows().into_iter().find(|row| row.hull == "gcn.hull").unwrap();
    let with = |section: &str, key: &str, value: Value| {
        let mut asked = asked(&row);
        asked[section][key] = value;
        let scenario = Scenario::from_value(&asked);
        scenario.and_then(|scenario| Run::new(&scenario).map(drop)).map_err(|error| error.to_string())
    };
    assert_eq!(with("input", "batch", json!(3)), Ok(()));
    for (section, key, value, word) in [
        ("model", "S", json!(7), "the least"),
        ("model", "B", json!(7), "micro-batch"),
        ("model", "T", json!(7), "unknown key"),
        ("training", "checkpointing", json!("full"), "checkpoint_modules"),
        ("training", "checkpoint_modules", json!(["layers.*"]), "nothing is checkpointed"),
        ("training", "lora", json!({ "rank": 8 }), "--also lora=8"),
        ("training", "lora", json!({ "dora": true }), "DoRA"),
        ("training", "lora", json!({ "modules_to_save": ["head"] }), "trained whole"),
        ("training", "quantization", json!("nf4"), "quantiz"),
        ("training", "attention", json!("eager"), "--also attention=eager"),
        ("training", "keep_outputs", json!(true), "outputs"),
        ("training", "optimizer", json!("muon"), "muon"),
        ("training", "precision", json!("fp16"), "--precision fp16"),
        ("training", "mode", json!("inference"), "training step"),
        ("model", "hull", json!("sha256:00"), "no hull"),
        ("model", "hull", json!("my.hull"), "--hull"),
        ("model", "hull", json!("data:AAAA"), "no hull"),
    ] {
        let said = with(section, key, value).unwrap_err();
        assert!(said.contains(word), "{key}: {said}");
    }
}

#[test]
fn a_precision_that_was_not_recorded_is_refused_with_the_command_that_records_it() {
    let asked = json!({ "model": { "catalog": "segformer-b0" }, "training": { "precision": "bf16" } });
    let hint = Scenario::from_value(&asked).unwrap_err().hint;
    let command = "plimsoll trace 'transformers:SegformerForSemanticSegmentation(SegformerConfig(num_labels=150))' \
                   --input 'x=float32[B,3,S,S]' --input 'y=int64[B,S,S]' --axis S=512/32 --loss 'model(pixel_values=x, labels=y).loss' \
                   --precision bf16,bf16-amp,fp16-amp,fp32";
    assert!(hint.ends_with(command), "{hint}");
}

/// A GPT-2 of three layers, recorded as it is, with adapters of two kinds, and with eager attention.
const ALSO: &str = "gpt2-also.hull";

fn also(training: &Value) -> plimsoll_core::Result<Scenario> {
    let model = json!({ "hull": HullModel::content(&content(ALSO)), "S": 512 });
    Scenario::from_value(
        &json!({ "model": model, "input": { "batch": 8 }, "training": training, "device": { "gpu": "h200" } }),
    )
}

#[test]
fn what_was_recorded_as_well_is_estimated_and_nothing_else_is() {
    let peak = |training: Value| Run::new(&also(&training)?).map(|run| run.estimate().peak.requested);
    let lora = |rest: Value| {
        let mut training = json!({ "precision": "bf16-amp" });
        training["lora"] = rest;
        training
    };
    let plain = peak(json!({ "precision": "bf16-amp" })).unwrap();
    let adapted = peak(lora(json!({ "rank": 8 }))).unwrap();
    let half = json!({ "precision": "bf16-amp", "base_dtype": "bfloat16",
        "lora": { "rank": 4, "targets": ["c_attn"], "dropout": 0.1 } });
    assert!(peak(half.clone()).unwrap() < adapted && adapted < plain);
    assert_ne!(
        peak(json!({ "precision": "fp32", "attention": "eager" })).unwrap(),
        peak(json!({ "precision": "fp32" })).unwrap()
    );
    let refused = |training: Value| peak(training).unwrap_err();
    let other = refused(lora(json!({ "rank": 16 })));
    assert_eq!(other.key, "training.lora");
    assert!(other.problem.contains("LoRA of rank 8 on every linear layer, and with"), "{other}");
    let command =
        "--also lora=8 --also attention=eager --also lora=4:c_attn+dropout=0.1+base_dtype=bfloat16 --also lora=16";
    assert!(other.hint.ends_with(command), "{other}");
    let mut single = half;
    single["precision"] = json!("fp32");
    single["base_dtype"] = json!("precision");
    assert!(refused(single).hint.ends_with("--also lora=4:c_attn+dropout=0.1"));
    let both = json!({ "precision": "bf16-amp", "attention": "eager", "lora": { "rank": 8 } });
    assert!(refused(both).hint.ends_with("--also lora=8+attention=eager"));
    let mut base = lora(json!({ "rank": 8 }));
    base["base_dtype"] = json!("bfloat16");
    assert_eq!(refused(base).key, "training.base_dtype");
    let mut four = lora(json!({ "rank": 8 }));
    four["quantization"] = json!("nf4-double");
    assert_eq!(refused(four.clone()).key, "training.quantization");
    assert!(refused(four.clone()).hint.ends_with("--also lora=8+quantization=nf4-double"));
    four["prepare_kbit"] = json!(false);
    assert!(refused(four.clone()).hint.ends_with("--also lora=8+quantization=nf4-double+prepare_kbit=false"));
    four["quant_storage"] = json!("bfloat16");
    assert_eq!(refused(four).key, "training.quant_storage");
    // Recorded on other adapters, and other layers beside these.
    let of = |hull: &str, training: Value| {
        let asked = json!({
            "model": { "hull": HullModel::content(&content(hull)) }, "input": { "batch": 4 }, "training": training,
            "device": { "gpu": "h200" },
        });
        Scenario::from_value(&asked).unwrap_err().key
    };
    let nf4 =
        |rank: u64, word: &str| json!({ "precision": "bf16-amp", "quantization": word, "lora": { "rank": rank } });
    assert_eq!(of("quantized/vit.hull", nf4(8, "nf4")), "training.quantization");
    assert_eq!(of("quantized/vit.hull", nf4(4, "nf4")), "training.lora");
    assert_eq!(of("quantized/vit.hull", nf4(8, "none")), "training.quantization");
    let mut unprepared = nf4(16, "nf4");
    unprepared["prepare_kbit"] = json!(false);
    assert_eq!(of("quantized/vit.hull", unprepared), "training.prepare_kbit");
}

/// What the planner's switches do of a file that holds quantized layers: the adapters that were recorded on them.
#[test]
fn a_quantized_base_is_offered_where_it_was_recorded() {
    let plain = |file: &str| {
        Scenario::from_value(&json!({
            "model": { "hull": HullModel::content(&content(file)), "S": 64 }, "input": { "batch": 4 },
            "training": { "precision": "bf16-amp" }, "device": { "gpu": "h200" },
        }))
        .unwrap()
    };
    let adapted = Change::Qlora.apply(&plain("quantized/llama.hull")).unwrap().training;
    let lora = adapted.lora.unwrap();
    assert_eq!((adapted.quantization.as_str(), lora.rank, adapted.prepare_kbit), ("nf4", 16, true));
    // What a packed weight stands for is counted, not its bytes; biases that are cast for good as well (GPT-2 has some).
    let counted = |scenario: &Scenario| Run::new(scenario).unwrap().estimate().parameters;
    for file in ["quantized/llama.hull", "quantized/gpt2.hull"] {
        let adapted = counted(&Change::Qlora.apply(&plain(file)).unwrap());
        assert_eq!(adapted.total - adapted.trainable, counted(&plain(file)).total, "{file}");
    }
}

/// Linear layers, attention and dropout, recorded as they are and compiled, against PyTorch's own `torch.compile` with all that inductor
/// does by itself, which was rehearsed on a hollow H200 (batch 8, 512 tokens, the third step): what lives behind forward, and the peak.
#[test]
fn what_torch_compile_makes_comes_out_as_a_rehearsal_of_it_does() {
    let run = |hull: &str, more: Value| {
        let mut asked = json!({
            "model": { "hull": HullModel::content(&content(hull)), "S": 512 }, "input": { "batch": 8 },
            "training": { "precision": "fp32", "compile": true, "clip_grad_norm": false }, "device": { "gpu": "h200" },
        });
        for (table, keys) in more.as_object().unwrap() {
            for (key, value) in keys.as_object().unwrap() {
                asked[table][key] = value.clone();
            }
        }
        Run::new(&Scenario::from_value(&asked)?)
    };
    for (precision, forward, peak) in [("fp32", 87_282_272, 95_308_072), ("bf16-amp", 80_495_728, 83_441_464)] {
        let run = run("attends-compiled.hull", json!({ "training": { "precision": precision } })).unwrap();
        let estimate = run.estimate();
        let last = |name: &str| estimate.phases.iter().rfind(|phase| phase.name.as_str() == name).unwrap();
        let off = |ours: u64, theirs: u64| ours.abs_diff(theirs) as f64 / theirs as f64;
        assert!(off(last("forward").end_requested.get(), forward) < 1e-3, "{precision}");
        assert!(off(last("backward").peak_requested.get(), peak) < 1e-3, "{precision}");
        assert!(estimate.warnings.iter().any(|said| said.contains("torch.compile makes")), "{:?}", estimate.warnings);
    }
    for (key, more) in [
        ("training.checkpointing", json!({ "training": { "checkpointing": "full" } })),
        ("training.compile", json!({ "parallel": { "gpus": 2, "strategy": "ddp" } })),
    ] {
        assert_eq!(run("attends-compiled.hull", more).unwrap_err().key, key);
    }
    let other = run(ALSO, json!({})).unwrap_err();
    assert_eq!(other.key, "training.compile");
    assert!(other.hint.contains("plimsoll trace") && other.hint.ends_with("--also compile"), "{other}");
}

#[test]
fn one_change_leads_to_what_was_recorded_as_well_and_back() {
    let start = also(&json!({ "precision": "bf16" })).unwrap_err();
    assert!(start.hint.contains("--precision bf16,"), "{start}");
    let start = also(&json!({ "precision": "fp32" })).unwrap();
    let next = Change::Lora.apply(&start).unwrap();
    assert_eq!(next.training.lora.as_ref().map(|lora| lora.rank), Some(8));
    Run::new(&next).unwrap();
    assert_eq!(Change::Full.apply(&next).unwrap(), start);
    assert!(lever("training.attention").unwrap().is_offered(&start));
    // Where nothing else was recorded, nothing is offered.
    let gcn = rows().into_iter().find(|row| row.hull == "gcn.hull").unwrap();
    let gcn = Scenario::from_value(&asked(&gcn)).unwrap();
    assert!(Change::Lora.apply(&gcn).is_err() && !lever("training.attention").unwrap().is_offered(&gcn));
}

#[test]
fn a_scenario_says_the_hash_of_its_hull() {
    let row = &rows()[0];
    let scenario = Scenario::from_value(&asked(row)).unwrap();
    let written = scenario.to_value();
    assert!(written["model"]["hull"].as_str().unwrap().starts_with("sha256:"), "{written}");
    let read = Scenario::from_value(&written).unwrap();
    assert_eq!(read, scenario);
    let error = Run::new(&read).unwrap_err().to_string();
    assert!(error.contains("--hull FILE"), "{error}");
}

#[test]
fn what_ships_with_the_catalog_is_what_its_row_says() {
    let table = std::fs::read_to_string(data().join("hulls.toml")).unwrap();
    let listed = table.lines().filter(|line| *line == "[[hull]]").count();
    assert_eq!(catalog::recorded().len(), listed, "a row has no file: tests/tools/hulls/make.py makes it");
    let rows = rows();
    for row in catalog::recorded() {
        let hull = HullModel::shipped(row);
        let file = hull.file().unwrap_or_else(|error| panic!("{}: {error}", row.id));
        let of = |sizes: &[u64]| sizes.iter().product::<u64>();
        let parameters: u64 = file.tapes[0].parameters.iter().map(|p| of(&p.sizes)).sum();
        assert_eq!(parameters, row.parameters, "{}", row.id);
        let bytes = hull.bytes().unwrap().len();
        assert!(bytes <= 40_000, "{}: {bytes} bytes", row.id);
        let name = format!("{}.hull", row.id);
        let proofs = rows.iter().filter(|proof| proof.hull == name).count();
        assert!(proofs >= 2, "{}: {proofs} rows of it in corpus/hulls.jsonl", row.id);
    }
}

/// What ships is spread over several cards, unless the model itself does not allow it.
#[test]
fn what_ships_with_the_catalog_is_estimated_on_several_cards() {
    for row in catalog::recorded() {
        let hull = HullModel::shipped(row);
        let file = hull.file().unwrap();
        let capable = file.tapes.iter().find(|tape| tape.variant.is_plain()).unwrap();
        for strategy in ["ddp", "fsdp2"] {
            let asked = json!({
                "model": { "hull": row.hash },
                "input": { "batch": 2 },
                "training": { "precision": capable.precision, "accumulation": 2 },
                "device": { "gpu": "rtx-4090" },
                "parallel": { "gpus": 4, "strategy": strategy },
            });
            let run = Scenario::from_value(&asked).and_then(|scenario| Run::new(&scenario));
            match run {
                Ok(run) => assert!(run.estimate().peak.requested.get() > 0),
                // What DDP itself refuses: parameters that nothing uses in this training step.
                Err(error) => assert!(
                    strategy == "ddp" && error.reason == Some(Reason::UnreachedParameter),
                    "{} under {strategy}: {error}",
                    row.id
                ),
            }
        }
    }
}

#[test]
fn a_recording_of_the_catalog_is_named_by_its_id_and_linked_by_its_hash() {
    let named = |key: &str, value: &str| json!({ "model": { key: value, "S": 768 }, "input": { "batch": 2 } });
    let scenario = Scenario::from_value(&named("catalog", "sd-1.5-unet-lora")).unwrap();
    let row = catalog::recorded_model("sd-1.5-unet-lora").unwrap();
    assert_eq!(Scenario::from_value(&named("hull", row.hash)).unwrap(), scenario);
    assert_eq!(Scenario::from_value(&scenario.to_value()).unwrap(), scenario);
    let link = Link::encode(&scenario);
    assert!(link.contains("sha256") && !link.contains('#'), "{link}");
    assert_eq!(Link::decode(&link).scenario, scenario);
    assert!(Link::command(&scenario).contains("--model sd-1.5-unet-lora --set S=768"), "{}", Link::command(&scenario));
    assert_eq!(Link::decode("?model=sd-1.5-unet-lora&axes=S:768&batch=2").scenario, scenario);
    let mut other = named("catalog", "sd-1.5-unet-lora");
    other["model"]["T"] = json!(7);
    assert!(Scenario::from_value(&other).unwrap_err().hint.contains('S'));
    for text in ["stable diffusion", "sd lora", "runwayml/stable-diffusion-v1-5"] {
        assert!(search::find_named(text).iter().any(|found| found.id() == row.id), "{text}");
    }
}

/// timm's ViT with bitsandbytes' layers put in by hand, adapted and trained by the real PyTorch on a hollow H200: what
/// `tools/hulls/by_hand.py` prints, behind loading, of which it is only said what it leaves.
#[test]
fn quantized_layers_of_any_module_come_out_as_on_a_hollow_card() {
    let phases = |word: &str| {
        let asked = json!({
            "model": { "hull": HullModel::content(&content("quantized/timm-vit.hull")) }, "input": { "batch": 7 },
            "training": { "precision": "bf16-amp", "quantization": word, "lora": { "rank": 8 }, "clip_grad_norm": false },
            "device": { "gpu": "h200" },
        });
        let run = Run::new(&Scenario::from_value(&asked).unwrap()).unwrap();
        let behind = run.estimate().phases.iter().filter(|p| !matches!(p.name.as_str(), "load" | "clip" | "end"));
        behind.map(|p| (p.name.as_str(), p.peak_requested.get(), p.end_requested.get())).collect::<Vec<_>>()
    };
    assert_eq!(
        phases("nf4-double"),
        [
            ("input", 1667072, 1667072),
            ("forward", 39201280, 38413312),
            ("backward", 72705536, 70021120),
            ("optimizer", 70630912, 70427648),
            ("zero_grad", 70427648, 70224384),
            ("input", 70568960, 70224384),
            ("forward", 73162752, 72374272),
            ("backward", 73112064, 70427648),
            ("optimizer", 70630912, 70427648),
            ("zero_grad", 70427648, 70224384),
        ]
    );
    assert_eq!(
        phases("int8"),
        [
            ("input", 2086912, 2086912),
            ("forward", 39939584, 39845376),
            ("backward", 74544640, 70447104),
            ("optimizer", 71056896, 70853632),
            ("zero_grad", 70853632, 70650368),
            ("input", 70994944, 70650368),
            ("forward", 74144768, 73806336),
            ("backward", 74951168, 70853632),
            ("optimizer", 71056896, 70853632),
            ("zero_grad", 70853632, 70650368),
        ]
    );
}
