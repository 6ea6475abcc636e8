// Bad configs and the exact message that each must give.
#include <string>
#include <vector>

#include "config/resolve/resolve.h"
#include "support/catch.h"

using namespace dslaunch;
using namespace dslaunch::config;

namespace {

struct Bad {
    const char* text;
    std::vector<std::string> messages;
    int64_t world_size = 0;
};

std::vector<std::string> messages_of(const Bad& bad) {
    ResolveOptions options;
    if (bad.world_size > 0) options.world_size = bad.world_size;
    std::vector<std::string> messages;
    for (const Problem& problem : resolve(parse_config(bad.text, "c"), options).problems) {
        messages.push_back(problem.text());
    }
    return messages;
}

const std::string kRelation =
    "; train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks";
const std::string kComputes = " (--set train_batch_size=auto computes it)";

const std::vector<Bad>& bad_configs() {
    static const std::vector<Bad> table = {
        {"", {"c: is empty: write {} for a config of defaults"}},
        {"  \n ", {"c: is empty: write {} for a config of defaults"}},
        {"[]", {"c: must be an object {\"key\": value, …}, not a list"}},
        {"3", {"c: must be an object {\"key\": value, …}, not 3"}},
        {"{}\n---\n{}", {"c: more text after the end of the config"}},
        {"{\"a\": &x 1}",
         {"c:1:7: a: YAML anchors (&name) are not supported in a config: write the value itself"}},
        {"{\"a\": !!int 1}",
         {"c:1:7: a: YAML tags (tag:yaml.org,2002:int) are not supported in a config"}},
        {"{[1]: 2}", {"c:1:2: a key must be a plain name"}},
        {R"({"zero_optimisation": {}})",
         {"c:1:23: zero_optimisation: unknown key, did you mean `zero_optimization`?"}},
        {"{\n  \"zero_optimization\": {\n    \"stge\": 1}}",
         {"c:3:13: zero_optimization.stge: unknown key, did you mean `stage`?"}},
        {R"({"steps": 3})", {"c:1:11: steps: unknown key, did you mean `dslaunch.steps`?"}},
        {R"({"zero_optimization.stage": 0})",
         {"c:1:29: zero_optimization.stage: unknown key: a key must not contain dots; write nested "
          "objects"}},
        {R"({"dslaunch": {"data": {"trian": "x"}}})",
         {"c:1:33: dslaunch.data.trian: unknown key, did you mean `train`?"}},
        {R"({"seed": 1, "steps_per_print": 2, "steps_per_print": 3})",
         {"c:1:35: steps_per_print: duplicate key, first given at c:1:32",
          "c:1:10: seed: unknown key, did you mean `dslaunch.seed`?"}},
        {R"({"fp16": {"enabled": false, "loss_scal": 0}})",
         {"c:1:42: fp16.loss_scal: unknown key, did you mean `loss_scale`?"}},
        {R"({"fp16": {"enabled": true, "loss_scale": "dynamic"}})",
         {"c:1:42: fp16.loss_scale: must be a finite number, not the string \"dynamic\"; 0 means "
          "dynamic"}},
        {R"({"dslaunch": {"lora": {"bias": "all"}}})",
         {"c:1:32: dslaunch.lora.bias: unknown key: bias and DoRA are not supported: remove it"}},
        {R"({"bf16": {"enabled": "treu"}})",
         {"c:1:22: bf16.enabled: must be true or false, not the string \"treu\""}},
        {R"({"bf16": {"enabled": 2}, "wall_clock_breakdown": "true"})",
         {"c:1:22: bf16.enabled: must be true or false, not 2",
          "c:1:50: wall_clock_breakdown: must be true or false, not the string \"true\": write "
          "true"}},
        {R"({"zero_optimization": {"stage": "4", "reduce_bucket_size": "2e8"}})",
         {"c:1:33: zero_optimization.stage: must be one of 0, 1, 2, 3, not 4",
          "c:1:60: zero_optimization.reduce_bucket_size: must be an integer, not the string "
          "\"2e8\": write 200000000"}},
        {R"({"pipeline": {"stagse": 2, "schedule": "1f1b", "seed_layer": true}})",
         {"c:1:25: pipeline.stagse: unknown key, did you mean `stages`?",
          "c:1:40: pipeline.schedule: unknown key, did you mean `dslaunch.pipeline.schedule`?",
          "c:1:62: pipeline.seed_layer: unknown key, did you mean `seed_layers`?"}},
        {R"({"train_batch_size": "3"})",
         {"c:1:22: train_batch_size: must be an integer, not the string \"3\": write 3"}},
        {R"({"train_batch_size": 0})", {"c:1:22: train_batch_size: must be above 0, not 0"}},
        {R"({"train_batch_size": 2.5})", {"c:1:22: train_batch_size: must be an integer, not 2.5"}},
        {R"({"train_batch_size": 1e10})", {"c:1:22: train_batch_size: is larger than 2^31"}},
        {R"({"steps_per_print": .nan})", {"c:1:21: steps_per_print: must be an integer, not .nan"}},
        {R"({"gradient_clipping": .inf})",
         {"c:1:23: gradient_clipping: must be a finite number, not .inf"}},
        {R"({"gradient_clipping": -1})",
         {"c:1:23: gradient_clipping: must not be negative, not -1"}},
        {R"({"train_batch_size": 7})",
         {"c:1:22: train_batch_size: 7 is not a multiple of 1 micro steps x 2 ranks = 2" +
          kRelation + kComputes},
         2},
        {R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4})",
         {"c:1:22: train_batch_size: 32 is not a multiple of 4 rows x 3 ranks = 12" + kRelation +
          kComputes},
         3},
        {R"({"train_batch_size": 32, "train_micro_batch_size_per_gpu": 4,
             "gradient_accumulation_steps": 2})",
         {"c:1:22: train_batch_size: 32 is not 4 x 2 x 2 ranks = 16" + kRelation + kComputes},
         2},
        {R"({"train_batch_size": 30, "train_micro_batch_size_per_gpu": 4,
             "gradient_accumulation_steps": 2})",
         {"c:1:22: train_batch_size: 30 is not a multiple of 8 (4 x 2 = 8): no number of ranks "
          "fits train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x "
          "ranks"}},
        {R"({"train_micro_batch_size_per_gpu": 2147483648,
             "gradient_accumulation_steps": 2147483648})",
         {"c:1:36: train_micro_batch_size_per_gpu: the batch sizes are too large" + kRelation},
         1024},
        {R"({"zero_optimization": {"stage": 4}})",
         {"c:1:33: zero_optimization.stage: must be one of 0, 1, 2, 3, not 4"}},
        {R"({"zero_optimization": 1})",
         {"c:1:23: zero_optimization: must be an object {…}, not 1: write {\"stage\": 1}"}},
        {R"({"fp16": true, "bf16": "auto", "zero_optimization": {"offload_optimizer": "cpu"}})",
         {"c:1:10: fp16: must be an object {…}, not true: write {\"enabled\": true}",
          "c:1:24: bf16: must be an object {…}, not the string \"auto\": write {\"enabled\": "
          "\"auto\"}",
          "c:1:75: zero_optimization.offload_optimizer: must be an object {…}, not the string "
          "\"cpu\": write {\"device\": \"cpu\"}"}},
        {R"({"zero_optimization": {"offload_param": {"device": "disk"}}})",
         {"c:1:52: zero_optimization.offload_param.device: must be one of none, cpu, nvme, not "
          "`disk`"}},
        {R"({"optimizer": {"params": {"lr": 1}}})",
         {"c:1:15: optimizer: has no `type`: give Adam, AdamW, SGD, Adagrad, Lion, Lamb, Muon, "
          "Adafactor, OneBitAdam, ZeroOneAdam or OneBitLamb"}},
        {R"({"optimizer": {"type": "Adm"}})",
         {"c:1:24: optimizer.type: unknown optimizer `Adm`, did you mean `Adam`?"}},
        {R"({"optimizer": {"type": "adamw_torch_fused"}})",
         {"c:1:24: optimizer.type: unknown optimizer `adamw_torch_fused`, a name in other "
          "programs: use AdamW"}},
        {R"({"optimizer": {"type": "paged_adamw_8bit"}})",
         {"c:1:24: optimizer.type: unknown optimizer `paged_adamw_8bit`, a name in other "
          "programs: use AdamW, with dslaunch.optimizer.states: int8 for moments in 8 bits "
          "(needs zero_optimization.stage: 1)"}},
        {R"({"optimizer": {"type": "adamw-bnb-8bit"}})",
         {"c:1:24: optimizer.type: unknown optimizer `adamw-bnb-8bit`, a name in other "
          "programs: use AdamW, with dslaunch.optimizer.states: int8 for moments in 8 bits "
          "(needs zero_optimization.stage: 1)"}},
        {R"({"dslaunch": {"save": {"best": true}}})",
         {"c:1:32: dslaunch.save.best: must be a string, not true: write \"eval_loss\""}},
        {R"({"optimizer": {"type": "Adam", "params": {"learning_rate": 1e-4}}})",
         {"c:1:60: optimizer.params.learning_rate: unknown key, did you mean `lr`?"}},
        {R"({"optimizer": {"type": "Adam", "learning_rate": 1e-4}})",
         {"c:1:49: optimizer.learning_rate: unknown key, did you mean `optimizer.params.lr`?"}},
        {R"({"optimizer": {"type": "Adam", "params": {"lr": -1}}})",
         {"c:1:49: optimizer.params.lr: must not be negative, not -1"}},
        {R"({"optimizer": {"type": "MuAdam", "params": {"lr": 0.3}}})",
         {"c:1:24: optimizer.type: MuAdam is not available yet in this version: use Adam, AdamW, "
          "SGD, Adagrad, Lion, Lamb, Muon, Adafactor, OneBitAdam, ZeroOneAdam or OneBitLamb"}},
        {R"({"optimizer": {"type": "Adam", "params": {"momentum": 0.9}}})",
         {"c:1:55: optimizer.params.momentum: is not a parameter of `adam`, only of sgd, musgd, "
          "muon"}},
        {R"({"optimizer": {"type": "Adam", "params": {"betas": [0.9]}}})",
         {"c:1:52: optimizer.params.betas: must be two numbers, at least 0 and below 1, e.g. [0.9, "
          "0.999]"}},
        {R"({"optimizer": {"type": "SGD", "params": {"nesterov": true}}})",
         {"c:1:54: optimizer.params.nesterov: needs a momentum above 0 and a dampening of 0"}},
        {R"({"optimizer": {"type": "Lamb", "params": {"amsgrad": true}}})",
         {"c:1:54: optimizer.params.amsgrad: Lamb cannot keep the largest second moment; only Adam "
          "and AdamW can, as in DeepSpeed: remove the key"}},
        {R"({"optimizer": {"type": "Adam", "params": {"amsgrad": true}},
             "dslaunch": {"optimizer": {"states": "bf16"}}, "zero_optimization": {"stage": 1}})",
         {"c:2:51: dslaunch.optimizer.states: bf16 is not supported with amsgrad, because "
          "stochastic rounding makes the largest second moment grow with every step: use fp32"}},
        {"compute_environment: LOCAL_MACHINE\ndeepspeed_config: {zero_stage: 3}\n"
         "distributed_type: DEEPSPEED\nnum_processes: 8\n",
         {"c:3:19: distributed_type: this is accelerate's own config, not a ds_config.json: give "
          "the file that its deepspeed_config.deepspeed_config_file names, or write its zero_stage "
          "as zero_optimization.stage and mixed_precision: bf16 as bf16.enabled: true"}},
        {R"({"scheduler": {"type": "WarmupRL"}})",
         {"c:1:24: scheduler.type: unknown scheduler `WarmupRL`, did you mean "
          "`WarmupLR`?"}},
        {R"({"scheduler": {"type": "WarmupDecayLR"}})",
         {"scheduler.params.total_num_steps: is required: the step at which the decay ends, or "
          "\"auto\" for the run's steps"}},
        {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "liner"}}})",
         {"c:1:62: scheduler.params.warmup_type: must be one of log, linear, not `liner`"}},
        {R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": -1}}})",
         {"c:1:67: scheduler.params.warmup_num_steps: must not be negative, not -1"}},
        {R"({"dslaunch": {"device": "gpu"}})",
         {"c:1:25: dslaunch.device: must be one of auto, cpu, cuda, not `gpu`"}},
        {R"({"dslaunch": {"data": {"eval": "x", "eval_fraction": 0.1}}})",
         {"c:1:54: dslaunch.data.eval_fraction: give either dslaunch.data.eval or eval_fraction, "
          "not both"}},
        {R"({"dslaunch": {"steps": "auto"}})",
         {"c:1:24: dslaunch.steps: `auto` cannot be used here, because the key has no default: "
          "give a value"}},
        {R"({"dslaunch": {"pipeline": {"stages": 2, "first_segments": [1, 2]}}})",
         {"c:1:59: dslaunch.pipeline.first_segments: names 2 segments, but must name 1: the first "
          "segment of each stage except the first stage"}},
        {R"({"dslaunch": {"pipeline": {"stages": 2, "first_segments": ["a"]}}})",
         {"c:1:59: dslaunch.pipeline.first_segments: must be a list of segment numbers, each at "
          "least 1"}},
        {R"({"dslaunch": {"pipeline": {"stages": 2, "schedule": "dualpipe"}}})",
         {"c:1:53: dslaunch.pipeline.schedule: must be one of 1f1b, gpipe, interleaved, zb-h1, "
          "zb-v, not `dualpipe`"}},
        {R"({"dslaunch": {"pipeline": {"stages": 2, "schedule": "interleaved", "chunks": 1}}})",
         {"c:1:78: dslaunch.pipeline.chunks: interleaved needs at least 2 chunks per stage: with 1 "
          "it is the same as 1f1b"}},
        {R"({"dslaunch": {"pipeline": {"stages": 2, "schedule": "zb-v", "chunks": 3}}})",
         {"c:1:71: dslaunch.pipeline.chunks: zb-v needs 2 chunks per stage, not 3: remove the key, "
          "or use interleaved"}},
        {R"({"dslaunch": {"pipeline": {"stages": 2, "chunks": 2}}})",
         {"c:1:51: dslaunch.pipeline.chunks: 1f1b needs 1 chunk per stage, not 2: remove the key, "
          "or "
          "use interleaved"}},
        {R"({"dslaunch": {"pipeline": {"stages": 2, "schedule": "zb-v", "first_segments": [1, 2]}}}
)",
         {"c:1:79: dslaunch.pipeline.first_segments: names 2 segments, but must name 3: the first "
          "segment of each part (2 per stage) except the first part"}},
        {R"({"pipeline": {"stages": 2}, "dslaunch": {"pipeline": {"stages": 2}}})",
         {"c:1:25: pipeline.stages: is another name of dslaunch.pipeline.stages, which is also "
          "given: remove one of them"}},
        {R"({"dslaunch": {"sequence": {"size": 0}}})",
         {"c:1:36: dslaunch.sequence.size: must be above 0, not 0"},
         4},
        {R"({"dslaunch": {"tensor": {"size": 4294967296}, "sequence": {"size": 4294967296}}})",
         {"c:1:34: dslaunch.tensor.size: 4294967296 is more than the maximum, 1048576",
          "c:1:68: dslaunch.sequence.size: 4294967296 is more than the maximum, 1048576",
          "c:1:68: dslaunch.sequence.size: cannot be used together with dslaunch.tensor.size in "
          "this version; to share positions between split layers, use "
          "dslaunch.tensor.share_positions"}},
        {R"({"dslaunch": {"tensor": {"size": 2, "rules": ["*.mlp.*"]}}})",
         {"c:1:46: dslaunch.tensor.rules: must be an object that maps patterns of parameter names "
          "to rules, not a list"}},
        {R"({"dslaunch": {"tensor": {"size": 2, "rules": {"h.*.w": "diagonal"}}}})",
         {"c:1:46: dslaunch.tensor.rules: the rule of h.*.w must be one of column, row, "
          "vocabulary, replicated, not `diagonal`"}},
        {R"({"tensor_parallel": {"autotp_size": 2}, "dslaunch": {"tensor": {"size": 2}}})",
         {"c:1:37: tensor_parallel.autotp_size: is another name of dslaunch.tensor.size, which is "
          "also given: remove one of them"}},
        {R"({"tensor_parallel": {"autotp_size": 2, "tp": {"tp_size": 4}}})",
         {"c:1:58: tensor_parallel.tp.tp_size: 4 is neither 1 nor tensor_parallel.autotp_size, "
          "which is 2: remove the key"}},
        {R"({"dslaunch": {"tensor": {"size": 2}, "sequence": {"size": 2}}})",
         {"c:1:59: dslaunch.sequence.size: cannot be used together with dslaunch.tensor.size in "
          "this version; to share positions between split layers, use "
          "dslaunch.tensor.share_positions"}},
        {R"({"scheduler": {"type": "OneCycle", "params": {"cycle_max_lr": 0.1}}})",
         {"scheduler.params.cycle_min_lr: is required: a bound of the cycle's learning rates"}},
        {R"({"scheduler": {"type": "WSD",
              "params": {"total_num_steps": 9, "warmup_num_steps": 9}}})",
         {"scheduler.params.decay_num_steps: 9 steps of warm-up and 1 of decay are more than "
          "total_num_steps, 9"}},
        {R"({"quantize_training": {"enabled": true, "quantize_groups": 8}})",
         {"c:1:23: quantize_training: quantization is not available in this version, and DeepSpeed "
          "has removed this section: remove the key"}},
        {R"({"dslaunch": {"loss": {"name": "dpo", "beta": 0, "label_smoothing": 0.5}}})",
         {"c:1:47: dslaunch.loss.beta: must be above 0, not 0",
          "c:1:69: dslaunch.loss.label_smoothing: must be below 0.5: otherwise the pairs do not "
          "tell which of the two answers is better"}},
        {R"({"dslaunch": {"loss": {"name": "ipo", "label_smoothing": 0.1, "mean": "token"}}})",
         {"c:1:71: dslaunch.loss.mean: ipo is a mean over pairs of answers, not over tokens",
          "c:1:58: dslaunch.loss.label_smoothing: is only for dslaunch.loss.name dpo: remove the "
          "key"}},
        {R"({"dslaunch": {"loss": {"name": "mse", "beta": 0.1, "gamma": 1}}})",
         {"c:1:47: dslaunch.loss.beta: is only for dslaunch.loss.name dpo, ipo, simpo and orpo: "
          "remove the key",
          "c:1:61: dslaunch.loss.gamma: is only for dslaunch.loss.name simpo: remove the key"}},
        {R"({"dslaunch": {"lora": {"r": 8, "base": "nf4", "dropout": 1}}})",
         {"c:1:58: dslaunch.lora.dropout: must be below 1"}},
    };
    return table;
}

