//! torchtune's YAML, for the models whose builders follow the name: `torchtune.models.llama3_1.lora_llama3_1_8b`.

use plimsoll_ground::{Error, Result};
use plimsoll_scenario::{
    ActivationOffloading, Checkpointing, LoraTargets, LossImpl, ModelSource, Optimizer, OptimizerImpl, Precision,
    Quantization, Scenario, at,
};

use super::parts::{self, Yaml};

/// torchtune's packages, by the beginning of our ids.
const PACKAGES: [(&str, &str); 6] = [
    ("llama-3.1-", "llama3_1"),
    ("llama-3.2-", "llama3_2"),
    ("llama-2-", "llama2"),
    ("qwen2.5-", "qwen2_5"),
    ("qwen3-", "qwen3"),
    ("mistral-", "mistral"),
];

/// The file.
pub fn write(scenario: &Scenario) -> Result<String> {
    parts::only_causal(scenario)?;
    let training = &scenario.training;
    let none = || {
        Error::new(at::model::catalog, "torchtune has no builder of that name that is known here", "take another form")
    };
    let ModelSource::Catalog(id) = &scenario.model.source else { return Err(none()) };
    let (package, size) =
        PACKAGES.iter().find_map(|(start, package)| Some((package, id.strip_prefix(start)?))).ok_or_else(none)?;
    let size = size.replace(['-', '.'], "_");
    let lora = training.lora.as_ref();
    let prefix = match (lora, training.quantization) {
        (None, Quantization::None) => "",
        (Some(_), Quantization::None) => "lora_",
        (Some(_), Quantization::Nf4) => "qlora_",
        _ => {
            let hint = "use nf4, or take another form";
            return Err(Error::new(at::training::quantization, "torchtune has no such quantization", hint));
        }
    };
    let kind = if lora.is_some() { "lora" } else { "full" };
    let mut yaml =
        Yaml(parts::header(scenario, &format!("tune run {kind}_finetune_single_device --config torchtune.yaml")));
    yaml.put("model", format!("\n  _component_: torchtune.models.{package}.{prefix}{package}_{size}"));
    if let Some(lora) = lora {
        let all = ["q_proj", "k_proj", "v_proj", "output_proj"].map(str::to_owned).to_vec();
        const MLP: [&str; 3] = ["gate_proj", "up_proj", "down_proj"];
        let (attention, mlp) = match &lora.targets {
            LoraTargets::AllLinear => (all, true),
            LoraTargets::Names(names) => {
                let attention = names.iter().filter(|name| !MLP.contains(&name.as_str()));
                let named = |name: &String| if name == "o_proj" { "output_proj".to_owned() } else { name.clone() };
                (attention.map(named).collect(), names.iter().any(|name| MLP.contains(&name.as_str())))
            }
        };
        yaml.put("  lora_attn_modules", parts::list(&attention));
        yaml.put("  apply_lora_to_mlp", mlp);
        yaml.put("  apply_lora_to_output", false);
        yaml.put("  lora_rank", lora.rank);
        yaml.put("  lora_alpha", 2 * lora.rank);
        yaml.put("  lora_dropout", format!("{:?}", lora.dropout));
    }
    yaml.put("tokenizer", format!("\n  _component_: torchtune.models.{package}.{package}_tokenizer  # see `tune ls`\n  path: path/to/the/model/tokenizer"));
    yaml.maybe("  max_seq_len", scenario.input.seq);
    yaml.put(
        "checkpointer",
        "\n  _component_: torchtune.training.FullModelHFCheckpointer\n  checkpoint_dir: path/to/the/model\n  output_dir: out",
    );
    yaml.put("dataset", "\n  _component_: torchtune.datasets.alpaca_dataset  # yours\n  packed: true");
    yaml.gap();
    yaml.put("batch_size", scenario.input.batch);
    yaml.put("gradient_accumulation_steps", training.accumulation);
    let class = match training.optimizer {
        Optimizer::AdamW => "torch.optim.AdamW",
        Optimizer::Sgd => "torch.optim.SGD",
        Optimizer::AdamW8bit => "bitsandbytes.optim.AdamW8bit",
        Optimizer::PagedAdamW => "bitsandbytes.optim.PagedAdamW",
        Optimizer::PagedAdamW8bit => "bitsandbytes.optim.PagedAdamW8bit",
        other => {
            return Err(Error::new(
                at::training::optimizer,
                format!("{other} is not written yet"),
                "take another form",
            ));
        }
    };
    yaml.put("optimizer", format!("\n  _component_: {class}\n  lr: 1e-4"));
    if matches!(training.optimizer, Optimizer::AdamW | Optimizer::Sgd) {
        yaml.put("  fused", training.optimizer_impl == OptimizerImpl::Fused);
    }
    let loss = match training.loss_impl {
        LossImpl::Full => "torch.nn.CrossEntropyLoss",
        _ => "torchtune.modules.loss.LinearCrossEntropyLoss",
    };
    yaml.put("loss", format!("\n  _component_: {loss}"));
    yaml.put("clip_grad_norm", if training.clip_grad_norm { "1.0" } else { "null" });
    if training.optimizer_in_backward {
        yaml.put("optimizer_in_bwd", true);
    }
    yaml.put("enable_activation_checkpointing", training.checkpointing == Checkpointing::Full);
    let offloads = training.activation_offloading == ActivationOffloading::OffloadActivations;
    yaml.put("enable_activation_offloading", offloads);
    yaml.put("compile", training.compile);
    let dtype = match training.precision {
        Precision::Bf16 => "bf16",
        Precision::Fp32 => "fp32",
        _ => {
            let hint = "use bf16, or take another form";
            return Err(Error::new(at::training::precision, "torchtune does not train under autocast", hint));
        }
    };
    yaml.put("dtype", dtype);
    yaml.put("device", "cuda");
    yaml.put("epochs", 1);
    yaml.put("output_dir", "out");
    Ok(yaml.0)
}
