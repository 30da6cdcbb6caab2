"""More classes for `lot.py`: none that it drew from before, of the same four libraries."""

IMAGE, IMAGE_LOSS = ["x=float32[B,3,S,S]", "y=int64[B]"], "F.cross_entropy(model(x), y)"
TEXT, TEXT_LOSS = ["ids=int64[B,S]"], "model(input_ids=ids, labels=ids).loss"
PAIR, PAIR_LOSS = ["ids=int64[B,S]", "labels=int64[B,T]"], "model(input_ids=ids, labels=labels).loss"
SOUND = (["x=float32[B,16000]", "y=int64[B]"], "model(input_values=x, labels=y).loss", {})
PIXELS = "model(pixel_values=x, labels=y).loss"

TIMM = """tinynet_a fbnetc_100 mnasnet_small lcnet_050 resnest14d skresnet18 seresnext26d_32x4d ese_vovnet19b_dw cs3darknet_s
    repvit_m0_9 inception_next_tiny starnet_s1 caformer_s18 focalnet_tiny_srf hgnet_tiny gernet_s eca_nfnet_l0 botnet26t_256
    halonet26t lambda_resnet26t resnetv2_50 dpn48b legacy_senet154 nextvit_small convmixer_768_32 mambaout_femto""".split()
FIXED = {"efficientformer_l1": 224, "tiny_vit_5m_224": 224, "hiera_tiny_224": 224, "volo_d1_224": 224, "mvitv2_tiny": 224,
         "swinv2_cr_tiny_224": 224, "gcvit_xxtiny": 224, "sequencer2d_s": 224, "vit_tiny_r_s16_p8_224": 224, "flexivit_small": 240,
         "vit_relpos_small_patch16_224": 224, "samvit_base_patch16_224": 224, "coatnet_nano_rw_224": 224, "convformer_s18": 224}

VISION = """efficientnet_v2_m() densenet169() mnasnet1_3() regnet_y_800mf() shufflenet_v2_x1_5() squeezenet1_0() resnet18(norm_layer=nn.InstanceNorm2d)
    vgg11_bn() convnext_small()""".split()

