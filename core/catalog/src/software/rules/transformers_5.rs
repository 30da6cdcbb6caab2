//! What changed in Hugging Face transformers with its fifth major version, and since.
//!
//! Beside what is named with each rule, its release was read off the packages of all of them, 5.0 to 5.24 (the last patch of each).

use super::{Rule, transformers};

/// The last encoders' attention.
pub const LAST_ENCODERS_CALL_SDPA: Rule = transformers(
    5,
    0,
    "ELECTRA has scaled_dot_product_attention; before, eager attention alone",
    "transformers/models/electra/modeling_electra.py of 4.57.3 and 5.0.0 (_supports_sdpa)",
);

/// Whether ModernBERT has itself compiled.
pub const MODERNBERT_RUNS_AS_WRITTEN: Rule = transformers(
    5,
    1,
    "ModernBERT runs as it is written, with the masks that all encoders share; before, its embeddings, MLPs and prediction head went through \
     torch.compile where Triton is installed, unless its config says reference_compile = false, and its masks were numbers for every query",
    "transformers/models/modernbert/modeling_modernbert.py of 4.48.3, 4.51.3, 4.57.6, 5.0.0 (_maybe_set_compile) and 5.1.0; an H100 with 4.51.3 ran inductor",
);

/// Whose ModernBERT's cosines and sines are.
pub const MODERNBERT_ANGLES_ONCE: Rule = transformers(
    5,
    0,
    "ModernBERT computes cosines and sines for each kind of layer once; before, each layer its own",
    "transformers/models/modernbert/modeling_modernbert.py of 4.48.3, 4.57.6 (ModernBertAttention.rotary_emb) and 5.0.0",
);

/// What comes with transformers' Adafactor.
pub const OPTIMIZERS_BRING_PEFT: Rule = transformers(
    5,
    2,
    "who imports transformers' optimizers imports peft where it is installed, and with it bitsandbytes; before, the Trainer alone did",
    "transformers.optimization of 5.0.0, 5.1.0, 5.2.0, 5.3.0 and 5.17.0 imported beside peft and bitsandbytes (sys.modules)",
);

/// The norm of the gradients in the Trainer.
pub const TRAINER_TAKES_NORMS: Rule = transformers(
    5,
    3,
    "the Trainer lets go of the last step's norm before it takes the next, and clips to infinity where nothing is clipped; before, it \
     took none there",
    "transformers/trainer.py of 4.57.3, 5.0.0, 5.8.0 (which has it) and 5.17.0 (_get_grad_norm)",
);

/// Which labels the Trainer counts.
pub const TRAINER_SHIFTS_LABELS: Rule = transformers(
    5,
    10,
    "the Trainer leaves each row's first label out when it counts them",
    "transformers/trainer.py of 5.8.0 and 5.17.0 (_loss_shifts_labels)",
);

/// The last own attention classes of decoders.
pub const LAST_DECODERS_SHARE_SDPA: Rule = transformers(
    5,
    0,
    "OLMoE, Qwen2-MoE and StableLM call the attention that all models share; before, classes of their own, which repeat grouped \
     heads and copy queries, keys and values beside a mask only",
    "transformers/models/{olmoe,qwen2_moe,stablelm}/modeling_*.py of 4.51.3, 4.57.1 (...SdpaAttention) and 5.17.0",
);

/// The softmax of DINOv2.
pub const DINOV2_SOFTMAX_AS_GIVEN: Rule = transformers(
    5,
    0,
    "eager attention of DINOv2 computes its softmax in the dtype of the scores; before, in float32",
    "transformers/models/dinov2/modeling_dinov2.py of 4.51.3, 4.57.3 (dtype=torch.float32) and 5.17.0",
);

