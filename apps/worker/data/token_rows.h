// A file of rows from `dslaunch data prepare`: tokens and targets of int32, for packed rows the
// numbers of their documents; for pairs of answers two rows each, the chosen one first, and perhaps
// their reference. Data path: file -> [here] -> data show, eval. Const: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/range.h"
#include "storage/files/safetensors.h"

namespace dslaunch::worker {

class TokenRows {
  public:
    // Throws Error{kInput} for a file that is none.
    explicit TokenRows(const std::string& path);

    [[nodiscard]] bool has_pairs() const { return tokens_->shape.size() == 3; }
    // Rows in all, two for each pair.
    [[nodiscard]] int64_t count() const { return tokens_->shape[0] * (has_pairs() ? 2 : 1); }
    [[nodiscard]] int64_t length() const { return tokens_->shape.back(); }
    // REQUIRES: ROW is one of count().
    [[nodiscard]] std::vector<int32_t> tokens(int64_t row) const { return of(*tokens_, row); }
    [[nodiscard]] std::vector<int32_t> targets(int64_t row) const { return of(*targets_, row); }

    // Returns the places of the documents in ROW, where each sees itself alone, or the whole row if
    // the file does not number them. Throws Error{kInput} naming the row for numbers that no packed
    // row has: below 0, or one that comes again after another.
    [[nodiscard]] std::vector<Range> documents(int64_t row) const;

    // Returns the log-probability that the reference gives to the answer of each row, in nats;
    // empty: the file has none. Throws Error{kInput} naming the pair for one that is not finite.
    [[nodiscard]] std::vector<float> reference() const;
    // Returns the warning that the rows are not for the model in FOLDER; empty if they are.
    [[nodiscard]] std::string other_vocabulary(const std::string& folder) const;
    // Names in words the model that the reference is; empty: no model is named.
    [[nodiscard]] std::string reference_model() const;
    // Writes the file again, with VALUES of MODEL as its reference. Throws Error{kDisk}. REQUIRES:
    // has_pairs(), a value for each row.
    void write_reference(std::span<const float> values, const std::string& model) const;

  private:
    [[nodiscard]] std::vector<int32_t> of(const storage::SafetensorsEntry& column,
                                          int64_t row) const;

    std::string path_;
    storage::SafetensorsFile file_;
    const storage::SafetensorsEntry* tokens_;
    const storage::SafetensorsEntry* targets_;
    const storage::SafetensorsEntry* documents_;
    const storage::SafetensorsEntry* reference_;
};

}  // namespace dslaunch::worker
