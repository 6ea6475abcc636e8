// dsworker model new|import|merge|show: archives that are made and looked into without Python.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <fmt/core.h>
#include <torch/csrc/jit/api/module.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/terminal/progress.h"
#include "base/text.h"
#include "base/text/json.h"
#include "base/text/text_table.h"
#include "graph/adapter/merged_model.h"
#include "graph/archive/model.h"
#include "graph/archive/op_library.h"
#include "graph/archive/scalar_types.h"
#include "graph/models/archive.h"
#include "graph/models/models.h"
#include "graph/segment/segment.h"
#include "plan/print/plan_text.h"
#include "runtime/save/save_weights.h"
#include "storage/adapter/adapter_changes.h"
#include "storage/disk/output_place.h"
#include "storage/export/weight_export.h"
#include "storage/files/atomic_file.h"
#include "storage/huggingface/model_folder.h"
#include "storage/huggingface/named_place.h"
#include "worker/roles.h"

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
    const CommandLine* kinds = nullptr;  // knows which was chosen
};

void add_gpt(CommandLine& kinds, GptArguments& arguments) {
    CommandLine& gpt = kinds.subcommand(
        "gpt", {.does = "Makes a GPT: forward(tokens, targets) -> loss, logits(tokens).",
                .examples = {"dslaunch model new gpt --size tiny --vocab 256 -o train.pt"},
                .docs = "docs/reference/cli.md"});
    gpt.add("-o,--out FILE", arguments.out, "archive to write").required();
    gpt.add("--size NAME", arguments.size,
            "tiny, small or medium; the options below change single numbers")
        .show_default();
    gpt.add("--vocab N", arguments.vocab, "number of tokens; 256: a token is a byte");
    gpt.add("--width N", arguments.width, "width of the residual stream");
    gpt.add("--heads N", arguments.heads, "attention heads, a divisor of the width");
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
    options.tie = arguments.tie;
    options.seed = arguments.seed;
    return graph::make_gpt(options);
}

void add_mlp(CommandLine& kinds, NewArguments& arguments) {
    CommandLine& mlp = kinds.subcommand(
        "mlp", {.does = "Makes linear layers with ReLU between: forward(x) -> output.",
                .examples = {"dslaunch model new mlp --widths 784,256,10 -o train.pt"},
                .docs = "docs/reference/cli.md"});
    mlp.add("-o,--out FILE", arguments.mlp_out, "archive to write").required();
    mlp.add("--widths LIST", arguments.mlp.widths, "input, hidden…, output, as in 1000,1000,10")
        .show_default();
    mlp.add("--seed N", arguments.mlp.seed, "seed of the initial weights").show_default();
    mlp.add("--force", arguments.mlp_force, storage::kForceHelp);
}

// ARGUMENTS must outlive APP's parsing.
void add_new(CommandLine& app, NewArguments& arguments) {
    CommandLine& kinds =
        app.subcommand("new", {.does = "Writes a new model archive.",
                               .examples = {"dslaunch model new gpt --size tiny -o train.pt"},
                               .docs = "docs/reference/cli.md"});
    add_gpt(kinds, arguments.gpt);
    add_mlp(kinds, arguments);
    arguments.kinds = &kinds;
}

void run_new(const NewArguments& arguments) {
    const bool is_gpt = arguments.kinds->chose("gpt");
    const std::string& out = is_gpt ? arguments.gpt.out : arguments.mlp_out;
    storage::require_new_file(out, is_gpt ? arguments.gpt.force : arguments.mlp_force);
    const torch::jit::Module module =
        is_gpt ? make_gpt_from(arguments.gpt) : graph::make_mlp(arguments.mlp);
    graph::save_archive(module, out);
    log_info("model", "wrote {} parameters={}", out, graph::parameters_numel(module));
}

struct ImportArguments {
    std::string folder, out;
    std::string dtype;  // empty: as in the folder
    bool force = false;
};

void add_import(CommandLine& app, ImportArguments& arguments) {
    CommandLine& import = app.subcommand(
        "import",
        {.does = "Makes one archive of a Hugging Face folder: forward(tokens, targets) -> loss, "
                 "logits(tokens). No import is needed to train: `dslaunch FOLDER` trains the "
                 "folder itself.",
         .examples = {"dslaunch model import Qwen2.5-0.5B -o train.pt"},
         .docs = "docs/guide/models.md"});
    import.add("FOLDER", arguments.folder, "folder with config.json and .safetensors files")
        .required();
    import.add("-o,--out FILE", arguments.out, "archive to write").required();
    import
        .add("--dtype NAME", arguments.dtype,
             "type of the weights: fp32, bf16 or fp16; default: as in the folder")
        .one_of({"fp32", "bf16", "fp16"});
    import.add("--force", arguments.force, storage::kForceHelp);
}

