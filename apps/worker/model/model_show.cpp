// dsworker model show: prints the modules, parameters and segments of a model.
#include <ATen/core/Tensor.h>
#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/text.h"
#include "base/text/json.h"
#include "base/text/text_table.h"
#include "graph/archive/model.h"
#include "graph/archive/op_library.h"
#include "graph/archive/scalar_types.h"
#include "graph/segment/segmented_model.h"
#include "plan/print/plan_text.h"
#include "storage/huggingface/named_place.h"
#include "worker/model/model_commands.h"
#include "worker/roles.h"

namespace dslaunch::worker {
namespace {

struct ShowArguments {
    std::string model;
    std::vector<std::string> op_libraries;
    int depth = 3;
    bool parameters = false, json = false, trust_model = false;
};

// A module: its children, and the size of the parameters in it and its children.
struct ModuleNode {
    std::map<std::string, ModuleNode> children;
    std::vector<std::string> order;  // the children's names in order
    int64_t numel = 0;
    int64_t bytes = 0;
    std::set<std::string> dtypes;
    std::string signature;  // equal if parameters have the same names and shapes
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

// Adds a row for each of NODE's children, down to DEPTH levels. Equal layers that follow each other
// become one row, and the modules in the first of them are shown for all.
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
    std::string why_not;  // the reason if the graph cannot be cut
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

// Returns the other names under which the model reads PARAMETER's memory: in another shape, or
// without a gradient.
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

void run_show(const ShowArguments& arguments) {
    graph::load_op_libraries(arguments.op_libraries);
    const std::string path = storage::model_form_at(arguments.model);
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

std::function<void()> add_model_show(CommandLine& app) {
    const auto arguments = std::make_shared<ShowArguments>();
    CommandLine& show = app.subcommand(
        "show", {.does = "Prints what a model contains: modules, parameters, bytes, and the "
                         "segments of a training step.",
                 .examples = {"dslaunch model show train.pt", "dslaunch model show Qwen2.5-0.5B"},
                 .docs = "docs/guide/models.md"});
    show.add("MODEL", arguments->model,
             "an archive (.pt2, .pt), a Hugging Face folder, or a config.json")
        .required();
    show.add("--depth N", arguments->depth, "levels of modules to list")
        .range(1, 64)
        .show_default();
    show.add("--parameters", arguments->parameters, "list parameters instead of modules");
    show.add("--op-library FILE", arguments->op_libraries, kOpLibraryHelp);
    show.add("--trust-model", arguments->trust_model, kTrustModelHelp);
    show.add("--json", arguments->json, "one JSON object");
    return [arguments] { run_show(*arguments); };
}

}  // namespace dslaunch::worker