/// DoRA, whose peft nobody names: that of transformers' time is taken.
pub const DORA_WEIGHTS_CAST: Rule = transformers(
    5,
    0,
    "DoRA multiplies a unit matrix in the adapter's dtype and casts what comes of it to the input's; before, the unit matrix was in the input's \
     dtype and held, and nothing was cast",
    "peft/tuners/lora/dora.py of 0.15.2, 0.17.1 (x_eye) and 0.21.2 (get_lora_weight)",
);

/// Whom peft asks what adapters of a four-bit layer are made in: that of transformers' time, too.
pub const ADAPTERS_ASK_COMPUTE_DTYPE: Rule = transformers(
    5,
    0,
    "peft makes adapters of a four-bit layer in what that computes in; before, in what its weight is packed in, which of uint8 leaves them \
     in float32",
    "peft/tuners/tuners_utils.py of 0.13.2, 0.18.1 (_move_adapter_to_device_of_base_layer), 0.19.1 and 0.21.2 (_get_base_layer_device_and_dtype)",
);

/// What peft does once a base is prepared.
pub const PREPARING_EMPTIES_CACHE: Rule = transformers(
    5,
    0,
    "prepare_model_for_kbit_training hands the cache back to the card; before, what the casts left stayed there",
    "peft/utils/other.py of 0.17.1, 0.18.1, 0.20.0 and 0.21.0 (auto_clear_cache)",
);

/// DINOv2's layers.
pub const DINOV2_LIKE_VIT: Rule = transformers(
    5,
    18,
    "a layer of DINOv2 holds one tensor and what is added to it, as ViT's does, its attention is one module, and its gated feed-forward \
     has two linears to begin with; before, what went into attention and came of it had names of their own, attention was two modules, \
     and one linear made both",
    "transformers/models/dinov2/modeling_dinov2.py of 5.17.0 and 5.18.0",
);

/// Those of the last models that had them.
pub const LAST_FREQUENCIES_LET_GO: Rule = transformers(
    5,
    0,
    "layers of Qwen2-MoE and StableLM hold no frequencies; before, each had some that nobody read",
    "transformers/models/{qwen2_moe,stablelm}/modeling_*.py of 4.51.3, 4.57.3 (rotary_emb of attention) and 5.17.0",
);

/// Swin's own attention.
pub const SWIN_SHARES_ATTENTION: Rule = transformers(
    5,
    9,
    "Swin hands distances and mask to the attention that all models share, and its stages return images; before, it had its own alone, which \
     adds them to the scores one after the other and makes probabilities in the dtype the scores have",
    "transformers/models/swin/modeling_swin.py of 4.44.2, 4.57.1 (SwinSelfAttention) and 5.17.0 (SwinAttention)",
);

/// Stochastic depth.
pub const DROP_PATH_FLOORS_APART: Rule = transformers(
    5,
    9,
    "stochastic depth rounds its random numbers down in another tensor; before, in their place",
    "transformers/models/{swin,dinov2,convnext}/modeling_*.py of 4.57.1, 5.8.1 (floor_) and 5.9.0 (DropPath)",
);

/// The frequencies of rotary positions.
pub const FREQUENCIES_TWICE: Rule = transformers(
    5,
    0,
    "rotary positions hold their frequencies twice on the card; before, the unchanged ones stayed on the host",
    "transformers/models/llama/modeling_llama.py of 4.51.3, 4.57.1 (original_inv_freq is no buffer) and 5.17.0",
);

/// How angles come of them.
pub const ANGLES_MULTIPLIED: Rule = transformers(
    5,
    19,
    "positions are multiplied by frequencies element by element; before, as matrices, and positions were held in float32 beside the angles",
    "transformers/models/*/modeling_*.py of 5.18.0 (inv_freq_expanded @ position_ids_expanded) and 5.19.0 (RotaryEmbedding.forward)",
);

/// Those of the towers for images.
pub const VISION_FREQUENCIES_TWICE: Rule = transformers(
    5,
    17,
    "the towers of Qwen2.5-VL, Qwen3-VL and Qwen3.5 hold the frequencies of their rotary positions twice; before, once",
    "transformers/models/{qwen2_5_vl,qwen3_vl,qwen3_5}/modeling_*.py of 5.16.1 and 5.17.0 (VisionRotaryEmbedding, original_inv_freq)",
);

