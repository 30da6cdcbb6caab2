//! The families of our own: small networks, and torchvision's, each described by a few keys.

use super::{
    Architecture, BatchNorms, Came, Checkpoints, Family, FamilyKey, FamilyKeyKind, Inputs, LONGEST, OneToOne, Origin,
    Positions, Task, WideTables,
};

const WIDTH_MOST: u64 = 1 << 20;

const fn count(name: &'static str, about: &'static str, default: u64, most: u64) -> FamilyKey {
    FamilyKey { name, about, kind: FamilyKeyKind::Count { default, most } }
}

const fn dropout(default: f64) -> FamilyKey {
    FamilyKey { name: "dropout", about: "probability of every dropout", kind: FamilyKeyKind::Fraction { default } }
}

const fn variant(default: &'static str, words: &'static [&'static str]) -> FamilyKey {
    FamilyKey { name: "variant", about: "which of them", kind: FamilyKeyKind::Word { default, words } }
}

const CLASSES: FamilyKey = count("num_classes", "classes", 1000, WIDTH_MOST);

/// A network that no library loads: nothing checkpoints or quantizes it, and no mask is given to it.
const fn network(
    name: &'static str,
    architecture: Architecture,
    task: &'static [Task],
    inputs: Inputs,
    origin: Origin,
) -> Family {
    Family {
        name,
        came: Came::LONG_AGO,
        architecture: Some(architecture),
        origin,
        tasks: task,
        inputs,
        has_mask: false,
        positions: Positions::NONE,
        layers: &[],
        checkpointing: Checkpoints::Never,
        one_to_one: OneToOne::Always,
        eager: true,
        only_eager: false,
        sdpa: None,
        sdpa_until: None,
        caches: false,
        loss_in_parts: false,
        loss_in_tiles: false,
        liger: None,
        wide_tables: WideTables::Never,
        tower: false,
        adapters: true,
        unquantized: None,
        batch_norms: BatchNorms::Never,
        wide_linears: false,
        scalar: None,
        experts: None,
        sizes: &[],
    }
}

/// One of torchvision's classifiers.
const fn torchvision(
    name: &'static str,
    architecture: Architecture,
    about: &'static str,
    keys: &'static [FamilyKey],
) -> Family {
    network(name, architecture, &[Task::ImageClassification], Inputs::TORCHVISION, Origin::Own { about, keys })
}

/// Every family of our own that is estimated.
///
/// Defaults: `mlp` is a round example; `nanogpt` has the settings of Karpathy's GPT-2 124M run
/// (`config/train_gpt2.py` in karpathy/nanoGPT); `nbeats` is the generic network of Oreshkin et al. 2020, 30 blocks of
/// four 512-wide layers, with theta, backcast and horizon as a round example.
pub const OWN: &[Family] = &[
    Family {
        layers: &[&["layers"]],
        ..network(
            "mlp",
            Architecture::Mlp,
            &[Task::Classification],
            Inputs::Features,
            Origin::Own {
                about: "linear layers with ReLU between them",
                keys: &[
                    count("d_in", "features of a sample", 1024, WIDTH_MOST),
                    count("hidden", "width of the hidden layers", 4096, WIDTH_MOST),
                    count("layers", "linear layers, the last one included", 4, 1 << 11),
                    count("d_out", "classes", 10, WIDTH_MOST),
                ],
            },
        )
    },
    Family {
        positions: Positions { keys: &["block_size"], learned: true, ..Positions::NONE },
        layers: &[&["n_layer"]],
        // It calls `scaled_dot_product_attention` itself.
        eager: false,
        ..network(
            "nanogpt",
            Architecture::NanoGpt,
            &[Task::CausalLm],
            Inputs::Tokens,
            Origin::Own {
                about: "Karpathy's GPT",
                keys: &[
                    count("n_layer", "blocks", 12, 1 << 10),
                    count("n_head", "attention heads", 12, 1 << 12),
                    count("n_embd", "width", 768, WIDTH_MOST),
                    count("vocab_size", "tokens in the vocabulary", 50_304, 1 << 24),
                    count("block_size", "longest sequence", 1024, LONGEST),
                    dropout(0.0),
                    FamilyKey {
                        name: "bias",
                        about: "whether linears and norms have a bias",
                        kind: FamilyKeyKind::Flag { default: false },
                    },
                ],
            },
        )
    },
    Family {
        layers: &[&["stacks"]],
        ..network(
            "nbeats",
            Architecture::Nbeats,
            &[Task::Forecasting],
            Inputs::Features,
            Origin::Own {
                about: "generic N-BEATS blocks in a row",
                keys: &[
                    count("stacks", "blocks in a row", 30, 1 << 9),
                    count("layers", "linear layers in a block", 4, 1 << 5),
                    count("width", "width of a block's layers", 512, WIDTH_MOST),
                    count("theta", "expansion coefficients", 32, WIDTH_MOST),
                    count("backcast", "past time steps", 96, WIDTH_MOST),
                    count("horizon", "future time steps", 24, WIDTH_MOST),
                ],
            },
        )
    },
    Family {
        // Its weights are parameters of their own, no linear layers.
        adapters: false,
        ..network(
            "gat",
            Architecture::Gat,
            &[Task::NodeClassification],
            Inputs::Graph { nodes: 2708 },
            Origin::Own {
                about: "dense graph attention, two layers",
                keys: &[
                    count("n_feat", "features per node", 1433, WIDTH_MOST),
                    count("n_hid", "width of a head", 8, 1 << 16),
                    count("n_heads", "attention heads", 8, 1 << 10),
                    count("n_class", "classes", 7, WIDTH_MOST),
                    dropout(0.6),
                ],
            },
        )
    },
    Family {
        batch_norms: BatchNorms::Always,
        ..torchvision(
            "resnet",
            Architecture::TorchvisionResnet,
            "torchvision's ResNets",
            &[
                variant(
                    "resnet50",
                    &[
                        "resnet18",
                        "resnet34",
                        "resnet50",
                        "resnet101",
                        "resnet152",
                        "resnext50_32x4d",
                        "resnext101_32x8d",
                        "resnext101_64x4d",
                        "wide_resnet50_2",
                        "wide_resnet101_2",
                    ],
                ),
                CLASSES,
            ],
        )
    },
    torchvision(
        "convnext",
        Architecture::TorchvisionConvnext,
        "torchvision's ConvNeXts",
        &[variant("convnext_tiny", &["convnext_tiny", "convnext_small", "convnext_base", "convnext_large"]), CLASSES],
    ),
    Family {
        batch_norms: BatchNorms::Named("_bn"),
        ..torchvision(
            "vgg",
            Architecture::TorchvisionVgg,
            "torchvision's VGG",
            &[
                variant("vgg16", &["vgg11", "vgg13", "vgg16", "vgg19", "vgg11_bn", "vgg13_bn", "vgg16_bn", "vgg19_bn"]),
                CLASSES,
            ],
        )
    },
    Family {
        batch_norms: BatchNorms::Always,
        ..torchvision(
            "mobilenetv2",
            Architecture::TorchvisionMobilenetV2,
            "torchvision's MobileNetV2",
            &[variant("mobilenet_v2", &["mobilenet_v2"]), CLASSES],
        )
    },
    Family {
        batch_norms: BatchNorms::Always,
        ..torchvision(
            "mobilenetv3",
            Architecture::TorchvisionMobilenetV3,
            "torchvision's MobileNetV3",
            &[variant("mobilenet_v3_large", &["mobilenet_v3_large", "mobilenet_v3_small"]), CLASSES],
        )
    },
    Family {
        batch_norms: BatchNorms::Always,
        ..torchvision(
            "mnasnet",
            Architecture::TorchvisionMnasnet,
            "torchvision's MNASNet",
            &[variant("mnasnet1_0", &["mnasnet0_5", "mnasnet0_75", "mnasnet1_0", "mnasnet1_3"]), CLASSES],
        )
    },
    Family {
        batch_norms: BatchNorms::Always,
        ..torchvision(
            "regnet",
            Architecture::TorchvisionRegnet,
            "torchvision's RegNets",
            &[
                variant(
                    "regnet_y_400mf",
                    &[
                        "regnet_y_400mf",
                        "regnet_y_800mf",
                        "regnet_y_1_6gf",
                        "regnet_y_3_2gf",
                        "regnet_y_8gf",
                        "regnet_y_16gf",
                        "regnet_y_32gf",
                        "regnet_x_400mf",
                        "regnet_x_800mf",
                        "regnet_x_1_6gf",
                        "regnet_x_3_2gf",
                        "regnet_x_8gf",
                        "regnet_x_16gf",
                        "regnet_x_32gf",
                    ],
                ),
                CLASSES,
            ],
        )
    },
    Family {
        batch_norms: BatchNorms::Always,
        ..torchvision(
            "efficientnet",
            Architecture::TorchvisionEfficientnet,
            "torchvision's EfficientNets",
            &[
                variant(
                    "efficientnet_b0",
                    &[
                        "efficientnet_b0",
                        "efficientnet_b1",
                        "efficientnet_b2",
                        "efficientnet_b3",
                        "efficientnet_b4",
                        "efficientnet_b5",
                        "efficientnet_b6",
                        "efficientnet_b7",
                        "efficientnet_v2_s",
                        "efficientnet_v2_m",
                        "efficientnet_v2_l",
                    ],
                ),
                CLASSES,
            ],
        )
    },
    Family {
        batch_norms: BatchNorms::Always,
        ..torchvision(
            "densenet",
            Architecture::TorchvisionDensenet,
            "torchvision's DenseNets",
            &[variant("densenet121", &["densenet121", "densenet161", "densenet169", "densenet201"]), CLASSES],
        )
    },
    Family {
        batch_norms: BatchNorms::Always,
        ..network(
            "inception",
            Architecture::TorchvisionInception,
            &[Task::ImageClassification],
            // Its second classifier takes no smaller one.
            Inputs::Image { key: "", side: 299, fixed: false },
            Origin::Own {
                about: "torchvision's Inception v3, with its aux head",
                keys: &[variant("inception_v3", &["inception_v3"]), CLASSES],
            },
        )
    },
    torchvision(
        "swin",
        Architecture::TorchvisionSwin,
        "torchvision's Swin Transformers",
        &[variant("swin_t", &["swin_t", "swin_s", "swin_b"]), CLASSES],
    ),
];
