//! What must hold whatever is asked: of small scenarios of every family, and of configurations full of nonsense.
#![cfg(not(target_arch = "wasm32"))]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_core::catalog::families::{FamilyKeyKind, OWN, TRANSFORMERS};
use plimsoll_core::estimate::{AnyBatch, Category, Envelope, OneBatch, PhaseName, Run, Verdict, execute};
use plimsoll_core::scenario::{Change, Kind, Lever, at, levers};
use plimsoll_core::solve::{self, Known};
use plimsoll_core::{Bytes, Error, Scenario};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// Cards with every order of attention kernels: none of the fast ones, flash first, cuDNN first, AMD's, Apple's.
const GPUS: &[&str] = &["t4", "rtx-5070-ti-laptop", "a100-80gb", "h200", "b200", "rx-7900-xtx", "apple-m4-16gb"];

/// A small decoder whose sizes fit together.
fn decoder() -> impl Strategy<Value = Value> {
    let model_type = select(&["llama", "mistral", "qwen2", "qwen3"][..]);
    let heads = (0u32..3, 0u32..3, 1u64..20);
    let sizes = (1u64..4, 1u64..80, 1u64..300, select(&["silu", "gelu", "relu", "gelu_new"][..]));
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let window = option::of(1u64..60);
    (model_type, heads, sizes, flags, window, 0u64..4, option::of(Just(0.1))).prop_map(
        |(model_type, (kv, groups, half), (layers, inner, vocab, act), flags, window, first, dropout)| {
            let (kv_heads, heads) = (1u64 << kv, 1u64 << (kv + groups));
            json!({"hf": {
                "model_type": model_type, "vocab_size": vocab, "hidden_size": heads * 2 * half,
                "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads,
                "num_key_value_heads": kv_heads, "head_dim": 2 * half, "hidden_act": act,
                "tie_word_embeddings": flags.0, "attention_bias": flags.1, "mlp_bias": flags.2,
                "use_sliding_window": flags.3, "sliding_window": window, "max_window_layers": first,
                "attention_dropout": dropout.unwrap_or(0.0)
            }})
        },
    )
}

fn gpt2() -> impl Strategy<Value = Value> {
    (1u64..4, 0u32..3, 1u64..12, 1u64..300, option::of(1u64..90), any::<bool>(), select(&[0.0, 0.1][..])).prop_map(
        |(layers, heads, half, vocab, inner, tied, dropout)| {
            let heads = 1u64 << heads;
            json!({"hf": {
                "model_type": "gpt2", "vocab_size": vocab, "n_positions": 64, "n_embd": heads * half, "n_layer": layers,
                "n_head": heads, "n_inner": inner, "tie_word_embeddings": tied, "attn_pdrop": dropout,
                "resid_pdrop": dropout, "embd_pdrop": dropout
            }})
        },
    )
}

fn family() -> impl Strategy<Value = Value> {
    let nanogpt = (1u64..4, 0u32..3, 1u64..12, 1u64..300, any::<bool>(), select(&[0.0, 0.1][..])).prop_map(
        |(layers, heads, size, vocab, bias, dropout)| {
            let heads = 1u64 << heads;
            json!({"family": "nanogpt", "n_layer": layers, "n_head": heads, "n_embd": heads * size,
                "vocab_size": vocab, "block_size": 64, "bias": bias, "dropout": dropout})
        },
    );
    let mlp = (1u64..40, 1u64..40, 1u64..6, 1u64..40)
        .prop_map(|(d_in, hidden, layers, d_out)| json!({"family": "mlp", "d_in": d_in, "hidden": hidden, "layers": layers, "d_out": d_out}));
    let nbeats = (1u64..5, 1u64..4, 1u64..40, 1u64..10, 1u64..30, 1u64..30).prop_map(
        |(stacks, layers, width, theta, backcast, horizon)| {
            json!({"family": "nbeats", "stacks": stacks, "layers": layers, "width": width, "theta": theta,
                "backcast": backcast, "horizon": horizon})
        },
    );
    prop_oneof![nanogpt, mlp, nbeats]
}

