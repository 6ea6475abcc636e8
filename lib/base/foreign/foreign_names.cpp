#include "base/foreign/foreign_names.h"

#include <array>
#include <cctype>
#include <utility>
#include <vector>

#include "base/text.h"

namespace dslaunch {
namespace {

// clang-format off
constexpr ForeignName kForeignNames[] = {
    {"learning-rate", "optimizer.params.lr", "--lr X"},
    {"lr", "optimizer.params.lr", "--lr X"},
    {"qlora", "dslaunch.lora.base", "--lora r=16,alpha=32,base=nf4"},
    {"base-lr", "optimizer.params.lr", "--lr X"},
    {"max-lr", "optimizer.params.lr", "--lr X"},
    {"peak-lr", "optimizer.params.lr", "--lr X"},
    {"init-lr", "optimizer.params.lr", "--lr X"},
    {"min-lr", "scheduler.params.cos_min_ratio", "--set scheduler.params.cos_min_ratio=X, a fraction of the learning rate, with scheduler.type WarmupCosineLR"},
    {"weight-decay", "optimizer.params.weight_decay", "--set optimizer.params.weight_decay=X"},
    {"momentum", "optimizer.params.momentum", "--set optimizer.params.momentum=X"},
    {"betas", "optimizer.params.betas", "--set optimizer.params.betas=[0.9,0.999]"},
    {"adam-beta1", "optimizer.params.betas", "--set optimizer.params.betas=[0.9,0.999]"},
    {"adam-beta2", "optimizer.params.betas", "--set optimizer.params.betas=[0.9,0.999]"},
    {"adam-epsilon", "optimizer.params.eps", "--set optimizer.params.eps=X"},
    {"optim", "optimizer.type", "--set optimizer.type=AdamW"},
    {"optimizer", "optimizer.type", "--set optimizer.type=AdamW"},
    {"optimizer-type", "optimizer.type", "--set optimizer.type=AdamW"},
    {"optimizer-name", "optimizer.type", "--set optimizer.type=AdamW"},
    {"lr-scheduler", "scheduler.type", "--set scheduler.type=Cosine --set scheduler.params.total_num_steps=auto"},
    {"lr-scheduler-type", "scheduler.type", "--set scheduler.type=Cosine --set scheduler.params.total_num_steps=auto"},
    {"lr-schedule", "scheduler.type", "--set scheduler.type=Cosine --set scheduler.params.total_num_steps=auto"},
    {"scheduler-type", "scheduler.type", "--set scheduler.type=Cosine --set scheduler.params.total_num_steps=auto"},
    {"lr-decay-style", "scheduler.type", "--set scheduler.type=Cosine --set scheduler.params.total_num_steps=auto"},
    {"warmup", "scheduler.params.warmup_num_steps", "--warmup-steps N, with a scheduler (--set scheduler.type=WarmupLR)"},
    {"warmup-steps", "scheduler.params.warmup_num_steps", "--warmup-steps N, with a scheduler (--set scheduler.type=WarmupLR)"},
    {"warmup-ratio", "scheduler.params.warmup_num_steps", "--warmup-steps N (a number of steps, not a ratio), with a scheduler (--set scheduler.type=WarmupLR)"},
    {"max-grad-norm", "gradient_clipping", "--set gradient_clipping=1.0"},
    {"gradient-clip", "gradient_clipping", "--set gradient_clipping=1.0"},
    {"gradient-clip-val", "gradient_clipping", "--set gradient_clipping=1.0"},
    {"gradient-clip-norm", "gradient_clipping", "--set gradient_clipping=1.0"},
    {"grad-clip", "gradient_clipping", "--set gradient_clipping=1.0"},
    {"grad-norm", "gradient_clipping", "--set gradient_clipping=1.0"},
    {"clip-grad", "gradient_clipping", "--set gradient_clipping=1.0"},
    {"clip-grad-norm", "gradient_clipping", "--set gradient_clipping=1.0"},
    {"clip-norm", "gradient_clipping", "--set gradient_clipping=1.0"},
    {"max-norm", "gradient_clipping", "--set gradient_clipping=1.0"},
    {"batch", "train_micro_batch_size_per_gpu", "--micro-batch N"},
    {"micro-batch", "train_micro_batch_size_per_gpu", "--micro-batch N"},
    {"batch-size", "train_batch_size", "--micro-batch N and --accumulation N"},
    {"train-batch", "train_batch_size", "--set train_batch_size=N, the number of rows in a step of all ranks together"},
    {"global-batch-size", "train_batch_size", "--set train_batch_size=N, the number of rows in a step of all ranks together"},
    {"micro-batch-size", "train_micro_batch_size_per_gpu", "--micro-batch N"},
    {"train-micro-batch-size", "train_micro_batch_size_per_gpu", "--micro-batch N"},
    {"per-device-train-batch-size", "train_micro_batch_size_per_gpu", "--micro-batch N"},
    {"per-device-batch-size", "train_micro_batch_size_per_gpu", "--micro-batch N"},
    {"per-gpu-train-batch-size", "train_micro_batch_size_per_gpu", "--micro-batch N"},
    {"per-device-eval-batch-size", "train_micro_batch_size_per_gpu", "--micro-batch N, which is also used for held-out data"},
    {"eval-batch-size", "train_micro_batch_size_per_gpu", "--micro-batch N, which is also used for held-out data"},
    {"accumulation-steps", "gradient_accumulation_steps", "--accumulation N"},
    {"grad-accum", "gradient_accumulation_steps", "--accumulation N"},
    {"gradient-accumulation", "gradient_accumulation_steps", "--accumulation N"},
    {"accumulate-grad-batches", "gradient_accumulation_steps", "--accumulation N"},
    {"max-steps", "dslaunch.steps", "--steps N"},
    {"num-steps", "dslaunch.steps", "--steps N"},
    {"total-steps", "dslaunch.steps", "--steps N"},
    {"train-steps", "dslaunch.steps", "--steps N"},
    {"train-iters", "dslaunch.steps", "--steps N"},
    {"max-iters", "dslaunch.steps", "--steps N"},
    {"num-epochs", "dslaunch.epochs", "--epochs N"},
    {"num-train-epochs", "dslaunch.epochs", "--epochs N"},
    {"steps-per-epoch", "dslaunch.epochs", "--epochs N: an epoch always covers all data"},
    {"max-epochs", "dslaunch.epochs", "--epochs N"},
    {"eval-steps", "dslaunch.eval_interval", "--eval-interval N"},
    {"eval-interval", "dslaunch.eval_interval", "--eval-interval N"},
    {"eval-strategy", "dslaunch.eval_interval", "--eval-interval N (in steps), with --eval-data FILE"},
    {"evaluation-strategy", "dslaunch.eval_interval", "--eval-interval N (in steps), with --eval-data FILE"},
    {"load-best-model-at-end", "dslaunch.save.best", "--save-best, whose best weights become the result of the run"},
    {"load-best", "dslaunch.save.best", "--save-best, whose best weights become the result of the run"},
    {"metric-for-best-model", "dslaunch.save.best", "--save-best=METRIC, such as eval_loss"},
    {"greater-is-better", "", "leave it out: the metric of --save-best says which values are better"},
    {"early-stopping", "dslaunch.patience", "--patience N"},
    {"early-stopping-patience", "dslaunch.patience", "--patience N"},
    {"early-stopping-threshold", "dslaunch.patience_gain", "--set dslaunch.patience_gain=X, with --patience N"},
    {"min-delta", "dslaunch.patience_gain", "--set dslaunch.patience_gain=X, with --patience N"},
    {"val-split", "dslaunch.data.eval_fraction", "--set dslaunch.data.eval_fraction=0.05"},
    {"validation-split", "dslaunch.data.eval_fraction", "--set dslaunch.data.eval_fraction=0.05"},
    {"test-size", "dslaunch.data.eval_fraction", "--set dslaunch.data.eval_fraction=0.05"},
    {"validation-split-percentage", "dslaunch.data.eval_fraction", "--set dslaunch.data.eval_fraction=0.05"},
    {"val-size", "dslaunch.data.eval_fraction", "--set dslaunch.data.eval_fraction=0.05"},
    {"eval-split", "dslaunch.data.eval_fraction", "--set dslaunch.data.eval_fraction=0.05"},
    {"eval-fraction", "dslaunch.data.eval_fraction", "--set dslaunch.data.eval_fraction=0.05"},
    {"split", "dslaunch.data.eval_fraction", "--set dslaunch.data.eval_fraction=0.1, the share of the rows that is held out"},
    {"val-set-size", "dslaunch.data.eval_fraction", "--set dslaunch.data.eval_fraction=0.05"},
    {"save-strategy", "dslaunch.save.interval", "--save-interval N (in steps)"},
    {"save-steps", "dslaunch.save.interval", "--save-interval N"},
    {"save-total-limit", "dslaunch.save.keep", "--keep N"},
    {"logging-steps", "steps_per_print", "--set steps_per_print=N; metrics.jsonl in the --output folder has every step"},
    {"logging-strategy", "", "leave it out: metrics.jsonl in the --output folder has every step"},
    {"report-to", "tensorboard.enabled", "--set tensorboard.enabled=true, wandb.enabled=true or comet.enabled=true; for none, leave it out: metrics.jsonl has every step"},
    {"logging-dir", "tensorboard.output_path", "--set tensorboard.enabled=true --set tensorboard.output_path=DIR"},
    {"mlflow", "tensorboard.enabled", "--set tensorboard.enabled=true, and `dslaunch-upload mlflow` afterwards"},
    {"trackio", "tensorboard.enabled", "--set tensorboard.enabled=true, and `dslaunch-upload trackio` afterwards"},
    {"prometheus", "dslaunch.metrics.prometheus", "--set dslaunch.metrics.prometheus=FILE.prom"},
    {"gradient-checkpointing", "activation_checkpointing.number_checkpoints", "--set activation_checkpointing.number_checkpoints=N"},
    {"use-gradient-checkpointing", "activation_checkpointing.number_checkpoints", "--set activation_checkpointing.number_checkpoints=N"},
    {"precision", "bf16.enabled", "--bf16 or --fp16"},
    {"mixed-precision", "bf16.enabled", "--bf16 or --fp16"},
    {"dtype", "bf16.enabled", "--bf16 or --fp16"},
    {"torch-dtype", "bf16.enabled", "--bf16 or --fp16"},
    {"tf32", "", "leave it out"},
    {"zero", "zero_optimization.stage", "--set zero_optimization.stage=N"},
    {"zero-stage", "zero_optimization.stage", "--set zero_optimization.stage=N"},
    {"fp8", "bf16.enabled", "--bf16 or --fp16: fp8 is not supported"},
    {"zero-config", "zero_optimization.stage", "--set zero_optimization.stage=N"},
    {"zero-optim", "zero_optimization.stage", "--set zero_optimization.stage=N"},
    {"tp", "dslaunch.tensor.size", "--num_gpus N --set dslaunch.tensor.size=2, where 2 divides N: the weights of each layer are split between 2 GPUs"},
    {"tp-size", "dslaunch.tensor.size", "--num_gpus N --set dslaunch.tensor.size=2, where 2 divides N: the weights of each layer are split between 2 GPUs"},
    {"tensor-parallel", "dslaunch.tensor.size", "--num_gpus N --set dslaunch.tensor.size=2, where 2 divides N: the weights of each layer are split between 2 GPUs"},
    {"tensor-parallel-size", "dslaunch.tensor.size", "--num_gpus N --set dslaunch.tensor.size=2, where 2 divides N: the weights of each layer are split between 2 GPUs"},
    {"tensor-model-parallel-size", "dslaunch.tensor.size", "--num_gpus N --set dslaunch.tensor.size=2, where 2 divides N: the weights of each layer are split between 2 GPUs"},
    {"model-parallel-size", "dslaunch.tensor.size", "--num_gpus N --set dslaunch.tensor.size=2, where 2 divides N: the weights of each layer are split between 2 GPUs"},
    {"autotp-size", "dslaunch.tensor.size", "--num_gpus N --set dslaunch.tensor.size=2, where 2 divides N: the weights of each layer are split between 2 GPUs"},
    {"pp", "pipeline.stages", "--num_gpus N --set pipeline.stages=2, where 2 divides N: each GPU computes a part of the layers"},
    {"pp-size", "pipeline.stages", "--num_gpus N --set pipeline.stages=2, where 2 divides N: each GPU computes a part of the layers"},
    {"pipeline-parallel", "pipeline.stages", "--num_gpus N --set pipeline.stages=2, where 2 divides N: each GPU computes a part of the layers"},
    {"pipeline-parallel-size", "pipeline.stages", "--num_gpus N --set pipeline.stages=2, where 2 divides N: each GPU computes a part of the layers"},
    {"pipeline-model-parallel-size", "pipeline.stages", "--num_gpus N --set pipeline.stages=2, where 2 divides N: each GPU computes a part of the layers"},
    {"pipe-parallel-size", "pipeline.stages", "--num_gpus N --set pipeline.stages=2, where 2 divides N: each GPU computes a part of the layers"},
    {"num-stages", "pipeline.stages", "--num_gpus N --set pipeline.stages=2, where 2 divides N: each GPU computes a part of the layers"},
    {"fsdp", "zero_optimization.stage", "--set zero_optimization.stage=3, which shards weights, gradients and optimizer state"},
    {"use-fsdp", "zero_optimization.stage", "--set zero_optimization.stage=3, which shards weights, gradients and optimizer state"},
    {"fsdp-config", "zero_optimization.stage", "--set zero_optimization.stage=3, which shards weights, gradients and optimizer state"},
    {"fsdp-sharding-strategy", "zero_optimization.stage", "--set zero_optimization.stage=3, which shards weights, gradients and optimizer state"},
    {"fully-shard", "zero_optimization.stage", "--set zero_optimization.stage=3, which shards weights, gradients and optimizer state"},
    {"hsdp", "zero_optimization.stage", "--set zero_optimization.stage=3, which shards weights, gradients and optimizer state"},
    {"sharded-ddp", "zero_optimization.stage", "--set zero_optimization.stage=3, which shards weights, gradients and optimizer state"},
    {"zero1", "zero_optimization.stage", "--set zero_optimization.stage=1"},
    {"zero-1", "zero_optimization.stage", "--set zero_optimization.stage=1"},
    {"zero2", "zero_optimization.stage", "--set zero_optimization.stage=2"},
    {"zero-2", "zero_optimization.stage", "--set zero_optimization.stage=2"},
    {"zero3", "zero_optimization.stage", "--set zero_optimization.stage=3"},
    {"zero-3", "zero_optimization.stage", "--set zero_optimization.stage=3"},
    {"dp", "", "leave it out: the degree of data parallelism is the number of ranks (--num_gpus N) divided by the degrees of tensor, pipeline and sequence parallelism"},
    {"dp-size", "", "leave it out: the degree of data parallelism is the number of ranks (--num_gpus N) divided by the degrees of tensor, pipeline and sequence parallelism"},
    {"ddp", "", "leave it out: the degree of data parallelism is the number of ranks (--num_gpus N) divided by the degrees of tensor, pipeline and sequence parallelism"},
    {"data-parallel", "", "leave it out: the degree of data parallelism is the number of ranks (--num_gpus N) divided by the degrees of tensor, pipeline and sequence parallelism"},
    {"data-parallel-size", "", "leave it out: the degree of data parallelism is the number of ranks (--num_gpus N) divided by the degrees of tensor, pipeline and sequence parallelism"},
    {"num-replicas", "", "leave it out: the degree of data parallelism is the number of ranks (--num_gpus N) divided by the degrees of tensor, pipeline and sequence parallelism"},
    {"cp", "dslaunch.sequence.size", "--num_gpus N --set dslaunch.sequence.size=2, where 2 divides N: each text is split between 2 GPUs"},
    {"cp-size", "dslaunch.sequence.size", "--num_gpus N --set dslaunch.sequence.size=2, where 2 divides N: each text is split between 2 GPUs"},
    {"sp", "dslaunch.sequence.size", "--num_gpus N --set dslaunch.sequence.size=2, where 2 divides N: each text is split between 2 GPUs"},
    {"sp-size", "dslaunch.sequence.size", "--num_gpus N --set dslaunch.sequence.size=2, where 2 divides N: each text is split between 2 GPUs"},
    {"context-parallel", "dslaunch.sequence.size", "--num_gpus N --set dslaunch.sequence.size=2, where 2 divides N: each text is split between 2 GPUs"},
    {"context-parallel-size", "dslaunch.sequence.size", "--num_gpus N --set dslaunch.sequence.size=2, where 2 divides N: each text is split between 2 GPUs"},
    {"sequence-parallel", "dslaunch.sequence.size", "--num_gpus N --set dslaunch.sequence.size=2, where 2 divides N: each text is split between 2 GPUs"},
    {"sequence-parallel-size", "dslaunch.sequence.size", "--num_gpus N --set dslaunch.sequence.size=2, where 2 divides N: each text is split between 2 GPUs"},
    {"ulysses-size", "dslaunch.sequence.size", "--num_gpus N --set dslaunch.sequence.size=2, where 2 divides N: each text is split between 2 GPUs"},
    {"ulysses-degree", "dslaunch.sequence.size", "--num_gpus N --set dslaunch.sequence.size=2, where 2 divides N: each text is split between 2 GPUs"},
    {"ulysses-sequence-parallel-size", "dslaunch.sequence.size", "--num_gpus N --set dslaunch.sequence.size=2, where 2 divides N: each text is split between 2 GPUs"},
    {"ep", "", "leave it out: expert parallelism is not available yet; --set zero_optimization.stage=3 shards all weights, also those of experts"},
    {"ep-size", "", "leave it out: expert parallelism is not available yet; --set zero_optimization.stage=3 shards all weights, also those of experts"},
    {"expert-parallel", "", "leave it out: expert parallelism is not available yet; --set zero_optimization.stage=3 shards all weights, also those of experts"},
    {"expert-parallel-size", "", "leave it out: expert parallelism is not available yet; --set zero_optimization.stage=3 shards all weights, also those of experts"},
    {"expert-model-parallel-size", "", "leave it out: expert parallelism is not available yet; --set zero_optimization.stage=3 shards all weights, also those of experts"},
    {"enable-expert-parallel", "", "leave it out: expert parallelism is not available yet; --set zero_optimization.stage=3 shards all weights, also those of experts"},
    {"wd", "optimizer.params.weight_decay", "--set optimizer.params.weight_decay=X"},
    {"decay", "optimizer.params.weight_decay", "--set optimizer.params.weight_decay=X"},
    {"l2", "optimizer.params.weight_decay", "--set optimizer.params.weight_decay=X"},
    {"epsilon", "optimizer.params.eps", "--set optimizer.params.eps=X"},
    {"adam-eps", "optimizer.params.eps", "--set optimizer.params.eps=X"},
    {"output", "", "leave it out of the config, and give the folder on the command line: -o DIR"},
    {"output-dir", "", "leave it out of the config, and give the folder on the command line: -o DIR"},
    {"out-dir", "", "leave it out of the config, and give the folder on the command line: -o DIR"},
    {"save-dir", "", "leave it out of the config, and give the folder on the command line: -o DIR"},
    {"ckpt-interval", "dslaunch.save.interval", "--save-interval N (in steps)"},
    {"adapter", "dslaunch.lora", "--lora r=16,alpha=32"},
    {"finetuning-type", "dslaunch.lora", "--lora r=16,alpha=32"},
    {"use-lora", "dslaunch.lora", "--lora r=16,alpha=32"},
    {"use-peft", "dslaunch.lora", "--lora r=16,alpha=32"},
    {"lora-r", "dslaunch.lora.r", "--lora r=16"},
    {"lora-rank", "dslaunch.lora.r", "--lora r=16"},
    {"lora-alpha", "dslaunch.lora.alpha", "--lora r=16,alpha=32"},
    {"lora-dropout", "dslaunch.lora.dropout", "--lora r=16,dropout=0.05"},
    {"lora-target", "dslaunch.lora.targets", "--lora 'r=16,targets=*.q_proj,*.v_proj'"},
    {"lora-target-modules", "dslaunch.lora.targets", "--lora 'r=16,targets=*.q_proj,*.v_proj'"},
    {"target-modules", "dslaunch.lora.targets", "--lora 'r=16,targets=*.q_proj,*.v_proj'"},
    {"lora-target-linear", "dslaunch.lora.targets", "--lora r=16,targets=all-linear"},
    {"load-in-4bit", "dslaunch.lora.base", "--lora r=16,base=nf4"},
    {"load-in-8bit", "dslaunch.lora.base", "--lora r=16,base=int8"},
    {"quantize-weights", "dslaunch.lora.base", "--lora r=16,base=nf4"},
    {"quantization-bit", "dslaunch.lora.base", "--lora r=16,base=nf4"},
    {"base-model", "", "give the model's folder as the first argument"},
    {"model-name-or-path", "", "give the model's folder as the first argument"},
    {"model", "", "give the model's folder or file as the first argument: dslaunch MODEL --data FILE"},
    {"datasets", "dslaunch.data.train", "--data FILE with a file that `dslaunch data prepare` wrote"},
    {"train-dataset", "dslaunch.data.train", "--data FILE with a file that `dslaunch data prepare` wrote"},
    {"dataset-name", "dslaunch.data.train", "--data FILE with a file that `dslaunch data prepare` wrote"},
    {"sequence-len", "dslaunch.data.context", "`dslaunch data prepare --context N`"},
    {"max-seq-length", "dslaunch.data.context", "`dslaunch data prepare --context N`"},
    {"max-length", "dslaunch.data.context", "`dslaunch data prepare --context N`"},
    {"sample-packing", "", "`dslaunch data prepare --pack`"},
    {"packing", "", "`dslaunch data prepare --pack`"},
    {"train-on-inputs", "", "`dslaunch data prepare --learn-all`"},
    {"do-train", "", "leave it out: dslaunch trains by default"},
    {"gpus", "", "--num-gpus N, or leave it out to use all"},
    {"overwrite-output-dir", "", "--output NEW-FOLDER: existing runs are never overwritten"},
    {"do-eval", "", "--eval-data FILE"},
    {"hf", "", "the folder that `hf download NAME --local-dir FOLDER` writes: nothing is downloaded here"},
    {"flops-profiler", "flops_profiler.enabled", "--set flops_profiler.enabled=true"},
    {"profile", "flops_profiler.enabled", "--set flops_profiler.enabled=true"},
    {"profiler", "flops_profiler.enabled", "--set flops_profiler.enabled=true"},
    {"profile-step", "flops_profiler.profile_step", "--set flops_profiler.enabled=true --set flops_profiler.profile_step=N"},
    {"use-tensorboard", "tensorboard.enabled", "--set tensorboard.enabled=true"},
    {"use-wandb", "wandb.enabled", "--set wandb.enabled=true"},
    {"wandb-project", "wandb.project", "--set wandb.enabled=true --set wandb.project=NAME"},
    {"wandb-entity", "wandb.team", "--set wandb.enabled=true --set wandb.team=NAME"},
    {"run-name", "", "-o runs/NAME: a run has the name of its folder"},
    {"hub-model-id", "", "leave it out: nothing is uploaded; `hf upload` sends the --output folder"},
    {"push-to-hub", "", "leave it out: nothing is uploaded; `hf upload` sends the --output folder"},
    {"save-safetensors", "", "leave it out: weights are always written as safetensors"},
    {"dataloader-num-workers", "", "leave it out: rows are read from the file itself"},
    {"preprocessing-num-workers", "", "`dslaunch data prepare --threads N`"},
    {"torch-compile", "", "leave it out"},
    {"compile", "", "leave it out"},
    {"flash-attention", "", "leave it out: dslaunch itself chooses how attention is computed"},
    {"flash-attn", "", "leave it out: dslaunch itself chooses how attention is computed"},
    {"attn-implementation", "", "leave it out: dslaunch itself chooses how attention is computed"},
    {"use-flash-attention-2", "", "leave it out: dslaunch itself chooses how attention is computed"},
    {"trust-remote-code", "", "leave it out: dslaunch never runs a model's Python code"},
    {"num-machines", "", "--num-nodes N with a --hostfile"},
    {"nodes", "", "--num-nodes N with a --hostfile"},
    {"n", "", "--num-gpus N for N workers on each host (srun's -n, mpirun's -n), or --num-nodes N with a --hostfile (srun's -N)"},
    {"np", "", "--num-gpus N for N workers on each host"},
    {"ntasks", "", "--num-gpus N for N workers on each host"},
    {"ntasks-per-node", "", "--num-gpus N for N workers on each host"},
    {"gpus-per-node", "", "--num-gpus N for N workers on each host"},
    {"chat-template", "", "`dslaunch data prepare`, which uses the chat_template of the model's folder"},
    {"template", "", "`dslaunch data prepare`, which uses the chat_template of the model's folder"},

    {"m", "", "--model DIR", "model"},
    {"m", "", "give the model's folder as the first argument", "weights"},
    {"model", "", "give the model's folder as the first argument", "weights"},
    {"p", "", "--prompt TEXT", "prompt"},
    {"n", "", "--tokens N", "tokens"},
    {"temp", "", "--temperature X", "temperature"},
    {"hf", "", "the folder that `hf download NAME --local-dir FOLDER` writes: nothing is downloaded here", "weights"},
    {"hfr", "", "the folder that `hf download NAME --local-dir FOLDER` writes: nothing is downloaded here", "weights"},
    {"e", "", "leave it out: in a shell, write a line break as $'\\n'", "prompt"},
    {"prompt-file", "", "--prompt \"$(cat FILE)\", or --file FILE if the file has lines of JSON", "prompt"},
    {"f", "", "--prompt \"$(cat FILE)\", or --file FILE if the file has lines of JSON", "prompt"},
    {"c", "", "--context N", "context"},
    {"t", "", "--threads N", "threads"},
    {"np", "", "--sequences N", "sequences"},
    {"parallel", "", "--sequences N", "sequences"},
    {"max-num-seqs", "", "--sequences N", "sequences"},
    {"ngl", "", "leave it out: this command computes on CPUs", "choices"},
    {"n-gpu-layers", "", "leave it out: this command computes on CPUs", "choices"},
    {"gpu-layers", "", "leave it out: this command computes on CPUs", "choices"},
    {"ngl", "", "leave it out: this command computes on CPUs", "api-key-file"},
    {"n-gpu-layers", "", "leave it out: this command computes on CPUs", "api-key-file"},
    {"gpu-layers", "", "leave it out: this command computes on CPUs", "api-key-file"},
    {"ngl", "", "--device cuda, which computes all layers on a GPU; to compute no layer on a GPU, leave this option out", "device"},
    {"n-gpu-layers", "", "--device cuda, which computes all layers on a GPU; to compute no layer on a GPU, leave this option out", "device"},
    {"gpu-layers", "", "--device cuda, which computes all layers on a GPU; to compute no layer on a GPU, leave this option out", "device"},
    {"load-in-4bit", "", "--weights nf4", "weights"},
    {"load-in-8bit", "", "--weights int8", "weights"},
    {"bits", "", "--to int4, or int8, int3, int2", "group"},
    {"bit", "", "--to int4, or int8, int3, int2", "group"},
    {"wbits", "", "--to int4, or int8, int3, int2", "group"},
    {"q-bits", "", "--to int4, or int8, int3, int2", "group"},
    {"quant-method", "", "--to int4, or another form that --help lists", "group"},
    {"outtype", "", "--to f16 -o NAME.gguf", "group"},
    {"group-size", "", "--group N", "group"},
    {"q-group-size", "", "--group N", "group"},
    {"template", "", "leave it out, and put the template as chat_template.jinja into the model's folder", "pack"},
    {"chat-template", "", "leave it out, and put the template as chat_template.jinja into the model's folder", "pack"},
    {"eval-split", "", "leave it out: to hold out a part of the rows, train with --set dslaunch.data.eval_fraction=0.1", "pack"},
    {"eval-fraction", "", "leave it out: to hold out a part of the rows, train with --set dslaunch.data.eval_fraction=0.1", "pack"},
    {"eval-size", "", "leave it out: to hold out a part of the rows, train with --set dslaunch.data.eval_fraction=0.1", "pack"},
    {"val-size", "", "leave it out: to hold out a part of the rows, train with --set dslaunch.data.eval_fraction=0.1", "pack"},
    {"val-fraction", "", "leave it out: to hold out a part of the rows, train with --set dslaunch.data.eval_fraction=0.1", "pack"},
    {"dev-split", "", "leave it out: to hold out a part of the rows, train with --set dslaunch.data.eval_fraction=0.1", "pack"},
    {"tensor-parallel-size", "", "--tensor-ranks N, with N workers (--num-gpus N)", "tensor-ranks"},
    {"tp", "", "--tensor-ranks N, with N workers (--num-gpus N)", "tensor-ranks"},
    {"gpu-memory-utilization", "", "--cache-tokens N", "cache-tokens"},
    {"dtype", "", "--weights f32, bf16, fp16, int8, int4 or nf4", "weights"},
    {"api-key", "", "--api-key-file FILE", "api-key-file"},
    {"tail", "", "`| tail -n N` at the end of the command", "follow"},
    {"n", "", "`| tail -n N` at the end of the command", "follow"},
    {"tasks", "", "--choices FILE with one question per line", "choices"},
    {"limit", "", "--samples N", "samples"},
    {"num-fewshot", "", "leave it out, and write the examples into each prompt", "choices"},
    {"batch-size", "", "leave it out", "samples"},
    {"max-length", "", "--tokens N", "tokens"},
    {"lora", "", "--adapter DIR", "adapter"},
    {"enable-lora", "", "--adapter DIR", "adapter"},
    {"lora-scaled", "", "--adapter DIR", "adapter"},
    {"max-loras", "", "leave it out: one adapter is used, with --adapter DIR", "adapter"},
    {"max-lora-rank", "", "leave it out: the adapter's own rank is used", "adapter"},
    {"num-beams", "", "leave it out: there is no beam search; --temperature X draws tokens", "temperature"},
    {"do-sample", "", "--temperature X: above 0, tokens are drawn; 0 takes the likeliest", "temperature"},
    {"num-return-sequences", "", "leave it out: each prompt gets one text", "temperature"},
    {"no-repeat-ngram-size", "", "--repetition-penalty X", "temperature"},
    {"length-penalty", "", "leave it out: there is no beam search", "temperature"},
    {"split", "", "leave it out, and name only the files of that split; to hold out a part of the rows, train with --set dslaunch.data.eval_fraction=0.1", "pack"},
    {"max-length", "", "--context N", "pack"},
    {"max-seq", "", "--context N", "pack"},
    {"val-set-size", "", "leave it out: to hold out a part of the rows, train with --set dslaunch.data.eval_fraction=0.05", "pack"},
    {"test-size", "", "leave it out: to hold out a part of the rows, train with --set dslaunch.data.eval_fraction=0.05", "pack"},
    {"val-split", "", "leave it out: to hold out a part of the rows, train with --set dslaunch.data.eval_fraction=0.05", "pack"},
    {"validation-split", "", "leave it out: to hold out a part of the rows, train with --set dslaunch.data.eval_fraction=0.05", "pack"},
    {"text-column", "", "leave it out: columns are found by their names, such as `text` and `messages`; rename others", "pack"},
    {"text-field", "", "leave it out: columns are found by their names, such as `text` and `messages`; rename others", "pack"},
    {"text-key", "", "leave it out: columns are found by their names, such as `text` and `messages`; rename others", "pack"},
    {"dataset-text-field", "", "leave it out: columns are found by their names, such as `text` and `messages`; rename others", "pack"},
    {"shuffle", "", "leave it out: rows are shuffled while training", "pack"},
    {"num-workers", "", "--threads N", "pack"},
    {"n", "", "--once, which prints the screen one time", "once"},
    {"b", "", "--once, which prints the screen one time", "once"},
    {"p", "", "name the job without an option: dslaunch top JOB", "once"},
    {"pid", "", "name the job without an option: dslaunch top JOB", "once"},
    {"d", "", "--interval SECONDS", "once"},
};
// clang-format on

struct ForeignSubcommand {
    std::string_view command, words;  // WORDS: separated by blanks
    std::string_view here;
};

constexpr std::string_view kHeldOut =
    "to hold out a part of the rows, train with --set dslaunch.data.eval_fraction=0.1, or prepare "
    "two files";

constexpr ForeignSubcommand kForeignSubcommands[] = {
    {"dslaunch ckpt", "rm remove delete del prune clean",
     "`rm -r RUN/checkpoints/step-N` deletes a checkpoint; when training, --keep N keeps only the "
     "newest N"},
    {"dslaunch ckpt", "convert consolidate merge",
     "`dslaunch ckpt export` writes weights; `dslaunch ckpt import` reads them"},
    {"dslaunch ckpt", "resume load restore",
     "give --resume to the command that trained, with the same -o"},
    {"dslaunch model", "convert export quantize compress",
     "`dslaunch compress MODEL --to f16 -o NEW.gguf` writes a GGUF file, and --to int4 -o NEW a "
     "smaller folder; `dslaunch model import` reads a GGUF file"},
    {"dslaunch model", "download pull get fetch",
     "`hf download NAME --local-dir FOLDER` fetches a model: nothing is downloaded here"},
    {"dslaunch model", "run chat", "`dslaunch generate MODEL --chat TEXT` writes text"},
    {"dslaunch data", "split", kHeldOut},
    {"dslaunch data", "merge concat concatenate join cat combine",
     "`dslaunch data prepare A B --model MODEL -o rows.safetensors` reads several files of texts; "
     "rows that were prepared cannot be joined"},
    {"dslaunch data", "tokenize encode convert preprocess process make create",
     "`dslaunch data prepare FILE --model MODEL -o rows.safetensors` makes rows of tokens"},
    {"dslaunch data", "head view print inspect decode", "`dslaunch data show FILE` prints rows"},
    {"dslaunch data", "count info", "`dslaunch data stats FILE` counts rows and tokens"},
    {"dslaunch data", "download pull get fetch",
     "`hf download NAME --repo-type dataset --local-dir FOLDER` fetches a data set: nothing is "
     "downloaded here"},
};

constexpr std::string_view kItself = ": leave --launcher out: dslaunch itself starts the ranks";

// Values of --launcher in other programs, separated by blanks, and the advice for their users.
constexpr std::pair<std::string_view, std::string_view> kForeignLaunchers[] = {
    {"mpirun mpiexec mpi ompi", ": use openmpi"},
    {"srun sbatch", ": use slurm"},
    {"torchrun torch pytorch torch.distributed accelerate deepspeed standard", kItself},
    {"kubernetes k8s kubectl", ": use join, with the same command in each pod"},
    {"none", ": use local, or leave --launcher out"},
};

struct ForeignValue {
    std::string_view beginning;      // of the word, in lower case
    std::array<const char*, 2> own;  // the values here; null: only one
};

constexpr ForeignValue kForeignValues[] = {
    {"4bit", {"int4", "nf4"}},         {"4-bit", {"int4", "nf4"}},   {"q4", {"int4", "nf4"}},
    {"iq4", {"int4", "nf4"}},          {"fp4", {"nf4", "int4"}},     {"nf-4", {"nf4", nullptr}},
    {"w4", {"int4", nullptr}},         {"awq", {"int4", nullptr}},   {"gptq", {"int4", nullptr}},
    {"bitsandbytes", {"nf4", "int8"}}, {"bnb", {"nf4", "int8"}},     {"q5", {"int8", "int4"}},
    {"q6", {"int8", nullptr}},         {"q8", {"int8", nullptr}},    {"8bit", {"int8", nullptr}},
    {"8-bit", {"int8", nullptr}},      {"fp8", {"int8", nullptr}},   {"float8", {"fp8", "int8"}},
    {"w8", {"int8", nullptr}},         {"3bit", {"int3", nullptr}},  {"q3", {"int3", nullptr}},
    {"2bit", {"int2", nullptr}},       {"q2", {"int2", nullptr}},    {"half", {"fp16", "f16"}},
    {"float16", {"fp16", "f16"}},      {"f16", {"fp16", nullptr}},   {"fp16", {"f16", nullptr}},
    {"bfloat16", {"bf16", nullptr}},   {"float32", {"f32", "fp32"}}, {"fp32", {"f32", nullptr}},
    {"float", {"f32", "fp32"}},        {"gguf", {"f16", "q4_k_m"}},
};

}  // namespace

std::span<const ForeignName> foreign_names() {
    return kForeignNames;
}

std::string folded_name(std::string_view name) {
    std::string folded;
    char before = '-';
    for (const char c : name) {
        const auto letter = static_cast<unsigned char>(c);
        if (std::isupper(letter) != 0 && std::islower(static_cast<unsigned char>(before)) != 0)
            folded += '-';
        folded += c == '_' || c == ' ' ? '-' : static_cast<char>(std::tolower(letter));
        before = c;
    }
    return folded;
}

const ForeignName* find_foreign(std::string_view name) {
    return find_foreign(name, [](std::string_view option) { return option == "set"; });
}

std::string advice_of(const ForeignName& row) {
    const bool is_sentence = row.here.starts_with("leave ") || row.here.starts_with("give ") ||
                             row.here.starts_with("name ");
    return (is_sentence ? "" : "use ") + std::string(row.here);
}

std::string_view foreign_subcommand(std::string_view command, std::string_view word) {
    for (const ForeignSubcommand& row : kForeignSubcommands) {
        const std::vector<std::string> words = split(row.words, ' ');
        if (row.command == command && std::ranges::find(words, word) != words.end())
            return row.here;
    }
    return "";
}

std::string_view foreign_launcher(std::string_view name) {
    for (const auto& [names, advice] : kForeignLaunchers) {
        const std::vector<std::string> words = split(names, ' ');
        if (std::ranges::find(words, name) != words.end()) return advice;
    }
    return "";
}

std::string foreign_value(std::string_view value, std::span<const std::string> known) {
    const std::string word = lower(value);
    for (const ForeignValue& row : kForeignValues) {
        if (!word.starts_with(row.beginning)) continue;
        std::vector<std::string> own;
        for (const char* const choice : row.own)
            if (choice != nullptr && std::ranges::find(known, choice) != known.end())
                own.emplace_back(choice);
        if (!own.empty()) return join(own, " or ");
    }
    return "";
}

}  // namespace dslaunch
