//! What the store promises.

use std::collections::BTreeSet;

use plimsoll_core::measurement::{Facet, MeasuredRank, MeasurementPoint, Outcome, Standing, groups};
use plimsoll_core::{Bytes, Measurement};
use plimsoll_server::store::{Filter, Kept, Store};
use plimsoll_testkit::synthetic;
use serde_json::{Value, json};

use crate::base::Base;
use crate::records::{alike, entry, with_peak};

async fn put(store: &Store, record: &Measurement) -> Kept {
    store.put(entry(record), None).await.unwrap()
}

async fn all(store: &Store, filter: &Filter) -> Vec<Value> {
    let page = store.list(filter, None, 500).await.unwrap();
    assert_eq!(page.total, page.items.len());
    page.items
}

fn id(item: &Value) -> &str {
    item["id"].as_str().unwrap()
}

pub async fn a_record_is_kept_once_and_given_back_to_the_byte(base: Base) {
    let store = base.open().await;
    let record = alike(1);
    let kept = put(&store, &record).await;
    assert_eq!(kept, Kept { new: true, standing: Standing::Accepted, reasons: Vec::new() });
    assert_eq!(put(&store, &record).await, Kept { new: false, ..kept });
    let items = all(&store, &Filter::default()).await;
    assert_eq!(items.len(), 1);
    assert_eq!(id(&items[0]), record.content_id());
    assert_eq!(store.record(&record.content_id()).await.unwrap(), Some(record.canonical()));
    assert_eq!(store.record(&"0".repeat(64)).await.unwrap(), None);
    // What a list shows is the point, and what the server knows of it.
    let mut point: MeasurementPoint = serde_json::from_value(items[0].clone()).unwrap();
    assert!(point.received.take().is_some_and(|day| day.len() == 10));
    assert_eq!(point, record.point().unwrap());
}

pub async fn lists_are_newest_first_and_cut_into_pages(base: Base) {
    let store = base.open().await;
    assert_eq!(store.list(&Filter::default(), None, 10).await.unwrap(), Default::default());
    let records: Vec<Measurement> = (0..7).map(synthetic::record).collect();
    for record in &records {
        put(&store, record).await;
    }
    let mut page = store.list(&Filter::default(), None, 3).await.unwrap();
    let mut sizes = vec![(page.items.len(), page.total)];
    let mut seen = page.items;
    // What comes meanwhile does not shift what is still to be read.
    put(&store, &synthetic::record(100)).await;
    while let Some(before) = page.next {
        page = store.list(&Filter::default(), Some(before), 3).await.unwrap();
        sizes.push((page.items.len(), page.total));
        seen.extend(page.items);
    }
    assert_eq!(sizes, [(3, 7), (3, 8), (1, 8)]);
    let seen: Vec<&str> = seen.iter().map(id).collect();
    let expected: Vec<String> = records.iter().rev().map(Measurement::content_id).collect();
    assert_eq!(seen, expected);
}

/// Records that differ in every facet.
fn various() -> Vec<Measurement> {
    let mut records: Vec<Measurement> = (0..24).map(synthetic::record).collect();
    for (at, record) in records.iter_mut().enumerate() {
        record.estimate = None;
        record.software.torch = ["2.11.0+cu128", "2.9.1", "2.10.0"][at % 3].to_owned();
        record.device.gpu = (at % 2 == 0).then(|| "h200".to_owned());
        let model = ["gpt2", "llama-3.2-1b"][at % 2];
        record.scenario["model"]["catalog"] = model.into();
        record.scenario["training"]["optimizer_impl"] = ["foreach", "fused", "for-loop"][at / 2 % 3].into();
        record.scenario["training"]["checkpointing"] = ["none", "full"][at / 4 % 2].into();
        if at % 5 == 0 {
            record.scenario["training"]["lora"] = serde_json::json!({"rank": 8, "targets": "all-linear"});
        }
    }
    records
}

