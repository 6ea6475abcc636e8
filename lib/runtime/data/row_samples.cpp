// Row files. Row i of each column belongs to sample i.
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <numeric>
#include <span>
#include <utility>
#include <variant>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "base/text/words.h"
#include "graph/archive/scalar_types.h"
#include "runtime/data/column_match.h"
#include "runtime/data/samples.h"
#include "storage/files/npy_file.h"
#include "storage/files/safetensors.h"
#include "storage/tokens/reference_model.h"
#include "storage/tokens/row_documents.h"
#include "storage/tokens/row_vocabulary.h"
#include "storage/tokens/token_counts.h"

namespace dslaunch::runtime {
namespace {

// A column of the file, and the form that one argument of forward needs.
struct FedColumn {
    std::string name;
    DType dtype = DType::kF32;
    std::span<const std::byte> bytes;
    int64_t row_numel = 1;

    [[nodiscard]] int64_t row_bytes() const { return row_numel * dtype_bytes(dtype); }
};

// Returns the dtype of a column in a batch: int64 for integers, float32 for floats, bool for bool;
// nullopt for dtypes that LibTorch's operators do not support.
std::optional<c10::ScalarType> batch_dtype(DType dtype) {
    switch (dtype) {
        case DType::kBool:
            return c10::ScalarType::Bool;
        case DType::kC64:
        case DType::kU64:
        case DType::kF8E4M3:
            return std::nullopt;
        case DType::kF16:
        case DType::kBF16:
        case DType::kF32:
        case DType::kF64:
            return c10::ScalarType::Float;
        default:
            return c10::ScalarType::Long;
    }
}

// Returns the rows of COLUMN at INDICES as a tensor of SHAPE and dtype TO. The rows need not be
// aligned in the file.
at::Tensor rows_of(const FedColumn& column, std::span<const int64_t> indices,
                   const std::vector<int64_t>& shape, c10::ScalarType to) {
    const bool is_bool = column.dtype == DType::kBool;  // its bytes need not be 0 or 1
    const at::Tensor rows =
        at::empty(shape, is_bool ? at::kByte : graph::scalar_type_of(column.dtype));
    auto* into = static_cast<std::byte*>(rows.mutable_data_ptr());
    for (const int64_t index : indices) {
        std::memcpy(into, column.bytes.data() + index * column.row_bytes(),
                    static_cast<size_t>(column.row_bytes()));
        into += column.row_bytes();
    }
    return (is_bool ? rows.ne(0) : rows).to(to);
}

// Calls USE for each row of COLUMN, with the row's number and its integers.
template <typename Use>
void for_each_row(const FedColumn& column, int64_t rows, const Use& use) {
    constexpr int64_t kBlockNumel = 65'536;
    const int64_t at_once =
        std::max<int64_t>(1, kBlockNumel / std::max<int64_t>(1, column.row_numel));
    std::vector<int64_t> indices;
    for (int64_t begin = 0; begin < rows; begin += at_once) {
        indices.resize(static_cast<size_t>(std::min(at_once, rows - begin)));
        std::iota(indices.begin(), indices.end(), begin);
        const at::Tensor block =
            rows_of(column, indices, {std::ssize(indices), column.row_numel}, at::kLong);
        const std::span all(block.const_data_ptr<int64_t>(), static_cast<size_t>(block.numel()));
        const auto width = static_cast<size_t>(column.row_numel);
        for (size_t i = 0; i < indices.size(); ++i) use(indices[i], all.subspan(i * width, width));
    }
}

std::string described(const storage::SafetensorsEntry& column) {
    return fmt::format("'{}' {} [{}]", printable(column.name), dtype_name(column.dtype),
                       fmt::join(column.shape, ", "));
}

// Returns the dtype of the target in a batch. Cross entropy needs integer classes. The other losses
// subtract, so they need floats.
c10::ScalarType target_dtype(const std::string& path, const storage::SafetensorsEntry& column,
                             const config::LossConfig& loss, c10::ScalarType dtype) {
    if (!loss.takes_classes()) return c10::ScalarType::Float;
    if (dtype == c10::ScalarType::Long) return dtype;
    fail(ExitCode::kInput,
         "{}: the target column {} does not contain integers, but the loss needs class numbers",
         path, described(column));
}

int64_t checked_row_count(const std::string& path, const storage::SafetensorsEntry& column) {
    if (column.shape.empty())
        fail(ExitCode::kInput, "{}: column {} is a single number and has no rows", path,
             described(column));
    if (column.shape.front() == 0)
        fail(ExitCode::kInput, "{}: column {} has no rows", path, described(column));
    for (const int64_t extent : column.shape)
        if (extent == 0)
            fail(ExitCode::kInput, "{}: the rows of column {} are empty", path, described(column));
    return column.shape.front();
}

// The columns of a file. A .npy file has one column, named after the file ("x" for data/x.npy).
class RowFile {
  public:
    explicit RowFile(const std::string& path) : file_(open(path)) {
        if (const auto* npy = std::get_if<storage::NpyFile>(&file_)) {
            const storage::NpyArray& array = npy->array();
            columns_ = {
                {std::filesystem::path(path).stem(), array.dtype, array.shape, array.bytes}};
        } else {
            columns_ = std::get<storage::SafetensorsFile>(file_).entries();
        }
    }

