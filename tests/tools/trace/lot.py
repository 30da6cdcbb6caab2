"""Rows for `hulls.py`, drawn by lot: classes of timm, torchvision, transformers and diffusers, with precisions, sizes,
optimizers, accumulation and checkpointing.

    python tests/tools/trace/lot.py [--seed N] [--rows N] [--only PATTERN] [--also N | --later N | --own NAME] > LOT.jsonl

Each class is recorded in one precision, by lot, and asked for `--rows` times. The same seed draws the same rows. `--also` draws so
many of the classes and a variant for each, which its rows are asked in: adapters, or eager attention. `--later` draws so many out of
`later.py`, which are none of these; `--own` has those that no library has, of `modules.py` and its like or `operators.py`.
"""

import argparse
import collections
import fnmatch
import importlib
import json
import random
import sys

import later

IMAGE, IMAGE_LOSS = ["x=float32[B,3,S,S]", "y=int64[B]"], "F.cross_entropy(model(x), y)"
TEXT, TEXT_LOSS = ["ids=int64[B,S]"], "model(input_ids=ids, labels=ids).loss"
PAIR = ["ids=int64[B,S]", "labels=int64[B,T]"]
PAIR_LOSS = "model(input_ids=ids, labels=labels).loss"

# timm's classifiers that take images of any size, and those that take one.
TIMM = """resnet50 resnext50_32x4d res2net50_26w_4s efficientnet_b0 tf_efficientnetv2_b0 mobilenetv3_small_100 mobilenetv4_conv_small
    regnety_008 densenet121 convnextv2_atto repvgg_a0 ghostnet_100 dla34 hrnet_w18_small cspresnet50 poolformer_s12 edgenext_xx_small
    mobileone_s0 fastvit_t8 inception_v4 xception41 vgg11 pvt_v2_b0 rexnet_100 hardcorenas_a mobilevit_xxs nfnet_l0 selecsls42b""".split()
FIXED = {224: """vit_tiny_patch16_224 deit_tiny_patch16_224 mixer_s32_224 resmlp_12_224 xcit_nano_12_p16_224 cait_xxs24_224
    levit_128s tnt_s_patch16_224 coat_tiny eva02_tiny_patch14_224 beit_base_patch16_224 gmlp_s16_224 crossvit_tiny_240
    maxvit_tiny_tf_224 davit_tiny twins_svt_small visformer_tiny convit_tiny pit_ti_224 nest_tiny""".split()}
SIZES = {"eva02_tiny_patch14_224": 224, "crossvit_tiny_240": 240}

VISION = """resnet34() shufflenet_v2_x0_5() mnasnet0_5() efficientnet_v2_s() regnet_x_400mf() convnext_tiny() densenet121()
    mobilenet_v2() wide_resnet50_2() googlenet(aux_logits=False,init_weights=False) resnext50_32x4d()
    efficientnet_b0() alexnet() vgg13()""".split()

