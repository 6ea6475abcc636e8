// Rows that a program gives instead of a data file: an example for the setup of a job, or the rows
// of one evaluation. Data path: tensors of the caller -> [here] -> job setup, evaluator, training
// loop. Threads: one.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/samples.h"

namespace dslaunch::engine {

// The form that rows must have: one input for each argument of forward, and limits for integers
// that are indices into the model's tables. It is made from the example, and checks all later rows.
class FedForm {
  public:
    // Throws Error{kInput} if EXAMPLE does not fit REQUEST.
    FedForm(const runtime::DataRequest& request, const std::vector<at::Tensor>& example);

    [[nodiscard]] const std::vector<runtime::DataInput>& inputs() const { return inputs_; }
    // Makes take() check the integers of input number INPUT against LIMIT from now on.
    void limit(size_t input, runtime::IndexLimit limit) {
        limits_.emplace_back(input, std::move(limit));
    }
    // Returns contiguous copies of ROWS with the types of the inputs. Throws Error{kInput}, naming
    // argument, row and value, if the tensors differ from the example in number, type or shape, if
    // they have unequal numbers of rows, or if an integer is outside its limit. WHERE names the
    // call in the message.
    [[nodiscard]] std::vector<at::Tensor> take(const char* where,
                                               const std::vector<at::Tensor>& rows) const;

  private:
    std::vector<runtime::DataInput> inputs_;
    std::vector<std::pair<size_t, runtime::IndexLimit>> limits_;
};

// The division of rows among ranks: micro batch k belongs to rank k % ranks.
struct FedPlace {
    int64_t micro_rows = 1;
    int64_t ranks = 1;
};

// The rows of this rank. Sample numbers refer to the rows of all ranks together, among which micro
// batch k belongs to rank `k % ranks`.
class FedSamples final : public runtime::Samples {
  public:
    // FORM must outlive this object. ROWS come from FORM.take(). REQUIRES: with several ranks, the
    // number of rows is a multiple of micro_rows, and is the same on all ranks.
    FedSamples(FedForm& form, std::vector<at::Tensor> rows, const FedPlace& place);

    [[nodiscard]] const std::string& path() const override { return path_; }
    [[nodiscard]] int64_t sample_count() const override;
    [[nodiscard]] const std::vector<runtime::DataInput>& inputs() const override {
        return form_.inputs();
    }
    [[nodiscard]] int64_t tokens_per_sample() const override { return 0; }
    // REQUIRES: the samples belong to this rank.
    [[nodiscard]] std::vector<c10::IValue> batch(int64_t first,
                                                 std::span<const int64_t> offsets) const override;
    void check_vocabulary(int64_t) const override {}  // only token files have a vocabulary
    // Checks the integers of the rows for INPUT against LIMIT. Also makes FedForm::take() check all
    // later rows against LIMIT.
    void check_indices(size_t input, const runtime::IndexLimit& limit) const override;

  private:
    FedForm& form_;
    std::vector<at::Tensor> rows_;
    FedPlace place_;
    std::string path_ = "the caller's rows";
};

}  // namespace dslaunch::engine
