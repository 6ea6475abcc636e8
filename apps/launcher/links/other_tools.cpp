#include "launcher/links/other_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/text.h"
#include "base/text/words.h"
#include "launcher/links/deepspeed_names.h"

namespace dslaunch::launcher {
namespace {

// One command of another program.
struct OtherCommand {
    std::string_view tools;   // names of the program, separated by commas, without .py
    std::string_view verbs;   // first words after it, separated by commas; empty: any word or none
    std::string_view advice;  // MODEL is replaced by the model that the user names
};

constexpr std::string_view kTrainAdvice =
    "to train: dslaunch data prepare FILE --model MODEL -o rows.safetensors, then dslaunch MODEL "
    "--data rows.safetensors -o run (with --lora r=16 for an adapter)";
constexpr std::string_view kPreferAdvice =
    "to train on pairs of answers: dslaunch data prepare FILE --model MODEL -o pairs.safetensors, "
    "then dslaunch MODEL --data pairs.safetensors --loss dpo -o run";
constexpr std::string_view kOnlineAdvice =
    "training on answers that the model writes itself (PPO, GRPO) and reward models are not "
    "supported; for pairs of answers: dslaunch MODEL --data pairs.safetensors --loss dpo -o run";
constexpr std::string_view kTokenRowsAdvice =
    "to make rows of tokens: dslaunch data prepare FILE --model MODEL -o rows.safetensors";
constexpr std::string_view kMergeAdvice =
    "to add an adapter to its model: dslaunch model merge MODEL ADAPTER -o NEW";
constexpr std::string_view kChatAdvice =
    "for an answer: dslaunch generate MODEL --chat TEXT (each call answers one message)";
constexpr std::string_view kTextAdvice =
    "for text from a model: dslaunch generate MODEL --prompt TEXT";
constexpr std::string_view kServeAdvice = "for a server: dslaunch serve MODEL";
constexpr std::string_view kMeasureAdvice =
    "for perplexity: dslaunch data prepare FILE --model MODEL -o rows.safetensors, then dslaunch "
    "eval MODEL --data rows.safetensors";
constexpr std::string_view kTasksAdvice =
    "for perplexity: dslaunch eval MODEL --data rows.safetensors; for multiple choice: dslaunch "
    "eval MODEL --choices FILE, with a line of JSON for each question; tasks are not downloaded";
constexpr std::string_view kSpeedAdvice =
    "there is no benchmark of text generation; for the time of a training step: dslaunch plan "
    "MODEL --forecast";
constexpr std::string_view kFourBitsAdvice =
    "for weights in 4 bits: dslaunch compress MODEL --to int4 --calibrate rows.safetensors -o NEW "
    "(`dslaunch data prepare` writes the rows)";
constexpr std::string_view kDownloadAdvice =
    "dslaunch does not download models: use hf download ORG/NAME --local-dir NAME (pip install "
    "huggingface_hub)";
constexpr std::string_view kUploadAdvice =
    "dslaunch uploads nothing: use hf upload ORG/NAME FOLDER (pip install huggingface_hub)";
constexpr std::string_view kAccountAdvice = "dslaunch needs no account and no login";
constexpr std::string_view kReportAdvice = "for a bug report: dslaunch report";
constexpr std::string_view kCardAdvice =
    "there is no web page for training; training is started by a command: dslaunch MODEL --data "
    "FILE -o run, and `dslaunch report --html run` draws its curves";
constexpr std::string_view kCopiesAdvice =
    "there is no store of models: copy or link the model's folder, and name it: dslaunch generate "
    "MODEL --chat TEXT";
constexpr std::string_view kOnnxAdvice =
    "dslaunch writes no ONNX files and no TensorRT engines, only Hugging Face folders and GGUF "
    "files; for a GGUF file: dslaunch compress MODEL --to q8_0 -o NEW.gguf";
constexpr std::string_view kGgufAdvice =
    "for a GGUF file: dslaunch compress FOLDER --to q8_0 -o NEW.gguf, where FOLDER is a Hugging "
    "Face folder (--to f16, q4_k_m, … for other forms)";

constexpr std::string_view kConvertAdvice =
    "for an archive: dslaunch model import FOLDER -o train.pt; for a GGUF file: dslaunch compress "
    "FOLDER --to q8_0 -o NEW.gguf; for a Hugging Face folder: dslaunch ckpt export RUN NEW "
    "--format hf";

// clang-format off
constexpr OtherCommand kCommands[] = {
    {"accelerate", "config,default-config", "no config of hosts is needed: a hostfile lists the hosts (dslaunch --hostfile FILE …), and ds_config.json contains all other settings"},
    {"accelerate", "env", kReportAdvice},
    {"accelerate", "estimate-memory", "for the memory of a training: dslaunch plan MODEL"},
    {"accelerate", "test", "to check that a training computes the right numbers: dslaunch verify MODEL --data FILE"},
    {"accelerate", "merge-weights", "a run's weights are in its folder; for a checkpoint: dslaunch ckpt export RUN NEW --format hf"},
    {"axolotl", "preprocess", kTokenRowsAdvice},
    {"axolotl", "merge-lora,merge_lora", kMergeAdvice},
    {"axolotl", "inference,chat", kChatAdvice},
    {"axolotl", "vllm-serve", kServeAdvice},
    {"axolotl", "quantize", kFourBitsAdvice},
    {"axolotl,unsloth,unsloth-cli,unsloth_cli,xtuner,torchtune,mlx_lm.lora,autotrain,swift,ludwig", "", kTrainAdvice},
    {"trl", "dpo,kto,orpo,cpo", kPreferAdvice},
    {"trl", "grpo,rloo,reward,ppo", kOnlineAdvice},
    {"trl", "chat", kChatAdvice},
    {"trl", "vllm-serve", kServeAdvice},
    {"trl", "env", kReportAdvice},
    {"trl", "", kTrainAdvice},
    {"llamafactory-cli,lmf,llamafactory,llama-factory", "chat", kChatAdvice},
    {"llamafactory-cli,lmf,llamafactory,llama-factory", "api", kServeAdvice},
    {"llamafactory-cli,lmf,llamafactory,llama-factory", "export", kMergeAdvice},
    {"llamafactory-cli,lmf,llamafactory,llama-factory", "eval", kTasksAdvice},
    {"llamafactory-cli,lmf,llamafactory,llama-factory", "webui,webchat", kCardAdvice},
    {"llamafactory-cli,lmf,llamafactory,llama-factory", "env", kReportAdvice},
    {"llamafactory-cli,lmf,llamafactory,llama-factory", "", kTrainAdvice},
    {"litgpt", "chat,generate", kChatAdvice},
    {"litgpt", "serve", kServeAdvice},
    {"litgpt", "evaluate", kTasksAdvice},
    {"litgpt", "merge_lora", kMergeAdvice},
    {"litgpt", "download", kDownloadAdvice},
    {"litgpt", "", kTrainAdvice},
    {"run_clm,run_mlm,run_sft,finetune_lora,sft_trainer,transformers,peft-cli", "", kTrainAdvice},
    {"run_dpo,dpo", "", kPreferAdvice},
    {"grpo,ppo,rlhf", "", kOnlineAdvice},
    {"peft", "train,finetune", kTrainAdvice},
    {"peft,merge_lora,merge-lora,merge_peft_adapter", "", kMergeAdvice},
    {"llama-cli,llama-run,llama-simple,llama", "", kTextAdvice},
    {"llama-server", "", kServeAdvice},
    {"llama-quantize,quantize-gguf", "", kGgufAdvice},
    {"llama-perplexity,perplexity", "", kMeasureAdvice},
    {"llama-bench,llama-batched-bench,bench", "", kSpeedAdvice},
    {"llama-imatrix", "", "no importance matrix is needed: dslaunch compress FOLDER --to q4_k_m --calibrate rows.safetensors -o NEW.gguf measures it (`dslaunch data prepare` writes the rows)"},
    {"llama-export-lora", "", kMergeAdvice},
    {"llama-finetune", "", kTrainAdvice},
    {"llama-gguf,llama-gguf-split", "", "to see what a GGUF file contains: dslaunch model show MODEL; files are not split"},
    {"convert_hf_to_gguf,convert-hf-to-gguf,convert_lora_to_gguf,gguf", "", kGgufAdvice},
    {"llama.cpp,llamacpp", "", "for text: dslaunch generate MODEL --prompt TEXT; for a server: dslaunch serve MODEL; for a GGUF file: dslaunch compress FOLDER --to q8_0 -o NEW.gguf"},
    {"ollama", "run,chat", kChatAdvice},
    {"ollama", "pull,search", kDownloadAdvice},
    {"ollama", "push,signin,login", kUploadAdvice},
    {"ollama", "create,cp,rm,list,ls", kCopiesAdvice},
    {"ollama", "show", "to see what a model contains: dslaunch model show MODEL"},
    {"ollama", "ps", "for running servers: pgrep -af 'dslaunch serve' (dslaunch ps lists trainings)"},
    {"ollama", "stop", "to end a server: press Ctrl-C in its terminal, or send it SIGTERM: kill PID"},
    {"ollama", "", "for a server: dslaunch serve MODEL; for an answer: dslaunch generate MODEL --chat TEXT"},
    {"vllm", "chat", kChatAdvice},
    {"vllm", "complete", kTextAdvice},
    {"vllm", "bench", kSpeedAdvice},
    {"vllm,sglang,tgi,text-generation-launcher,text-generation-server,lmdeploy,api,openai,trtllm-serve,mii", "", kServeAdvice},
    {"lm_eval,lm-eval,lm_evaluation_harness,lighteval,helm,opencompass", "", kTasksAdvice},
    {"autogptq,auto-gptq,auto_gptq,gptq,gptqmodel,awq,autoawq,bitsandbytes,bnb,auto-round,llmcompressor,hqq", "", kFourBitsAdvice},
    {"optimum-cli,onnx,trtllm-build,ct2-transformers-converter", "", kOnnxAdvice},
    {"hf,huggingface-cli,huggingface_hub,modelscope", "download", kDownloadAdvice},
    {"hf,huggingface-cli,huggingface_hub,modelscope", "upload,upload-large-folder,repo", kUploadAdvice},
    {"hf,huggingface-cli,huggingface_hub,modelscope", "login,auth,whoami,logout", kAccountAdvice},
    {"hf,huggingface-cli,huggingface_hub,modelscope", "", kDownloadAdvice},
    {"upload,push-to-hub,push_to_hub,publish", "", kUploadAdvice},
    {"login,logout,whoami", "", kAccountAdvice},
    {"wandb", "", "a training with --set wandb.enabled=true writes its numbers for Weights & Biases; to send them: dslaunch-upload wandb RUN"},
    {"mlflow", "", "to send a run to MLflow: train with --set tensorboard.enabled=true, then dslaunch-upload mlflow RUN"},
    {"tensorboard", "", "a training with --set tensorboard.enabled=true writes event files; to show them, install tensorboard (pip install tensorboard), or use `dslaunch report --html RUN`"},
    {"nvidia-smi,rocm-smi,nvtop,gpustat", "", "for GPUs and who uses them: dslaunch ps --devices"},
    {"resume,continue", "", "to continue a run, use: dslaunch MODEL --data FILE -o RUN --resume"},
    {"profile", "", "`dslaunch plan MODEL` forecasts the cost of each module, and a training with --set flops_profiler.enabled=true measures it"},
    {"update,upgrade", "", "dslaunch does not update itself: install the new version"},
    {"distill", "", "to learn from a teacher while training: dslaunch MODEL --data FILE --config ds_config.json with compression_training (docs/guide/compress.md)"},
    {"prune", "", "to prune while training: dslaunch MODEL --data FILE --config ds_config.json with compression_training (docs/guide/compress.md)"},
    {"infer,predict,complete-text,completion-text", "", kTextAdvice},
    {"pretrain", "", kTrainAdvice},
    {"dataset,datasets", "", kTokenRowsAdvice},
    {"convert", "", kConvertAdvice},
};
// clang-format on

constexpr std::array<std::string_view, 10> kLaunchers = {"deepspeed",
                                                         "ds",
                                                         "torchrun",
                                                         "torch.distributed.run",
                                                         "torch.distributed.launch",
                                                         "mpirun",
                                                         "mpiexec",
                                                         "horovodrun",
                                                         "accelerate",
                                                         "colossalai"};

bool is_in(std::string_view list, std::string_view word) {
    return std::ranges::any_of(split(list, ','),
                               [&](const std::string& one) { return one == word; });
}

// Returns a program's name without folders and without .py.
std::string_view bare_name(std::string_view tool) {
    tool = tool.substr(tool.rfind('/') + 1);
    return tool.ends_with(".py") ? tool.substr(0, tool.size() - 3) : tool;
}

const OtherCommand* find_command(std::string_view tool, std::string_view verb) {
    const auto* const found = std::ranges::find_if(kCommands, [&](const OtherCommand& row) {
        return is_in(row.tools, tool) && (row.verbs.empty() || is_in(row.verbs, verb));
    });
    return found == std::end(kCommands) ? nullptr : found;
}

// Returns true if WORD is a file or folder that can be a model.
bool is_model_here(const std::string& word) {
    std::error_code unreadable;
    const std::filesystem::path path = word;
    return std::filesystem::is_regular_file(path / "config.json", unreadable) ||
           (std::filesystem::is_regular_file(path, unreadable) &&
            (word.ends_with(".gguf") || word.ends_with(".pt") || word.ends_with(".pt2")));
}

// Returns the first model that ARGUMENTS name: as a word, or after `=` or a comma in a word.
std::optional<std::string> model_in(std::span<const std::string> arguments) {
    for (const std::string& argument : arguments)
        for (const std::string& piece : split(argument, ','))
            if (const std::string word = piece.substr(piece.find('=') + 1); is_model_here(word))
                return word;
    return std::nullopt;
}

std::string with_model(std::string_view advice, const std::optional<std::string>& model) {
    std::string text(advice);
    constexpr std::string_view kPlace = "MODEL";
    for (size_t at = text.find(kPlace); model && at != std::string::npos;
         at = text.find(kPlace, at + 1))
        text.replace(at, kPlace.size(), shell_word(*model));
    return printable(text);
}

// Returns the command of dslaunch for ARGUMENTS of a launcher, the words after its name.
std::string launch_command(std::span<const std::string> arguments) {
    std::string command = "dslaunch";
    for (std::string word : arguments) {
        // mpirun's and accelerate's names for the number of workers.
        for (const std::string_view name : {"--num_processes", "--num-processes", "-np", "-n"})
            if (word == name || word.starts_with(fmt::format("{}=", name)))
                word = "--num_gpus" + word.substr(name.size());
        command += " " + shell_word(word);
    }
    return arguments.empty() ? command + " MODEL --data FILE" : printable(command);
}

// Returns advice with the command that a program of DeepSpeed means; empty if NAME is not such a
// program.
std::string deepspeed_advice(std::string_view name, std::span<const std::string> arguments) {
    const DeepSpeedName* const row = find_deepspeed_name(name);
    if (row == nullptr) return "";
    std::string command = "dslaunch";
    try {
        for (const std::string& word : row->translate(arguments)) command += " " + shell_word(word);
    } catch (const Error& error) {
        return fmt::format("this program corresponds to dslaunch {}; {}", row->meaning,
                           error.what());
    }
    return "use: " + printable(command);
}

}  // namespace

bool is_other_launcher(std::string_view tool, std::span<const std::string> arguments) {
    const std::string_view name = tool.substr(tool.rfind('/') + 1);
    if (name.starts_with("python") && arguments.size() > 1 && arguments[0] == "-m")
        return is_other_launcher(arguments[1], arguments.subspan(2));
    if (name == "accelerate") return !arguments.empty() && arguments[0] == "launch";
    return std::ranges::find(kLaunchers, name) != kLaunchers.end();
}

std::string other_tool_advice(std::string_view tool, std::span<const std::string> arguments) {
    const std::string_view name = tool.substr(tool.rfind('/') + 1);
    if (name.starts_with("python")) {
        if (arguments.size() < 2 || arguments[0] != "-m") return "";
        return other_tool_advice(arguments[1], arguments.subspan(2));
    }
    if (is_other_launcher(name, arguments)) {
        const bool has_verb = name == "accelerate" || name == "colossalai";
        return fmt::format(
            "dslaunch starts the ranks itself, so leave {} out: {}", printable(name),
            launch_command(has_verb && !arguments.empty() ? arguments.subspan(1) : arguments));
    }
    if (const std::string advice = deepspeed_advice(name, arguments); !advice.empty())
        return advice;
    const std::string verb = arguments.empty() ? "" : arguments.front();
    if (const OtherCommand* const row = find_command(bare_name(name), verb))
        return with_model(row->advice, model_in(arguments));
    if (name == "accelerate")
        return "dslaunch starts the ranks itself, so leave accelerate out: dslaunch TARGET";
    return "";
}

}  // namespace dslaunch::launcher