const std::vector<Bad>& bad_precisions() {
    static const std::vector<Bad> table = {
        {"{fp16: {enabled: true}, bf16: {enabled: true}}",
         {"c:1:41: bf16.enabled: fp16.enabled is also true: enable only one of the two"}},
        {"{fp16: {enabled: true, loss_scale_window: 0, hysteresis: 0, min_loss_scale: 0}}",
         {"c:1:43: fp16.loss_scale_window: must be above 0 with a dynamic loss scale",
          "c:1:58: fp16.hysteresis: must be above 0: with 0 the loss scale would never be lowered",
          "c:1:77: fp16.min_loss_scale: must be above 0 with a dynamic loss scale"}},
        {"{fp16: {enabled: true, initial_scale_power: 3, min_loss_scale: 9}}",
         {"c:1:64: fp16.min_loss_scale: 9 is above the first scale, 2^fp16.initial_scale_power = "
          "8"}},
        {"{fp16: {enabled: true, initial_scale_power: 128}}",
         {"c:1:45: fp16.initial_scale_power: must be at most 127: 2^127 is the largest scale of an "
          "fp32 loss"}},
        {"{fp16: {enabled: true, loss_scale: 1e39}}",
         {"c:1:36: fp16.loss_scale: is above 2^127, the largest scale of an fp32 loss"}},
        {"{fp16: {enabled: true, loss_scale: -1}}",
         {"c:1:36: fp16.loss_scale: must not be negative, not -1; 0 means dynamic"}},
        {"{bfloat16: {enabled: true}, bf16: {enabled: false}}",
         {"c:1:22: bfloat16.enabled: is another name of bf16.enabled, which is also given: remove "
          "one of them"}},
        {"{amp: {enabled: true}, bf16: {enabled: true}}",
         {"c:1:17: amp.enabled: bf16.enabled is also true: enable only one of the two"}},
        {"{fp16: {enabled: true}, amp: {enabled: true, opt_level: O2}}",
         {"c:1:40: amp.enabled: fp16.enabled is also true: enable only one of the two"}},
        {"{amp: {enabled: true, opt_level: O4}}",
         {"c:1:34: amp.opt_level: must be one of O0, O1, O2, O3, not `O4`"}},
        {"{amp: {enabled: true, keep_batchnorm_fp32: true}}",
         {"c:1:44: amp.keep_batchnorm_fp32: changes a part of an Apex level, but dslaunch, which "
          "does not use Apex, supports only whole levels: remove the key"}},
        {"{amp: {enabled: true, loss_scale: 0}}",
         {"c:1:35: amp.loss_scale: must be dynamic, or a number above 0 and at most 2^127"}},
        {"{amp: {enabled: true, loss_scale: static}}",
         {"c:1:35: amp.loss_scale: must be dynamic, or a number above 0 and at most 2^127"}},
        {"{torch_autocast: {enabled: true}, bf16: {enabled: true}}",
         {"c:1:28: torch_autocast.enabled: bf16.enabled is also true, but uses 16-bit weights, and "
          "torch_autocast needs fp32 weights: enable only one of the two"}},
        {"{torch_autocast: {enabled: true}, data_types: {param_dtype: bf16}}",
         {"c:1:61: data_types.param_dtype: bf16 contradicts fp16.enabled and bf16.enabled, which "
          "choose fp32: remove the key"}},
        {"{communication_data_type: bf16, zero_optimization: {stage: 2, zero_quantized_gradients: "
         "true}}",
         {"c:1:89: zero_optimization.zero_quantized_gradients: sends gradients in 4 bits, but "
          "communication_data_type or torch_autocast asks for 16: use only one of the two"}},
        {"{communication_data_type: fp16, gradient_allreduce_op: sum, optimizer: {type: "
         "OneBitAdam, params: {lr: 1}}}",
         {"c:1:27: communication_data_type: the optimizer exchanges momenta in 1 bit, and computes "
          "its variance from uncompressed gradients, which are always sent in fp32: remove the key",
          "c:1:56: gradient_allreduce_op: the optimizer averages what hosts exchange in 1 bit: use "
          "mean, or another optimizer"}},
        {"{gradient_allreduce_op: sum, dslaunch: {loss: {name: cross_entropy, target: y, mean: "
         "token}}}",
         {"c:1:25: gradient_allreduce_op: `sum` cannot be used with dslaunch.loss.mean \"token\", "
          "which takes one mean over all tokens: use mean"}},
        {"{data_types: {param_dtype: fp16, buffer_dtype: fp32}}",
         {"c:1:48: data_types.buffer_dtype: buffers keep the types that they have in the model: "
          "remove the key",
          "c:1:28: data_types.param_dtype: fp16 contradicts fp16.enabled and bf16.enabled, which "
          "choose fp32: remove the key"}},
    };
    return table;
}

