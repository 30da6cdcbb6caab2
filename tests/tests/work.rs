//! What a step computes, against PyTorch's own counter: exact.
#![cfg(not(target_arch = "wasm32"))]

use std::collections::BTreeSet;

use plimsoll_tests::accuracy::work;

#[test]
fn every_row_is_exact() {
    let mut wrong = Vec::new();
    let rows = work().unwrap();
    for row in &rows {
        let differences = row.differences().unwrap_or_else(|e| panic!("{}: {e:#}", row.id));
        if !differences.is_empty() {
            wrong.push(format!("{} {}: {}", row.id, row.scenario, differences.join("; ")));
        }
    }
    assert!(wrong.is_empty(), "{} of {} rows differ:\n{}", wrong.len(), rows.len(), wrong.join("\n"));
}

/// Families, precisions, checkpoints, attentions, adapters and tasks.
#[test]
fn the_rows_are_of_many_kinds() {
    let rows = work().unwrap();
    let count = |pointer: &str| {
        let values: BTreeSet<String> =
            rows.iter().filter_map(|row| row.scenario.pointer(pointer)).map(ToString::to_string).collect();
        values.len()
    };
    assert!(rows.len() >= 40, "{}", rows.len());
    assert!(count("/model/hf/model_type") >= 20, "{}", count("/model/hf/model_type"));
    assert_eq!(count("/training/precision"), 5);
    assert!(count("/training/checkpointing") == 2 && count("/training/attention") == 2);
    assert!(count("/model/task") >= 4 && count("/training/lora") >= 3 && count("/training/optimizer") >= 4);
}