/// Which linears bitsandbytes replaces.
pub const PLAIN_LINEARS: Rule = transformers(
    5,
    5,
    "only linears that are nn.Linear itself are quantized, so that none of Falcon's is; before, those of classes made of it as well",
    "transformers/integrations/bitsandbytes.py of 4.44.2 (isinstance) and 5.17.0 (type(module) is nn.Linear)",
);

/// What Gemma's words are multiplied by.
pub const SCALED_EMBEDDINGS: Rule = transformers(
    5,
    4,
    "Gemma's and Gemma 2's embedding holds the number that words are multiplied by; before, it came from the host",
    "transformers/models/gemma2/modeling_gemma2.py of 4.51.3 (normalizer) and 5.17.0 (Gemma2TextScaledWordEmbedding)",
);

/// What a mixture's experts are made of.
pub const STACKED_EXPERTS: Rule = transformers(
    5,
    0,
    "the experts of a mixture are two tensors a layer; before, linears of their own, one expert after the other",
    "transformers/models/mixtral/modeling_mixtral.py of 4.51.3 (MixtralBlockSparseTop2MLP) and 5.17.0 (MixtralExperts)",
);

/// The gated delta rule without flash-linear-attention.
pub const DELTA_RULE_SOLVED: Rule = transformers(
    5,
    17,
    "a chunk's triangular system is solved at once; before, row by row, each of which was written into the whole",
    "transformers/models/qwen3_next/modeling_qwen3_next.py of 4.57.1 and 5.17.0 (torch_chunk_gated_delta_rule)",
);

/// Neighbours that are turned together.
pub const NEIGHBOURS_IN_PLACE: Rule = transformers(
    5,
    11,
    "DeepSeek V3 and GLM-4.7-Flash turn every dimension with its neighbour where they lie; before, the even ones were copied before the odd ones",
    "transformers/models/{deepseek_v3,glm4_moe_lite}/modeling_*.py of 4.51.3, 5.10.4 and 5.11.0 (apply_rotary_pos_emb_interleave)",
);

/// The scores of GPT-2.
pub const GPT2_SCALES_BY_NUMBER: Rule = transformers(
    5,
    4,
    "eager attention of GPT-2 multiplies the scores by a number of the host; before, it divided them by one on the card",
    "transformers/models/gpt2/modeling_gpt2.py of 4.57.1, 5.3.0 (torch.full) and 5.4.0",
);

/// Queries and keys of the gated delta rule.
pub const HEADS_REPEATED_IN_RULE: Rule = transformers(
    5,
    23,
    "the gated delta rule repeats queries and keys for the heads of values, and lets go of them there; before, the layer did, and held them",
    "transformers/models/{qwen3_next,qwen3_5}/modeling_*.py of 5.22.2 and 5.23.0 (repeat_interleave)",
);

/// The short convolution before the gated delta rule.
pub const CONVOLVED_BY_FUNCTION: Rule = transformers(
    5,
    15,
    "Qwen3-Next and Qwen3.5 convolve by a function, which casts to the weight's dtype and back, and a cache cuts out what it remembers of a \
     prompt; before, by the module, and what a cache remembers was cut out first",
    "transformers/models/{qwen3_next,qwen3_5}/modeling_*.py of 5.14.1 (self.conv1d, new_conv_state) and 5.15.1 (causal_conv1d_fn)",
);

/// How positions are counted.
pub const POSITIONS_SHIFTED: Rule = transformers(
    5,
    4,
    "a decoder counts from 0 and adds how many tokens it has seen; before, it counted from there",
    "transformers/models/llama/modeling_llama.py of 4.51.3, 4.57.1 (cache_position) and 5.17.0",
);