# transformers: class, configuration, inputs, loss, sizes.
SMALL = "hidden_size=256,num_hidden_layers=4,num_attention_heads=8,intermediate_size=688,vocab_size=4000"
ENCODERS = {
    "BertForMaskedLM": SMALL, "ElectraForMaskedLM": SMALL + ",embedding_size=128", "RobertaForMaskedLM": SMALL,
    "MobileBertForMaskedLM": "num_hidden_layers=3,vocab_size=4000", "AlbertForMaskedLM": SMALL + ",embedding_size=64",
    "DebertaV2ForMaskedLM": SMALL, "FNetForMaskedLM": "hidden_size=256,num_hidden_layers=4,intermediate_size=688,vocab_size=4000",
    "ConvBertForMaskedLM": SMALL + ",embedding_size=256", "CamembertForMaskedLM": SMALL, "XLMRobertaForMaskedLM": SMALL,
    "MPNetForMaskedLM": SMALL, "NystromformerForMaskedLM": SMALL, "SqueezeBertForMaskedLM": SMALL + ",embedding_size=256", "RoFormerForMaskedLM": SMALL,
    "MegatronBertForMaskedLM": SMALL, "ErnieForMaskedLM": SMALL, "DistilBertForMaskedLM": "dim=256,n_layers=3,n_heads=8,hidden_dim=688,vocab_size=4000",
    "ModernBertForMaskedLM": SMALL + ",pad_token_id=0,bos_token_id=1,eos_token_id=2,cls_token_id=1,sep_token_id=2",
}
DECODERS = {
    "OPTForCausalLM": "hidden_size=256,num_hidden_layers=4,num_attention_heads=8,ffn_dim=1024,vocab_size=4000,word_embed_proj_dim=256",
    "BloomForCausalLM": "hidden_size=256,n_layer=4,n_head=8,vocab_size=4000",
    "CodeGenForCausalLM": "n_embd=256,n_layer=4,n_head=8,rotary_dim=16,vocab_size=4000",
    "GPTJForCausalLM": "n_embd=256,n_layer=4,n_head=8,rotary_dim=16,vocab_size=4000",
    "XGLMForCausalLM": "d_model=256,num_layers=4,attention_heads=8,ffn_dim=1024,vocab_size=4000",
    "BioGptForCausalLM": SMALL, "CohereForCausalLM": SMALL, "Starcoder2ForCausalLM": SMALL + ",num_key_value_heads=2",
    "Olmo2ForCausalLM": SMALL, "GraniteForCausalLM": SMALL, "StableLmForCausalLM": SMALL + ",num_key_value_heads=4", "NemotronForCausalLM": SMALL + ",num_key_value_heads=8",
    "Glm4ForCausalLM": SMALL + ",num_key_value_heads=2,head_dim=32,pad_token_id=0", "Ernie4_5ForCausalLM": SMALL + ",num_key_value_heads=2",
    "SmolLM3ForCausalLM": SMALL + ",num_key_value_heads=2,pad_token_id=0,bos_token_id=1,eos_token_id=2", "PersimmonForCausalLM": SMALL,
    "Exaone4ForCausalLM": SMALL + ",num_key_value_heads=2", "Mamba2ForCausalLM": "hidden_size=256,num_hidden_layers=3,num_heads=8,head_dim=64,state_size=32,n_groups=1,vocab_size=4000,chunk_size=64",
    "RecurrentGemmaForCausalLM": "hidden_size=256,num_hidden_layers=3,num_attention_heads=8,intermediate_size=688,vocab_size=4000,lru_width=256",
    "ApertusForCausalLM": SMALL + ",num_key_value_heads=2", "Lfm2ForCausalLM": SMALL + ",num_key_value_heads=2", "HunYuanDenseV1ForCausalLM": SMALL + ",head_dim=32",
}
PAIRS = {
    "BartForConditionalGeneration": "d_model=256,encoder_layers=2,decoder_layers=2,encoder_attention_heads=8,decoder_attention_heads=8,encoder_ffn_dim=1024,decoder_ffn_dim=1024,vocab_size=4000",
    "MBartForConditionalGeneration": "d_model=256,encoder_layers=2,decoder_layers=2,encoder_attention_heads=8,decoder_attention_heads=8,encoder_ffn_dim=1024,decoder_ffn_dim=1024,vocab_size=4000",
    "PegasusForConditionalGeneration": "d_model=256,encoder_layers=2,decoder_layers=2,encoder_attention_heads=8,decoder_attention_heads=8,encoder_ffn_dim=1024,decoder_ffn_dim=1024,vocab_size=4000",
    "MarianMTModel": "d_model=256,encoder_layers=2,decoder_layers=2,encoder_attention_heads=8,decoder_attention_heads=8,encoder_ffn_dim=1024,decoder_ffn_dim=1024,vocab_size=4000,pad_token_id=0",
    "BlenderbotSmallForConditionalGeneration": "d_model=256,encoder_layers=2,decoder_layers=2,encoder_attention_heads=8,decoder_attention_heads=8,encoder_ffn_dim=1024,decoder_ffn_dim=1024,vocab_size=4000",
    "M2M100ForConditionalGeneration": "d_model=256,encoder_layers=2,decoder_layers=2,encoder_attention_heads=8,decoder_attention_heads=8,encoder_ffn_dim=1024,decoder_ffn_dim=1024,vocab_size=4000",
    "MT5ForConditionalGeneration": "d_model=256,d_kv=32,d_ff=688,num_layers=2,num_heads=8,vocab_size=4000",
    "UMT5ForConditionalGeneration": "d_model=256,d_kv=32,d_ff=688,num_layers=2,num_heads=8,vocab_size=4000",
}
CONFIGS = {"MarianMTModel": "MarianConfig"}
# Lengths of which another program runs: its masks of windows are padded to eight.
STEPS = {"ModernBertForMaskedLM": 8}
OTHERS = {
    "transformers:SegformerForSemanticSegmentation(SegformerConfig(depths=[1,1,1,1],num_labels=20))":
        (["x=float32[B,3,S,S]", "y=int64[B,S,S]"], "model(pixel_values=x, labels=y).loss", {"S": [128, 192]}),
    "transformers:ViTMAEForPreTraining(ViTMAEConfig(num_hidden_layers=3,decoder_num_hidden_layers=2))":
        (["x=float32[B,3,224,224]"], "model(pixel_values=x).loss", {}),
    "transformers:Wav2Vec2ForSequenceClassification(Wav2Vec2Config(num_hidden_layers=2,apply_spec_augment=False))":
        (["x=float32[B,16000]", "y=int64[B]"], "model(input_values=x, labels=y).loss", {}),
    "transformers:HubertForSequenceClassification(HubertConfig(num_hidden_layers=2,apply_spec_augment=False))":
        (["x=float32[B,16000]", "y=int64[B]"], "model(input_values=x, labels=y).loss", {}),
    "transformers:ASTForAudioClassification(ASTConfig(num_hidden_layers=2))":
        (["x=float32[B,1024,128]", "y=int64[B]"], "model(input_values=x, labels=y).loss", {}),
    "transformers:ConvNextV2ForImageClassification(ConvNextV2Config(depths=[1,1,2,1]))":
        (["x=float32[B,3,S,S]", "y=int64[B]"], "model(pixel_values=x, labels=y).loss", {"S": [160, 224]}),
    "transformers:Dinov2ForImageClassification(Dinov2Config(num_hidden_layers=3))":
        (["x=float32[B,3,224,224]", "y=int64[B]"], "model(pixel_values=x, labels=y).loss", {}),
    "transformers:SiglipVisionModel(SiglipVisionConfig(num_hidden_layers=3))":
        (["x=float32[B,3,224,224]"], "model(pixel_values=x).pooler_output.float().pow(2).mean()", {}),
    "transformers:PatchTSTForPrediction(PatchTSTConfig(num_input_channels=7,context_length=96,prediction_length=24))":
        (["x=float32[B,96,7]", "y=float32[B,24,7]"], "model(past_values=x, future_values=y).loss", {}),
    "torchvision.models.segmentation:fcn_resnet50(weights_backbone=None,num_classes=21)":
        (["x=float32[B,3,S,S]", "y=int64[B,S,S]"], "F.cross_entropy(model(x)['out'], y)", {"S": [128, 192]}),
    "torchvision.models.segmentation:lraspp_mobilenet_v3_large(weights_backbone=None,num_classes=21)":
        (["x=float32[B,3,S,S]", "y=int64[B,S,S]"], "F.cross_entropy(model(x)['out'], y)", {"S": [128, 192]}),
    "torchvision.models.video:r3d_18()":
        (["x=float32[B,3,8,S,S]", "y=int64[B]"], IMAGE_LOSS, {"S": [64, 112]}),
    "torchvision.models:vit_b_32()": (["x=float32[B,3,224,224]", "y=int64[B]"], IMAGE_LOSS, {}),
    "torchvision.models:swin_t()": (["x=float32[B,3,S,S]", "y=int64[B]"], IMAGE_LOSS, {"S": [224]}),
    "diffusers:UNet2DModel(sample_size=32,block_out_channels=(64,128,128),down_block_types=('DownBlock2D','AttnDownBlock2D','DownBlock2D'),up_block_types=('UpBlock2D','AttnUpBlock2D','UpBlock2D'))":
        (["x=float32[B,3,S,S]", "t=int64[B]"], "F.mse_loss(model(x, t).sample, x)", {"S": [32, 64]}),
    "diffusers:UNet2DConditionModel(sample_size=32,block_out_channels=(64,128),layers_per_block=1,cross_attention_dim=96,down_block_types=('CrossAttnDownBlock2D','DownBlock2D'),up_block_types=('UpBlock2D','CrossAttnUpBlock2D'),attention_head_dim=8)":
        (["x=float32[B,4,S,S]", "t=int64[B]", "c=float32[B,77,96]"], "F.mse_loss(model(x, t, c).sample, x)", {"S": [32, 64]}),
    "diffusers:AutoencoderKL(block_out_channels=(32,64),down_block_types=('DownEncoderBlock2D','DownEncoderBlock2D'),up_block_types=('UpDecoderBlock2D','UpDecoderBlock2D'))":
        (["x=float32[B,3,S,S]"], "F.mse_loss(model(x).sample, x)", {"S": [64, 96]}),
    "diffusers:SD3Transformer2DModel(sample_size=32,num_layers=2,attention_head_dim=32,num_attention_heads=4,joint_attention_dim=96,caption_projection_dim=128,pooled_projection_dim=64)":
        (["x=float32[B,16,32,32]", "t=int64[B]", "c=float32[B,77,96]", "p=float32[B,64]"], "F.mse_loss(model(x, c, p, t).sample, x)", {}),
    "diffusers:PixArtTransformer2DModel(sample_size=32,num_layers=2,attention_head_dim=32,num_attention_heads=4,cross_attention_dim=128,caption_channels=96)":
        (["x=float32[B,4,32,32]", "t=int64[B]", "c=float32[B,77,96]"], "model(x, encoder_hidden_states=c, timestep=t, added_cond_kwargs={'resolution':None,'aspect_ratio':None}).sample.float().pow(2).mean()", {}),
    "diffusers:VQModel(block_out_channels=(32,64),down_block_types=('DownEncoderBlock2D','DownEncoderBlock2D'),up_block_types=('UpDecoderBlock2D','UpDecoderBlock2D'))":
        (["x=float32[B,3,S,S]"], "F.mse_loss(model(x).sample, x)", {"S": [64]}),
}


