#include "graph/archive/model.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/empty_strided.h>
#include <sys/stat.h>
#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <map>
#include <span>
#include <tuple>

#include "base/check.h"
#include "base/error.h"
#include "base/machine/memory_shortage.h"
#include "base/text.h"
#include "base/text/torch_reason.h"
#include "graph/archive/exported_archive.h"
#include "graph/archive/huggingface_folder.h"
#include "graph/archive/mapped_archive.h"
#include "graph/packed/packed_weight.h"
#include "storage/exported/module_class.h"
#include "storage/files/file_kind.h"
#include "storage/files/input_file.h"
#include "storage/huggingface/model_folder.h"

namespace dslaunch::graph {

namespace {

// Two tensors with this key in common are the same parameter: an archive loses the identity of tied
// tensors but keeps their storage.
using StorageKey = std::tuple<const void*, int64_t, std::vector<int64_t>, std::vector<int64_t>>;

StorageKey storage_key(const at::Tensor& tensor) {
    return {tensor.storage().data(), tensor.storage_offset(), tensor.sizes().vec(),
            tensor.strides().vec()};
}

// Replaces tensors inside lists, tuples and dicts (an LSTM's _flat_weights) by the one kept for
// their storage.
c10::IValue unify(const c10::IValue& value, const std::map<StorageKey, at::Tensor>& kept,
                  bool& changed) {
    if (value.isTensor()) {
        if (!value.toTensor().defined() || !value.toTensor().has_storage()) return value;
        const auto found = kept.find(storage_key(value.toTensor()));
        if (found == kept.end() || found->second.is_same(value.toTensor())) return value;
        changed = true;
        return found->second;
    }
    if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& tensor : value.toTensorVector())
            list.push_back(unify(tensor, kept, changed).toTensor());
        return list;
    }
    return value;
}

void unify_attributes(torch::jit::Module module, const std::map<StorageKey, at::Tensor>& kept) {
    const c10::ClassTypePtr type = module.type();
    for (size_t i = 0; i < type->numAttributes(); ++i) {
        const c10::IValue value = module._ivalue()->getSlot(i);
        if (value.isModule()) {
            unify_attributes(torch::jit::Module(value.toModule()), kept);
            continue;
        }
        bool changed = false;
        c10::IValue unified = unify(value, kept, changed);
        if (changed) module._ivalue()->setSlot(i, std::move(unified));
    }
}

// The operator that TEXT, an error of TorchScript's reader, says it does not know; or empty.
std::string unknown_operator(std::string_view text) {
    constexpr std::string_view kSays = "Unknown builtin op: ";
    const size_t begin = text.find(kSays);
    if (begin == std::string_view::npos) return "";
    text.remove_prefix(begin + kSays.size());
    return std::string(text.substr(0, text.find_first_of(".\n ")));
}

bool is_exported(const std::string& path) {
    return storage::file_kind(storage::MappedFile(path).bytes()) ==
           storage::FileKind::kExportedProgram;
}

}  // namespace

Model Model::load(const std::string& path, Weights weights) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0)
        fail(ExitCode::kInput, "{}: cannot be opened: {}", printable(path), errno_text(errno));
    const bool in_folder = storage::model_folder_of(path).has_value();
    if (S_ISDIR(status.st_mode) && !in_folder)
        fail(ExitCode::kInput,
             "{}: is a folder without a config.json, not a model (Hugging Face's folders have one; "
             "torch.export.save and torch.jit.save write files)",
             printable(path));
    if (!in_folder) storage::require_model(path);
    try {
        LoadedArchive loaded = in_folder ? load_huggingface(path, weights == Weights::kIfThere)
                               : is_exported(path) ? load_exported(path)
                                                   : load_archive(path);
        Model model = adopt(std::move(loaded.module));
        model.files_ = std::move(loaded.files);
        model.has_weights_ = loaded.has_weights;
        model.argument_sizes_ = std::move(loaded.argument_sizes);
        return model;
    } catch (const Error& error) {
        // Errors of the zip begin with the path already.
        if (std::string_view(error.what()).starts_with(path)) throw;
        fail(error.code(), "{}: {}", printable(path), error.what());
    } catch (const std::exception& error) {
        if (is_memory_shortage(error))
            fail(ExitCode::kSetup, "{}: {}", printable(path),
                 memory_shortage_text(torch_reason(error)));
        if (const std::string name = unknown_operator(error.what()); !name.empty())
            fail(ExitCode::kInput,
                 "{}: LibTorch has no operator {}: name the library in C++ that has it with "
                 "--op-library FILE.so, or write the model without it",
                 printable(path), printable(name));
        fail(ExitCode::kInput,
             "{}: is not a model that can be loaded: {}; write it with torch.export.save, "
             "torch.jit.save or `dslaunch model new`",
             printable(path), torch_reason(error));
    }
}

