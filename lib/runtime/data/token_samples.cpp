// Token files. In a file with T tokens per sample, sample i has the tokens `[i * T, i * T + T)`.
// Its targets are the tokens `[i * T + 1, i * T + T + 1)`.
#include <ATen/ops/empty.h>

#include <utility>

#include "base/error.h"
#include "base/log.h"
#include "base/text.h"
#include "runtime/data/samples.h"
#include "storage/tokens/sample_order.h"
#include "storage/tokens/token_counts.h"
#include "storage/tokens/token_file.h"

namespace dslaunch::runtime {
namespace {

constexpr size_t kTensors = 2;  // tokens, and the tokens after them

class TokenSamples final : public Samples {
  public:
    TokenSamples(storage::TokenFile file, const DataRequest& request)
        : file_(std::move(file)),
          context_(request.data.context),
          sample_count_(storage::token_sample_count(file_.token_count(), context_)) {
        for (const std::string& argument : request.arguments)
            inputs_.push_back({argument, c10::ScalarType::Long, {context_}});
        if (sample_count_ == 0)
            fail(ExitCode::kInput,
                 "{}: {} tokens are too few for a sample: a context of {} tokens needs {}, "
                 "including the last target; use more data or a smaller dslaunch.data.context "
                 "(--context)",
                 file_.path(), file_.token_count(), context_, context_ + 1);
    }

    const std::string& path() const override { return file_.path(); }
    int64_t sample_count() const override { return sample_count_; }
    const std::vector<DataInput>& inputs() const override { return inputs_; }
    int64_t tokens_per_sample() const override { return context_; }

    std::vector<c10::IValue> batch(int64_t first, std::span<const int64_t> offsets) const override {
        std::vector<c10::IValue> tensors;
        const auto rows = static_cast<int64_t>(offsets.size());
        for (size_t shift = 0; shift < kTensors; ++shift) {
            const at::Tensor tokens = at::empty({rows, context_}, at::kLong);
            int64_t* into = tokens.mutable_data_ptr<int64_t>();
            for (const int64_t offset : offsets) {
                file_.read((first + offset) * context_ + static_cast<int64_t>(shift),
                           {into, static_cast<size_t>(context_)});
                into += context_;
            }
            tensors.emplace_back(tokens);
        }
        return tensors;
    }

    void check_vocabulary(int64_t vocabulary) const override {
        check_below(vocabulary, "outside the model's vocabulary");
        if (const std::string foreign = storage::foreign_text(file_, vocabulary); !foreign.empty())
            log_warn("data", "{}: {}", path(), foreign);
    }

    void check_indices(size_t, const IndexLimit& limit) const override {
        check_below(limit.count, "not a valid " + limit.what);
    }

  private:
    void check_below(int64_t limit, const std::string& what) const {
        const auto bad = file_.first_outside(limit);
        if (!bad) return;
        fail(ExitCode::kInput,
             "{}: token {} at position {} is {} (0 to {}); were these tokens made for this "
             "model, and is dslaunch.data.dtype right?",
             path(), bad->token, bad->index, what, limit - 1);
    }

    storage::TokenFile file_;
    int64_t context_;
    int64_t sample_count_;
    std::vector<DataInput> inputs_;
};

void check_tokens_fit(const std::string& path, const DataRequest& request) {
    if (request.data.context < 1)
        fail(ExitCode::kInput,
             "{}: the number of tokens in a sample is not set; use dslaunch.data.context or "
             "--context",
             path);
    if (!request.data.columns.empty())
        fail(ExitCode::kInput,
             "{}: a token file has no columns, but dslaunch.data.columns names '{}'; columns are "
             "for .safetensors and .npy",
             path, request.data.columns.begin()->second);
    if (request.loss.is_preference())
        fail(ExitCode::kInput,
             "{}: a token file has no pairs of answers, which the loss needs; use `dslaunch data "
             "prepare` to make pairs from lines with the fields chosen and rejected",
             path);
    // The third argument is the target of the config's loss, but forward already takes the targets.
    if (request.loss.kind != config::LossKind::kModel && request.arguments.size() == kTensors + 1)
        fail(ExitCode::kInput,
             "{}: forward takes {} and {} and returns its own loss; remove --loss "
             "(dslaunch.loss.name)",
             path, request.arguments[0], request.arguments[1]);
    if (request.arguments.size() != kTensors)
        fail(ExitCode::kInput,
             "{}: a token file supplies two tensors (the tokens, and the tokens shifted by one), "
             "but forward and its loss take {}: {}; use a .safetensors file with a column for each",
             path, request.arguments.size(), join(request.arguments, ", "));
    if (request.loss.kind != config::LossKind::kModel &&
        request.loss.kind != config::LossKind::kCrossEntropy)
        fail(ExitCode::kInput,
             "{}: the targets of a token file are token numbers, which only the loss cross_entropy "
             "accepts; change dslaunch.loss.name, or use a .safetensors file",
             path);
    check_arguments_are_tensors(path, request);
}

}  // namespace

std::unique_ptr<Samples> open_token_samples(const std::string& path, const DataRequest& request) {
    storage::TokenFile file(path, request.data.token_dtype.value_or(DType::kU16));
    check_tokens_fit(path, request);
    return std::make_unique<TokenSamples>(std::move(file), request);
}

}  // namespace dslaunch::runtime
