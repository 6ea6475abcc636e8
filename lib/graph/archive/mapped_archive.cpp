#include "graph/archive/mapped_archive.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/import_source.h>
#include <torch/csrc/jit/serialization/unpickler.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/small_thread.h"
#include "base/text.h"
#include "base/text_bytes.h"
#include "graph/archive/archive_source.h"
#include "graph/archive/mapped_records.h"
#include "graph/trust/model_operators.h"
#include "graph/trust/operator_policy.h"
#include "graph/trust/slot_types.h"
#include "storage/files/crc32.h"
#include "storage/files/zip_archive.h"
#include "storage/scripted/script_archive.h"

namespace dslaunch::graph {

namespace {

using c10::IValue;
using caffe2::serialize::PyTorchStreamReader;
using Content = std::span<const std::byte>;

// LibTorch rewrites calls of these while it loads; only its own loader can.
constexpr std::string_view kRewrittenCode = "ops.quantized.conv";

// LibTorch's archive reader takes its bytes from here.
class MappingReader final : public caffe2::serialize::ReadAdapterInterface {
  public:
    explicit MappingReader(Content bytes) : bytes_(bytes) {}
    size_t size() const override { return bytes_.size(); }
    size_t read(uint64_t begin, void* into, size_t wanted, const char*) const override {
        const Content rest = bytes_.subspan(std::min<size_t>(begin, bytes_.size()));
        const size_t count = std::min(wanted, rest.size());
        if (count > 0) std::memcpy(into, rest.data(), count);
        return count;
    }

  private:
    Content bytes_;
};

// One use of the pieces that torch::jit::load is made of, with records that lie in the mapping and
// pickles and code that ScriptArchive has checked.
class Importer {
  public:
    Importer(const std::shared_ptr<const storage::MappedFile>& file, Trust trust)
        : records_(file),
          reader_(std::make_shared<MappingReader>(file->bytes())),
          checked_(file->path(), records_.directory(), std::ssize(file->bytes()),
                   [this](const storage::ZipRecord& record) { return content(record); }),
          trust_(trust),
          unit_(std::make_shared<torch::jit::CompilationUnit>()),
          sources_(
              unit_, &constants_, [this](const std::string& name) { return source(name); },
              reader_.version()) {}

    // Nothing when only torch::jit::load can read the archive; reason() says why.
    std::optional<torch::jit::Module> load() {
        std::optional<torch::jit::Module> module;
        with_stack([&] {
            check_classes(checked_.constants());
            const IValue constants = unpickle("constants", checked_.constants_bytes());
            for (const auto& constant : constants.toTupleRef().elements())
                constants_.push_back(constant);
            // The code of classes takes constants.
            check_classes(checked_.data());  // its code may read the constants
            const IValue data = unpickle("data", checked_.data_bytes());
            if (reason_.empty())
                module = torch::jit::Module(data.toObject());
            else if (trust_ == Trust::kNone)
                operators_.check(*unit_);  // LibTorch's own loader runs code of the archive
        });
        return module;
    }

    [[nodiscard]] const std::string& reason() const { return reason_; }

  private:
    // Runs WORK here, or on a thread with the stack that deep code takes.
    void with_stack(const std::function<void()>& work) const {
        constexpr int64_t kStackOfPart = 2048, kOwnStack = int64_t{2} << 20;
        const int64_t wanted = checked_.code_depth() * kStackOfPart;
        if (wanted <= kOwnStack) return work();
        std::exception_ptr error;
        SmallThread(
            [&] {
                try {
                    work();
                } catch (...) {
                    error = std::current_exception();
                }
            },
            static_cast<size_t>(wanted + kOwnStack))
            .join();
        if (error) std::rethrow_exception(error);
    }

    // The content of RECORD. LibTorch finds records whatever the case of their
    // names.
    std::string content(const storage::ZipRecord& record) {
        if (!record.deflated) return std::string(text_in(record.stored));
        const auto [data, bytes] = reader_.getRecord(record.name);
        std::string text(static_cast<const char*>(data.get()), bytes);
        if (std::ssize(text) != record.content_bytes ||
            storage::crc32(std::as_bytes(std::span(text))) != record.crc32)
            fail(ExitCode::kInput, "record '{}' is damaged: its checksum differs",
                 printable(record.name));
        return text;
    }

    std::shared_ptr<torch::jit::Source> source(const std::string& qualifier) {
        std::string record = "code/" + qualifier + ".py";
        std::replace(record.begin() + 5, record.end() - 3, '.', '/');
        const auto text = checked_.code().find(record);
        if (text == checked_.code().end()) return nullptr;
        if (text->second.find(kRewrittenCode) != std::string::npos)
            reason_ = "its quantized convolutions must be rewritten";
        const storage::ZipRecord* const origins = records_.find(record + ".debug_pkl");
        return make_source(record, text->second, origins == nullptr ? "" : content(*origins));
    }

    c10::TypePtr compile(const c10::QualifiedName& type) {
        std::optional<FoldingGuard> guard;
        if (trust_ == Trust::kNone) guard.emplace();
        return sources_.loadType(type);
    }