Model::Model(torch::jit::Module module)
    : module_(std::make_shared<torch::jit::Module>(std::move(module))) {}

Model Model::adopt(torch::jit::Module module) {
    if (!module.find_method("forward"))
        fail(ExitCode::kInput,
             "the archive's module has no forward method; save the whole model, not a part of it");
    Model model(std::move(module));
    model.collect();
    return model;
}

void Model::collect() {
    std::map<StorageKey, at::Tensor> kept;
    std::map<const void*, std::string> storage_owner;
    const auto adopt_tensor = [&](const std::string& name, const at::Tensor& tensor, auto& list,
                                  auto& index_of) {
        const StorageKey key = storage_key(tensor);
        const auto found = kept.find(key);
        if (found != kept.end() && tensor.numel() > 0) {
            const auto index = index_of.find(found->second.unsafeGetTensorImpl());
            if (index != index_of.end()) {
                list[index->second].aliases.push_back(name);
                return;
            }
        }
        kept.emplace(key, tensor);
        index_of.emplace(tensor.unsafeGetTensorImpl(), static_cast<int>(list.size()));
        list.push_back({name, {}, tensor});
        // A view that overlaps another parameter without being it would be trained twice in the
        // same memory.
        const auto [owner, is_first] = storage_owner.emplace(tensor.storage().data(), name);
        if (!is_first && tensor.numel() > 0) {
            const at::NoGradGuard no_grad;
            at::Tensor own = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options());
            own.copy_(tensor);
            tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(own.storage());
            tensor.unsafeGetTensorImpl()->set_storage_offset(0);
        }
    };
    for (const auto& item : module_->named_parameters(true))
        adopt_tensor(item.name, item.value, parameters_, parameter_of_);
    for (const auto& item : module_->named_buffers(true))
        adopt_tensor(item.name, item.value, buffers_, buffer_of_);
    unify_attributes(*module_, kept);
    note_classes();
}

void Model::note_classes() {
    std::map<std::string, std::string> class_of;  // by path of the module
    for (const auto& item : module_->named_modules()) {
        const auto type = item.value.type()->name();
        class_of[item.name] = type ? storage::class_of_type(type->qualifiedName()) : "";
    }
    const auto owner_class = [&](const std::string& name) {
        const size_t dot = name.rfind('.');
        return class_of[dot == std::string::npos ? "" : name.substr(0, dot)];
    };
    for (ModelParameter& parameter : parameters_) {
        parameter.module_classes = {owner_class(parameter.name)};
        for (const std::string& alias : parameter.aliases)
            parameter.module_classes.push_back(owner_class(alias));
    }
}

int64_t ModelParameter::weight_numel() const {
    return packed ? packed->source().numel() : tensor.numel();
}

int Model::add_parameter(std::string name, at::Tensor tensor) {
    const int index = static_cast<int>(parameters_.size());
    parameter_of_.emplace(tensor.unsafeGetTensorImpl(), index);
    parameters_.push_back(
        {std::move(name), {}, std::move(tensor), nullptr, {std::string(storage::kLinearClass)}});
    return index;
}

void Model::pack_parameter(int index, std::shared_ptr<const PackedWeight> packed) {
    ModelParameter& parameter = parameters_[index];
    DSL_CHECK(!parameter.tensor.requires_grad(), "{} is trained", parameter.name);
    parameter.tensor.set_data(packed->placeholder());
    parameter.packed = std::move(packed);
}

int Model::parameter_index(const at::Tensor& tensor) const {
    const auto found = parameter_of_.find(tensor.unsafeGetTensorImpl());
    return found == parameter_of_.end() ? -1 : found->second;
}

int Model::buffer_index(const at::Tensor& tensor) const {
    const auto found = buffer_of_.find(tensor.unsafeGetTensorImpl());
    return found == buffer_of_.end() ? -1 : found->second;
}

Bytes Model::release_pages(int index) const {
    const ModelParameter& parameter = parameters_[index];
    const at::Tensor& tensor = parameter.packed ? parameter.packed->source() : parameter.tensor;
    if (!tensor.has_storage() || tensor.storage().nbytes() == 0) return Bytes{0};
    const auto* const begin = static_cast<const std::byte*>(tensor.storage().data());
    const std::less<> before;
    for (const auto& file : files_) {
        const std::span<const std::byte> bytes = file->bytes();
        if (!before(begin, bytes.data()) && before(begin, bytes.data() + bytes.size()))
            return file->release_unwritten({begin, tensor.storage().nbytes()});
    }
    return Bytes{0};
}

}  // namespace dslaunch::graph
