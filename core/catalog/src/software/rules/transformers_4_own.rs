//! What single models and adapters had of their own until releases of the fourth major version of transformers.

use super::{Rule, transformers};

/// DeBERTa's dropout and softmax.
pub const DEBERTA_USES_TORCHS: Rule = transformers(
    4,
    47,
    "DeBERTa's dropout and softmax are PyTorch's, its buckets a script's; before, functions of its own, which made a mask of random numbers in \
     the input's dtype, and filled what is hidden before and after the softmax, and its buckets were Python's",
    "transformers/models/deberta_v2/modeling_deberta_v2.py of 4.44.2, 4.46.3 (XDropout, XSoftmax, make_log_bucket_position) and 4.47.1",
);

/// How DeBERTa adds positions and types to words.
pub const DEBERTA_ADDS_EMBEDDINGS_APART: Rule = transformers(
    4,
    49,
    "DeBERTa's sum of embeddings is a tensor of its own; before, positions and types were added to the words' in their place",
    "transformers/models/deberta_v2/modeling_deberta_v2.py of 4.48.3 (embeddings += position_embeddings) and 4.49.0",
);

/// DoRA, whose peft nobody names: that of transformers' time is taken.
pub const DORA_TAKES_RESULT: Rule = transformers(
    4,
    47,
    "DoRA takes the base layer's result where nothing is dropped; before, it made that product again, and the adapter's before all else",
    "peft/tuners/lora/{layer,dora}.py of 0.13.2 and 0.14.0 (base_result)",
);

/// In which order cosines and sines are made and scaled.
pub const ANGLES_SCALED_IN_TURN: Rule = transformers(
    4,
    51,
    "cosines are computed and scaled, then sines; before, both were computed and then scaled",
    "transformers/models/{llama,qwen2,falcon}/modeling_*.py of 4.50.3 (cos = cos * self.attention_scaling) and 4.51.3",
);

/// How much of a Swin's blocks is left out.
pub const SWIN_DROPS_DEEPER_MORE: Rule = transformers(
    4,
    47,
    "blocks of Swin leave out more the deeper they lie, the first nothing; before, all left out as much as the last",
    "transformers/models/swin/modeling_swin.py of 4.44.2, 4.46.3 (SwinDropPath(config.drop_path_rate)) and 4.47.1",
);

/// In which order BART and Whisper make keys and values.
pub const SEQ2SEQ_PROJECTS_FIRST: Rule = transformers(
    4,
    52,
    "BART and Whisper project keys and values before they split either into heads, and BART copies heads where they are multiplied; before, \
     keys were projected, split and copied before values were",
    "transformers/models/{bart,whisper}/modeling_*.py of 4.50.3, 4.51.3 (_shape) and 4.52.4",
);

/// What a layer of Gemma 2 and 3 with a window makes of its mask.
pub const WINDOWS_INDEXED: Rule = transformers(
    4,
    52,
    "layers of Gemma 2 and 3 with a window pick the mask's columns by an index; before, they cut them out",
    "transformers/models/{gemma2,gemma3}/modeling_*.py of 4.50.3, 4.51.3 (last_cache_position) and 4.52.4 (mask_indexes)",
);

/// What Gemma 2 and 3 and Llama 4 keep keys and values in.
pub const CACHES_GROW: Rule = transformers(
    4,
    53,
    "keys and values of Gemma 2 and 3 and Llama 4 are kept in a cache that grows; before, in one of the whole length from the start, which \
     generate kept for the next call",
    "transformers/models/{gemma2,gemma3,llama4}/modeling_*.py of 4.52.4 (HybridCache, HybridChunkedCache) and 4.53.3 (DynamicCache)",
);

/// What a layer's checkpoint has for inputs.
pub const LAYERS_CHECKPOINT_THEMSELVES: Rule = transformers(
    4,
    52,
    "a checkpointed layer of a decoder is given its hidden states alone by position, of a few models since 4.53; before, mask and positions as \
     well, which are inputs of the checkpoint then, and where hooks see what is saved they see them for each layer",
    "transformers/models/{llama,qwen2,phi,stablelm}/modeling_*.py of 4.50.3 (_gradient_checkpointing_func), 4.52.4 and 4.53.3; modeling_layers.py",
);

/// The masks of models that know windows.
pub const WINDOWED_MASKS_BY_POSITION: Rule = transformers(
    4,
    46,
    "models that know windows make their mask by positions, with a window or without (Mistral, Qwen2, Phi-3, StarCoder2, Mixtral, \
     Qwen2-MoE); before, of a triangle as Llama",
    "transformers/models/{mistral,qwen2,phi3,starcoder2,mixtral,qwen2_moe}/modeling_*.py of 4.45.2, 4.46.3, 4.48.3, 4.49.0 and 4.52.4 \
     (diagonal_attend_mask)",
);

/// Qwen2's mask.
pub const QWEN2_KNOWS_WINDOWS_AGAIN: Rule = transformers(
    4,
    49,
    "Qwen2 makes its mask by positions again; in 4.48 alone, of a triangle as Llama",
    "transformers/models/qwen2/modeling_qwen2.py of 4.46.3, 4.47.1, 4.48.3 (torch.triu) and 4.49.0 (diagonal_attend_mask)",
);