/// Which grouped heads go to the kernel as they are.
pub const SDPA_GROUPS_OF_256: Rule = transformers(
    5,
    13,
    "grouped heads of more than 256 dimensions are repeated for the kernel; before, they went there as they were and most cards fell back",
    "transformers/integrations/sdpa_attention.py of 5.12.1 and 5.13.0 (use_gqa_in_sdpa)",
);

/// Position biases for the kernel.
pub const POSITION_BIAS_CONTIGUOUS: Rule = transformers(
    5,
    20,
    "a position bias is made contiguous before the kernel is given it, so that one that takes masks can; before, T5's lay by heads last, \
     which the kernels without scores do not take",
    "transformers/integrations/sdpa_attention.py of 5.19.0 and 5.20.2 (create_position_bias_mask)",
);

/// Gemma 2's attention.
pub const GEMMA2_IS_EAGER: Rule = transformers(
    5,
    21,
    "Gemma 2 has eager attention only, whose scores are capped; before, SDPA too, which left that out",
    "transformers/models/gemma2/modeling_gemma2.py of 5.20.2 and 5.21.1 (_supports_sdpa)",
);

/// How DeBERTa counts distances.
pub const DEBERTA_IS_NO_SCRIPT: Rule = transformers(
    5,
    23,
    "DeBERTa's distances are put into buckets by Python, which lets go of what has a name at the end; before, by a script, which let go of each \
     value at its last use",
    "transformers/models/deberta_v2/modeling_deberta_v2.py of 5.22.2 (torch.jit.script) and 5.23.0 (make_log_bucket_position)",
);

/// Where GPT-J has its sines and cosines.
pub const GPTJ_BUFFERS_POSITIONS: Rule = transformers(
    5,
    0,
    "each layer of GPT-J has sines and cosines as a buffer, which comes to the card with the model; before, they came with the first forward",
    "transformers/models/gptj/modeling_gptj.py of 4.57.6 (_get_embed_positions) and 5.0.0 (register_buffer)",
);

/// GPT-J's attention.
pub const GPTJ_SHARES_ATTENTION: Rule = transformers(
    5,
    24,
    "GPT-J calls the attention that all models share, SDPA too, and picks sines and cosines once for all layers; before, it had its own \
     alone, and each layer a table of them",
    "transformers/models/gptj/modeling_gptj.py of 5.23.0 and 5.24.0",
);

/// T5's attention.
pub const T5_SHARES_ATTENTION: Rule = transformers(
    5,
    15,
    "T5 calls the attention that all models share, SDPA too; before, it had its own alone: mask and position bias are added up \
     once, and to the scores in their place",
    "transformers/models/t5/modeling_t5.py of 4.51.3, 4.57.1 (T5Attention.forward) and 5.17.0",
);

/// What Falcon's own attention hands on.
pub const FALCON_ATTENDS_AS_GIVEN: Rule = transformers(
    5,
    2,
    "Falcon hands queries, keys and values to scaled_dot_product_attention as they lie; before, row-major copies beside a mask",
    "transformers/models/falcon/modeling_falcon.py of 4.51.3, 4.57.6, 5.1.0 (contiguous) and 5.2.0",
);

/// What eager attention of OPT returns.
pub const OPT_RETURNS_PROBABILITIES: Rule = transformers(
    5,
    4,
    "OPT's attention returns its probabilities, which the layer has a name for; before, they went with it unless they were asked for, \
     since it is the one that all models share",
    "transformers/models/opt/modeling_opt.py of 4.51.3 (attn_probs), 4.53.0, 4.57.6, 5.3.0 (attn_weights = None) and 5.4.0",
);

/// What eager attention of CLIP returns.
pub const CLIP_RETURNS_PROBABILITIES: Rule = transformers(
    5,
    0,
    "CLIP's attention returns its probabilities, which the layer has a name for; before, they went with it unless they were asked for",
    "transformers/models/clip/modeling_clip.py of 4.57.6 (attn_weights = None) and 5.0.0",
);

