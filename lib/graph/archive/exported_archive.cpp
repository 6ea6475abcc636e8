#include <ATen/ops/empty.h>
#include <c10/core/StorageImpl.h>
#include <torch/csrc/jit/api/compilation_unit.h>

#include <map>
#include <set>
#include <span>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text_bytes.h"
#include "graph/archive/forward_of_program.h"
#include "graph/archive/mapped_archive.h"
#include "graph/archive/mapped_records.h"
#include "graph/archive/program_values.h"
#include "storage/exported/module_class.h"
#include "storage/exported/program.h"
#include "storage/scripted/script_archive.h"

namespace dslaunch::graph {

namespace {

using storage::ExportedInput;
using storage::ExportedProgram;
using storage::ExportedTensor;

constexpr std::string_view kModels = "models/";
constexpr std::string_view kJson = ".json";

class ProgramImporter {
  public:
    explicit ProgramImporter(const std::shared_ptr<const storage::MappedFile>& file)
        : records_(file),
          bytes_max_(storage::script_bytes_max(std::ssize(file->bytes()))),
          unit_(std::make_shared<CompilationUnit>()) {}

    LoadedArchive load() {
        const std::string name = model_name();
        check_order_of_bytes();
        const std::string model = fmt::format("{}{}{}", kModels, name, kJson);
        const ExportedProgram program = storage::parse_exported_program(model, text(model));
        for (const auto& [weight, described] :
             read_tensors("data/weights/", name + "_weights_config.json"))
            weights_.emplace(weight, described.is_parameter);
        for (const auto& [constant, described] :
             read_tensors("data/constants/", name + "_constants_config.json"))
            warn_of_lost_tie(constant);
        for (const storage::ExportedNode& node : program.graph.nodes)
            classes_.emplace(node.module_path, node.module_class);
        Module root = new_module("");
        build_modules(program, root);
        std::map<std::string, at::Tensor> constants;
        for (const ExportedInput& input : program.inputs)
            if (input.kind == ExportedInput::Kind::kConstant)
                constants.emplace(input.target, tensor(input.target));
        const ForwardOfProgram forward = forward_of_program(program, root, constants);
        root.type()->addMethod(unit_->create_function(
            c10::QualifiedName(*root.type()->name(), "forward"), forward.graph));
        if (forward.fixed_to_evaluation > 0)
            log_warn(
                "model",
                "dropout and batch normalization are off in {} places, as they were when the model "
                "was exported; to train with them, call module.train() before torch.export.export",
                forward.fixed_to_evaluation);
        LoadedArchive loaded{std::move(root), {}};
        for (const ExportedInput& input : program.inputs)
            if (input.kind == ExportedInput::Kind::kUser && !input.sizes.empty())
                loaded.argument_sizes.emplace(input.value, input.sizes);
        loaded.unsaved = unsaved_buffers(program);
        return loaded;
    }

  private:
    // Returns the buffers that a state_dict does not contain: buffers that the program's signature
    // marks as not persistent, and buffers without an entry in the table of weights.
    std::set<std::string> unsaved_buffers(const ExportedProgram& program) const {
        std::set<std::string> names;
        for (const ExportedInput& input : program.inputs)
            if (input.kind == ExportedInput::Kind::kBuffer &&
                (!input.is_persistent || weights_.count(input.target) == 0))
                names.insert(input.target);
        return names;
    }

    // Returns "model" if there is a models/model.json, which torch.export.save writes; otherwise
    // the name of the only program.
    std::string model_name() const {
        if (records_.find("serialized_exported_program.json") != nullptr)
            fail(ExitCode::kInput,
                 "it was exported by a PyTorch older than 2.8, whose archives are not supported; "
                 "export the model again with a newer PyTorch");
        std::vector<std::string> names;
        for (const storage::ZipRecord& record : records_.directory().records)
            if (record.name.starts_with(kModels) && record.name.ends_with(kJson))
                names.push_back(record.name.substr(
                    kModels.size(), record.name.size() - kModels.size() - kJson.size()));
        if (std::ranges::count(names, "model") > 0) return "model";
        if (names.size() != 1)
            fail(
                ExitCode::kInput,
                "the archive contains {} programs, but none of them is named model; write one with "
                "torch.export.save(torch.export.export(module, example_inputs), \"train.pt2\")",
                names.size());
        return names[0];
    }

