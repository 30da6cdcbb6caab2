//! The pages that are written from tables and checked where the tables are.
#![cfg(not(target_arch = "wasm32"))]
#![allow(clippy::unwrap_used, reason = "a page that cannot be written fails the test")]

use plimsoll_core::scenario::levers;
use plimsoll_tests::scenario_page;

const COMMITTED: &str = include_str!("../../docs/scenario.md");

#[test]
fn the_page_of_levers_is_what_the_table_says() {
    let page = scenario_page::page().unwrap();
    assert!(page == COMMITTED, "docs/scenario.md and the table disagree: run `cargo xtask reference`");
}

#[test]
fn every_lever_is_on_its_page() {
    for lever in levers() {
        let row = format!("| `{}`", lever.name());
        assert!(COMMITTED.contains(&row) && COMMITTED.contains(&format!("| `{}` |", lever.row.link)), "{}", lever.path);
    }
}
