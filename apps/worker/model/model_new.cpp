// dsworker model new gpt|mlp: writes an archive with a new model.
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/log.h"
#include "graph/models/models.h"
#include "graph/models/save_archive.h"
#include "storage/disk/output_place.h"
#include "worker/model/model_commands.h"

namespace dslaunch::worker {
namespace {

struct GptArguments {
    std::string out, size = "small";
    std::optional<int64_t> vocab, width, heads, layers, context;
    double dropout = 0.0;
    bool tie = false;
    uint64_t seed = 1234;
    bool force = false;
};

struct NewArguments {
    GptArguments gpt;
    std::string mlp_out;
    bool mlp_force = false;
    graph::MlpOptions mlp;
};

void add_gpt(CommandLine& kinds, GptArguments& arguments) {
    CommandLine& gpt = kinds.subcommand(
        "gpt", {.does = "Makes a GPT: forward(tokens, targets) -> loss, logits(tokens).",
                .examples = {"dslaunch model new gpt --size tiny --vocab 256 -o train.pt"},
                .docs = "docs/reference/cli.md"});
    gpt.add("-o,--output FILE", arguments.out, "archive to write").required();
    gpt.add("--size NAME", arguments.size,
            "tiny, small or medium; the options below override single values")
        .show_default();
    gpt.add("--vocab N", arguments.vocab, "size of the vocabulary; 256: each byte is a token");
    gpt.add("--width N", arguments.width, "width of the residual stream");
    gpt.add("--heads N", arguments.heads, "number of attention heads; must divide the width");
    gpt.add("--layers N", arguments.layers, "number of blocks");
    gpt.add("--context N", arguments.context, "longest sequence in tokens");
    gpt.add("--dropout P", arguments.dropout, "probability of dropout; 0: none").show_default();
    gpt.add("--tie", arguments.tie, "the output layer shares the token embedding's weights");
    gpt.add("--seed N", arguments.seed, "seed of the initial weights").show_default();
    gpt.add("--force", arguments.force, storage::kForceHelp);
}

torch::jit::Module make_gpt_from(const GptArguments& arguments) {
    graph::GptOptions options = graph::gpt_options(arguments.size);
    options.vocab = arguments.vocab.value_or(options.vocab);
    options.width = arguments.width.value_or(options.width);
    options.heads = arguments.heads.value_or(options.heads);
    options.layers = arguments.layers.value_or(options.layers);
    options.context = arguments.context.value_or(options.context);
    options.dropout = arguments.dropout;
    options.is_tied = arguments.tie;
    options.seed = arguments.seed;
    return graph::make_gpt(options);
}

void add_mlp(CommandLine& kinds, NewArguments& arguments) {
    CommandLine& mlp = kinds.subcommand(
        "mlp",
        {.does = "Makes a model of linear layers with ReLU between them: forward(x) -> output.",
         .examples = {"dslaunch model new mlp --widths 784,256,10 -o train.pt"},
         .docs = "docs/reference/cli.md"});
    mlp.add("-o,--output FILE", arguments.mlp_out, "archive to write").required();
    mlp.add("--widths LIST", arguments.mlp.widths,
            "widths of input, hidden…, output, e.g. 1000,1000,10")
        .show_default();
    mlp.add("--seed N", arguments.mlp.seed, "seed of the initial weights").show_default();
    mlp.add("--force", arguments.mlp_force, storage::kForceHelp);
}

void run_new(const NewArguments& arguments, bool is_gpt) {
    const std::string& out = is_gpt ? arguments.gpt.out : arguments.mlp_out;
    storage::require_new_file(out, is_gpt ? arguments.gpt.force : arguments.mlp_force);
    const torch::jit::Module module =
        is_gpt ? make_gpt_from(arguments.gpt) : graph::make_mlp(arguments.mlp);
    graph::save_archive(module, out);
    log_info("model", "wrote {} parameters={}", out, graph::parameters_numel(module));
}

}  // namespace

std::function<void()> add_model_new(CommandLine& app) {
    const auto arguments = std::make_shared<NewArguments>();
    CommandLine& kinds =
        app.subcommand("new", {.does = "Writes a new model archive.",
                               .examples = {"dslaunch model new gpt --size tiny -o train.pt"},
                               .docs = "docs/reference/cli.md"});
    add_gpt(kinds, arguments->gpt);
    add_mlp(kinds, *arguments);
    return [arguments, &kinds] { run_new(*arguments, kinds.chose("gpt")); };
}

}  // namespace dslaunch::worker
