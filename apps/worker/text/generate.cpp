// dsworker generate: text from a trained language model, to stdout as it is made.
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "decoder/sample/sampler.h"
#include "graph/adapter/merged_model.h"
#include "graph/archive/model.h"
#include "graph/archive/op_library.h"
#include "graph/lower/device_rewrite.h"
#include "graph/models/text_model.h"
#include "runtime/comm/device_backend.h"
#include "runtime/compute/rank_device.h"
#include "storage/adapter/adapter_changes.h"
#include "storage/huggingface/model_folder.h"
#include "storage/huggingface/named_place.h"
#include "worker/processors.h"
#include "worker/roles.h"
#include "worker/text/decoder_session.h"
#include "worker/text/generation_defaults.h"
#include "worker/text/module_runner.h"
#include "worker/text/prompts.h"
#include "worker/text/rank_process.h"
#include "worker/text/text_files.h"
#include "worker/text/text_output.h"

#include <ATen/Parallel.h>
#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>

namespace dslaunch::worker {
namespace {

struct GenerateArguments {
    DecoderArguments decoder;  // its model is the archive too
    PromptArguments prompt;
    WritingOptions writing;
    SamplingArguments sampling;
    std::optional<int64_t> tokens;
    std::string device = "cpu", as = "auto";
    std::vector<std::string> op_libraries;
    bool trust_model = false;
    bool names_prompt = false;  // an option gives one; else it comes from stdin
};

void declare(CommandLine& app, GenerateArguments& arguments) {
    app.add("MODEL", arguments.decoder.model,
            "an archive with logits(tokens) or forward(tokens) -> logits, or a Hugging Face folder")
        .required();
    app.add("--prompt TEXT", arguments.prompt.text,
            "text to continue; empty: the model begins by itself. Without --prompt, --prompt-ids, "
            "--chat and --file it is read from stdin");
    app.add("--prompt-ids LIST", arguments.prompt.ids, "ids of tokens to continue, as in 5,17,2");
    app.add("--chat TEXT", arguments.prompt.chat,
            "what a user says to the model, in its chat template");
    app.add("--system TEXT", arguments.prompt.system, "with --chat: the system message");
    app.add("--chat-template-kwargs JSON", arguments.prompt.template_kwargs,
            "with --chat and --file: variables of the chat template, as "
            "'{\"enable_thinking\": false}'");
    app.add("--file FILE", arguments.prompt.file,
            "a prompt each line: {\"prompt\": text}, {\"prompt_ids\": [5, 17]} or {\"messages\": "
            "[...]}; a line of JSON comes for each");
    app.add("--batch N", arguments.writing.sequences_max, "with --file: prompts at once")
        .show_default()
        .at_least(1);
    app.add("--tokens N", arguments.tokens,
            "tokens to make at most; default: generation_config.json's, else 200")
        .range(int64_t{0}, kPositionsMax);
    declare_sampling(app, arguments.sampling);
    app.add("--seed N", arguments.writing.sampling.seed, "of the draws").show_default().at_least(0);
    app.add("--stop TEXT", arguments.writing.stops,
            "ends the text, which it is no part of; repeatable");
    app.add("--ignore-eos", arguments.writing.ignores_end, "go on behind tokens that end a text");
    app.add("--context N", arguments.decoder.context, "tokens the model sees, 0: its own limit")
        .show_default()
        .at_least(0);
    app.add("--device NAME", arguments.device, "cpu, or cuda for the first GPU that is visible")
        .show_default()
        .one_of({"cpu", "cuda"});
    declare_decoder(app, arguments.decoder);
    app.add("--op-library FILE", arguments.op_libraries, kOpLibraryHelp);
    app.add("--trust-model", arguments.trust_model, kTrustModelHelp);
    app.add("--as NAME", arguments.as,
            "text, ids of tokens, or auto: text where the model's tokens have one")
        .show_default()
        .one_of({"auto", "text", "ids"});
}

// The GPU, if it is asked for; LibTorch learns of its CUDA library by it.
runtime::DeviceBackendPtr open_device(const std::string& name) {
    if (name == "cpu") return {};
    return runtime::open_device_backend(runtime::own_device_plugin(), 0);
}

std::vector<Prompt> prompts_of(const GenerateArguments& arguments, const TextFiles& files) {
    PromptArguments given = arguments.prompt;
    if (!arguments.names_prompt) {
        // No text, from a terminal or a pipe, is of use to a model of ids.
        static_cast<void>(files.require_codec());
        given.text = text_of_stdin();
    }
    if (given.file.empty()) return {prompt_of(given, files)};
    if (!given.text.empty() || given.ids || !given.chat.empty())
        fail(ExitCode::kUsage, "--file excludes --prompt, --prompt-ids and --chat");
    return prompts_of_file(given, files, arguments.decoder.model);
}

// Returns how to write texts: as ARGUMENTS say, else as the folder's generation_config.json says.
WritingOptions writing_of(const GenerateArguments& arguments, const TextFiles& files) {
    const storage::GenerationConfig& config = files.generation();
    WritingOptions writing = arguments.writing;
    const uint64_t seed = writing.sampling.seed;
    writing.sampling = sampling_of(arguments.sampling, config);
    writing.sampling.seed = seed;
    const std::optional<int64_t> tokens =
        arguments.tokens ? arguments.tokens : config.max_new_tokens;
    writing.tokens_max = tokens.value_or(writing.tokens_max);
    if (!tokens) writing.length_max = config.max_length;
    if (writing.stops.empty()) writing.stops = config.stop_strings;
    tell_generation("generate", arguments.sampling, config);
    if (!files.end_source().empty() && !writing.ignores_end)
        log_info("generate", "a text ends at {}", files.end_source());
    return writing;
}

// Positions that the longest of PROMPTS may take, and pages for as many as run at once.
int64_t pages_of(const WritingOptions& writing, const std::vector<Prompt>& prompts,
                 int64_t context) {
    int64_t longest = 1;
    for (const Prompt& prompt : prompts) longest = std::max(longest, std::ssize(prompt.tokens));
    const int64_t wanted =
        writing.length_max ? std::max(*writing.length_max, longest) : longest + writing.tokens_max;
    return decoder::pages_for(std::min(wanted, context)) *
           std::clamp<int64_t>(std::ssize(prompts), 1, writing.sequences_max);
}

// Lets RUNNER write what ARGUMENTS and OPTIONS ask for.
void write(decoder::StepRunner& runner, const GenerateArguments& arguments, WritingOptions options,
           const TextFiles& files, const std::vector<Prompt>& prompts) {
    options.as_text =
        arguments.as == "text" || (arguments.as == "auto" && files.codec() != nullptr);
    if (!options.as_text && arguments.writing.stops.empty()) options.stops.clear();
    if (!options.as_text && !options.stops.empty())
        fail(ExitCode::kUsage, "--stop is a text, and ids are written here: leave it out{}",
             arguments.as == "ids" ? ", or leave out --as ids" : "");
    if (arguments.prompt.file.empty()) {
        write_one(runner, files, options, prompts.front());
    } else {
        options.sequences_max = std::min(options.sequences_max, runner.rows_max());
        write_all(runner, files, options, prompts);
    }
}

// A Hugging Face folder: a decoder with a cache of keys and values.
void generate_with_decoder(const GenerateArguments& arguments, RankProcess& process) {
    if (!arguments.op_libraries.empty())
        fail(ExitCode::kUsage,
             "--op-library is for archives: the decoder of a Hugging Face folder uses none");
    if (arguments.trust_model)
        fail(ExitCode::kUsage,
             "--trust-model is for archives: nothing in a Hugging Face folder is executed");
    DecoderArguments decoder = arguments.decoder;
    decoder.streams_text = true;
    DecoderSession session(decoder, process);
    if (process.is_first()) {
        const TextFiles files(session.text_folder(), session.folder().config.vocabulary);
        const std::vector<Prompt> prompts = prompts_of(arguments, files);
        const WritingOptions writing = writing_of(arguments, files);
        session.open(pages_of(writing, prompts, session.context()));
        write(session.runner(), arguments, writing, files, prompts);
    } else {
        session.open(0);
    }
    session.finish();
}

// Any other model: the whole text is computed again for each token.
void generate_with_module(const GenerateArguments& arguments) {
    const DecoderArguments defaults;
    const DecoderArguments& given = arguments.decoder;
    if (given.weights != defaults.weights || given.cache != defaults.cache ||
        given.tensor_ranks != defaults.tensor_ranks)
        fail(
            ExitCode::kUsage,
            "--weights, --cache-dtype and --tensor-ranks are for a Hugging Face folder on CPUs: {} "
            "is run by its graph{}, which has none of them",
            printable(given.model), arguments.device == "cpu" ? "" : " on a GPU");
    if (given.threads > 0) {
        at::set_num_threads(static_cast<int>(given.threads));
    } else if (std::getenv("OMP_NUM_THREADS") == nullptr) {
        at::set_num_threads(processors_granted());
    }
    const runtime::DeviceBackendPtr gpu = open_device(arguments.device);
    const at::Device device = gpu ? runtime::torch_device(*gpu) : at::Device(at::kCPU);
    graph::load_op_libraries(arguments.op_libraries);
    const std::string& adapter = arguments.decoder.adapter;
    const graph::Trust trust = graph::trust_of(arguments.trust_model);
    if (const std::string other =
            adapter.empty() ? "" : storage::other_base_text(adapter, given.model);
        !other.empty())
        log_warn("adapter", "{}", other);
    graph::Model loaded = adapter.empty()
                              ? graph::Model::load(given.model, graph::Weights::kRequired, trust)
                              : graph::load_merged(given.model, adapter, trust).model;
    const torch::jit::Module& module = loaded.module();
    if (!device.is_cpu()) graph::rewrite_methods(module, device);
    graph::TextModel model(module, device, arguments.decoder.context);
    const TextFiles files(storage::model_folder_of(arguments.decoder.model).value_or(""),
                          model.vocab(), given.model);
    const std::vector<Prompt> prompts = prompts_of(arguments, files);
    if (files.codec() == nullptr && arguments.as == "auto")
        log_info("generate", "{}, so ids are printed", files.without_codec());
    const WritingOptions writing = writing_of(arguments, files);
    ModuleRunner runner(model, pages_of(writing, prompts, INT32_MAX));
    write(runner, arguments, writing, files, prompts);
}

}  // namespace

int generate_main(int argc, char** argv) {
    CommandLine app(
        {.does = "Lets a language model write: continues a prompt, answers a chat, or does so for "
                 "each line of a file. With options of hosts and ranks (dslaunch run --help), as "
                 "--hostfile, MODEL comes first and the ranks share it.",
         .examples = {"dslaunch generate run/model.pt --prompt \"In the beginning\" --tokens 400",
                      "dslaunch generate Qwen2.5-0.5B --chat \"What is the capital of France?\"",
                      "dslaunch generate Qwen2.5-0.5B --hostfile hostfile --file prompts.jsonl"},
         .docs = "docs/guide/generate.md"},
        "dslaunch generate");
    GenerateArguments arguments;
    declare(app, arguments);
    if (!app.parse({argv + 1, argv + argc})) return 0;
    if (std::ranges::any_of(arguments.writing.stops, &std::string::empty))
        fail(ExitCode::kUsage, "--stop is empty: every text would end at once");
    static_cast<void>(sampling_of(arguments.sampling, {}));  // says what is out of range

    for (const char* option : {"--prompt", "--prompt-ids", "--chat", "--file"})
        arguments.names_prompt |= app.count(option) > 0;
    arguments.decoder.model = storage::model_at(arguments.decoder.model);
    arguments.decoder.adapter = storage::adapter_at(arguments.decoder.adapter);
    const bool is_folder = storage::model_folder_of(arguments.decoder.model).has_value();
    return run_as_rank([&](RankProcess& process) {
        if (is_folder && arguments.device == "cpu") {
            generate_with_decoder(arguments, process);
        } else if (process.environment.world_size == 1) {
            generate_with_module(arguments);
        } else {
            fail(ExitCode::kUsage,
                 "{}: ranks share the decoder of a Hugging Face folder, on CPUs (leave --device "
                 "out); any other model, and a GPU, is used by one: leave the options of hosts out",
                 printable(arguments.decoder.model));
        }
    });
}

}  // namespace dslaunch::worker
