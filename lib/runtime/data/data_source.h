// The training and held-out samples of a run as forward's arguments. Data path: config -> DataSets
// -> BatchLoader -> trainer. Opening a file checks all that can be known before the first step.
// Threads: const, any thread.
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

// Samples [0, rows()) of one file or of a range of it. Copies are cheap and share the mapping.
class DataSource {
  public:
    // REQUIRES: [first, first + count) lies in FILE.
    DataSource(std::shared_ptr<const Samples> file, int64_t first, int64_t count);

    [[nodiscard]] int64_t rows() const { return count_; }
    [[nodiscard]] const std::string& path() const { return file_->path(); }
    [[nodiscard]] const std::vector<DataInput>& inputs() const { return file_->inputs(); }
    // Returns the context of a token file, 0 for rows.
    [[nodiscard]] int64_t tokens_per_sample() const { return file_->tokens_per_sample(); }
    // Returns the number of tokens that forward reads of one sample, for a rate: a token file's
    // context; for rows, the length of the first argument's integers, [length] or [2, length]; else
    // 0.
    [[nodiscard]] int64_t tokens_read() const;
    // Returns the column that is the loss's target if the config names none; empty: no column is.
    [[nodiscard]] std::string target_choice() const { return file_->target_choice(); }

    // Returns one new contiguous cpu tensor for each argument, with sample samples[b] in row b.
    // Token files give the tokens, then the same shifted by one, [B, context] int64. Row files give
    // the column's own dtype, except that integers become int64, and float16, bfloat16 and float64
    // become float32. The target of mse, l1 and bce_with_logits is float32. May block on the disk.
    // REQUIRES: samples in [0, rows()).
    [[nodiscard]] std::vector<c10::IValue> batch(std::span<const int64_t> samples) const;

    // Throws Error{kInput} with place and value of a token file's first token that is not below
    // VOCABULARY. Reads the whole file, so one rank of a host is enough. Rows are not known to hold
    // tokens; check_indices() checks them.
    void check_vocabulary(int64_t vocabulary) const { file_->check_vocabulary(vocabulary); }
    // Throws Error{kInput} with file, column, row and value of the first integer outside LIMIT in
    // ARGUMENT's column. Reads that column of the whole file. REQUIRES: ARGUMENT is one of
    // inputs().
    void check_indices(std::string_view argument, const IndexLimit& limit) const;
    // Throws Error{kInput} with file, row and value of the first number of ARGUMENT's column that
    // documents of packed rows do not have (storage/tables/prepared_rows.h). Checks nothing if
    // ARGUMENT is not among inputs() or gets no [rows, length] integers. Reads the whole column.
    void check_documents(std::string_view argument) const;
    // Warns if the rows are of another vocabulary than the tokenizer in the folder MODEL.
    void check_origin(const std::string& model) const { file_->check_origin(model); }

  private:
    // The file is shared by its training and held-out ranges, and by loaders' threads.
    std::shared_ptr<const Samples> file_;
    int64_t first_;
    int64_t count_;
};

struct DataSets {
    DataSource train;
    std::optional<DataSource> eval;  // held out: never trained on

    // The functions below run DataSource's checks, on each file once.
    void check_vocabulary(int64_t vocabulary) const;
    void check_indices(std::string_view argument, const IndexLimit& limit) const;
    void check_documents(std::string_view argument) const;
    void check_origin(const std::string& model) const;
    // Checks a cross_entropy's target: classes and -100. REQUIRES: the request's loss named one.
    void check_labels(const DataRequest& request, int64_t classes) const;

  private:
    [[nodiscard]] bool eval_has_its_own_file() const;
};

// Returns the names under which the training data offer tensors to forward: the columns of a row
// file, and the arguments that dslaunch.data.columns names. Empty for tokens and for a file that
// open_data() would refuse.
[[nodiscard]] std::vector<std::string> offered_names(const config::DataConfig& data);

// Opens the files that the config names. Throws Error{kInput} naming file, place and key if a file
// is missing, broken, too short for one sample, or does not fit forward's arguments. It also throws
// if nothing would be held out though eval_fraction is set. REQUIRES: not both eval_path and
// eval_fraction.
[[nodiscard]] DataSets open_data(const DataRequest& request);

}  // namespace dslaunch::runtime
