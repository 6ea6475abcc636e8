#include "graph/archive/mapped_archive.h"

#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/import_source.h>
#include <torch/csrc/jit/serialization/source_range_serialization.h>
#include <torch/csrc/jit/serialization/unpickler.h>

#include <algorithm>
#include <cstring>
#include <exception>
#include <functional>
#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/machine/small_thread.h"
#include "base/text.h"
#include "base/text_bytes.h"
#include "graph/archive/mapped_records.h"
#include "graph/trust/model_operators.h"
#include "graph/trust/operator_policy.h"
#include "graph/trust/slot_types.h"
#include "storage/files/crc32.h"
#include "storage/files/zip_archive.h"
#include "storage/files/zip_format.h"
#include "storage/pickle/pickle.h"
#include "storage/scripted/script_archive.h"

namespace dslaunch::graph {

namespace {

using storage::PickleValue;
using torch::jit::Source;
using torch::jit::SourceRange;
using PickleKind = PickleValue::Kind;
using caffe2::serialize::PyTorchStreamReader;
using Content = std::span<const std::byte>;

// LibTorch replaces calls of operators whose names begin with this text while it loads an archive.
// Only torch::jit::load does this, so it loads all archives with such calls.
constexpr std::string_view kRewrittenCode = "ops.quantized.conv";

// A reader through which LibTorch's archive classes read the mapped file.
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

// The table that maps bytes of a code record to lines of Python: the code was compiled from these
// lines. Since LibTorch 1.12, the pickle gives texts as indices into a table of strings; older
// pickles contain the strings themselves.
class OriginTable final : public torch::jit::SourceRangeUnpickler {
  public:
    OriginTable(std::string name, std::string pickled)
        : name_(std::move(name)), pickled_(std::move(pickled)) {}

    std::optional<SourceRange> findSourceRangeThatGenerated(const SourceRange& range) override {
        if (!pickled_.empty()) read_or_ignore(std::exchange(pickled_, {}));
        const auto next = ranges_.upper_bound(range.start());
        if (next == ranges_.begin()) return std::nullopt;
        return std::prev(next)->second;
    }

  private:
    void read_or_ignore(const std::string& pickled) {
        try {
            const storage::Pickle table(name_, std::as_bytes(std::span(pickled)),
                                        storage::PickleWords::kScript);
            read(table.root());
        } catch (const Error& error) {
            log_debug("model", "the lines of the Python source are not known: {}", error.what());
            ranges_.clear();
        }
        sources_.clear();
    }

    [[noreturn]] void bad() const {
        fail(ExitCode::kInput, "{}: is not a table of source lines", name_);
    }
    const PickleValue& part(const PickleValue& value, size_t index) const {
        if (value.kind != PickleKind::kTuple || index >= value.items.size()) bad();
        return *value.items[index];
    }
    size_t number(const PickleValue& value, size_t limit) const {
        if (value.kind != PickleKind::kInteger || value.integer < 0) bad();
        const auto number = static_cast<size_t>(value.integer);
        if (number > limit) bad();
        return number;
    }
    const std::string& words(const PickleValue& value) const {
        if (value.kind != PickleKind::kText) bad();
        return value.text;
    }

    void read(const PickleValue& table) {
        const PickleValue* lines = &table;
        if (table.kind == PickleKind::kTuple && table.items.size() == 3 &&
            table.items[0]->kind == PickleKind::kText &&
            table.items[0]->text == torch::jit::kFormatWithStringTable) {
            for (const PickleValue* text : part(table, 1).items)
                texts_.push_back(std::make_shared<std::string>(words(*text)));
            lines = &part(table, 2);
        }
        if (lines->kind != PickleKind::kTuple) bad();
        for (const PickleValue* line : lines->items) {
            const size_t begin = number(part(*line, torch::jit::kByteOffsetIndex), SIZE_MAX);
            const PickleValue& range = part(*line, torch::jit::kSourceRangeIndex);
            const std::shared_ptr<Source> made = source(part(range, 0));
            // For an empty source, LibTorch stores a range of one byte, so `end` may be size() + 1.
            const size_t end = number(part(range, 2), made->size() + 1);
            const size_t start = number(part(range, 1), std::min(end, made->size()));
            ranges_.insert_or_assign(begin, SourceRange(made, start, end));
        }
    }