def classes():
    """Model, inputs, loss, and the sizes of its axes to choose from."""
    for name in TIMM:
        yield "timm:create_model('%s')" % name, IMAGE, IMAGE_LOSS, {"S": [192, 224, 256]}
    for size, names in FIXED.items():
        for name in names:
            side = SIZES.get(name, size)
            yield "timm:create_model('%s')" % name, ["x=float32[B,3,%d,%d]" % (side, side), "y=int64[B]"], IMAGE_LOSS, {}
    for call in VISION:
        yield "torchvision.models:" + call, IMAGE, IMAGE_LOSS, {"S": [192, 224]}
    for name, config in {**ENCODERS, **DECODERS}.items():
        short = name.replace("ForMaskedLM", "").replace("ForCausalLM", "")
        yield "transformers:%s(%sConfig(%s))" % (name, short, config), TEXT, TEXT_LOSS, {"S": [64, 96, 128]}
    for name, config in PAIRS.items():
        kind = CONFIGS.get(name, name.replace("ForConditionalGeneration", "Config"))
        yield "transformers:%s(%s(%s))" % (name, kind, config), PAIR, PAIR_LOSS, {"S": [64, 96], "T": [48, 80]}
    for model, (inputs, loss, axes) in OTHERS.items():
        yield model, inputs, loss, axes