pub async fn every_facet_filters(base: Base) {
    let store = base.open().await;
    let records = various();
    for record in &records {
        put(&store, record).await;
    }
    let points: Vec<MeasurementPoint> = records.iter().map(|record| record.point().unwrap()).collect();
    for facet in Facet::ALL.iter().copied() {
        let values: BTreeSet<String> = points.iter().map(|point| facet.of(point)).collect();
        let mut sum = 0;
        for value in &values {
            let filter = Filter::default().with(facet, value);
            let items = all(&store, &filter).await;
            let expected = points.iter().filter(|point| facet.of(point) == *value).count();
            assert_eq!(items.len(), expected, "{facet:?} {value}");
            sum += items.len();
        }
        assert_eq!(sum, records.len(), "{facet:?} {values:?}");
    }
    // Several at once, and an optimizer whatever its implementation.
    let filter =
        Filter::default().with(Facet::Model, "gpt2").with(Facet::Torch, "2.11").with(Facet::Optimizer, "adamw");
    assert_eq!(all(&store, &filter).await.len(), 4);
    let filter = Filter::default().with(Facet::Model, "gpt2").with(Facet::Optimizer, "adamw fused");
    assert_eq!(all(&store, &filter).await.len(), 4);
    assert_eq!(all(&store, &Filter::default().with(Facet::Optimizer, "adam")).await.len(), 0);
}

pub async fn what_is_asked_for_is_never_sql(base: Base) {
    let store = base.open().await;
    put(&store, &alike(1)).await;
    for text in
        ["' OR '1'='1", "gpt2'; DROP TABLE measurement; --", "%", "gpt_", "\" OR 1=1", "\\", "$1", "?1", "\u{0}"]
    {
        for facet in Facet::ALL.iter().copied() {
            assert_eq!(all(&store, &Filter::default().with(facet, text)).await.len(), 0, "{text}");
        }
        assert_eq!(store.record(text).await.unwrap_or(None), None);
        assert_eq!(store.check_token(text).await.unwrap_or(None), None);
    }
    assert_eq!(all(&store, &Filter::default()).await.len(), 1);
}

pub async fn comparisons_are_those_of_the_points(base: Base) {
    let store = base.open().await;
    let mut records = various();
    for (at, record) in records.iter_mut().enumerate() {
        record.peak.process = record.peak.process.map(|process| process + Bytes::from_mib(7 * at as u64 % 90));
        if at % 7 == 3 {
            record.peak.process = None;
            record.peak.process_source = None;
        }
        put(&store, record).await;
    }
    let mut points: Vec<MeasurementPoint> = Vec::new();
    for item in all(&store, &Filter::default()).await {
        points.push(serde_json::from_value(item).unwrap());
    }
    assert_eq!(points.len(), records.len());
    for by in Facet::GROUPS {
        let found = store.compare(by, &Filter::accepted()).await.unwrap();
        assert_eq!(found, groups(&points, by), "{by:?}");
    }
    let filter = Filter::accepted().with(Facet::Checkpointing, "full");
    points.retain(|point| point.checkpointing == "full");
    assert_eq!(store.compare(Facet::Torch, &filter).await.unwrap(), groups(&points, Facet::Torch));
    assert!(points.iter().any(|point| point.error(plimsoll_core::measurement::Metric::Process).is_some()));
}

/// Each rank of a run on two cards takes less of the model than one card does: the runs on one are none to be judged by.
pub async fn several_cards_have_neighbours_of_their_own(base: Base) {
    let store = base.open().await;
    for number in 0..4 {
        put(&store, &with_peak(number, 7600 + number)).await;
    }
    let mut record = with_peak(4, 6000);
    record.scenario["parallel"] = json!({ "gpus": 2, "strategy": "ddp" });
    record.estimate = None;
    let rank = |rank| MeasuredRank {
        rank,
        device: None,
        outcome: Some(Outcome::Finished),
        peak: record.peak.clone(),
        phases: record.phases.clone(),
        buffers: Vec::new(),
    };
    record.ranks = vec![rank(0), rank(1)];
    put(&store, &record).await;
    let items = all(&store, &Filter { standing: None, ..Filter::default() }).await;
    let odd: Vec<&Value> = items.iter().filter(|item| item["levers"].to_string().contains("gpus")).collect();
    assert_eq!(odd.len(), 1, "the line tells how many cards there were: {items:?}");
    let reasons = odd[0]["reasons"].to_string();
    assert!(!reasons.contains("other measurements"), "{reasons}");
    let kept = store.record(&record.content_id()).await.unwrap().unwrap();
    assert_eq!(kept, record.canonical(), "ranks and all");
}