const std::vector<Bad>& bad_zeros() {
    static const std::vector<Bad> table = {
        {"{zero_optimization: {stage: 2}, dslaunch: {communication: {reduce: once}}}",
         {"c:1:68: dslaunch.communication.reduce: `once` keeps whole gradients until the last "
          "micro step, but ZeRO stage 2 shards gradients at each micro step: remove the key, or "
          "use stage 1"}},
        {"{zero_optimization: {stage: 3, stage3_prefetch_bucket_size: 1, prefetch_bucket_size: 2}}",
         {"c:1:86: zero_optimization.prefetch_bucket_size: is another name of "
          "zero_optimization.stage3_prefetch_bucket_size, which is also given: remove one of "
          "them"}},
        {"{zero_optimization: {stage: 3, stage3_max_live_parameters: -1}}",
         {"c:1:60: zero_optimization.stage3_max_live_parameters: must not be negative, not -1"}},
        {"{zero_optimization: {stage: 1, ignore_unused_parameters: false}}",
         {"c:1:58: zero_optimization.ignore_unused_parameters: unused parameters are always named "
          "and skipped: remove the key"}},
        {"{zero_optimization: {stage: 2, zero_quantized_weights: true}}",
         {"c:1:56: zero_optimization.zero_quantized_weights: at ZeRO stage 2 updated parameters "
          "are gathered in place, and rounding would change them: use stage 3"}},
        {"{zero_optimization: {stage: 1}, dslaunch: {shard: rows}}",
         {"c:1:51: dslaunch.shard: must be one of flat, layer, group, row, parameter, auto, not "
          "`rows`"}},
    };
    return table;
}

