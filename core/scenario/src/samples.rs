//! Arbitrary valid scenarios for the property tests: any model, and any lever set to anything it takes beside the others.

use plimsoll_catalog as catalog;
use plimsoll_catalog::families::{FamilyKeyKind, OWN, TRANSFORMERS};
use plimsoll_ground::Result;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use serde_json::{Map, Value, json};

use super::fill::Said;
use super::model::{MODEL, default_task};
use super::*;

/// One lever, with what is said of it.
type Saying = (&'static Lever, Value);

pub(super) fn scenario() -> impl Strategy<Value = Scenario> {
    let levers: Vec<&'static Lever> = levers().filter(|lever| lever.section() != MODEL.path).collect();
    let sayings: Vec<_> = levers.into_iter().map(|lever| option::weighted(0.4, value(lever))).collect();
    (source(), sayings).prop_map(|(source, sayings)| {
        let mut said: Vec<Saying> = Vec::new();
        for saying in sayings.into_iter().flatten() {
            said.push(saying);
            // What the model does not take, or not beside what was said before, stays unsaid.
            if made(&source, &said).is_err() {
                said.pop();
            }
        }
        made(&source, &said).unwrap()
    })
}

fn made(source: &ModelSource, sayings: &[Saying]) -> Result<Scenario> {
    let mut scenario = Scenario::constant(Model { task: default_task(source.family()), source: source.clone() });
    let mut said = Said::default();
    for (lever, value) in sayings {
        said.say(&mut scenario, lever, value)?;
    }
    let scenario = scenario.filled(&said);
    scenario.check()?;
    scenario.estimated()?;
    Ok(scenario)
}

/// Any value of a lever's kind.
fn value(lever: &'static Lever) -> impl Strategy<Value = Saying> {
    let value = match lever.row.kind {
        // Every order of magnitude alike.
        Kind::Count { most } => {
            (0u32..64, any::<u64>()).prop_map(move |(bits, n)| json!(1 + (n >> bits) % most)).boxed()
        }
        Kind::Amount { least, most } => (0u32..64, any::<u64>())
            .prop_map(move |(bits, n)| json!(Some((n >> bits) % most).filter(|n| *n >= least).unwrap_or(0)))
            .boxed(),
        Kind::Power { most } => (0..=most.ilog2()).prop_map(|bits| json!(1u64 << bits)).boxed(),
        Kind::Fraction => (0u32..10_000).prop_map(|share| json!(f64::from(share) / 10_000.0)).boxed(),
        Kind::Flag => any::<bool>().prop_map(Value::from).boxed(),
        Kind::Words(words) => select(words).prop_map(|word| word.key.into()).boxed(),
        Kind::Names { all, .. } => {
            let all: Vec<Value> = all.map(Value::from).into_iter().collect();
            prop_oneof![module_names(), select([all, vec![json!(["lm_head"])]].concat())].boxed()
        }
        Kind::Size => {
            ((1u64 << 20)..(1 << 40)).prop_map(|bytes| json!(print_memory(plimsoll_ground::Bytes::new(bytes)))).boxed()
        }
        Kind::Version { numbers } => (0u16..7, 0u16..60, 0u16..4)
            .prop_map(move |(major, minor, patch)| match numbers {
                2 => json!(format!("{major}.{minor}")),
                _ => json!(format!("{major}.{minor}.{patch}")),
            })
            .boxed(),
        Kind::Id => select(catalog::gpus()).prop_map(|gpu| gpu.id.into()).boxed(),
    };
    value.prop_map(move |value| (lever, value))
}

fn module_names() -> impl Strategy<Value = Value> {
    let known = subsequence(vec!["q_proj", "v_proj", "lm_head", "score"], 1..3).prop_map(|names| json!(names));
    let any = vec("[a-zA-Z0-9_.]{1,20}", 1..5).prop_map(|mut names| {
        names.sort();
        names.dedup();
        json!(names)
    });
    prop_oneof![known, any]
}

fn source() -> impl Strategy<Value = ModelSource> {
    let ids: Vec<&str> = catalog::models().iter().map(|m| m.id).collect();
    prop_oneof![
        select(ids).prop_map(|id| ModelSource::Catalog(id.to_owned())),
        (select(TRANSFORMERS), json_map()).prop_map(|(model_type, mut config)| {
            config.insert("model_type".to_owned(), json!(model_type.name));
            ModelSource::HuggingFace(config)
        }),
        (select(OWN), vec((any::<u64>(), any::<bool>(), 0u32..10_000), 8)).prop_map(|(family, random)| {
            let keys = family.keys().iter().zip(random).map(|(key, (n, flag, share))| {
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
