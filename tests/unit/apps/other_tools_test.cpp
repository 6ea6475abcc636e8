// Commands of other programs, and the commands of dslaunch that are named for them.
#include "launcher/links/other_tools.h"

#include <fstream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/text.h"
#include "launcher/subcommands.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

using namespace dslaunch;
using namespace dslaunch::launcher;

namespace {

std::string advice(const std::string& line) {
    const std::vector<std::string> words = split(line, ' ');
    return other_tool_advice(words.front(), std::span(words).subspan(1));
}

}  // namespace

TEST_CASE("a launcher's command is answered with the user's own words") {
    for (const auto& [typed, here] : std::vector<std::pair<std::string, std::string>>{
             {"deepspeed --num_gpus=2 train.py --deepspeed ds.json",
              "dslaunch --num_gpus=2 train.py --deepspeed ds.json"},
             {"torchrun --nproc_per_node=2 train.py --lr 1e-4",
              "dslaunch --nproc_per_node=2 train.py --lr 1e-4"},
             {"/opt/bin/torchrun train.py", "dslaunch train.py"},
             {"python -m torch.distributed.run --nproc_per_node 2 train.py",
              "dslaunch --nproc_per_node 2 train.py"},
             {"accelerate launch train.py", "dslaunch train.py"},
             {"accelerate launch --num_processes 2 train.py", "dslaunch --num_gpus 2 train.py"},
             {"mpirun -np 2 ./program", "dslaunch --num_gpus 2 ./program"},
             {"deepspeed", "dslaunch MODEL --data FILE"}}) {
        CAPTURE(typed);
        CHECK_THAT(advice(typed), Catch::EndsWith(" out: " + here));
        const std::vector<std::string> words = split(typed, ' ');
        CHECK(is_other_launcher(words.front(), std::span(words).subspan(1)));
    }
}

TEST_CASE("a command of another tool is answered with the command that does the same") {
    for (const auto& [typed, here] : std::vector<std::pair<std::string, std::string>>{
             {"ollama run T", "dslaunch generate MODEL --chat TEXT"},
             {"ollama serve", "dslaunch serve MODEL"},
             {"ollama pull llama3", "hf download"},
             {"vllm serve T", "dslaunch serve MODEL"},
             {"vllm chat", "dslaunch generate MODEL --chat TEXT"},
             {"trl dpo", "--loss dpo"},
             {"trl sft", "dslaunch data prepare FILE --model MODEL -o rows.safetensors"},
             {"trl grpo", "not supported"},
             {"axolotl merge-lora a.yml", "dslaunch model merge MODEL ADAPTER -o NEW"},
             {"llamafactory-cli chat a.yml", "dslaunch generate MODEL --chat TEXT"},
             {"llama-quantize in.gguf out.gguf q4_0", "dslaunch compress FOLDER --to q8_0 -o NEW"},
             {"convert_hf_to_gguf.py T", "dslaunch compress FOLDER --to q8_0 -o NEW.gguf"},
             {"lm-eval --tasks arc_easy", "dslaunch eval MODEL --choices FILE"},
             {"huggingface-cli login", "no login"},
             {"ds_report", "dslaunch report"},
             {"ds_elastic -c ds.json", "dslaunch config check ds.json"},
             {"accelerate estimate-memory T", "dslaunch plan MODEL"}}) {
        CAPTURE(typed);
        CHECK_THAT(advice(typed), Catch::Contains(here));
        const std::vector<std::string> words = split(typed, ' ');
        CHECK_FALSE(is_other_launcher(words.front(), std::span(words).subspan(1)));
    }
}

TEST_CASE("each command that advice names is a subcommand, a model or the user's words") {
    for (const char* typed : {"ollama run T",
                              "ollama list",
                              "trl dpo",
                              "trl sft",
                              "trl grpo",
                              "lm_eval",
                              "vllm bench",
                              "llama-cli",
                              "llama-imatrix",
                              "gptq",
                              "onnx",
                              "wandb",
                              "tensorboard",
                              "nvidia-smi",
                              "resume",
                              "profile",
                              "distill",
                              "convert",
                              "llamafactory-cli webui",
                              "accelerate test",
                              "accelerate merge-weights",
                              "llama-perplexity",
                              "axolotl preprocess"}) {
        CAPTURE(typed);
        const std::string text = advice(typed);
        REQUIRE_FALSE(text.empty());
        std::vector<std::string> words = split(text, ' ');
        for (size_t i = 0; i + 1 < words.size(); ++i) {
            if (words[i] != "dslaunch" && words[i] != "`dslaunch") continue;
            std::string next = words[i + 1];
            while (!next.empty() && std::string_view("`,;:").find(next.back()) != std::string::npos)
                next.pop_back();
            const bool is_verb = next == "does" || next == "writes" || next == "uploads" ||
                                 next == "needs" || next == "starts";
            if (is_verb) continue;
            CAPTURE(next);
            CHECK((next == "MODEL" || next.starts_with("--") || find_subcommand(next) != nullptr));
        }
    }
}

TEST_CASE("the model that the user names stands in the advice, and other programs get none") {
    const test::TemporaryFolder folder;
    const std::string& path = folder.path();
    std::ofstream(path + "/config.json") << "{}";
    CHECK_THAT(advice("vllm serve " + path + " --port 80"),
               Catch::EndsWith("dslaunch serve " + path));
    CHECK_THAT(advice("lm_eval --model hf --model_args pretrained=" + path + ",dtype=float"),
               Catch::Contains("dslaunch eval " + path + " --choices"));
    for (const char* typed : {"ls -l", "python train.py", "./train", "nproc", "bash -c x"}) {
        CHECK(advice(typed).empty());
        CHECK_FALSE(is_other_launcher(split(typed, ' ').front(), {}));
    }
}