    // The value that NAME.pkl describes, which is PICKLE; its tensors are the records under NAME/.
    IValue unpickle(const std::string& name, std::string_view pickle) {
        const auto read = [&pickle](char* into, size_t wanted) {
            const size_t count = std::min(wanted, pickle.size());
            std::memcpy(into, pickle.data(), count);
            pickle.remove_prefix(count);
            return count;
        };
        torch::jit::Unpickler unpickler(
            read,
            [this](const c10::QualifiedName& type) {
                return c10::StrongTypePtr(unit_, compile(type));
            },
            [this](const at::StrongTypePtr& type, IValue state) {
                return make_object(type, std::move(state));
            },
            [&](const std::string& record) { return tensor_data(name + "/" + record); },
            // Weights that were saved on a GPU lie in records as any others do.
            c10::Device(at::kCPU));
        unpickler.set_version(reader_.version());
        return unpickler.parse_ivalue();
    }

    // Checks that each class of PICKLE is one, and that each enumerator has a value of its class:
    // the unpickler forgets to push any value for another.
    void check_classes(const storage::Pickle& pickle) {
        using Kind = storage::PickleValue::Kind;
        for (const storage::PickleValue& value : pickle.values()) {
            if (value.kind != Kind::kObject && value.kind != Kind::kEnumerator) continue;
            std::string name = value.text;
            std::ranges::replace(name, ' ', '.');
            check_class_in_cpp(name);
            const c10::TypePtr type = compile(c10::QualifiedName(name));
            const bool fits = value.kind == Kind::kObject ? type->cast<c10::ClassType>() != nullptr
                                                          : has_enumerator(*type, *value.items[0]);
            if (!fits)
                fail(ExitCode::kInput, "the archive has no such value of {}", printable(name));
        }
    }

    void check_class_in_cpp(const std::string& name) const {
        const std::string why = trust_ == Trust::kNone ? why_class_refused(name) : "";
        if (!why.empty())
            fail(ExitCode::kInput,
                 "the archive holds a {}: {}; if you trust who made it, say so with --trust-model",
                 printable(name), why);
    }

    // Classes with a __setstate__ run it here.
    c10::intrusive_ptr<c10::ivalue::Object> make_object(const at::StrongTypePtr& type,
                                                        IValue state) {
        const auto& named = type.type_->expectRef<c10::ClassType>();
        if (trust_ == Trust::kNone && named.findMethod("__setstate__") != nullptr)
            operators_.check(*unit_);
        auto object = torch::jit::ObjLoaderFunc(type, std::move(state));
        check_slots(*object);
        return object;
    }

    at::DataPtr tensor_data(const std::string& name) {
        const storage::ZipRecord* const record = records_.find(name);
        if (record == nullptr) fail(ExitCode::kInput, "has no record {}", printable(name));
        if (std::optional<at::DataPtr> lent = records_.lend(*record)) return std::move(*lent);
        const auto copied = [](std::string_view bytes) {
            at::DataPtr copy = c10::GetAllocator(at::kCPU)->allocate(bytes.size());
            std::memcpy(copy.get(), bytes.data(), bytes.size());
            return copy;
        };
        return record->deflated ? copied(content(*record)) : copied(text_in(record->stored));
    }

    MappedRecords records_;
    PyTorchStreamReader reader_;
    storage::ScriptArchive checked_;
    const Trust trust_;
    std::shared_ptr<torch::jit::CompilationUnit> unit_;
    std::vector<IValue> constants_;
    torch::jit::SourceImporter sources_;
    ModelOperators operators_;
    std::string reason_;
};

// A record may say that it expands to gigabytes, which LibTorch allocates.
void check_expansion(const storage::MappedFile& file) {
    const Bytes bytes{std::ssize(file.bytes())};
    const Bytes limit{storage::script_bytes_max(bytes.value)};
    const Bytes expanded = storage::expanded_bytes(file.path(), file.bytes());
    if (expanded <= limit) return;
    fail(ExitCode::kInput,
         "{}: its records are said to expand to {} from a file of {}: no model is written so",
         file.path(), to_text(expanded), to_text(bytes));
}

}  // namespace

LoadedArchive load_archive(const std::string& path, Trust trust) {
    const auto file =
        std::make_shared<const storage::MappedFile>(path, storage::MapMode::kCopyOnWrite);
    check_expansion(*file);
    Importer importer(file, trust);
    if (std::optional<torch::jit::Module> module = importer.load())
        return {std::move(*module), {file}};
    log_info("model", "{}: read whole into memory: {}", path, importer.reason());
    return {load_by_libtorch(path), {}};
}

torch::jit::Module load_by_libtorch(const std::string& path) {
    const storage::ZipArchive archive(path);
    std::set<std::string> names;
    for (const storage::ZipRecord& record : archive.records()) {
        std::string name = record.name;
        std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
        if (!names.insert(name).second)
            fail(ExitCode::kInput, "{}: two of its records have the name {}", path,
                 printable(name));
    }
    return torch::jit::load(path, c10::Device(at::kCPU));
}

}  // namespace dslaunch::graph
