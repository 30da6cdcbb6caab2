//! Who may upload, and what he is answered.

use axum::body::Body;
use axum::http::StatusCode;
use plimsoll_server::Settings;

use crate::base::Base;
use crate::http::{JSON, LOCAL, MEASUREMENTS, Server};
use crate::records::{alike, with_peak};

pub async fn an_upload_is_created_then_known(base: Base) {
    let server = Server::new(&base.open().await, LOCAL);
    let record = alike(1);
    let pretty = serde_json::to_string_pretty(&record).unwrap();
    let answer = server.post(pretty).await;
    assert_eq!(answer.status, StatusCode::CREATED, "{}", String::from_utf8_lossy(&answer.body));
    let url = format!("{MEASUREMENTS}/{}", record.content_id());
    assert_eq!(answer.header("location"), url);
    let said = answer.json();
    let expected = serde_json::json!({"id": record.content_id(), "status": "accepted", "url": url, "reasons": []});
    assert_eq!(said, expected);
    // The same record, written otherwise.
    let again = server.post(record.canonical()).await;
    assert_eq!((again.status, again.json()), (StatusCode::OK, expected));
    assert_eq!(server.get(&url).await.body, record.canonical().into_bytes());

    let odd = server.post(with_peak(2, 5000).canonical()).await;
    assert_eq!(odd.status, StatusCode::CREATED);
    assert_eq!(odd.json()["status"], "quarantined");
    assert!(odd.json()["reasons"][0].as_str().unwrap().contains("estimate"));
}

pub async fn tokens_are_asked_for_once_there_is_one(base: Base) {
    let store = base.open().await;
    let server = Server::new(&store, LOCAL);
    assert_eq!(server.post(alike(1).canonical()).await.status, StatusCode::CREATED);
    let (id, token) = store.create_token("a").await.unwrap();
    let refused = server.post(alike(2).canonical()).await;
    assert_eq!(refused.status, StatusCode::UNAUTHORIZED);
    assert!(refused.header("www-authenticate").starts_with("Bearer"));
    assert!(refused.problem()["detail"].as_str().unwrap().contains("--token-env"));

    let with = async |value: &str, number| {
        let headers = [JSON[0], JSON[1], ("authorization", value)];
        server.ask("POST", MEASUREMENTS, &headers, alike(number).canonical()).await.status
    };
    assert_eq!(with(&format!("Bearer {token}"), 3).await, StatusCode::CREATED);
    assert_eq!(with(&format!("bearer {token}"), 3).await, StatusCode::OK);
    for value in [&format!("Basic {token}"), &token, "Bearer", "Bearer ", &format!("Bearer {token}x"), "\u{ff}"] {
        assert_eq!(with(value, 4).await, StatusCode::UNAUTHORIZED, "{value}");
    }
    store.revoke_token(&id).await.unwrap();
    assert_eq!(with(&format!("Bearer {token}"), 5).await, StatusCode::UNAUTHORIZED);
    // Reading needs none.
    assert_eq!(server.get(MEASUREMENTS).await.json()["total"], 2);
}

pub async fn other_machines_need_a_token(base: Base) {
    let store = base.open().await;
    let server = Server::new(&store, Settings { local: false, ..LOCAL });
    let refused = server.post(alike(1).canonical()).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(refused.problem()["detail"].as_str().unwrap().contains("plimsoll token create"));
    let (_, token) = store.create_token("a").await.unwrap();
    let headers = [JSON[1], ("authorization", &format!("Bearer {token}"))];
    let answer = server.ask("POST", MEASUREMENTS, &headers, alike(1).canonical()).await;
    assert_eq!(answer.status, StatusCode::CREATED);
}

pub async fn web_pages_and_proxies_are_not_programs_of_this_machine(base: Base) {
    let store = base.open().await;
    let server = Server::new(&store, LOCAL);
    for (name, value) in [
        ("origin", "https://evil.example"),
        ("sec-fetch-site", "cross-site"),
        ("x-forwarded-for", "192.0.2.1"),
        ("forwarded", "for=192.0.2.1"),
        ("via", "1.1 proxy"),
    ] {
        let headers = [JSON[0], JSON[1], (name, value)];
        let answer = server.ask("POST", MEASUREMENTS, &headers, alike(1).canonical()).await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{name}");
        answer.problem();
    }
    let rebound = [("host", "evil.example:7070"), JSON[1]];
    let answer = server.ask("POST", MEASUREMENTS, &rebound, alike(1).canonical()).await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
    assert_eq!(server.get(MEASUREMENTS).await.json()["total"], 0);
}

pub async fn too_many_are_told_when_to_come_back(base: Base) {
    let store = base.open().await;
    let server = Server::new(&store, Settings { uploads_per_minute: 3, ..LOCAL });
    for number in 0..3 {
        assert_eq!(server.post(alike(number).canonical()).await.status, StatusCode::CREATED);
    }
    let answer = server.post(alike(3).canonical()).await;
    assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
    let wait: u64 = answer.header("retry-after").parse().unwrap();
    assert!((1..=20).contains(&wait), "{wait}");
    assert!(answer.problem()["detail"].as_str().unwrap().contains("try again in"));
    // Each token counts for itself.
    let (_, token) = store.create_token("a").await.unwrap();
    let headers = [JSON[1], ("authorization", &format!("Bearer {token}"))];
    let answer = server.ask("POST", MEASUREMENTS, &headers, Body::from(alike(3).canonical())).await;
    assert_eq!(answer.status, StatusCode::CREATED);
    // Guessing is counted, too.
    assert_eq!(server.post(alike(4).canonical()).await.status, StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(server.get(MEASUREMENTS).await.json()["total"], 4);
}
