// Rows that a program brings itself, in the place of a data file: an example from which a job is
// set up, or the rows of one evaluation. Data path: tensors of the caller -> [here] -> job setup,
// evaluator, training loop. Threads: one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/samples.h"

namespace dslaunch::engine {

// The form of the rows: an input for each argument of forward, and the integers that the model's
// tables allow. Made from the example, it checks all later rows.
class FedForm {
  public:
    // Throws Error{kInput} if EXAMPLE does not fit REQUEST.
    FedForm(const runtime::DataRequest& request, const std::vector<at::Tensor>& example);

    [[nodiscard]] const std::vector<runtime::DataInput>& inputs() const { return inputs_; }
    // Limits the integers of INPUT from now on.
    void limit(size_t input, runtime::IndexLimit limit) {
        limits_.emplace_back(input, std::move(limit));
    }
    // Returns the ROWS in the form of batches: contiguous copies with the inputs' types. Throws
    // Error{kInput}, naming argument, row and value, if they differ from the example in their
    // number, kind or shape, have unequal numbers of rows, or contain integers outside a limit.
    // WHERE names the call.
    [[nodiscard]] std::vector<at::Tensor> take(const char* where,
                                               const std::vector<at::Tensor>& rows) const;

  private:
    std::vector<runtime::DataInput> inputs_;
    std::vector<std::pair<size_t, runtime::IndexLimit>> limits_;
};

// The ranks between which rows are dealt: micro batch number k of all belongs to rank k % ranks.
struct FedPlace {
    int64_t micro_rows = 1;
    int64_t ranks = 1;
};

// Rows of this rank as samples of all ranks; see the top of this file.
class FedSamples final : public runtime::Samples {
  public:
    // FORM must outlive this object. ROWS are of FORM. REQUIRES: with several ranks, their number
    // is a multiple of micro_rows, the same on all ranks.
    FedSamples(FedForm& form, std::vector<at::Tensor> rows, const FedPlace& place);

    [[nodiscard]] const std::string& path() const override { return path_; }
    [[nodiscard]] int64_t sample_count() const override;
    [[nodiscard]] const std::vector<runtime::DataInput>& inputs() const override {
        return form_.inputs();
    }
    [[nodiscard]] int64_t tokens_per_sample() const override { return 0; }
    // REQUIRES: the samples are this rank's.
    [[nodiscard]] std::vector<c10::IValue> batch(int64_t first,
                                                 std::span<const int64_t> offsets) const override;
    void check_vocabulary(int64_t) const override {}  // a check of token files
    // Checks these rows, and all that the form takes later.
    void check_indices(size_t input, const runtime::IndexLimit& limit) const override;

  private:
    FedForm& form_;
    std::vector<at::Tensor> rows_;
    FedPlace place_;
    std::string path_ = "the caller's rows";
};

}  // namespace dslaunch::engine
