// dsworker generate: text from a trained language model, to stdout as it is made.
#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "graph/adapter/adapter_folder.h"
#include "graph/archive/model.h"
#include "graph/archive/op_library.h"
#include "graph/lower/device_rewrite.h"
#include "graph/models/text_model.h"
#include "runtime/comm/device_backend.h"
#include "runtime/compute/rank_device.h"
#include "worker/roles.h"

#include <c10/core/Device.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdio>

namespace dslaunch::worker {
namespace {

struct GenerateArguments {
    std::string archive, adapter, prompt, device = "cpu", as = "auto";
    std::vector<int64_t> prompt_ids;
    int64_t context = 0;
    std::vector<std::string> op_libraries;
    graph::GenerateOptions options;
};

void declare(CommandLine& app, GenerateArguments& arguments) {
    app.add("MODEL", arguments.archive,
            "an archive with logits(tokens) or forward(tokens) -> logits, or a Hugging Face folder")
        .required();
    app.add("--prompt TEXT", arguments.prompt, "text to continue; its bytes are the tokens");
    app.add("--prompt-ids LIST", arguments.prompt_ids, "token ids to continue, as in 5,17,2");
    app.add("--tokens N", arguments.options.tokens, "tokens to make").show_default().at_least(0);
    app.add("--temperature X", arguments.options.temperature,
            "how freely tokens are drawn, 0: always the likeliest")
        .show_default()
        .at_least(0);
    app.add("--top-k N", arguments.options.top_k, "draw among the k likeliest, 0: among all")
        .show_default()
        .at_least(0);
    app.add("--seed N", arguments.options.seed, "of the draws").show_default();
    app.add("--context N", arguments.context, "tokens the model sees, 0: its own limit")
        .show_default()
        .at_least(0);
    app.add("--device NAME", arguments.device, "cpu, or cuda for the first GPU that is visible")
        .show_default()
        .one_of({"cpu", "cuda"});
    app.add("--adapter DIR", arguments.adapter, "a trained adapter (LoRA), added to the weights");
    app.add("--op-library FILE", arguments.op_libraries, kOpLibraryHelp);
    app.add("--as NAME", arguments.as,
            "text (a token is a byte), ids, or auto: text up to 272 tokens of vocabulary")
        .show_default()
        .one_of({"auto", "text", "ids"});
}

// The GPU, if it is asked for; LibTorch learns of its CUDA library by it.
runtime::DeviceBackendPtr open_device(const std::string& name) {
    if (name == "cpu") return {};
    return runtime::open_device_backend(runtime::own_device_plugin(), 0);
}

std::vector<int64_t> prompt_of(const GenerateArguments& arguments, bool as_text) {
    if (!arguments.prompt_ids.empty()) {
        if (!arguments.prompt.empty())
            fail(ExitCode::kUsage, "--prompt and --prompt-ids exclude each other");
        return arguments.prompt_ids;
    }
    if (!as_text)
        fail(ExitCode::kUsage,
             "the tokens of this vocabulary are not bytes: give the prompt as --prompt-ids, or say "
             "--as text if they are");
    if (arguments.prompt.empty()) return {'\n'};
    std::vector<int64_t> tokens;
    for (const char c : arguments.prompt) tokens.push_back(static_cast<unsigned char>(c));
    return tokens;
}

void print(const std::string& text) {
    std::fwrite(text.data(), 1, text.length(), stdout);
    std::fflush(stdout);
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

    const runtime::DeviceBackendPtr gpu = open_device(arguments.device);
    const at::Device device = gpu ? runtime::torch_device(*gpu) : at::Device(at::kCPU);
    graph::load_op_libraries(arguments.op_libraries);
    graph::Model loaded = graph::Model::load(arguments.archive);
    if (!arguments.adapter.empty())
        static_cast<void>(graph::merge_adapter(loaded, graph::load_adapter(arguments.adapter),
                                               arguments.adapter));
    const torch::jit::Module& module = loaded.module();
    if (!device.is_cpu()) graph::rewrite_methods(module, device);
    graph::TextModel model(module, device, arguments.context);
    const bool as_text =
        arguments.as == "text" || (arguments.as == "auto" && model.vocab() <= graph::kByteVocabMax);
    if (!as_text)
        log_info("generate", "vocabulary={}: more than bytes, so token ids are printed",
                 model.vocab());
    const std::vector<int64_t> prompt = prompt_of(arguments, as_text);
    print(arguments.prompt);
    model.generate(prompt, arguments.options, [&](int64_t token) {
        print(as_text ? graph::byte_token_text(token) : std::to_string(token) + " ");
    });
    print("\n");
    return 0;
}

}  // namespace dslaunch::worker
