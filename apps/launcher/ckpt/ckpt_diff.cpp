// dslaunch ckpt diff: the differences of two checkpoints.
#include <fmt/core.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/kinds/shape_text.h"
#include "base/text.h"
#include "launcher/ckpt/ckpt_parts.h"
#include "storage/export/source_diff.h"
#include "storage/export/source_of_path.h"

namespace dslaunch::launcher {
namespace {

// The largest number of lines without --all. Two checkpoints of one run differ in every tensor, so
// further lines would say nothing new.
constexpr size_t kLinesMax = 20;

struct DiffArguments {
    std::string a, b;
    storage::DiffOptions options;
    bool json = false;
    bool all = false;
};

const char* kind_word(storage::TensorDiff::Kind kind) {
    static constexpr const char* kWords[] = {"only-in-a", "only-in-b", "shape",
                                             "dtype",     "updates",   "values"};
    return kWords[static_cast<size_t>(kind)];
}

std::string text_of(const storage::TensorDiff& diff) {
    using Kind = storage::TensorDiff::Kind;
    std::string name = printable(diff.name);
    if (!diff.state.empty()) name += fmt::format(" {}", printable(diff.state));
    if (diff.kind == Kind::kOnlyInA) return fmt::format("{}: is only in A", name);
    if (diff.kind == Kind::kOnlyInB) return fmt::format("{}: is only in B", name);
    if (diff.kind != Kind::kValues)
        return fmt::format("{}: {} {} | {}", name, kind_word(diff.kind), diff.a, diff.b);
    return fmt::format("{}: {} elements differ by at most {:g}, the first at {}: {} | {}", name,
                       diff.elements_count, diff.max_abs, shape_text(diff.first_index), diff.a,
                       diff.b);
}

void add_fields(JsonWriter& json, const char* name, const std::vector<storage::FieldDiff>& fields) {
    json.key(name).begin_array();
    for (const storage::FieldDiff& field : fields) {
        json.begin_object().field("name", field.name);
        json.field("a", field.a).field("b", field.b).end_object();
    }
    json.end_array();
}

void print_json(const storage::TensorSource& a, const storage::TensorSource& b,
                const storage::SourceDiff& diff) {
    JsonWriter json;
    json.begin_object().field("a", a.path()).field("b", b.path()).field("equal", diff.is_equal());
    json.key("tensors").begin_array();
    for (const storage::TensorDiff& one : diff.tensors) {
        json.begin_object().field("name", one.name).key("state");
        one.state.empty() ? json.null() : json.value(one.state);
        json.field("differs", kind_word(one.kind)).field("a", one.a).field("b", one.b);
        if (one.kind == storage::TensorDiff::Kind::kValues) {
            json.field("max_abs", one.max_abs).field("elements", one.elements_count);
            json.key("first_index").begin_array();
            for (const int64_t i : one.first_index) json.value(i);
            json.end_array();
        }
        json.end_object();
    }
    json.end_array();
    add_fields(json, "training", diff.training);
    add_fields(json, "about", diff.about);
    json.field("weights_alone", diff.is_weights_alone).field("compared", diff.compared_count);
    json.field("elements_read", diff.numel_read).field("elements_by_hash", diff.numel_by_hash);
    json.end_object();
    fmt::print("{}\n", json.text());
}

void print_text(const storage::TensorSource& a, const storage::TensorSource& b,
                const storage::SourceDiff& diff, bool all) {
    fmt::print("A: {}\nB: {}\n", printable(a.path()), printable(b.path()));
    if (diff.compared_count == 0 && !diff.tensors.empty())
        fmt::print("A and B have no tensor in common: they are checkpoints of different models\n");
    const size_t shown = all ? diff.tensors.size() : std::min(diff.tensors.size(), kLinesMax);
    for (size_t i = 0; i < shown; ++i) fmt::print("{}\n", text_of(diff.tensors[i]));
    if (const size_t left = diff.tensors.size() - shown; left > 0)
        fmt::print("... and {} (--all lists all, --tensor GLOB selects tensors)\n",
                   counted(static_cast<int64_t>(left), "more difference"));
    for (const storage::FieldDiff& field : diff.training)
        fmt::print("{}: {} | {}\n", field.name, printable(field.a), printable(field.b));
    for (const storage::FieldDiff& field : diff.about)
        fmt::print("made with {}: {} | {}\n", field.name, printable(field.a), printable(field.b));
    if (diff.is_weights_alone)
        fmt::print("optimizer and training state are not compared: {} contains only weights\n",
                   printable(a.checkpoint() == nullptr ? a.path() : b.path()));
    fmt::print("{}: {} tensors and states compared, {} elements read, {} equal by their hashes\n",
               diff.is_equal() ? "equal" : "different", diff.compared_count, diff.numel_read,
               diff.numel_by_hash);
}

int compare(const DiffArguments& arguments) {
    if (!(arguments.options.tolerance >= 0))
        fail(ExitCode::kUsage, "--tolerance: must be a number of at least 0");
    const std::unique_ptr<storage::FileTree> tree = storage::make_disk_tree();
    const auto a = storage::open_tensor_source(*tree, arguments.a);
    const auto b = storage::open_tensor_source(*tree, arguments.b);
    const storage::SourceDiff diff = storage::diff_sources(*a, *b, arguments.options);
    arguments.json ? print_json(*a, *b, diff) : print_text(*a, *b, diff, arguments.all);
    return diff.is_equal() ? 0 : 1;
}

}  // namespace

int ckpt_diff(CommandLine& command, const Parse& parse) {
    DiffArguments arguments;
    const char* what =
        "a step folder, a folder with checkpoints (the newest intact checkpoint is used), a "
        ".safetensors file or a Hugging Face folder";
    command.add("A", arguments.a, what).required();
    command.add("B", arguments.b, what).required();
    command.add("--tensor GLOB", arguments.options.glob,
                "only tensors with this name or pattern, such as '*.bias'");
    command.add("--tolerance X", arguments.options.tolerance,
                "largest difference at which two values count as equal, default 0");
    command.add("--all", arguments.all,
                fmt::format("list every difference, not only the first {}", kLinesMax));
    command.add("--json", arguments.json, "one JSON object");
    return parse() ? compare(arguments) : 0;
}

}  // namespace dslaunch::launcher
