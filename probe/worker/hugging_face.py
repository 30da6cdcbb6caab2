# ---------------------------------------------------------------------------------------------------------------------
# Hugging Face models, from their config with random weights

AUTO_CLASSES = {
    "causal-lm": "AutoModelForCausalLM",
    "masked-lm": "AutoModelForMaskedLM",
    "sequence-classification": "AutoModelForSequenceClassification",
    "seq2seq-lm": "AutoModelForSeq2SeqLM",
    "image-classification": "AutoModelForImageClassification",
    "contrastive": "AutoModel",
    "speech-seq2seq": "AutoModelForSpeechSeq2Seq",
}
# Model types of convolutions alone, and those whose attention is eager whatever is asked for: transformers builds them with
# "eager" only, or did before a release.
WITHOUT_ATTENTION = ("convnext", "convnextv2", "resnet", "gpt_neo", "bloom", "deberta-v2", "gpt_oss")
WITHOUT_ATTENTION_BEFORE = {"gptj": (5, 24)}
# Those that also see: their class is another one, and the text has a config of its own.
WITH_IMAGES = ("qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")

# Keys of a config.json that say where it comes from or how it was stored, not what the model is.
FOREIGN_KEYS = ("model_type", "architectures", "auto_map", "dtype", "torch_dtype", "transformers_version",
                "_name_or_path", "_attn_implementation", "attn_implementation", "use_cache")


def new_tokens(scenario):
    """How many tokens are to be generated; None where nothing is: in training, and where inference is one forward."""
    return scenario["input"].get("max_new_tokens") if scenario["training"]["mode"] == "inference" else None


def uses_cache(scenario, config):
    """Whether a forward makes and returns keys and values. A generation does. A single forward does not, and a training
    step as the scenario says; where it does not say, as core/scenario/src/training.rs has it."""
    model, training = scenario["model"], scenario["training"]
    speech = model["task"] == "speech-seq2seq"
    said = config.get("use_cache")
    if said is None and isinstance(config.get("text_config"), dict):
        said = config["text_config"].get("use_cache")
    if training["mode"] != "train":
        return new_tokens(scenario) is not None or (speech and said is not False)
    if "use_cache" in training:
        return training["use_cache"]
    if speech:
        return said is not False
    whole = training.get("loss_impl", "full") == "full" and not training.get("label_smoothing")
    if not training["keep_outputs"] or not whole:
        return False
    return said is not False if "catalog" in model else said is True


def read_config(scenario, config, transformers):
    """The config object that the job's dictionary stands for."""
    if config.get("quantization_config"):
        message = "the config asks for quantised weights, which cannot be made without the checkpoint"
        raise Stop("unsupported", message, "take quantization_config out of the config")
    keys = {name: value for name, value in config.items() if name not in FOREIGN_KEYS}
    if scenario["model"]["task"] == "image-classification" and not {"num_labels", "id2label"} & keys.keys():
        # transformers would make two; the estimate takes ImageNet's.
        keys["num_labels"] = 1000
    model_type = config.get("model_type")
    try:
        made = transformers.AutoConfig.for_model(model_type, **keys)
    except Exception as error:
        message = "transformers %s does not take this config: %s" % (transformers.__version__, clean(error))
        raise Stop("unsupported", message, "check model_type, or upgrade transformers") from error
    made.use_cache = uses_cache(scenario, config)
    if model_type in WITH_IMAGES:
        made.text_config.use_cache = made.use_cache
    # What a batch of random tokens needs and not every config says.
    if scenario["model"]["task"] in ("seq2seq-lm", "speech-seq2seq", "sequence-classification"):
        # A decoder classifies a single sample without looking for padding.
        single = scenario["model"]["task"] == "sequence-classification" and scenario["input"]["batch"] == 1
        if getattr(made, "pad_token_id", None) is None and not single:
            made.pad_token_id = 0
        if getattr(made, "is_encoder_decoder", False) and getattr(made, "decoder_start_token_id", None) is None:
            made.decoder_start_token_id = made.pad_token_id
    return made


def build_hugging_face(scenario, config, dtype, transformers):
    """The base model; adapters and checkpointing come when its large weights are known."""
    task = scenario["model"]["task"]
    if task not in AUTO_CLASSES:
        message = "a Hugging Face model cannot be run for %s" % clean(task)
        raise Stop("unsupported", message, "use one of %s" % ", ".join(AUTO_CLASSES))
    named = "dtype" if version_of(transformers.__version__) >= (5, 0) else "torch_dtype"
    eager = config.model_type in WITHOUT_ATTENTION
    eager |= version_of(transformers.__version__) < WITHOUT_ATTENTION_BEFORE.get(config.model_type, (0, 0))
    attention = "eager" if eager else scenario["training"]["attention"]
    options = {"attn_implementation": attention, named: dtype}
    sees = task == "causal-lm" and config.model_type in WITH_IMAGES
    try:
        kind = "AutoModelForImageTextToText" if sees else AUTO_CLASSES[task]
        return getattr(transformers, kind).from_config(config, **options)
    except (ValueError, KeyError, AttributeError, TypeError, ImportError) as error:
        message = "transformers %s does not build this model: %s" % (transformers.__version__, clean(error))
        raise Stop("unsupported", message, 'check the config and the task; attention = "eager" works everywhere') from error