const std::vector<Bad>& bad_offloads() {
    static const std::vector<Bad> table = {
        {"{zero_optimization: {cpu_offload: true}}",
         {"c:1:35: zero_optimization.cpu_offload: is not supported at ZeRO stage 0: use "
          "zero_optimization.stage 1, whose results are bitwise the same as at stage 0"}},
        {"{zero_optimization: {offload_optimizer: {device: nvme, nvme_path: /d}}}",
         {"c:1:50: zero_optimization.offload_optimizer.device: is not supported at ZeRO stage 0: "
          "use zero_optimization.stage 1, whose results are bitwise the same as at stage 0"}},
        {"{zero_optimization: {stage: 3, offload_param: {device: nvme, nvme_path: /d, max_in_cpu: "
         "9}}, dslaunch: {offload: {placement: auto}}}",
         {"c:1:89: zero_optimization.offload_param.max_in_cpu: sets what stays in memory, but so "
          "does dslaunch.offload.placement auto: remove one of them"}},
        {"{zero_optimization: {stage: 1, offload_optimizer: {device: nvme, nvme_path: /d}}, "
         "dslaunch: {offload: {placement: auto, compress: {moments: bf16}}}}",
         {"c:1:115: dslaunch.offload.placement: auto cannot be used with "
          "dslaunch.offload.compress.moments bf16: only values on disk are rounded, and auto "
          "chooses these values by the measured speed of the disk, so the results depend on this "
          "speed; remove one of the two keys"}},
        {"{zero_optimization: {stage: 3, offload_param: {device: nvme}}}",
         {"zero_optimization.offload_param.nvme_path: is not given: device nvme needs a folder on "
          "the disk, or a list with one folder on each disk"}},
        {"{zero_optimization: {stage: 3, offload_param: {device: nvme, nvme_path: [/a, 3]}}}",
         {"c:1:73: zero_optimization.offload_param.nvme_path: must be a string or a list of "
          "strings, not a list"}},
        {"{zero_optimization: {stage: 1, offload_optimizer: {device: nvme, nvme_path: []}}}",
         {"c:1:77: zero_optimization.offload_optimizer.nvme_path: is an empty list: give a folder "
          "on the disk"}},
        {"{zero_optimization: {stage: 1, offload_optimizer: {device: nvme, nvme_path: ''}}}",
         {"c:1:77: zero_optimization.offload_optimizer.nvme_path: is empty: give a folder on the "
          "disk"}},
        {"{zero_optimization: {stage: 1, offload_optimizer: {device: nvme, nvme_path: '/a,/b'}}}",
         {"c:1:77: zero_optimization.offload_optimizer.nvme_path: contains a comma: for several "
          "disks, give a list of folders"}},
        {"{zero_optimization: {stage: 1, offload_optimizer: {device: nvme, nvme_path: [/a, /a]}}}",
         {"c:1:77: zero_optimization.offload_optimizer.nvme_path: names /a twice: give one folder "
          "on each disk"}},
        {"{zero_optimization: {stage: 3, offload_optimizer: {device: nvme, nvme_path: /a}, "
         "offload_param: {device: nvme, nvme_path: [/a, /b]}}}",
         {"c:1:123: zero_optimization.offload_param.nvme_path: differs from "
          "zero_optimization.offload_optimizer.nvme_path: all folders form one striped tier, so "
          "give the same list in both"}},
        {"{zero_optimization: {stage: 3, offload_optimizer: {device: nvme, nvme_path: /a, "
         "pin_memory: true}, offload_param: {device: nvme, nvme_path: /a, pin_memory: false}}}",
         {"c:1:157: zero_optimization.offload_param.pin_memory: differs from "
          "zero_optimization.offload_optimizer.pin_memory: the two share their buffers, so give "
          "both the same value"}},
        {"{zero_optimization: {stage: 1, offload_optimizer: {device: nvme, nvme_path: /a, "
         "buffer_count: 1}, sub_group_size: 10}, dslaunch: {offload: {chunk_numel: 11}}}",
         {"c:1:95: zero_optimization.offload_optimizer.buffer_count: must be at least 2: one chunk "
          "is updated while another one is read or written",
          "c:1:154: dslaunch.offload.chunk_numel: 11 is above zero_optimization.sub_group_size = "
          "10, the most that is updated at once"}},
        {"{zero_optimization: {stage: 1, offload_optimizer: {device: nvme, nvme_path: /a, "
         "ratio: 1.5}}}",
         {"c:1:88: zero_optimization.offload_optimizer.ratio: must be between 0 and 1, not 1.5"}},
        {"{zero_optimization: {stage: 1, cpu_offload: true, cpu_offload_use_pin_memory: true, "
         "offload_optimizer: {device: nvme, nvme_path: /a, pin_memory: true}}}",
         {"c:1:45: zero_optimization.cpu_offload: is the old form of "
          "zero_optimization.offload_optimizer.device, which is also given: remove the old one",
          "c:1:79: zero_optimization.cpu_offload_use_pin_memory: is the old form of "
          "zero_optimization.offload_optimizer.pin_memory, which is also given: remove the old "
          "one"}},
        {"{zero_optimization: {stage: 1, offload_optimizer: {device: nvme, nvme_path: /a}}, "
         "aio: {block_size: 5000, queue_depth: 40000, thread_count: 2, intra_op_parallelism: 2}}",
         {"c:1:120: aio.queue_depth: 40000 is more than the maximum, 32768",
          "c:1:141: aio.thread_count: is another name of aio.intra_op_parallelism, which is also "
          "given: remove one of them",
          "c:1:101: aio.block_size: must be a multiple of 4096: requests bypass the page cache, so "
          "they must be whole pages"}},
        {"{gradient_accumulation_steps: 1000000000}",
         {"c:1:31: gradient_accumulation_steps: 1000000000 micro steps per step are more than the "
          "maximum, 65536, because the plan lists the instructions of each; give each micro step "
          "more rows"}},
        {"{dslaunch: {offload: {engine: libaio, cache: arc, keep: 1}}}",
         {"c:1:31: dslaunch.offload.engine: must be one of auto, io_uring, threads, not `libaio`",
          "c:1:46: dslaunch.offload.cache: must be one of fifo, lru, lfu, not `arc`",
          "c:1:57: dslaunch.offload.keep: unknown key, did you mean `dslaunch.save.keep`?"}},
    };
    return table;
}

}  // namespace

