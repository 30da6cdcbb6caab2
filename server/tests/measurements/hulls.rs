//! Recorded models: kept under the hash of their bytes by whoever may upload, read by everybody.

use axum::http::StatusCode;
use sha2::{Digest as _, Sha256};

use crate::base::Base;
use crate::http::{LOCAL, Server};

/// A hull, and where it belongs.
pub const HULL: &[u8] = include_bytes!("../../../tests/corpus/hulls/gcn.hull");
/// What a program of the machine sends with one.
pub const BYTES: [(&str, &str); 2] = [("host", "127.0.0.1:7070"), ("content-type", "application/octet-stream")];

/// Where these bytes are kept.
pub fn place(bytes: &[u8]) -> String {
    let hash: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("/api/v1/hulls/{hash}")
}

pub async fn one_is_kept_under_its_hash(base: Base) {
    let server = Server::new(&base.open().await, LOCAL);
    let path = place(HULL);
    assert_eq!(server.get(&path).await.status, StatusCode::NOT_FOUND);
    assert_eq!(server.ask("PUT", &path, &BYTES, HULL).await.status, StatusCode::CREATED);
    assert_eq!(
        server.ask("PUT", &path, &BYTES, HULL).await.status,
        StatusCode::OK,
        "giving it twice is giving it once"
    );
    let answer = server.get(&path).await;
    assert_eq!((answer.status, answer.body.as_slice()), (StatusCode::OK, HULL));
    assert!(answer.header("cache-control").contains("immutable"));
    let tag = answer.header("etag").to_owned();
    let again = server.ask("GET", &path, &[("if-none-match", tag.as_str())], "").await;
    assert_eq!(again.status, StatusCode::NOT_MODIFIED);
}

pub async fn what_is_none_is_not_kept(base: Base) {
    let server = Server::new(&base.open().await, LOCAL);
    let broken = &HULL[..HULL.len() / 2];
    for (path, bytes) in [(place(b"another"), HULL), (place(broken), broken), (place(b""), b"".as_slice())] {
        let answer = server.ask("PUT", &path, &BYTES, bytes).await;
        assert_eq!(answer.status, StatusCode::UNPROCESSABLE_ENTITY);
        assert_eq!(server.get(&path).await.status, StatusCode::NOT_FOUND);
    }
    assert_eq!(server.ask("PUT", "/api/v1/hulls/net", &BYTES, HULL).await.status, StatusCode::NOT_FOUND);
}

pub async fn who_may_not_upload_a_record_may_not_keep_one(base: Base) {
    let store = base.open().await;
    let server = Server::new(&store, LOCAL);
    let path = place(HULL);
    let page = [BYTES[0], BYTES[1], ("origin", "https://elsewhere.example")];
    assert_eq!(server.ask("PUT", &path, &page, HULL).await.status, StatusCode::FORBIDDEN);
    let (_, token) = store.create_token("somebody").await.unwrap();
    assert_eq!(server.ask("PUT", &path, &BYTES, HULL).await.status, StatusCode::UNAUTHORIZED);
    let bearer = format!("Bearer {token}");
    let known = [BYTES[0], BYTES[1], ("authorization", bearer.as_str())];
    assert_eq!(server.ask("PUT", &path, &known, HULL).await.status, StatusCode::CREATED);
}