    [[nodiscard]] const std::vector<storage::SafetensorsEntry>& columns() const { return columns_; }
    [[nodiscard]] std::map<std::string, std::string> metadata() const {
        const auto* rows = std::get_if<storage::SafetensorsFile>(&file_);
        return rows == nullptr ? std::map<std::string, std::string>{} : rows->metadata();
    }

  private:
    using File = std::variant<storage::SafetensorsFile, storage::NpyFile>;

    static File open(const std::string& path) {
        if (path.ends_with(".npy")) return storage::NpyFile(path);
        return storage::SafetensorsFile(path);
    }

    File file_;
    std::vector<storage::SafetensorsEntry> columns_;  // views of file_
};

}  // namespace

std::vector<std::string> row_columns(const std::string& path) {
    const RowFile file(path);
    std::vector<std::string> names;
    for (const storage::SafetensorsEntry& column : file.columns()) names.push_back(column.name);
    return names;
}

namespace {

void check_fit(const std::string& path, const DataRequest& request) {
    const auto refuse = [&](const char* key) {
        fail(ExitCode::kInput,
             "{}: {} is only for token files, but this file contains rows of fixed length; remove "
             "the key or option, or use a token file{}",
             path, key,
             path.ends_with(".npy")
                 ? ": numpy.load(file).astype(\"uint16\").tofile(\"data.bin\") writes one"
                 : "");
    };
    if (request.data.context != 0) refuse("dslaunch.data.context (--context)");
    if (request.data.token_dtype) refuse("dslaunch.data.dtype");
    if (request.arguments.empty())
        fail(ExitCode::kInput, "{}: forward takes no arguments, so it cannot use the data", path);
    check_arguments_are_tensors(path, request);
}

// Refuses a .npy file for a model that reads tokens and targets, since an array is only one column.
void require_two_columns(const std::string& path, const DataRequest& request) {
    const std::vector<std::string>& arguments = request.arguments;
    if (!path.ends_with(".npy") || arguments.size() != 2 || arguments[0] != kTokensArgument ||
        (request.loss.kind == config::LossKind::kModel
             ? arguments[1] != kTargetsArgument
             : request.loss.kind != config::LossKind::kCrossEntropy))
        return;
    const std::string recipe =
        storage::token_recipe(path, storage::NpyFile(path).array(), "--set dslaunch.data.dtype=");
    if (!recipe.empty())
        fail(ExitCode::kInput, "{}: is a single array, but the model reads tokens and targets; {}",
             path, recipe);
}

class RowSamples final : public Samples {
  public:
    RowSamples(std::string path, RowFile file, const DataRequest& request)
        : file_(std::move(file)),
          path_(std::move(path)),
          reads_reference_(request.loss.needs_reference() &&
                           request.data.columns.count(config::kReferenceArgument) == 0) {
        const bool classes = request.loss.takes_classes();
        ColumnMatch match{.path = path_,
                          .columns = {},
                          .arguments = request.arguments,
                          .has_target = request.has_target(),
                          .target_types = {},
                          .target_type = classes ? "class numbers (integers)" : "floats",
                          .chosen = request.data.columns,
                          .spare = {}};
        for (const storage::SafetensorsEntry& column : file_.columns()) {
            match.columns.push_back(column.name);
            match.target_types.push_back(
                batch_dtype(column.dtype) ==
                (classes ? c10::ScalarType::Long : c10::ScalarType::Float));
        }
        if (request.loss.needs_reference()) require_reference(match, request.loss);
        // A file of pairs can be used for all preference losses, so a reference column may be left
        // over.
        if (request.loss.is_preference()) match.spare = config::kReferenceArgument;
        const std::vector<size_t> column_of = matched(match);
        for (size_t i = 0; i < column_of.size(); ++i)
            add_input(request, i, file_.columns()[column_of[i]]);
        if (request.has_target() && request.arguments.back().empty())
            target_choice_ = described(file_.columns()[column_of.back()]);
        check_equal_rows(column_of);
        check_targets(request, column_of);
        if (request.loss.is_preference()) check_pairs(request, column_of);
    }