pub async fn what_contradicts_its_neighbours_is_quarantined_in_any_order(base: Base) {
    let store = base.open().await;
    let peaks = [7600, 7610, 6000, 7620, 7605];
    // Five runs of the same kind, given in five orders; each order is a neighbourhood of its own.
    for turn in 0..peaks.len() {
        let mut records: Vec<Measurement> = (0..).zip(peaks).map(|(number, peak)| with_peak(number, peak)).collect();
        for record in &mut records {
            record.device.driver = Some(format!("{}.1", 500 + turn));
        }
        records.rotate_left(turn);
        for record in &records {
            put(&store, record).await;
        }
        let filter = Filter { standing: None, ..Filter::default() };
        let items = all(&store, &filter).await;
        let odd: Vec<&Value> = items.iter().filter(|item| item["standing"] == "quarantined").collect();
        assert_eq!(odd.len(), turn + 1, "the odd one of each turn, and no other");
        for item in odd {
            assert_eq!(item["measured"]["allocated"], 6000u64 << 20);
            let reasons = item["reasons"].to_string();
            assert!(reasons.contains("median of 4 other measurements"), "{reasons}");
        }
    }
    // Not counted unless asked for.
    assert_eq!(all(&store, &Filter::accepted()).await.len(), 20);
    let groups = store.compare(Facet::Family, &Filter::accepted()).await.unwrap();
    assert_eq!(groups[0].n, 20);
}

pub async fn what_is_far_from_the_estimate_is_quarantined(base: Base) {
    let store = base.open().await;
    let kept = put(&store, &with_peak(1, 5000)).await;
    assert_eq!(kept.standing, Standing::Quarantined);
    assert!(kept.reasons[0].starts_with("allocated: 4.88 GiB is ") && kept.reasons[0].contains("estimate"), "{kept:?}");
    // Given again it says the same.
    assert_eq!(put(&store, &with_peak(1, 5000)).await, Kept { new: false, ..kept });
    // A run that did not end is no whole run: neither judged nor a neighbour.
    let mut record = with_peak(2, 5000);
    record.attempts[1].outcome = Outcome::OutOfMemory;
    assert_eq!(put(&store, &record).await.standing, Standing::Accepted);
}

pub async fn many_at_once_lose_nothing(base: Base) {
    let store = base.open().await;
    let mut tasks = tokio::task::JoinSet::new();
    for task in 0..8u64 {
        let store = store.clone();
        tasks.spawn(async move {
            // Every record is given by two tasks.
            let mut new = 0;
            for number in 0..25 {
                new += usize::from(put(&store, &synthetic::record(task / 2 * 25 + number)).await.new);
            }
            new
        });
    }
    let new: usize = tasks.join_all().await.into_iter().sum();
    assert_eq!(new, 100);
    let page = store.list(&Filter::default(), None, 500).await.unwrap();
    let ids: BTreeSet<&str> = page.items.iter().map(id).collect();
    assert_eq!((page.total, ids.len()), (100, 100));
}

pub async fn the_revision_changes_with_the_records_only(base: Base) {
    let store = base.open().await;
    let empty = store.revision().await.unwrap();
    put(&store, &alike(1)).await;
    let one = store.revision().await.unwrap();
    assert_ne!(one, empty);
    put(&store, &alike(1)).await;
    store.create_token("a").await.unwrap();
    assert_eq!(store.revision().await.unwrap(), one);
    // A record that changes what is thought of another changes the revision, too.
    for number in 2..5 {
        put(&store, &alike(number)).await;
    }
    assert_eq!(store.revision().await.unwrap(), one + 3);
}

pub async fn awkward_texts_come_back(base: Base) {
    let store = base.open().await;
    let mut record = alike(1);
    record.estimate = None;
    record.device.name = "Karte \u{1f6a2} '\";--%_ \u{10ffff}".to_owned();
    record.scenario["model"] = serde_json::json!({
        "hf": {"model_type": "gpt2", "note": "a ' \" % b", "nested": {"--": [1.5, -0.0, 1e300]}},
        "task": "causal-lm",
    });
    put(&store, &record).await;
    let content = store.record(&record.content_id()).await.unwrap().unwrap();
    assert_eq!(content, record.canonical());
    assert_eq!(Measurement::from_json(&content).unwrap(), record);
    let filter = Filter::default().with(Facet::Gpu, &record.device.name);
    assert_eq!(all(&store, &filter).await[0]["device"], record.device.name.as_str());
}
