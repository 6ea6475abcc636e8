#include "graph/archive/mapped_archive.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/import_source.h>
#include <torch/csrc/jit/serialization/unpickler.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "graph/archive/archive_source.h"
#include "graph/archive/mapped_records.h"
#include "storage/files/zip_archive.h"

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

// One use of the pieces that torch::jit::load is made of, with records that lie in the mapping.
class Importer {
  public:
    explicit Importer(const std::shared_ptr<const storage::MappedFile>& file)
        : records_(file),
          reader_(std::make_shared<MappingReader>(file->bytes())),
          unit_(std::make_shared<torch::jit::CompilationUnit>()),
          sources_(
              unit_, &constants_, [this](const std::string& name) { return source(name); },
              reader_.version()) {}

    // Nothing when only torch::jit::load can read the archive; reason() says why.
    std::optional<torch::jit::Module> load() {
        if (records_.find("model.json") != nullptr) {
            reason_ = "it has the format of before LibTorch 1.4";
            return std::nullopt;
        }
        const IValue constants = unpickle("constants");
        for (const auto& constant : constants.toTupleRef().elements())
            constants_.push_back(constant);
        const IValue data = unpickle("data");
        if (!reason_.empty()) return std::nullopt;
        check_sizes(constants);
        check_sizes(data);
        return torch::jit::Module(data.toObject());
    }

    [[nodiscard]] const std::string& reason() const { return reason_; }

  private:
    std::shared_ptr<torch::jit::Source> source(const std::string& qualifier) {
        std::shared_ptr<torch::jit::Source> found = read_source(reader_, qualifier);
        if (found != nullptr &&
            found->text_str().find(std::string(kRewrittenCode), 0) != std::string::npos)
            reason_ = "its quantized convolutions must be rewritten";
        return found;
    }

    // The value that NAME.pkl describes; its tensors are the records under NAME/.
    IValue unpickle(const std::string& name) {
        const auto [pickle, bytes] = reader_.getRecord(name + ".pkl");
        std::string_view rest(static_cast<const char*>(pickle.get()), bytes);
        const auto read = [&rest](char* into, size_t wanted) {
            const size_t count = std::min(wanted, rest.size());
            std::memcpy(into, rest.data(), count);
            rest.remove_prefix(count);
            return count;
        };
        torch::jit::Unpickler unpickler(
            read,
            [this](const c10::QualifiedName& type) {
                return c10::StrongTypePtr(unit_, sources_.loadType(type));
            },
            torch::jit::ObjLoaderFunc,
            [&](const std::string& record) { return tensor_data(name + "/" + record); },
            // Weights that were saved on a GPU lie in records as any others do.
            c10::Device(at::kCPU));
        unpickler.set_version(reader_.version());
        return unpickler.parse_ivalue();
    }

    at::DataPtr tensor_data(const std::string& name) {
        if (const storage::ZipRecord* record = records_.find(name))
            if (std::optional<at::DataPtr> lent = records_.lend(*record)) return std::move(*lent);
        return std::get<0>(reader_.getRecord(name));  // says so where there is none
    }

    // A pickle that claims more elements than its record holds would read its neighbours.
    void check_sizes(const IValue& root) const {
        root.visit([this](const IValue& value) {
            if (!value.isTensor() || !value.toTensor().defined() || !value.toTensor().has_storage())
                return false;
            const c10::Storage& storage = value.toTensor().storage();
            const std::optional<size_t> bytes = records_.bytes_lent(storage.data());
            if (bytes && storage.nbytes() > *bytes)
                fail(ExitCode::kInput,
                     "a tensor of {} bytes lies in a record of {} bytes; the archive is damaged",
                     storage.nbytes(), *bytes);
            return false;
        });
    }

    MappedRecords records_;
    PyTorchStreamReader reader_;
    std::shared_ptr<torch::jit::CompilationUnit> unit_;
    std::vector<IValue> constants_;
    torch::jit::SourceImporter sources_;
    std::string reason_;
};

// An archive of a few kilobytes may say that its records are gigabytes, which LibTorch allocates.
constexpr int64_t kExpandedFactorMax = 4;
constexpr int64_t kExpandedExtraMax = int64_t{256} << 20;

// Nothing: LibTorch reads no such archive either, and says why.
std::optional<Bytes> expanded_bytes(const storage::MappedFile& file) {
    try {
        return storage::expanded_bytes(file.path(), file.bytes());
    } catch (const Error&) {
        try {
            const PyTorchStreamReader reader(std::make_shared<MappingReader>(file.bytes()));
        } catch (const c10::Error&) {
            return std::nullopt;
        }
        throw;  // it would be read without a bound
    }
}

void check_expansion(const storage::MappedFile& file) {
    const Bytes bytes{std::ssize(file.bytes())};
    const Bytes limit{kExpandedFactorMax * bytes.value + kExpandedExtraMax};
    const Bytes expanded = expanded_bytes(file).value_or(Bytes{});
    if (expanded <= limit) return;
    fail(ExitCode::kInput,
         "{}: its records are said to expand to {} from a file of {}: no model is written so",
         file.path(), to_text(expanded), to_text(bytes));
}

}  // namespace

LoadedArchive load_archive(const std::string& path) {
    const auto file =
        std::make_shared<const storage::MappedFile>(path, storage::MapMode::kCopyOnWrite);
    check_expansion(*file);
    std::string reason;
    std::optional<Importer> importer;
    try {
        importer.emplace(file);
    } catch (const Error& error) {
        reason = error.what();
    }
    if (importer) {
        if (std::optional<torch::jit::Module> module = importer->load())
            return {std::move(*module), {file}};
        reason = importer->reason();
    }
    log_info("model", "{}: read whole into memory: {}", path, reason);
    return {torch::jit::load(path, c10::Device(at::kCPU)), {}};
}

}  // namespace dslaunch::graph