/// What no property here is about, or what needs a model of its own: inference, quantized weights, versions, names of modules,
/// images, and where the line is drawn; and what PyTorch runs or not as a mask's rows lie, which another length has otherwise.
const LEFT_OUT: &[&str] = &[
    at::training::activation_offloading,
    at::training::mode,
    at::training::quantization,
    at::training::prepare_kbit,
    at::training::compile,
    at::lora::targets,
    at::lora::modules_to_save,
    at::input::target_seq,
    at::input::image,
    at::input::max_new_tokens,
    at::device::memory,
    at::device::load_line,
    at::software::torch,
    at::software::transformers,
    at::software::bitsandbytes,
];

/// One lever, with what is said of it.
type Saying = (&'static Lever, Value);

/// What may be said of the levers, each now and then.
fn sayings() -> impl Strategy<Value = Vec<Option<Saying>>> {
    let levers = levers().filter(|lever| lever.section() != "model" && !LEFT_OUT.contains(&lever.path));
    levers.map(|lever| option::weighted(0.5, value(lever)).boxed()).collect::<Vec<_>>()
}

/// A small value of a lever's kind.
fn value(lever: &'static Lever) -> impl Strategy<Value = Saying> {
    let value = match (lever.path, lever.row.kind) {
        (at::input::seq, _) => (1u64..50).prop_map(Value::from).boxed(),
        (_, Kind::Count { .. }) => (1u64..5).prop_map(Value::from).boxed(),
        (_, Kind::Id) => select(GPUS).prop_map(Value::from).boxed(),
        (_, kind) => select(kind.samples()).boxed(),
    };
    value.prop_map(move |value| (lever, value))
}

/// Any small valid scenario, as its JSON: what a model does not take, or not beside the rest, stays unsaid.
fn scenario() -> impl Strategy<Value = Value> {
    let model = prop_oneof![3 => decoder(), 1 => gpt2(), 2 => family()];
    (model, 1u64..50, sayings()).prop_map(|(model, seq, sayings)| {
        let start = Scenario::from_value(&json!({"model": model, "input": {"seq": seq}}));
        let start = start.unwrap_or_else(|error| panic!("{error}: {model}"));
        let said = sayings
            .into_iter()
            .flatten()
            .fold(start, |scenario, (lever, value)| Change::Set(lever, value).apply(&scenario).unwrap_or(scenario));
        // Which parameters a loss does not reach, only a run shows; DDP fails of them, unless it is told to look.
        let mut value = said.to_value();
        if Run::new(&said).is_err_and(|error| error.key == at::ddp::find_unused_parameters) {
            value["parallel"]["ddp"]["find_unused_parameters"] = true.into();
        }
        value
    })
}

fn run(scenario: &Value) -> Run {
    let answer = Scenario::from_value(scenario).and_then(|s| Run::new(&s));
    answer.unwrap_or_else(|error| panic!("{error}\n{scenario}"))
}

fn with(scenario: &Value, table: &str, key: &str, value: impl Into<Value>) -> Value {
    let mut scenario = scenario.clone();
    scenario[table][key] = value.into();
    scenario
}

fn requested(scenario: &Value) -> u64 {
    run(scenario).estimate().peak.requested.get()
}

/// The fused attention kernels that ran, by name.
fn attention_kernels(run: &Run) -> BTreeSet<&str> {
    let ledger = run.ledger();
    ledger.storages.iter().map(|storage| ledger.op(storage)).filter(|op| op.contains("attention")).collect()
}

/// What is alive when the first forward ends: all of it, and the activations kept for backward.
fn after_forward(run: &Run) -> (u64, u64) {
    let phases = &run.estimate().phases;
    let index = phases.iter().position(|p| p.name == PhaseName::Forward).unwrap_or_default();
    let end = run.ledger().phases.get(index + 1).map_or(0, |next| next.at);
    let saved = run
        .alive_at(end as u32)
        .iter()
        .filter(|h| h.category == Category::SavedActivations)
        .map(|h| h.bytes.get())
        .sum();
    (phases[index].end_requested.get(), saved)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every small scenario runs, and its answer is consistent in itself.
    #[test]
    fn small_scenarios_run_and_add_up(scenario in scenario()) {
        let run = run(&scenario);
        let estimate = run.estimate();
        let peak = &estimate.peak;
        prop_assert_eq!(estimate.at_peak.total(), peak.requested);
        prop_assert!(peak.requested <= peak.allocated, "{:?}", peak);
        prop_assert!(peak.allocated <= peak.reserved && peak.reserved <= peak.process, "{:?}", peak);
        prop_assert!(estimate.parameters.trainable <= estimate.parameters.total);
        for phase in &estimate.phases {
            prop_assert!(phase.end_requested <= phase.peak_requested && phase.peak_requested <= peak.requested);
        }
        let weights = estimate.at_peak.weights.get();
        let training = &scenario["training"];
        let bytes = match (training["precision"].as_str(), training["base_dtype"].as_str()) {
            (Some("fp16" | "bf16"), _) | (_, Some("float16" | "bfloat16")) => 2,
            _ => 4,
        };
        // Cut over the cards, each has a part.
        let whole = scenario["parallel"]["strategy"].as_str().is_none_or(|name| !["fsdp1", "fsdp2", "zero-3"].contains(&name));
        prop_assert!(!whole || weights >= bytes * estimate.parameters.total, "weights never leave: {weights} < {bytes}");
    }

    /// The scenario an estimate carries is the question: asked again, it gets the same answer.
    #[test]
    fn scenarios_and_answers_round_trip(scenario in scenario()) {
        let first = run(&scenario);
        let text = first.estimate().scenario.to_string();
        let again = Scenario::from_json(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(again.to_value(), first.estimate().scenario.clone());
        let second = Run::new(&again).map_err(|e| TestCaseError::fail(e.to_string()))?;
        prop_assert_eq!(serde_json::to_string(second.estimate()).ok(), serde_json::to_string(first.estimate()).ok());
    }

    /// A larger micro-batch never takes less.
    #[test]
    fn the_peak_grows_with_the_batch(scenario in scenario(), more in 1u64..5) {
        let batch = scenario["input"]["batch"].as_u64().unwrap_or(1);
        let larger = with(&scenario, "input", "batch", batch + more);
        prop_assert!(requested(&scenario) <= requested(&larger), "batch {batch} + {more}: {scenario}");
    }

    /// A longer sequence never takes less, but where it is cut into fewer chunks, whose sizes are rounded up, and where another
    /// attention kernel runs, which may take less for itself: cuDNN's takes no single token, and its backward is smaller than
    /// flash's, which rounds up to 128 rows; from a sliding window's length on a mask is made, and a head's scores are whole.
    #[test]
    fn the_peak_grows_with_the_sequence(scenario in scenario(), more in 1u64..14) {
        if scenario["training"]["loss_impl"] == "chunked" {
            return Ok(());
        }
        let Some(seq) = scenario["input"]["seq"].as_u64() else { return Ok(()) };
        let longer = with(&scenario, "input", "seq", seq + more);
        let (shorter, longer) = (run(&scenario), run(&longer));
        if attention_kernels(&shorter) != attention_kernels(&longer) {
            return Ok(());
        }
        let peak = |run: &Run| run.estimate().peak.requested;
        prop_assert!(peak(&shorter) <= peak(&longer), "seq {seq} + {more}: {scenario}");
    }

    /// Checkpointing keeps less through the end of the forward.
    #[test]
    fn checkpointing_never_keeps_more(scenario in scenario()) {
        if !scenario["model"]["hf"].is_object() || !scenario["training"]["lora"].is_null() {
            return Ok(());
        }
        // Checkpointing and a cache of keys and values do not go together.
        let scenario = with(&scenario, "training", "use_cache", false);
        let scenario = with(&scenario, "training", "checkpoint_every", 1);
        let after = |checkpointing| after_forward(&run(&with(&scenario, "training", "checkpointing", checkpointing)));
        let ((all, saved), (all_full, saved_full)) = (after("none"), after("full"));
        prop_assert!(saved_full <= saved, "saved activations {saved_full} > {saved}: {scenario}");
        prop_assert!(all_full <= all, "alive after the forward {all_full} > {all}: {scenario}");
    }
}

/// Two optimizer steps at one batch.
fn step(scenario: &Value, batch: u64) -> OneBatch {
    let scenario = Scenario::from_value(&with(scenario, "input", "batch", batch));
    OneBatch::of(Arc::new(scenario.and_then(|s| execute(&s)).unwrap_or_else(|error| panic!("{error}"))))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    /// Two traces say what every batch between them takes, to the byte, and what those beyond take as well where kernels take
    /// nothing for themselves: a sum of many numbers is shared by several blocks from some batch on, and those below do not
    /// know of it.
    #[test]
    fn one_stream_is_the_step_at_every_batch(
        scenario in scenario(), far in 3u64..60, batch in 2u64..60, workspaces in any::<bool>(),
    ) {
        let scenario = with(&scenario, "device", "workspaces", workspaces);
        let batch = if workspaces { 2 + batch % (far - 1) } else { batch };
        // Its chunks are powers of two and as many as the batch asks for: there every batch is traced.
        if scenario["training"]["loss_impl"] == "fused-linear" {
            return Ok(());
        }
        let Some(stream) = AnyBatch::between(&step(&scenario, 2), 2, &step(&scenario, far), far) else {
            // What is shared at one of them and not at the other is no stream.
            prop_assert!(workspaces, "2 and {far} do not pair up: {scenario}");
            return Ok(());
        };
        let run = run(&with(&scenario, "input", "batch", batch));
        prop_assert!(stream.is_of(run.ledger(), batch), "{batch}: {scenario}");
        let peak = Envelope::new(&stream, 2, 100).at(batch);
        prop_assert_eq!(peak.bytes, run.estimate().peak.requested, "{}: {}", batch, scenario);
        prop_assert_eq!(peak.event as u32 + 1, run.peak_event(), "{}: {}", batch, scenario);
    }

    /// Every cell of a grid is the estimate one gets for it alone, whatever the card leaves.
    #[test]
    fn a_cell_is_the_single_estimate(
        scenario in scenario(), batches in vec(1u64..70, 1..5), seqs in vec(1u64..64, 1..4), room in 0u64..60,
    ) {
        let context = run(&scenario).estimate().peak.process - run(&scenario).estimate().peak.reserved;
        let memory = (context + Bytes::from_mib(room + 2)).get();
        let scenario = with(&scenario, "device", "memory", memory);
        let asked = Scenario::from_value(&scenario).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let seqs = if asked.input.seq.is_some() { seqs } else { vec![] };
        let found = solve::grid(&asked, &batches, &seqs, u64::MAX).map_err(|e| TestCaseError::fail(e.to_string()))?;
        for row in &found.rows {
            for cell in &row.cells {
                let mut single = with(&scenario, "input", "batch", cell.batch);
                if let Some(seq) = row.seq {
                    single = with(&single, "input", "seq", seq);
                }
                let run = run(&single);
                let peak = &run.estimate().peak;
                let found = (cell.requested, cell.process, cell.verdict, cell.known);
                let wanted = (peak.requested, peak.process, run.estimate().verdict, Known::Exact);
                prop_assert_eq!(found, wanted, "{}", single);
            }
        }
    }

    /// The largest batch fits and one more does not; where looking for it would take too long, that is said.
    #[test]
    fn the_largest_batch_fits_and_one_more_does_not(scenario in scenario(), room in 0u64..200) {
        let context = run(&scenario).estimate().peak.process - run(&scenario).estimate().peak.reserved;
        let scenario = with(&scenario, "device", "memory", (context + Bytes::from_mib(room + 2)).get());
        let asked = Scenario::from_value(&scenario).map_err(|e| TestCaseError::fail(e.to_string()))?;
        let answer = match solve::max_batch(&asked) {
            Ok(answer) => answer,
            Err(error) if error.to_string().contains("the largest batch is not searched") => return Ok(()),
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        };
        let fits = |batch: u64| run(&with(&scenario, "input", "batch", batch)).estimate().verdict == Verdict::Fits;
        prop_assert!(answer == 0 || fits(answer), "{} does not fit: {}", answer, scenario);
        prop_assert!(!fits(answer + 1), "{} fits too: {}", answer + 1, scenario);
    }

    /// Every byte at the peak has an owner, and what lies beyond it sums to the process.
    #[test]
    fn an_explanation_adds_up(scenario in scenario()) {
        let run = run(&scenario);
        let (peak, explanation) = (&run.estimate().peak, run.explain());
        let bytes = explanation.layers.iter().flat_map(|layer| &layer.holdings).map(|h| h.bytes).sum::<Bytes>();
        prop_assert_eq!(bytes, peak.requested);
        let beyond = explanation.beyond;
        let process = bytes + beyond.unsplit + beyond.cached + beyond.reserved_elsewhere + beyond.context;
        prop_assert_eq!(process, peak.process);
        prop_assert_eq!(bytes + beyond.unsplit + beyond.allocated_elsewhere, peak.allocated);
    }
}

/// What a pasted configuration might hold under any key.
fn nonsense() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => (1u64..200).prop_map(Value::from),
        2 => (0u32..26).prop_map(|shift| Value::from(1u64 << shift)),
        1 => select(&[0i64, -1, 1 << 24, (1 << 24) + 1, i64::MAX, i64::MIN][..]).prop_map(Value::from),
        1 => any::<u64>().prop_map(Value::from),
        1 => select(&[0.5, 1.0, -0.1, 1e300, 0.999][..]).prop_map(Value::from),
        1 => any::<bool>().prop_map(Value::from),
        1 => Just(Value::Null),
        1 => select(&["", "silu", "gelu_new", "sliding_attention", "7", "ü"][..]).prop_map(Value::from),
        1 => vec(select(&["full_attention", "sliding_attention", "x"][..]), 0..4).prop_map(Value::from),
        1 => Just(json!({"rope_type": "llama3", "factor": 8.0})),
    ]
}