def name_of(model):
    what = model.partition(":")[2]
    if what.startswith(("create_model(", "Of('")):
        return what.split("'")[1]
    return what.partition("(")[0]


# What people adapt, by what stands in the model's name; else every linear layer.
TARGETS = {"diffusers": ["to_q", "to_v"], "_patch": ["qkv"], "OPT": ["q_proj", "v_proj"], "Olmo2": ["q_proj", "k_proj", "v_proj", "o_proj"],
           "Bert": ["query", "value"], "Bart": ["q_proj", "v_proj"], "Granite": ["gate_proj", "up_proj", "down_proj"], "T5": ["q", "v"]}


def variant(draw, model, precision):
    """What is recorded as well, and the same in a scenario."""
    if model.startswith("transformers") and "Segformer" not in model and draw.random() < 0.3:
        return "attention=eager", {"attention": "eager"}
    rank, dropout = draw.choice([4, 8, 16, 64]), draw.choice([0, 0, 0.05, 0.1])
    named = [targets for part, targets in TARGETS.items() if part in model]
    targets = draw.choice([*named, None])
    lora = {"rank": rank, "dropout": dropout, **({"targets": targets} if targets else {})}
    said = "lora=%d%s" % (rank, ":" + ",".join(targets) if targets else "") + ("+dropout=%s" % dropout if dropout else "")
    half = {"bf16-amp": "bfloat16", "fp16-amp": "float16"}.get(precision)
    if half and draw.random() < 0.5:
        return said + "+base_dtype=" + half, {"lora": lora, "base_dtype": half}
    return said, {"lora": lora}


