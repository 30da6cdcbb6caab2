//! Opening a database: anew, again, twice, and one that is none.

use std::time::Duration;

use plimsoll_server::store::{Filter, OpenError, Store, Target};
use sqlx::Connection as _;

use crate::base::Base;
use crate::records::{alike, entry};

pub async fn what_was_kept_is_there_after_opening_again(base: Base) {
    let store = base.open().await;
    let (_, token) = store.create_token("a").await.unwrap();
    store.put(entry(&alike(1)), None).await.unwrap();
    let revision = store.revision().await.unwrap();
    store.close().await;
    assert!(store.ready().await.is_err(), "it was let go");

    let store = base.open().await;
    assert_eq!(store.list(&Filter::accepted(), None, 10).await.unwrap().total, 1);
    assert!(store.check_token(&token).await.unwrap().is_some());
    assert_eq!(store.revision().await.unwrap(), revision);
}

pub async fn another_process_sees_it_within_a_second(base: Base) {
    let (one, other) = (base.open().await, base.open().await);
    assert_eq!(other.list(&Filter::accepted(), None, 10).await.unwrap().total, 0);
    one.put(entry(&alike(1)), None).await.unwrap();
    assert_eq!(one.list(&Filter::accepted(), None, 10).await.unwrap().total, 1, "one's own at once");
    tokio::time::sleep(Duration::from_millis(1100)).await;
    assert_eq!(other.list(&Filter::accepted(), None, 10).await.unwrap().total, 1);
    // Both may write.
    other.put(entry(&alike(2)), None).await.unwrap();
    assert!(!one.put(entry(&alike(2)), None).await.unwrap().new);
}

pub async fn a_newer_database_is_left_alone(base: Base) {
    base.open().await.close().await;
    later(&base).await;
    let error = Store::open(&base.target).await.unwrap_err();
    assert!(matches!(error, OpenError::Newer(_)), "{error}");
    assert!(error.hint().contains("update Plimsoll"), "{}", error.hint());
}

/// Notes a migration that this version does not know.
async fn later(base: &Base) {
    let later = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time) \
        VALUES (99, 'later', TRUE, $1, 0)";
    change(base, later, Some(vec![0; 48])).await;
}

/// Changes the database behind the store's back.
async fn change(base: &Base, sql: &'static str, value: Option<Vec<u8>>) {
    macro_rules! run {
        ($connection:expr) => {{
            let mut connection = $connection;
            let mut query = sqlx::query(sql);
            if let Some(value) = value {
                query = query.bind(value);
            }
            query.execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        }};
    }
    match &base.target {
        Target::Sqlite(path) => {
            let url = format!("sqlite://{}", path.display());
            run!(sqlx::SqliteConnection::connect(&url).await.unwrap());
        }
        Target::Postgres(url) => run!(sqlx::PgConnection::connect(url).await.unwrap()),
    }
}

pub async fn what_another_version_summed_up_is_made_anew(base: Base) {
    let store = base.open().await;
    for number in 0..20 {
        store.put(entry(&alike(number)), None).await.unwrap();
    }
    assert_eq!(store.renew().await.unwrap(), 0);
    let (page, groups) = (store.list(&Filter::accepted(), None, 500).await.unwrap(), groups(&store).await);
    let other = "UPDATE measurement SET engine = '0.0.1', point = '{}', estimated_allocated = 1, family = 'old', \
        status = 'quarantined', reasons = '[\"far off\"]' WHERE seq > 1";
    change(&base, other, None).await;
    store.close().await;

    let store = base.open().await;
    assert_eq!(store.list(&Filter::accepted(), None, 500).await.unwrap().total, 1);
    assert_eq!(store.renew().await.unwrap(), 19);
    assert_eq!(store.list(&Filter::accepted(), None, 500).await.unwrap(), page);
    assert_eq!(self::groups(&store).await, groups);
    // What cannot be read any more stays as it was, and is not tried for ever.
    change(&base, "UPDATE record SET content = '{}' WHERE seq = 3", None).await;
    // The id is the SHA-256 of what it says now: damaged it would not be touched at all.
    let was = "UPDATE measurement SET engine = '0.0.1', \
        id = '44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a' WHERE seq = 3";
    change(&base, was, None).await;
    assert_eq!((store.renew().await.unwrap(), store.renew().await.unwrap()), (1, 0));
    assert_eq!(store.list(&Filter::accepted(), None, 500).await.unwrap(), page);
}

async fn groups(store: &Store) -> Vec<plimsoll_core::measurement::Group> {
    store.compare(plimsoll_core::measurement::Facet::Family, &Filter::accepted()).await.unwrap()
}

#[tokio::test]
async fn what_is_no_database_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("notes.db");
    let notes = "my notes, which nobody must overwrite\n".repeat(200);
    std::fs::write(&path, &notes).unwrap();
    let error = Store::open(&Target::Sqlite(path.clone())).await.unwrap_err();
    assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), notes);

    let error = Store::open(&Target::Sqlite(path.join("below.db"))).await.unwrap_err();
    assert!(matches!(error, OpenError::Folder(..)), "{error}");
    let error = Store::open(&Target::Sqlite(folder.path().to_owned())).await.unwrap_err();
    assert!(matches!(error, OpenError::Open { .. }), "{error}");
    let nobody = "postgres://u:secret@127.0.0.1:1/n".parse().unwrap();
    let error = Store::open(&nobody).await.unwrap_err();
    assert!(matches!(error, OpenError::Open { .. }) && !error.to_string().contains("secret"), "{error}");
}
