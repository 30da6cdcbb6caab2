//! Reading over HTTP.

use axum::body::Body;
use axum::http::StatusCode;
use plimsoll_core::measurement::MeasurementPoint;
use plimsoll_testkit::synthetic;

use crate::base::Base;
use crate::http::{LOCAL, MEASUREMENTS, Server};
use crate::records::{alike, entry, with_peak};

pub async fn lists_and_comparisons_over_http(base: Base) {
    let store = base.open().await;
    let server = Server::new(&store, LOCAL);
    store.put(entry(&alike(1)), None).await.unwrap();
    store.put(entry(&with_peak(2, 5000)), None).await.unwrap();
    let list = server.get(MEASUREMENTS).await;
    assert_eq!((list.status, list.header("content-type")), (StatusCode::OK, "application/json"));
    let list = list.json();
    assert_eq!((&list["schema"], &list["next"], &list["total"]), (&1.into(), &().into(), &1.into()));
    let point: MeasurementPoint = serde_json::from_value(list["items"][0].clone()).unwrap();
    assert_eq!(point.id, alike(1).content_id());
    for (query, total) in [
        ("?status=all", 2),
        ("?status=quarantined", 1),
        ("?family=gpt2", 1),
        ("?family=llama", 0),
        ("?gpu=Synthetic+card&torch=2.11&task=causal-lm&device_kind=cuda&attention=sdpa&lora=false", 1),
        ("?precision=fp16-amp&optimizer=adamw&checkpointing=none&model=gpt2&training=full&limit=1", 1),
        ("?lora=true", 0),
        ("?family=", 1),
    ] {
        assert_eq!(server.get(&format!("{MEASUREMENTS}{query}")).await.json()["total"], total, "{query}");
    }
    let compared = server.get("/api/v1/compare?by=gpu&family=gpt2&status=all").await.json();
    assert_eq!((&compared["schema"], &compared["by"]), (&1.into(), &"gpu".into()));
    let group = &compared["groups"][0];
    assert_eq!(
        (&group["key"], &group["n"], &group["allocated"]["n"]),
        (&"Synthetic card".into(), &2.into(), &2.into())
    );
    assert_eq!(group["allocated"]["worst_id"], with_peak(2, 5000).content_id());
    assert_eq!(server.get("/readyz").await.body, b"ready\n");
}

pub async fn pages_lead_from_one_to_the_next(base: Base) {
    let store = base.open().await;
    let server = Server::new(&store, LOCAL);
    for number in 0..5 {
        store.put(entry(&synthetic::record(number)), None).await.unwrap();
    }
    let mut ids = Vec::new();
    let mut path = format!("{MEASUREMENTS}?limit=2");
    loop {
        let page = server.get(&path).await.json();
        ids.extend(page["items"].as_array().unwrap().iter().map(|item| item["id"].as_str().unwrap().to_owned()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("{MEASUREMENTS}?limit=2&cursor={next}");
    }
    let expected: Vec<String> = (0..5).rev().map(|number| synthetic::record(number).content_id()).collect();
    assert_eq!(ids, expected);
}

pub async fn unchanged_lists_cost_nothing(base: Base) {
    let store = base.open().await;
    let server = Server::new(&store, LOCAL);
    store.put(entry(&alike(1)), None).await.unwrap();
    for path in [MEASUREMENTS, "/api/v1/compare?by=family"] {
        let first = server.get(path).await;
        let tag = first.header("etag").to_owned();
        assert!(!tag.is_empty() && first.header("cache-control") == "no-cache");
        let again = server.ask("GET", path, &[("if-none-match", &tag)], Body::empty()).await;
        assert_eq!((again.status, again.body.len(), again.header("etag")), (StatusCode::NOT_MODIFIED, 0, tag.as_str()));
        let other = path.replace("family", "gpu") + if path.contains('?') { "" } else { "?limit=5" };
        assert_ne!(server.get(&other).await.header("etag"), tag, "another question has another tag");
        store.put(entry(&alike(10 + path.len() as u64)), None).await.unwrap();
        let changed = server.ask("GET", path, &[("if-none-match", &tag)], Body::empty()).await;
        assert_eq!(changed.status, StatusCode::OK);
    }
}

pub async fn records_are_for_ever(base: Base) {
    let store = base.open().await;
    let server = Server::new(&store, LOCAL);
    store.put(entry(&alike(1)), None).await.unwrap();
    let id = alike(1).content_id();
    let path = format!("{MEASUREMENTS}/{id}");
    let answer = server.get(&path).await;
    assert_eq!((answer.status, answer.body.as_slice()), (StatusCode::OK, alike(1).canonical().as_bytes()));
    assert_eq!(answer.header("etag"), format!("\"{id}\""));
    assert_eq!(answer.header("cache-control"), "public, max-age=31536000, immutable");
    let again = server.ask("GET", &path, &[("if-none-match", &format!("\"{id}\""))], Body::empty()).await;
    assert_eq!((again.status, again.body.len()), (StatusCode::NOT_MODIFIED, 0));
    let head = server.ask("HEAD", &path, &[], Body::empty()).await;
    assert_eq!((head.status, head.body.len()), (StatusCode::OK, 0));
    for wrong in ["0".repeat(64), id.to_uppercase(), "x".to_owned(), format!("{id}0"), "%2e%2e".to_owned()] {
        let answer = server.get(&format!("{MEASUREMENTS}/{wrong}")).await;
        assert_eq!(answer.status, StatusCode::NOT_FOUND, "{wrong}");
        answer.problem();
    }
}

pub async fn bad_queries_say_what_to_do(base: Base) {
    let server = Server::new(&base.open().await, LOCAL);
    for path in [
        "/api/v1/measurements?famly=llama",
        "/api/v1/measurements?limit=501",
        "/api/v1/measurements?cursor=1;DROP TABLE".replace(' ', "%20").as_str(),
        "/api/v1/measurements?status=bad",
        "/api/v1/measurements?gpu=%00",
        "/api/v1/compare",
        "/api/v1/compare?by=card",
        "/api/v1/compare?by=gpu&limit=3",
    ] {
        let answer = server.get(path).await;
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{path}");
        let problem = answer.problem();
        assert!(problem["errors"][0]["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{problem}");
    }
    for (method, path, status) in [
        ("DELETE", MEASUREMENTS, StatusCode::METHOD_NOT_ALLOWED),
        ("PUT", MEASUREMENTS, StatusCode::METHOD_NOT_ALLOWED),
        ("POST", "/api/v1/compare", StatusCode::METHOD_NOT_ALLOWED),
        ("GET", "/api/v1/nothing", StatusCode::NOT_FOUND),
        ("GET", "/api/v2/measurements", StatusCode::NOT_FOUND),
    ] {
        let answer = server.ask(method, path, &[("accept", "text/html")], Body::empty()).await;
        assert_eq!(answer.status, status, "{method} {path}");
        answer.problem();
    }
}