    void check_order_of_bytes() const {
        if (records_.find("byteorder") != nullptr && text("byteorder") != "little")
            fail(ExitCode::kInput, "its numbers are not little-endian");
    }

    std::string_view text(const std::string& name) const {
        const storage::ZipRecord* record = records_.find(name);
        if (record == nullptr)
            fail(ExitCode::kInput, "the archive has no record {}", printable(name));
        if (record->is_deflated)
            fail(ExitCode::kInput, "the record {} is compressed", printable(name));
        return text_in(record->stored);
    }

    // Returns the descriptions of the tensors in the table FOLDER + TABLE and adds the tensors to
    // tensors_. Returns an empty map if there is no such table.
    std::map<std::string, ExportedTensor> read_tensors(const std::string& folder,
                                                       const std::string& table) {
        if (records_.find(folder + table) == nullptr) return {};
        auto tensors = storage::parse_weights_table(folder + table, text(folder + table));
        for (const auto& [name, described] : tensors)
            tensors_.emplace(name, read_tensor(name, folder + described.record, described));
        return tensors;
    }

    at::Tensor read_tensor(const std::string& name, const std::string& record,
                           const ExportedTensor& described) {
        const at::ScalarType dtype = scalar_type_of_code(described.dtype);
        const c10::Storage storage = storage_of(record);
        const auto element = static_cast<int64_t>(c10::elementSize(dtype));
        if (described.reach > static_cast<int64_t>(storage.nbytes()) / element)
            fail(ExitCode::kInput,
                 "the tensor `{}` needs {} elements of {} bytes, but its record {} has only {} "
                 "bytes; the archive is damaged",
                 printable(name), described.reach, element, printable(record), storage.nbytes());
        if (__builtin_add_overflow(bytes_, described.numel * element, &bytes_) ||
            bytes_ > bytes_max_)
            fail(ExitCode::kInput,
                 "its tensors expand to more than {} (reached at `{}`), which no real model does; "
                 "the archive is damaged or malicious",
                 to_text(Bytes{bytes_max_}), printable(name));
        at::Tensor tensor = at::empty({0}, at::TensorOptions(dtype));
        tensor.set_(storage, described.offset, described.sizes, described.strides);
        const bool floats = at::isFloatingType(dtype) || at::isComplexType(dtype);
        if (described.is_parameter && described.requires_grad && floats)
            tensor.set_requires_grad(true);
        return tensor;
    }

    // Returns the storage of the record NAME. Tied tensors name the same record and share its
    // storage.
    c10::Storage storage_of(const std::string& name) {
        const auto found = storages_.find(name);
        if (found != storages_.end()) return found->second;
        const storage::ZipRecord* record = records_.find(name);
        const size_t bytes = record == nullptr ? 0 : record->stored.size();
        // An empty tensor may have no record.
        c10::Storage storage(c10::Storage::use_byte_size_t(), bytes,
                             record == nullptr ? at::DataPtr(nullptr, at::kCPU) : data(*record),
                             nullptr, /*resizable=*/false);
        return storages_.emplace(name, std::move(storage)).first->second;
    }

    at::DataPtr data(const storage::ZipRecord& record) {
        if (std::optional<at::DataPtr> lent = records_.lend(record)) return std::move(*lent);
        if (record.is_deflated)
            fail(ExitCode::kInput, "the record {} is compressed", printable(record.name));
        return copied_data(record.stored);
    }