/// The dtype of GPT-Neo's and GPT-J's logits.
pub const GPT_NEO_LEAVES_LOGITS: Rule = transformers(
    5,
    0,
    "GPT-Neo and GPT-J return their logits as they are; before, they were made float32 for the loss, which was made the hidden states' \
     dtype, and so were GPT-Neo's logits",
    "transformers/models/{gpt_neo,gptj}/modeling_*.py of 4.44.2, 4.51.3, 4.57.3 (loss.to(hidden_states.dtype)) and 5.17.0",
);

/// Other names for how many layers an encoder has.
pub const ENCODER_LAYERS_ARE_LAYERS: Rule = transformers(
    5,
    4,
    "num_hidden_layers of BART and Whisper is another name of encoder_layers; before, a number that no layer was counted by",
    "transformers/models/{bart,whisper}/configuration_*.py of 4.51.3, 4.57.1 and 5.17.0 (attribute_map)",
);

/// Whose word on tying holds where a model of images has a text's configuration.
pub const VL_TIES_AS_WHOLE: Rule = transformers(
    5,
    0,
    "the whole configuration of Qwen2.5-VL and Qwen3-VL says whether words are tied; before, that of the text, which says no where it \
     says nothing",
    "transformers/modeling_utils.py of 4.57.1 (get_text_config(decoder=True).tie_word_embeddings); models/qwen3_vl of 5.17.0",
);

/// Positions along three axes.
pub const VL_AXES_JOINED: Rule = transformers(
    5,
    17,
    "Qwen2.5-VL, Qwen3-VL and Qwen3.5 put the tables of their three axes together once, in halves; before, \
     layers of Qwen2.5-VL each picked sections out of tables of all axes, and Qwen3-VL wrote angles over one another",
    "transformers/models/{qwen2_5_vl,qwen3_vl,qwen3_5}/modeling_*.py of 4.57.1, 5.16.1 (apply_multimodal_rotary_pos_emb, \
     apply_interleaved_mrope) and 5.17.0 (recomposition_frequencies)",
);

/// When Whisper splits keys into heads.
pub const WHISPER_SPLITS_AT_ONCE: Rule = transformers(
    5,
    5,
    "Whisper has its keys turned into heads before it projects values, as classes of its own had done; before, both were projected and split, \
     and turned then",
    "transformers/models/whisper/modeling_whisper.py of 4.51.3 (_shape), 4.53.3, 4.57.6, 5.4.0 and 5.8.0 (WhisperAttention.forward)",
);

/// Which linears a bias keeps from being quantized.
pub const BIASES_ARE_NO_MODULES: Rule = transformers(
    5,
    0,
    "a parameter that names no weight keeps no linear from being quantized; before, a bias stood for its module: a classifier, whose \
     bias is the last parameter, was left as it was, and so was all of `cls.predictions` (BERT, DeBERTa) and `lm_head` (RoBERTa), \
     whose bias is tied",
    "transformers/integrations/bitsandbytes.py of 4.51.3, 4.57.1 (get_keys_to_not_convert, names_to_remove) and quantizers/base.py of \
     5.17.0",
);

/// Frequencies of Gemma 3 and OLMo 3.
pub const KINDS_HAVE_FREQUENCIES: Rule = transformers(
    5,
    0,
    "Gemma 3 has frequencies, cosines and sines for each kind of layer that it has, OLMo 3 one for all; before, both had them for layers with a \
     window and without always",
    "transformers/models/{gemma3,olmo3}/modeling_*.py of 4.51.3, 4.57.1 (rotary_emb_local, rotary_embs) and 5.0.0",
);

/// Frequencies of OLMo 3.
pub const OLMO3_KINDS_HAVE_FREQUENCIES: Rule = transformers(
    5,
    13,
    "OLMo 3 has frequencies, cosines and sines for each kind of layer that it has, in float32; in between, one in the hidden states' dtype",
    "transformers/models/olmo3/modeling_olmo3.py of 4.57.1, 5.0.0, 5.12.1 (one rotary_emb for all, cos.to(dtype=x.dtype)) and 5.13.1 (layer_type)",
);

