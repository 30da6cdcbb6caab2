//! Convolutions that take what cuDNN answers: the engine against the real PyTorch on a hollow card, whose cuDNN was asked too.
#![cfg(not(target_arch = "wasm32"))]

use std::collections::BTreeSet;

use plimsoll_tests::accuracy::asked_on_hollow_cards;

/// That the answers are found at all says that the engine asks what PyTorch's own code asked.
#[test]
fn what_convolutions_take_is_the_cards_to_the_byte() {
    let rows = asked_on_hollow_cards().unwrap();
    let ids: BTreeSet<&str> = rows.iter().map(|row| row.id.as_str()).collect();
    assert_eq!((ids.len(), rows.len()), (43, 43), "an id stands twice");
    let differing: Vec<_> = rows
        .iter()
        .map(|row| (row.id.as_str(), row.differs().unwrap_or_else(|error| panic!("{error:?}"))))
        .filter(|(_, by)| *by != [0, 0])
        .collect();
    assert!(differing.is_empty(), "{differing:?}");
}
