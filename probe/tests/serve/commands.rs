//! Tokens, exports and imports on the command line.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use plimsoll_testkit::server::Server;
use plimsoll_testkit::synthetic;
use serde_json::Value;

use crate::{plimsoll, sqlite};

/// A run of `plimsoll` with a data directory of its own.
fn run(folder: &Path, args: &[&str]) -> Output {
    Command::new(plimsoll())
        .args(args)
        .env("PLIMSOLL_DATA", folder)
        .env_remove("PLIMSOLL_DATABASE")
        .env_remove("CLICOLOR_FORCE")
        .output()
        .unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn done(folder: &Path, args: &[&str]) -> String {
    let output = run(folder, args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {}", stderr(&output));
    stdout(&output)
}

/// A record in a file.
fn record(folder: &Path, number: u64) -> String {
    let path = folder.join(format!("{number}.json"));
    fs::write(&path, serde_json::to_string_pretty(&synthetic::record(number)).unwrap()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_token_lets_uploads_in_until_it_is_revoked() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    assert!(done(home, &["token", "list"]).contains("No token was made yet"));
    let server = Server::start(plimsoll(), &["--database", &sqlite(home)]).unwrap();
    let to = format!("http://{}", server.address);
    let upload = |number: u64, token: Option<&str>| {
        let record = record(home, number);
        let mut args = vec!["upload", &record, "--to", &to, "--yes", "--tries", "1"];
        if let Some(path) = token {
            args.extend(["--token-file", path]);
        }
        run(home, &args)
    };
    assert_eq!(upload(1, None).status.code(), Some(0), "from this machine, as long as there is no token");

    let made = run(home, &["token", "create", "--label", "the lab"]);
    let token = stdout(&made);
    assert!(token.starts_with("plimsoll_") && token.lines().count() == 1, "nothing else is on standard output");
    assert!(stderr(&made).contains("not shown again"));
    let path = home.join("token");
    fs::write(&path, &token).unwrap();
    let refused = upload(2, None);
    assert!(refused.status.code() == Some(3) && stderr(&refused).contains("--token-file"), "{}", stderr(&refused));
    let sent = upload(2, path.to_str());
    assert_eq!(sent.status.code(), Some(0), "{}", stderr(&sent));

    let listed = done(home, &["token", "list"]);
    let id = listed.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    assert!(listed.contains("the lab") && !listed.contains(token.trim().rsplit('_').next().unwrap()), "{listed}");
    assert!(done(home, &["token", "revoke", &id]).contains("is revoked"));
    assert!(done(home, &["token", "revoke", &id]).contains("was revoked before"));
    assert_eq!(upload(3, path.to_str()).status.code(), Some(3));
    let unknown = run(home, &["token", "revoke", "00000000"]);
    assert!(unknown.status.code() == Some(2) && stderr(&unknown).contains("plimsoll token list"));
    assert_eq!(run(home, &["token", "create", "--label", " "]).status.code(), Some(2));
}

#[test]
fn what_is_exported_can_be_read_without_a_server_and_imported_again() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let records = home.join("records").join("card");
    fs::create_dir_all(&records).unwrap();
    for number in 0..4 {
        record(&records, number);
    }
    fs::write(records.join("notes.txt"), "x").unwrap();
    let from = home.join("records");
    let from = from.to_str().unwrap();
    assert_eq!(done(home, &["import", from]), "4 added, 0 were there, 0 refused\n");
    assert_eq!(done(home, &["import", from]), "0 added, 4 were there, 0 refused\n");

    let out = home.join("site");
    assert!(done(home, &["export", "--out", out.to_str().unwrap()]).starts_with("4 measurements are in"));
    let index: Value = serde_json::from_slice(&fs::read(out.join("measurements/index.json")).unwrap()).unwrap();
    assert_eq!((&index["schema"], &index["next"], &index["total"]), (&1.into(), &Value::Null, &4.into()));
    for item in index["items"].as_array().unwrap() {
        let content =
            fs::read_to_string(out.join(format!("measurements/{}.json", item["id"].as_str().unwrap()))).unwrap();
        assert!(content.contains(synthetic::CARD) && item["standing"] == "accepted");
    }
    // The same shape as the server's.
    let server = Server::start(plimsoll(), &["--database", &sqlite(home)]).unwrap();
    let list = server.client().unwrap().get("/api/v1/measurements?status=all").unwrap().body;
    assert_eq!(serde_json::from_str::<Value>(&list).unwrap(), index);

    let other = format!("sqlite://{}", home.join("other.db").display());
    let back = done(home, &["import", out.to_str().unwrap(), "--database", &other]);
    assert_eq!(back, "4 added, 0 were there, 0 refused\n");
    // Exporting again writes nothing anew but the list.
    done(home, &["export", "--out", out.to_str().unwrap(), "--database", &other]);
    assert_eq!(fs::read_dir(out.join("measurements")).unwrap().count(), 5);
}

#[test]
fn what_is_no_record_is_named_and_the_others_are_taken() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let records = home.join("records");
    fs::create_dir(&records).unwrap();
    record(&records, 1);
    fs::write(records.join("a.json"), "{").unwrap();
    fs::write(records.join("b.json"), "[]").unwrap();
    let output = run(home, &["import", records.to_str().unwrap()]);
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), "1 added, 0 were there, 2 refused\n"));
    assert!(stderr(&output).contains("a.json: record") && stderr(&output).contains("b.json: record"));
    let output = run(home, &["import", "/no/such/file"]);
    assert!(output.status.code() == Some(3) && stderr(&output).contains("hint:"));
}

#[test]
fn a_database_that_cannot_be_had_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let home = folder.path();
    let broken = home.join("broken.db");
    fs::write(&broken, "no database\n".repeat(1000)).unwrap();
    let broken = format!("sqlite://{}", broken.display());
    for (database, says) in [
        (broken.as_str(), "cannot use the database"),
        ("sqlite:///proc/no/such/place.db", "cannot make the folder"),
        ("postgres://u:secret@127.0.0.1:1/n", "cannot open the database postgres://127.0.0.1:1/n"),
    ] {
        for command in [["serve", "--listen=127.0.0.1:0"].as_slice(), &["token", "list"], &["export", "--out=/tmp"]] {
            let output = run(home, &[command, &["--database", database]].concat());
            let said = stderr(&output);
            assert_eq!(output.status.code(), Some(3), "{command:?} {said}");
            assert!(said.contains(says) && said.contains("hint:") && !said.contains("secret"), "{said}");
        }
    }
    for database in ["mysql://u:secret@h/n", "measurements.db", ""] {
        let output = run(home, &["serve", "--database", database]);
        let said = stderr(&output);
        assert!(
            output.status.code() == Some(2) && said.contains("sqlite://FILE") && !said.contains("secret"),
            "{said}"
        );
    }
    let output = run(home, &["serve", "--no-database", "--database", &broken]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn the_database_is_in_the_data_directory_unless_named() {
    let folder = tempfile::tempdir().unwrap();
    done(folder.path(), &["token", "list"]);
    assert!(folder.path().join("measurements.db").is_file());
}
