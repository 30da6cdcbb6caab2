//! Tokens in the database.

use plimsoll_server::store::Store;

use crate::base::Base;
use crate::records::{alike, entry};

pub async fn a_token_is_good_until_it_is_revoked(base: Base) {
    let store = base.open().await;
    assert!(!store.asks_for_tokens().await.unwrap());
    let (id, token) = store.create_token("the lab's machine").await.unwrap();
    let (other, other_token) = store.create_token("another").await.unwrap();
    assert!(store.asks_for_tokens().await.unwrap());
    assert_eq!(store.check_token(&token).await.unwrap(), Some(id.clone()));

    let listed = store.tokens().await.unwrap();
    let mine = listed.iter().find(|one| one.id == id).unwrap();
    assert_eq!((mine.label.as_str(), mine.created.len()), ("the lab's machine", 10));
    assert_eq!((&mine.revoked, &mine.last_used), (&None, &None));
    store.put(entry(&alike(1)), Some(id.clone())).await.unwrap();
    let used = |tokens: Vec<plimsoll_server::store::Token>, id: &str| {
        tokens.into_iter().find(|one| one.id == id).unwrap().last_used.is_some()
    };
    assert!(used(store.tokens().await.unwrap(), &id) && !used(store.tokens().await.unwrap(), &other));

    assert!(store.revoke_token(&id).await.unwrap());
    assert!(!store.revoke_token(&id).await.unwrap(), "it was revoked before");
    assert_eq!(store.check_token(&token).await.unwrap(), None);
    assert_eq!(store.check_token(&other_token).await.unwrap(), Some(other.clone()));
    // Whoever revokes the last one does not open the door.
    store.revoke_token(&other).await.unwrap();
    assert!(store.asks_for_tokens().await.unwrap());
    assert!(nowhere(&store, &token).await);
}

/// Whether a token's secret can be found in what is kept of it.
async fn nowhere(store: &Store, token: &str) -> bool {
    let secret = token.rsplit('_').next().unwrap();
    !format!("{:?}", store.tokens().await.unwrap()).contains(secret)
}

pub async fn nothing_else_is_a_token(base: Base) {
    let store = base.open().await;
    let (id, token) = store.create_token("a").await.unwrap();
    let (secret, length) = (token.rsplit('_').next().unwrap(), token.len());
    assert_eq!(secret.len(), 64, "256 random bits");
    let flipped = |at: usize| {
        let mut bytes = token.clone().into_bytes();
        bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
        String::from_utf8(bytes).unwrap()
    };
    let mut wrong: Vec<String> = (0..length).map(flipped).collect();
    wrong.extend([
        String::new(),
        "plimsoll_".to_owned(),
        format!("plimsoll_{id}"),
        format!("plimsoll_{id}_"),
        format!("{token}0"),
        token.to_uppercase(),
        secret.to_owned(),
        format!("plimsoll_00000000_{secret}"),
        "0".repeat(64),
        format!("plimsoll_{id}_{}", "x".repeat(100_000)),
    ]);
    for text in wrong {
        assert_eq!(store.check_token(&text).await.unwrap(), None, "{text}");
    }
}