    // Warns of a lost tie. The archive stores constants and weights in separate folders, so a
    // constant or unsaved buffer that shared a weight's memory is loaded as a copy, in PyTorch too.
    // Such a copy is recognized by its equal bits.
    void warn_of_lost_tie(const std::string& name) const {
        constexpr int64_t kChance = 4;  // fewer elements may be equal by chance
        const at::Tensor constant = tensor(name);
        const auto bytes = [](const at::Tensor& of) {
            return std::string_view(static_cast<const char*>(of.const_data_ptr()), of.nbytes());
        };
        const auto is_plain = [](const at::Tensor& of) {
            return of.is_floating_point() && of.is_non_overlapping_and_dense();
        };
        if (!is_plain(constant) || constant.numel() < kChance) return;
        const std::string_view own = bytes(constant);
        // If all elements are equal, as in a bias that was initialized with zeros, equal bits prove
        // nothing.
        if (own.substr(constant.element_size()) ==
            own.substr(0, own.size() - constant.element_size()))
            return;
        for (const auto& [weight, is_parameter] : weights_) {
            const at::Tensor other = tensor(weight);
            if (is_parameter && is_plain(other) && other.requires_grad() &&
                other.scalar_type() == constant.scalar_type() && bytes(other) == own)
                log_warn("model",
                         "`{0}` has the same values as the parameter `{1}`, but separate memory in "
                         "the archive, so `{0}` does not change when the parameter is trained; if "
                         "`{0}` must follow the parameter, compute `{0}` from the parameter in "
                         "forward, or make `{0}` a buffer that state_dict contains",
                         printable(name), printable(weight));
        }
    }

    at::Tensor tensor(const std::string& name) const {
        const auto found = tensors_.find(name);
        if (found == tensors_.end())
            fail(ExitCode::kInput, "the tensor `{}` is not in the archive", printable(name));
        return found->second;
    }

    // Returns a new module for PATH. The name of its type contains the name of the original Python
    // class in the form that torch.jit uses, so that the class can be found later
    // (storage/exported/module_class.h).
    Module new_module(const std::string& path) {
        const auto known = classes_.find(path);
        const std::string type =
            storage::type_of_class(known == classes_.end() ? "" : known->second, modules_made_++);
        Module module(c10::QualifiedName(type), unit_);
        module.register_attribute("training", c10::BoolType::get(), true);
        return module;
    }

    // Creates a module for each part of a name, as in the exported module. The graph uses a tied
    // parameter under one of its names; its other names are in the table of weights.
    void build_modules(const ExportedProgram& program, const Module& root) {
        std::set<std::string> done;
        for (const ExportedInput& input : program.inputs) {
            const bool is_parameter = input.kind == ExportedInput::Kind::kParameter;
            if (!is_parameter && input.kind != ExportedInput::Kind::kBuffer) continue;
            register_tensor(root, input.target, is_parameter);
            done.insert(input.target);
        }
        for (const auto& [name, is_parameter] : weights_)
            if (done.count(name) == 0) register_tensor(root, name, is_parameter);
    }

    void register_tensor(const Module& root, const std::string& name, bool is_parameter) {
        Module owner = root;
        const std::vector<std::string> parts = split(name, '.');
        std::string path;
        for (size_t i = 0; i + 1 < parts.size(); ++i) {
            path += (path.empty() ? "" : ".") + parts[i];
            if (!owner.hasattr(parts[i])) owner.register_module(parts[i], new_module(path));
            if (!owner.attr(parts[i]).isModule())
                fail(ExitCode::kInput, "the name `{}` treats a tensor as a module",
                     printable(name));
            owner = owner.attr(parts[i]).toModule();
        }
        if (parts.back().empty() || owner.hasattr(parts.back()))
            fail(ExitCode::kInput, "the name `{}` is used twice", printable(name));
        if (is_parameter) {
            owner.register_parameter(parts.back(), tensor(name), false);
        } else {
            owner.register_buffer(parts.back(), tensor(name));
        }
    }

    MappedRecords records_;
    const int64_t bytes_max_;  // limit for all tensors together
    int64_t bytes_ = 0;        // of the records that were read
    std::shared_ptr<CompilationUnit> unit_;
    std::map<std::string, c10::Storage> storages_;  // by record
    std::map<std::string, at::Tensor> tensors_;     // by name in the module
    std::map<std::string, bool> weights_;           // the table of weights; true: a parameter
    std::map<std::string, std::string> classes_;    // of the modules of nodes, by path
    int modules_made_ = 0;
};

}  // namespace

LoadedArchive load_exported(const std::string& path) {
    const auto file =
        std::make_shared<const storage::MappedFile>(path, storage::MapMode::kCopyOnWrite);
    LoadedArchive loaded = ProgramImporter(file).load();
    loaded.files = {file};
    return loaded;
}

}  // namespace dslaunch::graph
