//! Models that nobody listed: PyTorch can run them all the same, so they can be measured.

use std::slice;

use super::sizes::COMMON;
use super::{BatchNorms, Came, Checkpoints, Family, Inputs, OneToOne, Origin, Positions, Task, WideTables};

/// One row a task, in the tasks' order.
static ROWS: [Family; Task::ALL.len()] = {
    let mut rows = [row(&Task::ALL[0]); Task::ALL.len()];
    let mut at = 0;
    while at < rows.len() {
        rows[at] = row(&Task::ALL[at]);
        at += 1;
    }
    rows
};

const fn row(task: &'static Task) -> Family {
    Family {
        name: "this model",
        architecture: None,
        came: Came::LONG_AGO,
        origin: Origin::Transformers,
        tasks: slice::from_ref(task),
        inputs: Inputs::of(*task),
        has_mask: true,
        positions: match task {
            // CLIP's and Whisper's config classes have these keys and defaults.
            Task::Contrastive => Positions::computed(&["text_config.max_position_embeddings"], 77),
            Task::SpeechSeq2Seq => Positions::computed(&["max_target_positions"], 448),
            _ => Positions { keys: &["max_position_embeddings", "n_positions"], ..Positions::NONE },
        },
        layers: &[&["num_hidden_layers", "n_layer", "n_layers"]],
        checkpointing: Checkpoints::Always,
        one_to_one: OneToOne::Always,
        eager: true,
        only_eager: false,
        sdpa: None,
        sdpa_until: None,
        caches: true,
        loss_in_parts: true,
        loss_in_tiles: true,
        liger: None,
        wide_tables: WideTables::Never,
        tower: false,
        adapters: true,
        unquantized: Some(&[]),
        batch_norms: BatchNorms::Never,
        wide_linears: false,
        scalar: None,
        experts: None,
        sizes: COMMON,
    }
}

/// What is known of a model when only what is trained on it is.
pub fn unlisted(task: Task) -> &'static Family {
    &ROWS[task as usize]
}
