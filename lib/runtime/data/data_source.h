// The training and held-out samples of a run, in the form of forward's arguments. Data path: config
// -> DataSets -> BatchLoader -> trainer. When a file is opened, everything that can be known before
// the first step is checked. Threads: const, any thread.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/samples.h"

namespace dslaunch::runtime {

// Samples [0, rows()) of one file, or of a range of it. Copies are cheap and share the file's
// mapping.
class DataSource {
  public:
    // REQUIRES: [first, first + count) is within FILE.
    DataSource(std::shared_ptr<const Samples> file, int64_t first, int64_t count);

    // The number of samples, the file's path, and one input for each argument of forward.
    [[nodiscard]] int64_t rows() const { return count_; }
    [[nodiscard]] const std::string& path() const { return file_->path(); }
    [[nodiscard]] const std::vector<DataInput>& inputs() const { return file_->inputs(); }
    // Returns the context length of a token file, or 0 for rows.
    [[nodiscard]] int64_t tokens_per_sample() const { return file_->tokens_per_sample(); }
    // Returns the number of tokens of one sample that forward reads, from which rates are computed.
    // For a token file, this is the context length. For rows, it is the number of integers in the
    // first argument if their shape is [length] or [2, length] with length > 1, otherwise 0.
    [[nodiscard]] int64_t tokens_read() const;
    // Returns the column to use as the loss's target if the config names none; empty if there is no
    // such column.
    [[nodiscard]] std::string target_choice() const { return file_->target_choice(); }

    // Returns one new contiguous CPU tensor for each argument, with sample samples[b] in row b.
    // Token files give the tokens, then the same tokens shifted by one, [B, context] int64. Row
    // files give the column's dtype, except that integers become int64, and float16, bfloat16 and
    // float64 become float32. The target of mse, l1 and bce_with_logits is float32. May block on
    // the disk. REQUIRES: samples are in [0, rows()).
    [[nodiscard]] std::vector<c10::IValue> batch(std::span<const int64_t> samples) const;

    // Throws Error{kInput}, with position and value, for the first token of a token file that is
    // not below VOCABULARY. Reads the whole file, so one rank of a host is enough. Does not check
    // rows, which need not be tokens; check_indices() checks them.
    void check_vocabulary(int64_t vocabulary) const { file_->check_vocabulary(vocabulary); }
    // Throws Error{kInput}, with file, column, row and value, for the first integer outside LIMIT
    // in ARGUMENT's column. Reads that column of the whole file. REQUIRES: ARGUMENT is one of
    // inputs().
    void check_indices(std::string_view argument, const IndexLimit& limit) const;
    // Throws Error{kInput}, with file, row and value, for the first number in ARGUMENT's column
    // that is not a document number of packed rows (storage/tokens/row_documents.h). Checks nothing
    // if ARGUMENT is not one of inputs() or its values are not [rows, length] integers. Reads the
    // whole column.
    void check_documents(std::string_view argument) const;
    // Warns if the tokenizer in the folder MODEL and the tokenizer that made the rows have
    // different vocabularies. Also warns if the loss reads reference values that were not made by
    // MODEL with ADAPTER. ADAPTER is the folder of the adapter from which training starts; empty:
    // none.
    void check_origin(const std::string& model, const std::string& adapter) const {
        file_->check_origin(model, adapter);
    }

  private:
    // The file is shared by its training and held-out ranges, and by the threads of loaders.
    std::shared_ptr<const Samples> file_;
    int64_t first_;
    int64_t count_;
};

// The samples of a run.
struct DataSets {
    DataSource train;
    std::optional<DataSource> eval;  // held out: never trained on

    // The functions below run DataSource's checks once for each file.
    void check_vocabulary(int64_t vocabulary) const;
    void check_indices(std::string_view argument, const IndexLimit& limit) const;
    void check_documents(std::string_view argument) const;
    void check_origin(const std::string& model, const std::string& adapter) const;
    // Checks that the targets of a cross_entropy are classes or -100. REQUIRES: the request's loss
    // has a target.
    void check_labels(const DataRequest& request, int64_t classes) const;

  private:
    [[nodiscard]] bool eval_has_its_own_file() const;
};

// Returns the names of the tensors that the training data offer to forward: the columns of a row
// file, and the arguments that dslaunch.data.columns names. Empty for tokens and for a file that
// open_data() would reject.
[[nodiscard]] std::vector<std::string> offered_names(const config::DataConfig& data);

// Opens the files that the config names. Throws Error{kInput}, naming file, position and key, if a
// file is missing, broken, too short for one sample, or does not match forward's arguments, or if
// no sample would be held out although eval_fraction is set. REQUIRES: eval_path and eval_fraction
// are not both set.
[[nodiscard]] DataSets open_data(const DataRequest& request);

}  // namespace dslaunch::runtime