    const std::string& path() const override { return path_; }
    int64_t sample_count() const override { return sample_count_; }
    const std::vector<DataInput>& inputs() const override { return inputs_; }
    int64_t tokens_per_sample() const override { return 0; }
    std::string target_choice() const override { return target_choice_; }

    std::vector<c10::IValue> batch(int64_t first, std::span<const int64_t> offsets) const override {
        std::vector<int64_t> rows(offsets.begin(), offsets.end());
        for (int64_t& row : rows) row += first;
        std::vector<c10::IValue> tensors;
        for (size_t i = 0; i < inputs_.size(); ++i) {
            std::vector<int64_t> shape = inputs_[i].sample_shape;
            shape.insert(shape.begin(), static_cast<int64_t>(offsets.size()));
            tensors.emplace_back(rows_of(columns_[i], rows, shape, inputs_[i].dtype));
        }
        return tensors;
    }

    void check_vocabulary(int64_t) const override {}

    void check_indices(size_t input, const IndexLimit& limit) const override {
        const FedColumn& column = columns_[input];
        if (batch_dtype(column.dtype) != c10::ScalarType::Long) return fail_not_indices(input);
        storage::TokenCounts counts(limit.count);
        bool looks = limit.tokens;
        for_each_row(column, sample_count_, [&](int64_t row, std::span<const int64_t> values) {
            for (size_t i = 0; i < values.size(); ++i) {
                const int64_t value = values[i];
                looks = looks && counts.add(value);
                if ((value >= 0 && value < limit.count) || value == limit.also) continue;
                fail(ExitCode::kInput,
                     "{}: column '{}', row {}{}: {} is not a valid {} (0 to {}){}", path_,
                     printable(column.name), row,
                     values.size() == 1 ? "" : fmt::format(", element {}", i), value, limit.what,
                     limit.count - 1, tokens_fault(column, limit));
            }
        });
        if (const std::string foreign = looks ? counts.foreign_text() : ""; !foreign.empty())
            log_warn("data", "{}: {}", path_, foreign);
    }

    void check_origin(const std::string& model, const std::string& adapter) const override {
        if (const std::string other = storage::other_vocabulary_text(file_.metadata(), model);
            !other.empty())
            log_warn("data", "{}: {}", path_, other);
        if (!reads_reference_) return;
        if (const std::string other =
                storage::other_reference_text(file_.metadata(), {model, adapter, ""}, path_);
            !other.empty())
            log_warn("data", "{}", other);
    }

