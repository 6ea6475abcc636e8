// dsworker model new gpt|mlp: a fresh TorchScript model in an archive, made without Python.
#include "base/error.h"

#include <torch/csrc/jit/api/module.h>

#include <CLI/CLI.hpp>

#include "base/log.h"
#include "graph/models/archive.h"
#include "graph/models/models.h"
#include "worker/roles.h"

#include <optional>

namespace dslaunch::worker {
namespace {

struct GptArguments {
    std::string out, size = "small";
    std::optional<int64_t> vocab, width, heads, layers, context;
    double dropout = 0.0;
    bool tie = false;
    uint64_t seed = 1234;
};

void add_gpt(CLI::App& kinds, GptArguments& arguments) {
    CLI::App* gpt =
        kinds.add_subcommand("gpt", "a GPT: forward(tokens, targets) -> loss, logits(tokens)");
    gpt->add_option("-o,--out", arguments.out, "archive to write")->required();
    gpt->add_option("--size", arguments.size,
                    "tiny, small or medium; the options below change single numbers of it")
        ->capture_default_str();
    gpt->add_option("--vocab", arguments.vocab, "number of tokens; 256: a token is a byte");
    gpt->add_option("--width", arguments.width, "width of the residual stream");
    gpt->add_option("--heads", arguments.heads, "attention heads, a divisor of the width");
    gpt->add_option("--layers", arguments.layers, "number of blocks");
    gpt->add_option("--context", arguments.context, "longest sequence in tokens");
    gpt->add_option("--dropout", arguments.dropout, "probability, 0: none")->capture_default_str();
    gpt->add_flag("--tie", arguments.tie, "the output layer shares the token embedding's weights");
    gpt->add_option("--seed", arguments.seed, "of the initial weights")->capture_default_str();
}

torch::jit::Module make_gpt_from(const GptArguments& arguments) {
    graph::GptOptions options = graph::gpt_options(arguments.size);
    options.vocab = arguments.vocab.value_or(options.vocab);
    options.width = arguments.width.value_or(options.width);
    options.heads = arguments.heads.value_or(options.heads);
    options.layers = arguments.layers.value_or(options.layers);
    options.context = arguments.context.value_or(options.context);
    options.dropout = arguments.dropout;
    options.tie = arguments.tie;
    options.seed = arguments.seed;
    return graph::make_gpt(options);
}

void add_mlp(CLI::App& kinds, std::string& out, graph::MlpOptions& options) {
    CLI::App* mlp =
        kinds.add_subcommand("mlp", "linear layers with ReLU between: forward(x) -> output");
    mlp->add_option("-o,--out", out, "archive to write")->required();
    mlp->add_option("--widths", options.widths, "input, hidden…, output, as in 1000,1000,10")
        ->delimiter(',')
        ->capture_default_str();
    mlp->add_option("--seed", options.seed, "of the initial weights")->capture_default_str();
}

}  // namespace

int model_main(int argc, char** argv) {
    CLI::App app("make a new model", "model");
    app.require_subcommand(1);
    CLI::App* kinds = app.add_subcommand("new", "make a new model");
    kinds->require_subcommand(1);
    GptArguments gpt;
    add_gpt(*kinds, gpt);
    std::string mlp_out;
    graph::MlpOptions mlp;
    add_mlp(*kinds, mlp_out, mlp);
    if (!parse_command_line(app, {argv + 1, argv + argc})) return 0;

    const bool is_gpt = kinds->got_subcommand("gpt");
    const std::string& out = is_gpt ? gpt.out : mlp_out;
    const torch::jit::Module module = is_gpt ? make_gpt_from(gpt) : graph::make_mlp(mlp);
    graph::save_archive(module, out);
    log_info("model", "wrote {} parameters={}", out, graph::parameters_numel(module));
    return 0;
}

}  // namespace dslaunch::worker