def main():
    parser = argparse.ArgumentParser(prog="lot", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rows", type=int, default=2, help="rows of each class")
    parser.add_argument("--only", default="*", help="classes with names like this")
    parser.add_argument("--also", type=int, metavar="N", help="a variant of so many classes")
    parser.add_argument("--own", choices=["modules", "more_modules", "masked_modules", "further_modules", "operators"], help="the models of this file instead")
    parser.add_argument("--later", type=int, metavar="N", help="so many of the classes in later.py instead")
    options = parser.parse_args()
    drawn = list(classes())
    if options.own:
        # They want PyTorch, as nothing else here does.
        drawn = list(importlib.import_module(options.own).classes())
    if options.later:
        drawn = random.Random("%d" % options.seed).sample(list(later.classes()), options.later)
    if options.also:
        drawn = random.Random("%d" % options.seed).sample(drawn, options.also)
    times = collections.Counter()
    for model, inputs, loss, axes in drawn:
        name = name_of(model)
        if options.own:
            # One with several losses has several rows.
            times[name] += 1
            name += "-%d" % times[name] if times[name] > 1 else ""
        if not fnmatch.fnmatchcase(name, options.only):
            continue
        draw = random.Random("%d %s" % (options.seed, model + loss if options.own == "operators" else model))
        precision = draw.choice(["fp32", "bf16-amp", "bf16-amp", "fp16-amp", "bf16"])
        step = "/%d" % STEPS[name] if name in STEPS else ""
        usual = ["%s=%d%s" % (axis, sizes[0], step) for axis, sizes in axes.items()]
        trace = {"model": model, "input": inputs, "loss": loss, "precision": precision, "axis": ["B=8", *usual]}
        also = {}
        if options.also:
            said, also = variant(draw, model, precision)
            trace["also"] = [said]
        for number in range(options.rows):
            optimizer = draw.choice(["adamw", "adamw", "sgd", "sgd-momentum", "adafactor", "adagrad", "lion"])
            training = {
                "precision": precision,
                "optimizer": optimizer,
                # The tracer's default, where a scenario's is another.
                **({"optimizer_impl": "foreach"} if optimizer == "lion" else {}),
                "accumulation": draw.choice([1, 1, 2, 3]),
                "clip_grad_norm": draw.random() < 0.3,
                "checkpointing": "full" if draw.random() < 0.25 else "none",
                **also,
            }
            row = {
                "id": "%s-%d" % (name, number), "hull": "%s-%s%s.hull" % (name, precision, "-also" if also else ""), "trace": trace,
                "batch": draw.choice([2, 3, 5, 8, 12]), "axes": {axis: draw.choice(sizes) for axis, sizes in axes.items()},
                "training": training,
            }
            print(json.dumps(row))


if __name__ == "__main__":
    sys.exit(main())