    void check_documents(size_t input) const override {
        const FedColumn& column = columns_[input];
        if (batch_dtype(column.dtype) != c10::ScalarType::Long ||
            inputs_[input].sample_shape.size() != 1)
            return;
        for_each_row(column, sample_count_, [&](int64_t row, std::span<const int64_t> numbers) {
            const int64_t bad = storage::documents_of_row(numbers).bad;
            if (bad >= 0)
                fail(ExitCode::kInput, "{}: column '{}', row {}, element {}: {}: {}", path_,
                     printable(column.name), row, bad, numbers[static_cast<size_t>(bad)],
                     storage::kBadDocument);
        });
    }

  private:
    // Returns the probable cause of a token that the model does not have; empty if the integers in
    // COLUMN need not be tokens.
    [[nodiscard]] std::string tokens_fault(const FedColumn& column, const IndexLimit& limit) const {
        if (limit.tokens)
            return "; these tokens come from another tokenizer: make the rows with `dslaunch data "
                   "prepare FILE --model` and this model's folder";
        if (column.name != kTokensArgument || !storage::has_row_origin(file_.metadata())) return "";
        return fmt::format(
            "; these rows were made with another model's tokenizer, but this model has {}: make "
            "the rows with this model's tokenizer (`dslaunch data prepare FILE --model DIR`, where "
            "DIR contains the tokenizer; if the model's tokens are bytes: `dslaunch tokens bytes`)",
            counted(limit.count, "token"));
    }

    [[noreturn]] void fail_not_indices(size_t input) const {
        fail(ExitCode::kInput,
             "{}: column '{}' is {}, but argument '{}' needs integers, because it uses them as row "
             "indices",
             path_, printable(columns_[input].name), dtype_name(columns_[input].dtype),
             inputs_[input].argument);
    }

    void add_input(const DataRequest& request, size_t argument,
                   const storage::SafetensorsEntry& entry) {
        const int64_t rows = checked_row_count(path_, entry);
        auto dtype = batch_dtype(entry.dtype);
        if (!dtype)
            fail(ExitCode::kInput, "{}: the type of column {} is not supported: store {}", path_,
                 described(entry),
                 entry.dtype == DType::kC64   ? "its real and imaginary parts as F32"
                 : entry.dtype == DType::kU64 ? "it as I64, or as F32"
                                              : "it as F32");
        if (request.has_target() && argument + 1 == request.arguments.size())
            dtype = target_dtype(path_, entry, request.loss, *dtype);
        if (argument == 0) sample_count_ = rows;
        FedColumn column{entry.name, entry.dtype, entry.bytes, 1};
        std::vector<int64_t> sample_shape(entry.shape.begin() + 1, entry.shape.end());
        for (const int64_t extent : sample_shape) column.row_numel *= extent;
        columns_.push_back(column);
        inputs_.push_back({request.arguments[argument], *dtype, std::move(sample_shape)});
    }

    void require_reference(const ColumnMatch& match, const config::LossConfig& loss) const {
        const auto chosen = match.chosen.find(config::kReferenceArgument);
        const std::string name =
            chosen == match.chosen.end() ? config::kReferenceArgument : chosen->second;
        if (std::ranges::count(match.columns, name) > 0) return;
        const bool has_pairs = std::ranges::any_of(file_.columns(), [](const auto& column) {
            return column.shape.size() == 3 && column.shape[1] == 2;
        });
        if (!has_pairs)
            fail(ExitCode::kInput,
                 "{}: --loss {} needs pairs, but these rows are not pairs; `dslaunch data prepare` "
                 "makes pairs from lines with the fields chosen and rejected. To train on these "
                 "rows as they are, remove --loss",
                 match.path, loss.kind == config::LossKind::kDpo ? "dpo" : "ipo");
        fail(ExitCode::kInput,
             "{}: has no column '{}' with the log-probabilities of the answers under the reference "
             "model; add it with `dslaunch eval MODEL --data {} --write-reference`",
             match.path, printable(name), shell_word(match.path));
    }

