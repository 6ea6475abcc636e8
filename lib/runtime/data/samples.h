// One opened data file as numbered samples: the seam between data_source.h and the file formats.
// An implementation maps its file and copies rows out of it. Threads: const, any thread.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type_base.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "config/run/run_config.h"

namespace dslaunch::runtime {

// The data that a model requests: forward's arguments as the lowered graph has them, and the
// config's settings of data and loss.
struct DataRequest {
    config::DataConfig data;
    config::LossConfig loss;  // the last argument is its target, unless the loss is kModel
    std::vector<std::string> arguments;        // forward's, in order
    std::vector<c10::TypePtr> argument_types;  // one per argument

    [[nodiscard]] bool has_target() const {
        return loss.kind != config::LossKind::kModel && !arguments.empty();
    }
};

// A limit of integers to [0, count), with one more value that may be allowed.
struct IndexLimit {
    int64_t count = 0;
    std::optional<int64_t> also = {};  // cross entropy's -100: such a target is not counted
    std::string what = {};  // "class", "row of wte.weight": the thing that the number picks
    bool tokens = false;    // of a tokenizer: numbers that another one has made get a warning
};

// The input of one argument of forward. A batch of B samples is [B] + sample_shape, contiguous,
// cpu.
struct DataInput {
    std::string argument;
    c10::ScalarType dtype = c10::ScalarType::Float;
    std::vector<int64_t> sample_shape;

    bool operator==(const DataInput&) const = default;
};

class Samples {
  public:
    virtual ~Samples() = default;

    [[nodiscard]] virtual const std::string& path() const = 0;
    [[nodiscard]] virtual int64_t sample_count() const = 0;
    // Returns one input for each argument of forward, in order.
    [[nodiscard]] virtual const std::vector<DataInput>& inputs() const = 0;
    // Returns the context of a token file, 0 for rows.
    [[nodiscard]] virtual int64_t tokens_per_sample() const = 0;
    // Returns new tensors with samples FIRST + offsets[b] in row b. REQUIRES: all in [0,
    // sample_count).
    [[nodiscard]] virtual std::vector<c10::IValue> batch(
        int64_t first, std::span<const int64_t> offsets) const = 0;
    // Returns the column that is the loss's target if the config names none; empty: no column is.
    [[nodiscard]] virtual std::string target_choice() const { return {}; }
    // These checks are DataSource's.
    virtual void check_vocabulary(int64_t vocabulary) const = 0;
    virtual void check_indices(size_t input, const IndexLimit& limit) const = 0;
    virtual void check_documents(size_t) const {}
    virtual void check_origin(const std::string&) const {}
};

// These functions throw Error{kInput} naming PATH if the file or its fit to forward is wrong.
[[nodiscard]] std::unique_ptr<Samples> open_token_samples(const std::string& path,
                                                          const DataRequest& request);
[[nodiscard]] std::unique_ptr<Samples> open_row_samples(const std::string& path,
                                                        const DataRequest& request);

// Returns the names of a row file's columns. Throws as open_row_samples() does for the file alone.
[[nodiscard]] std::vector<std::string> row_columns(const std::string& path);

// Throws Error{kInput} naming PATH unless every argument is a tensor (or an optional one).
void check_arguments_are_tensors(const std::string& path, const DataRequest& request);

}  // namespace dslaunch::runtime
