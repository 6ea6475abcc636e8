// dsworker generate: text from a trained language model, to stdout as it is made.
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "graph/adapter/adapter_folder.h"
#include "graph/archive/model.h"
#include "graph/archive/op_library.h"
#include "graph/lower/device_rewrite.h"
#include "graph/models/text_model.h"
#include "infer/engine/engine.h"
#include "infer/text/stop_texts.h"
#include "runtime/comm/device_backend.h"
#include "runtime/compute/rank_device.h"
#include "storage/huggingface/model_folder.h"
#include "worker/roles.h"
#include "worker/text/decoder_session.h"
#include "worker/text/module_runner.h"
#include "worker/text/rank_process.h"
#include "worker/text/text_files.h"

#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdio>

namespace dslaunch::worker {
namespace {

struct GenerateArguments {
    DecoderArguments decoder;  // its model is the archive too
    std::string prompt, device = "cpu", as = "auto";
    std::vector<int64_t> prompt_ids;
    int64_t tokens = 200;
    infer::SamplingOptions sampling;
    std::vector<std::string> op_libraries, stops;
    bool ignores_end = false;
};

void declare(CommandLine& app, GenerateArguments& arguments) {
    app.add("MODEL", arguments.decoder.model,
            "an archive with logits(tokens) or forward(tokens) -> logits, or a Hugging Face folder")
        .required();
    app.add("--prompt TEXT", arguments.prompt, "text to continue");
    app.add("--prompt-ids LIST", arguments.prompt_ids, "token ids to continue, as in 5,17,2");
    app.add("--tokens N", arguments.tokens, "tokens to make at most").show_default().at_least(0);
    app.add("--temperature X", arguments.sampling.temperature,
            "how freely tokens are drawn, 0: always the likeliest")
        .show_default()
        .at_least(0);
    app.add("--top-k N", arguments.sampling.top_k, "draw among the k likeliest, 0: among all")
        .show_default()
        .at_least(0);
    app.add("--seed N", arguments.sampling.seed, "of the draws").show_default();
    app.add("--top-p X", arguments.sampling.top_p, "draw among the likeliest that reach this sum")
        .show_default();
    app.add("--min-p X", arguments.sampling.min_p,
            "leave out what is less likely than this part of the likeliest")
        .show_default();
    app.add("--repetition-penalty X", arguments.sampling.repetition_penalty,
            "makes tokens of the text less likely, 1: does not")
        .show_default();
    app.add("--stop TEXT", arguments.stops, "ends the text, which it is no part of; repeatable");
    app.add("--ignore-eos", arguments.ignores_end, "go on behind tokens that end a text");
    app.add("--context N", arguments.decoder.context, "tokens the model sees, 0: its own limit")
        .show_default()
        .at_least(0);
    app.add("--device NAME", arguments.device, "cpu, or cuda for the first GPU that is visible")
        .show_default()
        .one_of({"cpu", "cuda"});
    declare_decoder(app, arguments.decoder);
    app.add("--op-library FILE", arguments.op_libraries, kOpLibraryHelp);
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

// The prompt as tokens; without one a text begins with a newline.
std::vector<int32_t> prompt_of(const GenerateArguments& arguments, const TextFiles& files) {
    if (arguments.prompt_ids.empty())
        return files.require_codec().encode(arguments.prompt.empty() ? "\n" : arguments.prompt,
                                            /*is_rendered=*/false);
    if (!arguments.prompt.empty())
        fail(ExitCode::kUsage, "--prompt and --prompt-ids exclude each other");
    std::vector<int32_t> tokens;
    for (const int64_t token : arguments.prompt_ids) {
        if (token < 0 || token > INT32_MAX)
            fail(ExitCode::kInput, "--prompt-ids: {} is no token", token);
        tokens.push_back(static_cast<int32_t>(token));
    }
    return tokens;
}

void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.length(), stdout);
    std::fflush(stdout);
}

// Lets RUNNER write, and prints the text as it is made.
void write_text(infer::StepRunner& runner, const GenerateArguments& arguments,
                const TextFiles& files, infer::Request request) {
    const bool as_text =
        arguments.as == "text" || (arguments.as == "auto" && files.codec() != nullptr);
    const std::unique_ptr<infer::TextStream> stream =
        as_text ? files.require_codec().stream() : nullptr;
    infer::StopTexts stops(arguments.stops);
    if (as_text) print(arguments.prompt);
    if (request.tokens_max == 0) return;
    infer::Engine engine(runner, {1, 1});
    static_cast<void>(engine.add(std::move(request)));
    while (!engine.idle() && !stops.is_stopped())
        for (const infer::MadeToken& made : engine.step()) {
            if (!as_text) {
                print(std::to_string(made.token) + " ");
            } else if (made.end != infer::EndReason::kEndToken) {
                print(stops.push(stream->push(made.token)));
            }
        }
    if (as_text && !stops.is_stopped()) print(stops.push(stream->finish()) + stops.finish());
}

infer::Request request_of(const GenerateArguments& arguments, const TextFiles& files) {
    infer::Request request;
    request.prompt = prompt_of(arguments, files);
    request.tokens_max = arguments.tokens;
    request.sampling = arguments.sampling;
    if (!arguments.ignores_end) request.end_tokens = files.end_tokens();
    return request;
}

// A Hugging Face folder: a decoder with a cache of keys and values.
void generate_with_decoder(const GenerateArguments& arguments, RankProcess& process) {
    DecoderSession session(arguments.decoder, process);
    const TextFiles files(arguments.decoder.model, session.folder().config.vocabulary);
    infer::Request request = request_of(arguments, files);
    const int64_t positions = std::ssize(request.prompt) + arguments.tokens;
    session.open(infer::pages_for(std::min(positions, session.context())));
    if (process.is_first()) write_text(session.runner(), arguments, files, std::move(request));
    session.finish();
}

// Any other model: the whole text is computed again for each token.
void generate_with_module(const GenerateArguments& arguments) {
    const runtime::DeviceBackendPtr gpu = open_device(arguments.device);
    const at::Device device = gpu ? runtime::torch_device(*gpu) : at::Device(at::kCPU);
    graph::load_op_libraries(arguments.op_libraries);
    graph::Model loaded = graph::Model::load(arguments.decoder.model);
    const std::string& adapter = arguments.decoder.adapter;
    if (!adapter.empty())
        static_cast<void>(graph::merge_adapter(loaded, graph::load_adapter(adapter), adapter));
    const torch::jit::Module& module = loaded.module();
    if (!device.is_cpu()) graph::rewrite_methods(module, device);
    graph::TextModel model(module, device, arguments.decoder.context);
    const TextFiles files(storage::model_folder_of(arguments.decoder.model).value_or(""),
                          model.vocab());
    if (files.codec() == nullptr)
        log_info("generate", "vocabulary={}: more than bytes, so token ids are printed",
                 model.vocab());
    infer::Request request = request_of(arguments, files);
    ModuleRunner runner(model, infer::pages_for(std::ssize(request.prompt) + request.tokens_max));
    write_text(runner, arguments, files, std::move(request));
}

}  // namespace

int generate_main(int argc, char** argv) {
    CommandLine app(
        {.does = "Lets a trained model write text: continues a prompt.",
         .examples = {"dslaunch generate run/model.pt --prompt \"In the beginning\" --tokens 400"},
         .docs = "docs/cli.md"},
        "dslaunch generate");
    GenerateArguments arguments;
    declare(app, arguments);
    if (!app.parse({argv + 1, argv + argc})) return 0;

    const bool is_folder = storage::model_folder_of(arguments.decoder.model).has_value();
    return run_as_rank([&](RankProcess& process) {
        if (is_folder && arguments.device == "cpu") {
            generate_with_decoder(arguments, process);
        } else if (process.environment.world_size == 1) {
            generate_with_module(arguments);
        } else {
            fail(ExitCode::kUsage,
                 "{}: ranks share the decoder of a Hugging Face folder, on CPUs; any other model "
                 "is run by one",
                 printable(arguments.decoder.model));
        }
        if (process.is_first()) print("\n");
    });
}

}  // namespace dslaunch::worker
