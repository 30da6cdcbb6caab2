//! Arbitrary valid scenarios for the property tests.

use plimsoll_catalog as catalog;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

use super::supported::{self, FAMILIES, FamilyKeyKind, MODEL_TYPES};
use super::*;

pub(super) fn scenario() -> impl Strategy<Value = Scenario> {
    (source(), input(), training(), device()).prop_map(|(source, input, training, device)| {
        let mut scenario = Scenario { training, device, ..Scenario::of(source) };
        if !matches!(scenario.model.source.traits().inputs(), Inputs::Graph { .. }) {
            scenario.input.batch = input.batch;
        }
        if let (Some(seq), Some(positions)) = (scenario.input.seq, scenario.model.source.positions()) {
            scenario.input.seq = Some(input.seq.unwrap_or(seq).min(positions));
            if scenario.model.source.traits().has_mask() {
                scenario.input.attention_mask = input.attention_mask;
            }
        }
        scenario
    })
}

fn source() -> impl Strategy<Value = ModelSource> {
    let ids: Vec<&str> = catalog::models().iter().map(|m| m.id).collect();
    prop_oneof![
        select(ids).prop_map(|id| ModelSource::Catalog(id.to_owned())),
        (select(MODEL_TYPES), json_map()).prop_map(|(model_type, mut config)| {
            config.insert("model_type".to_owned(), json!(model_type.name));
            ModelSource::HuggingFace(config)
        }),
        (select(FAMILIES), vec((any::<u64>(), any::<bool>(), 0u32..10_000), 8)).prop_map(|(family, random)| {
            let keys = family.keys.iter().zip(random).map(|(key, (n, flag, share))| {
                let value = match key.kind {
                    FamilyKeyKind::Count { most, .. } => json!(1 + n % most),
                    FamilyKeyKind::Fraction { .. } => json!(f64::from(share) / 10_000.0),
                    FamilyKeyKind::Flag { .. } => json!(flag),
                    FamilyKeyKind::Word { words, .. } => json!(words[usize::try_from(n).unwrap() % words.len()]),
                };
                (key.name.to_owned(), value)
            });
            ModelSource::Family { name: family.name.to_owned(), keys: keys.collect() }
        }),
    ]
}

/// Tables as a pasted config might hold them, nested, with any text.
fn json_map() -> impl Strategy<Value = Map<String, Value>> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1e30..1e30).prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    let value = leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((any::<String>(), inner), 0..4).prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    });
    vec(("[a-z_]{1,12}|\\PC{1,6}", value), 0..8).prop_map(|pairs| pairs.into_iter().collect())
}

fn input() -> impl Strategy<Value = Input> {
    // Together at most 2^32 tokens.
    (1u64..=1 << 16, option::of(1u64..=1 << 16), select(AttentionMask::ALL)).prop_map(|(batch, seq, attention_mask)| {
        Input { batch, seq, target_seq: None, image: None, max_new_tokens: None, attention_mask }
    })
}

fn training() -> impl Strategy<Value = Training> {
    let modules_to_save = prop_oneof![Just(Vec::new()), module_names()];
    let lora = (1..=limits::RANK, targets(), 0u32..10_000, any::<bool>(), modules_to_save);
    let lora = option::of(lora.prop_map(|(rank, targets, share, dora, modules_to_save)| Lora {
        rank,
        targets,
        dropout: f64::from(share) / 10_000.0,
        dora,
        modules_to_save,
    }));
    let recipe = (
        select(Precision::ALL),
        select(Optimizer::ALL),
        any::<prop::sample::Index>(),
        1..=limits::ACCUMULATION,
        select(Checkpointing::ALL),
        select(Attention::ALL),
    );
    // Quantized weights are trained through adapters only.
    let lora = (lora, select(Quantization::ALL), any::<bool>()).prop_map(|(lora, quantization, prepare)| match lora {
        Some(lora) => (Some(lora), quantization, prepare || quantization == Quantization::None),
        None => (None, Quantization::None, true),
    });
    let rest = (any::<bool>(), select(ZeroGrad::ALL), select(ZeroGradAt::ALL), any::<bool>(), lora);
    let loss = (select(LossImpl::ALL), 0u32..10_000, any::<bool>(), any::<bool>());
    (recipe, rest, loss).prop_map(
        |(
            (precision, optimizer, implementation, accumulation, checkpointing, attention),
            (clip_grad_norm, zero_grad, zero_grad_at, keep_outputs, (lora, quantization, prepare_kbit)),
            (loss_impl, smoothing, ema, compile),
        )| Training {
            // GradScaler refuses the float16 gradients of modules to save that were not made float32.
            prepare_kbit: prepare_kbit
                || precision == Precision::Fp16Amp && lora.as_ref().is_some_and(|l| !l.modules_to_save.is_empty()),
            mode: Mode::Train,
            precision,
            optimizer,
            optimizer_impl: *implementation.get(supported::implementations(optimizer)),
            accumulation,
            checkpointing,
            attention,
            clip_grad_norm,
            zero_grad,
            zero_grad_at,
            keep_outputs,
            lora,
            loss_impl,
            label_smoothing: f64::from(smoothing) / 10_000.0,
            ema,
            compile,
            quantization,
        },
    )
}

fn targets() -> impl Strategy<Value = LoraTargets> {
    prop_oneof![Just(LoraTargets::AllLinear), module_names().prop_map(LoraTargets::Names),]
}

fn module_names() -> impl Strategy<Value = Vec<String>> {
    vec("[a-zA-Z0-9_.]{1,20}", 1..5).prop_map(|mut names| {
        names.sort();
        names.dedup();
        names
    })
}

fn device() -> impl Strategy<Value = Device> {
    let gpus: Vec<&str> = catalog::gpus().iter().map(|g| g.id).collect();
    let memory = option::of((1u64 << 30)..(1 << 40));
    let line = option::of((1u64 << 20)..(1 << 30));
    (select(gpus), memory, line, any::<bool>()).prop_map(|(gpu, memory, line, workspaces)| Device {
        gpu: gpu.to_owned(),
        memory: memory.map(Bytes::new),
        load_line: line.map(Bytes::new),
        workspaces,
    })
}
