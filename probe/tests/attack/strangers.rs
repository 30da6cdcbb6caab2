//! What identifies a person, or cannot be seen, is refused in records that strangers send.

use plimsoll_testkit::synthetic;
use serde_json::json;

use crate::server;

#[test]
fn records_that_tell_too_much_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let server = server(folder.path());
    let mut client = server.client().unwrap();
    for (number, text) in (1..).zip([
        "<path> Beeblebrox/torch/lib.py",
        "<path> Beeblebrox\\torch\\x.py",
        "<path> beeble/x.py",
        "C:<path> Smithson/x.py",
        "zaphod@localhost",
        "zaphod(at)example.org",
        "./rel/secretproject/x.py",
        "fe80::1",
        "ABC123456789",
        "a\u{202e}b",
        "a\u{200b}b",
        "a\u{e0041}b",
    ]) {
        let mut record = serde_json::to_value(synthetic::record(number)).unwrap();
        record["device"]["name"] = json!(text);
        let reply = client.upload(&record.to_string()).unwrap();
        assert_eq!(reply.status, 422, "{text:?}: {}", reply.body);
        let mut record = serde_json::to_value(synthetic::record(number)).unwrap();
        record["events"] = json!([{"at": 1, "kind": "note", "message": text}]);
        let reply = client.upload(&record.to_string()).unwrap();
        assert_eq!(reply.status, 422, "{text:?}: {}", reply.body);
    }
    server.end().unwrap();
}
