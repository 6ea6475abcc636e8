#include "launcher/jobs/next_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/text.h"
#include "base/text/option_name.h"
#include "base/text/words.h"
#include "launch/output/run_record.h"
#include "launch/plan/secrets.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::launcher {
namespace {

namespace fs = std::filesystem;

constexpr size_t kConfigBytesMax = 16U << 20;

bool is_there(const std::string& path) {
    std::error_code missing;
    return fs::exists(path, missing);
}

// Returns true if the file at PATH contains WORD.
bool holds_word(const std::string& path, std::string_view word) {
    try {
        return read_file(path, kConfigBytesMax).find(word) != std::string::npos;
    } catch (const Error&) {
        return false;
    }
}

// Returns true if WORD is --resume or a shorter form, down to --res. No other option begins with
// --res.
bool is_resume(const std::string& word) {
    constexpr size_t kShortest = 5;  // --res
    const std::string name = with_dashes(word.substr(0, word.find('=')));
    return name.size() >= kShortest && std::string_view("--resume").starts_with(name);
}

// Returns true if the Hugging Face FOLDER contains a language model and its tokenizer.
bool writes_text(const std::string& folder) {
    const std::string config = folder + "/config.json";
    return is_there(folder + "/tokenizer.json") &&
           (holds_word(config, "ForCausalLM") || holds_word(config, "LMHeadModel") ||
            holds_word(config, "ForConditionalGeneration"));
}

bool has_chat_template(const std::string& folder) {
    return is_there(folder + "/chat_template.jinja") ||
           holds_word(folder + "/tokenizer_config.json", "\"chat_template\"");
}

}  // namespace

std::string resume_command(std::span<const std::string> words, const RunOptions& options,
                           bool is_own) {
    if (options.output.empty()) return "";
    std::vector<std::string> kept;
    for (const std::string& word : words)
        if (!is_resume(word)) kept.push_back(word);
    std::vector<std::string> added = {"--resume"};
    if (is_own) added = {"-o", options.output, "--resume"};
    // Words after `--` are not options.
    const auto place = std::ranges::find(kept, "--");
    kept.insert(place == kept.end() ? place : kept.begin(), added.begin(), added.end());
    std::string command = "dslaunch";
    for (const std::string& word : launch::hide_in_command(kept)) command += " " + shell_word(word);
    return command;
}

std::string use_command(const launch::JobSpec& spec, const RunOptions& options) {
    const std::string& output = spec.output_directory;
    if (output.empty() || !is_there(fmt::format("{}/{}", output, spec.weight_files.front())))
        return "";
    const std::string model =
        (fs::path(spec.working_directory) / spec.target).lexically_normal().string();
    const std::string made = shell_word(path_from_here(output));
    const auto folder = storage::model_folder_of(model);
    const bool is_adapter = !is_there(output + "/model.safetensors");
    if (!folder) {
        const auto run = is_adapter ? std::nullopt : launch::find_run_record(output);
        if (!run || run->prompts.empty()) return "";
        std::string command =
            fmt::format("dslaunch generate {} {}", made,
                        run->prompts == "ids" ? "--prompt-ids 5,17,2" : "--prompt \"…\"");
        // The trained archive contains the code of the original model, so the command needs the
        // same options for trust.
        if (options.trust_model) command += " --trust-model";
        for (const std::string& library : options.op_libraries)
            command += " --op-library " + shell_word(library);
        return command;
    }
    if (!writes_text(*folder)) return "";
    const std::string prompt = has_chat_template(*folder) ? "--chat" : "--prompt";
    return is_adapter ? fmt::format("dslaunch generate {} --adapter {} {} \"…\"",
                                    shell_word(path_from_here(model)), made, prompt)
                      : fmt::format("dslaunch generate {} {} \"…\"", made, prompt);
}

}  // namespace dslaunch::launcher
