#include "graph/archive/model.h"

#include <ATen/core/grad_mode.h>
#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <span>
#include <tuple>

#include "base/check.h"
#include "base/error.h"
#include "base/machine/memory_shortage.h"
#include "base/text.h"
#include "base/text/torch_reason.h"
#include "graph/archive/mapped_archive.h"
#include "graph/memory/shared_storage.h"
#include "graph/nodes/tensor_values.h"
#include "graph/packed/packed_weight.h"
#include "graph/trust/model_operators.h"
#include "storage/exported/module_class.h"
#include "storage/files/file_kind.h"
#include "storage/files/input_file.h"
#include "storage/files/zip_archive.h"
#include "storage/huggingface/model_folder.h"
#include "storage/named/place.h"

namespace dslaunch::graph {

namespace {

// Two tensors with the same key are the same parameter: an archive does not keep the identity of
// tied tensors, but it keeps their storage.
using StorageKey = std::tuple<const void*, int64_t, std::vector<int64_t>, std::vector<int64_t>>;

StorageKey storage_key(const at::Tensor& tensor) {
    return {tensor.storage().data(), tensor.storage_offset(), tensor.sizes().vec(),
            tensor.strides().vec()};
}

// Replaces tensors in VALUE, an attribute of the module, by the tensor in KEPT that has the same
// storage. Also looks into lists (an LSTM's _flat_weights), tuples and dicts.
IValue unify(const IValue& value, const std::map<StorageKey, at::Tensor>& kept, bool& changed) {
    if (value.isTensor()) {
        const at::Tensor& tensor = value.toTensor();
        if (!tensor.defined() || !tensor.has_storage() || tensor.numel() == 0) return value;
        const auto found = kept.find(storage_key(tensor));
        if (found == kept.end() || found->second.is_same(tensor) ||
            found->second.requires_grad() != tensor.requires_grad())
            return value;
        changed = true;
        return found->second;
    }
    if (value.isTensorList()) {
        c10::List<at::Tensor> list;
        for (const at::Tensor& tensor : value.toTensorVector())
            list.push_back(unify(tensor, kept, changed).toTensor());
        return list;
    }
    if (value.isTuple()) {
        std::vector<IValue> elements;
        for (const IValue& element : value.toTupleRef().elements())
            elements.push_back(unify(element, kept, changed));
        if (!changed) return value;
        return c10::ivalue::Tuple::createNamed(std::move(elements), value.toTuple()->type());
    }
    if (value.isGenericDict())
        for (const auto& item : value.toGenericDict())
            item.setValue(unify(item.value(), kept, changed));
    return value;
}

void unify_attributes(const Module& root, const std::map<StorageKey, at::Tensor>& kept) {
    for (const Module& module : root.modules()) {
        for (size_t i = 0; i < module.type()->numAttributes(); ++i) {
            bool changed = false;
            IValue unified = unify(module._ivalue()->getSlot(i), kept, changed);
            if (changed) module._ivalue()->setSlot(i, std::move(unified));
        }
    }
}

// Returns the parameters and buffers of ROOT under all their names, followed by the other tensors
// in its attributes.
std::vector<SharingTensor> module_tensors(const Module& root) {
    std::vector<SharingTensor> tensors;
    for (const auto& item : root.named_parameters(true))
        tensors.push_back({item.name, item.value, true});
    for (const auto& item : root.named_buffers(true))
        tensors.push_back({item.name, item.value, false});
    std::set<const void*> seen;
    for (const SharingTensor& tensor : tensors) seen.insert(tensor.tensor.unsafeGetTensorImpl());
    for_each_tensor_of_object(root._ivalue(), [&](const at::Tensor& tensor) {
        if (seen.insert(tensor.unsafeGetTensorImpl()).second)
            tensors.push_back({"", tensor, false});
    });
    return tensors;
}

// Returns true if TENSOR repeats elements as expand() does, so that it cannot be copied into.
bool repeats_elements(const at::Tensor& tensor) {
    for (int64_t d = 0; d < tensor.dim(); ++d)
        if (tensor.stride(d) == 0 && tensor.size(d) > 1) return true;
    return false;
}

// Moves TENSOR to its own storage with the same elements; repeated elements get separate memory.
void take_own_storage(at::Tensor tensor) {
    const at::NoGradGuard no_grad;
    if (repeats_elements(tensor)) return tensor.set_data(tensor.detach().contiguous());
    int64_t reach = 1;
    for (int64_t d = 0; d < tensor.dim(); ++d) reach += (tensor.size(d) - 1) * tensor.stride(d);
    const at::Tensor own =
        tensor.detach().as_strided({reach}, {1}, tensor.storage_offset()).clone();
    tensor.unsafeGetTensorImpl()->set_storage_keep_dtype(own.storage());
    tensor.unsafeGetTensorImpl()->set_storage_offset(0);
}

// Returns the name of the operator that TorchScript's parser reports as unknown in the error TEXT;
// empty if TEXT reports a different error.
std::string unknown_operator(std::string_view text) {
    constexpr std::string_view kSays = "Unknown builtin op: ";
    const size_t begin = text.find(kSays);
    if (begin == std::string_view::npos) return "";
    text.remove_prefix(begin + kSays.size());
    return std::string(text.substr(0, text.find_first_of(".\n ")));
}

// Checks the code of MODULE before any of it runs.
void check_code(const Module& module, Trust trust) {
    if (trust == Trust::kNone) ModelOperators().check(*module._ivalue()->compilation_unit());
    check_calls(module);
    print_to_log();
}

constexpr const char* kTraining = "training";  // a module's attribute that says its mode

// Returns the buffers that a state_dict does not contain. Reads them from the extra file
// kUnsavedBuffers of the archive at PATH. Returns nothing if the archive has no such file.
std::optional<std::set<std::string>> unsaved_in(const std::string& path) {
    std::optional<std::string> text;
    try {
        const storage::ZipArchive archive(path);
        if (const auto found = archive.extra(Model::kUnsavedBuffers)) text = std::string(*found);
    } catch (const Error&) {
        return std::nullopt;  // only LibTorch can read this archive
    }
    if (!text) return std::nullopt;
    std::set<std::string> names;
    for (const std::string& line : split(*text, '\n'))
        if (!trim(line).empty()) names.insert(std::string(trim(line)));
    return names;
}

int index_in(const std::unordered_map<const c10::TensorImpl*, int>& indices,
             const at::Tensor& tensor) {
    const auto found = indices.find(tensor.unsafeGetTensorImpl());
    return found == indices.end() ? -1 : found->second;
}

bool is_exported(const std::string& path) {
    return storage::file_kind(storage::MappedFile(path).bytes()) ==
           storage::FileKind::kExportedProgram;
}

}  // namespace

Model Model::load(const std::string& path, Weights weights, Trust trust,
                  const std::vector<int64_t>& layers) {
    struct stat status {};
    if (::stat(path.c_str(), &status) != 0)
        fail(ExitCode::kInput, "{}: cannot be opened: {}", printable(path), errno_text(errno));
    const bool in_folder = storage::model_folder_of(path).has_value();
    if (S_ISDIR(status.st_mode) && !in_folder)
        storage::refuse_place(storage::place_at(path), storage::PlaceUse::kModel);
    DSL_CHECK(in_folder || layers.empty(),
              "{}: layers can be chosen only from a Hugging Face folder", path);
    if (!in_folder) storage::require_model(path);
    try {
        LoadedArchive loaded = in_folder
                                   ? load_huggingface(path, weights == Weights::kIfThere, layers)
                               : is_exported(path) ? load_exported(path)
                                                   : load_archive(path, trust);
        if (!in_folder) check_code(loaded.module, trust);
        Model model = adopt(std::move(loaded.module));
        model.files_ = std::move(loaded.files);
        model.has_weights_ = loaded.has_weights;
        model.argument_sizes_ = std::move(loaded.argument_sizes);
        if (!in_folder && !loaded.unsaved) loaded.unsaved = unsaved_in(path);
        if (loaded.unsaved) model.leave_unsaved(std::move(*loaded.unsaved));
        return model;
    } catch (const Error& error) {
        // Errors of the zip reader already begin with the path.
        if (std::string_view(error.what()).starts_with(path)) throw;
        fail(error.code(), "{}: {}", printable(path), error.what());
    } catch (const std::exception& error) {
        if (is_memory_shortage(error))
            fail(ExitCode::kSetup, "{}: {}", printable(path),
                 memory_shortage_text(torch_reason(error)));
        if (const std::string name = unknown_operator(error.what()); !name.empty())
            fail(ExitCode::kInput,
                 "{}: LibTorch has no operator {}; name the C++ library that contains it with "
                 "--op-library FILE.so, or write the model without it",
                 printable(path), printable(name));
        fail(ExitCode::kInput,
             "{}: cannot be loaded as a model: {}; save the model with torch.export.save or "
             "torch.jit.save, or make one with `dslaunch model new`",
             printable(path), torch_reason(error));
    }
}

Model::Model(Module module) : module_(std::make_shared<Module>(std::move(module))) {}

Model Model::adopt(Module module) {
    if (!module.find_method("forward"))
        fail(ExitCode::kInput,
             "the archive's module has no forward method; save the whole model, not a part of it");
    Model model(std::move(module));
    model.collect();
    model.note_modes();
    return model;
}

// Records which modules are in evaluation mode while others train.
void Model::note_modes() {
    bool trains = false;
    std::string outer;  // the last outermost module in evaluation: its path and a dot
    for (const auto& item : module_->named_modules()) {
        if (!item.value.hasattr(kTraining)) continue;
        const IValue mode = item.value.attr(kTraining);
        if (!mode.isBool() || mode.toBool()) {
            trains = true;
            continue;
        }
        evaluating_.push_back(item.value._ivalue());
        if (!outer.empty() && item.name.starts_with(outer)) continue;
        kept_in_evaluation_.push_back(item.name);
        outer = item.name + ".";
    }
    was_saved_in_evaluation_ = !trains && !evaluating_.empty();
    if (!was_saved_in_evaluation_) return;
    evaluating_.clear();
    kept_in_evaluation_.clear();
}

void Model::set_training(bool training) {
    module_->train(training);
    for (const auto& object : evaluating_) object->setAttr(kTraining, false);
}

Model Model::adopt_untied(Module module) {
    Model model(std::move(module));
    model.collect_untied();
    model.note_modes();
    return model;
}

void Model::collect_untied() {
    std::set<const void*> seen;
    for (SharingTensor& tensor : module_tensors(*module_)) {
        if (!seen.insert(tensor.tensor.unsafeGetTensorImpl()).second) continue;
        tensor.is_parameter = tensor.is_parameter || tensor.tensor.requires_grad();
        add_item(tensor, false);
    }
    note_classes();
}

void Model::collect() {
    const std::vector<SharingTensor> tensors = module_tensors(*module_);
    const std::vector<TensorHome> homes = find_homes(tensors);
    std::map<StorageKey, at::Tensor> kept;
    std::set<const void*> storages;
    std::vector<at::Tensor> moving;
    for (size_t i = 0; i < tensors.size(); ++i) {
        const SharingTensor& tensor = tensors[i];
        if (homes[i].view || tensor.name.empty()) continue;
        add_item(tensor, homes[i].is_loose);
        if (tensor.tensor.numel() == 0) continue;
        kept.emplace(storage_key(tensor.tensor), tensor.tensor);
        // If two tensors share a storage, releasing either would release both.
        const bool shares = !storages.insert(tensor.tensor.storage().data()).second;
        if (shares || repeats_elements(tensor.tensor)) moving.push_back(tensor.tensor);
    }
    for (size_t i = 0; i < tensors.size(); ++i)
        if (homes[i].view) add_view(tensors[i], tensors[homes[i].owner].tensor, *homes[i].view);
    unify_attributes(*module_, kept);
    for (const at::Tensor& tensor : moving) take_own_storage(tensor);
    renew_views();
    note_classes();
}

void Model::add_item(const SharingTensor& tensor, bool is_loose) {
    const c10::TensorImpl* const object = tensor.tensor.unsafeGetTensorImpl();
    if (tensor.is_parameter) {
        parameter_of_.emplace(object, static_cast<int>(parameters_.size()));
        parameters_.push_back({tensor.name, {}, tensor.tensor, nullptr, {}, is_loose});
    } else {
        buffer_of_.emplace(object, static_cast<int>(buffers_.size()));
        buffers_.push_back({tensor.name, {}, tensor.tensor, is_loose});
    }
}

// Adds a name to OWNER if TENSOR is the same as OWNER in all respects; otherwise adds a view of
// OWNER.
void Model::add_view(const SharingTensor& tensor, const at::Tensor& owner, MemoryView view) {
    const int parameter = parameter_index(owner), buffer = buffer_index(owner);
    const bool same_kind = tensor.is_parameter == (parameter >= 0);
    const bool same_gradient = tensor.tensor.requires_grad() == owner.requires_grad();
    // An attribute without a name is not listed, because unify() replaces it by OWNER.
    if (tensor.name.empty() && view.is_same() && same_gradient) return;
    if (view.is_same() && same_kind && same_gradient) {
        (parameter >= 0 ? parameters_[parameter].aliases : buffers_[buffer].aliases)
            .push_back(tensor.name);
        return;
    }
    view_of_.emplace(tensor.tensor.unsafeGetTensorImpl(), static_cast<int>(views_.size()));
    views_.push_back(
        {tensor.name, owner, std::move(view), !tensor.tensor.requires_grad(), true, tensor.tensor});
}

const ModelView* Model::view_of(const at::Tensor& tensor) const {
    const int index = index_in(view_of_, tensor);
    return index < 0 ? nullptr : &views_[index];
}

void Model::renew_views() const {
    const at::NoGradGuard no_grad;
    for (const ModelView& view : views_) {
        at::Tensor tensor = view.tensor;
        tensor.set_data(view.view.of(view.owner.detach()));
    }
}

std::unordered_map<std::string, std::string> Model::extra_files() const {
    if (!unsaved_) return {};
    std::string lines;
    for (const std::string& name : *unsaved_) lines += name + "\n";
    return {{kUnsavedBuffers, lines}};
}

// For each buffer, keeps only the names that a state_dict contains. If a state_dict contains no
// name of a buffer, keeps all names of this buffer.
void Model::leave_unsaved(std::set<std::string> names) {
    std::set<std::string> buffers;
    for (const auto& item : module_->named_buffers(true)) buffers.insert(item.name);
    for (const std::string& name : names)
        if (buffers.count(name) == 0)
            fail(ExitCode::kInput, "{} names `{}`, which is not a buffer of the model",
                 kUnsavedBuffers, printable(name));
    for (ModelBuffer& buffer : buffers_) {
        std::vector<std::string> all = buffer.aliases;
        all.insert(all.begin(), buffer.name);
        std::vector<std::string> saved;
        for (const std::string& name : all)
            if (names.count(name) == 0) saved.push_back(name);
        buffer.is_persistent = buffer.is_persistent && !saved.empty();
        if (!buffer.is_persistent) continue;
        buffer.name = saved.front();
        buffer.aliases.assign(saved.begin() + 1, saved.end());
    }
    for (ModelView& view : views_)
        view.is_persistent = view.is_persistent && names.count(view.name) == 0;
    unsaved_ = std::move(names);
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

int Model::add_parameter(std::string name, at::Tensor tensor, bool is_helper) {
    const int index = static_cast<int>(parameters_.size());
    parameter_of_.emplace(tensor.unsafeGetTensorImpl(), index);
    parameters_.push_back(
        {std::move(name), {}, std::move(tensor), nullptr, {std::string(storage::kLinearClass)}});
    parameters_.back().is_helper = is_helper;
    return index;
}

int Model::add_buffer(std::string name, at::Tensor tensor) {
    const int index = static_cast<int>(buffers_.size());
    buffer_of_.emplace(tensor.unsafeGetTensorImpl(), index);
    ModelBuffer& made = buffers_.emplace_back();
    made.name = std::move(name);
    made.tensor = std::move(tensor);
    made.is_persistent = false;
    return index;
}

int Model::buffer_named(const std::string& name) const {
    const auto found = std::ranges::find(buffers_, name, &ModelBuffer::name);
    return found == buffers_.end() ? -1 : static_cast<int>(found - buffers_.begin());
}

void Model::pack_parameter(int index, std::shared_ptr<const PackedWeight> packed) {
    ModelParameter& parameter = parameters_[index];
    DSL_CHECK(!parameter.tensor.requires_grad(), "{} is trained", parameter.name);
    parameter.tensor.set_data(packed->placeholder());
    parameter.packed = std::move(packed);
}

int Model::parameter_index(const at::Tensor& tensor) const {
    return index_in(parameter_of_, tensor);
}

int Model::buffer_index(const at::Tensor& tensor) const {
    return index_in(buffer_of_, tensor);
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

namespace {

[[noreturn]] void refuse_late(const std::string& what) {
    fail(ExitCode::kInput,
         "forward writes {} in evaluation mode, but not in training mode; write it in both modes, "
         "or only where self.training is true",
         what);
}

}  // namespace

int Model::hold_as_buffer(int index) {
    ModelParameter held = parameters_[index];
    DSL_CHECK(!held.packed, "{} is packed", held.name);
    held.tensor.set_requires_grad(false);
    if (is_state_settled_) refuse_late(fmt::format("parameter `{}`", printable(held.name)));
    const int buffer = static_cast<int>(buffers_.size());
    parameters_.erase(parameters_.begin() + index);
    parameter_of_.erase(held.tensor.unsafeGetTensorImpl());
    for (auto& [tensor, other] : parameter_of_) other -= other > index ? 1 : 0;
    buffer_of_.emplace(held.tensor.unsafeGetTensorImpl(), buffer);
    ModelBuffer& made = buffers_.emplace_back();
    made.name = held.name;
    made.aliases = held.aliases;
    made.tensor = held.tensor;
    made.is_loose = held.is_loose;
    made.origin = ModelBuffer::Origin::kParameter;
    return buffer;
}

int Model::hold_constant(const at::Tensor& tensor) {
    int constants = 0;
    for (size_t b = 0; b < buffers_.size(); ++b) {
        if (buffers_[b].origin != ModelBuffer::Origin::kConstant) continue;
        ++constants;
        // Compares the tensors' memory, not the objects, because each read of an attribute makes a
        // separate constant in the same memory.
        if (is_same_view(buffers_[b].tensor, tensor)) return static_cast<int>(b);
    }
    const std::string name = fmt::format("constant.{}", constants);
    if (is_state_settled_) refuse_late(fmt::format("the tensor {} of its code", name));
    buffer_of_.emplace(tensor.unsafeGetTensorImpl(), static_cast<int>(buffers_.size()));
    ModelBuffer& made = buffers_.emplace_back();
    made.name = name;
    made.tensor = tensor;
    made.is_persistent = false;
    made.origin = ModelBuffer::Origin::kConstant;
    return static_cast<int>(buffers_.size()) - 1;
}

void Model::hold_like(const Model& other, bool with_constants) {
    for (const ModelBuffer& buffer : other.buffers_) {
        if (buffer.origin == ModelBuffer::Origin::kParameter) {
            const auto found = std::ranges::find(parameters_, buffer.name, &ModelParameter::name);
            DSL_CHECK(found != parameters_.end(), "no parameter {}", buffer.name);
            hold_as_buffer(static_cast<int>(found - parameters_.begin()));
        } else if (buffer.origin == ModelBuffer::Origin::kConstant && with_constants) {
            static_cast<void>(hold_constant(buffer.tensor));
        }
    }
}

}  // namespace dslaunch::graph
