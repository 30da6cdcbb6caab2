//! A database that is moved, deleted, replaced or damaged under the store: nothing is acknowledged that will not be
//! found again, and what can be read is saved.

use std::fs;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use plimsoll_server::store::{Filter, OpenError, Store, StoreError, Target, salvage};
use sqlx::Connection as _;

use crate::base::Base;
use crate::records::{alike, entry};

fn path(base: &Base) -> PathBuf {
    let Target::Sqlite(path) = &base.target else { panic!("no file") };
    path.clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_taken_away_acknowledges_nothing() {
    type Deed = fn(&Path);
    let deeds: [(&str, Deed); 4] = [
        ("moved", |path| fs::rename(path, path.with_extension("elsewhere")).unwrap()),
        ("deleted", |path| fs::remove_file(path).unwrap()),
        ("replaced", |path| {
            fs::rename(path, path.with_extension("elsewhere")).unwrap();
            fs::copy(path.with_extension("elsewhere"), path).unwrap();
        }),
        ("its log deleted", |path| fs::remove_file(format!("{}-wal", path.display())).unwrap()),
    ];
    for (what, deed) in deeds {
        let base = Base::sqlite();
        let store = base.open().await;
        store.put(entry(&alike(1)), None).await.unwrap();
        store.ready().await.unwrap();
        deed(&path(&base));
        for number in 2..5 {
            let error = store.put(entry(&alike(number)), None).await.unwrap_err();
            assert!(matches!(error, StoreError::Gone(_)), "{what}: {error}");
        }
        assert!(matches!(store.ready().await, Err(StoreError::Gone(_))), "{what}");
        store.close().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_put_back_goes_on() {
    let base = Base::sqlite();
    let store = base.open().await;
    store.put(entry(&alike(1)), None).await.unwrap();
    let (here, there) = (path(&base), path(&base).with_extension("elsewhere"));
    fs::rename(&here, &there).unwrap();
    assert!(store.put(entry(&alike(2)), None).await.is_err());
    fs::rename(&there, &here).unwrap();
    assert!(store.put(entry(&alike(2)), None).await.unwrap().new);
    store.ready().await.unwrap();
    store.close().await;
    assert_eq!(base.open().await.list(&Filter::default(), None, 10).await.unwrap().total, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_not_what_was_given_is_not_served() {
    let base = Base::sqlite();
    let store = base.open().await;
    let (good, bad) = (entry(&alike(1)), entry(&alike(2)));
    store.put(good.clone(), None).await.unwrap();
    store.put(bad.clone(), None).await.unwrap();
    let url = format!("sqlite://{}", path(&base).display());
    let mut other = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let change = "UPDATE record SET content = replace(content, '\"schema\":1', '\"schema\":2') WHERE seq = 2";
    sqlx::query(change).execute(&mut other).await.unwrap();
    assert_eq!(store.record(&good.id).await.unwrap().as_deref(), Some(&*good.content));
    assert!(matches!(store.record(&bad.id).await, Err(StoreError::Damaged(_))));
    assert!(matches!(store.put(entry(&alike(3)), None).await, Err(StoreError::Damaged(_))), "nothing more is kept");
    assert!(matches!(store.ready().await, Err(StoreError::Damaged(_))));
    // It is found too when nobody asks for it.
    store.close().await;
    let store = base.open().await;
    store.put(entry(&alike(4)), None).await.unwrap();
    assert!(matches!(store.verify().await, Err(StoreError::Damaged(_))));
    assert!(store.put(entry(&alike(5)), None).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_summary_is_made_of_a_record_that_is_not_what_was_given() {
    let base = Base::sqlite();
    let store = base.open().await;
    let (good, bad) = (entry(&alike(1)), entry(&alike(2)));
    store.put(good.clone(), None).await.unwrap();
    store.put(bad.clone(), None).await.unwrap();
    let url = format!("sqlite://{}", path(&base).display());
    let mut other = sqlx::SqliteConnection::connect(&url).await.unwrap();
    // Another engine made both summaries; one record now says something else, and could be read all the same.
    let said = "UPDATE record SET content = replace(content, '\"plimsoll\":\"', '\"plimsoll\":\"9') WHERE seq = 2";
    let outdated = "UPDATE measurement SET engine = 'older'";
    for sql in [said, outdated] {
        assert!(sqlx::query(sql).execute(&mut other).await.unwrap().rows_affected() > 0);
    }
    assert!(matches!(store.renew().await, Err(StoreError::Damaged(_))));
    let left = "SELECT count(*) FROM measurement WHERE engine = 'older'";
    let left: i64 = sqlx::query_scalar(left).fetch_one(&mut other).await.unwrap();
    assert_eq!(left, 2, "nothing was written");
    assert!(matches!(store.ready().await, Err(StoreError::Damaged(_))));
    assert!(matches!(store.put(entry(&alike(3)), None).await, Err(StoreError::Damaged(_))));
}

/// A page that no record lies in, and that nobody reads while records are served: only SQLite's own look at the structure finds it.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_index_is_found() {
    let base = Base::sqlite();
    let store = base.open().await;
    store.put(entry(&alike(1)), None).await.unwrap();
    store.close().await;
    let url = format!("sqlite://{}", path(&base).display());
    let mut other = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'measurement_engine'";
    let root: i64 = sqlx::query_scalar(root).fetch_one(&mut other).await.unwrap();
    let size: i64 = sqlx::query_scalar("PRAGMA page_size").fetch_one(&mut other).await.unwrap();
    other.close().await.unwrap();
    // Where its first free block begins, in the header of the page (https://sqlite.org/fileformat2.html, 1.6): beyond its end.
    let broken = |bytes: &[u8]| {
        let mut file = fs::File::options().write(true).open(path(&base)).unwrap();
        file.seek(SeekFrom::Start(u64::try_from((root - 1) * size + 1).unwrap())).unwrap();
        file.write_all(bytes).unwrap();
    };
    let store = base.open().await;
    // Often enough that every connection has the whole of it in its cache: it is the file that is looked at.
    for _ in 0..16 {
        store.verify().await.unwrap();
    }
    broken(&[0xff, 0xff]);
    assert!(matches!(store.verify().await, Err(StoreError::Damaged(_))), "while it is open");
    assert!(matches!(store.put(entry(&alike(2)), None).await, Err(StoreError::Damaged(_))));
    store.close().await;
    assert!(matches!(Store::open(&base.target).await, Err(OpenError::Damaged { .. })), "when it is opened");
    broken(&[0, 0]);
    assert_eq!(base.open().await.list(&Filter::default(), None, 10).await.unwrap().total, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn flipped_bits_are_found_and_what_can_be_read_is_saved() {
    const RECORDS: u64 = 80;
    let base = Base::sqlite();
    let store = base.open().await;
    let mut ids = Vec::new();
    for number in 0..RECORDS {
        let entry = entry(&alike(number));
        ids.push(entry.id.clone());
        store.put(entry, None).await.unwrap();
    }
    store.verify().await.unwrap();
    store.close().await;
    let sound = fs::read(path(&base)).unwrap();
    let (mut at_open, mut later) = (0, 0);
    for round in 0..20_u64 {
        flip(&path(&base), &sound, round);
        match Store::open(&base.target).await {
            Err(error) => {
                assert!(
                    matches!(
                        error,
                        OpenError::Damaged { .. }
                            | OpenError::Foreign { .. }
                            | OpenError::Migrate { .. }
                            | OpenError::Open { .. }
                    ),
                    "{error}"
                );
                at_open += 1;
            }
            Ok(store) => {
                assert!(matches!(store.verify().await, Err(StoreError::Damaged(_))), "round {round}");
                assert!(matches!(store.put(entry(&alike(999)), None).await, Err(StoreError::Damaged(_))));
                assert!(matches!(store.ready().await, Err(StoreError::Damaged(_))));
                store.close().await;
                later += 1;
            }
        }
        let mut saved = Vec::new();
        let outcome = salvage(&base.target, |one| {
            if one.verified {
                saved.push(one.id);
            }
            Ok::<_, OpenError>(())
        });
        let lost = outcome.await.unwrap();
        assert!(saved.iter().all(|id| ids.contains(id)), "only what was given");
        println!("round {round}: {} saved, {lost} rows unreadable", saved.len());
    }
    println!("{at_open} found at the start, {later} afterwards");
    // A sound one is saved whole.
    fs::write(path(&base), &sound).unwrap();
    let mut saved = 0;
    let lost = salvage(&base.target, |one| {
        saved += u64::from(one.verified);
        Ok::<_, OpenError>(())
    });
    assert_eq!((lost.await.unwrap(), saved), (0, RECORDS));
}

/// 300 bits beyond the first page, others in each round.
fn flip(path: &Path, sound: &[u8], round: u64) {
    for ending in ["-wal", "-shm"] {
        // What the round before left.
        let _ = fs::remove_file(format!("{}{ending}", path.display()));
    }
    fs::write(path, sound).unwrap();
    let mut file = fs::File::options().read(true).write(true).open(path).unwrap();
    let mut state = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    for _ in 0..300 {
        // Knuth's linear congruential generator: the same bits each time.
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let at = 4096 + (state >> 20) % (sound.len() as u64 - 4096);
        let mut byte = [0];
        file.seek(SeekFrom::Start(at)).unwrap();
        file.read_exact(&mut byte).unwrap();
        byte[0] ^= 1 << (state >> 61);
        file.seek(SeekFrom::Start(at)).unwrap();
        file.write_all(&byte).unwrap();
    }
}