    // Returns the source that VALUE describes. It is made only once, because many lines refer to
    // it.
    std::shared_ptr<Source> source(const PickleValue& value) {
        std::shared_ptr<Source>& made = sources_[&value];
        if (made != nullptr) return made;
        constexpr size_t kLinesMax = size_t{1} << 31;
        const size_t first_line = number(part(value, 2), kLinesMax);
        if (texts_.empty()) {
            const PickleValue& file = part(value, 1);
            made = std::make_shared<Source>(
                words(part(value, 0)),
                file.kind == PickleKind::kNone ? std::nullopt : std::optional(words(file)),
                first_line);
            return made;
        }
        std::vector<std::string_view> pieces;
        std::vector<std::shared_ptr<std::string>> owners;
        if (part(value, 0).kind != PickleKind::kList) bad();
        for (const PickleValue* index : part(value, 0).items) {
            owners.push_back(text(*index));
            pieces.emplace_back(*owners.back());
        }
        made = std::make_shared<Source>(
            torch::jit::StringCordView(std::move(pieces), std::move(owners)), *text(part(value, 1)),
            first_line);
        return made;
    }

    const std::shared_ptr<std::string>& text(const PickleValue& index) const {
        const size_t at = number(index, texts_.size());
        if (at == texts_.size()) bad();
        return texts_[at];
    }

    std::string name_;
    std::string pickled_;  // empty after it was read
    std::vector<std::shared_ptr<std::string>> texts_;
    std::map<size_t, SourceRange> ranges_;  // by the first byte of code
    std::map<const PickleValue*, std::shared_ptr<Source>> sources_;
};

// Returns the source of the record NAME with the text TEXT. ORIGINS: the pickle that maps TEXT to
// lines of Python; empty if there is none. The pickle is read when a line is first requested, and
// ignored if it is damaged.
std::shared_ptr<Source> make_source(const std::string& name, const std::string& text,
                                    std::string origins) {
    std::shared_ptr<OriginTable> table;
    if (!origins.empty()) table = std::make_shared<OriginTable>(name, std::move(origins));
    return std::make_shared<Source>(text, name, 1, std::move(table));
}

// The loader of one archive, made of the parts of LibTorch that torch::jit::load uses. It reads
// records from the mapped file. ScriptArchive has already checked the pickles and the code.
class Importer {
  public:
    Importer(const std::shared_ptr<const storage::MappedFile>& file, Trust trust)
        : records_(file),
          reader_(std::make_shared<MappingReader>(file->bytes())),
          checked_(file->path(), records_.directory(), std::ssize(file->bytes()),
                   [this](const storage::ZipRecord& record) { return content(record); }),
          trust_(trust),
          unit_(std::make_shared<CompilationUnit>()),
          sources_(
              unit_, &constants_, [this](const std::string& name) { return source(name); },
              reader_.version()) {}

    // Returns nothing if only torch::jit::load can read the archive; reason() then says why.
    std::optional<Module> load() {
        std::optional<Module> module;
        with_stack([&] {
            check_classes(checked_.constants());
            const IValue constants = unpickle("constants", checked_.constants_bytes());
            for (const auto& constant : constants.toTupleRef().elements())
                constants_.push_back(constant);
            // Constants come first: the code of classes may read them.
            check_classes(checked_.data());  // before any code of classes runs
            const IValue data = unpickle("data", checked_.data_bytes());
            if (reason_.empty())
                module = Module(data.toObject());
            else if (trust_ == Trust::kNone)
                operators_.check(*unit_);  // LibTorch's own loader runs code of the archive
        });
        return module;
    }

    [[nodiscard]] const std::string& reason() const { return reason_; }

  private:
    // Runs WORK on this thread, or on a thread with a larger stack if the code is nested deeply.
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

    // Returns the content of RECORD. LibTorch finds records regardless of the case of their names.
    std::string content(const storage::ZipRecord& record) {
        if (!record.is_deflated) return std::string(text_in(record.stored));
        const auto [data, bytes] = reader_.getRecord(record.name);
        std::string text(static_cast<const char*>(data.get()), bytes);
        if (std::ssize(text) != record.content_bytes ||
            storage::crc32(std::as_bytes(std::span(text))) != record.crc32)
            fail(ExitCode::kInput, "record '{}' is damaged: its checksum differs",
                 printable(record.name));
        return text;
    }