TEST_CASE("each bad config gives exactly its messages") {
    REQUIRE(bad_configs().size() >= 40);
    for (const auto& table : {bad_configs(), bad_precisions(), bad_zeros(), bad_offloads()}) {
        for (const Bad& bad : table) {
            CAPTURE(bad.text);
            CHECK(messages_of(bad) == bad.messages);
        }
    }
}

TEST_CASE("hostile configs end with a message, not a crash or a hang") {
    auto first = [](const std::string& text) {
        TrainConfig config = parse_config(text, "c");
        return config.problems.empty() ? std::string() : config.problems.front().message;
    };
    CHECK(first(std::string(100'000, '[')) == "nested deeper than 32 levels");
    CHECK(first(std::string(kConfigBytesMax + 1, ' ')) ==
          "has more than 1048576 bytes, the most that a config may have");
    CHECK(first(std::string("{\0}", 3)) == "contains a zero byte, so it is not a text file");
    CHECK(first(std::string("\xff\xfe{\0}\0", 6)) ==
          "is UTF-16, but must be UTF-8: iconv -f UTF-16 -t UTF-8 FILE > NEW.json");
    CHECK(first("a: &a [1]\nb: *a") ==
          "YAML anchors (&name) are not supported in a config: write the value itself");
    std::string many = "{";
    for (int i = 0; i < 5000; ++i) many += "\"k" + std::to_string(i) + "\": 1, ";
    CHECK(first(many + "}") == "more than 1024 keys in one section, or 1024 problems in the file");
    CHECK(first("{\"a\": [1, ") == "the `[` is never closed");
    CHECK(first("{\"a\": 1]}") == "`]` closes no `[`");
    CHECK(first("{\"a\": \"b}") == "the string that starts here is never closed");
    CHECK(first("{\"a\": @}").substr(0, 23) == "not valid JSON or YAML:");
}
