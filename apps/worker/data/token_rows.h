// A file of rows from `dslaunch data prepare`. It contains tokens and targets as int32. Packed rows
// also have the numbers of their documents. A pair of answers has two rows, the chosen one first,
// and may have a reference model's log-probabilities. Data path: file -> [here] -> data show, eval.
// Const functions: any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/range.h"
#include "storage/files/safetensors.h"
#include "storage/tokens/reference_model.h"

namespace dslaunch::worker {

// The rows of one file, which stays mapped.
class TokenRows {
  public:
    // Throws Error{kInput} for a file of another kind.
    explicit TokenRows(const std::string& path);

    // Returns true if the rows are pairs of answers.
    [[nodiscard]] bool has_pairs() const { return tokens_->shape.size() == 3; }
    // Returns the number of rows; a pair has two.
    [[nodiscard]] int64_t count() const { return tokens_->shape[0] * (has_pairs() ? 2 : 1); }
    // Returns the number of tokens in a row.
    [[nodiscard]] int64_t length() const { return tokens_->shape.back(); }
    // Return the tokens of ROW, and the target of each token. REQUIRES: 0 <= ROW < count().
    [[nodiscard]] std::vector<int32_t> tokens(int64_t row) const { return of(*tokens_, row); }
    [[nodiscard]] std::vector<int32_t> targets(int64_t row) const { return of(*targets_, row); }

    // Returns the ranges of the documents in ROW; attention stays within a document. Returns the
    // whole row if the file does not number the documents. Throws Error{kInput}, naming the row,
    // for numbers that no packed row has: a negative number, or a number that occurs again after
    // another one.
    [[nodiscard]] std::vector<Range> documents(int64_t row) const;

    // Returns the log-probability, in nats, that the reference model gives to the answer in each
    // row. Returns an empty list if the file has none. Throws Error{kInput}, naming the pair, for a
    // value that is not finite.
    [[nodiscard]] std::vector<float> reference() const;
    // Returns a warning if the rows were not made for the model in FOLDER; otherwise an empty text.
    [[nodiscard]] std::string other_vocabulary(const std::string& folder) const;
    // Returns the name of the reference model; empty if the file does not name it.
    [[nodiscard]] std::string reference_model() const;
    // Rewrites the file with VALUES as its reference values. MODEL is the model that computed them.
    // Throws Error{kDisk}. REQUIRES: has_pairs(), and one value for each row.
    void write_reference(std::span<const float> values, const storage::ReferenceModel& model) const;

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

// Returns the number of padding tokens in a row: tokens at its end that all equal the last one and
// have no target.
[[nodiscard]] size_t padding_of(const std::vector<int32_t>& tokens,
                                const std::vector<int32_t>& targets);

}  // namespace dslaunch::worker