/// Keys the engine reads, and some it does not.
const KEYS: &[&str] = &[
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "hidden_act",
    "attention_bias",
    "mlp_bias",
    "attention_dropout",
    "tie_word_embeddings",
    "sliding_window",
    "use_sliding_window",
    "max_window_layers",
    "layer_types",
    "max_position_embeddings",
    "rope_scaling",
    "n_positions",
    "n_embd",
    "n_head",
    "n_inner",
    "activation_function",
    "resid_pdrop",
    "embd_pdrop",
    "attn_pdrop",
    "add_cross_attention",
    "reorder_and_upcast_attn",
    "id2label",
    "torch_dtype",
];

fn layers_of(map: &mut Map<String, Value>, layers: u64) {
    // Depth costs time, not correctness: a few layers find what many would.
    for key in ["num_hidden_layers", "n_layer", "layers", "stacks"] {
        map.insert(key.into(), layers.into());
    }
}

fn garbage() -> impl Strategy<Value = Value> {
    let hf =
        (select(TRANSFORMERS), vec((select(KEYS), nonsense()), 0..8), 1u64..4).prop_map(|(model, pairs, layers)| {
            let mut config: Map<String, Value> = pairs.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
            config.insert("model_type".into(), model.name.into());
            layers_of(&mut config, layers);
            json!({"hf": config})
        });
    let family = (select(OWN), vec(nonsense(), 8), 1u64..4).prop_map(|(family, values, layers)| {
        let mut keys: Map<String, Value> =
            family.keys().iter().zip(values).map(|(k, v)| (k.name.to_owned(), v)).collect();
        let counts =
            |name: &str| family.keys().iter().any(|k| k.name == name && matches!(k.kind, FamilyKeyKind::Count { .. }));
        let mut depth = Map::new();
        layers_of(&mut depth, layers);
        keys.extend(depth.into_iter().filter(|(k, _)| counts(k)));
        keys.insert("family".into(), family.name.into());
        Value::Object(keys)
    });
    let size = || prop_oneof![1u64..70, (0u32..27).prop_map(|shift| 1 << shift)];
    (prop_oneof![3 => hf, 1 => family], sayings(), size(), option::of(size())).prop_map(
        |(model, sayings, batch, seq)| {
            let mut scenario = json!({"model": model});
            let sizes = [(at::input::batch, Some(batch)), (at::input::seq, seq)];
            let said = sayings.into_iter().flatten().map(|(lever, value)| (lever.path, value));
            for (path, value) in said.chain(sizes.into_iter().filter_map(|(path, n)| Some((path, n?.into())))) {
                *path.split('.').fold(&mut scenario, |place, step| &mut place[step]) = value;
            }
            scenario
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Nonsense is answered or refused by key, quickly, and never with a panic (arithmetic is checked in this build).
    #[test]
    fn nonsense_is_refused_by_key(scenario in garbage()) {
        let begin = Instant::now();
        if let Err(Error { key, problem, hint, .. }) = Scenario::from_value(&scenario).and_then(|s| Run::new(&s)) {
            prop_assert!(!key.is_empty() && !problem.is_empty() && !hint.is_empty(), "{key:?} {problem:?} {hint:?}");
        }
        prop_assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    }
}