    std::shared_ptr<Source> source(const std::string& qualifier) {
        std::string record = "code/" + qualifier + ".py";
        std::replace(record.begin() + 5, record.end() - 3, '.', '/');
        const auto text = checked_.code().find(record);
        if (text == checked_.code().end()) return nullptr;
        if (text->second.find(kRewrittenCode) != std::string::npos)
            reason_ = "LibTorch must convert its quantized convolutions";
        const storage::ZipRecord* const origins = records_.find(record + ".debug_pkl");
        return make_source(record, text->second, origins == nullptr ? "" : content(*origins));
    }

    c10::TypePtr compile(const c10::QualifiedName& type) {
        std::optional<FoldingGuard> guard;
        if (trust_ == Trust::kNone) guard.emplace();
        return sources_.loadType(type);
    }

    // Returns the value that PICKLE, the content of NAME.pkl, describes. The tensors in the value
    // are the records under NAME/.
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
            // Weights that were saved on a GPU are loaded onto the CPU too.
            c10::Device(at::kCPU));
        unpickler.set_version(reader_.version());
        return unpickler.parse_ivalue();
    }

    // Checks that each class in PICKLE is a class of the code, and that each enumerator belongs to
    // its enumeration. Otherwise LibTorch's unpickler would not push a value on its stack.
    void check_classes(const storage::Pickle& pickle) {
        for (const PickleValue& value : pickle.values()) {
            if (value.kind != PickleKind::kObject && value.kind != PickleKind::kEnumerator)
                continue;
            std::string name = value.text;
            std::ranges::replace(name, ' ', '.');
            check_class_in_cpp(name);
            const c10::TypePtr type = compile(c10::QualifiedName(name));
            const bool fits = value.kind == PickleKind::kObject
                                  ? type->cast<c10::ClassType>() != nullptr
                                  : has_enumerator(*type, *value.items[0]);
            if (!fits)
                fail(ExitCode::kInput, "the archive contains an invalid value of {}",
                     printable(name));
        }
    }

    void check_class_in_cpp(const std::string& name) const {
        const std::string why = trust_ == Trust::kNone ? why_class_refused(name) : "";
        if (!why.empty())
            fail(ExitCode::kInput,
                 "the archive contains a {}, which is refused: {}; if you trust the author of the "
                 "model, pass --trust-model",
                 printable(name), why);
    }

    // Makes an object, and runs its class's __setstate__ if there is one.
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
        if (!record->is_deflated) return copied_data(record->stored);
        const std::string text = content(*record);
        return copied_data(std::as_bytes(std::span(text)));
    }

    MappedRecords records_;
    PyTorchStreamReader reader_;
    storage::ScriptArchive checked_;
    const Trust trust_;
    std::shared_ptr<CompilationUnit> unit_;
    std::vector<IValue> constants_;
    torch::jit::SourceImporter sources_;
    ModelOperators operators_;
    std::string reason_;
};

// Refuses an archive whose records claim to expand to gigabytes, which LibTorch would allocate.
void check_expansion(const storage::MappedFile& file) {
    const Bytes bytes{std::ssize(file.bytes())};
    const Bytes limit{storage::script_bytes_max(bytes.value)};
    const Bytes expanded = storage::expanded_bytes(file.path(), file.bytes());
    if (expanded <= limit) return;
    fail(ExitCode::kInput,
         "{}: its records claim to expand to {} from a file of {}, which no real model does; the "
         "archive is damaged or malicious",
         file.path(), to_text(expanded), to_text(bytes));
}

}  // namespace

LoadedArchive load_archive(const std::string& path, Trust trust) {
    const auto file =
        std::make_shared<const storage::MappedFile>(path, storage::MapMode::kCopyOnWrite);
    check_expansion(*file);
    Importer importer(file, trust);
    if (std::optional<Module> module = importer.load()) return {std::move(*module), {file}};
    log_info("model", "{}: the whole file is read into memory, not mapped: {}", path,
             importer.reason());
    return {load_by_libtorch(path), {}};
}

Module load_by_libtorch(const std::string& path) {
    const storage::ZipArchive archive(path);
    std::set<std::string> names;
    for (const storage::ZipRecord& record : archive.records()) {
        const std::string name = dslaunch::lower(record.name);
        if (!names.insert(name).second)
            fail(ExitCode::kInput, "{}: two of its records have the name {}", path,
                 printable(name));
    }
    return torch::jit::load(path, c10::Device(at::kCPU));
}

}  // namespace dslaunch::graph
