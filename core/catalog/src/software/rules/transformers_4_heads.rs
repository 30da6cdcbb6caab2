//! What changed until the fifth major version of transformers in what comes behind the last layer: logits and losses.

use super::{Rule, transformers};

/// What the Trainer does with a loss of a single process.
pub const TRAINER_AVERAGES: Rule = transformers(
    4,
    57,
    "the Trainer multiplies a loss by the number of processes, of which one is enough (average_tokens_across_devices)",
    "transformers/trainer.py and training_args.py of 4.51.3 and 4.57.3",
);

/// Which logits a generation makes.
pub const LOGITS_TO_KEEP: Rule = transformers(
    4,
    45,
    "a generation asks for the logits of the last position alone; before, for those of the whole prompt",
    "transformers/generation/utils.py and models/llama/modeling_llama.py of 4.44.2 and 4.45.2 (num_logits_to_keep)",
);

/// Which Falcon makes.
pub const FALCON_KEEPS_LOGITS: Rule = transformers(
    4,
    47,
    "a generation asks Falcon for the logits of the last position alone; before, for all",
    "transformers/models/falcon/modeling_falcon.py of 4.46.3 and 4.47.1",
);

/// Which Granite makes.
pub const GRANITE_KEEPS_LOGITS: Rule = transformers(
    4,
    48,
    "a generation asks Granite for the logits of the last position alone; before, for all",
    "transformers/models/granite/modeling_granite.py of 4.47.1 and 4.48.3",
);

/// Which GPT-NeoX makes.
pub const GPT_NEOX_KEEPS_LOGITS: Rule = transformers(
    4,
    49,
    "a generation asks GPT-NeoX for the logits of the last position alone; before, for all",
    "transformers/models/gpt_neox/modeling_gpt_neox.py of 4.48.3 and 4.49.0",
);

/// Which GPT-2 makes.
pub const GPT2_KEEPS_LOGITS: Rule = transformers(
    4,
    53,
    "a generation asks GPT-2 for the logits of the last position alone; before, for all",
    "transformers/models/gpt2/modeling_gpt2.py of 4.52.4 and 4.53.3",
);

/// Where the loss is computed.
pub const LOSS_FUNCTION: Rule = transformers(
    4,
    46,
    "logits are made float32 in the loss function, beside the model's own; before, in the model, in their place",
    "transformers/loss/loss_utils.py of 4.46.3, models/llama/modeling_llama.py of 4.45.2",
);

/// The oldest models' own losses.
pub const OLDEST_SHARE_LOSS: Rule = transformers(
    4,
    48,
    "GPT-2, OPT, BLOOM, Falcon and StableLM compute their loss as all models do; before, on the logits in the dtype \
     they have, and Mistral and Granite on float32 logits that they return",
    "transformers/models/{gpt2,opt,bloom,falcon,stablelm,mistral,granite}/modeling_*.py of 4.44.2, 4.47.1 and 4.48.3 (loss_function)",
);

/// GPT-NeoX' own loss.
pub const GPT_NEOX_SHARES_LOSS: Rule = transformers(
    4,
    49,
    "GPT-NeoX computes its loss as all models do; before, on the logits in the dtype they have",
    "transformers/models/gpt_neox/modeling_gpt_neox.py of 4.44.2, 4.48.3 and 4.49.0 (loss_function)",
);

/// How the loss shifts by one token.
pub const PADDED_LABELS: Rule = transformers(
    4,
    49,
    "the loss shifts the labels; before, it made a shifted copy of all logits",
    "transformers/loss/loss_utils.py of 4.48.3 and 4.49.0",
);

/// Which token a decoder's classifier reads.
pub const LAST_TOKEN_BY_PLACE: Rule = transformers(
    4,
    49,
    "a decoder's classifier looks for the last token that pads nothing, by its place; before, for the first that pads",
    "transformers/models/*/modeling_*.py of 4.48.3 (torch.eq(input_ids, pad_token_id).int().argmax(-1)) and 4.49.0 (token_indices * \
     non_pad_mask)",
);

/// What of the logits is copied.
pub const COPIES_LAST_LOGITS: Rule = transformers(
    4,
    47,
    "a generation copies the last position's logits before it makes them float32; before, it copied all of them",
    "transformers/generation/utils.py of 4.45.2, 4.46.3 (outputs.logits.clone()[:, -1, :].float()) and 4.47.1",
);

/// How often.
pub const COPIES_LOGITS_ONCE: Rule = transformers(
    4,
    51,
    "a generation copies the last position's logits as float32; before, as they were, and then as float32",
    "transformers/generation/utils.py of 4.50.3 (clone().float()) and 4.51.3 (to(copy=True, dtype=torch.float32))",
);

/// StarCoder2's loss.
pub const STARCODER2_SHARES_LOSS: Rule = transformers(
    4,
    47,
    "StarCoder2 computes its loss as all models do; before, on float32 logits that it returns",
    "transformers/models/starcoder2/modeling_starcoder2.py of 4.46.3 (logits.float()) and 4.47.1 (loss_function)",
);
