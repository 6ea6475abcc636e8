// dsworker export: writes the weights of a checkpoint into the archive that was trained, so that
// plain PyTorch can load it. `dslaunch ckpt export --format torchscript` runs it.
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <fmt/ranges.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdio>
#include <cstring>
#include <map>

#include "base/error.h"
#include "base/log.h"
#include "base/screen.h"
#include "base/text.h"
#include "base/text/json.h"
#include "graph/archive/model.h"
#include "graph/archive/op_library.h"
#include "graph/archive/scalar_types.h"
#include "graph/models/save_archive.h"
#include "storage/disk/output_place.h"
#include "storage/export/row_major.h"
#include "storage/export/source_of_path.h"
#include "storage/export/tensor_source.h"
#include "worker/roles.h"

namespace dslaunch::worker {
namespace {

struct ExportArguments {
    std::string checkpoint, model, out;
    std::vector<std::string> op_libraries;
    bool trust_model = false;
    bool force = false;
    bool json = false;
};

void declare(CommandLine& app, ExportArguments& arguments) {
    app.add("CHECKPOINT", arguments.checkpoint, "a step folder").required();
    app.add("--model FILE", arguments.model, "the model that was trained").required();
    app.add("--output FILE", arguments.out, "archive to write").required();
    app.add("--op-library FILE", arguments.op_libraries, kOpLibraryHelp);
    app.add("--trust-model", arguments.trust_model, kTrustModelHelp);
    app.add("--force", arguments.force, "replace an existing file");
    app.add("--json", arguments.json, "one JSON object");
}

// A tensor of the archive that gets its values from the checkpoint.
struct Wanted {
    std::vector<std::string> names;
    at::Tensor tensor;
    bool may_lack = false;  // if the checkpoint lacks it, the archive's values stay
};

std::vector<Wanted> wanted_of(const graph::Model& model) {
    std::vector<Wanted> wanted;
    const auto add = [&](const auto& item, bool may_lack) {
        Wanted& one = wanted.emplace_back();
        one.names = item.aliases;
        one.names.insert(one.names.begin(), item.name);
        for (const graph::ModelView& view : model.views())
            if (view.owner.is_same(item.tensor) && view.view.is_same() && !view.name.empty())
                one.names.push_back(view.name);
        one.tensor = item.tensor;
        one.may_lack = may_lack;
    };
    for (const graph::ModelParameter& parameter : model.parameters()) add(parameter, false);
    for (const graph::ModelBuffer& buffer : model.buffers())
        add(buffer, !buffer.is_persistent || !model.says_persistence());
    return wanted;
}

// Returns for each wanted tensor its index in SOURCE, or -1 if the archive's own values stay.
// Throws one Error{kInput} with all mismatches. It is also a mismatch if tensors share memory in
// the archive but are separate in SOURCE.
std::vector<int> match(const storage::TensorSource& source, const std::vector<Wanted>& wanted,
                       const std::string& archive) {
    std::map<std::string, int> by_name;
    for (size_t i = 0; i < source.tensors().size(); ++i) {
        const storage::CheckpointTensor& tensor = source.tensors()[i];
        if (tensor.kind == storage::TensorKind::kRankBuffer) continue;
        by_name.emplace(tensor.name, static_cast<int>(i));
        for (const std::string& alias : tensor.aliases) by_name.emplace(alias, static_cast<int>(i));
    }
    std::string problems;
    std::vector<int> matched;
    std::vector<bool> used(source.tensors().size());
    for (const Wanted& one : wanted) {
        const std::string& name = one.names.front();
        auto it = by_name.end();
        for (const std::string& other : one.names)
            if (it == by_name.end()) it = by_name.find(other);
        matched.push_back(it == by_name.end() ? -1 : it->second);
        if (it == by_name.end()) {
            if (!one.may_lack)
                problems += fmt::format("\n  {}: missing in the checkpoint", printable(name));
            continue;
        }
        used[it->second] = true;
        const storage::CheckpointTensor& tensor = source.tensors()[it->second];
        if (tensor.shape != one.tensor.sizes().vec())
            problems += fmt::format("\n  {}: shape [{}] in the checkpoint, but [{}] in the archive",
                                    printable(name), fmt::join(tensor.shape, ", "),
                                    fmt::join(one.tensor.sizes(), ", "));
    }
    for (size_t i = 0; i < used.size(); ++i) {
        const storage::CheckpointTensor& tensor = source.tensors()[i];
        if (!used[i] && tensor.kind != storage::TensorKind::kRankBuffer)
            problems += fmt::format("\n  {}: missing in the archive", printable(tensor.name));
    }
    if (!problems.empty())
        fail(ExitCode::kInput, "{}: is not the model of the checkpoint {}; these tensors differ:{}",
             archive, source.path(), problems);
    return matched;
}

// Replaces TENSOR's values and dtype by the values and dtype of tensor INDEX in SOURCE. The dtype
// is fp32 even for a parameter that was trained in 16 bits.
void fill(at::Tensor tensor, const storage::TensorSource& source, int index) {
    const at::NoGradGuard no_grad;
    const storage::CheckpointTensor& from = source.tensors()[index];
    const at::Tensor rows = at::empty(from.shape, graph::scalar_type_of(from.dtype));
    auto* next = static_cast<std::byte*>(rows.mutable_data_ptr());
    const auto put = [&](std::span<const std::byte> part) {
        std::memcpy(next, part.data(), part.size());
        next += part.size();
    };
    const Range all{0, from.numel()};
    if (storage::is_row_major(from)) {
        source.for_each(index, storage::kWeights, all,
                        [&](const Range&, std::span<const std::byte> part) { put(part); });
    } else {
        std::vector<std::byte> memory;
        memory.reserve(rows.nbytes());
        source.for_each(index, storage::kWeights, all,
                        [&](const Range&, std::span<const std::byte> part) {
                            memory.insert(memory.end(), part.begin(), part.end());
                        });
        storage::for_each_row_major(from, memory, dtype_bytes(from.dtype), put);
    }
    const at::Tensor placed =
        at::empty_strided(tensor.sizes(), tensor.strides(), rows.scalar_type());
    tensor.set_data(tensor.is_contiguous() ? rows : placed.copy_(rows));
}

}  // namespace

int export_main(int argc, char** argv) {
    CommandLine app({.does = "Writes a checkpoint's weights into a TorchScript archive."},
                    "dsworker export");
    ExportArguments arguments;
    declare(app, arguments);
    if (!app.parse({argv + 1, argv + argc})) return 0;

    storage::require_not_input(arguments.out, arguments.model);
    storage::require_new_file(arguments.out, arguments.force);
    const std::unique_ptr<storage::FileTree> tree = storage::make_disk_tree();
    const auto source = storage::open_checkpoint(*tree, arguments.checkpoint);
    graph::load_op_libraries(arguments.op_libraries);
    graph::Model model = graph::Model::load(arguments.model, graph::Weights::kRequired,
                                            graph::trust_of(arguments.trust_model));
    const std::vector<Wanted> wanted = wanted_of(model);
    const std::vector<int> matched = match(*source, wanted, arguments.model);
    for (size_t i = 0; i < wanted.size(); ++i)
        if (matched[i] >= 0) fill(wanted[i].tensor, *source, matched[i]);
    model.renew_views();
    graph::save_archive(model.module(), arguments.out, {}, model.extra_files());
    if (arguments.json) {
        JsonWriter json;
        json.begin_object().field("path", source->path()).field("tensors", wanted.size());
        json.key("files").begin_array().value(arguments.out).end_array().end_object();
        fmt::print("{}\n", json.text());
    } else {
        print_message(fmt::format("dslaunch: {}: {} tensors written to {}",
                                  printable(source->path()), wanted.size(),
                                  printable(arguments.out)));
    }
    return 0;
}

}  // namespace dslaunch::worker
