#include "worker/data/token_rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/text.h"
#include "config/run/run_config.h"
#include "storage/tokens/reference_model.h"
#include "storage/tokens/row_documents.h"
#include "storage/tokens/row_vocabulary.h"
#include "text/rows/row_packer.h"

namespace dslaunch::worker {

namespace {

bool is_of_pairs(const std::vector<int64_t>& shape) {
    return shape.size() == 3 && shape[1] == 2;
}

}  // namespace

TokenRows::TokenRows(const std::string& path)
    : path_(path),
      file_(path),
      tokens_(file_.find("tokens")),
      targets_(file_.find("targets")),
      documents_(file_.find("documents")),
      reference_(file_.find(config::kReferenceArgument)) {
    const auto fits = [](const storage::SafetensorsEntry* column) {
        return column != nullptr && column->dtype == DType::kI32 &&
               (column->shape.size() == 2 || is_of_pairs(column->shape)) &&
               column->shape.back() > 0;
    };
    if (!fits(tokens_) || !fits(targets_) || tokens_->shape != targets_->shape)
        fail(
            ExitCode::kInput,
            "{}: has no columns `tokens` and `targets` of int32, as `dslaunch data prepare` writes "
            "them",
            printable(path));
    if (documents_ != nullptr &&
        (has_pairs() || documents_->dtype != DType::kI32 || documents_->shape != tokens_->shape))
        fail(ExitCode::kInput,
             "{}: its column `documents` must have an int32 number for each token of a row",
             printable(path));
    const std::vector<int64_t> of_each = {tokens_->shape[0], 2};
    if (reference_ != nullptr &&
        (!has_pairs() || reference_->dtype != DType::kF32 || reference_->shape != of_each))
        fail(ExitCode::kInput,
             "{}: its column `reference` must have an fp32 number for each answer of a pair",
             printable(path));
}

std::vector<int32_t> TokenRows::of(const storage::SafetensorsEntry& column, int64_t row) const {
    std::vector<int32_t> numbers(static_cast<size_t>(length()));
    std::memcpy(numbers.data(),
                column.bytes.data() + static_cast<size_t>(row) * numbers.size() * sizeof(int32_t),
                numbers.size() * sizeof(int32_t));
    return numbers;
}

std::vector<Range> TokenRows::documents(int64_t row) const {
    if (documents_ == nullptr) return {{0, length()}};
    const std::vector<int32_t> column = of(*documents_, row);
    const std::vector<int64_t> numbers(column.begin(), column.end());
    storage::RowDocuments found = storage::documents_of_row(numbers);
    if (found.bad >= 0)
        fail(ExitCode::kInput, "{}: row {} has the document number {} at token {}: {}",
             printable(path_), row, numbers[found.bad], found.bad, storage::kBadDocument);
    return std::move(found.places);
}

std::vector<float> TokenRows::reference() const {
    if (reference_ == nullptr) return {};
    std::vector<float> values(static_cast<size_t>(count()));
    std::memcpy(values.data(), reference_->bytes.data(), values.size() * sizeof(float));
    const auto bad = std::ranges::find_if(values, [](float v) { return !std::isfinite(v); });
    if (bad != values.end())
        fail(ExitCode::kInput,
             "{}: its column `reference` contains {} at pair {}: write it again with `dslaunch "
             "eval --write-reference`",
             printable(path_), *bad, (bad - values.begin()) / 2);
    return values;
}

std::string TokenRows::other_vocabulary(const std::string& folder) const {
    return storage::other_vocabulary_text(file_.metadata(), folder);
}

std::string TokenRows::reference_model() const {
    return storage::reference_model_in(file_.metadata());
}

void TokenRows::write_reference(std::span<const float> values,
                                const storage::ReferenceModel& model) const {
    DSL_CHECK(has_pairs() && std::ssize(values) == count(), "{} values for {} rows", values.size(),
              count());
    std::vector<storage::SafetensorsEntry> entries;
    for (const storage::SafetensorsEntry& entry : file_.entries())
        if (entry.name != config::kReferenceArgument) entries.push_back(entry);
    entries.push_back(
        {config::kReferenceArgument, DType::kF32, {tokens_->shape[0], 2}, std::as_bytes(values)});
    std::map<std::string, std::string> metadata = file_.metadata();
    storage::set_reference_model(metadata, model);
    storage::SafetensorsWriter writer(path_, entries, metadata);
    for (size_t i = 0; i < entries.size(); ++i) writer.write(i, entries[i].bytes);
    writer.commit();
}

size_t padding_of(const std::vector<int32_t>& tokens, const std::vector<int32_t>& targets) {
    size_t padding = 0;
    while (padding + 1 < tokens.size() && tokens[tokens.size() - 1 - padding] == tokens.back() &&
           targets[tokens.size() - 1 - padding] == text::kNotLearned &&
           targets[tokens.size() - 2 - padding] != tokens.back())
        ++padding;
    return padding;
}

}  // namespace dslaunch::worker