void run_import(const ImportArguments& arguments) {
    const std::string folder = storage::model_at(arguments.folder);
    if (!storage::model_folder_of(folder))
        fail(ExitCode::kInput,
             "{}: is a file, and a folder with a config.json is imported, as Hugging Face has "
             "them; an archive is a model as it stands",
             printable(folder));
    storage::require_new_file(arguments.out, arguments.force);
    Progress progress("model", "reading the model");
    graph::Model model = graph::Model::load(folder);
    if (!arguments.dtype.empty()) {
        const at::NoGradGuard no_grad;
        const at::ScalarType dtype =
            graph::scalar_type_of(arguments.dtype == "fp32"   ? DType::kF32
                                  : arguments.dtype == "bf16" ? DType::kBF16
                                                              : DType::kF16);
        for (const graph::ModelParameter& parameter : model.parameters()) {
            at::Tensor tensor = parameter.tensor;
            tensor.set_data(tensor.to(dtype));
        }
    }
    progress.begin("writing the archive");
    graph::save_archive(model.module(), arguments.out);
    progress.end();
    log_info("model", "wrote {} parameters={}", arguments.out,
             graph::parameters_numel(model.module()));
}

struct MergeArguments {
    std::string model, adapter, out;
    bool trust_model = false;
    bool force = false;
};

// Lets config.json in FOLDER say what the adapter changed of the model's form.
void change_config(const std::string& folder, const graph::MergedModel& merged) {
    if (!merged.unties && !merged.changes_vocabulary) return;
    const std::string path = folder + "/config.json";
    auto json = nlohmann::ordered_json::parse(read_file(path, size_t{1} << 30));
    const auto set = [&](const char* name, const nlohmann::ordered_json& value) {
        // Transformers reads the field in the text's part where a model has parts.
        if (json.contains("text_config") && json["text_config"].is_object())
            json["text_config"][name] = value;
        json[name] = value;
    };
    if (merged.unties) set("tie_word_embeddings", false);
    if (merged.changes_vocabulary) set("vocab_size", merged.vocabulary);
    const std::string text = json.dump(2) + "\n";
    storage::AtomicFile file(path, Bytes{std::ssize(text)});
    file.write(text);
    file.commit();
}

void add_merge(CommandLine& app, MergeArguments& arguments) {
    CommandLine& merge = app.subcommand(
        "merge", {.does = "Adds a trained adapter to the weights of its model. The result is a "
                          "model like any other, and a Hugging Face folder if MODEL is one.",
                  .examples = {"dslaunch model merge Qwen2.5-0.5B run/adapter -o tuned"},
                  .docs = "docs/guide/lora.md"});
    merge.add("MODEL", arguments.model, "an archive or a Hugging Face folder").required();
    merge
        .add("ADAPTER", arguments.adapter,
             "a folder as PEFT writes it, or the --output folder of a job with --lora")
        .required();
    merge.add("-o,--out DIR", arguments.out, "folder for model.pt and model.safetensors")
        .required();
    merge.add("--force", arguments.force, storage::kForceHelp);
    merge.add("--trust-model", arguments.trust_model, kTrustModelHelp);
}

void run_merge(const MergeArguments& arguments) {
    const std::string model = storage::model_at(arguments.model);
    const std::string adapter = storage::adapter_at(arguments.adapter);
    storage::require_room_for_model(arguments.out);
    const std::optional<std::string> folder = storage::model_folder_of(model);
    if (folder) storage::require_room_for_config(*folder, arguments.out);
    storage::require_unused(arguments.out, arguments.force);
    if (const std::string other = storage::other_base_text(adapter, model); !other.empty())
        log_warn("adapter", "{}", other);
    Progress progress("model", "adding the adapter to the weights");
    graph::MergedModel merged =
        graph::load_merged(model, adapter, graph::trust_of(arguments.trust_model));
    progress.begin("writing the weights");
    runtime::WeightWriter writer(merged.model, arguments.out, {});
    writer.finish();
    if (folder) {
        storage::copy_model_config(*folder, arguments.out);
        // Tokens that the adapter brought are in its own files.
        if (merged.changes_vocabulary) storage::copy_text_files(adapter, arguments.out);
        change_config(arguments.out, merged);
    }
    progress.end();
    log_info("model", "wrote {0}/model.safetensors and {0}/model.pt, layers={1}", arguments.out,
             merged.layers);
}

struct ShowArguments {
    std::string model;
    std::vector<std::string> op_libraries;
    int depth = 3;
    bool parameters = false, json = false, trust_model = false;
};