/// Frequencies of the layers of Qwen2.5-VL.
pub const QWEN_VL_LAYERS_HOLD_NOTHING: Rule = transformers(
    5,
    0,
    "layers of Qwen2.5-VL hold no frequencies; before, each had some that nobody read",
    "transformers/models/qwen2_5_vl/modeling_qwen2_5_vl.py of 4.57.1 (Qwen2_5_VLAttention.rotary_emb) and 5.17.0",
);

/// Who counts positions in a model of images.
pub const VL_COUNTS_FOR_IMAGES: Rule = transformers(
    5,
    2,
    "a model of images counts positions where there are images; before, of text alone as well, which then counted its own",
    "transformers/models/{qwen2_5_vl,qwen3_vl}/modeling_*.py of 4.57.1, 5.1.0 (get_rope_index) and 5.2.0 (compute_3d_position_ids)",
);

/// Biases of Llama 4.
pub const LLAMA4_HAS_BIASES: Rule = transformers(
    5,
    4,
    "attention_bias of Llama 4's text is read; before, its class said no whatever was given",
    "transformers/models/llama4/configuration_llama4.py of 4.57.1 (self.attention_bias = False) and 5.17.0",
);

/// The order of ViT's layers.
pub const VIT_NAMES_MLP: Rule = transformers(
    5,
    9,
    "a layer of ViT has its norms before its two linears; before, they came last",
    "transformers/models/vit/modeling_vit.py of 4.44.2, 4.57.3 (intermediate, output, layernorm_before) and 5.17.0 (mlp)",
);

/// What BART and Whisper call the probabilities of eager attention.
pub const PROBABILITIES_SHARE_NAME: Rule = transformers(
    5,
    4,
    "layers of BART and Whisper call what attention returns beside its output `_`, so that what the encoder was asked takes the place of \
     what they asked themselves, and return hidden states alone; before, both had names of their own",
    "transformers/models/{bart,whisper}/modeling_*.py of 4.53.3, 4.57.6, 5.3.0 (self_attn_weights, cross_attn_weights) and 5.4.0",
);

/// Whose inputs `enable_input_require_grads` hooks.
pub const PARTS_REQUIRE_INPUT_GRADS: Rule = transformers(
    5,
    0,
    "enable_input_require_grads hooks the input embeddings of every model within the model; before, those of the whole alone: Whisper's \
     convolutions went without, and BART's `shared` is never called",
    "transformers/modeling_utils.py of 4.57.6 and 5.0.0 (enable_input_require_grads); models/{bart,whisper} of 4.57.6 (get_input_embeddings)",
);

/// What `tie_word_embeddings` of BART unties.
pub const BART_UNTIES_STACKS: Rule = transformers(
    5,
    0,
    "where words are not tied, BART's stacks have tables of their own, and so has the head; before, the head alone",
    "transformers/models/bart/modeling_bart.py of 4.47.1, 4.57.6 (BartEncoder(config, self.shared)) and 5.0.0",
);

/// Whose weight T5's head has.
pub const T5_HEAD_IS_TIED: Rule = transformers(
    5,
    0,
    "T5's head has its embeddings' weight whatever is said; before, one of its own where tie_word_embeddings is false",
    "transformers/models/t5/configuration_t5.py of 5.0.0 (self.tie_word_embeddings = True) and modeling_t5.py of 4.57.6",
);

/// Where a configuration says how much of a head is turned.
pub const POSITIONS_HAVE_A_TABLE: Rule = transformers(
    5,
    0,
    "partial_rotary_factor is read in the table of positions, rope_parameters or rope_scaling; before, beside it alone",
    "transformers/modeling_rope_utils.py of 4.57.6 (config.partial_rotary_factor) and 5.0.0 (convert_rope_params_to_dict)",
);
