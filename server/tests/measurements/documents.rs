//! What the server says of itself.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::StatusCode;
use plimsoll_core::measurement::{EXAMPLE, Facet};
use serde_json::Value;

use crate::base::Base;
use crate::http::{JSON, LOCAL, MEASUREMENTS, Server};
use crate::hulls::{HULL, place};

async fn server() -> (Base, Server) {
    let base = Base::sqlite();
    let server = Server::new(&base.open().await, LOCAL);
    (base, server)
}

fn keys(value: &Value) -> BTreeSet<String> {
    value.as_object().unwrap().keys().cloned().collect()
}

#[tokio::test]
async fn the_schema_is_the_documented_one() {
    let (_base, server) = server().await;
    let answer = server.get("/api/v1/schema/measurement.json").await;
    assert_eq!(answer.header("content-type"), "application/schema+json");
    let example: Value = serde_json::from_str(EXAMPLE).unwrap();
    // The example is of one card: only several have ranks.
    let documented: BTreeSet<String> = keys(&example).into_iter().chain(["ranks".to_owned()]).collect();
    assert_eq!(keys(&answer.json()["properties"]), documented);
}

#[tokio::test]
async fn the_openapi_document_tells_what_the_server_does() {
    let (_base, server) = server().await;
    let document = server.get("/api/v1/openapi.json").await.json();
    let create = server.post(EXAMPLE).await;
    assert_eq!(create.status, StatusCode::CREATED);
    let id = create.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(server.ask("PUT", &place(HULL), &JSON, HULL).await.status, StatusCode::CREATED);

    // Every path answers as it says, and to the methods it names.
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let query = if path.ends_with("compare") { "?by=gpu" } else { "" };
            let recorded = path.contains("hulls");
            let path = if recorded { place(HULL) } else { path.replace("{id}", &id) + query };
            let body = if recorded { HULL } else { EXAMPLE.as_bytes() };
            let answer = server.ask(&method.to_uppercase(), &path, &JSON, body).await;
            let documented = &operation["responses"][answer.status.as_str()];
            assert!(answer.status.is_success() && documented.is_object(), "{method} {path}: {}", answer.status);
            if let Some(content) = documented["content"].as_object() {
                let kind = answer.header("content-type").split(';').next().unwrap().to_owned();
                assert!(content.contains_key(&kind), "{method} {path}: {kind}");
            }
        }
    }
    // The parameters are those that are read.
    let expected: BTreeSet<String> =
        Facet::ALL.iter().map(|facet| facet.as_str()).chain(["lora", "status"]).map(str::to_owned).collect();
    assert_eq!(keys(&document["components"]["parameters"]), expected);
    for (path, more) in [(MEASUREMENTS, ["limit", "cursor"].as_slice()), ("/api/v1/compare", &["by"])] {
        let listed = document["paths"][path]["get"]["parameters"].as_array().unwrap();
        let named: BTreeSet<String> = listed
            .iter()
            .map(|one| one["name"].as_str().or(one["$ref"].as_str()).unwrap().rsplit('/').next().unwrap().to_owned())
            .collect();
        let mut all = expected.clone();
        all.extend(more.iter().map(|name| (*name).to_owned()));
        assert_eq!(named, all, "{path}");
    }
    let by = document["paths"]["/api/v1/compare"]["get"]["parameters"][0]["schema"]["enum"].clone();
    assert_eq!(by, serde_json::to_value(Facet::GROUPS.map(Facet::as_str)).unwrap());
    // A point has the properties that are named, and no others.
    let list = server.get(MEASUREMENTS).await.json();
    assert_eq!(keys(&document["components"]["schemas"]["Point"]["properties"]), keys(&list["items"][0]));
    assert_eq!(keys(&document["components"]["schemas"]["Page"]["properties"]), keys(&list));
    assert_eq!(keys(&document["components"]["schemas"]["Kept"]["properties"]), keys(&create.json()));
}

#[tokio::test]
async fn every_answer_carries_the_policy_and_no_trace_of_who_asked() {
    let (_base, server) = server().await;
    for path in [MEASUREMENTS, "/api/v1/compare?by=gpu", "/api/v1/nothing", "/readyz", "/api/v1/openapi.json"] {
        let answer = server.ask("GET", path, &[("cookie", "a=b")], Body::empty()).await;
        assert_eq!(answer.header("x-content-type-options"), "nosniff", "{path}");
        assert!(answer.header("content-security-policy").starts_with("default-src 'self'"), "{path}");
        assert!(!answer.headers.contains_key("set-cookie"));
        assert!(!answer.headers.contains_key("access-control-allow-origin"), "other sites have no business here");
    }
}