// A module, what it and its children hold, and how deep it lies.
struct ModuleNode {
    std::map<std::string, ModuleNode> children;
    std::vector<std::string> order;  // of the children
    int64_t numel = 0;
    int64_t bytes = 0;
    std::set<std::string> dtypes;
    std::string signature;  // equal for modules with parameters of the same names and shapes
};

std::string shape_of(const at::Tensor& tensor) {
    std::vector<std::string> sizes;
    for (const int64_t size : tensor.sizes()) sizes.push_back(std::to_string(size));
    return "[" + join(sizes, ", ") + "]";
}

std::string dtype_of(const graph::ModelParameter& parameter) {
    return std::string(dtype_name(graph::dtype_of(parameter.name, parameter.tensor)));
}

int64_t bytes_of(const at::Tensor& tensor) {
    return tensor.numel() * tensor.element_size();
}

ModuleNode tree_of(const graph::Model& model) {
    ModuleNode root;
    for (const graph::ModelParameter& parameter : model.parameters()) {
        const std::vector<std::string> parts = split(parameter.name, '.');
        ModuleNode* node = &root;
        for (size_t depth = 0;; ++depth) {
            node->numel += parameter.tensor.numel();
            node->bytes += bytes_of(parameter.tensor);
            node->dtypes.insert(dtype_of(parameter));
            std::string rest;
            for (size_t i = depth; i < parts.size(); ++i) rest += "." + parts[i];
            node->signature += rest + shape_of(parameter.tensor) + dtype_of(parameter) + ";";
            if (depth + 1 >= parts.size()) break;
            const auto [child, is_new] = node->children.try_emplace(parts[depth]);
            if (is_new) node->order.push_back(parts[depth]);
            node = &child->second;
        }
    }
    return root;
}

std::optional<int64_t> number_in(std::string_view word) {
    int64_t number = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
    if (error != std::errc() || end != word.data() + word.size()) return std::nullopt;
    return number;
}

// Rows of NODE's children down to DEPTH more levels. Layers that follow each other and are alike
// are one row, and the first of them stands for the modules in all.
void add_rows(const ModuleNode& node, const std::string& path, int depth,
              std::vector<std::vector<std::string>>& rows) {
    if (depth == 0) return;
    for (size_t i = 0; i < node.order.size();) {
        const std::string& name = node.order[i];
        const ModuleNode& child = node.children.at(name);
        size_t end = i + 1;
        if (number_in(name))
            while (end < node.order.size() && number_in(node.order[end]) &&
                   node.children.at(node.order[end]).signature == child.signature)
                ++end;
        const std::string begin = path.empty() ? name : path + "." + name;
        const bool many = end - i > 1;
        rows.push_back({many ? fmt::format("{} to {}, each", begin, node.order[end - 1]) : begin,
                        std::to_string(child.numel), to_text(Bytes{child.bytes}),
                        join(std::vector(child.dtypes.begin(), child.dtypes.end()), ", ")});
        add_rows(child, begin, depth - 1, rows);
        i = end;
    }
}

struct SegmentRow {
    std::string name;
    int64_t nodes = 0;
    int64_t numel = 0;
};

struct Segments {
    std::vector<SegmentRow> rows;
    std::string why_not;  // the graph cannot be cut
};

Segments segments_of(graph::Model& model) {
    Segments found;
    try {
        const graph::SegmentedModel segmented = graph::SegmentedModel::make(model, {}, 0);
        for (const graph::Segment& segment : segmented.segments()) {
            SegmentRow row{segment.name, segment.nodes, 0};
            for (const int parameter : segmented.parameters_of(segment))
                row.numel += model.parameters()[parameter].tensor.numel();
            found.rows.push_back(std::move(row));
        }
    } catch (const Error& error) {
        found.why_not = error.what();
    }
    return found;
}

// Returns the names that read PARAMETER's memory in another shape, or without its gradient.
std::vector<std::string> views_of(const graph::Model& model,
                                  const graph::ModelParameter& parameter) {
    std::vector<std::string> names;
    for (const graph::ModelView& view : model.views())
        if (view.owner.is_same(parameter.tensor) && !view.name.empty()) names.push_back(view.name);
    return names;
}

void print_json(const graph::Model& model, const ModuleNode& root, const Segments& segments) {
    JsonWriter json;
    json.begin_object().field("parameters", root.numel).field("bytes", root.bytes);
    json.key("tensors").begin_array();
    for (const graph::ModelParameter& parameter : model.parameters()) {
        json.begin_object().field("name", parameter.name).field("dtype", dtype_of(parameter));
        json.key("shape").begin_array();
        for (const int64_t size : parameter.tensor.sizes()) json.value(size);
        json.end_array().field("trainable", parameter.tensor.requires_grad());
        json.key("tied").begin_array();
        for (const std::string& alias : parameter.aliases) json.value(alias);
        for (const std::string& view : views_of(model, parameter)) json.value(view);
        json.end_array().end_object();
    }
    json.end_array().field("buffers", std::ssize(model.buffers()));
    json.key("segments").begin_array();
    for (const SegmentRow& row : segments.rows)
        json.begin_object()
            .field("name", row.name)
            .field("nodes", row.nodes)
            .field("parameters", row.numel)
            .end_object();
    json.end_array().end_object();
    fmt::print("{}\n", json.text());
}