    // Checks pairs: each sample is two rows, and the reference is one number for each row.
    void check_pairs(const DataRequest& request, std::span<const size_t> column_of) const {
        for (size_t i = 0; i < inputs_.size(); ++i) {
            const std::vector<int64_t>& shape = inputs_[i].sample_shape;
            const bool is_reference = request.loss.needs_reference() && i + 2 == inputs_.size();
            if (!shape.empty() && shape[0] == 2 && (shape.size() == 1) == is_reference) continue;
            fail(ExitCode::kInput,
                 "{}: column {} does not contain pairs for '{}': the loss needs {}, which "
                 "`dslaunch data prepare` makes from lines with the fields chosen and rejected",
                 path_, described(file_.columns()[column_of[i]]), printable(inputs_[i].argument),
                 is_reference ? "[samples, 2]" : "[samples, 2, length]");
        }
    }

    // If the columns do not match forward's arguments, the error also says how large the tokens
    // are: the rows may have been made for another model.
    [[nodiscard]] std::vector<size_t> matched(const ColumnMatch& match) const {
        try {
            return match_columns(match);
        } catch (const Error& error) {
            const auto& columns = file_.columns();
            const auto tokens =
                std::ranges::find(columns, kTokensArgument, &storage::SafetensorsEntry::name);
            if (tokens == columns.end() || tokens->shape.empty() ||
                batch_dtype(tokens->dtype) != c10::ScalarType::Long)
                throw;
            FedColumn column{tokens->name, tokens->dtype, tokens->bytes, 1};
            for (size_t i = 1; i < tokens->shape.size(); ++i) column.row_numel *= tokens->shape[i];
            int64_t largest = 0;
            for_each_row(column, tokens->shape.front(), [&](int64_t, auto values) {
                for (const int64_t value : values) largest = std::max(largest, value);
            });
            fail(error.code(),
                 "{}. The rows contain tokens up to {}; a model with a smaller vocabulary needs "
                 "its own rows (`dslaunch data prepare` or `dslaunch tokens bytes`)",
                 error.what(), largest);
        }
    }

    void check_targets(const DataRequest& request, std::span<const size_t> column_of) const {
        const auto column = [&](const char* name) {
            const auto found = std::ranges::find(request.arguments, name);
            return found == request.arguments.end()
                       ? nullptr
                       : &file_.columns()[column_of[found - request.arguments.begin()]];
        };
        const auto* tokens = column(kTokensArgument);
        const auto* targets = column(kTargetsArgument);
        if (tokens == nullptr || targets == nullptr || tokens->dtype != targets->dtype ||
            !std::ranges::equal(tokens->bytes, targets->bytes))
            return;
        log_warn("data",
                 "{}: the columns '{}' and '{}' contain the same numbers, so the model learns to "
                 "repeat each token unless it shifts them itself; {}",
                 path_, printable(tokens->name), printable(targets->name), kShiftAdvice);
    }

    void check_equal_rows(std::span<const size_t> column_of) const {
        for (const size_t index : column_of) {
            const storage::SafetensorsEntry& entry = file_.columns()[index];
            if (entry.shape.front() == sample_count_) continue;
            fail(ExitCode::kInput,
                 "{}: columns {} and {} differ in their first dimension, the number of samples",
                 path_, described(file_.columns()[column_of.front()]), described(entry));
        }
    }

    RowFile file_;
    std::string path_;
    bool reads_reference_;  // the loss reads the column that eval --write-reference writes
    int64_t sample_count_ = 0;
    std::string target_choice_;
    std::vector<FedColumn> columns_;  // one per argument, in the order of inputs_
    std::vector<DataInput> inputs_;
};

}  // namespace

std::unique_ptr<Samples> open_row_samples(const std::string& path, const DataRequest& request) {
    RowFile file(path);
    require_two_columns(path, request);
    check_fit(path, request);
    return std::make_unique<RowSamples>(path, std::move(file), request);
}

}  // namespace dslaunch::runtime
