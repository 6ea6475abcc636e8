// Maps names of settings in Trainer, TRL, PEFT, axolotl, LLaMA-Factory and accelerate, and of
// options in llama.cpp, vLLM and lm-eval, to the names used here: keys of the config and options of
// the command lines. No threads: pure.
#pragma once

#include <algorithm>
#include <cctype>
#include <iterator>
#include <string>
#include <string_view>

namespace dslaunch {

// One row: a name from another program and the advice for its user.
struct ForeignName {
    std::string_view name;  // in lower case, with `-` in place of `_`
    std::string_view key;   // the key of the config; empty if the config has none
    std::string_view here;  // what to give on the command line
    // The row applies to the commands that have this option. The commands that train have the
    // option `set`.
    std::string_view command = "set";
};

// clang-format off
inline constexpr ForeignName kForeignNames[] = {
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
    {"logging-steps", "", "leave it out: metrics.jsonl in the --output folder has every step"},
    {"logging-strategy", "", "leave it out: metrics.jsonl in the --output folder has every step"},
    {"report-to", "tensorboard.enabled", "--set tensorboard.enabled=true, wandb.enabled=true or comet.enabled=true; for none leave it out: metrics.jsonl has every step"},
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
    {"flash-attention", "", "leave it out: attention is chosen by itself"},
    {"flash-attn", "", "leave it out: attention is chosen by itself"},
    {"attn-implementation", "", "leave it out: attention is chosen by itself"},
    {"use-flash-attention-2", "", "leave it out: attention is chosen by itself"},
    {"trust-remote-code", "", "leave it out: no Python of a model is run"},
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
    {"ngl", "", "--device cuda, if this command has it; the GPU then computes all layers", "weights"},
    {"n-gpu-layers", "", "--device cuda, if this command has it; the GPU then computes all layers", "weights"},
    {"gpu-layers", "", "--device cuda, if this command has it; the GPU then computes all layers", "weights"},
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
    {"split", "", "leave it out, and name only the files of that split; to hold a part of the rows out, train with --set dslaunch.data.eval_fraction=0.1", "pack"},
    {"max-length", "", "--context N", "pack"},
    {"max-seq", "", "--context N", "pack"},
    {"val-set-size", "", "leave it out: to hold a part of the rows out, train with --set dslaunch.data.eval_fraction=0.05", "pack"},
    {"test-size", "", "leave it out: to hold a part of the rows out, train with --set dslaunch.data.eval_fraction=0.05", "pack"},
    {"val-split", "", "leave it out: to hold a part of the rows out, train with --set dslaunch.data.eval_fraction=0.05", "pack"},
    {"validation-split", "", "leave it out: to hold a part of the rows out, train with --set dslaunch.data.eval_fraction=0.05", "pack"},
    {"text-column", "", "leave it out: columns are found by their names, such as `text` and `messages`; rename others", "pack"},
    {"text-field", "", "leave it out: columns are found by their names, such as `text` and `messages`; rename others", "pack"},
    {"text-key", "", "leave it out: columns are found by their names, such as `text` and `messages`; rename others", "pack"},
    {"dataset-text-field", "", "leave it out: columns are found by their names, such as `text` and `messages`; rename others", "pack"},
    {"shuffle", "", "leave it out: rows are shuffled while training", "pack"},
    {"num-workers", "", "--threads N", "pack"},
    {"n", "", "--once, which prints the screen one time", "once"},
    {"b", "", "--once, which prints the screen one time", "once"},
    {"p", "", "give the job as a word: dslaunch top JOB", "once"},
    {"pid", "", "give the job as a word: dslaunch top JOB", "once"},
    {"d", "", "--interval SECONDS", "once"},
};
// clang-format on

// Returns NAME in the form of the table: "maxSteps", "Max_Steps" -> "max-steps".
[[nodiscard]] inline std::string folded_name(std::string_view name) {
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

// Returns the row of kForeignNames for NAME that applies to the command; nullptr if there is none.
// NAME may have upper case, and `_` in place of `-`. HAS_OPTION(option) returns true if the command
// has the option.
template <typename HasOption>
[[nodiscard]] const ForeignName* find_foreign(std::string_view name, const HasOption& has_option) {
    const std::string folded = folded_name(name);
    const auto* const row = std::ranges::find_if(kForeignNames, [&](const ForeignName& one) {
        return one.name == folded && has_option(one.command);
    });
    return row == std::end(kForeignNames) ? nullptr : row;
}

// Returns the advice for a user who gave ROW's name on the command line: "use --lr X", "leave it
// out: …".
[[nodiscard]] inline std::string advice_of(const ForeignName& row) {
    const bool is_sentence = row.here.starts_with("leave ") || row.here.starts_with("give ") ||
                             row.here.starts_with("name ");
    return (is_sentence ? "" : "use ") + std::string(row.here);
}

// Returns the row for NAME that applies to the config and to the commands that train.
[[nodiscard]] inline const ForeignName* find_foreign(std::string_view name) {
    return find_foreign(name, [](std::string_view option) { return option == "set"; });
}

}  // namespace dslaunch