void print_parameters(const graph::Model& model) {
    std::vector<std::vector<std::string>> rows = {{"parameter", "shape", "type", ""}};
    for (const graph::ModelParameter& parameter : model.parameters()) {
        std::string note = parameter.tensor.requires_grad() ? "" : "frozen";
        for (const std::string& alias : parameter.aliases)
            note += fmt::format("{}also {}", note.empty() ? "" : ", ", alias);
        for (const std::string& view : views_of(model, parameter))
            note += fmt::format("{}seen by {}", note.empty() ? "" : ", ", view);
        rows.push_back(
            {parameter.name, shape_of(parameter.tensor), dtype_of(parameter), std::move(note)});
    }
    fmt::print("{}", text_table(rows));
}

void add_show(CommandLine& app, ShowArguments& arguments) {
    CommandLine& show = app.subcommand(
        "show", {.does = "Prints what a model holds: modules, parameters, bytes, and the segments "
                         "that a step is made of.",
                 .examples = {"dslaunch model show train.pt", "dslaunch model show Qwen2.5-0.5B"},
                 .docs = "docs/guide/models.md"});
    show.add("MODEL", arguments.model,
             "an archive (.pt2, .pt), a Hugging Face folder, or a config.json")
        .required();
    show.add("--depth N", arguments.depth, "levels of modules to list").range(1, 64).show_default();
    show.add("--parameters", arguments.parameters, "list parameters instead of modules");
    show.add("--op-library FILE", arguments.op_libraries, kOpLibraryHelp);
    show.add("--trust-model", arguments.trust_model, kTrustModelHelp);
    show.add("--json", arguments.json, "one JSON object");
}

void run_show(const ShowArguments& arguments) {
    graph::load_op_libraries(arguments.op_libraries);
    const std::string path = storage::model_at(arguments.model);
    graph::Model model =
        graph::Model::load(path, graph::Weights::kIfThere, graph::trust_of(arguments.trust_model));
    const ModuleNode root = tree_of(model);
    const Segments segments = segments_of(model);
    if (arguments.json) return print_json(model, root, segments);
    fmt::print("{}: {} parameters in {}, {}\n\n", printable(path), root.numel,
               counted(std::ssize(model.parameters()), "tensor"), to_text(Bytes{root.bytes}));
    if (arguments.parameters) {
        print_parameters(model);
    } else {
        std::vector<std::vector<std::string>> rows = {{"module", "parameters", "bytes", "type"}};
        add_rows(root, "", arguments.depth, rows);
        fmt::print("{}", text_table(rows, {.align = "<>>"}));
    }
    if (!segments.why_not.empty()) {
        fmt::print("\nno segments: {}\n", segments.why_not);
        return;
    }
    std::vector<plan::SegmentRow> shown;
    for (const SegmentRow& row : segments.rows)
        shown.push_back({row.name, {std::to_string(row.nodes), std::to_string(row.numel)}});
    std::vector<std::vector<std::string>> rows = plan::numbered_rows(shown, /*is_folded=*/true);
    rows.insert(rows.begin(), {"#", "segment", "nodes", "parameters"});
    fmt::print("\n{}", text_table(rows, {.align = "><>>"}));
}

}  // namespace

int model_main(int argc, char** argv) {
    CommandLine app({.does = "Makes, converts and merges models, and shows what a model holds.",
                     .examples = {"dslaunch model new gpt --size tiny -o train.pt",
                                  "dslaunch model import Qwen2.5-0.5B -o train.pt",
                                  "dslaunch model show train.pt"},
                     .docs = "docs/guide/models.md"},
                    "dslaunch model");
    NewArguments made;
    ImportArguments imported;
    MergeArguments merged;
    ShowArguments shown;
    add_new(app, made);
    add_import(app, imported);
    add_merge(app, merged);
    add_show(app, shown);
    if (argc > 1) storage::refuse_download(argv[1], argc > 2 ? argv[2] : "");
    if (!app.parse({argv + 1, argv + argc})) return 0;
    if (app.chose("new")) run_new(made);
    if (app.chose("import")) run_import(imported);
    if (app.chose("merge")) run_merge(merged);
    if (app.chose("show")) run_show(shown);
    return 0;
}

}  // namespace dslaunch::worker
