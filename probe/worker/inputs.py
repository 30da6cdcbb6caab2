# ---------------------------------------------------------------------------------------------------------------------
# Inputs


def make_inputs(scenario, config, dtype, device):
    """A function that makes a random batch of so many samples on the device: the model's arguments by name. Labels are
    among them where there is something to learn."""
    where = {"device": device.name}
    given, task = scenario["input"], scenario["model"]["task"]
    trains, generates = scenario["training"]["mode"] == "train", new_tokens(scenario) is not None

    def floats(*shape):
        return torch.randn(shape, dtype=dtype, **where)

    def integers(most, *shape):
        return torch.randint(0, max(1, most), shape, **where)

    if config is None:
        return own_inputs(scenario, floats, integers)

    text = getattr(config, "text_config", None) or config
    vision = getattr(config, "vision_config", None) or config
    vocabulary = getattr(text, "vocab_size", None)
    seq = given.get("seq")

    def mask(samples, tokens):
        made = torch.ones((samples, tokens), dtype=torch.int64, **where)
        padding = max(1, tokens // 4)
        if given["attention_mask"] != "padded":
            return made
        if generates and not getattr(config, "is_encoder_decoder", False):
            # What a decoder is to go on with stands at the end.
            made[:, : min(padding, tokens - 1)].zero_()
        else:
            made[:, tokens - padding :].zero_()
        return made

    def tokens(samples):
        batch = {"input_ids": integers(vocabulary, samples, seq)}
        if not trains:
            pass
        elif task == "seq2seq-lm":
            batch["labels"] = integers(vocabulary, samples, given.get("target_seq") or seq)
        elif task == "sequence-classification":
            regression = config.num_labels == 1
            batch["labels"] = floats(samples) if regression else integers(config.num_labels, samples)
        else:
            batch["labels"] = integers(vocabulary, samples, seq)
        if given["attention_mask"] != "none":
            batch["attention_mask"] = mask(samples, seq)
        return batch

    def images(samples):
        size = given.get("image") or getattr(vision, "image_size", None) or 224
        high, wide = size if isinstance(size, (list, tuple)) else (size, size)
        return floats(samples, getattr(vision, "num_channels", 3), high, wide)

    def labelled_images(samples):
        batch = {"pixel_values": images(samples)}
        if trains:
            batch["labels"] = integers(config.num_labels, samples)
        return batch

    def pairs(samples):
        # Texts are cut to the positions the text tower has, as its tokenizer does.
        positions = getattr(text, "max_position_embeddings", None) or seq or 77
        batch = {"input_ids": integers(vocabulary, samples, min(seq or positions, positions))}
        batch["pixel_values"] = images(samples)
        if trains:
            batch["return_loss"] = True
        return batch

    def speech(samples):
        batch = {"input_features": floats(samples, config.num_mel_bins, 2 * config.max_source_positions)}
        if trains:
            batch["labels"] = integers(vocabulary, samples, seq)
        return batch

    makers = {"image-classification": labelled_images, "contrastive": pairs, "speech-seq2seq": speech}
    if task not in makers or (task == "speech-seq2seq" and trains):
        if not seq:
            raise Stop("bad-job", "%s needs input.seq" % task, "say how many tokens a sample has")
        if not vocabulary:
            raise Stop("unsupported", "the config has no vocab_size, which %s needs" % task, "check the task")
    return makers.get(task, tokens)


def own_inputs(scenario, floats, integers):
    family, keys = scenario["model"]["family"], family_keys(scenario["model"])
    seq, image = scenario["input"].get("seq"), scenario["input"].get("image") or 224
    if family in ("nanogpt", "gat") and not seq:
        raise Stop("bad-job", "%s needs input.seq" % family, "say how many tokens or nodes there are")

    def graph(samples):
        # Every second edge on average, and every node its own neighbour. In place: nothing else is made on the device.
        batch = {"inputs": floats(seq, keys["n_feat"]), "adjacency": floats(seq, seq)}
        batch["adjacency"].uniform_().round_().fill_diagonal_(1)
        return batch

    # What goes in, and what is to be learnt of it.
    inputs, targets = {
        "mlp": (lambda n: {"inputs": floats(n, keys["d_in"])}, lambda n: integers(keys["d_out"], n)),
        "nanogpt": (lambda n: {"inputs": integers(keys["vocab_size"], n, seq)}, lambda n: integers(keys["vocab_size"], n, seq)),
        "nbeats": (lambda n: {"inputs": floats(n, keys["backcast"])}, lambda n: floats(n, keys["horizon"])),
        "gat": (graph, lambda n: integers(keys["n_class"], seq)),
    }.get(family, (lambda n: {"inputs": floats(n, 3, image, image)}, lambda n: integers(keys["num_classes"], n)))

    def labelled(samples):
        batch = inputs(samples)
        batch["targets"] = targets(samples)
        return batch

    return labelled if scenario["training"]["mode"] == "train" else inputs