SMALL = "hidden_size=256,num_hidden_layers=4,num_attention_heads=8,intermediate_size=688,vocab_size=4000"
GROUPED = SMALL + ",num_key_value_heads=2"
TEXTS = {
    "RemBertForMaskedLM": "RemBertConfig(%s,input_embedding_size=64,output_embedding_size=96)" % SMALL, "LukeForMaskedLM": "LukeConfig(%s)" % SMALL,
    "IBertForMaskedLM": "IBertConfig(%s)" % SMALL, "YosoForMaskedLM": "YosoConfig(%s,use_expectation=True)" % SMALL,
    "Data2VecTextForMaskedLM": "Data2VecTextConfig(%s)" % SMALL, "EsmForMaskedLM": "EsmConfig(%s,pad_token_id=1,mask_token_id=2)" % SMALL,
    "BigBirdForMaskedLM": "BigBirdConfig(%s,attention_type='original_full')" % SMALL, "LayoutLMForMaskedLM": "LayoutLMConfig(%s)" % SMALL,
    "FunnelForMaskedLM": "FunnelConfig(vocab_size=4000,block_sizes=[2,2],d_model=256,n_head=8,d_head=32,d_inner=688)",
    "XmodForMaskedLM": "XmodConfig(%s,languages=['en_XX'],default_language='en_XX')" % SMALL,
    "RobertaPreLayerNormForMaskedLM": "RobertaPreLayerNormConfig(%s)" % SMALL,
    "XLNetLMHeadModel": "XLNetConfig(vocab_size=4000,d_model=256,n_layer=4,n_head=8,d_inner=688)",
    "CTRLLMHeadModel": "CTRLConfig(vocab_size=4000,n_embd=256,n_layer=4,n_head=8,dff=688)",
    "GPTBigCodeForCausalLM": "GPTBigCodeConfig(vocab_size=4000,n_embd=256,n_layer=4,n_head=8)",
    "GPTNeoXJapaneseForCausalLM": "GPTNeoXJapaneseConfig(vocab_size=4000,hidden_size=256,num_hidden_layers=4,num_attention_heads=8)",
    "ArceeForCausalLM": "ArceeConfig(%s)" % GROUPED, "BitNetForCausalLM": "BitNetConfig(%s)" % GROUPED,
    "DogeForCausalLM": "DogeConfig(%s)" % GROUPED, "SeedOssForCausalLM": "SeedOssConfig(%s,head_dim=32)" % GROUPED,
    "MiniMaxForCausalLM": "MiniMaxConfig(%s,head_dim=32,num_local_experts=4)" % GROUPED,
    "JetMoeForCausalLM": "JetMoeConfig(vocab_size=4000,hidden_size=256,num_hidden_layers=3,num_key_value_heads=4,kv_channels=32,intermediate_size=344,num_local_experts=4)",
    "HeliumForCausalLM": "HeliumConfig(%s,head_dim=32)" % GROUPED, "DiffLlamaForCausalLM": "DiffLlamaConfig(%s)" % GROUPED,
    "Cohere2ForCausalLM": "Cohere2Config(%s)" % GROUPED, "Olmo3ForCausalLM": "Olmo3Config(%s)" % GROUPED,
    "MoshiForCausalLM": "MoshiConfig(%s,ffn_dim=1376)" % SMALL, "OpenAIGPTLMHeadModel": "OpenAIGPTConfig(vocab_size=4000,n_embd=256,n_layer=4,n_head=8)",
}
LAYERS = "encoder_layers=2,decoder_layers=2,encoder_attention_heads=8,decoder_attention_heads=8,encoder_ffn_dim=1024,decoder_ffn_dim=1024,vocab_size=4000"
PAIRS = {
    "PLBartForConditionalGeneration": "PLBartConfig(d_model=256,%s)" % LAYERS, "BigBirdPegasusForConditionalGeneration": "BigBirdPegasusConfig(d_model=256,attention_type='original_full',%s)" % LAYERS,
    "BlenderbotForConditionalGeneration": "BlenderbotConfig(d_model=256,%s)" % LAYERS, "MvpForConditionalGeneration": "MvpConfig(d_model=256,%s)" % LAYERS,
    "ProphetNetForConditionalGeneration": "ProphetNetConfig(hidden_size=256,num_encoder_layers=2,num_decoder_layers=2,num_encoder_attention_heads=8,num_decoder_attention_heads=8,encoder_ffn_dim=688,decoder_ffn_dim=688,vocab_size=4000)",
    "LongT5ForConditionalGeneration": "LongT5Config(d_model=256,d_kv=32,d_ff=688,num_layers=2,num_heads=8,vocab_size=4000)",
    "SwitchTransformersForConditionalGeneration": "SwitchTransformersConfig(d_model=256,d_kv=32,d_ff=688,num_layers=2,num_decoder_layers=2,num_heads=8,num_experts=4,vocab_size=4000)",
}
OTHERS = {
    "transformers:Swinv2ForImageClassification(Swinv2Config(image_size=256,depths=[2,2,2,2]))": (["x=float32[B,3,256,256]", "y=int64[B]"], PIXELS, {}),
    "transformers:MobileViTV2ForImageClassification(MobileViTV2Config())": (["x=float32[B,3,256,256]", "y=int64[B]"], PIXELS, {}),
    "transformers:FocalNetForImageClassification(FocalNetConfig(depths=[1,1,2,1]))": (["x=float32[B,3,224,224]", "y=int64[B]"], PIXELS, {}),
    "transformers:LevitForImageClassification(LevitConfig())": (["x=float32[B,3,224,224]", "y=int64[B]"], PIXELS, {}),
    "transformers:CvtForImageClassification(CvtConfig(depth=[1,1,2]))": (["x=float32[B,3,224,224]", "y=int64[B]"], PIXELS, {}),
    "transformers:PvtV2ForImageClassification(PvtV2Config(depths=[1,1,1,1]))": (["x=float32[B,3,224,224]", "y=int64[B]"], PIXELS, {}),
    "transformers:BitForImageClassification(BitConfig(depths=[1,1,1,1]))": (["x=float32[B,3,S,S]", "y=int64[B]"], PIXELS, {"S": [160, 224]}),
    "transformers:Data2VecVisionForImageClassification(Data2VecVisionConfig(num_hidden_layers=3))": (["x=float32[B,3,224,224]", "y=int64[B]"], PIXELS, {}),
    "transformers:DPTForSemanticSegmentation(DPTConfig(num_hidden_layers=12,num_labels=20))": (["x=float32[B,3,384,384]", "y=int64[B,384,384]"], PIXELS, {}),
    "transformers:VideoMAEForVideoClassification(VideoMAEConfig(num_hidden_layers=3))": (["x=float32[B,16,3,224,224]", "y=int64[B]"], PIXELS, {}),
    "transformers:TimesformerForVideoClassification(TimesformerConfig(num_hidden_layers=3))": (["x=float32[B,8,3,224,224]", "y=int64[B]"], PIXELS, {}),
    "transformers:WavLMForSequenceClassification(WavLMConfig(num_hidden_layers=2,apply_spec_augment=False))": SOUND,
    "transformers:UniSpeechSatForSequenceClassification(UniSpeechSatConfig(num_hidden_layers=2,apply_spec_augment=False))": SOUND,
    "transformers:SEWForSequenceClassification(SEWConfig(num_hidden_layers=2,apply_spec_augment=False))": SOUND,
    "transformers:Data2VecAudioForSequenceClassification(Data2VecAudioConfig(num_hidden_layers=2,apply_spec_augment=False))": SOUND,
    "transformers:PerceiverForImageClassificationLearned(PerceiverConfig(num_latents=64,d_latents=256,num_self_attends_per_block=3,image_size=224))":
        (["x=float32[B,3,224,224]", "y=int64[B]"], "model(inputs=x, labels=y).loss", {}),
    "transformers:PatchTSMixerForPrediction(PatchTSMixerConfig(num_input_channels=7,context_length=96,prediction_length=24))":
        (["x=float32[B,96,7]", "y=float32[B,24,7]"], "model(past_values=x, future_values=y).loss", {}),
    "torchvision.models.video:mc3_18()": (["x=float32[B,3,8,S,S]", "y=int64[B]"], IMAGE_LOSS, {"S": [64, 112]}),
    "torchvision.models.video:s3d()": (["x=float32[B,3,16,S,S]", "y=int64[B]"], IMAGE_LOSS, {"S": [224]}),
    "torchvision.models.segmentation:deeplabv3_mobilenet_v3_large(weights_backbone=None,num_classes=21)":
        (["x=float32[B,3,S,S]", "y=int64[B,S,S]"], "F.cross_entropy(model(x)['out'], y)", {"S": [128, 192]}),
    "diffusers:UVit2DModel(hidden_size=128,cond_embed_dim=64,encoder_hidden_size=96,num_hidden_layers=2,num_attention_heads=4,block_out_channels=128,in_channels=128,vocab_size=512,codebook_size=500,micro_cond_encode_dim=16,micro_cond_embed_dim=80,intermediate_size=256,sample_size=16)":
        (["x=int64[B,16,16]", "c=float32[B,77,96]", "p=float32[B,64]", "m=float32[B,5]"], "model(x, c, p, m).float().pow(2).mean()", {}),
    "diffusers:SanaTransformer2DModel(sample_size=16,num_layers=2,num_attention_heads=4,attention_head_dim=32,num_cross_attention_heads=4,cross_attention_head_dim=32,cross_attention_dim=128,caption_channels=96)":
        (["x=float32[B,32,16,16]", "t=int64[B]", "c=float32[B,77,96]"], "model(x, encoder_hidden_states=c, timestep=t).sample.float().pow(2).mean()", {}),
    "diffusers:AuraFlowTransformer2DModel(sample_size=32,num_mmdit_layers=1,num_single_dit_layers=2,attention_head_dim=32,num_attention_heads=4,joint_attention_dim=96,caption_projection_dim=128,pos_embed_max_size=256)":
        (["x=float32[B,4,32,32]", "t=float32[B]", "c=float32[B,77,96]"], "F.mse_loss(model(x, c, t).sample, x)", {}),
    "diffusers:PriorTransformer(num_attention_heads=4,attention_head_dim=32,num_layers=3,embedding_dim=96)":
        (["x=float32[B,96]", "t=int64[B]", "p=float32[B,96]", "c=float32[B,77,96]"], "F.mse_loss(model(x, t, p, c).predicted_image_embedding, x)", {}),
    "diffusers:AutoencoderTiny(encoder_block_out_channels=(32,32),decoder_block_out_channels=(32,32),num_encoder_blocks=(1,2),num_decoder_blocks=(2,1))":
        (["x=float32[B,3,S,S]"], "F.mse_loss(model(x).sample, x)", {"S": [64, 96]}),
}


def classes():
    """Model, inputs, loss, and the sizes of its axes to choose from."""
    for name in TIMM:
        yield "timm:create_model('%s')" % name, IMAGE, IMAGE_LOSS, {"S": [192, 224, 256]}
    for name, side in FIXED.items():
        yield "timm:create_model('%s')" % name, ["x=float32[B,3,%d,%d]" % (side, side), "y=int64[B]"], IMAGE_LOSS, {}
    for call in VISION:
        yield "torchvision.models:" + call, IMAGE, IMAGE_LOSS, {"S": [192, 224]}
    for name, config in TEXTS.items():
        yield "transformers:%s(%s)" % (name, config), TEXT, TEXT_LOSS, {"S": [64, 96, 128]}
    for name, config in PAIRS.items():
        yield "transformers:%s(%s)" % (name, config), PAIR, PAIR_LOSS, {"S": [64, 96], "T": [48, 80]}
    for model, (inputs, loss, axes) in OTHERS.items():
        yield model, inputs, loss, axes
